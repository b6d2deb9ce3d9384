"""A report for other programs and for papers: CSV, Markdown, LaTeX, the result files of MTEB; lists and qrels for TREC.

Every function gives text; the command writes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any
from urllib.parse import quote

import numpy as np

from recallatk.markup import escape_latex, escape_markdown, make_csv, make_table
from recallatk.neighbours import Neighbours
from recallatk.relevance import build_relevance
from recallatk.report import Report
from recallatk.statistics import describe_rule
from recallatk.types import ChoiceError, EvalProtocol, Qrels, RecallatkError, Samples
from recallatk.wording import counted, one_line

MOST_PAIRS = 50_000_000
"""Lines of qrels that are written at most: some 2 GB."""

IN_MTEB = {
    "recall": "hit_rate",
    "set_recall": "recall",
    "precision": "precision",
    "map": "map",
    "ndcg": "ndcg",
}
"""Our metric -> theirs. Their recall is the share of all positives that is found, ours is their hit rate."""


def as_csv(report: Report) -> str:
    """One row a query: id, label, counts, best positive, and a column for each metric (empty: excluded).

    Where a query may have several labels the cell is a JSON list.
    """
    lists = {
        name: any(isinstance(value, tuple) for value in values)
        for name, values in report.queries.items()
        if not isinstance(values, np.ndarray)
    }
    columns = [
        values.tolist() if isinstance(values, np.ndarray) else [_cell(v, several=lists[name]) for v in values]
        for name, values in report.queries.items()
    ]
    rows = (["" if value is None or value != value else value for value in row] for row in zip(*columns, strict=True))
    return make_csv([list(report.queries), *rows])


def as_markdown(reports: Mapping[str, Report], *, percent: bool = False) -> str:
    """One table of one or several reports, each under a name; below it what makes the numbers checkable.

    Args:
        reports: by the name that they are shown by.
        percent: values in 0..100 instead of 0..1.
    """
    table = make_table(*_rows(reports, percent=percent), "pipe", escape_markdown)
    # A signature in backticks can be copied as it is; it has none of its own.
    notes = (
        f"- {escape_markdown(line)}" + (f"`{recipe}`, {run}" if recipe else "") for line, recipe, run in _notes(reports)
    )
    return "\n".join([table, "", *notes])


def as_latex(reports: Mapping[str, Report], *, percent: bool = False) -> str:
    """The same table for LaTeX (a `tabular`), with the notes as comments above it."""
    comments = "\n".join(
        f"% {one_line(line)}" + (f"{recipe}, {run}" if recipe else "") for line, recipe, run in _notes(reports)
    )
    return f"{comments}\n{make_table(*_rows(reports, percent=percent), 'latex_raw', escape_latex)}"


def as_mteb(report: Report, *, task: str, split: str = "test") -> str:
    """The JSON that MTEB keeps of a task, with their names: our recall@k is their `hit_rate_at_k`.

    Their `recall_at_k` is our `set_recall@k`. What has no place there, and the recipe, stands under `recallatk`.

    Args:
        report: what an evaluation said.
        task: the name of the task.
        split: of the data.
    """
    # Their means are over the languages of a result, so one without any has none; this is theirs for "no language".
    place = {"hf_subset": "default", "languages": ["zxx-Zxxx"]}
    scores: dict[str, Any] = {}
    left_out = []
    for name, value in report.items():
        metric, _, k = name.partition("@")
        if metric in IN_MTEB and k:
            scores[f"{IN_MTEB[metric]}_at_{k}"] = value
        else:
            left_out.append(name)
    main = f"hit_rate_at_{report.protocol.ks[0]}"
    result = {
        "dataset_revision": str(report.signature.protocol_id),
        "task_name": task,
        "mteb_version": None,
        "scores": {split: [{**scores, "main_score": scores[main], **place}]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
        "recallatk": {
            "version": version("recallatk"),
            "main_score": main,
            "signature": str(report.signature),
            "protocol_id": report.signature.protocol_id,
            "run_id": report.signature.run_id,
            "n": report.num_evaluated,
            "excluded": report.num_excluded,
            "not_in_mteb": {name: report[name] for name in left_out},
        },
    }
    return json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)


def trec_run(
    found: Neighbours, query: Samples, gallery: Samples | None = None, *, tag: str = "recallatk"
) -> Iterator[str]:
    """The lines of a TREC run: query, Q0, item, rank, score, tag.

    trec_eval goes by the score, keeps it in single precision, and puts equal scores in the order of the items' names,
    so that names could decide a number. Therefore the score is a whole number that falls by one from item to item: the
    order here is the order there. In a tie negatives come first (`ties=pessimistic`), so no number there is above ours.

    Args:
        found: the lists, of `nearest`.
        query: the set that they are of.
        gallery: likewise; None for leave-one-out.
        tag: the name of the system, without white space.

    Raises:
        RecallatkError: the tag is empty or has white space in it.
    """
    if not tag or any(letter.isspace() for letter in tag):
        raise ChoiceError(f"tag={tag!r}: a name without white space is needed")
    ids, items = trec_ids(query, gallery)
    for i in range(len(found)):
        rows = found.rows[i][_trec_order(found, i)].tolist()
        for place, row in enumerate(rows):
            yield f"{ids[found.queries[i]]} Q0 {items[row]} {place + 1} {len(rows) - place} {tag}"


def _trec_order(found: Neighbours, i: int) -> Any:
    """The places of a list as they are written: negatives first in a tie; see `cut_ties`."""
    there = found.rows[i] >= 0
    if cut_ties(found)[i]:
        # Negatives of this tie are missing: a positive of it would seem nearer than it is.
        there &= ~(found.positive[i] & (found.similarity[i] == found.best_positive_similarity[i]))
    places = np.flatnonzero(there)
    return places[np.lexsort((places, found.positive[i][places], found.ranks[i][places]))]


def cut_ties(found: Neighbours) -> Any:
    """(n,) whether a list ends inside the tie of the best positive, so that negatives of that tie are not in it.

    What is written of such a list ends before the positives of the tie: it may miss a hit, and never shows a false one.
    """
    level = found.similarity == found.best_positive_similarity[:, None]
    return (level & found.positive).any(axis=1) & ((level & ~found.positive).sum(axis=1) < found.negatives_tied)


def trec_qrels(
    query: Samples, gallery: Samples | None = None, *, protocol: EvalProtocol | None = None, qrels: Qrels | None = None
) -> Iterator[str]:
    """The lines of TREC qrels: query, 0, item, 1, for each positive that is left after everything ignored is gone.

    Args:
        query: the queries.
        gallery: the gallery; None for leave-one-out.
        protocol: who is positive.
        qrels: judged pairs, where the protocol asks for them; their grades are written.

    Raises:
        RecallatkError: the sets do not fit the protocol, or there are too many pairs to list.
    """
    relevance = build_relevance(query, gallery, EvalProtocol() if protocol is None else protocol, qrels=qrels)
    total = int(relevance.positive.pairs.sum())
    if total > MOST_PAIRS:
        raise RecallatkError(
            f"the qrels would have up to {total:,} lines, more than {MOST_PAIRS:,}; labels say the same in less: "
            "use `recallatk score` with them, or take fewer queries"
        )
    ids, items = trec_ids(query, gallery)
    for row in range(len(query)):
        judged = relevance.judge(slice(row, row + 1))
        positives = judged.positive_rows.tolist()
        grades = [1] * len(positives) if judged.positive_grades is None else judged.positive_grades.tolist()
        for item, grade in zip(positives, grades, strict=True):
            yield f"{ids[row]} 0 {items[item]} {max(grade, 1)}"  # 0 says "not relevant" there


def trec_ids(query: Samples, gallery: Samples | None) -> tuple[Sequence[str], Sequence[str]]:
    """The ids of both sides as TREC files have them, where white space parts the fields.

    If any id has white space, is empty or begins with #, then in all of them such letters, # and % are written %XX.
    """
    sides = [query.row_ids, query.row_ids if gallery is None else gallery.row_ids]
    if not any(not name or name[0] == "#" or not name.isprintable() or " " in name for ids in sides for name in ids):
        return sides[0], sides[1]
    escaped = [[_without_space(name) for name in ids] for ids in sides]
    return escaped[0], escaped[1]


def _without_space(name: str) -> str:
    return "".join(quote(c, safe="") if c in " #%" or not c.isprintable() else c for c in name) or "%"


def _cell(value: Any, *, several: bool) -> Any:
    if not several:
        return value
    return json.dumps(list(value) if isinstance(value, tuple) else [value], ensure_ascii=False)


def _rows(reports: Mapping[str, Report], *, percent: bool) -> tuple[Sequence[str], list[list[str]]]:
    names = list(dict.fromkeys(name for report in reports.values() for name in report))
    rows = []
    for title, report in reports.items():
        values = [_value(report, name, percent=percent) for name in names]
        counts = [f"{report.num_evaluated:,}", f"{report.num_excluded:,}", f"{report.num_gallery:,}"]
        rows.append([title, *values, *counts, report.signature.protocol_id])
    return ["system", *names, "n", "excluded", "gallery", "protocol id"], rows


def _value(report: Report, name: str, *, percent: bool) -> str:
    value = report.values_by_metric.get(name)
    if value is None:
        return ""
    scale, digits = (100, 2) if percent else (1, 4)
    text = f"{scale * value.value:.{digits}f}"
    if value.interval is None:
        return text
    return f"{text} [{scale * value.interval.low:.{digits}f}, {scale * value.interval.high:.{digits}f}]"


def _notes(reports: Mapping[str, Report]) -> Iterator[tuple[str, str, str]]:
    """Lines for below a table, and what follows them: a signature and a run id, or nothing."""
    if len({report.signature.protocol_id for report in reports.values()}) > 1:
        yield "the protocol ids differ: these numbers are not of one protocol and data", "", ""
    for title, report in reports.items():
        first = next(iter(report.values_by_metric.values()))
        if first.interval is not None:
            rule = describe_rule(report.intervals, first.interval.clusters, labelled=report.num_labels > 0)
            yield f"{title}: {rule}", "", ""
        for warning in report.warnings:
            yield f"{title}: {warning}", "", ""
        yield f"{title}: ", str(report.signature), f"run id {report.signature.run_id}"


Export = Callable[[Mapping[str, Report], bool], str]


def _only(reports: Mapping[str, Report], form: str) -> Report:
    if len(reports) != 1:
        raise ChoiceError(f"the form {form} holds one run, not {counted(len(reports), 'run')}; write them one by one")
    return next(iter(reports.values()))


FORMATS: dict[str, Export] = {
    "text": lambda reports, percent: _only(reports, "text").text(percent=percent),
    "markdown": lambda reports, percent: as_markdown(reports, percent=percent),
    "latex": lambda reports, percent: as_latex(reports, percent=percent),
    "csv": lambda reports, percent: as_csv(_only(reports, "csv")),
    "json": lambda reports, percent: _only(reports, "json").to_json(),
    "mteb": lambda reports, percent: as_mteb(_only(reports, "mteb"), task=next(iter(reports))),
}
"""Form -> text of reports by name (and whether values are in percent). Lists and qrels need more than a report."""
