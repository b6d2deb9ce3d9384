"""Texts as one side: encoded once each, kept in the cache, refused where no tower takes them; views of one encoding."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import recallatk
from recallatk import EmbeddingSet, ImageSet, encode_dataset, evaluate_encoded, evaluate_views, load_encoder
from recallatk.cache import Cache
from recallatk.encoding import encode
from recallatk.report import Provenance
from recallatk.run import BOTH_DIRECTIONS, EncodedDataset, view_of
from recallatk.types import Dataset, Qrels, RecallatkError, TextEncoder, View
from two_towers import TwoTowers

TEXTS = ("1.0 0.0", "0.0 1.0", "1.0 0.0", "0.5 0.6")


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    for name, colour in (("a", (255, 0, 0)), ("b", (0, 255, 0))):
        Image.new("RGB", (8, 8), colour).save(tmp_path / f"{name}.png")
    texts = ImageSet(TEXTS, ("a#0", "b#0", "a#1", "b#1"), ("a", "b", "a", "b"), kind="text")
    images = ImageSet((tmp_path / "a.png", tmp_path / "b.png"), ("a.png", "b.png"), ("a", "b"))
    return Dataset(texts, images, tmp_path, views=BOTH_DIRECTIONS)


def test_each_distinct_text_is_encoded_once_in_batches(dataset: Dataset) -> None:
    encoder, done = TwoTowers(), []
    assert dataset.gallery is not None
    encoded = encode([dataset.query, dataset.gallery], encoder, batch=2, on_progress=lambda *now: done.append(now))
    assert encoder.seen == [TEXTS[0], TEXTS[1], TEXTS[3]]
    assert encoded.sets[0].embeddings.tolist() == [[1, 0], [0, 1], [1, 0], [0.5, 0.6]]
    assert encoded.sets[0].content == tuple(hashlib.sha256(text.encode()).hexdigest() for text in TEXTS)
    assert (encoded.distinct, encoded.cached) == (5, 0)
    assert done == [(2, 6), (4, 6), (6, 6)]


def test_the_order_of_the_sides_is_free(dataset: Dataset) -> None:
    assert dataset.gallery is not None
    back, there = (encode(sides, TwoTowers()).sets for sides in (
        [dataset.gallery, dataset.query], [dataset.query, dataset.gallery]
    ))  # fmt: skip
    assert np.array_equal(back[0].embeddings, there[1].embeddings)
    assert np.array_equal(back[1].embeddings, there[0].embeddings)
    assert back[0].name == "query"


def test_the_cache_keeps_texts_apart_from_images(dataset: Dataset, tmp_path: Path) -> None:
    cache, encoder = Cache(tmp_path / "cache"), TwoTowers()
    first = encode_dataset(dataset, encoder, cache=cache)
    again = encode_dataset(dataset, encoder, cache=cache)
    assert encoder.seen == [TEXTS[0], TEXTS[1], TEXTS[3]]
    assert "encoded 0 of 5 distinct images and texts; 5 came from the cache" in again.provenance.notes
    assert np.array_equal(first.query.embeddings, again.query.embeddings)
    encoder.text_preprocessing = {"tokenizer": "another"}
    encode_dataset(dataset, encoder, cache=cache)
    assert len(encoder.seen) == 6, "another tokenizer is another text"
    alone = dataclasses.replace(dataset, query=dataset.gallery or dataset.query, views={})
    images = encode_dataset(alone, encoder, cache=cache)
    assert any("2 came from the cache" in note for note in images.provenance.notes)
    assert images.provenance.preprocessing == {"size": None}, "of images alone nothing is said of texts"


def test_what_was_done_to_texts_is_in_the_signature(dataset: Dataset) -> None:
    one, other = TwoTowers(), TwoTowers()
    other.text_preprocessing = {"tokenizer": "another"}
    parts = [evaluate_encoded(encode_dataset(dataset, encoder)).signature for encoder in (one, other)]
    assert parts[0].parts["img"] == parts[1].parts["img"] != "na"
    assert parts[0].parts["pre"] != parts[1].parts["pre"]


def test_an_encoder_of_one_s_own_is_named_with_its_second_tower(dataset: Dataset) -> None:
    encoder = load_encoder("two_towers:TwoTowers")
    assert isinstance(encoder, TextEncoder)
    assert not isinstance(load_encoder("pixels"), TextEncoder)
    reports = evaluate_views(encode_dataset(dataset, encoder))
    assert {name: report["recall@1"] for name, report in reports.items()} == {
        "query-to-gallery": 1.0,
        "gallery-to-query": 1.0,
    }
    assert reports["gallery-to-query"].num_gallery == 4


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ((*TEXTS[:3], 7), "b#1: int is no text"),
        ((*TEXTS[:3], "0.0 0.0"), "b#1: its embedding .* leave such texts out"),
    ],
)
def test_what_cannot_be_used_is_named(dataset: Dataset, texts: tuple[object, ...], said: str) -> None:
    wrong = dataclasses.replace(dataset.query, elements=texts)
    with pytest.raises(RecallatkError, match=said):
        encode([wrong], TwoTowers())


def test_a_text_without_direction_can_be_left_out(dataset: Dataset) -> None:
    wrong = dataclasses.replace(dataset.query, elements=(*TEXTS[:3], "0.0 0.0"))
    encoded = encode([wrong], TwoTowers(), on_error="skip")
    assert len(encoded.sets[0]) == 3
    assert encoded.skipped[0].item == "b#1"


def test_a_tower_that_gives_too_few_rows_is_named(dataset: Dataset) -> None:
    class Short(TwoTowers):
        def encode_texts(self, batch: list[str]) -> np.ndarray:
            return super().encode_texts(batch)[1:]

    with pytest.raises(RecallatkError, match=r"for a batch of 3 texts .*one embedding row a text"):
        encode([dataset.query], Short())


def encoded_pair(**more: object) -> EncodedDataset:
    query = EmbeddingSet(np.eye(2), ["a", "b"], ids=["q1", "q2"], groups={"fold": ["1", "2"]}, name="query (q.npz)")
    gallery = EmbeddingSet(np.eye(2), ["a", "b"], ids=["g1", "g2"], groups={"fold": ["1", "2"]}, name="gallery (g.npz)")
    data = {"read": {"query": "q.npz", "gallery": "g.npz", "query_labels": "q.txt"}}
    return EncodedDataset(query, gallery, Provenance(data=data), **more)  # type: ignore[arg-type]


def test_a_view_says_how_it_alone_is_read_again() -> None:
    encoded = encoded_pair(views={"back": View(swapped=True, fold="2")})
    back = view_of(encoded, "back")
    assert back.query.ids == ("g2",)
    assert back.query.name == "query (g.npz)"
    read = {"query": "g.npz", "gallery": "q.npz", "gallery_labels": "q.txt", "fold": "2"}
    assert back.provenance.data == {"read": read, "files": ["g.npz", "q.npz"]}


def test_views_that_are_not_there_are_refused() -> None:
    with pytest.raises(RecallatkError, match="one evaluation only"):
        evaluate_views(encoded_pair())
    with pytest.raises(RecallatkError, match="needs a gallery of its own"):
        view_of(dataclasses.replace(encoded_pair(views=BOTH_DIRECTIONS), gallery=None), "gallery-to-query")
    judged = Qrels(["q1"], ["g1"], np.array([1]))
    with pytest.raises(RecallatkError, match="judged pairs have one direction"):
        view_of(encoded_pair(views=BOTH_DIRECTIONS, qrels=judged), "gallery-to-query")
    with pytest.raises(RecallatkError, match=r"query \(q.npz\): no row of the fold '3'; there are 1, 2"):
        view_of(encoded_pair(views={"third": View(fold="3")}), "third")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, ...]:
    np.savez(tmp_path / "texts.npz", embeddings=[[0.9, 0.1], [0.2, 0.8], [0.6, 0.5], [0.3, 0.7]], labels=list("0011"))
    np.savez(tmp_path / "images.npz", embeddings=np.eye(2), labels=list("01"))
    return ("--query", f"{tmp_path}/texts.npz", "--gallery", f"{tmp_path}/images.npz")


def test_both_directions_of_embeddings(files: tuple[str, ...], tmp_path: Path) -> None:
    done = recallatk("eval", *files, "--both-directions", "-k", "1", "-o", tmp_path / "run")
    assert done.code == 0, done.err
    assert [line.split()[1] for line in done.out.splitlines()[2:4]] == ["0.500000", "0.500000"]
    assert recallatk("verify", tmp_path / "run" / "gallery-to-query").out.startswith("identical")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--both-directions",), "for embeddings of two sides"),
        (("--query", "a.npy", "--both-directions"), "for embeddings of two sides"),
        (("--query", "a.npy", "--gallery", "b.npy", "--both-directions", "--layout", "coco"), "the part says it"),
        (("--query", "a.npy", "--gallery", "b.npy", "--both-directions", "--qrels", "q"), "have one direction"),
    ],
)
def test_directions_that_there_are_not_are_usage(argv: tuple[str, ...], said: str) -> None:
    done = recallatk("eval", *argv)
    assert done.code == 2
    assert said in done.err


def test_embeddings_without_folds_are_told_what_they_lack(files: tuple[str, ...]) -> None:
    done = recallatk("eval", *files, "--layout", "coco", "--part", "1k", "--counts", "any")
    assert done.code == 3
    assert "there is no column `fold`" in done.err
