"""`recallatk check`: a look at a data set before anything is encoded."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from recallatk.cli.flags import ENCODING_GROUP, NO_PROTOCOL, NO_READING, OUTPUT_GROUP, Protocol, Reading
from recallatk.cli.inputs import load_images, read_qrels
from recallatk.cli.printing import DATA, print_table, progress, tell
from recallatk.cli.score import LABELLED
from recallatk.wording import counted, one_line

LABELS_SHOWN = 20


def check(
    data: Path | None = None,
    /,
    *,
    near_duplicates: bool = False,
    protocol_file: Annotated[Path | None, Parameter(name="--protocol")] = None,
    protocol: Protocol = NO_PROTOCOL,
    reading: Reading = NO_READING,
    exif: Annotated[Literal["apply", "ignore"], Parameter(group=ENCODING_GROUP)] = "apply",
    threads: Annotated[int | None, Parameter(group=ENCODING_GROUP)] = None,
    json: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    quiet: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
) -> None:
    """Look at DATA before anything is encoded: decodes every image, finds what is wrong, odd or there twice.

    Errors are what `recallatk eval` with the same flags stops at; with one or more the exit code is 3. With a warning
    there is a number, but maybe not the one that is meant. Notes are good to know.

    Args:
        data: as for `recallatk eval`.
        near_duplicates: look for pictures that are nearly the same too (needs the extra near-duplicates).
        protocol_file: a TOML file, or the record of an earlier run, whose protocol is used; flags given win.
        exif: turn images as their EXIF orientation says, or leave them as they are stored.
        threads: how many pictures are decoded at once; by default as many as there are cores.
        json: print everything as JSON, with every image that a finding is about.
        quiet: no progress.
    """
    from recallatk.images import DecodePolicy
    from recallatk.inspection import inspect_dataset

    qrels = None if reading.qrels is None else read_qrels(reading.qrels, protocol)
    # What is missing is a finding like any other, and not the end.
    lenient = dataclasses.replace(reading, on_error="skip")
    dataset = load_images(data, lenient, labels_required=protocol.relevance in LABELLED)
    images = len(dataset.query) + (0 if dataset.gallery is None else len(dataset.gallery))
    with progress("check", images, quiet=quiet) as on_progress:
        inspection = inspect_dataset(
            dataset,
            protocol=protocol,
            qrels=qrels,
            policy=DecodePolicy(exif=exif),
            on_error=reading.on_error,
            near_duplicates=near_duplicates,
            threads=threads,
            on_progress=on_progress,
        )
    if json:
        print(inspection.to_json())
    else:
        _print(inspection)
    if inspection.errors:
        tell([f"recallatk: {counted(len(inspection.errors), 'error')} in the data"])
        sys.exit(DATA)


def _print(inspection: Any) -> None:
    roles = list(inspection.images)
    labels = {role: sum(counts[role] > 0 for counts in inspection.labels.values()) for role in roles}
    header = ("role", "images", "readable", "labels")
    print_table(
        header, [_cells(role, inspection.images[role], inspection.readable[role], labels[role]) for role in roles]
    )
    print(f"queries with a positive: {inspection.evaluated:,}\n")
    if inspection.labels:
        ordered = sorted(inspection.labels.items(), key=lambda item: (-sum(item[1].values()), item[0]))
        rows = [_cells(label, *counts.values()) for label, counts in ordered[:LABELS_SHOWN]]
        print_table(("label", *roles), rows)
        if len(ordered) > LABELS_SHOWN:
            print(f"... and {counted(len(ordered) - LABELS_SHOWN, 'more label')} (--json has all)")
        print()
    if inspection.sizes:
        print_table(("size", "smallest", "median", "largest"), [_cells(*row) for row in _flat(inspection.sizes)])
        print()
    for finding in inspection.findings:
        print(one_line(finding.line()))
    kinds = (("error", "error"), ("warning", "warning"), ("note", "note"))
    print(", ".join(counted(len(inspection.of(level)), noun) for level, noun in kinds))


def _flat(sizes: Any) -> list[tuple[Any, ...]]:
    return [(what, *values) for what, values in sizes.items()]


def _cells(name: str, *numbers: float) -> tuple[str, ...]:
    return (name, *(f"{number:,.0f}" for number in numbers))
