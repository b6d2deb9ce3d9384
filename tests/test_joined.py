"""Embeddings made elsewhere, with what a data set on disk says of their rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_line import recallatk
from lookalikes import write_picture
from recallatk import (
    EmbeddingSet,
    encode_dataset,
    evaluate_encoded,
    join_dataset,
    load_dataset,
    load_encoded,
    load_encoder,
    save_embeddings,
    verify_run,
)
from recallatk.types import RecallatkError


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for side, shades in {"query": {"a": [10], "b": [130]}, "gallery": {"a": [14, 200], "b": [134]}}.items():
        for label, several in shades.items():
            for shade in several:
                write_picture(tmp_path / "photos" / side / label / f"{shade}.png", shade)
    return tmp_path / "photos"


@pytest.fixture
def encoded(photos: Path):
    return encode_dataset(load_dataset(photos), load_encoder("color-histogram"))


def files(tmp_path: Path, query: EmbeddingSet, gallery: EmbeddingSet) -> list[str]:
    save_embeddings(query, tmp_path / "q.npz")
    save_embeddings(gallery, tmp_path / "g.npz")
    return ["--query", str(tmp_path / "q.npz"), "--gallery", str(tmp_path / "g.npz")]


def bare(rows: EmbeddingSet, *, ids=True, order=None) -> EmbeddingSet:
    """The embeddings and no labels, in another order."""
    order = list(range(len(rows))) if order is None else order
    names = [rows.ids[row] for row in order] if ids else None
    return EmbeddingSet(np.asarray(rows.embeddings)[order], None, ids=names, name=rows.name)


@pytest.mark.parametrize("ids", [True, False])
def test_labels_come_from_the_data_set(photos: Path, encoded, tmp_path: Path, ids: bool):
    order = [2, 0, 1] if ids else None  # without ids the order is all there is
    argv = files(tmp_path, bare(encoded.query, ids=ids), bare(encoded.gallery, ids=ids, order=order))
    result = recallatk("eval", str(photos), *argv, "--output", str(tmp_path / "run"))
    assert result.code == 0, result.err
    expected = evaluate_encoded(encoded)
    assert result.out.splitlines()[4:8] == str(expected).splitlines()[4:8]
    assert ("taken in the order of the data set" in result.err) is not ids
    outcome = verify_run(tmp_path / "run")
    assert outcome.identical, outcome.text()


def test_a_run_that_was_joined_is_not_the_same_after_a_label_changed(photos: Path, encoded, tmp_path: Path):
    argv = files(tmp_path, bare(encoded.query), bare(encoded.gallery))
    assert recallatk("eval", str(photos), *argv, "--output", str(tmp_path / "run")).code == 0
    (photos / "gallery" / "a" / "200.png").rename(photos / "gallery" / "b" / "200.png")
    assert not verify_run(tmp_path / "run").identical


def test_rows_beside_the_data_set_are_left_aside_and_told(photos: Path, encoded):
    more = EmbeddingSet(
        np.vstack([encoded.gallery.embeddings, encoded.gallery.embeddings[:1]]),
        None,
        ids=[*encoded.gallery.ids, "train/x.png"],
    )
    joined = join_dataset(_with(encoded, gallery=more), load_dataset(photos))
    assert joined.gallery.ids == encoded.gallery.ids
    assert joined.gallery.labels == encoded.gallery.labels
    assert any("1 row left aside" in note and "train/x.png" in note for note in joined.provenance.notes)


def test_an_image_without_an_embedding_is_an_error_or_skipped(photos: Path, encoded):
    fewer = bare(encoded.gallery).take([0, 1])
    with pytest.raises(RecallatkError, match=r"no embedding of 'gallery/b/134.png'"):
        join_dataset(_with(encoded, gallery=fewer), load_dataset(photos))
    joined = join_dataset(_with(encoded, gallery=fewer), load_dataset(photos), on_error="skip")
    assert [one.item for one in joined.provenance.skipped] == ["gallery/b/134.png"]


def test_ids_of_another_kind_are_shown(photos: Path, encoded):
    other = EmbeddingSet(encoded.gallery.embeddings, None, ids=["1", "2", "3"])
    with pytest.raises(RecallatkError, match=r"and 2 more images.*its own ids are like '1'"):
        join_dataset(_with(encoded, gallery=other), load_dataset(photos), on_error="skip")


def test_another_number_of_rows_without_ids_is_refused(photos: Path, encoded):
    fewer = EmbeddingSet(encoded.gallery.embeddings[:2], None)
    with pytest.raises(RecallatkError, match="2 rows without ids for 3 images"):
        join_dataset(_with(encoded, gallery=fewer), load_dataset(photos))


def test_sides_must_agree(photos: Path, encoded):
    with pytest.raises(RecallatkError, match="queries and a gallery"):
        join_dataset(_with(encoded, gallery=None), load_dataset(photos))
    with pytest.raises(RecallatkError, match="one set"):
        join_dataset(encoded, load_dataset(photos, layout="classes"))


def _with(encoded, **sides):
    import dataclasses

    return dataclasses.replace(encoded, **sides)


def test_an_encoder_beside_embeddings_is_refused(photos: Path, encoded, tmp_path: Path):
    argv = files(tmp_path, encoded.query, encoded.gallery)
    result = recallatk("eval", str(photos), *argv, "--encoder", "pixels")
    assert (result.code, result.out) == (2, "")
    assert "not both" in result.err


def test_what_files_say_is_read_as_it_was(encoded, tmp_path: Path):
    """Without DATA nothing changes: the labels are those of the files."""
    argv = files(tmp_path, encoded.query, encoded.gallery)
    assert load_encoded(argv[1], argv[3]).query.labels == ("a", "b")
    assert recallatk("eval", *argv).code == 0
