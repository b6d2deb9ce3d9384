"""A sample of a data set: its size, its spread over the labels, and that it does not depend on chance."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest

from recallatk.datasets import sample_dataset
from recallatk.types import Dataset, ImageSet, RecallatkError


def side(name: str, labels: list[str] | list[tuple[str, ...]]) -> ImageSet:
    ids = tuple(f"{name}/{row:03}.png" for row in range(len(labels)))
    return ImageSet(elements=ids, ids=ids, labels=tuple(labels))


def dataset(query: ImageSet, gallery: ImageSet | None = None) -> Dataset:
    return Dataset(query=query, gallery=gallery, root=Path(), warnings=("before",))


def test_leave_one_out_takes_two_images_of_a_label_before_it_takes_a_third() -> None:
    data = dataset(side("all", [letter for letter in "abcde" for _ in range(10)]))
    assert collections.Counter(sample_dataset(data, 10).query.labels) == dict.fromkeys("abcde", 2)
    few = collections.Counter(sample_dataset(data, 6).query.labels)
    assert sorted(few.values()) == [2, 2, 2]
    assert sorted(collections.Counter(sample_dataset(data, 15).query.labels).values()) == [2, 2, 3, 4, 4]


def test_two_sides_are_drawn_from_the_same_labels() -> None:
    labels = [f"{number:02}" for number in range(40) for _ in range(3)]
    sample = sample_dataset(dataset(side("query", labels), side("gallery", labels)), 15, seed=3)
    assert sample.gallery is not None
    assert len(set(sample.query.labels)) == 15
    assert set(sample.query.labels) == set(sample.gallery.labels)


def test_a_side_within_the_limit_stays_whole_and_labels_of_one_side_take_part() -> None:
    sample = sample_dataset(dataset(side("query", ["a", "b"]), side("gallery", list("aaabbbccc"))), 6)
    assert sample.gallery is not None
    assert sample.query.labels == ("a", "b")
    assert collections.Counter(sample.gallery.labels) == {"a": 2, "b": 2, "c": 2}


def test_the_draw_depends_on_ids_and_seed_and_not_on_row_order_or_global_state() -> None:
    data = dataset(side("all", [letter for letter in "abcde" for _ in range(10)]))
    first = sample_dataset(data, 12, seed=1)
    np.random.seed(7)  # noqa: NPY002 - the global state is what must not matter
    rows = np.random.default_rng(5).permutation(50).tolist()
    shuffled = dataset(data.query.take(rows))
    assert sample_dataset(shuffled, 12, seed=1).query.ids == first.query.ids
    assert list(first.query.ids) == sorted(first.query.ids)
    assert sample_dataset(data, 12, seed=2).query.ids != first.query.ids


def test_a_sample_says_so_and_keeps_earlier_warnings() -> None:
    big = side("all", ["a"] * 1200)
    assert sample_dataset(dataset(big), 5).warnings == (
        "before",
        "a sample: 5 of 1,200 images (seed 0); not comparable with a full evaluation",
    )
    assert sample_dataset(dataset(side("query", ["a"] * 3), big), 5, seed=4).warnings[1] == (
        "a sample: 3 of 3 queries and 5 of 1,200 gallery images (seed 4); not comparable with a full evaluation"
    )


def test_a_limit_that_nothing_exceeds_changes_nothing() -> None:
    data = dataset(side("query", ["a"] * 4), side("gallery", ["a"] * 2))
    assert sample_dataset(data, 4) is data


def test_of_several_labels_the_first_counts_and_none_is_a_label_of_its_own() -> None:
    data = dataset(side("all", [("a", "b")] * 5 + [("b",)] * 5 + [()] * 5))
    counts = collections.Counter(sample_dataset(data, 6).query.labels)
    assert counts == {("a", "b"): 2, ("b",): 2, (): 2}


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1, "seed": -1}])
def test_a_limit_or_seed_out_of_range_is_an_error(options: dict[str, int]) -> None:
    with pytest.raises(RecallatkError, match="at least"):
        sample_dataset(dataset(side("all", ["a", "b"])), **options)


def test_labels_under_which_nothing_can_be_found_come_last() -> None:
    labels = [f"single{n}" for n in range(20)] + [letter for letter in "abcde" for _ in range(2)]
    assert set(sample_dataset(dataset(side("all", labels)), 10).query.labels) == set("abcde")
    both = dataset(side("query", [*"abcxyz"]), side("gallery", [*"abcuvw"]))
    sample = sample_dataset(both, 3)
    assert sample.gallery is not None
    assert set(sample.query.labels) == set(sample.gallery.labels) == set("abc")
