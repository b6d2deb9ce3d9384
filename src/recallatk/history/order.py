"""The order of runs over epochs or commits: their steps, and the steps that are missing."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from recallatk.types import ChoiceError

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
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
    rows = range(len(names))
    if by is not None:
        return _sorted(_steps_by(by, names, encoders), f"--by {by}")
    for texts, how in ((names, BY_NAME), (encoders, "the number in the encoder's name")):
        steps = _numbers_apart(texts)
        if steps:
            return _sorted(steps, how)
    times = [time or "" for time in finished]
    if len(names) > 1 and any(times):
        # A run without a time stays behind the one that it was named after.
        known = [max(times[: row + 1]) if not times[row] else times[row] for row in rows]
        ordered = sorted(rows, key=known.__getitem__)
        return Order(tuple(ordered), tuple(names[row] for row in ordered), (), BY_TIME)
    return Order(tuple(rows), tuple(names), (), "their names")


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
    usual, times = Counter(gaps).most_common(1)[0]
    usual = 1 if 1 in gaps else usual
    if usual == 0 or (usual > 1 and 2 * times <= len(gaps)):
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
    twice = [step for step, times in Counter(map(_plain, steps)).items() if times > 1]
    if twice:
        runs = [name for name, step in zip(names, steps, strict=True) if _plain(step) == twice[0]]
        raise ChoiceError(f"--by {by!r} gives {' and '.join(runs[:2])} one step, {twice[0]}; let it tell them apart")
    return steps


def _plain(step: str) -> str:
    return f"{float(step):g}" if _NUMBER.fullmatch(step) else step


def _numbers_apart(texts: Sequence[str | None]) -> list[str]:
    """The first number in which texts differ that are equal beside their numbers, each time another."""
    known = [text for text in texts if text]
    if len(known) < max(2, len(texts)) or len({_NUMBER.sub("#", text) for text in known}) > 1:
        return []
    columns = list(zip(*(_NUMBER.findall(text) for text in known), strict=True))
    return next((list(column) for column in columns if len(set(map(float, column))) == len(known)), [])


def _sorted(steps: list[str], how: str) -> Order:
    if not all(_NUMBER.fullmatch(step) for step in steps):
        return Order(tuple(range(len(steps))), tuple(steps), (), how)
    rows = sorted(range(len(steps)), key=lambda row: float(steps[row]))
    return Order(tuple(rows), tuple(steps[row] for row in rows), tuple(float(steps[row]) for row in rows), how)
