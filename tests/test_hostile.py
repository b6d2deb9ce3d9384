"""Hostile reality: names of any bytes, folders named like images, closed pipes, terminals, interruptions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from command_line import COMMAND, MEAN, data, in_process_of_its_own, recallatk, save
from recallatk import load_report

__all__ = ["data"]  # a fixture is used by its name


@pytest.fixture
def hostile(data: Path) -> Path:
    names = [
        b"h/\xf0\x9f\x98\x80/two\nlines.png",
        b"h/\xf0\x9f\x98\x80/\"quote'.png",
        b"h/caf\xe9/\xff.png",
        b"h/caf\xe9/a|b:c%,d.png",
        b"h/ sp ace /\x1b[31mred.png",
        b"h/ sp ace /right\xe2\x80\xaeleft.png",
    ]
    for number, name in enumerate(names):
        path = Path(os.fsdecode(name))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:  # Pillow takes no name that is no UTF-8
                Image.new("RGB", (8, 8), (0, 80 * (number // 2), 240 - number)).save(file, "PNG")
        except (OSError, ValueError):
            pytest.skip("this file system has no such names")
    return Path("h")


def test_file_names_of_any_bytes_go_through_to_the_saved_report(hostile: Path) -> None:
    result = recallatk("eval", hostile, *MEAN, "-k", "1", "-o", "run", "--save-embeddings")
    assert (result.code, result.err) == (0, "")
    report = load_report(Path("run"))
    assert report.text() + "\n" == result.out
    assert set(report.queries["id"]) == {
        "😀/two\nlines.png",
        "😀/\"quote'.png",
        "caf\\xe9/\\xff.png",
        "caf\\xe9/a|b:c%,d.png",
        " sp ace /\x1b[31mred.png",
        " sp ace /right\u202eleft.png",
    }
    assert recallatk("eval", "--query", "run/embeddings.npy", "-k", "1") == result


def test_names_cannot_break_a_line_or_talk_to_the_terminal(hostile: Path) -> None:
    for image in hostile.rglob("*.png"):
        image.write_bytes(b"")
    save(hostile / "a" / "a.png", (1, 2, 3))
    save(hostile / "a" / "b.png", (1, 2, 4))
    result = recallatk("eval", hostile, *MEAN, "-k", "1", "--on-error", "skip")
    section = result.out.partition("[skipped]\n")[2].partition("[interval]")[0]
    assert len(section.splitlines()) == 7
    assert not set(result.out) & {"\x1b", "\u202e"}
    failed = recallatk("eval", hostile, *MEAN)
    assert failed.err.count("\n") == 1
    assert "\x1b" not in failed.err


def test_a_data_folder_whose_name_is_no_utf8_can_be_evaluated_and_saved(hostile: Path) -> None:
    renamed = hostile.rename(os.fsdecode(b"h\xe9"))
    result = in_process_of_its_own("eval", renamed, *MEAN, "-k", "1", "-o", "run", cwd=Path.cwd())
    assert (result.code, result.err) == (0, "")
    assert load_report(Path("run")).num_queries == 6


def test_a_terminal_that_only_knows_ascii_gets_escapes_not_a_traceback(hostile: Path) -> None:
    save(hostile / "ünï" / "a.png", (9, 9, 9))  # excluded, so that its name is printed
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = in_process_of_its_own("eval", hostile, *MEAN, "-k", "1", cwd=Path.cwd(), env=env)
    assert (result.code, result.err) == (0, "")
    assert "recall@1: " in result.out


def test_a_folder_named_like_an_image_is_no_image(data: Path) -> None:
    (data / "gallery" / "red" / "x.jpg").mkdir()
    result = recallatk("eval", data, *MEAN, "-k", "1")
    assert result.values() == {"recall@1": 0.666667}
    assert "gallery/red/x.jpg" in result.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(data: Path) -> None:
    locked = data / "gallery" / "red" / "a.png"
    locked.chmod(0)
    result = recallatk("eval", data, *MEAN)
    assert (result.code, result.err.count("\n")) == (3, 1)
    assert "gallery/red/a.png" in result.err
    assert "Permission denied" in result.err


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
@pytest.mark.parametrize(("flags", "shown"), [([], True), (["--quiet"], False)])
def test_progress_is_shown_on_a_terminal(data: Path, flags: list[str], shown: bool) -> None:
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "eval", data, "--encoder", "pixels", *flags],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80"},
    ) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while chunk := os.read(ours, 4096):
                seen += chunk
        os.close(ours)
        assert process.stdout is not None
        out = process.stdout.read()
    assert process.returncode == 0
    assert out.startswith(b"[evaluation]\nnum queries: 3\n")
    assert b"\x1b" not in out
    assert (b"pixels" in seen and b"7/7" in seen) if shown else seen == b""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to a process")
def test_interrupting_gives_one_line_and_130(data: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "eval", data, "--encoder", "tiny:never_ends", "-o", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not Path("started").exists() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert not Path("run/record.json").exists()
    assert err == "recallatk: interrupted\n"


@contextlib.contextmanager
def closed_pipe() -> Iterator[int]:
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break otherwise there")
@pytest.mark.parametrize(
    "argv",
    [
        ["eval", "data", *MEAN],
        ["eval", "data", *MEAN, "--json"],
        ["eval", "data", *MEAN, "--encoder", "pixels"],
        ["embed", "data", *MEAN, "-o", "e.npy"],
        ["info"],
        ["encoders"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_a_reader_that_has_gone_is_silent_and_no_failed_gate(data: Path, argv: list[str]) -> None:
    with closed_pipe() as writing:
        done = subprocess.run([*COMMAND, *argv], stdout=writing, stderr=subprocess.PIPE, check=False)
    assert done.stderr == b""
    assert done.returncode == 0
