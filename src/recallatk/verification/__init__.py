"""verify: a saved run repeated from what is on disk, and what moved since, down to the file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from recallatk.comparison.published import check_report
from recallatk.encoding import Progress
from recallatk.report import Report
from recallatk.run import Elsewhere, SavedSamples, describe_environment, load_report, read_record, run_folder
from recallatk.statistics.published import PublishedCheck
from recallatk.types import Encoder, RecallatkError, SampleSet
from recallatk.verification.comparison import (
    compare_counts,
    compare_encoders,
    compare_hashes,
    compare_record,
    compare_values,
    version_lines,
)
from recallatk.verification.outcome import Moved, Part, Verification
from recallatk.verification.queries import check_columns, compare_queries, compare_remaining
from recallatk.verification.repeat import Repeated, repeat_run, size
from recallatk.verification.rows import Side, match_sides
from recallatk.verification.saved import kept_digests
from recallatk.wording import counted

__all__ = ["Moved", "Verification", "check_run_published", "verify_run"]

_CAUSES = frozenset({"images", "labels", "columns", "skipped", "encoder", "weights", "preprocessing", "decoding"})


def verify_run(
    folder: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    encoder: str | Encoder | None = None,
    device: str | None = None,
    workers: int | None = None,
    on_progress: Progress | None = None,
    elsewhere: Elsewhere | None = None,
) -> Verification:
    """Repeat a saved run from what is on disk, and say what moved.

    Images are encoded again with the run's encoder, batch size and decode policy, without the cache; embeddings,
    scores, lists, labels and judged pairs are read again. Where images or encoder are gone, the embeddings that the run
    keeps take their place, and what was not checked is said. Nothing is written.

    Args:
        folder: the folder of the run.
        data: where the images (or the manifest) lie now; by default where the record says.
        encoder: the name of the encoder now, or the encoder itself; by default the one that the record names.
        device: where it runs now, as for `load_encoder`; by default as the record says.
        workers: as for `encode`.
        on_progress: told after every batch.
        elsewhere: the cluster that encodes and ranks; rows are never taken from its folder, and never left there. None:
            this process.

    Raises:
        RecallatkError: there is no complete run, or what it takes to repeat it is not there.
    """
    folder = run_folder(folder)
    report, record = load_report(folder), read_record(folder)
    check_columns(report)
    data = None if data is None else Path(data)
    again = repeat_run(
        report, folder, data=data, encoder=encoder, device=device, workers=workers, on_progress=on_progress,
        elsewhere=elsewhere,
    )  # fmt: skip
    rows, unchecked = _rows_then(report, again), list(again.unchecked)
    digests = report.samples.digests if isinstance(report.samples, SavedSamples) else {}
    unusable = {} if again.provenance is None else {bad.item: bad.reason for bad in again.provenance.skipped}
    sides = match_sides(rows, again.samples, (digests, again.digests), unusable, again.texts)
    moved: list[Moved] = compare_record(record, report)
    moved += [found for side in sides for found in side.moved()]
    moved += _roles_moved(rows, again)
    notes = [
        f"the {side.noun}s{'' if side.role == 'both' else f' ({side.role})'} come in another order; it does not matter"
        for side in sides
        if side.reordered
    ]
    if again.provenance is not None:
        others, unknown, remarks = compare_encoders(report.provenance, again.provenance)
        moved += others
        notes += remarks
        same = again.report is not None and again.report.hashes["emb"] == report.hashes["emb"]
        unchecked += [] if same else unknown  # equal embeddings leave nothing open
    moved += _kept_embeddings(folder, rows, digests)
    if not report.samples:
        unchecked.append(
            "gallery rows by name: the run keeps no samples.parquet (an earlier version made it); what moved there "
            "shows in hashes only"
        )
    if again.failure:
        moved.append(Moved("values", f"it cannot be evaluated any more: {again.failure}"))
    elif again.report is not None:
        query = next((side for side in sides if side.role != "gallery"), None) if report.samples else None
        results = compare_queries(report, again.report, query)
        named = query is None or query.sets[0].ids is not None
        moved += compare_hashes(report, again.report, [*moved, *results], named=named)
        moved += [*compare_values(report, again.report), *results]
        if not moved:
            moved += [*compare_counts(report, again.report), *compare_remaining(report, again.report, query)]
    versions = version_lines(report.provenance.environment, describe_environment())
    causes: list[str] = []
    code = _code_lines(report, again)
    if moved and not any(found.part in _CAUSES for found in moved):
        causes = [*code, *versions] or _unexplained(moved)
    else:
        notes += [*code, *versions]
    return Verification(
        run=str(folder),
        run_id=report.signature.run_id,
        checked=f"{size(report)}, {again.how}",
        moved=tuple(sorted(moved, key=_order)),
        causes=tuple(causes),
        unchecked=tuple(unchecked),
        notes=tuple(notes),
    )


def check_run_published(folder: str | os.PathLike[str], text: str) -> PublishedCheck:
    """Hold a printed number against a saved run.

    Args:
        folder: the folder of the run.
        text: as for `parse_published`; without a metric it is of the run's first recall@k.

    Raises:
        ChoiceError: it is no printed number, or of a metric that the run does not have.
        RecallatkError: there is no complete run.
    """
    return check_report(load_report(run_folder(folder)), text)


def _order(moved: Moved) -> int:
    return get_args(Part).index(moved.part)


def _rows_then(report: Report, again: Repeated) -> dict[str, SampleSet]:
    """The rows of the run; of one that kept none, its queries."""
    if report.samples:
        return dict(report.samples)
    ids = tuple(report.queries["id"])
    made_up = ids == tuple(map(str, range(len(ids))))
    labels = tuple(report.queries["label"])
    return {"both" if "both" in again.samples else "query": SampleSet(labels, ids=None if made_up else ids)}


def _roles_moved(rows: dict[str, SampleSet], again: Repeated) -> list[Moved]:
    """Whether leave-one-out became two sides, or the other way round."""
    if set(rows) <= set(again.samples) or not again.samples:
        return []
    return [Moved("images", f"the sides were {' and '.join(rows)}, and are {' and '.join(again.samples)} now")]


def _kept_embeddings(folder: Path, rows: dict[str, SampleSet], digests: Mapping[str, Sequence[str]]) -> list[Moved]:
    """Whether the embeddings that the run keeps are still those that were evaluated."""
    try:
        kept = kept_digests(folder, rows) if digests else {}
    except RecallatkError as error:
        return [Moved("record", f"the embeddings that the run keeps cannot be read: {error}")]
    found = []
    for role, own in kept.items():
        side = Side(role, rows[role], rows[role], (digests.get(role), own))
        lines = [
            side.shown(name, 0)
            for name, then, now in zip(side.names[0], digests.get(role, own), own, strict=False)
            if then != now
        ]
        if lines or len(own) != len(rows[role]):
            which = counted(len(lines), "row is", "rows are")
            text = f"of the embeddings that the run keeps, {which} not what was evaluated"
            found.append(Moved("record", text, tuple(lines)))
    return found


def _code_lines(report: Report, again: Repeated) -> list[str]:
    """Whether the file that the encoder is written in has changed."""
    then, now = (
        provenance.data.get("encode", {}).get("code") if provenance is not None else None
        for provenance in (report.provenance, again.provenance)
    )
    if not isinstance(then, dict) or not isinstance(now, dict) or then.get("sha256") == now["sha256"]:
        return []
    return [f"the code of the encoder has changed: {now['file']} has other bytes"]


def _unexplained(moved: list[Moved]) -> list[str]:
    parts = {found.part for found in moved}
    if "embeddings" in parts and "record" not in parts:  # else those that the run keeps were written over
        return [
            "none found in data, encoder or versions: the encoder may depend on its batch, on chance or on the machine "
            "(recallatk eval --check-encoder), or its code has changed"
        ]
    return []
