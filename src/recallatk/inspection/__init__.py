"""A look at a data set before anything is encoded: what would stop an evaluation, or make its number another one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recallatk.images import DEFAULT_POLICY, DecodePolicy
from recallatk.inspection.copies import find_copies
from recallatk.inspection.files import find_faults, find_links, find_name_clashes, find_oddities, measure
from recallatk.inspection.findings import LEVELS, Finding, Inspection, Level
from recallatk.inspection.labels import count_labels, find_lonely_labels, find_queries_without_positive
from recallatk.inspection.pictures import Picture, Progress, read_pictures
from recallatk.relevance import build_relevance
from recallatk.types import Dataset, EvalProtocol, ImageSet, OnError, Qrels, RecallatkError, SampleSet

__all__ = ["Finding", "Inspection", "Level", "inspect_dataset"]


def inspect_dataset(
    dataset: Dataset,
    *,
    protocol: EvalProtocol | None = None,
    qrels: Qrels | None = None,
    policy: DecodePolicy = DEFAULT_POLICY,
    on_error: OnError = "error",
    near_duplicates: bool = False,
    threads: int | None = None,
    on_progress: Progress | None = None,
) -> Inspection:
    """Read and decode every image once, and say what is wrong or odd; nothing is encoded and nothing is changed.

    Args:
        dataset: what `load_dataset` gives; loaded with `on_error="skip"`, missing files are findings too.
        protocol: who is positive and who is ignored; by default as in an evaluation.
        qrels: judged pairs; by default those of the data set.
        policy: how bytes become pixels.
        on_error: what the evaluation is to do with files that cannot be used: with "skip" they are warnings.
        near_duplicates: look for pictures that are nearly the same too, by a perceptual hash of their grey structure
            (the extra `near-duplicates`).
        threads: how many pictures are decoded at once; by default as many as there are cores.
        on_progress: told after every image, with the number of those that are done and their total.

    Raises:
        RecallatkError: the library for `near_duplicates` is absent. What is wrong with the data is a finding.
    """
    protocol = EvalProtocol() if protocol is None else protocol
    sides = [dataset.query] if dataset.gallery is None else [dataset.query, dataset.gallery]
    roles = ["both"] if dataset.gallery is None else ["query", "gallery"]
    pictures = read_pictures(sides, policy=policy, perceptual=near_duplicates, threads=threads, on_progress=on_progress)
    labels = count_labels({role: side.labels for role, side in zip(roles, sides, strict=True)})
    ranked = {label: counts for label, counts in labels.items() if label not in protocol.junk_labels}
    relevant, evaluated = _look_for_positives(sides, pictures, protocol, dataset.qrels if qrels is None else qrels)
    found = [
        *find_faults(sides, pictures, dataset.skipped, on_error=on_error),
        *relevant,
        *(find_lonely_labels(ranked) if protocol.relevance in ("label", "labels") else ()),
        *find_copies(sides, pictures, protocol),
        *(Finding("layout", "warning", warning) for warning in dataset.warnings),
        *find_name_clashes(sides),
        *find_oddities(sides, pictures),
        *find_links(sides, pictures, protocol),
        *(Finding("layout", "note", note) for note in dataset.notes),
    ]
    return Inspection(
        images={role: len(side) for role, side in zip(roles, sides, strict=True)},
        readable={role: sum(not p.fault for p in own) for role, own in zip(roles, pictures, strict=True)},
        evaluated=evaluated,
        labels=labels,
        sizes=measure(pictures),
        findings=tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level))),
    )


def _look_for_positives(
    sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]], protocol: EvalProtocol, qrels: Qrels | None
) -> tuple[list[Finding], int]:
    """Findings about queries without a positive among the images that can be used, and the number of the others."""
    samples = list(_usable(sides, pictures))
    empty = [rows.name for rows in samples if not len(rows)]
    if empty:
        return [Finding("nothing", "error", f"no image of the {empty[0]} side can be used", "give it some")], 0
    try:
        relevance = build_relevance(samples[0], samples[1] if len(samples) > 1 else None, protocol, qrels=qrels)
    except RecallatkError as error:
        return [Finding("relevance", "error", str(error))], 0
    found = [Finding("relevance", "warning", doubt) for doubt in relevance.doubts]
    lonely, evaluated = find_queries_without_positive(relevance, samples[0], protocol)
    if not evaluated and protocol.no_positive == "exclude":
        found.append(Finding("nothing", "error", "no query has a positive, so there is nothing to evaluate"))
    return [*found, *lonely], evaluated


def _usable(sides: Sequence[ImageSet], pictures: Sequence[Sequence[Picture]]) -> Iterator[SampleSet]:
    """The rows that an evaluation would have, with the content of each image."""
    for side, own, name in zip(sides, pictures, ("query", "gallery"), strict=False):
        kept = [row for row, picture in enumerate(own) if not picture.fault]
        taken = side.take(kept)
        yield SampleSet(
            taken.labels,
            ids=taken.ids,
            same=taken.same,
            groups=taken.groups,
            content=tuple(own[row].content for row in kept),
            positions=taken.positions,
            label_kind=taken.label_kind,
            name=name,
        )
