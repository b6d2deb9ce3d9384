"""How encoding is cut for a cluster, without one: what tables and parts give are the rows of one machine."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from PIL import Image

from other_engine import AnyOrder, other_pipeline
from recallatk.cluster import Job, Place, encode_on
from recallatk.cluster import encoding as cluster_encoding
from recallatk.embeddings import load_embeddings
from recallatk.encoding import encode
from recallatk.images import DEFAULT_POLICY
from recallatk.types import ImageSet, RecallatkError


def corners(images):
    return np.stack([np.asarray(image.resize((2, 2)), np.float32).reshape(-1) for image in images])


def pictures(folder, n, rng):
    """The paths of so many small images of noise, of which no two are alike."""
    paths = [folder / f"{number}.png" for number in range(n)]
    for path in paths:
        Image.fromarray(rng.integers(0, 256, (5, 4, 3), np.uint8)).save(path)
    return paths


def test_another_pipeline_gives_the_rows_of_one_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_encoding, "encoded_rows", other_pipeline)
    monkeypatch.setattr(cluster_encoding, "PART_ROWS", 8)
    rng = np.random.default_rng(3)
    paths = pictures(tmp_path, 40, rng)
    paths[9].write_bytes(paths[1].read_bytes())  # a copy, which is in another part
    paths[20].write_bytes(b"no image")
    sets = [ImageSet(some, [path.name for path in some], ["a"] * len(some)) for some in (paths[:15], paths[15:])]
    job = Job(lambda: corners, {}, None, 3, True, DEFAULT_POLICY, "skip")
    here = encode(sets, corners, on_error="skip")
    told = []
    place = Place(str(tmp_path / "rows"), "key", {})
    there = encode_on(AnyOrder(rng), sets, job, place, on_progress=lambda *steps: told.append(steps))
    for one, other in zip(here.sets, there.sets, strict=True):
        np.testing.assert_array_equal(np.asarray(other.embeddings), one.embeddings)
        assert (other.ids, other.content) == (one.ids, one.content)
    assert [item.item for item in there.skipped] == [item.item for item in here.skipped]
    assert there.distinct == here.distinct
    assert told[-1] == (40, 40)


def test_what_was_skipped_before_encoding_is_no_image_of_the_other_side(tmp_path, monkeypatch):
    """Equal ids of queries and gallery are two images in some benchmarks, and parts say what the data set lacks."""
    monkeypatch.setattr(cluster_encoding, "encoded_rows", other_pipeline)
    rng = np.random.default_rng(4)
    paths = pictures(tmp_path, 4, rng)
    paths[3].write_bytes(b"no image")
    sets = [ImageSet(paths[:1], ["b"], ["x"]), ImageSet(paths[1:], ["a", "b", "c"], ["x", "x", "x"])]
    job = Job(lambda: corners, {}, None, 3, True, DEFAULT_POLICY, "skip")
    lacks = [{"item": "a", "reason": "no image among the queries"}]
    place = Place(str(tmp_path / "rows"), "key", {"skipped": lacks})
    expected = encode_on(AnyOrder(rng), sets, job, place)
    (tmp_path / "rows" / "query" / "part-000000.parquet").unlink()
    for encoded in (1, 0):
        found = encode_on(AnyOrder(rng), sets, job, place)
        assert [side.ids for side in found.sets] == [("b",), ("a", "b")]
        assert (found.distinct, found.cached, found.skipped) == (encoded, 3 - encoded, expected.skipped)


def test_warnings_of_an_interrupted_run_are_told_whichever_part_has_them(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_encoding, "encoded_rows", other_pipeline)
    monkeypatch.setattr(cluster_encoding, "PART_ROWS", 2)
    rng = np.random.default_rng(5)
    paths = pictures(tmp_path, 4, rng)
    sets = [ImageSet(paths, [path.name for path in paths], ["a"] * 4)]
    job = Job(lambda: corners, {}, None, 3, True, DEFAULT_POLICY, "error")
    encode_on(AnyOrder(rng), sets, job, Place(str(tmp_path / "rows"), "key", {}))  # as earlier versions wrote it
    (tmp_path / "rows" / "query" / "part-000001.parquet").unlink()
    encode_on(AnyOrder(rng), sets, job, Place(str(tmp_path / "rows"), "key", {"warnings": ["many copies"]}))
    assert load_embeddings(tmp_path / "rows" / "query").metadata["warnings"] == ["many copies"]


def test_a_command_that_fails_beside_another_does_not_take_its_folder(tmp_path):
    place = Place(str(tmp_path / "rows"), "key", {})
    with place.claimed():
        with contextlib.suppress(RecallatkError), place.claimed():
            raise RecallatkError("an image cannot be read")
        (tmp_path / "rows" / "query").mkdir(parents=True)
        (tmp_path / "rows" / "query" / "part-000000.parquet").touch()
    place.claim()
    with pytest.raises(RecallatkError, match="holds rows of another data set"):
        Place(place.folder, "another", {}).claim()
