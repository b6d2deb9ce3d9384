"""The imports are the data flow: who may know whom, read from the source and held against one table."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent.parent
SOURCE = PROJECT / "src"
ROOT = "recallatk"

# Module or folder -> what of ours it may import, beside EVERYBODY, whom all may import.
# In the order of the data flow: an import only ever goes upward in this list.
ARROWS: dict[str, set[str]] = {
    "types": set(),
    "extras": set(),
    "wording": set(),
    "memory": set(),
    "cores": set(),
    "markup": set(),
    "arrow": set(),
    "images": set(),
    "datasets": {"images"},
    "encoders": {"images"},
    "cache": set(),
    "decoding": {"images", "cache"},
    "encoding": {"images", "encoders", "cache", "decoding"},
    "embeddings": set(),
    "relevance": set(),
    "ranking": {"relevance"},
    "cluster": {"images", "encoders", "cache", "decoding", "encoding", "embeddings", "relevance", "ranking"},
    "metrics": {"ranking"},
    "statistics": set(),
    "signature": set(),
    "report": {"statistics", "signature", "markup", "arrow"},
    "evaluation": {"relevance", "ranking", "metrics", "statistics", "signature", "report"},
    "neighbours": {"relevance", "ranking"},
    "exports": {"relevance", "statistics", "markup", "report", "neighbours"},
    "comparison": {"statistics", "signature", "markup", "report"},
    "history": {"statistics", "markup", "report", "comparison"},
    "gates": {"statistics", "report", "comparison"},
    "planning": {"statistics", "report", "comparison"},
    "run": {
        "statistics",
        "arrow",
        "images",
        "datasets",
        "encoders",
        "cache",
        "encoding",
        "embeddings",
        "relevance",
        "ranking",
        "cluster",
        "signature",
        "evaluation",
        "report",
    },
    "verification": {
        "comparison",
        "images",
        "datasets",
        "statistics",
        "signature",
        "encoders",
        "cache",
        "encoding",
        "embeddings",
        "evaluation",
        "report",
        "run",
    },
    "inspection": {"images", "datasets", "relevance"},
    "page": {  # metrics and statistics: recall at every K has the interval that the report has at its own
        "images",
        "metrics",
        "statistics",
        "report",
        "neighbours",
        "comparison",
        "history",
    },
    "cli": set(),  # all but the ENTRANCES: filled in below
    "__main__": {"cli"},
    "registry": set(),
    "integrations": {"ranking", "evaluation", "report", "registry", "run"},
}
EVERYBODY = {"types", "extras", "wording", "memory", "cores"}
ENTRANCES = {
    ROOT,
    "__main__",
    "cli",
    "registry",
    "integrations",
}  # for users and frameworks: nobody of ours imports them, but an adapter its framework's registry
ARROWS["cli"] = set(ARROWS) - ENTRANCES
ARROWS[ROOT] = ARROWS["cli"]  # the public names, looked up when first used

# Other packages that may be imported when a module is imported; everything else waits until it is used.
AT_IMPORT: dict[str, set[str]] = {
    "images": {"numpy", "PIL"},
    "encoders": {"numpy", "PIL"},
    "cli": {"numpy", "cyclopts", "rich"},
}
AT_IMPORT_ELSEWHERE = {"numpy"}
SLOW = {"pyarrow", "onnxruntime", "torch", "PIL", "ray"}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
MOST_LINES = 400

FILES = sorted((SOURCE / ROOT).rglob("*.py"))


@dataclasses.dataclass(frozen=True)
class Import:
    """A name that a file imports, or spells out in a lazy table ("module:function")."""

    name: str
    line: int
    at_import: bool
    as_text: bool = False


def unit(dotted: str) -> str:
    """`recallatk.ranking.grid` belongs to `ranking`; what is no module of ours is a name of the package root."""
    parts = dotted.split(".")
    if len(parts) == 1:
        return ROOT
    found = (SOURCE / ROOT / f"{parts[1]}.py").exists() or any((SOURCE / ROOT / parts[1]).glob("*.py"))
    return parts[1] if found else ROOT


def home(path: Path) -> str:
    return unit(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))


def imports(path: Path) -> Iterator[Import]:
    package = path.relative_to(SOURCE).parts[:-1]

    def walk(node: ast.AST, at_import: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            now = at_import and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, now) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                above = package[: len(package) - child.level + 1] if child.level else ()
                module = ".".join([*above, *([child.module] if child.module else [])])
                # `from package import name`: the name may be a module, so it counts as part of the path
                yield from (Import(f"{module}.{alias.name}", child.lineno, now) for alias in child.names)
            elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                text = re.fullmatch(rf"({ROOT}(?:\.\w+)+)(?::\w+)?", child.value)
                if text and unit(text[1]) != ROOT:
                    yield Import(text[1], child.lineno, False, as_text=True)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from walk(ast.Module(child.body, []), False)
                yield from walk(ast.Module(child.orelse, []), now)
            else:
                yield from walk(child, now)

    yield from walk(ast.parse(path.read_text("utf-8")), True)


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE / ROOT).as_posix()


def each_file(test):
    return pytest.mark.parametrize("path", FILES, ids=name_of)(test)


def test_arrows_only_go_upward():
    order = list(ARROWS)
    backward = {
        (a, b) for a in ARROWS for b in ARROWS[a] if a not in {"cli", ROOT} and order.index(b) >= order.index(a)
    }
    assert not backward


@each_file
def test_a_file_imports_only_what_its_job_names(path):
    module = home(path)
    assert module in ARROWS, f"{name_of(path)}: give {module} a row in ARROWS"
    allowed = ARROWS[module] | EVERYBODY | {module}
    wrong = {
        f"line {i.line}: {i.name}"
        for i in imports(path)
        if i.name.split(".")[0] == ROOT
        and unit(i.name) not in allowed
        and not (i.as_text and (module, unit(i.name)) == ("registry", "integrations"))  # it names our adapter as text
    }
    assert not wrong, f"{name_of(path)} may not import {wrong}; {module} may import {sorted(allowed)}"


@each_file
def test_nothing_slow_is_imported_before_it_is_used(path):
    module = home(path)
    if module == "integrations":
        return  # the user imports one of these together with its framework
    allowed = AT_IMPORT.get(module, AT_IMPORT_ELSEWHERE) | sys.stdlib_module_names | {ROOT}
    wrong = {f"line {i.line}: {i.name}" for i in imports(path) if i.at_import and i.name.split(".")[0] not in allowed}
    assert not wrong, f"{name_of(path)}: import {wrong} in the function that uses it"


def test_ray_stands_where_another_engine_would():
    """`import_module` and `import_extra` name it in a string."""
    named = re.compile(r"^ *(import|from) ray\b|import_(module|extra)\(\"ray\b", re.MULTILINE)
    found = {name_of(path) for path in FILES if named.search(path.read_text("utf-8"))}
    assert found == {f"cluster/{name}.py" for name in ("joining", "ray_engine", "pipeline")}


@pytest.mark.parametrize("module", [ROOT, f"{ROOT}.cli"])
def test_importing_the_package_or_the_command_loads_no_slow_library(module):
    if module != ROOT and unit(module) == ROOT:
        pytest.skip(f"there is no {module} yet")
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert module in done.stdout.split()
    assert not SLOW & set(done.stdout.split())


def test_the_package_is_imported_where_there_is_no_posix():
    """As on Windows, of which only what is absent is tried here."""
    gone = ["resource", "fcntl", "termios", "pwd", "grp"]
    code = f"import signal, sys; sys.modules.update(dict.fromkeys({gone})); del signal.SIGHUP; sys.platform = 'win32'"
    done = subprocess.run([sys.executable, "-c", f"{code}; import {ROOT}.run, {ROOT}.cli, {ROOT}.page"], check=False)
    assert done.returncode == 0


@each_file
def test_only_the_command_prints_and_exits(path):
    if home(path) == "cli":
        return
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else None
        assert called not in {"print", "exit", "quit", "sys.exit", "SystemExit"}, (
            f"{name_of(path)}, line {node.lineno}: return the text, or raise RecallatkError; cli.py prints and exits"
        )


@each_file
def test_a_module_is_named_after_what_it_holds(path):
    names = {part.removesuffix(".py").strip("_") for part in path.relative_to(SOURCE).parts}
    assert not names & VAGUE_NAMES


@each_file
def test_a_module_stays_short(path):
    assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES


def test_every_dependency_has_a_reason_and_a_pinned_version():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *(r for extra in project["optional-dependencies"].values() for r in extra)]
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in asked} - {ROOT}
    reasons = set(re.findall(r"[\w.-]+", (PROJECT / "docs" / "dependencies.md").read_text("utf-8")))
    pinned = set(re.findall(r"^([\w.-]+)==", (PROJECT / "ci" / "constraints.txt").read_text("utf-8"), re.MULTILINE))
    assert not names - reasons
    assert not {name.replace("_", "-") for name in names} - {name.replace("_", "-") for name in pinned}


def test_the_walk_sees_every_kind_of_import(tmp_path, monkeypatch):
    package = tmp_path / ROOT
    (package / "ranking").mkdir(parents=True)
    (package / "types.py").touch()
    (package / "ranking" / "__init__.py").touch()
    file = package / "ranking" / "grid.py"
    file.write_text(
        "import numpy\n"
        "from recallatk import types, recall_at_k\n"
        "from ..types import Label\n"
        "from . import counts\n"
        "if TYPE_CHECKING:\n"
        "    import torch\n"
        "def late():\n"
        "    import pyarrow\n"
        "LAZY = {'x': 'recallatk.types:load', 'y': 'recallatk.nothing'}\n",
        "utf-8",
    )
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    found = [(i.name, i.at_import, i.as_text) for i in imports(file)]
    assert found == [
        ("numpy", True, False),
        ("recallatk.types", True, False),
        ("recallatk.recall_at_k", True, False),
        ("recallatk.types.Label", True, False),
        ("recallatk.ranking.counts", True, False),
        ("torch", False, False),
        ("pyarrow", False, False),
        ("recallatk.types", False, True),
    ]
    assert [unit(name) for name in ("recallatk.recall_at_k", "recallatk.ranking.grid")] == [ROOT, "ranking"]
    assert home(file) == home(package / "ranking" / "__init__.py") == "ranking"
    assert home(package / "__init__.py") == ROOT
