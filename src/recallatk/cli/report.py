"""`recallatk report`: a saved run as something to look at."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from recallatk.cli.flags import FOLDERS_GROUP, NO_PAGE, OUTPUT_GROUP, PageContent
from recallatk.cli.page import check_page_file, source_of_run, write


def report(
    run: Path,
    /,
    *,
    output: Path,
    data: Annotated[Path | None, Parameter(group=FOLDERS_GROUP)] = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    quiet: Annotated[bool, Parameter(group=OUTPUT_GROUP)] = False,
    page: PageContent = NO_PAGE,
) -> None:
    """Write a saved run as an HTML page: the number, the queries that fail, and what was retrieved instead.

    Neighbours need the embeddings: those that the run keeps (`--save-embeddings`), or the files that it was made from.
    Pictures need the images. What is not there is left out, and the page says how to get it. Short form: -o for
    --output.

    Args:
        run: the folder of a run, as --output of `recallatk eval` wrote it.
        output: the .html file.
        data: where the images lie now; by default where the record says.
        overwrite: write over that file.
        quiet: do not say how large it is and what did not fit.
    """
    check_page_file(output, page, overwrite=overwrite)
    from recallatk.page import run_page
    from recallatk.run import RECORD, load_report

    folder = run.parent if run.name == RECORD else run
    found = load_report(folder)
    source = source_of_run(folder.resolve().name, found, folder, data=data, pictures=page.pictures != "none")
    write(run_page(source, page.options()), output, overwrite=overwrite, quiet=quiet)
