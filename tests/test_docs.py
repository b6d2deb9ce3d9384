"""README and docs cannot lie: their examples run, their help is current, and nothing that exists is left out."""

from __future__ import annotations

import contextlib
import dataclasses
import doctest
import importlib
import io
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow.parquet as pq
import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

import recallatk
from recallatk import cli
from recallatk.cli.flags import ALIASES
from recallatk.datasets import LAYOUTS
from recallatk.datasets.tables import READERS
from recallatk.embeddings import FORMATS
from recallatk.embeddings.labels import LABEL_FORMATS
from recallatk.encoders import ENCODERS
from recallatk.images import IMAGE_SUFFIXES, DecodePolicy
from recallatk.metrics import METRICS
from recallatk.ranking import BACKENDS
from recallatk.report import Provenance, Value
from recallatk.signature import KEYS
from recallatk.types import EvalProtocol

PROJECT = Path(__file__).parents[1]
README = PROJECT / "README.md"
PAGES = {path.name: path for path in [README, *sorted((PROJECT / "docs").glob("*.md"))]}
PHOTOS = PROJECT / "src" / "recallatk" / "assets" / "photos"
TABLES = (BACKENDS, ENCODERS, LAYOUTS, METRICS)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# The folder that the examples read: where each photo comes from.
SHOP = {
    "query/hammer/front.webp": "hammer/hammer1.webp",
    "query/pencil/front.webp": "pencil/pencil.webp",
    "query/scissors/front.webp": "scissors/scissors1.webp",
    "query/tweezer/front.webp": "tweezer/tweezer.webp",
    "query/wrench/front.webp": "wrench/wrench.webp",
    "gallery/hammer/a.webp": "hammer/hammer2.webp",
    "gallery/hammer/b.webp": "hammer/hammer3.webp",
    "gallery/plate/a.webp": "plate/plate.webp",
    "gallery/scissors/a.webp": "scissors/scissors2.webp",
    "gallery/tweezer/a.webp": "tweezer/tweezer1.webp",
    "gallery/wrench/a.webp": "wrench/wrench1.webp",
}
# Folders in the form of public data sets, for the page on protocols: the names are theirs, the photos are ours.
LOOKALIKES = {
    "market/query/0001_c1s1_000151_01.jpg": "hammer/hammer1.webp",
    "market/query/0002_c2s1_000301_01.jpg": "scissors/scissors1.webp",
    "market/bounding_box_test/0001_c1s1_000176_02.jpg": "hammer/hammer2.webp",
    "market/bounding_box_test/0001_c3s2_000201_01.jpg": "hammer/hammer3.webp",
    "market/bounding_box_test/0002_c2s1_000326_02.jpg": "scissors/scissors2.webp",
    "market/bounding_box_test/0000_c2s1_000401_01.jpg": "wrench/wrench1.webp",
    "market/bounding_box_test/-1_c3s1_000426_03.jpg": "plate/plate.webp",
    "places/queries/@0551100.00@4190200.00@10@S@.jpg": "hammer/hammer1.webp",
    "places/queries/@0559000.00@4190200.00@10@S@.jpg": "scissors/scissors1.webp",
    "places/database/@0551100.00@4190225.00@10@S@.jpg": "hammer/hammer2.webp",
    "places/database/@0551100.00@4190225.10@10@S@.jpg": "hammer/hammer3.webp",
    "places/database/@0552000.00@4190200.00@10@S@.jpg": "wrench/wrench1.webp",
    "products/tool_final/111_0.JPG": "hammer/hammer1.webp",
    "products/tool_final/111_1.JPG": "hammer/hammer2.webp",
    "products/tool_final/112_0.JPG": "scissors/scissors1.webp",
    "products/tool_final/112_1.JPG": "scissors/scissors2.webp",
    "products/garden_final/113_0.JPG": "solar/solar1.webp",
    "products/garden_final/113_1.JPG": "solar/solar2.webp",
}
PRODUCTS = """\
image_id class_id super_class_id path
1 11319 1 tool_final/111_0.JPG
2 11319 1 tool_final/111_1.JPG
3 11320 1 tool_final/112_0.JPG
4 11320 1 tool_final/112_1.JPG
5 11321 2 garden_final/113_0.JPG
6 11321 2 garden_final/113_1.JPG
"""
MANIFEST = """\
path,label,role,camera
shop/query/hammer/front.webp,hammer,query,left
shop/query/scissors/front.webp,scissors,query,left
shop/query/tweezer/front.webp,tweezer,query,right
shop/gallery/hammer/a.webp,hammer,gallery,left
shop/gallery/hammer/b.webp,hammer,gallery,right
shop/gallery/scissors/a.webp,scissors,gallery,left
shop/gallery/tweezer/a.webp,tweezer,gallery,left
shop/gallery/plate/a.webp,plate,gallery,right
"""


def text(page: str) -> str:
    return PAGES[page].read_text("utf-8")


def prose() -> str:
    """Everything people wrote: the help of the commands, which names every flag anyway, is left out."""
    return "\n".join(write_cli_help().without_help(text(page)) for page in PAGES)


def write_cli_help():
    return tool("write_cli_help")


def tool(name: str):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT / "tools"))
        return importlib.import_module(name)


# --- the examples run


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """A folder with what the examples read; tables, imports and the search path are put back afterwards."""
    (tmp_path / "photos").symlink_to(PHOTOS)
    for name, photo in {**{f"shop/{name}": photo for name, photo in SHOP.items()}, **LOOKALIKES}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PHOTOS / photo, tmp_path / name)
    (tmp_path / "products" / "Ebay_test.txt").write_text(PRODUCTS, "utf-8")
    (tmp_path / "shop.csv").write_text(MANIFEST, "utf-8")
    np.savez(tmp_path / "theirs.npz", feats=np.eye(4, dtype=np.float16)[[0, 0, 1, 1]], labels=[1, 1, 2, 2])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    tables, modules = [dict(table) for table in TABLES], set(sys.modules)
    yield tmp_path
    for table, rows in zip(TABLES, tables, strict=True):
        table.clear()
        table.update(rows)
    for name in set(sys.modules) - modules:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def save_files(page: str, folder: Path) -> None:
    """A block that begins with `# NAME.py` or `# NAME.toml` is that file."""
    for _, source in FENCE.findall(page):
        named = re.match(r"# ([\w-]+\.(?:py|toml))\n", source)
        if named:
            (folder / named[1]).write_text(source, "utf-8")


def run_console(example: Example) -> str | None:
    """Run each `$ command` and compare what it prints on standard output; `...` stands for anything."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n?)*)", example.parsed, re.MULTILINE):
        printed = "".join(f"{line.rstrip()}\n" for line in run_command(command).splitlines())
        if not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
            return f"$ {command}\n--- the page shows\n{shown}--- it prints\n{printed}"
    return None


def run_command(command: str) -> str:
    """`recallatk` in this process, anything else in a shell; with `2>&1` errors are output, without there are none."""
    if not command.startswith("recallatk "):
        return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout
    words = shlex.split(command)
    shows_errors = words[-1] == "2>&1"
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if shows_errors else err):
        try:
            cli.main(words[1:-1] if shows_errors else words[1:])
        except SystemExit as end:
            code = int(end.code or 0)
    assert code == 0 or shows_errors, f"$ {command}\nexit {code}: {err.getvalue()}"
    return out.getvalue()


EXAMPLES = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS),
        CodeBlockParser("console", run_console),
    ]
)


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_do_what_it_shows(page, workplace):
    save_files(text(page), workplace)
    for example in EXAMPLES.parse(PAGES[page]).examples():
        example.evaluate()


@pytest.mark.parametrize(
    ("block", "ends_well"),
    [
        ("$ recallatk --version\n...\n", True),
        ("$ recallatk --version\nnone\n", False),
        ("$ recallatk eval nowhere --encoder pixels 2>&1\nrecallatk: nowhere: no such file or folder; ...\n", True),
        ("$ ls shop\ngallery\nquery\n$ ls shop.csv\nshop.txt\n", False),
    ],
)
def test_a_console_block_that_lies_is_seen(block, ends_well, workplace, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"```console\n{block}```\n", "utf-8")
    (example,) = EXAMPLES.parse(page).examples()
    with contextlib.nullcontext() if ends_well else pytest.raises(AssertionError):
        example.evaluate()


def test_a_command_that_fails_cannot_hide_on_a_page(workplace):
    with pytest.raises(AssertionError, match="exit 3"):
        run_command("recallatk eval nowhere --encoder pixels")


# --- nothing is left out


def flags() -> list[str]:
    helps = (write_cli_help().help_text(command) for command in write_cli_help().commands())
    return sorted({flag for help_ in helps for flag in re.findall(r"(?<!\S)--[a-z-]+", help_)} | set(ALIASES))


def literal(hint: object) -> tuple[str, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def listed() -> list[tuple[str, str]]:
    """(page, the words that must stand in its own prose) for every row, field, flag and command."""
    choices = {choice for hint in get_type_hints(EvalProtocol).values() for choice in literal(hint)}
    suffixes = {*FORMATS, *LABEL_FORMATS, *READERS, *IMAGE_SUFFIXES}
    return [
        *(("cli.md", f"recallatk {command}") for command in write_cli_help().commands()),
        *(("cli.md", f"`{flag}`") for flag in flags()),
        *(("metrics.md", f"| `{name}{'@k' if row.cutoff == 'always' else ''}` |") for name, row in METRICS.items()),
        *(("encoders.md", f"`{name}`") for name in ENCODERS),
        *(("data.md", f"`{name}`") for name in [*DecodePolicy().record(), *sorted(suffixes)]),
        *(("data.md", f"`{name}`") for name, layout in LAYOUTS.items() if layout.benchmark is None),
        *(("protocols.md", f"--layout {name}") for name, layout in LAYOUTS.items() if layout.benchmark is not None),
        *(("extending.md", f"`{name}`") for name in BACKENDS),
        *(("extending.md", table) for table in ("`BACKENDS`", "`ENCODERS`", "`LAYOUTS`", "`METRICS`", "`FORMATS`")),
        *(("protocol.md", f"| `{field.name}` |") for field in dataclasses.fields(EvalProtocol)),
        *(("protocol.md", f"`{choice}`") for choice in sorted(choices)),
        *(("protocol.md", f"| `{key}` |") for key in KEYS),
        *(("report.md", f"`{field.name}`") for field in dataclasses.fields(Value)),
        *(("report.md", f"`{field.name}`") for field in dataclasses.fields(Provenance)),
    ]


@pytest.mark.parametrize(("page", "words"), listed())
def test_what_exists_is_described(page, words):
    is_there = words in write_cli_help().without_help(text(page))
    assert is_there, f"{page} does not say {words}"


@pytest.mark.parametrize("name", recallatk.__all__)
def test_every_public_name_is_used_or_explained(name):
    is_there = re.search(rf"\b{name}\b", prose())
    assert is_there, f"no page says {name}"


def test_every_part_of_a_run_on_disk_is_described(workplace):
    run_command("recallatk eval shop.csv --encoder pixels --on-error skip --output run")
    record = json.loads(Path("run/record.json").read_text("utf-8"))
    columns = [name for part in ("queries", "samples") for name in pq.read_schema(f"run/{part}.parquet").names]
    keys = {*record, *record["counts"], *record["hashes"], *record["provenance"]["environment"]}
    columns = {re.sub(r"^recall@\d+$", "recall@k", re.sub(r"^group\..*", "group.NAME", name)) for name in columns}
    missing = [name for name in sorted(keys | columns) if f"`{name}`" not in text("report.md")]
    assert not missing


# --- the pages hold together


def test_the_help_in_the_docs_is_current():
    assert write_cli_help().render(text("cli.md")) == text("cli.md")


def test_stale_help_is_seen_and_mended():
    stale = text("cli.md").replace("Usage: recallatk info", "Usage: recallatk information")
    assert stale != text("cli.md")
    assert write_cli_help().render(stale) == text("cli.md")


def test_a_command_without_a_place_in_the_docs_is_seen():
    with pytest.raises(ValueError, match="info"):
        write_cli_help().render(text("cli.md").replace("<!-- help: info -->", ""))


def test_what_the_docs_say_of_benchmarks_is_current():
    write_benchmarks = tool("write_benchmarks")
    assert write_benchmarks.render(text("protocols.md")) == text("protocols.md")
    stale = text("protocols.md").replace("5,924 queries", "5,925 queries")
    assert stale != text("protocols.md")
    assert write_benchmarks.render(stale) == text("protocols.md")


def test_a_benchmark_without_a_place_in_the_docs_is_seen():
    with pytest.raises(ValueError, match="cub200"):
        tool("write_benchmarks").render(text("protocols.md").replace("<!-- benchmark: cub200 -->", ""))


def headings(page: Path) -> set[str]:
    """The anchors that the headings of a page get on GitHub."""
    lines = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text(page))):
        if not re.match(r"https?://", link):
            name, _, anchor = link.partition("#")
            target = PAGES[page].parent / name if name else PAGES[page]
            assert target.exists(), f"{page}: {link} leads nowhere"
            assert not anchor or anchor in headings(target), f"{page}: {link} names no heading"


def test_every_page_is_reached_from_the_readme():
    assert not [page for page in PAGES if page != "README.md" and f"(docs/{page})" not in text("README.md")]


def test_the_readme_is_short():
    assert len(text("README.md").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES)
def test_one_word_for_one_thing(page):
    # Other tools' folder names and flags may be quoted; "reference" is also the name of a backend.
    words = re.sub(r"`[^`\n]*`", "", FENCE.sub("", write_cli_help().without_help(text(page))))
    assert not re.search(r"\b(database|distances?|reference (set|image|item))\b", words, re.IGNORECASE)
