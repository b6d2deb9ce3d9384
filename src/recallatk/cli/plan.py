"""`recallatk plan`: how many queries it takes to see a difference."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import dataclasses
import json as json_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from recallatk.cli.flags import INTERVALS_GROUP, OUTPUT_GROUP


def plan(
    run: Path,
    /,
    *,
    against: Path | None = None,
    difference: tuple[float, ...] = (),
    discordance: float | None = None,
    power: float = 0.8,
    metric: str | None = None,
    cluster: Annotated[str | None, Parameter(group=INTERVALS_GROUP)] = None,
    confidence: Annotated[float | None, Parameter(group=INTERVALS_GROUP)] = None,
    json: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """How many queries, and labels, it takes to see a difference, and what the present queries can show.

    Two systems on the same queries are told apart by the queries on which they differ. How many these are is measured
    on two earlier runs, or said with --discordance; else it is worked out for three shares.

    Args:
        run: the folder of an earlier run on such queries.
        against: a run of another system on the same queries.
        difference: what should be seen, such as 0.01; several may be given, by default there is a table.
        discordance: the share of queries on which two systems will differ, such as 0.1.
        power: the chance to see a difference that is there.
        metric: recall or cmc at a k; by default recall at the smallest k.
        cluster: what queries of one cluster share, as for `recallatk eval`.
        confidence: 1 less the level of the test; 0.95 is the level 0.05.
        json: print everything as JSON.
    """
    from recallatk.comparison import choose_rule
    from recallatk.planning import plan as make_plan
    from recallatk.run import load_report

    report = load_report(run)
    asked = {"cluster": cluster, "confidence": confidence}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    found = make_plan(
        report,
        None if against is None else load_report(against),
        metric=metric,
        differences=difference,
        discordance=discordance,
        power=power,
        intervals=dataclasses.replace(choose_rule(report), **given) if given else None,
    )
    print(json_module.dumps(found.record(), indent=2, ensure_ascii=False) if json else found.text())
