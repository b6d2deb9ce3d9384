"""What can make the number look right and be wrong is said, and nothing else is."""

from __future__ import annotations

import dataclasses
import tracemalloc

import numpy as np
import pytest

from recallatk.evaluation import evaluate_embeddings
from recallatk.evaluation.caveats import find_caveats
from recallatk.report import Provenance
from recallatk.types import EmbeddingSet, EvalProtocol

KS = EvalProtocol(ks=(1,))


def spread(n, *, seed=0, d=8):
    return np.random.default_rng(seed).normal(size=(n, d))


def warnings_of(query, gallery=None, protocol=KS):
    return evaluate_embeddings(query, gallery, protocol=protocol).warnings


def test_an_ordinary_run_warns_of_nothing():
    query = EmbeddingSet(spread(4), list("abab"), ids=list("1234"), content=["q1", "q2", "q3", "q4"])
    gallery = EmbeddingSet(spread(6, seed=1), list("ababab"), ids=list("56789x"), content=[f"g{i}" for i in range(6)])
    assert warnings_of(query, gallery) == ()
    assert warnings_of(gallery) == ()


def test_a_clipped_k_is_said_with_the_smallest_gallery():
    query = EmbeddingSet(spread(3), list("aba"), ids=list("123"))
    gallery = EmbeddingSet(spread(5, seed=1), list("ababa"), ids=list("14567"))
    found = warnings_of(query, gallery, EvalProtocol(ks=(4, 5, 9)))
    assert found == (
        "recall@5: 1 of 3 queries has fewer than 5 gallery items left (as few as 4); all that are left were used",
        "recall@9: 3 of 3 queries have fewer than 9 gallery items left (as few as 4); all that are left were used",
    )


def test_a_query_that_finds_itself_is_said():
    (found,) = warnings_of(EmbeddingSet(spread(4), list("aabb")), None, EvalProtocol(ks=(1,), exclude_self="none"))
    assert "finds itself first" in found


def test_equal_embeddings_without_ids_are_said():
    gallery = EmbeddingSet(spread(6), list("ababab"))
    query = EmbeddingSet(np.vstack([spread(6)[:2], spread(2, seed=1)]).astype(np.float64), list("abab"))
    (found,) = warnings_of(query, gallery)
    assert found.startswith("2 of 4 queries have an embedding equal to one in the gallery, and without ids")
    named = [
        EmbeddingSet(rows.embeddings, rows.labels, ids=[f"{i}" for i in range(len(rows))]) for rows in (query, gallery)
    ]
    assert warnings_of(*named) == ()


@pytest.mark.parametrize("ids", [True, False], ids=["ids", "no-ids"])
def test_identical_bytes_are_said_with_an_example(ids):
    query = EmbeddingSet(
        spread(3), list("aba"), ids=["q1", "q2", "q3"] if ids else None, content=["one", "two", "three"]
    )
    gallery = EmbeddingSet(
        spread(4, seed=1),
        list("abba"),
        ids=["g1", "g2", "g3", "g4"] if ids else None,
        content=["one", "two", "three", "x"],
    )
    (found,) = warnings_of(query, gallery)
    assert found.startswith("3 queries have a duplicate in the gallery")
    assert "1 of them under another label" in found
    assert not ids or "q1 and g1" in found
    assert warnings_of(query, gallery, EvalProtocol(ks=(1,), exclude_self="content")) == ()


def test_identical_bytes_are_found_within_one_set():
    alone = EmbeddingSet(spread(4), list("abab"), ids=list("wxyz"), content=["1", "2", "1", "3"])
    (found,) = warnings_of(alone)
    assert found.startswith("2 queries have a duplicate in the gallery")
    assert "another label" not in found


def test_the_query_itself_is_no_duplicate():
    same = EmbeddingSet(spread(4), list("abab"), ids=list("wxyz"), content=list("1234"))
    other = EmbeddingSet(spread(4), list("abab"), ids=list("wxyz"), content=list("1234"))
    assert warnings_of(same, other) == ()


def test_many_copies_of_one_image_take_no_memory_for_their_pairs():
    n = 800
    alone = EmbeddingSet(spread(n), np.arange(n) // 8, ids=[f"{i}" for i in range(n)], content=["blank"] * n)
    columns = ("n_candidates", "n_positives", "near_above", "negatives_tied", "near_below")
    tracemalloc.start()
    (found,) = find_caveats(alone, None, {column: np.full(n, 10) for column in columns}, np.arange(n), KS, ())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.startswith("800 queries have a duplicate in the gallery")
    assert peak < n * 4000  # 640,000 pairs


def test_made_up_ids_are_no_reason_to_overlook_a_duplicate():
    # Row 0 of the gallery is not row 0 of the queries.
    query = EmbeddingSet(spread(2), list("ab"), content=["one", "two"])
    gallery = EmbeddingSet(spread(3, seed=1), list("aba"), content=["one", "two", "x"])
    for sets in ((query, gallery), (dataclasses.replace(query, ids=list("01")), gallery)):
        (found,) = warnings_of(*sets)
        assert found.startswith("2 queries have a duplicate in the gallery")


def test_the_example_is_the_smallest_pair_of_ids():
    query = EmbeddingSet(spread(2), list("ab"), ids=["q2", "q1"], content=["one", "one"])
    gallery = EmbeddingSet(spread(3, seed=1), list("abb"), ids=["g3", "q1", "g2"], content=["one"] * 3)
    (found,) = warnings_of(query, gallery)
    assert "2 queries have a duplicate" in found
    assert "2 of them under another label" in found
    assert "(e.g. q1 and g2)" in found


def test_a_row_of_several_labels_has_them_in_no_order():
    alone = EmbeddingSet(spread(3), [["a"], ["b", "a"], ["a", "b"]], ids=list("xyz"), content=["one", "two", "two"])
    assert "another label" not in "".join(warnings_of(alone))
    one = EmbeddingSet(spread(2), ["a", ["a"]], ids=list("xy"), content=["one", "one"])
    (found,) = warnings_of(one)
    assert "another label" not in found


def test_bytes_that_are_not_known_are_no_duplicates():
    alone = EmbeddingSet(spread(4), list("abab"), ids=list("wxyz"), content=["", "", "", ""])
    assert warnings_of(alone) == ()


@pytest.mark.parametrize("lengths", [np.ones(6), np.array([1, 3, 0.7, 11, 1e-5, 1e8])])
@pytest.mark.parametrize("noise", [0, 1e-5])
def test_an_encoder_that_collapsed_is_said_even_if_lengths_differ(lengths, noise):
    rows = (np.ones((6, 4)) + noise * spread(6, d=4)) * lengths[:, None]
    (found,) = warnings_of(EmbeddingSet(rows.astype(np.float32), list("aabbcc")))
    assert found == (
        "for 6 of 6 queries every negative is as near as the best positive (within 1e-6), as with an encoder that maps "
        "everything to one point: the number is that of chance"
    )


@pytest.mark.parametrize(("n", "said"), [(3, True), (2, False)])
def test_from_half_of_the_queries_at_one_point_on_it_is_said(n, said):
    gallery = EmbeddingSet([[1.0, 0, 0], [0, 1, 0]], list("ab"))
    level, apart = [1.0, 1.0, 0.5], [1.0, 0.3, 0]  # as near to "a" as to "b"; nearer to "a"
    found = warnings_of(EmbeddingSet([level] * n + [apart] * (6 - n), ["b"] * 6), gallery)
    assert any("one point" in line for line in found) == said


def test_a_gallery_of_positives_only_has_not_collapsed():
    assert warnings_of(EmbeddingSet(spread(4), list("aaaa"))) == ()


def test_equal_positives_are_no_collapse():
    rows = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1]])
    assert warnings_of(EmbeddingSet(rows, list("aabb"))) == ()


def test_orthogonal_rows_are_not_said_to_be_at_one_point():
    # All similarities are 0: chance, but the encoder maps everything to different points.
    (found,) = warnings_of(EmbeddingSet(np.eye(4), list("aabb")))
    assert found.startswith("for 4 of 4 queries every negative is as near as the best positive")
    assert "as with an encoder that maps everything to one point" in found  # a likeness, and not a finding


def test_one_query_is_said_in_the_singular():
    query = EmbeddingSet([[1.0, 0.5]], ["a"], content=["one"])
    gallery = EmbeddingSet([[1.0, 0], [0, 1]], list("ab"), content=["one", "one"])
    assert warnings_of(query, gallery, EvalProtocol(ks=(3,))) == (
        "recall@3: 1 of 1 query has fewer than 3 gallery items left (as few as 2); all that are left were used",
        "1 query has a duplicate in the gallery, an image with identical bytes, 1 of them under another label (e.g. 0 "
        "and 0); leave such copies out with exclude_self=content",
    )


def test_warnings_of_the_data_come_first():
    report = evaluate_embeddings(
        EmbeddingSet(spread(4), list("aabb")),
        protocol=EvalProtocol(ks=(9,)),
        provenance=Provenance(warnings=("first",)),
    )
    assert report.warnings[0] == "first"
    assert len(report.warnings) == 2
