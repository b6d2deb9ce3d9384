"""The HTML page: one file that shows what the number hides."""

from recallatk.page.options import DEFAULT_OPTIONS, Images, PageOptions, PageSource
from recallatk.page.pages import Page, check_page, compare_page, history_page, run_page, write_page

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
