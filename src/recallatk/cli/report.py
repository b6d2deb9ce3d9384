"""`recallatk report`: a saved run for other programs and for papers."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from recallatk.cli.compare import check_file, write_result
from recallatk.cli.flags import NO_PAGE, OUTPUT_GROUP, PAGE_GROUP, Many, PageContent
from recallatk.cli.inputs import read_qrels
from recallatk.cli.page import check_page_file, write_run_page
from recallatk.cli.printing import tell
from recallatk.types import ChoiceError, RecallatkError
from recallatk.wording import counted

ReportForm = Literal["text", "markdown", "latex", "csv", "json", "mteb", "trec-run", "trec-qrels", "html"]
SUFFIXES: dict[str, ReportForm] = {
    ".txt": "text",
    ".md": "markdown",
    ".tex": "latex",
    ".csv": "csv",
    ".json": "json",
    ".run": "trec-run",
    ".trec": "trec-run",
    ".qrels": "trec-qrels",
    ".html": "html",
    ".htm": "html",
}
TREC = ("trec-run", "trec-qrels")


def report(
    *runs: Path,
    format: Annotated[ReportForm | None, Parameter(group=OUTPUT_GROUP)] = None,  # noqa: A002 - the flag's name
    output: Annotated[Path | None, Parameter(group=OUTPUT_GROUP)] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    percent: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    name: Many = (),
    length: int = 100,
    qrels: Path | None = None,
    data: Annotated[Path | None, Parameter(group=PAGE_GROUP)] = None,
    page: PageContent = NO_PAGE,
) -> None:
    """Write saved runs in another form: a page to look at, a table for a paper, rows for a spreadsheet, lists for TREC.

    The form is --format, or what the suffix of --output says: .txt, .md, .tex, .csv, .json (the record), .run
    (trec-run), .qrels (trec-qrels), .html. Markdown and LaTeX take several runs. trec-run, and the lists of
    a page, need the embeddings (`recallatk eval --output DIR --save-embeddings`). Short form: -o for --output.

    Args:
        runs: the folders of runs (`recallatk eval --output DIR`).
        format: by default what the suffix of --output says, or text.
        output: write to this file instead of standard output.
        overwrite: write over that file.
        percent: values in 0..100 (csv, json and mteb have 0..1 always).
        name: what the runs are called, one for each (mteb: the task); by default the ends of their paths.
        length: trec-run: how many items a list has.
        qrels: html, trec-run, trec-qrels: the judged pairs that the run was evaluated with; by default from where the
            record says.
        data: html: where the images lie now; by default where the record says.
    """
    from recallatk.exports import FORMATS
    from recallatk.run import distinct_names, load_report, run_folder

    if not runs:
        raise ChoiceError("name the folder of a run: recallatk report DIR")
    if name and (len(name) != len(runs) or len(set(name)) < len(name) or not all(name)):
        raise ChoiceError(f"--name: {counted(len(runs), 'run')} need as many different names")
    check_file(output, overwrite=overwrite)
    suffix = "" if output is None else output.suffix.lower()
    if format is None and suffix and suffix not in SUFFIXES:
        raise ChoiceError(f"{output}: {suffix} names no form; end it in {', '.join(SUFFIXES)}, or use --format")
    form = format or SUFFIXES.get(suffix, "text")
    if qrels is not None and form not in (*TREC, "html"):
        raise ChoiceError(f"--qrels is for {', '.join(TREC)} and html, not for {form}")
    if form != "html" and data is not None:
        raise ChoiceError(f"--data is for html, not for {form}")
    if form == "html":
        if output is None or len(runs) > 1:
            raise ChoiceError("a page is of one run and needs its file: recallatk report RUN --output page.html")
        write_run_page(runs[0], output, page, data=data, qrels=qrels, overwrite=overwrite, name=next(iter(name), None))
        return
    check_page_file(None, page, overwrite=overwrite)
    folders = [run_folder(run) for run in runs]
    reports = {one: load_report(run) for one, run in zip(name or distinct_names(folders), folders, strict=True)}
    if form in TREC:
        if len(runs) > 1:
            raise ChoiceError(f"the form {form} holds one run, not {len(runs)}; write them one by one")
        title, found = next(iter(reports.items()))
        lines = _trec(form, folders[0], title, found, length=length, qrels=qrels)
        write_result("\n".join(lines), output, form)
    else:
        write_result(FORMATS[form](reports, percent), output, form)
    if output is not None:
        tell([f"wrote {output}"])


def _trec(form: str, folder: Path, title: str, found: Any, *, length: int, qrels: Path | None) -> Iterator[str]:
    """The lines of lists or qrels; what is to be known of them goes to standard error."""
    from recallatk.exports import cut_ties, trec_ids, trec_qrels, trec_run
    from recallatk.neighbours import nearest
    from recallatk.verification.saved import check_qrels, embeddings_of, judgements_of, needs_judgements

    protocol = found.protocol
    judged = judgements_of(found, folder) if qrels is None else read_qrels(qrels, protocol)
    if judged is None and needs_judgements(protocol):
        raise ChoiceError("the run was judged by qrels, and does not say where they lie; name them: --qrels FILE")
    if not found.samples:
        raise RecallatkError(f"{folder}: the run keeps no samples, so it is from an earlier version; repeat it")
    query, gallery = found.samples.get("query", found.samples.get("both")), found.samples.get("gallery")
    if trec_ids(query, gallery)[0] != query.row_ids or trec_ids(query, gallery)[1] != (gallery or query).row_ids:
        tell(["TREC parts fields by white space: in all ids white space, # and % are written %XX"])
    if form == "trec-qrels":
        if protocol.no_positive == "miss":
            tell(["queries without a positive are misses here; qrels do not hold them, so trec_eval leaves them out"])
        if judged is not None:
            check_qrels(found, query, gallery, judged)
        return trec_qrels(query, gallery, protocol=protocol, qrels=judged)
    encoded = embeddings_of(found, folder, qrels=judged)
    if encoded is None and found.embedding_dim is None:
        raise RecallatkError(f"{folder}: the run was made from scores, and lists are made from embeddings")
    if encoded is None:
        raise RecallatkError(
            f"{folder}: the run keeps no embeddings, which lists are made from; repeat it with --save-embeddings"
        )
    most = len(encoded.gallery or encoded.query)
    lists = nearest(encoded.query, encoded.gallery, min(length, most), protocol=protocol, qrels=judged)
    tied = int((lists.tied & (lists.rows >= 0)).any(axis=1).sum())
    if tied:
        tell([f"{counted(tied, 'list has', 'lists have')} ties in it; negatives come first there (ties=pessimistic)"])
    cut = int(cut_ties(lists).sum())
    if cut:
        ends = counted(cut, "list ends", "lists end")
        tell([f"{ends} inside the tie of the best positive, which is left out; use a larger --length"])
    return trec_run(lists, encoded.query, encoded.gallery, tag="".join(title.split()) or "recallatk")
