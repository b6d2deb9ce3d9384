"""`recallatk gate`: an exit code that says whether a run is good enough; also as flags of `recallatk eval`."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import dataclasses
import json as json_module
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recallatk.cli.flags import NO_GATE, OUTPUT_GROUP, Gate
from recallatk.cli.printing import NOT_PASSED
from recallatk.types import ChoiceError


@dataclasses.dataclass(frozen=True)
class Conditions:
    """The flags, read and checked, with the earlier runs that they name."""

    minimum: dict[str, str]
    max_drop: tuple[tuple[str, Any, str], ...]
    significant_only: bool

    def check(self, report: Any, metric: str | None = None) -> tuple[Any, ...]:
        """The conditions of `check_gate`; none where none was asked for."""
        from recallatk.gates import check_gate

        if not self.minimum and not self.max_drop:
            return ()
        return check_gate(
            report,
            minimum=self.minimum,
            max_drop=self.max_drop,
            metric=metric,
            significant_only=self.significant_only,
        )


def read_gate(gate: Gate, known: Sequence[str] = ()) -> Conditions:
    """Read the flags before any work is done.

    Args:
        gate: the flags.
        known: the metrics that the run will have, where that is known already.

    Raises:
        ChoiceError: a flag is not METRIC=VALUE or RUN=VALUE, or says something twice.
        RecallatkError: there is no run in a folder.
    """
    from recallatk.gates import parse_limit
    from recallatk.run import load_report

    minimum: dict[str, str] = {}
    for text in gate.min:
        metric, value = _split(text, "--min", "recall@1=0.80")
        if metric in minimum:
            raise ChoiceError(f"--min {text}: {metric} is given more than once")
        if known and metric not in known:
            raise ChoiceError(f"--min {text}: the run will have no {metric}; it has {', '.join(known)} (-k, --metric)")
        parse_limit(value, f"--min {text}")
        minimum[metric] = value
    drops: list[tuple[str, Any, str]] = []
    for text in gate.max_drop:
        base, value = _split(text, "--max-drop", "runs/main=0.01")
        if base in {name for name, _, _ in drops}:
            raise ChoiceError(f"--max-drop {text}: {base} is given more than once")
        parse_limit(value, f"--max-drop {text}")
        drops.append((base, load_report(base), value))
    if gate.significant_only and not drops:
        raise ChoiceError("--significant-only is about drops; give --max-drop RUN=0.01 with it")
    return Conditions(minimum, tuple(drops), gate.significant_only)


def _split(text: str, flag: str, example: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name or not value:
        raise ChoiceError(f"{flag} {text!r} says no value; write {flag} {example}")
    return name, value


def gate(
    run: Path,
    /,
    *,
    conditions: Gate = NO_GATE,
    metric: str | None = None,
    json: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """Pass or fail a saved run: exit code 1 where it is not good enough, with a line that says by how much.

    Each condition is a line on standard output, `passed:` or `failed:`, with whether chance alone could give as much.
    Borders are exact: 0.80 passes --min recall@1=0.80. A run that is not comparable is an error (3) and never passes.

    Args:
        run: the folder of a run.
        metric: the metric that drops are measured in; by default recall at the smallest k that both runs have.
        json: print the conditions as JSON.
    """
    from recallatk.run import load_report

    read = read_gate(conditions)
    if not read.minimum and not read.max_drop:
        raise ChoiceError("there is nothing to check; give --min recall@1=0.80 or --max-drop RUN=0.01")
    found = read.check(load_report(run), metric)
    if json:
        print(json_module.dumps([dataclasses.asdict(one) for one in found], indent=2, ensure_ascii=False))
    else:
        for condition in found:
            print(condition.line)
    if not all(condition.passed for condition in found):
        sys.exit(NOT_PASSED)
