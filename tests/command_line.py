"""The command line as a user meets it, and a small world of images and encoders to use it on."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from recallatk.cli import main

COMMAND = [sys.executable, "-c", "from recallatk.cli import main; main()"]
MEAN = ("--encoder", "tiny:mean_rgb")
ENCODERS = """\
import time
from pathlib import Path

import numpy as np


def mean_rgb(batch):
    return np.stack([np.asarray(image, dtype=np.float32).mean((0, 1)) for image in batch])


def of_paths(batch):
    return np.array([[1, 0] if Path(path).parent.name == "red" else [0, 1] for path in batch])


def one_row_too_few(batch):
    return mean_rgb(batch)[1:]


def not_finite(batch):
    return np.full((len(batch), 2), np.nan)


def breaks(batch):
    raise ValueError("a fault of its own")


def never_ends(batch):
    Path("started").touch()
    time.sleep(60)
"""
# One image of the blue gallery is nearly red: at 1 the red query finds it, at 2 all queries are right.
COLOURS = {
    "query/red/a.png": (210, 55, 20),
    "query/green/a.png": (20, 230, 30),
    "query/blue/a.png": (25, 20, 230),
    "gallery/red/a.png": (250, 20, 20),
    "gallery/green/a.png": (20, 240, 20),
    "gallery/blue/a.png": (20, 20, 240),
    "gallery/blue/b.png": (200, 60, 20),
}


@dataclasses.dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    def values(self) -> dict[str, float]:
        """The lines under [recall] and [metrics]."""
        return {
            name: float(value)
            for section in re.findall(r"^\[(?:recall|metrics)\]\n((?:[^\[\n].*\n)*)", self.out, re.MULTILINE)
            for name, value in re.findall(r"^(\S+@?\d*): (\S+)$", section, re.MULTILINE)
        }


def recallatk(*argv: object) -> Result:
    """Run the command in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in argv])
        except SystemExit as end:
            code = int(end.code or 0)
    return Result(code, out.getvalue(), err.getvalue())


def in_process_of_its_own(*argv: object, before: str = "", **options: object) -> Result:
    """Run the command, after some Python, with bytes as they come."""
    code = f"import sys\n{before}\nfrom recallatk.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code, *map(str, argv)], capture_output=True, check=False, **options)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def save(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), colour).save(path)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder `data` in the current directory, and encoders beside it."""
    for name, colour in COLOURS.items():
        save(tmp_path / "data" / name, colour)
    (tmp_path / "tiny.py").write_text(ENCODERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tiny", raising=False)
    return Path("data")
