"""What a report gives to a loop or a logger: one flat dict of floats."""

from __future__ import annotations

from recallatk.report import Report


def flat_values(report: Report, prefix: str = "") -> dict[str, float]:
    """Each metric by its name, and the ends of its interval as `NAME_low` and `NAME_high` where there is one."""
    values: dict[str, float] = {}
    for name, value in report.values_by_metric.items():
        values[f"{prefix}{name}"] = value.value
        if value.interval is not None:
            values[f"{prefix}{name}_low"], values[f"{prefix}{name}_high"] = value.interval.low, value.interval.high
    return values
