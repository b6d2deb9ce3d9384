"""From images to embeddings: one encoding for each distinct image, and labels that never shift against rows."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from recallatk import EmbeddingSet, ImageSet, RecallatkError, encode, encode_all
from recallatk.cache import CachedRow

BATCHES = (1, 2, 3, 5, 32)


def colour_of(number: int) -> tuple[int, int, int]:
    return (10 + 20 * number, 250 - 20 * number, 7 * number)


def first_pixel(image: Any) -> list[float]:
    """What `Recorder` makes of an image, so that a row can be traced to its image."""
    return [float(channel) for channel in np.asarray(image)[0, 0]]


class Recorder:
    """A real encoder that keeps what it was called with."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []

    def __call__(self, batch: list[Any]) -> np.ndarray:
        self.batches.append([first_pixel(image) for image in batch])
        return np.array(self.batches[-1])

    @property
    def seen(self) -> list[list[float]]:
        return list(itertools.chain.from_iterable(self.batches))


def save(path: Path, number: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), colour_of(number)).save(path)
    return path


def image_set(paths: Sequence[Path], prefix: str = "") -> ImageSet:
    """The label of an image is the name of its file, before the first "-"."""
    return ImageSet(
        elements=tuple(paths),
        ids=tuple(f"{prefix}{path.name}" for path in paths),
        labels=tuple(path.stem.partition("-")[0] for path in paths),
    )


def assert_aligned(embeddings: EmbeddingSet) -> None:
    """Every row is the embedding of the image that its label and id say."""
    for row, label, name in zip(embeddings.embeddings, embeddings.labels, embeddings.row_ids, strict=True):
        assert row.tolist() == list(colour_of(int(label))), name
        assert name.rpartition("/")[2].startswith(f"{label}")


# --- encode_all ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
def test_encode_all_gives_element_i_in_row_i_for_every_batch_size(batch: int) -> None:
    lengths = []

    def encoder(elements: list[int]) -> np.ndarray:
        lengths.append(len(elements))
        return np.array([[element, 1] for element in elements])

    assert encode_all(list(range(7)), encoder, batch=batch)[:, 0].tolist() == list(range(7))
    assert lengths == [batch] * (7 // batch) + ([7 % batch] if 7 % batch else [])


def test_encode_all_hands_elements_over_as_they_are() -> None:
    elements = ["a.png", Path("b.png"), {"any": "thing"}, 3]
    seen: list[Any] = []
    encode_all(elements, lambda batch: seen.extend(batch) or np.ones((len(batch), 2)), batch=3)
    assert all(one is other for one, other in zip(seen, elements, strict=True))


def test_encode_all_takes_arrays_and_keeps_the_dtype_of_the_encoder() -> None:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2)
    rows = encode_all(images, lambda batch: np.stack(batch).reshape(len(batch), -1).astype(np.float16), batch=2)
    assert rows.dtype == np.float16
    assert rows.tolist() == images.reshape(3, 4).tolist()


@pytest.mark.parametrize("batch", BATCHES)
def test_an_encoder_may_use_its_output_buffer_again(batch: int) -> None:
    buffer = np.zeros((32, 2))

    def encoder(elements: list[int]) -> np.ndarray:
        buffer[: len(elements)] = [[element, 1] for element in elements]
        return buffer[: len(elements)]

    assert encode_all(list(range(7)), encoder, batch=batch)[:, 0].tolist() == list(range(7))


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_of_nothing_is_an_error(batch: int) -> None:
    with pytest.raises(RecallatkError, match=f"batch={batch}"):
        encode_all(["a"], Recorder(), batch=batch)
    with pytest.raises(RecallatkError, match=f"batch={batch}"):
        encode([image_set([Path("0.png")])], Recorder(), batch=batch)


def test_nothing_to_encode_is_an_error() -> None:
    with pytest.raises(RecallatkError, match="no images"):
        encode_all([], Recorder())
    with pytest.raises(RecallatkError, match="images"):
        encode([ImageSet((), (), ())], Recorder())


# --- Each distinct image once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", BATCHES)
def test_each_distinct_image_is_encoded_once_across_query_and_gallery(tmp_path: Path, batch: int) -> None:
    query = [save(tmp_path / "q" / f"{n}-{copy}.png", n) for n in range(3) for copy in "ab"]
    gallery = [save(tmp_path / "g" / f"{n}-{copy}.png", n) for n in (4, 2, 0, 5) for copy in "ab"]
    link = tmp_path / "g" / "1-link.png"
    link.symlink_to(query[2])
    encoder = Recorder()
    encoded = encode([image_set(query, "q/"), image_set([*gallery, link], "g/")], encoder, batch=batch)
    assert sorted(map(tuple, encoder.seen)) == sorted(colour_of(n) for n in (0, 1, 2, 4, 5))
    assert encoded.distinct == 5
    assert [len(seen) for seen in encoder.batches] == [batch] * (5 // batch) + ([5 % batch] if 5 % batch else [])
    assert [len(side) for side in encoded.sets] == [6, 9]
    for side in encoded.sets:
        assert_aligned(side)


def test_content_is_the_hash_of_the_files_bytes(tmp_path: Path) -> None:
    paths = [save(tmp_path / f"{n}.png", n) for n in range(2)]
    (side,) = encode([image_set(paths)], Recorder()).sets
    assert side.content == tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths)


def test_objects_are_the_same_image_if_they_are_one_object_or_equal_pixels() -> None:
    one, twin, other = (np.full((2, 2, 3), value, dtype=np.uint8) for value in (9, 9, 8))
    encoder = Recorder()
    images = ImageSet((one, one, twin, other), tuple("abcd"), tuple("wxyz"))
    (side,) = encode([images], encoder, decode=False).sets
    assert len(encoder.seen) == 2
    assert side.embeddings[:, 0].tolist() == [9, 9, 9, 8]


def with_palette(colour: tuple[int, int, int]) -> Image.Image:
    image = Image.new("P", (2, 2), 0)
    image.putpalette([*colour, *[0] * 765])
    return image


def turned(orientation: int) -> Image.Image:
    image = Image.new("RGB", (2, 2))
    image.putdata([colour_of(n) for n in range(4)])
    image.getexif()[0x0112] = orientation
    return image


@pytest.mark.parametrize(
    ("images", "look"),
    [
        ([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2, 3), np.int8)], lambda image: [1, image.dtype == np.int8]),
        ([np.ones((2, 3, 1)), np.ones((3, 2, 1))], lambda image: image.shape),
        ([np.ones(2, "<f4"), np.ones(2, "<f4").byteswap()], lambda image: [1, image[0]]),
        ([Image.new("RGB", (2, 3)), Image.new("RGB", (3, 2))], lambda image: image.size),
        ([Image.new("L", (3, 2)), Image.new("RGB", (1, 2))], lambda image: [1, len(image.mode)]),
        ([with_palette((200, 9, 9)), with_palette((9, 9, 200))], lambda image: first_pixel(image.convert("RGB"))),
        ([turned(1), turned(3)], lambda image: first_pixel(ImageOps.exif_transpose(image))),
    ],
    ids=["dtype", "shape", "values", "size", "mode", "palette", "EXIF orientation"],
)
def test_images_that_differ_in_anything_are_not_the_same_image(images: list[Any], look: Callable[[Any], Any]) -> None:
    (side,) = encode(
        [ImageSet(tuple(images), ("a", "b"), ("a", "b"))],
        lambda batch: np.array([look(image) for image in batch], dtype=float),
        decode=False,
    ).sets
    assert side.embeddings.tolist() == [[float(x) for x in look(image)] for image in images]
    assert side.embeddings[0].tolist() != side.embeddings[1].tolist()


def test_text_is_handed_over_as_text_and_counted_by_value() -> None:
    seen: list[Any] = []
    texts = ImageSet(("a cat", "a dog", "a cat"), tuple("abc"), tuple("xyx"))
    (side,) = encode(
        [texts], lambda batch: seen.extend(batch) or np.array([[len(text), ord(text[2])] for text in batch]),
        decode=False,
    ).sets  # fmt: skip
    assert seen == ["a cat", "a dog"]
    assert side.embeddings[:, 1].tolist() == [99, 100, 99]
    assert side.content is None


def test_text_may_be_longer_than_any_file_name() -> None:
    (side,) = encode(
        [ImageSet(("long " * 2000, "short"), ("a", "b"), ("x", "y"))],
        lambda batch: np.array([[len(text), 1] for text in batch]),
        decode=False,
    ).sets
    assert side.embeddings[:, 0].tolist() == [10000, 5]


def test_more_sets_than_two_are_all_encoded_or_refused(tmp_path: Path) -> None:
    sets = [image_set([save(tmp_path / f"{n}.png", n)], f"{n}/") for n in range(3)]
    try:
        encoded = encode(sets, Recorder())
    except RecallatkError:
        return
    assert len(encoded.sets) == 3


# --- What encoders do wrong ------------------------------------------------------------------------------------------


@pytest.fixture
def seven(tmp_path: Path) -> list[Path]:
    return [save(tmp_path / f"{n}.png", n) for n in range(7)]


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (lambda batch: np.ones((len(batch) - 1, 3)), ["(6, 3)", "7 images", "0.png", "(7, d)"]),
        (lambda batch: np.ones((len(batch) + 1, 3)), ["(8, 3)", "7 images"]),
        (lambda batch: np.ones(3), ["(3,)", "7 images", "an encoder of one image"]),
        (lambda batch: np.ones((len(batch), 2, 2)), ["(7, 2, 2)", "an encoder of one image"]),
        (lambda batch: np.float64(3), ["()", "7 images"]),
        (lambda batch: None, ["0.png", "not numeric"]),
        (lambda batch: ["text"] * len(batch), ["0.png", "not numeric"]),
        (lambda batch: [[1], [1, 2]] * 3 + [[1]], ["0.png", "different length"]),
        (lambda batch: np.ones((len(batch), 2), dtype=complex), ["complex", "0.png"]),
        (lambda batch: np.ones((len(batch), 0)), ["without a column", "(7, 0)", "7 images"]),
    ],
    ids=[
        "too few",
        "too many",
        "one row",
        "three axes",
        "a number",
        "nothing",
        "text",
        "ragged",
        "complex",
        "no columns",
    ],
)
@pytest.mark.parametrize("on_error", ["error", "skip"])
def test_an_encoder_that_returns_something_else_is_an_error_under_both_policies(
    seven: list[Path], encoder: Any, words: list[str], on_error: Any
) -> None:
    with pytest.raises(RecallatkError) as caught:
        encode([image_set(seven)], encoder, on_error=on_error)
    assert [word for word in words if word not in str(caught.value)] == []
    with pytest.raises(RecallatkError):
        encode_all(seven, encoder)


def test_an_encoder_that_drops_the_axis_of_a_last_batch_of_one_is_an_error(seven: list[Path]) -> None:
    with pytest.raises(RecallatkError, match=r"\(3,\) for a batch of 1 image \(6\.png\)"):
        encode([image_set(seven)], lambda batch: np.squeeze(Recorder()(batch)), batch=3)


def test_an_encoder_whose_width_changes_is_an_error(seven: list[Path]) -> None:
    def encoder(batch: list[Any]) -> np.ndarray:
        return np.ones((len(batch), 1 + len(batch)))

    with pytest.raises(RecallatkError, match=r"2 columns for the batch of 6\.png and 4 before"):
        encode([image_set(seven)], encoder, batch=3)
    with pytest.raises(RecallatkError, match="element 6"):
        encode_all(seven, encoder, batch=3)


def test_a_fault_of_the_encoder_keeps_its_kind_and_gets_a_note(seven: list[Path]) -> None:
    def encoder(batch: list[Any]) -> np.ndarray:
        raise ZeroDivisionError("its own")

    with pytest.raises(ZeroDivisionError, match="its own") as caught:
        encode([image_set(seven)], encoder, batch=3)
    assert caught.value.__notes__ == ["recallatk called the encoder with a list of 3 images, the first of them 0.png"]
    assert caught.traceback[-1].name == "encoder"


def spoilt(value: float, rows: Sequence[int]) -> Callable[[list[Any]], np.ndarray]:
    """A recorder whose embeddings of some images have no direction."""
    bad = [list(colour_of(row)) for row in rows]
    recorder = Recorder()

    def encoder(batch: list[Any]) -> np.ndarray:
        output = recorder(batch)
        output[[row in bad for row in output.tolist()]] = value
        return output

    return encoder


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "not finite"), (0.0, "all zero")])
@pytest.mark.parametrize("rows", [(0,), (6,), (2, 3), (0, 2, 4, 6), range(6)], ids=str)
def test_embeddings_without_a_direction_are_named_or_skipped_and_nothing_shifts(
    seven: list[Path], batch: int, value: float, word: str, rows: Sequence[int]
) -> None:
    with pytest.raises(RecallatkError, match=rf"^{rows[0]}\.png: .*{word}"):
        encode([image_set(seven)], spoilt(value, rows), batch=batch)
    encoded = encode([image_set(seven)], spoilt(value, rows), batch=batch, on_error="skip")
    assert [skipped.item for skipped in encoded.skipped] == [f"{row}.png" for row in rows]
    assert all(word in skipped.reason for skipped in encoded.skipped)
    assert len(encoded.sets[0]) == 7 - len(rows)
    assert_aligned(encoded.sets[0])


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("rows", [(0,), (6,), (2, 3), (0, 2, 4, 6), range(6)], ids=str)
def test_files_that_cannot_be_read_are_named_or_skipped_and_nothing_shifts(
    seven: list[Path], batch: int, rows: Sequence[int]
) -> None:
    for number, row in enumerate(rows):
        if number % 3 == 0:
            seven[row].write_bytes(b"")
        elif number % 3 == 1:
            seven[row].write_bytes(seven[row].read_bytes()[:40])
        else:
            seven[row].unlink()
    with pytest.raises(RecallatkError, match=rf"^{rows[0]}\.png: .*--on-error skip") as caught:
        encode([image_set(seven)], Recorder(), batch=batch)
    assert str(caught.value).count("--on-error skip") == 1
    encoder = Recorder()
    encoded = encode([image_set(seven), image_set(seven[::-1])], encoder, batch=batch, on_error="skip")
    assert len(encoder.seen) == encoded.distinct == 7 - len(rows)
    assert {skipped.item for skipped in encoded.skipped} == {f"{row}.png" for row in rows}
    for side in encoded.sets:
        assert len(side) == 7 - len(rows)
        assert_aligned(side)


def test_every_copy_of_a_bad_image_is_skipped_under_its_own_name(tmp_path: Path) -> None:
    for name in ("q/1-bad.png", "g/2-bad.png", "g/3-bad.png"):
        save(tmp_path / name, 0).write_bytes(b"no image")
    query = [save(tmp_path / "q" / "0.png", 0), tmp_path / "q" / "1-bad.png"]
    gallery = [tmp_path / "g" / "2-bad.png", save(tmp_path / "g" / "4.png", 4), tmp_path / "g" / "3-bad.png"]
    encoded = encode([image_set(query, "q/"), image_set(gallery, "g/")], Recorder(), on_error="skip")
    assert [skipped.item for skipped in encoded.skipped] == ["q/1-bad.png", "g/2-bad.png", "g/3-bad.png"]
    assert all("bad.png" not in skipped.reason for skipped in encoded.skipped)
    for side in encoded.sets:
        assert_aligned(side)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.png").mkdir()
    with pytest.raises(RecallatkError, match=r"^0\.png: cannot be read \(Is a directory\)"):
        encode([image_set([tmp_path / "0.png"])], Recorder())


def test_when_no_image_can_be_used_the_first_reason_is_given(tmp_path: Path) -> None:
    paths = [tmp_path / "0.png", tmp_path / "1.png"]
    with pytest.raises(
        RecallatkError, match=r"no query image could be used: 2 of 2 skipped, e\.g\. 0\.png: cannot be read"
    ):
        encode([image_set(paths)], Recorder(), on_error="skip")


def test_only_files_are_decoded() -> None:
    images = ImageSet((np.zeros((2, 2, 3)),), ("a",), ("a",))
    with pytest.raises(RecallatkError, match="ndarray; use decode=False"):
        encode([images], Recorder())


# --- Along the way ---------------------------------------------------------------------------------------------------


def test_conversions_are_counted_for_each_distinct_image(tmp_path: Path) -> None:
    grey = [tmp_path / name for name in ("1-a.png", "1-b.png", "2.png")]
    for path, shade in zip(grey, (9, 9, 8), strict=True):
        Image.new("L", (4, 4), shade).save(path)
    Image.new("RGBA", (4, 4), (1, 2, 3, 0)).save(tmp_path / "3.png")
    seen: list[str] = []
    encoded = encode(
        [image_set([*grey, tmp_path / "3.png"])],
        lambda batch: seen.extend(image.mode for image in batch) or Recorder()(batch),
    )
    assert encoded.conversions["greyscale converted"] == 2
    assert encoded.conversions["transparency composited on white"] == 1
    assert seen == ["RGB"] * 3


def test_progress_goes_up_to_all_images_of_all_sets(seven: list[Path]) -> None:
    told: list[tuple[int, int]] = []
    encode([image_set(seven), image_set(seven)], Recorder(), batch=4, on_progress=lambda *at: told.append(at))
    assert told == [(4, 14), (8, 14), (12, 14), (14, 14)]


@pytest.mark.parametrize("batch", BATCHES)
def test_a_cache_is_filled_and_read_in_any_mixture(seven: list[Path], batch: int) -> None:
    cache: dict[str, Any] = {}
    encode([image_set(seven[1::2])], Recorder(), batch=batch, cache=cache)
    assert cache.keys() == {hashlib.sha256(path.read_bytes()).hexdigest() for path in seven[1::2]}
    second = Recorder()
    encoded = encode([image_set(seven), image_set(seven[::-1])], second, batch=batch, cache=cache)
    assert sorted(map(tuple, second.seen)) == sorted(colour_of(n) for n in (0, 2, 4, 6))
    assert encoded.distinct == 4
    for side in encoded.sets:
        assert_aligned(side)
    third = Recorder()
    encoded = encode([image_set(seven)], third, batch=batch, cache=cache)
    assert third.batches == []
    assert_aligned(encoded.sets[0])


def test_what_is_cached_holds_no_whole_batch_and_does_not_change_with_it(seven: list[Path]) -> None:
    cache: dict[str, Any] = {}
    (side,) = encode([image_set(seven)], Recorder(), cache=cache).sets
    side.embeddings[:] = -1
    assert all(kept.row.base is None and kept.row.min() >= 0 for kept in cache.values())


def test_a_changed_file_is_not_taken_from_the_cache(tmp_path: Path) -> None:
    cache: dict[str, Any] = {}
    path = save(tmp_path / "0.bmp", 3)
    encode([image_set([path])], Recorder(), cache=cache)
    (side,) = encode([image_set([save(path, 0)])], Recorder(), cache=cache).sets
    assert_aligned(side)


@pytest.mark.parametrize("cached", [0, 6])
def test_a_cache_of_another_width_is_an_error_in_words(seven: list[Path], cached: int) -> None:
    cache = {hashlib.sha256(seven[cached].read_bytes()).hexdigest(): CachedRow(np.ones(5), ())}
    with pytest.raises(RecallatkError, match="5"):
        encode([image_set(seven)], Recorder(), cache=cache)


def test_torch_is_not_needed(tmp_path: Path) -> None:
    save(tmp_path / "a" / "0.png", 0)
    save(tmp_path / "a" / "1.png", 1)
    code = (
        "import sys; sys.modules['torch'] = None; sys.modules['onnxruntime'] = None; import recallatk;"
        "data = recallatk.load_dataset(sys.argv[1]);"
        "print(len(recallatk.encode([data.query], recallatk.load_encoder('pixels')).sets[0]))"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2\n", "")


def test_a_tensor_of_torch_is_an_output_like_any_other(seven: list[Path]) -> None:
    torch = pytest.importorskip("torch")
    encoder = Recorder()
    (side,) = encode([image_set(seven)], lambda batch: torch.tensor(encoder(batch), requires_grad=True)).sets
    assert_aligned(side)
