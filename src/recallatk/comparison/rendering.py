"""A comparison as text, Markdown, LaTeX and CSV. Names, ids and labels come from outside: each form has its escapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from recallatk.comparison.verdict import p_value, signed, test_lines, verdict
from recallatk.markup import escape_latex as _latex
from recallatk.markup import escape_markdown as _markdown
from recallatk.markup import html_table, make_csv, make_table
from recallatk.statistics import describe_rule
from recallatk.types import each_label
from recallatk.wording import counted, one_line

if TYPE_CHECKING:
    from recallatk.comparison.comparing import ChangedQuery, ComparedLabel, ComparedValue, Comparison, Contrast

SHOWN = 10
"""Changed queries and labels that are shown, of each kind, where not all are asked for."""

CAVEAT = "intervals and tests are about other queries of this kind, not about other training runs of the systems"

Row = Sequence[str]
Table = tuple[Row, list[Row]]
"""The heads of the columns, and the rows."""


def as_text(comparison: Comparison, *, everything: bool) -> str:
    """The verdict, then sections in square brackets."""
    sections = [("verdict", verdict(comparison)), ("forced", _forced(comparison))]
    sections.append(("systems", [*_text_table(_systems(comparison)), *_rule(comparison)]))
    sections += [("test", test_lines(comparison, contrast)) for contrast in comparison.contrasts]
    for contrast in comparison.contrasts:
        lines = []
        for title, queries in _by_outcome(comparison, contrast):
            lines.append(f"{title}: {len(queries):,}")
            lines += _text_table(_queries(comparison, contrast, queries, everything))
            lines += _more(len(queries), everything)
        sections.append(("changed queries", lines))
        changed = _changed_labels(comparison, contrast)
        if changed:
            lines = [
                f"{contrast.name}: {counted(len(changed), 'label')} of {len(comparison.labels):,} with a difference"
            ]
            lines += _text_table(_labels(comparison, contrast, changed, everything))
            sections.append(("changed labels", lines))
    sections.append(("notes", [f"- {note}" for note in (*comparison.notes, CAVEAT)]))
    return "\n".join(f"[{name}]\n" + "\n".join(map(one_line, lines)) for name, lines in sections if lines)


def as_markdown(comparison: Comparison, *, everything: bool) -> str:
    """The same sections, with tables for GitHub and others."""
    first, *others = verdict(comparison)
    blocks = [f"**{_markdown(first)}**", *map(_markdown, others)]
    blocks += _bullets("Forced", _forced(comparison))
    blocks += ["### Systems", _markdown_table(_systems(comparison)), *map(_markdown, _rule(comparison))]
    for contrast in comparison.contrasts:
        head, *lines = test_lines(comparison, contrast)
        blocks += _bullets(head, lines)
        for title, queries in _by_outcome(comparison, contrast):
            blocks.append(f"#### {_markdown(title)}: {len(queries):,}")
            blocks.append(_markdown_table(_queries(comparison, contrast, queries, everything)))
            blocks += _more(len(queries), everything)
        changed = _changed_labels(comparison, contrast)
        if changed:
            blocks.append(f"#### Labels with a difference: {len(changed):,} of {len(comparison.labels):,}")
            blocks.append(_markdown_table(_labels(comparison, contrast, changed, everything)))
    return "\n\n".join([*blocks, *_bullets("Notes", [*comparison.notes, CAVEAT])])


def as_latex(comparison: Comparison) -> str:
    """One table of the systems, the verdict above it as comments."""
    heads, rows = _systems(comparison)
    tests = {contrast.name: contrast for contrast in comparison.contrasts}
    rows = [
        [*row[:-1], *_tested(comparison, tests.get(system.name))]
        for row, system in zip(rows, comparison.systems, strict=True)
    ]
    lines = [*verdict(comparison), *_forced(comparison), *_rule(comparison), *comparison.notes, CAVEAT]
    comments = "\n".join(f"% {one_line(line)}" for line in lines)
    table = make_table([*heads[:-1], "difference", "interval", "p"], rows, "latex_raw", _latex)
    return f"{comments}\n{table}"


def as_html(comparison: Comparison) -> str:
    """For a notebook: the table of the systems, the verdict above it."""
    first, *others = verdict(comparison)
    notes = [*others, *_forced(comparison), *_rule(comparison), *comparison.notes, CAVEAT]
    return html_table(first, *_systems(comparison), notes)


def as_csv(comparison: Comparison) -> str:
    """One table; `row` says what a row is: a metric of a system, a changed query in a system, a label in a system."""
    heads = (
        *("row", "system", "metric", "item", "label", "n", "value", "low", "high", "baseline_value", "difference"),
        *("difference_low", "difference_high", "p_value", "p_holm", "mcnemar_exact", "mcnemar_mid_p"),
        *(
            "wins",
            "losses",
            "ties",
            "discordance",
            "minimum_detectable_effect",
            "first_rank",
            "last_rank",
            "best_positive",
        ),
    )
    return make_csv([heads, *([row.get(name) for name in heads] for row in _csv_rows(comparison))])


def _csv_rows(comparison: Comparison) -> Iterable[dict[str, Any]]:
    tests = {contrast.name: contrast for contrast in comparison.contrasts}
    for system in comparison.systems:
        for metric, value in system.values.items():
            row = {
                "row": "system",
                "system": system.name,
                "metric": metric,
                "n": len(comparison.ids),
                "value": value.value,
            }
            if value.interval is not None:
                row |= {"low": value.interval.low, "high": value.interval.high}
            if metric == comparison.metric and system.name in tests:
                row |= {"baseline_value": comparison.baseline.values[metric].value, **_csv_test(tests[system.name])}
            yield row
    for place, system in enumerate(comparison.systems[1:], 1):
        common = {"system": system.name, "metric": comparison.metric}
        for query in comparison.changed:
            yield {
                **{"row": "query", **common, "item": query.id, "label": "|".join(each_label(query.label))},
                **{"n": 1, "value": query.values[place], "baseline_value": query.values[0]},
                "difference": query.values[place] - query.values[0],
                **dict(zip(("first_rank", "last_rank"), query.ranks[place] or (None, None), strict=True)),
                "best_positive": query.best[place],
            }
        for label in comparison.labels:
            yield {
                **{"row": "label", **common, "item": label.label, "label": label.label, "n": label.n},
                **{"value": label.values[place], "baseline_value": label.values[0]},
                "difference": label.values[place] - label.values[0],
            }


def _csv_test(contrast: Contrast) -> dict[str, Any]:
    test = contrast.test
    found: dict[str, Any] = {
        name: getattr(test, name)
        for name in ("difference", "p_value", "wins", "losses", "ties", "discordance", "minimum_detectable_effect")
    }
    found["p_holm"] = contrast.p_holm
    if test.interval is not None:
        found |= {"difference_low": test.interval.low, "difference_high": test.interval.high}
    if test.mcnemar is not None:
        found |= {"mcnemar_exact": test.mcnemar.exact, "mcnemar_mid_p": test.mcnemar.mid_p}
    return found


def _systems(comparison: Comparison) -> Table:
    metrics = list(comparison.baseline.values)
    rows: list[Row] = [
        [system.name, *(_value(system.values[metric]) for metric in metrics), system.run_id]
        for system in comparison.systems
    ]
    return ["system", *metrics, "run id"], rows


def _value(value: ComparedValue) -> str:
    if value.interval is None:
        return f"{value.value:.6f}"
    return f"{value.value:.6f} [{value.interval.low:.3f}, {value.interval.high:.3f}]"


def _rule(comparison: Comparison) -> list[str]:
    known = [value.interval for system in comparison.systems for value in system.values.values() if value.interval]
    average = ["values are means of the means of labels (average=macro)"] if comparison.average == "macro" else []
    if not known:
        return average
    odd = sorted({f"{interval.method}: {interval.reason}" for interval in known if interval.reason})
    beside = f" (some by {'; '.join(odd)})" if odd else ""
    doubts = [
        f"{system.name}, {metric}: {value.interval.caveat}"
        for system in comparison.systems
        for metric, value in system.values.items()
        if value.interval is not None and value.interval.caveat
    ]
    rule = describe_rule(comparison.intervals, known[0].clusters, several=comparison.several_labels)
    return [f"intervals: {rule}{beside}", *doubts, *average]


def _tested(comparison: Comparison, contrast: Contrast | None) -> Row:
    if contrast is None:
        return ["", "", ""]
    interval = contrast.test.interval
    ends = "" if interval is None else f"{signed(interval.low)} to {signed(interval.high)}"
    return [signed(contrast.test.difference), ends, p_value(contrast.p_holm, comparison.alpha)]


def _forced(comparison: Comparison) -> list[str]:
    dropped = [f"dropped: {line}" for line in comparison.dropped.lines()]
    return [*dropped, *(f"differs: {line}" for line in comparison.differences)]


def _place(comparison: Comparison, contrast: Contrast) -> int:
    return [system.name for system in comparison.systems].index(contrast.name)


def _by_outcome(comparison: Comparison, contrast: Contrast) -> list[tuple[str, list[ChangedQuery]]]:
    """The changed queries of one run: losses, the largest first, then wins, the largest first."""
    place = _place(comparison, contrast)
    words = ("lost", "won") if comparison.is_hit else ("lower", "higher")
    found = []
    for word, sign in zip(words, (-1, 1), strict=True):
        of_kind = [query for query in comparison.changed if sign * (query.values[place] - query.values[0]) > 1e-9]
        of_kind.sort(key=lambda query, sign=sign: (-sign * (query.values[place] - query.values[0]), query.id))  # type: ignore[misc]
        found.append((f"{word} in {contrast.name}", of_kind))
    return [(title, queries) for title, queries in found if queries]


def _queries(comparison: Comparison, contrast: Contrast, queries: list[ChangedQuery], everything: bool) -> Table:
    places = (0, _place(comparison, contrast))
    names = (comparison.baseline.name, contrast.name)
    heads = ["query", "label", *(f"in {name}" for name in names), *(f"best positive in {name}" for name in names)]
    return heads, [
        [
            query.id,
            ", ".join(each_label(query.label)),
            *(_outcome(comparison, query, place) for place in places),
            *(query.best[place] or "-" for place in places),
        ]
        for query in (queries if everything else queries[:SHOWN])
    ]


def _outcome(comparison: Comparison, query: ChangedQuery, place: int) -> str:
    value, ranks = query.values[place], query.ranks[place]
    shown = {0.0: "miss", 1.0: "hit"}.get(value, f"{value:.4g}") if comparison.is_hit else f"{value:.4f}"
    if ranks is None:
        return f"{shown}, no positive"
    return f"{shown}, rank {ranks[0]}" + (f" to {ranks[1]}" if ranks[1] > ranks[0] else "")


def _changed_labels(comparison: Comparison, contrast: Contrast) -> list[tuple[float, ComparedLabel]]:
    place = _place(comparison, contrast)
    found = [(label.values[place] - label.values[0], label) for label in comparison.labels]
    return sorted((one for one in found if abs(one[0]) > 1e-9), key=lambda found: (round(found[0], 12), found[1].label))


def _labels(
    comparison: Comparison, contrast: Contrast, changed: list[tuple[float, ComparedLabel]], everything: bool
) -> Table:
    place = _place(comparison, contrast)
    heads = ["label", "queries", comparison.baseline.name, contrast.name, "difference"]
    rows: list[Row] = [
        [label.label, f"{label.n:,}", f"{label.values[0]:.4f}", f"{label.values[place]:.4f}", signed(difference)]
        for difference, label in changed
    ]
    if not everything and len(rows) > 2 * SHOWN:
        between = [f"... {len(rows) - 2 * SHOWN:,} more (--all)", "", "", "", ""]
        rows = [*rows[:SHOWN], between, *rows[-SHOWN:]]
    return heads, rows


def _more(n: int, everything: bool) -> list[str]:
    return [] if everything or n <= SHOWN else [f"... and {n - SHOWN:,} more (--all shows them)"]


def _text_table(table: Table) -> list[str]:
    return [line.rstrip() for line in make_table(*table, "simple").splitlines()]


def _markdown_table(table: Table) -> str:
    return make_table(*table, "pipe", _markdown)


def _bullets(title: str, lines: Sequence[str]) -> list[str]:
    return [f"### {_markdown(title)}", "\n".join(f"- {_markdown(line)}" for line in lines)] if lines else []
