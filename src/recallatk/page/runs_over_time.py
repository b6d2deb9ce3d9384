"""The page of a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recallatk.history import History, Step
from recallatk.page.gather import label_rows
from recallatk.page.markup import fill
from recallatk.page.options import DEFAULT_OPTIONS, PageOptions
from recallatk.page.paper import Page, bounded, rounded
from recallatk.page.plots import Line, draw_history
from recallatk.page.selection import smallest_k
from recallatk.page.words import gauge, interval_words
from recallatk.report import Report
from recallatk.wording import counted


def history_page(
    history: History, reports: Mapping[str, Report | Exception], options: PageOptions = DEFAULT_OPTIONS
) -> Page:
    """The page of a history: curves with their bands, and labels over the steps.

    Args:
        history: what `track` returned.
        reports: the runs that it was given.
        options: only `max_size` matters.

    Raises:
        RecallatkError: as for `run_page`.
    """
    steps = history.steps
    evaluated = [(step, report) for step in steps if isinstance(report := reports[step.name], Report)]
    lines = [
        Line(
            history.metric,
            [step.value for step in steps],
            [None if step.interval is None else step.interval.low for step in steps],
            [None if step.interval is None else step.interval.high for step in steps],
        )
    ]
    others = [name for name in evaluated[0][1] if name != history.metric and all(name in r for _, r in evaluated)]
    for name in others[:3]:
        lines.append(_line(name, [reports[step.name] for step in steps]))
    small_k = smallest_k(evaluated[0][1])  # of every run, so that a label has one curve
    tracked: dict[str, dict[str, float | None]] = {}
    for step, report in evaluated:
        for one in label_rows(report, small_k):
            if one["low"] is not None:  # a label whose queries were all excluded has no curve
                tracked.setdefault(one["label"], {})[step.name] = one["low"]
    columns: dict[str, list[Any]] = {
        "label": list(tracked),
        "first": [_end(values, evaluated, 0) for values in tracked.values()],
        "last": [_end(values, evaluated, -1) for values in tracked.values()],
        "change": [_change(values, evaluated) for values in tracked.values()],
        "over": [[rounded(values.get(step.name)) for step, _ in evaluated] for values in tracked.values()],
    }
    ordered = sorted(range(len(tracked)), key=lambda place: (columns["change"][place] or 0, columns["label"][place]))
    columns = {name: [column[place] for place in ordered] for name, column in columns.items()}
    best = history.best
    fixed: dict[str, Any] = {
        "title": f"{history.metric} over {counted(len(steps), 'run')}",
        "best": {
            "name": best.name,
            "value": f"{best.value:.4f}",
            "beside": interval_words(best.interval),
            "gauge": gauge(best.value, best.interval, None),
        },
        "counts": f"{counted(best.n, 'query', 'queries')}; order: {history.order}",
        "plots": [
            draw_history([s.step for s in steps], lines, [at for at, step in enumerate(steps) if step.value is None])
        ],
        "steps": [_step_row(step) for step in steps],
        "metric": history.metric,
        "missing": [f"no run for step {name}" for name in history.missing]
        + [f"{step.name} failed: {step.error}" for step in history.failed],
        "notes": list(history.notes),
        "text": history.text(),
        "encoders": any(step.encoder for step in steps),
        "small_k": small_k,
    }
    data: dict[str, Any] = {
        "kind": "history",
        "tables": {"labels": columns},
        "steps": [step.step for step, _ in evaluated],
    }
    return bounded(Page(fill("history.html", data=data, size="", page_notes=[], **fixed)), options)


def _line(name: str, reports: Sequence[Report | Exception]) -> Line:
    values = [report.values_by_metric[name] if isinstance(report, Report) else None for report in reports]
    intervals = [None if value is None else value.interval for value in values]
    return Line(
        name,
        [None if value is None else value.value for value in values],
        [None if interval is None else interval.low for interval in intervals],
        [None if interval is None else interval.high for interval in intervals],
    )


def _end(values: Mapping[str, float | None], evaluated: Sequence[Any], place: int) -> float | None:
    return rounded(values.get(evaluated[place][0].name))


def _change(values: Mapping[str, float | None], evaluated: Sequence[Any]) -> float | None:
    first, last = _end(values, evaluated, 0), _end(values, evaluated, -1)
    return None if first is None or last is None else rounded(last - first)


def _step_row(step: Step) -> dict[str, str]:
    change = step.previous
    return {
        "step": step.step,
        "name": step.name,
        "value": "failed" if step.value is None else f"{step.value:.4f}",
        "interval": "" if step.interval is None else f"{step.interval.low:.3f} to {step.interval.high:.3f}",
        "change": "" if change is None else f"{change.test.difference:+.4f}",
        "p": "" if change is None else f"{change.p_holm:.3g}",
        "encoder": step.encoder or "",
    }
