"""From data to one HTML file that asks nothing of anybody: templates, style and script are put inside."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from importlib.resources import files
from typing import Any

from recallatk.extras import import_extra


def as_json(value: Any) -> str:
    """JSON in as few characters as it takes, safe inside a script element: no name can close it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone half of a character, as in a name that is no text, cannot be written but as an escape.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_size(value: Any) -> int:
    """Bytes that a value takes as JSON in the page.

    >>> json_size("図"), len(as_json("図"))
    (5, 3)
    """
    return len(as_json(value).encode("utf-8"))


def fill(template: str, *, folder: bool = False, **values: Any) -> str:
    """Fill a template; every value is shown as text.

    Args:
        template: its file name.
        folder: whether pictures lie beside the page.
        values: what it shows; `data` becomes JSON for the script.

    Raises:
        RecallatkError: jinja2 is not installed.
    """
    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    pictures = "data: file: 'self'" if folder else "data:"
    policy = (
        f"default-src 'none'; img-src {pictures}; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    values["data"] = as_json(values.get("data", {}))
    page = _environment().get_template(template)
    return str(page.render(style=read("page.css"), script=script, policy=policy, **values))


@functools.cache
def read(name: str) -> str:
    """A file of the page's folder, as text."""
    return (files("recallatk.page") / "templates" / name).read_text("utf-8")


@functools.cache
def _environment() -> Any:
    jinja2 = import_extra("jinja2", "report", "a page")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["size"] = size_text
    return environment


def size_text(size: int) -> str:
    """Bytes in words.

    >>> size_text(1_234_567), size_text(900)
    ('1.2 MB', '1 kB')
    """
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{math.ceil(size / 1e3)} kB"
