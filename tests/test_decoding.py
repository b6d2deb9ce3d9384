"""Images ahead of the encoder: in order, not too far, and nothing of it changes a row."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from recallatk import ImageSet, RecallatkError, encode, load_encoder
from recallatk.decoding import BATCHES_AHEAD, BYTES_AHEAD, Ahead
from recallatk.images import DEFAULT_POLICY, decode, pillow_warnings_ignored

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"


def image_set(paths: list[Path]) -> ImageSet:
    return ImageSet(tuple(paths), tuple(f"{row}-{path.name}" for row, path in enumerate(paths)), ("x",) * len(paths))


def mean_colour(batch: list[Any]) -> np.ndarray:
    return np.stack([np.asarray(image, dtype=np.float64).mean((0, 1)) for image in batch])


@pytest.fixture(scope="module")
def photos() -> list[Path]:
    return sorted(PHOTOS.rglob("*.webp"))[:40]


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("batch", [1, 5, 32])
def test_rows_are_those_of_a_plain_loop_for_any_number_of_threads(photos: list[Path], workers: int, batch: int) -> None:
    plain = mean_colour([decode(path.read_bytes(), name=path.name).image for path in photos])
    (side,) = encode([image_set(photos)], mean_colour, batch=batch, workers=workers).sets
    assert np.array_equal(side.embeddings, plain)


def test_lite0_gives_the_same_bits_in_two_steps_alone_and_in_any_batch(photos: list[Path]) -> None:
    pytest.importorskip("onnxruntime")
    encoder = load_encoder("lite0")
    alone = np.concatenate([encoder([decode(path.read_bytes(), name=path.name).image]) for path in photos[:12]])
    for batch in (1, 5, 12):
        (side,) = encode([image_set(photos[:12])], encoder, batch=batch).sets
        assert np.array_equal(side.embeddings, alone)


class InTwoSteps:
    """Counts what happens where."""

    def __init__(self, patience: float = 0.0) -> None:
        self.patience = patience
        self.threads: set[int] = set()
        self.prepared = self.taken = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, batch: list[Any]) -> Any:
        return self.encode_prepared([self.prepare(image) for image in batch])

    def prepare(self, image: Any) -> Any:
        with self.lock:
            self.threads.add(threading.get_ident())
            self.prepared += 1
            self.most = max(self.most, self.prepared - self.taken)
        return np.asarray(image, dtype=np.float64).mean((0, 1))

    def encode_prepared(self, batch: list[Any]) -> Any:
        time.sleep(0.02)
        end = time.monotonic() + self.patience
        while self.most <= len(batch) and time.monotonic() < end:
            time.sleep(0.001)
        self.taken += len(batch)
        return np.stack(batch)


def test_an_encoders_own_preparation_runs_beside_it_and_not_too_far_ahead(photos: list[Path]) -> None:
    encoder = InTwoSteps(patience=30.0)
    (side,) = encode([image_set(photos)], encoder, batch=4, workers=2).sets
    assert np.array_equal(side.embeddings, mean_colour([Image.open(path).convert("RGB") for path in photos]))
    assert threading.get_ident() not in encoder.threads
    assert encoder.most > 4, "it did work ahead"
    assert encoder.most <= BATCHES_AHEAD * 4 + 2 + 4, "what waits, and the batch that is being made"


def test_what_preparation_raises_keeps_its_kind_and_names_the_image(photos: list[Path]) -> None:
    class Breaks(InTwoSteps):
        def prepare(self, image: Any) -> Any:
            raise ZeroDivisionError("its own")

    with pytest.raises(ZeroDivisionError, match="its own") as caught:
        encode([image_set(photos)], Breaks())
    assert caught.value.__notes__ == [f"recallatk called the encoder's prepare with the image 0-{photos[0].name}"]


def test_elements_that_are_handed_over_as_they_are_go_through_the_encoder_in_one_step() -> None:
    encoder = InTwoSteps()
    images = [np.full((2, 2, 3), n) for n in (1, 2, 3)]
    (side,) = encode([ImageSet(tuple(images), tuple("abc"), tuple("abc"))], encoder, decode=False).sets
    assert side.embeddings[:, 0].tolist() == [1, 2, 3]
    assert encoder.threads == {threading.get_ident()}


def test_large_images_are_not_decoded_far_ahead() -> None:
    with Ahead(True, DEFAULT_POLICY, None, None, workers=2, batch=32) as ahead:
        assert ahead._window() == 3, "nobody knows yet how large they are"
        for size, window in ((100 * 10**6, 3), (10**6, 3), (10**6, 4)):
            ahead._size = max(size, 0.8 * ahead._size)
            assert ahead._window() == window
        for _ in range(60):
            ahead._size = max(10**5, 0.8 * ahead._size)
        assert ahead._window() == BATCHES_AHEAD * 32 + 2
        assert ahead._window() * 10**5 < BYTES_AHEAD


@pytest.mark.parametrize("workers", [1, 4])
def test_the_first_bad_image_is_named_however_many_threads_find_others(tmp_path: Path, workers: int) -> None:
    paths = []
    for number in range(60):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", (4, 4), (number, 9, 9)).save(paths[-1])
    Image.new("RGB", (2000, 2000), (1, 2, 3)).save(paths[20])
    paths[20].write_bytes(paths[20].read_bytes()[:-200])  # takes longer to fail than the others
    paths[21].write_bytes(b"no image")
    paths[25].unlink()
    for _ in range(3):
        with pytest.raises(RecallatkError, match=r"^20-20\.png"):
            encode([image_set(paths)], mean_colour, workers=workers)


def test_an_error_does_not_wait_for_what_has_not_begun(photos: list[Path]) -> None:
    before = threading.active_count()

    def breaks(batch: list[Any]) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode([image_set(photos)], breaks, batch=2)
    assert threading.active_count() == before


def test_no_thread_is_no_choice(photos: list[Path]) -> None:
    with pytest.raises(RecallatkError, match="workers=0"):
        encode([image_set(photos)], mean_colour, workers=0)


def test_filters_for_warnings_are_put_back_after_threads_overlapped() -> None:
    before = list(warnings.filters)
    first, second = pillow_warnings_ignored(), pillow_warnings_ignored()
    first.__enter__()
    inside = list(warnings.filters)
    second.__enter__()
    first.__exit__(None, None, None)
    assert warnings.filters == inside, "the second is still at work"
    second.__exit__(None, None, None)
    assert warnings.filters == before != inside
