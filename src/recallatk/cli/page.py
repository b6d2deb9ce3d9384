"""The HTML page from the command line: what goes in, where the pictures are, and what is said when it is written."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.cli.flags import NO_PAGE, Output, PageContent
from recallatk.cli.inputs import read_qrels
from recallatk.cli.printing import tell
from recallatk.types import ChoiceError, Dataset, RecallatkError

if TYPE_CHECKING:
    from recallatk.images import Exif
    from recallatk.page import Images, Page, PageSource
    from recallatk.report import Report

OF_SCORES = "Scores have no embeddings, so the page has no neighbours and no map."
MakePage = Callable[[str, Any, Any], None]
"""Called with the name of a run, its report and its embeddings, when they are there."""


def check_page_file(file: Path | None, content: PageContent, *, overwrite: bool) -> None:
    """Refuse a page that could not be written, before any work is done.

    Raises:
        ChoiceError: flags of a page without a page.
        RecallatkError: a package is not installed, or the file cannot be written.
    """
    if file is None:
        if content != NO_PAGE:
            given = next(one.name for one in dataclasses.fields(content) if getattr(content, one.name) != one.default)
            raise ChoiceError(
                f"--{given.replace('_', '-')} is about the page; name its file "
                "(--report FILE, or --output FILE of recallatk report)"
            )
        return
    from recallatk.page import check_page

    if file.suffix.lower() not in (".html", ".htm"):
        raise ChoiceError(f"{file}: the page is an .html file; name one")
    content.options()
    check_page(f"{file}")
    if os.path.isdir(file):  # noqa: PTH112 - a name may be too long for Path
        raise RecallatkError(f"{file}: this is a folder; name a file")
    if os.path.lexists(file) and not overwrite:
        raise RecallatkError(f"{file}: there is a file already; name another, or use --overwrite")
    if not os.path.isdir(file.parent):  # noqa: PTH112
        raise RecallatkError(f"{file}: there is no folder {file.parent}; make it first")


def page_of_each(
    file: Path | None,
    content: PageContent,
    *,
    names: tuple[str, ...],
    output: Output,
    dataset: Dataset | None = None,
    exif: Exif = "apply",
) -> MakePage | None:
    """What writes the page of each run of `recallatk eval`; several encoders have a file each, FILE-ENCODER.html."""
    if file is None:
        return None
    several = len(names) > 1
    endings = {name: "-" + re.sub(r"[^\w.-]", "_", name) if several else "" for name in names}
    files = {name: file.with_name(file.stem + ending + file.suffix) for name, ending in endings.items()}
    for one in files.values():
        check_page_file(one, content, overwrite=output.overwrite)

    def make(name: str, report: Any, encoded: Any) -> None:
        from recallatk.page import Images, PageSource, run_page

        images = (
            images_of(dataset, exif)
            if dataset is not None
            else Images(missing=f"this run is of {'scores' if encoded is None else 'embeddings'}, not of images.")
        )
        source = PageSource(
            report,
            report.provenance.encoder or name,
            query=None if encoded is None else encoded.query,
            gallery=None if encoded is None else encoded.gallery,
            qrels=None if encoded is None else encoded.qrels,
            images=images,
            missing="" if encoded is not None else OF_SCORES,
        )
        write(run_page(source, content.options()), files[name], overwrite=output.overwrite, quiet=output.quiet)

    return make


def images_of(dataset: Dataset, exif: Exif) -> Images:
    """Where the pictures of a data set lie."""
    from recallatk.images import DecodePolicy, is_stored
    from recallatk.page import Images

    def places(side: Any) -> dict[str, Any]:
        if side.kind == "text":
            return {}
        boxes = side.boxes or itertools.repeat(None)
        paired = zip(side.ids, side.elements, boxes, strict=False)
        return {name: (element, box) for name, element, box in paired if is_stored(element)}

    query = places(dataset.query)
    gallery = query if dataset.gallery is None else places(dataset.gallery)
    sides = [dataset.query] if dataset.gallery is None else [dataset.query, dataset.gallery]
    texts = {
        name: text for side in sides if side.kind == "text" for name, text in zip(side.ids, side.elements, strict=True)
    }
    if dataset.views:  # each side is the gallery of a view
        query = gallery = {**query, **gallery}
    return Images(query, gallery, texts, DecodePolicy(exif=exif))


def source_of_run(
    name: str, report: Report, folder: Path, *, data: Path | None, pictures: bool, qrels: Path | None = None
) -> PageSource:
    """A saved run with the embeddings and images that are still there; what is not is said on the page.

    Args:
        name: what the page calls it.
        report: its report.
        folder: its folder.
        data: where its images lie now; by default where the record says.
        pictures: whether images are wanted.
        qrels: where the judged pairs lie now; by default where the record says.

    Raises:
        RecallatkError: the images are not where `data` says, or the qrels are not those of the run.
    """
    from recallatk.page import Images, PageSource
    from recallatk.verification.saved import dataset_of, embeddings_of

    encoded, missing = None, OF_SCORES if report.embedding_dim is None else ""
    try:
        judged = None if qrels is None else read_qrels(qrels, report.protocol)
        encoded = embeddings_of(report, folder, qrels=judged, data=data)
    except RecallatkError as error:
        if qrels is not None:
            raise
        missing = f"No neighbours, confusions or map: {error}."
    images = Images(missing="they were not asked for (--pictures none).")
    if pictures:
        exif = (report.provenance.decode or {}).get("exif", "apply")
        try:
            images = images_of(dataset_of(report, folder, data), exif)
        except RecallatkError as error:
            if data is not None:
                raise
            images = Images(missing=f"{error}.")
    return PageSource(
        report,
        name,
        query=None if encoded is None else encoded.query,
        gallery=None if encoded is None else encoded.gallery,
        qrels=None if encoded is None else encoded.qrels,
        images=images,
        missing=missing,
    )


def write(page: Page, file: Path, *, overwrite: bool, quiet: bool = False) -> None:
    """Write a page and say how large it is and what it had to leave out."""
    from recallatk.page import write_page

    tell(write_page(page, file, overwrite=overwrite), quiet=quiet)


def write_run_page(
    run: Path,
    file: Path,
    content: PageContent,
    *,
    data: Path | None,
    qrels: Path | None,
    overwrite: bool,
    name: str | None,
) -> None:
    """The page of a saved run."""
    check_page_file(file, content, overwrite=overwrite)
    from recallatk.page import run_page
    from recallatk.page.paper import missing_lines
    from recallatk.run import load_report, run_folder

    folder = run_folder(run)
    report = load_report(folder)
    title = name or folder.resolve().name
    pictures = content.pictures != "none"
    source = source_of_run(title, report, folder, data=data, pictures=pictures, qrels=qrels)
    write(run_page(source, content.options()), file, overwrite=overwrite)
    tell(missing_lines(source))


def write_compare_page(
    found: Any,
    reports: Mapping[str, Any],
    folders: Mapping[str, Path],
    file: Path,
    content: PageContent,
    *,
    overwrite: bool,
) -> None:
    """The page of a comparison of saved runs."""
    from recallatk.page import compare_page

    pictures = content.pictures != "none"
    sources = {
        name: source_of_run(name, report, folders[name], data=None, pictures=pictures)
        for name, report in reports.items()
    }
    write(compare_page(found, sources, content.options()), file, overwrite=overwrite)
