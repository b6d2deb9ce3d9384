"""The HTML page: one file that shows what the number hides."""

from recallatk.page.compared_runs import compare_page
from recallatk.page.one_run import run_page
from recallatk.page.options import DEFAULT_OPTIONS, Images, PageOptions, PageSource
from recallatk.page.paper import Page, check_page, write_page
from recallatk.page.runs_over_time import history_page

__all__ = [
    "DEFAULT_OPTIONS",
    "Images",
    "Page",
    "PageOptions",
    "PageSource",
    "check_page",
    "compare_page",
    "history_page",
    "run_page",
    "write_page",
]
