"""The three pages: one run, runs compared, runs over time."""

from __future__ import annotations

import base64
import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recallatk.comparison import Comparison
from recallatk.comparison.verdict import verdict
from recallatk.extras import import_extra
from recallatk.history import History
from recallatk.page.curves import rank_counts, recall_over_k
from recallatk.page.explorer import Explored, explore
from recallatk.page.gather import Lists, find_confusions, find_lists, label_rows
from recallatk.page.markup import as_json, fill, size_text
from recallatk.page.options import DEFAULT_OPTIONS, PageOptions, PageSource
from recallatk.page.plots import Line, Plot, check_plotting, draw_history, draw_ranks, draw_recall, draw_similarities
from recallatk.page.projection import project
from recallatk.page.selection import Rows, choose_queries, smallest_k, value_of
from recallatk.page.words import headline, in_short, left_out, noticed, recipe
from recallatk.report import Report
from recallatk.types import EmbeddingSet, RecallatkError
from recallatk.wording import counted

MOST_MARKS = 1500
"""Queries in the plot of similarities; more would only cover each other."""
NO_LISTS = (
    "This run has no embeddings, so the page has no neighbours, confusions or map. For those, keep the embeddings "
    "(recallatk eval --output DIR --save-embeddings), or make the page while evaluating (recallatk eval --report FILE)."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Page:
    """A page that is ready to be written.

    Attributes:
        html: the page.
        files: the pictures that belong beside it, by their name in its folder.
        notes: what was left out or made smaller, a line each.
    """

    html: str
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the page and its pictures."""
        return len(self.html.encode("utf-8", "replace")) + sum(map(len, self.files.values()))


FOLDER = '<meta name="recallatk-pictures" content="'
"""What stands before the name of the folder of pictures, which is known when the page is written."""


def check_page(purpose: str) -> None:
    """Refuse before any work is done where no page can be made.

    Args:
        purpose: what it is needed for, as the start of a sentence.

    Raises:
        RecallatkError: jinja2 or matplotlib is not installed.
    """
    import_extra("jinja2", "report", purpose)
    check_plotting(purpose)


def run_page(source: PageSource, options: PageOptions = DEFAULT_OPTIONS) -> Page:
    """The page of one run: the number, what fails, and what was retrieved instead.

    Args:
        source: the run, with embeddings and images as far as they are there.
        options: what goes in.

    Raises:
        RecallatkError: jinja2 or matplotlib is not installed (`pip install 'recallatk[report]'`).
    """
    report = source.report
    order = _with_the_rest(
        choose_queries(report, report.num_queries if options.only_wrong else options.num_queries,
                       only_wrong=options.only_wrong, seed=options.seed),
        report.num_queries,
    )  # fmt: skip
    chosen = choose_queries(report, options.num_queries, only_wrong=options.only_wrong, seed=options.seed)
    lists = find_lists(source, chosen, options)
    labels = label_rows(report)
    confusions = [] if lists is None else find_confusions(report, lists)
    points = recall_over_k(report)
    plots = [
        draw_recall({source.name: points}, report.protocol.ks),
        draw_ranks({source.name: rank_counts(report)}),
        *_similarities(report, lists, options.seed),
    ]
    plane = project(source, chosen, options.seed)
    fixed: dict[str, Any] = {
        "title": source.name,
        "headline": headline(report),
        "counts": _counts(report),
        "short": in_short(report, labels, confusions),
        "left_out": left_out(report),
        "noticed": noticed(report),
        "signature": str(report.signature),
        "recipe": recipe(report),
        "plots": plots,
        "missing": _missing(source),
        "sampled": _sampled(report, lists),
        "mapped": None if plane is None else _map_words(plane.explained, len(plane.rows), report.num_queries),
        "has_confusions": lists is not None,
    }
    data: dict[str, Any] = {
        "kind": "run",
        **_common(report, options),
        "tables": {
            "labels": _label_table(labels, report),
            "confusions": _columns(confusions, ("label", "retrieved", "count", "example")),
        },
    }
    rows = np.arange(report.num_queries)
    shown = dataclasses.replace(options, num_queries=len(chosen))
    return _finish("run.html", fixed, data, [source], [rows], [lists], order, shown, plane)


def compare_page(
    comparison: Comparison, sources: Mapping[str, PageSource], options: PageOptions = DEFAULT_OPTIONS
) -> Page:
    """The page of a comparison: the systems side by side, query by query.

    Args:
        comparison: what `compare` returned.
        sources: each of its runs, by the name it has there.
        options: what goes in.

    Raises:
        RecallatkError: as for `run_page`.
    """
    used = [dataclasses.replace(sources[system.name], name=system.name) for system in comparison.systems]
    rows = [_rows_of(source.report, comparison) for source in used]
    first = used[0].report
    order = _order_of_comparison(comparison, used, rows, options)
    chosen = np.array(order[: options.num_queries], np.int64)
    lists = [find_lists(source, own[chosen], options) for source, own in zip(used, rows, strict=True)]
    names = [system.name for system in comparison.systems]
    fixed: dict[str, Any] = {
        "title": " against ".join(names),
        "verdict": verdict(comparison),
        "metric": comparison.metric,
        "systems": [
            {
                "name": system.name,
                "encoder": system.encoder or "unknown",
                "signature": system.signature,
                "values": {
                    name: {
                        "value": f"{value.value:.4f}",
                        "beside": ""
                        if value.interval is None
                        else f"{value.interval.low:.3f} to {value.interval.high:.3f}",
                    }
                    for name, value in system.values.items()
                },
            }
            for system in comparison.systems
        ],
        "counts": f"{counted(len(comparison.ids), 'query', 'queries')} compared; values of both on the same queries",
        "tests": [_test_words(comparison, contrast) for contrast in comparison.contrasts],
        "notes": [*comparison.differences, *comparison.dropped.lines(), *comparison.notes],
        "plots": [
            draw_recall({source.name: recall_over_k(source.report) for source in used}, first.protocol.ks),
            draw_ranks({source.name: rank_counts(source.report) for source in used}),
        ],
        "missing": [f"{source.name}: {line}" for source in used for line in _missing(source)],
        "recipes": {source.name: recipe(source.report) for source in used},
        "whole": all(source.report.num_evaluated == len(comparison.ids) for source in used),
    }
    data: dict[str, Any] = {
        "kind": "compare",
        **_common(first, options),
        "tables": {"labels": _compared_labels(comparison)},
    }
    shown = dataclasses.replace(options, num_queries=min(options.num_queries, len(order)))
    return _finish("compare.html", fixed, data, used, rows, lists, _with_the_rest(np.array(order, np.int64), len(rows[0])), shown, None)


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
    tracked: dict[str, dict[str, float | None]] = {}
    for step, report in evaluated:
        for one in label_rows(report):
            tracked.setdefault(one["label"], {})[step.name] = one["low"]
    columns = {
        "label": list(tracked),
        "first": [_end(values, evaluated, 0) for values in tracked.values()],
        "last": [_end(values, evaluated, -1) for values in tracked.values()],
        "change": [_change(values, evaluated) for values in tracked.values()],
        "over": [[_rounded(values.get(step.name)) for step, _ in evaluated] for values in tracked.values()],
    }
    ordered = sorted(range(len(tracked)), key=lambda place: (columns["change"][place] or 0, columns["label"][place]))
    columns = {name: [column[place] for place in ordered] for name, column in columns.items()}
    best = history.best
    fixed = {
        "title": f"{history.metric} over {counted(len(steps), 'run')}",
        "best": f"{best.name}: {best.value:.4f}",
        "counts": f"{counted(best.n, 'query', 'queries')}; {history.order}",
        "plots": [
            draw_history([s.step for s in steps], lines, [at for at, step in enumerate(steps) if step.value is None])
        ],
        "steps": [_step_row(step) for step in steps],
        "metric": history.metric,
        "missing": [f"no run for step {name}" for name in history.missing]
        + [f"{step.name} failed: {step.error}" for step in history.failed],
        "notes": list(history.notes),
        "text": history.text(),
        "small_k": smallest_k(evaluated[0][1]),
    }
    data: dict[str, Any] = {
        "kind": "history",
        "tables": {"labels": columns},
        "steps": [step.step for step, _ in evaluated],
    }
    return _bounded(Page(fill("history.html", data=data, size="", page_notes=[], **fixed)), options)


def write_page(page: Page, path: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[str, ...]:
    """Write a page, and its pictures into a folder beside it, NAME_files, where they are not inside.

    Args:
        page: what to write.
        path: the HTML file.
        overwrite: write over what is there.

    Returns:
        What is to be known, a line each: the size first.

    Raises:
        RecallatkError: something is there already, or the disk refuses.
    """
    path = Path(path)
    folder = path.with_name(f"{path.stem}_files")
    if not overwrite:
        for there in (path, *([folder] if page.files else [])):
            if os.path.lexists(there):
                raise RecallatkError(f"{there}: this is there already; name another file, or use overwrite (--overwrite)")
    try:
        if page.files:
            if folder.is_dir():  # of an earlier page: its pictures alone, nothing else that may lie there
                for old in folder.glob("*.webp"):
                    old.unlink()
            folder.mkdir(parents=True, exist_ok=True)
            for name, data in page.files.items():
                (folder / name).write_bytes(data)
        path.write_text(_with_folder(page.html, folder.name) if page.files else page.html, encoding="utf-8", newline="\n", errors="replace")
    except OSError as error:
        raise RecallatkError(f"{error.filename or path}: cannot be written ({error.strerror or error})") from error
    beside = f" with {counted(len(page.files), 'picture')} in {folder}" if page.files else ""
    return (f"wrote {path}{beside}, {size_text(page.size)}", *page.notes)


def _with_folder(html: str, name: str) -> str:
    from urllib.parse import quote

    return html.replace(FOLDER, FOLDER + quote(name.encode("utf-8", "surrogateescape")), 1)


def _finish(
    template: str,
    fixed: dict[str, Any],
    data: dict[str, Any],
    sources: Sequence[PageSource],
    rows: Sequence[Rows],
    lists: Sequence[Lists | None],
    order: Sequence[int],
    options: PageOptions,
    plane: Any,
) -> Page:
    """Fill the room that the fixed parts of a page leave with queries and pictures."""
    empty = fill(template, data=data, size="", page_notes=[], **fixed)
    room = options.max_size - len(empty.encode("utf-8", "replace")) - 2000
    explored: Explored = explore(sources, rows, lists, order, options, room=max(room, 0), plane=plane)
    folder = options.pictures == "folder"
    if folder:
        addresses = names = {number: f"{number}.webp" for number in explored.files}
    else:
        names = {}
        addresses = {
            number: "data:image/webp;base64," + base64.b64encode(one).decode("ascii")
            for number, one in explored.files.items()
        }
    data = {**data, **explored.data, "pictures": addresses}
    files = {names[number]: one for number, one in explored.files.items()} if folder else {}
    total = len(empty) + len(as_json({**explored.data, "pictures": addresses})) + sum(map(len, files.values()))
    html = fill(template, folder=folder, data=data, size=size_text(total), page_notes=explored.notes, **fixed)
    return _bounded(Page(html, files, explored.notes), options)


def _bounded(page: Page, options: PageOptions) -> Page:
    if page.size <= options.max_size:
        return page
    note = f"the page has {size_text(page.size)}, more than {size_text(options.max_size)}: labels and plots alone take that"
    return dataclasses.replace(page, notes=(*page.notes, note))


def _common(report: Report, options: PageOptions) -> dict[str, Any]:
    return {
        "ks": list(report.protocol.ks),
        "seed": options.seed,
        "neighbours": options.neighbours,
        "excluded_as": report.protocol.no_positive,
    }


def _counts(report: Report) -> str:
    parts = [f"{counted(report.num_evaluated, 'query', 'queries')} evaluated"]
    if report.num_excluded:
        parts.append(f"{report.num_excluded:,} excluded without a positive")
    skipped = len(report.provenance.skipped)
    if skipped:
        parts.append(f"{counted(skipped, 'file or row', 'files or rows')} skipped")
    return ", ".join([*parts, counted(report.num_gallery, "gallery item"), counted(report.num_labels, "label")])


def _missing(source: PageSource) -> list[str]:
    lines = []
    if source.query is None:
        lines.append(source.missing or NO_LISTS)
    if source.images.missing:
        lines.append(f"No pictures: {source.images.missing}")
    return lines


def _sampled(report: Report, lists: Lists | None) -> str:
    if lists is None or lists.whole:
        return ""
    return f"From a random {int(lists.sample.sum()):,} of {report.num_queries:,} queries."


def _map_words(explained: tuple[float, float], points: int, total: int) -> str:
    part = "All" if points == total else f"{points:,} of {total:,}"
    return (
        f"{part} queries on the two directions in which their embeddings differ most (PCA). They hold "
        f"{100 * sum(explained):.0f} % of the variance: points that are near here need not be near for the encoder."
    )


def _similarities(report: Report, lists: Lists | None, seed: int) -> list[Plot]:
    if lists is None:
        return []
    best = np.asarray(report.queries["similarity"], np.float64)[lists.rows]
    wrong = lists.best_wrong
    values = value_of(report, 1 if 1 in report.protocol.ks else smallest_k(report))[lists.rows]
    known = np.flatnonzero(~np.isnan(best) & ~np.isnan(wrong) & ~np.isnan(values) & lists.sample)
    if not len(known):
        return []
    if len(known) > MOST_MARKS:
        known = np.sort(np.random.default_rng(seed).choice(known, MOST_MARKS, replace=False))
    return [draw_similarities(best[known], wrong[known], values[known] < 1)]


def _label_table(labels: Sequence[Mapping[str, Any]], report: Report) -> dict[str, list[Any]]:
    table = {name: [one[name] for one in labels] for name in ("label", "n", "excluded", "rank")}
    return {**table, **{name: [_rounded(one[name]) for one in labels] for name in ("low", "high")}}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _columns(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _with_the_rest(chosen: Rows, n: int) -> list[int]:
    """The chosen first, then all others."""
    first = chosen.tolist()
    known = set(first)
    return [*first, *(row for row in range(n) if row not in known)]


def _rows_of(report: Report, comparison: Comparison) -> Rows:
    """The rows of the compared queries in one run, in the order of the comparison."""
    ids = [str(row) for row in range(report.num_queries)] if comparison.by_row else report.queries["id"]
    place = {name: row for row, name in enumerate(ids)}
    return np.array([place[name] for name in comparison.ids], np.int64)


def _order_of_comparison(
    comparison: Comparison, sources: Sequence[PageSource], rows: Sequence[Rows], options: PageOptions
) -> list[int]:
    """Queries whose value changes first, then those that all miss, then the others as the first run has them."""
    place = {name: number for number, name in enumerate(comparison.ids)}
    values = np.stack([value_of(s.report, smallest_k(s.report))[own] for s, own in zip(sources, rows, strict=True)])
    # Losses and gains take turns, so that neither hides the other where there is no room for all.
    changed = [place[query.id] for query in comparison.changed]
    half = len(changed) // 2
    turns = [row for both in zip(changed[: len(changed) - half], changed[::-1], strict=False) for row in both]
    missed = np.flatnonzero((values < 1).all(axis=0)).tolist()
    position = {row: number for number, row in enumerate(rows[0].tolist())}
    first = sources[0].report
    rest = choose_queries(first, first.num_queries, only_wrong=False, seed=options.seed).tolist()
    order = list(dict.fromkeys([*turns, *missed, *(position[row] for row in rest if row in position)]))
    return [row for row in order if (values[:, row] < 1).any()] if options.only_wrong else order


def _test_words(comparison: Comparison, contrast: Any) -> str:
    test = contrast.test
    wins = f"{contrast.name} is right where {comparison.baseline.name} is wrong on {test.wins:,}, the other way on {test.losses:,}"
    return f"{wins}; difference {test.difference:+.4f}, p = {contrast.p_holm:.3g} (paired, two-sided)"


def _compared_labels(comparison: Comparison) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {
        "label": [one.label for one in comparison.labels],
        "n": [one.n for one in comparison.labels],
    }
    for number in range(len(comparison.systems)):
        table[f"value{number}"] = [_rounded(one.values[number]) for one in comparison.labels]
        if number:
            table[f"change{number}"] = [_rounded(one.values[number] - one.values[0]) for one in comparison.labels]
    return table


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
    return _rounded(values.get(evaluated[place][0].name))


def _change(values: Mapping[str, float | None], evaluated: Sequence[Any]) -> float | None:
    first, last = _end(values, evaluated, 0), _end(values, evaluated, -1)
    return None if first is None or last is None else _rounded(last - first)


def _step_row(step: Any) -> dict[str, str]:
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
