"""The recipe's `recall_at_k`: its names, its dict, its ids, and one clear line for everything it cannot take."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pytest

from recallatk import recall_at_k
from recallatk.types import RecallatkError

QUERY = np.array([[1, 0.02], [0.03, 1], [1, 1.1]])
GALLERY = np.array([[1, 0], [0, 1], [-1, 0], [1, 1]])
Q_LABELS, G_LABELS = ["a", "b", "a"], ["a", "b", "a", "b"]


def score(**changes):
    given = {"query_emb": QUERY, "gallery_emb": GALLERY, "q_labels": Q_LABELS, "g_labels": G_LABELS, "ks": (1, 2)}
    return recall_at_k(**{**given, **changes})


def test_the_recipe_can_be_called_by_position_and_by_name():
    assert list(inspect.signature(recall_at_k).parameters) == [
        *("query_emb", "gallery_emb", "q_labels", "g_labels", "ks", "query_ids", "gallery_ids")
    ]
    assert inspect.signature(recall_at_k).parameters["ks"].default == (1, 5, 10)
    assert recall_at_k(QUERY, GALLERY, Q_LABELS, G_LABELS, (1, 2), None, None) == score()


def test_the_result_is_a_dict_of_floats_in_the_order_of_k():
    # 1st: 1 0 -> a. 2nd: 0 1 -> b. 3rd: (1, 1) b first, (0, 1) b second, (1, 0) a third.
    found = score(ks=(3, 1, 2, 2))
    assert type(found) is dict
    assert list(found.items()) == [("recall@1", 2 / 3), ("recall@2", 2 / 3), ("recall@3", 1.0)]
    assert all(type(value) is float for value in found.values())


@pytest.mark.parametrize("ks", [2, [2], (2,), np.array([2]), {2}, range(2, 3), np.int64(2), np.array(2), iter([2])])
def test_ks_may_be_one_number_or_any_list_of_numbers(ks):
    assert score(ks=ks) == {"recall@2": 2 / 3}


@pytest.mark.parametrize(
    "labels",
    [
        (np.array([7, 8, 7]), np.array([7, 8, 7, 8])),
        ([7, 8, 7], np.array([7, 8, 7, 8], np.uint8)),
        (np.array(Q_LABELS), np.array(G_LABELS, dtype=object)),
    ],
)
def test_labels_may_be_arrays(labels):
    assert score(q_labels=labels[0], g_labels=labels[1]) == score()


def test_lists_of_numbers_that_only_look_like_one_hot_labels_are_labels():
    # Lists of two, or with another number, or text: several labels a sample, as they say.
    for labels in ([[0, 1], [0, 1], [1, 0]], [[1, 0, 2], [1, 0, 0], [1, 0, 0]]):
        assert score(q_labels=labels, g_labels=[[1]] * 4) == {"recall@1": 1.0, "recall@2": 1.0}
    assert score(q_labels=["100", "010", "001"], g_labels=["100"] * 4) == {"recall@1": 1.0, "recall@2": 1.0}


def test_several_labels_share_at_least_one():
    assert score(q_labels=[["a", "x"], ["y"], ["x"]], g_labels=[["a"], ["y", "z"], [], ["x"]], ks=1) == {
        "recall@1": 1.0
    }


def test_equal_ids_leave_the_ranking_and_need_not_be_unique():
    same = {"query_ids": ["p", "p", "r"], "gallery_ids": ["p", "s", "p", "t"]}
    labels = {"q_labels": ["a", "a", "b"], "g_labels": ["a", "b", "a", "b"]}
    # Both rows "p" are gone for the first two: nothing is left of "a". The third finds (1, 1) "b".
    assert score(**same, **labels) == {"recall@1": 1.0, "recall@2": 1.0}


def test_ids_on_one_side_only_match_nothing():
    assert score(query_ids=[0, 1, 2]) == score()


def test_integer_ids_of_any_kind_are_the_same_id():
    rows = {"query_emb": GALLERY, "q_labels": G_LABELS, "ks": (1, 3)}
    by_number = score(**rows, query_ids=np.arange(4), gallery_ids=range(4))
    assert by_number == score(**rows, query_ids=list(range(4)), gallery_ids=np.arange(4, dtype=np.int16))
    # (1, 0) and (-1, 0) are last for each other; (0, 1) finds (1, 1); for (1, 1) an "a" and a "b" are level.
    assert by_number == {"recall@1": 0.375, "recall@3": 1.0}


@pytest.mark.parametrize("ids", [np.arange(4.0), [0, 1, 2.0, 3], [np.float32(0), None, 2, 3]])
def test_a_whole_number_as_a_float_is_refused(ids):
    # A column of a data frame with one gap turns its integers into floats: "0" and "0.0" must not pass as two images.
    rows = {"query_emb": GALLERY, "q_labels": G_LABELS, "ks": (1, 3), "query_ids": [0, 1, 2, 3]}
    with pytest.raises(RecallatkError, match=r"gallery: the id of row \d is .*0.*float.*; ids are text or integers"):
        score(**rows, gallery_ids=ids)


@pytest.mark.parametrize("unknown", [None, float("nan"), ""])
def test_an_unknown_id_is_no_identity(unknown):
    # As everywhere: an empty cell is unknown and equals nothing, so it excludes nothing and proves no contradiction.
    assert score(query_ids=[unknown] * 3, gallery_ids=[unknown] * 4) == score()


def test_an_image_with_two_labels_in_the_gallery_is_judged_in_any_row_order():
    # Two boxes of one image: equal ids, two labels. The outcome must not hang on which row comes last.
    def outcome(order):
        try:
            return score(
                gallery_emb=GALLERY[order],
                g_labels=[G_LABELS[row] for row in order],
                query_ids=["x", "y", "z"],
                gallery_ids=[["x", "x", "v", "w"][row] for row in order],
            )
        except RecallatkError:
            return "refused"

    assert outcome([0, 1, 2, 3]) == outcome([1, 0, 2, 3])


def test_one_label_alone_or_in_a_list_is_the_same_label():
    ids = {"query_ids": ["x", "y", "z"], "gallery_ids": ["x", "s", "t", "u"]}
    assert score(g_labels=[[label] for label in G_LABELS], **ids) == score(**ids)


def test_an_id_with_two_labels_is_named():
    with pytest.raises(RecallatkError, match=r"id 'y' has the label 'b' as a query and 'a' in the gallery"):
        score(query_ids=["x", "y", "z"], gallery_ids=["x", "s", "y", "u"])


def test_nothing_to_evaluate_is_zero_with_a_warning_that_says_why():
    with pytest.warns(UserWarning, match=r"nothing to evaluate: .*no gallery item shares its label: 3") as caught:
        assert score(q_labels=["x", "x", "x"]) == {"recall@1": 0.0, "recall@2": 0.0}
    assert len(caught) == 1
    assert caught[0].filename == __file__  # the caller's line


def test_warnings_reach_the_caller():
    with pytest.warns(UserWarning, match=r"recall@9: 3 of 3 queries have fewer than 9 gallery items left") as caught:
        assert score(ks=9) == {"recall@9": 1.0}
    assert caught[0].filename == __file__


def test_an_overlapping_gallery_without_ids_is_said():
    with pytest.warns(
        UserWarning, match="3 of 4 queries have an embedding equal to one in the gallery, and without ids"
    ):
        score(query_emb=np.vstack([GALLERY[:3], [[5, 1]]]), q_labels=[*G_LABELS[:3], "a"])


def change(array, row, value, dtype=float):
    changed = np.array(array, dtype=dtype)
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ks": True}, "k=True is not a cutoff"),
        ({"ks": [1, False]}, "k=False"),
        ({"ks": 0}, "k=0 "),
        ({"ks": -1}, "k=-1 "),
        ({"ks": 1.5}, "k=1.5 "),
        ({"ks": 5.0}, "k=5.0 "),
        ({"ks": "5"}, "k='5' "),
        ({"ks": [1, None]}, "k=None "),
        ({"ks": None}, "k=None "),
        ({"ks": []}, "no k was given"),
        ({"ks": 10**30}, "k=10+ is too large"),
        ({"ks": 2**62 + 1}, "is too large; the largest cutoff is 4611686018427387904"),
        ({"g_labels": [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]}, "gallery: .*zeros and ones, as one-hot labels"),
        ({"q_labels": np.eye(3)}, r"query: the labels have shape \(3, 3\)"),
        ({"g_labels": np.eye(4, dtype=int)}, r"gallery: the labels have shape \(4, 4\)"),
        ({"q_labels": [1, 2, 3]}, r"query: the labels are integers \(int\), gallery: the labels are text \(str\)"),
        ({"q_labels": ["1", 2, "3"]}, r"query: the labels mix integers \(int, 2\) and text \(str, '1'\)"),
        ({"g_labels": [1.0, 2.0, 1.0, 2.0]}, r"gallery: the label of row 0 is 1.0 \(float\)"),
        ({"g_labels": ["a", "b", None, "b"]}, r"gallery: the label of row 2 is None"),
        ({"g_labels": ["a", "b", "", "b"]}, r"gallery: row 2 has an empty label"),
        ({"g_labels": [b"a", "b", "a", "b"]}, r"gallery: the label of row 0 is bytes"),
        ({"g_labels": [True, False, True, False]}, r"gallery: the label of row 0 is True \(bool\)"),
        ({"q_labels": ["a", "b"]}, "query: 2 labels for 3 embedding rows"),
        ({"g_labels": list("ababa")}, "gallery: 5 labels for 4 embedding rows"),
        ({"q_labels": None}, "query: there are no labels; give one a row"),
        ({"g_labels": None}, "gallery: there are no labels; give one a row"),
        ({"query_ids": [1, 2]}, "query: 2 ids for 3 embedding rows"),
        ({"gallery_ids": [1] * 5, "query_ids": [1, 2, 3]}, "gallery: 5 ids for 4 embedding rows"),
        ({"query_emb": change(QUERY, 1, np.nan)}, r"query: row 1 .* is not finite"),
        ({"gallery_emb": change(GALLERY, 2, np.inf)}, r"gallery: row 2 .* is not finite"),
        ({"gallery_emb": change(GALLERY, (3, 0), 1e39)}, r"gallery: row 3 .* beyond float32"),
        ({"gallery_emb": change(GALLERY, (3, 0), np.inf, np.float16)}, r"gallery: row 3 .* is not finite"),
        ({"gallery_emb": change(GALLERY, 1, 0)}, r"gallery: row 1 .* is all zero"),
        ({"gallery_emb": change(GALLERY, 1, 1e-60)}, r"gallery: row 1 .* is all zero"),
        ({"gallery_emb": np.zeros((4, 2))}, r"gallery: row 0 .*and 3 more rows"),
        ({"query_emb": QUERY[0]}, r"query: the shape is \(2,\)"),
        ({"query_emb": QUERY[:, :, None]}, r"query: the shape is \(3, 2, 1\)"),
        ({"query_emb": np.empty((3, 0))}, r"query: the shape is \(3, 0\)"),
        ({"query_emb": QUERY[:, :1]}, "the query embeddings have 1 column and the gallery embeddings 2"),
        ({"query_emb": QUERY + 1j}, "query: the dtype is complex128, not numeric"),
        ({"query_emb": [["1", "2"]] * 3}, "query: the dtype is <U1, not numeric"),
        ({"query_emb": [[1, 2], [1], [3, 4]]}, "query: rows of different length"),
    ],
)
def test_what_cannot_be_scored_is_named_in_one_line(changes, message):
    with pytest.raises(RecallatkError, match=message) as error:
        score(**changes)
    assert len(str(error.value).splitlines()) == 1


def test_float16_rows_are_measured_in_float32():
    # The squared length, 9 * 200^2, is beyond float16.
    query, gallery = np.full((1, 9), 200, np.float16), np.array([[200] * 9, [200] * 8 + [-200]], np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the equal rows
        assert recall_at_k(query, gallery, ["a"], ["b", "a"], ks=(1, 2)) == {"recall@1": 0.0, "recall@2": 1.0}
