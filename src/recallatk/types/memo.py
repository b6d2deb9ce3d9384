"""Work done once for each distinct value of a column."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Memo(dict[Key, Result]):
    """The results of a function by argument, filled as they are asked for.

    Columns repeat themselves: half a million rows have a few thousand labels. Looking a result up costs less than most
    functions, and equal values then share one result in memory.

    >>> Memo(str).each([3, 5, 3])
    ['3', '5', '3']
    """

    def __init__(self, work: Callable[[Key], Result]) -> None:
        super().__init__()
        self._work = work

    def __missing__(self, key: Key) -> Result:
        result = self[key] = self._work(key)
        return result

    def each(self, column: Iterable[Key]) -> list[Result]:
        """The results of a column, in order."""
        return [self[key] for key in column]
