"""The order of runs over epochs or commits: their steps, and the steps that are missing."""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from recallatk.types import ChoiceError

_NUMBER = re.compile(r"(?<![vV.\d])\d+\.\d+(?!\.?\d)|\d+")
"""A number; what is written as a version, 1.10.0 or v1.10, is several of them."""
_BETWEEN = "-_.:T "
"""What stands between the numbers of one date, time or version."""
_SIDE_BY_SIDE = re.compile(rf"#([{_BETWEEN}]#)*")
BY_NAME = "the number in the name of the run"
BY_TIME = "the time when each run was finished"


@dataclasses.dataclass(frozen=True)
class Order:
    """Runs in order.

    Attributes:
        rows: where each run stood before.
        steps: what each is called, in order.
        numbers: the steps as numbers; empty where they are none.
        how: where the order comes from, in words.
    """

    rows: tuple[int, ...]
    steps: tuple[str, ...]
    numbers: tuple[float, ...]
    how: str


def order_runs(
    names: Sequence[str], encoders: Sequence[str | None], finished: Sequence[str | None], by: str | None = None
) -> Order:
    """Order runs by `by`, else by the number that tells their names (or those of their encoders) apart, else by time.

    Args:
        names: what the runs are called.
        encoders: the encoder of each, where it is known.
        finished: when each was finished, in the form of ISO 8601, where that is known.
        by: a regular expression, searched in the name and then in the encoder; its first group (without one, all of
            it) is the step.

    Raises:
        ChoiceError: `by` is no regular expression, does not match a run, or gives two runs one step.

    >>> order_runs(["epoch_10", "epoch_2"], [None, None], [None, None]).steps
    ('2', '10')
    """
    if by is not None:
        steps = _steps_by(by, names, encoders)
        numbers = [_numbers(step) for step in steps]
        if len({len(row) for row in numbers}) == 1 and all(numbers):
            return _sorted(steps, numbers, f"--by {by}")
        return _by_time(steps, finished)
    for texts, how in ((names, BY_NAME), (encoders, "the number in the encoder's name")):
        apart = _numbers_apart(texts)
        if apart is not None:
            return _sorted(*apart, how)
    return _by_time(names, finished)


def missing_steps(numbers: Sequence[float]) -> tuple[str, ...]:
    """The steps that a regular series lacks: "4", or "7 to 9". Nothing where most steps are not equally far apart.

    >>> missing_steps([1, 2, 3, 5, 6, 10])
    ('4', '7 to 9')
    >>> missing_steps([1, 10, 100])
    ()
    """
    if len(numbers) < 2 or any(number != int(number) for number in numbers):
        return ()
    gaps = [int(b - a) for a, b in pairwise(numbers)]
    usual, times = min(Counter(gaps).items(), key=lambda gap: (-gap[1], gap[0]))
    if usual == 0 or 2 * times < len(gaps) + (usual > 1):
        return ()
    found = []
    for start, gap in zip(numbers, gaps, strict=False):
        if gap > usual and gap % usual == 0:
            first, last = int(start) + usual, int(start) + gap - usual
            found.append(f"{first}" if first == last else f"{first} to {last}")
    return tuple(found)


def _steps_by(by: str, names: Sequence[str], encoders: Sequence[str | None]) -> list[str]:
    try:
        pattern = re.compile(by)
    except re.error as error:
        raise ChoiceError(f"--by {by!r} is no regular expression ({error})") from error
    if pattern.groups > 1:
        raise ChoiceError(f"--by {by!r} has {pattern.groups} groups; the step is one, so write the others as (?:...)")
    steps = []
    for name, encoder in zip(names, encoders, strict=True):
        match = pattern.search(name) or pattern.search(encoder or "")
        step = match and match[pattern.groups]
        if not step:
            raise ChoiceError(
                f"--by {by!r} finds no step in {name!r}" + (f" nor in its encoder {encoder!r}" if encoder else "")
            )
        steps.append(step)
    seen: dict[object, str] = {}
    for name, step in zip(names, steps, strict=True):
        other = seen.setdefault(_numbers(step) or step, name)
        if other != name:
            raise ChoiceError(f"--by {by!r} gives {other} and {name} one step, {step}; let it tell them apart")
    return steps


def _numbers(step: str) -> tuple[float, ...]:
    """The numbers of a step: one, or those of a date, a time or a version; empty where it is something else."""
    if not _SIDE_BY_SIDE.fullmatch(_NUMBER.sub("#", step)):
        return ()
    numbers = tuple(map(float, _NUMBER.findall(step)))
    return numbers if all(map(math.isfinite, numbers)) else ()


def _numbers_apart(texts: Sequence[str | None]) -> tuple[list[str], list[tuple[float, ...]]] | None:
    """The first number in which texts differ that are equal beside their numbers, each time another.

    Numbers that stand side by side, as in a date, a time or a version, count together, from left to right.

    Returns:
        The steps and their numbers; None where numbers do not tell the texts apart.
    """
    known = [text for text in texts if text]
    if len(known) < max(2, len(texts)) or len({_NUMBER.sub("#", text) for text in known}) > 1:
        return None
    found = [list(_NUMBER.finditer(text)) for text in known]
    for start, end in _side_by_side(known[0], found[0]):
        values = [tuple(float(number[0]) for number in row[start:end]) for row in found]
        differ = [column for column in range(end - start) if len({row[column] for row in values}) > 1]
        if not differ or len(set(values)) < len(known):
            continue
        first, last = differ[0], differ[-1]
        if len({row[first] for row in values}) == len(known):  # it alone tells them apart
            last = first
        steps = [
            text[row[start + first].start() : row[start + last].end()] for text, row in zip(known, found, strict=True)
        ]
        return steps, [row[first : last + 1] for row in values]
    return None


def _side_by_side(text: str, numbers: Sequence[re.Match[str]]) -> list[tuple[int, int]]:
    """From where to where numbers stand side by side."""
    starts = [
        row
        for row, number in enumerate(numbers)
        if not row or text[numbers[row - 1].end() : number.start()] not in set(_BETWEEN)
    ]
    return list(pairwise([*starts, len(numbers)]))


def _sorted(steps: Sequence[str], numbers: Sequence[tuple[float, ...]], how: str) -> Order:
    rows = sorted(range(len(steps)), key=numbers.__getitem__)
    alone = all(len(numbers[row]) == 1 for row in rows)
    return Order(
        tuple(rows), tuple(steps[row] for row in rows), tuple(numbers[row][0] for row in rows) if alone else (), how
    )


def _by_time(steps: Sequence[str], finished: Sequence[str | None]) -> Order:
    """By the time when they were finished, where that is known; else as they are."""
    rows, times = range(len(steps)), [time or "" for time in finished]
    if len(steps) < 2 or not any(times):
        return Order(tuple(rows), tuple(steps), (), "their names")
    # A run without a time stays behind the one that it was named after.
    known = [max(times[: row + 1]) if not times[row] else times[row] for row in rows]
    ordered = sorted(rows, key=known.__getitem__)
    return Order(tuple(ordered), tuple(steps[row] for row in ordered), (), BY_TIME)
