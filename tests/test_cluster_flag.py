"""What --cluster means: an address of a cluster, or a column of intervals."""

from __future__ import annotations

import pytest

from command_line import recallatk
from recallatk.cli.flags import expand_tokens


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
