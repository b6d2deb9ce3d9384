"""A history as text, Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias

from recallatk.comparison.verdict import p_value, signed
from recallatk.history.order import BY_NAME, BY_TIME
from recallatk.markup import escape_latex, escape_markdown, html_table, make_csv, make_table
from recallatk.statistics import describe_rule
from recallatk.wording import counted, one_line

if TYPE_CHECKING:
    from recallatk.history.curve import Change, History, Step
    from recallatk.statistics import PairedTest

TableFormat: TypeAlias = Literal["simple", "github", "latex"]

BLOCKS = "▁▂▃▄▅▆▇█"
NO_VALUE = "x"
_HEADER = ("step", "run", "value", "against the first", "the one before", "the best")


def sparkline(values: Sequence[float | None]) -> str:
    """A curve in one line of text, from the lowest value to the highest; a cross where there is none.

    >>> sparkline([0.5, 0.6, None, 0.75])
    '▁▄x█'
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(NO_VALUE if value is None else BLOCKS[round((value - low) * scale)] for value in values)


def without_blocks(text: str) -> str:
    """Text for a screen that has no block characters: the curve as digits.

    >>> without_blocks("▁▄x█")
    '14x8'
    """
    return text.translate({ord(block): str(height) for height, block in enumerate(BLOCKS, 1)})


def as_text(history: History, *, percent: bool = False) -> str:
    """The sections that `recallatk history` prints."""
    sections = {
        "history": _summary(history, percent=percent),
        "runs": as_table(history, "simple", percent=percent).splitlines(),
        "failed": [one_line(f"{step.step}: {step.error}") for step in history.failed],
        "missing": missing_lines(history),
        "selection": [] if history.selection is None else history.selection.lines(percent=percent),
        "notes": [*map(one_line, history.notes), *_how_to_read(history)],
    }
    return "\n".join(f"[{name}]\n" + "\n".join(lines) for name, lines in sections.items() if lines)


def as_table(history: History, form: TableFormat, *, percent: bool = False) -> str:
    """A row a run: step, value with its interval, and the changes with their adjusted p-values."""
    from tabulate import tabulate

    header, rows = _table(history, percent=percent)
    if form == "github":
        return make_table(header, rows, form, escape_markdown)
    if form == "latex":
        return make_table(header, rows, "latex_raw", escape_latex)
    table: str = tabulate(rows, header, tablefmt=form, disable_numparse=True, preserve_whitespace=True)
    return table


def as_html(history: History) -> str:
    """For a notebook: the table of runs, the curve above it."""
    summary = _summary(history, percent=False)
    failed = [f"{step.step}: {step.error}" for step in history.failed]
    selection = [] if history.selection is None else history.selection.lines(percent=False)
    notes = [*summary[1:], *failed, *missing_lines(history), *selection, *history.notes]
    return html_table(summary[0], *_table(history, percent=False), notes)


def _table(history: History, *, percent: bool) -> tuple[Sequence[str], list[list[str]]]:
    """The heads of the columns, and the rows."""
    rows = [_row(step, _alpha(history), percent=percent) for step in history.steps]
    header = [_HEADER[0], _HEADER[1], history.metric, *_HEADER[3:]]
    if all(step.step == step.name for step in history.steps):  # one name is enough
        header, rows = header[1:], [row[1:] for row in rows]
    elif history.order == BY_NAME:
        header, rows = [header[0], *header[2:]], [[row[0], *row[2:]] for row in rows]
    if history.order == BY_TIME:
        header = [*header[:-4], "finished", *header[-4:]]
        times = [one_line(step.finished or "").removesuffix("+00:00") for step in history.steps]
        rows = [[*row[:-4], time, *row[-4:]] for row, time in zip(rows, times, strict=True)]
    if len(history.evaluated) == 1:
        header, rows = header[:-3], [row[:-3] for row in rows]
    return header, rows


def as_csv(history: History) -> str:
    """A row a run; the columns of a change begin with what it is against."""
    changes = ("against", "difference", "low", "high", "p_value", "p_holm")
    heads = ["step", "run", "metric", "value", "low", "high", "n", "encoder", "finished", "run_id", "error"]
    heads += [f"{against}_{name}" for against in ("first", "previous", "best") for name in changes]
    rows: list[list[object]] = [list(heads)]
    for step in history.steps:
        interval = step.interval
        ends = (None, None) if interval is None else (interval.low, interval.high)
        row: list[object] = [step.step, step.name, history.metric, step.value, *ends, step.n, step.encoder]
        row += [step.finished, step.run_id, step.error]
        for change in (step.first, step.previous, step.best):
            row += _csv_change(change)
        rows.append([one_line(cell) if isinstance(cell, str) else cell for cell in row])
    return make_csv(rows)


def _csv_change(change: Change | None) -> list[str | float | None]:
    if change is None:
        return [None] * 6
    interval = change.test.interval
    ends = [None, None] if interval is None else [interval.low, interval.high]
    return [change.against, change.test.difference, *ends, change.test.p_value, change.p_holm]


def _row(step: Step, alpha: float, *, percent: bool) -> list[str]:
    if step.value is None:
        return [one_line(step.step), one_line(step.name), "failed", "", "", ""]
    value = f"{100 * step.value:.2f}" if percent else f"{step.value:.4f}"
    if step.interval is not None:
        low, high = (_short(end, percent=percent) for end in (step.interval.low, step.interval.high))
        value += f" [{low}, {high}]"
    changes = [_change(change, alpha, percent=percent) for change in (step.first, step.previous, step.best)]
    if step.best is None:
        changes[-1] = "best"
    return [one_line(step.step), one_line(step.name), value, *changes]


def _change(change: Change | None, alpha: float, *, percent: bool) -> str:
    if change is None:
        return ""
    return f"{_signed(change.test.difference, percent=percent)} (p {p_value(change.p_holm, alpha)})"


def _summary(history: History, *, percent: bool) -> list[str]:
    known, best, last = history.evaluated, history.best, history.evaluated[-1]
    queries = counted(best.n, "query", "queries")
    ordered = f", in the order of {history.order}" if len(history.steps) > 1 else ""
    lines = [
        f"{history.metric} of {counted(len(history.steps), 'run')} on {queries}{ordered}"
        + (f"; {counted(len(history.failed), 'run')} failed" if history.failed else "")
    ]
    if len(known) == 1:
        return [*lines, f"one run has a value, {_named(best)}: there is nothing to hold it against"]
    values = [step.value for step in known if step.value is not None]
    if max(values) > min(values):
        span = " to ".join(f"{100 * end:.2f}" if percent else f"{end:.4f}" for end in (min(values), max(values)))
        lines.append(f"{sparkline([step.value for step in history.steps])}  from {span}")
    alpha = _alpha(history)
    lines.append(
        f"best: {_named(best)}"
        + (", the first" if best.first is None else _said(best.first, "the first", alpha, percent=percent))
    )
    if last is not best and last.best is not None:
        lines.append(f"last: {_named(last)}" + _said(last.best, "the best", alpha, percent=percent))
    return lines


def _said(change: Change, other: str, alpha: float, *, percent: bool) -> str:
    test = change.test
    if not test.wins and not test.losses:
        return f", the same as {other} for every query"
    way = f"{_signed(abs(test.difference), percent=percent).lstrip('+')} {'above' if test.difference > 0 else 'below'}"
    sure = f"p {p_value(test.p_value, alpha)}, {p_value(change.p_holm, alpha)} after Holm"
    if test.interval is not None:
        ends = " to ".join(_signed(end, percent=percent) for end in (test.interval.low, test.interval.high))
        sure = f"{100 * test.interval.confidence:g} % interval {ends}; {sure}"
    text = f", {'level with' if test.difference == 0 else way} {other} ({sure})"
    if change.p_holm <= alpha:
        return text
    could = test.difference == 0 or _least_p(test) <= alpha
    return f"{text}: no difference shown{'' if could else ', too little differs for the test to show one'}"


def _least_p(test: PairedTest) -> float:
    """The least p that so many clusters with a difference can give, or so many flips where they are a sample."""
    return max(test.smallest_p, 0.0 if test.exact else 2 / (test.flips + 1))


def _alpha(history: History) -> float:
    return history.rule.alpha


def missing_lines(history: History) -> list[str]:
    """The steps that a regular series would have, a line each."""
    return [f"no run for step{'s' if ' ' in gap else ''} {gap}" for gap in history.missing]


def _how_to_read(history: History) -> list[str]:
    if len(history.evaluated) == 1:
        return []
    tests = [change.test for step in history.evaluated for change in (step.first, step.best) if change is not None]
    each = len(history.evaluated) - 1
    seeds = {test.seed for test in tests if test.seed is not None}
    alone = tests[0].clusters == history.best.n
    flipped = "queries" if alone else f"whole {_clusters(history, 2)}"
    lines = [
        *_how_intervals_are_made(history),
        f"p: sign flips of {flipped}, in the table adjusted (Holm) for the {counted(each, 'test')} of its column"
        + "".join(f"; flips drawn with seed {seed}" for seed in seeds),
    ]
    alpha = _alpha(history)
    least = min(1.0, each * min(map(_least_p, tests)))
    differ = max(test.clusters_with_difference for test in tests)
    if not differ and not any(test.discordance for test in tests):
        lines.append("all runs are the same for every query")
    elif least > alpha:
        few = counted(differ, "query", "queries") if alone else f"{differ:,} {_clusters(history, differ)}"
        why = (
            f"no more than {few} differ{'s' if differ == 1 else ''} between two runs"
            if any(test.exact for test in tests)
            else f"{counted(each, 'test')} of {tests[0].flips:,} flips each"
        )
        lines.append(
            f"{why}: no p below {p_value(least, alpha)} after Holm is possible, so a difference cannot be shown here"
        )
    lines.append("all this is about other queries of this kind, not about other training runs")
    return lines


def _how_intervals_are_made(history: History) -> list[str]:
    """The rule, and what stood in for it where it could not be followed."""
    made = [(step, step.interval) for step in history.evaluated if step.interval is not None]
    as_asked = next((interval for _, interval in made if not interval.reason), None)
    lines = [] if as_asked is None else [f"intervals: {describe_rule(history.rule, as_asked.clusters)}"]
    others: dict[str, list[Step]] = {}
    for step, interval in made:
        if interval.reason:
            how = f"{100 * interval.confidence:g} % {interval.method}, every query on its own, as {interval.reason}"
            others.setdefault(how, []).append(step)
    for how, steps in others.items():
        which = ", ".join(map(_named, steps)) if len(steps) < len(made) else "intervals"
        lines.append(f"{which}: {how}")
    changes = [change.test.interval for step in history.evaluated for change in (step.first, step.best) if change]
    reasons = dict.fromkeys(interval.reason for interval in changes if interval is not None and interval.reason)
    return lines + [f"intervals of changes: t over queries, as {reason}" for reason in reasons]


def _clusters(history: History, count: int) -> str:
    if history.rule.cluster == "label":
        return "label" if count == 1 else "labels"
    return f"{'value' if count == 1 else 'values'} of {history.rule.cluster}"


def _named(step: Step) -> str:
    return one_line(step.name if step.step == step.name else f"step {step.step}")


def _short(value: float, *, percent: bool) -> str:
    return f"{100 * value:.1f}" if percent else f"{value:.3f}"


def _signed(value: float, *, percent: bool) -> str:
    return f"{100 * value:+.2f}" if percent else signed(value)
