"""What --cluster means: an address of a cluster, or a column of intervals."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import recallatk
from recallatk.cli.flags import expand_tokens

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"


@pytest.mark.parametrize("address", ["ray", "auto", "[::1]:6379", "node-1:6379", "ray://head:10001", "10.0.0.1"])
def test_an_address_is_where_the_work_is_done(address):
    assert expand_tokens(["eval", "--cluster", address])[1:] == ["--run-on", address]
    assert expand_tokens(["eval", f"--cluster={address}"])[1:] == [f"--run-on={address}"]


def test_anything_else_is_a_column_where_there_are_columns():
    assert expand_tokens(["eval", "--cluster", "person"])[1:] == ["--cluster", "person"]
    assert expand_tokens(["compare", "--cluster", "ray"])[1:] == ["--cluster", "ray"]
    for command in ("embed", "info", "verify"):
        assert expand_tokens([command, "--cluster", "person"])[1:] == ["--run-on", "person"]


@pytest.mark.parametrize("address", ["10.0.0.1", "ray://", "person"])
def test_what_is_no_address_is_told_how_one_looks(address):
    found = recallatk("info", "--cluster", address)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert "give ray (on this machine), auto, HOST:PORT or ray://HOST:PORT" in found.err


def test_flags_that_would_say_nothing_are_refused():
    rows = recallatk("eval", "--query", "rows.npy", "--cluster", "ray", "--num-gpus", "1")
    assert (rows.code, rows.err) == (2, "recallatk: --num-gpus is for encoding; here are embeddings already\n")
    scores = recallatk("score", "--scores", "m.npy", "--query-labels", "q.txt", "--cluster", "ray", "--num-gpus", "1")
    assert (scores.code, scores.err) == (2, "recallatk: --num-gpus is for encoding; here are scores already\n")
    parts = recallatk("embed", PHOTOS, "--encoder", "hog", "-o", "rows", "--cluster", "ray", "--parts", "other")
    assert (parts.code, parts.err.count("\n")) == (2, 1)
    assert "--parts: the rows go to rows, which --output names; leave --parts out" in parts.err
