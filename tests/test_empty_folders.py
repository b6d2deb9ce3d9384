"""Folders that a command made and left nothing in go with it; whatever was there before, or holds something, stays."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyarrow import fs

from recallatk.embeddings import parts
from recallatk.embeddings.empty_folders import not_there, remove_empty, tidied
from recallatk.run import elsewhere, kept_in
from recallatk.types import RecallatkError


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_what_is_made_and_empty_goes_with_the_folders_around_it(tmp_path, scheme):
    (tmp_path / "there").mkdir()
    with tidied(not_there(f"{scheme}{tmp_path}/there/new/rows")):
        parts.write_bytes(f"{scheme}{tmp_path}/there/new/rows", "a", b"1")
        parts.remove(f"{scheme}{tmp_path}/there/new/rows", ["a"])
        assert (tmp_path / "there" / "new" / "rows").is_dir()
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_what_holds_something_stays(tmp_path):
    made = not_there(str(tmp_path / "new" / "rows"))
    parts.write_bytes(str(tmp_path / "new"), "a", b"1")
    (tmp_path / "new" / "rows").mkdir()
    remove_empty(made)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a"]
    assert not_there(str(tmp_path)) == not_there("nosuch://store/rows") == ()


def test_a_relative_folder_is_the_one_that_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = not_there("new/rows")
    (tmp_path / "new" / "rows").mkdir(parents=True)
    monkeypatch.chdir("/")
    remove_empty(made)
    assert not list(tmp_path.iterdir())


def test_in_a_store_too(tmp_path, monkeypatch):
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())  # no local one, as a store is none
    monkeypatch.setattr(parts, "file_system", lambda folder: (store, folder.partition("://")[2].partition("?")[0]))
    (tmp_path / "bucket").mkdir()
    made = not_there("s3://bucket/run/rows?region=x")
    assert made == ("s3://bucket/run/rows?region=x", "s3://bucket/run?region=x")
    (tmp_path / "bucket" / "run" / "rows").mkdir(parents=True)
    (tmp_path / "bucket" / "run" / "a").touch()
    remove_empty(made)
    assert [path.name for path in (tmp_path / "bucket" / "run").iterdir()] == ["a"]
    refuse = SimpleNamespace(get_file_info=lambda path: (_ for _ in ()).throw(OSError("no network")))
    monkeypatch.setattr(parts, "file_system", lambda folder: (refuse, folder))
    assert not_there("s3://bucket/run") == ()
    remove_empty(made)  # what cannot be reached stays, without a word


def test_blocks_that_were_kept_leave_no_folder(tmp_path):
    with kept_in(str(tmp_path / "new" / "ranking")) as kept:
        parts.write_bytes(f"{kept.folder}/key", "a", b"1")
        kept.finished.append(f"{kept.folder}/key")
    assert not list(tmp_path.iterdir())
    parts.write_bytes(str(tmp_path / "ranking" / "key"), "a", b"1")
    with pytest.raises(RecallatkError), kept_in(str(tmp_path / "ranking")):
        raise RecallatkError("a task failed")
    assert [path.name for path in tmp_path.rglob("*")] == ["ranking", "key", "a"]
    (tmp_path / "ranking" / "key" / "a").unlink()
    (tmp_path / "ranking" / "key").rmdir()
    with kept_in(str(tmp_path / "ranking")):  # the one of an earlier version
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_that_another_command_removes_is_made_again(tmp_path, monkeypatch):
    class Removed(fs.LocalFileSystem):
        def create_dir(self, path, *, recursive):
            super().create_dir(path, recursive=recursive)
            remove_empty(made)
            made.clear()

    made = [*not_there(str(tmp_path / "new" / "rows"))]
    monkeypatch.setattr(parts, "file_system", lambda folder: (Removed(), folder))
    parts.write_bytes(str(tmp_path / "new" / "rows"), "a", b"1")
    assert [path.name for path in (tmp_path / "new" / "rows").iterdir()] == ["a"]
    assert not made


def test_rows_for_one_time_that_cannot_be_removed_are_no_traceback(tmp_path, capsys):
    def busy(folder):
        raise OSError(39, "Directory not empty", folder)

    made = (tmp_path / "rows", tmp_path / "new")
    made[1].mkdir()
    owner = elsewhere._Owner(busy, *map(str, made[:1]), tuple(map(str, made)))
    del owner
    assert capsys.readouterr().err == ""
    assert not list(tmp_path.iterdir())
