"""Who is positive and who is ignored, against the oracle; what is refused, and why a query has no positive."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
from recallatk.relevance import build_relevance, check_labels_agree
from recallatk.relevance.matching import Keys, Matching, OwnRow
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError
from worlds import draw_world

PROTOCOLS = [
    EvalProtocol(exclude_self=exclude_self, ignore_same=ignore_same)
    for exclude_self in ("id", "content", "none")
    for ignore_same in ("none", "camera", "camera+label", "label", "sequence+camera")
]


def rows(labels, **columns) -> EmbeddingSet:
    """Labels, and columns of groups, may be written as one text: a character a row."""
    labels = list(labels) if isinstance(labels, str) else labels
    columns["groups"] = {name: list(values) for name, values in columns.get("groups", {}).items()}
    return EmbeddingSet(np.ones((len(columns["ids"] if labels is None else labels), 1)), labels, **columns)


def judged(relevance, size: int) -> list[tuple[set[int], set[int]]]:
    """The judgements of all queries, asked `size` queries at a time; each row comes once, in ascending order."""
    found = []
    for start in range(0, relevance.n_queries, size):
        stop = min(start + size, relevance.n_queries)
        block = relevance.judge(slice(start, stop))
        for i in range(stop - start):
            pair = []
            for starts, values in (
                (block.positive_starts, block.positive_rows),
                (block.ignored_starts, block.ignored_rows),
            ):
                mine = values[starts[i] : starts[i + 1]].tolist()
                assert mine == sorted(set(mine))
                pair.append(set(mine))
            found.append(tuple(pair))
        assert (
            block.positive_queries.tolist() == np.repeat(range(stop - start), np.diff(block.positive_starts)).tolist()
        )
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: f"{p.exclude_self}-{p.ignore_same}")
def test_judgements_equal_the_oracle_for_any_block(protocol):
    for seed in range(24):
        world = draw_world(seed, alone=bool(seed % 2), several=bool(seed // 2 % 2))
        relevance = build_relevance(world.query, world.gallery, protocol)
        for size in (1, 3, 100):
            assert judged(relevance, size) == world.judge(protocol)


KEYS = st.lists(st.lists(st.sampled_from("abcde"), unique=True, max_size=3), max_size=8)


@given(KEYS, KEYS)
def test_pairs_are_what_a_match_yields(query, gallery):
    matching = Matching.of(Keys.of(query), Keys.of(gallery))
    assert matching.pairs.tolist() == [sum(len(set(q) & set(g)) for g in gallery) for q in query]
    owners, found = matching.match(np.arange(len(query)))
    expected = [(i, row) for i, q in enumerate(query) for row, g in enumerate(gallery) for _ in set(q) & set(g)]
    assert sorted(zip(owners.tolist(), found.tolist(), strict=True)) == expected


@given(KEYS, KEYS, st.integers(1, 3))
def test_groups_are_queries_of_the_same_keys_with_their_rows(query, gallery, at_least):
    # Keys that no gallery row has may part a group, so the sets of keys are compared as a whole.
    found = {}
    for members, rows in Matching.of(Keys.of(query), Keys.of(gallery)).groups(at_least):
        found[frozenset(query[members[0]])] = sorted(members.tolist()), rows.tolist()
    expected = {}
    for keys in {frozenset(keys) for keys in query if keys}:
        members = [i for i, own in enumerate(query) if set(own) == keys]
        rows = [row for row, own in enumerate(gallery) if keys & set(own)]
        if len(members) >= at_least and len(rows) >= at_least:
            expected[keys] = members, rows
    assert found == expected


@given(KEYS)
def test_a_set_against_itself_matches_as_against_a_copy(cells):
    alone, copy = Keys.of(cells), Keys.of([list(keys) for keys in cells])
    one, two = (Matching.of(alone, gallery).match(np.arange(len(cells))) for gallery in (alone, copy))
    assert [side.tolist() for side in one] == [side.tolist() for side in two]


def test_a_value_that_is_empty_has_no_key():
    keys = Keys.known(["a", "", "b", ""])
    assert (keys.starts.tolist(), list(keys.values)) == ([0, 1, 1, 2, 2], ["a", "b"])


def test_what_no_query_has_takes_no_room():
    gallery = rows([f"{row // 2}" for row in range(2_000)], ids=[f"g{row}" for row in range(2_000)])
    relevance = build_relevance(rows(["7", "unseen"], ids=["g14", "q"]), gallery, EvalProtocol())
    assert judged(relevance, 2) == [({15}, {14}), (set(), set())]
    arrays = [getattr(m, f) for m in (relevance.positive, *relevance.ignored.values()) for f in vars(m)]
    assert sum(array.nbytes for array in arrays) < 200


def test_relevance_is_as_large_as_the_data_and_not_as_its_pairs():
    n = 20_000
    relevance = build_relevance(rows(["a", "b"] * (n // 2)), None, EvalProtocol())
    assert relevance.pairs.sum() == n * n // 2 + n
    assert len(pickle.dumps(relevance)) < 18 * n


@given(st.integers(0, 6), st.booleans(), st.data())
def test_a_row_is_itself_in_any_part(n, known, data):
    own = OwnRow(n, n if known else 0)
    listed = Matching.of(Keys.known([f"{row}" for row in range(n)]), Keys.known([f"{row}" * known for row in range(n)]))
    queries, rows = (slice(*sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2)))) for _ in "qg")
    for one, other in ((own, listed), (own.part(queries, rows), listed.part(queries, rows))):
        assert one.pairs.tolist() == other.pairs.tolist()
        every = np.arange(len(one.pairs))[::-1]
        assert [part.tolist() for part in one.match(every)] == [part.tolist() for part in other.match(every)]


def test_keys_and_rows_of_four_bytes_are_found_in_any_part():
    """A key times the rows takes more than four bytes, from two thousand labels of a million rows on."""
    rows = 1_999_999_999
    keys = np.arange(3, dtype=np.int32)
    one = Matching(np.arange(4), keys, np.arange(4), np.array([5, 10**9, rows], np.int32))
    for query, row in enumerate([5, 10**9, rows]):
        owners, found = one.part(slice(0, 3), slice(row - 2, row + 1)).match(keys)
        assert (owners.tolist(), found.tolist()) == ([query], [2])


@pytest.mark.parametrize("ids", [None, ["a", "b", "", "d"]])
def test_alone_a_set_needs_no_room_to_know_itself(ids):
    relevance = build_relevance(rows("aabb", ids=ids), None, EvalProtocol())
    assert list(relevance.ignored.values()) == [OwnRow(4, 4)]
    assert judged(relevance, 4) == [({1}, {0}), ({0}, {1}), ({3}, {2}), ({2}, {3})]


# Identity


def test_ids_that_were_made_up_never_match_across_sets():
    assert judged(build_relevance(rows("aa"), rows("aa"), EvalProtocol()), 2) == [({0, 1}, set())] * 2
    one_side = build_relevance(rows("aa"), rows("aa", ids=["0", "1"]), EvalProtocol())
    assert judged(one_side, 2) == [({0, 1}, set())] * 2


def test_the_same_image_is_told_by_same_and_only_then_by_id():
    query = rows("a", ids=["q/1.png"], same=["1.png"])
    gallery = rows("aaa", ids=["g/1.png", "q/1.png", "g/3.png"], same=["1.png", "2.png", "1.png"])
    assert judged(build_relevance(query, gallery, EvalProtocol()), 1) == [({1}, {0, 2})]


@pytest.mark.parametrize(
    ("exclude_self", "columns"), [("id", {"same": ["", "", "x"]}), ("content", {"content": ["", "", "x"]})]
)
def test_alone_a_row_is_itself_even_where_its_identity_is_unknown(exclude_self, columns):
    # `evaluate_embeddings`: "every row is query and gallery and never in its own ranking".
    alone = build_relevance(rows("aab", **columns), None, EvalProtocol(exclude_self=exclude_self))
    assert [ignored for _, ignored in judged(alone, 3)] == [{0}, {1}, {2}]


def test_an_id_with_two_labels_is_refused():
    with pytest.raises(RecallatkError, match=r"id 'x' has the label 'a' as a query and 'b' in the gallery"):
        build_relevance(rows("a", ids=["x"]), rows("ab", ids=["y", "x"]), EvalProtocol())
    with pytest.raises(RecallatkError, match="id 'x'"):
        build_relevance(rows([["a"]], ids=["x"]), rows([["a", "b"]], ids=["x"]), EvalProtocol())
    build_relevance(rows([["b", "a"]], ids=["x"]), rows([["a", "b", "a"]], ids=["x"]), EvalProtocol())


def test_an_id_with_several_rows_in_the_gallery_is_refused_in_any_order():
    # Two boxes of one image. Whichever lies last, one of them contradicts the query.
    for labels in ("ab", "ba"):
        query, gallery = (["x"], ["a"]), (["x", "x"], list(labels))
        with pytest.raises(RecallatkError, match="id 'x' has the label 'a' as a query and 'b' in the gallery"):
            check_labels_agree(*query, *gallery)
    check_labels_agree(["x"], ["a"], ["x", "x"], ["a", ("a",)])


def test_a_side_without_labels_contradicts_nothing():
    query = rows(None, ids=["x"])
    for gallery in (rows("a", ids=["x"]), rows([1], ids=["x"])):
        assert judged(build_relevance(query, gallery, EvalProtocol()), 1) == [(set(), {0})]


def test_an_empty_id_says_unknown_and_proves_no_contradiction():
    relevance = build_relevance(rows("a", ids=[""]), rows("ab", ids=["y", ""]), EvalProtocol())
    assert judged(relevance, 1) == [({0}, set())]


def test_one_label_alone_or_in_a_list_is_the_same_label():
    relevance = build_relevance(rows("a", ids=["x"]), rows([["a"], ["a", "b"]], ids=["x", "y"]), EvalProtocol())
    assert judged(relevance, 1) == [({1}, {0})]


def test_composed_and_decomposed_names_are_one():
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    relevance = build_relevance(rows([composed]), rows([decomposed, "x"]), EvalProtocol())
    assert judged(relevance, 1) == [({0}, set())]


# What is refused


def test_integers_against_text_are_refused_and_both_are_named():
    query, gallery = rows([1, 2], name="q.npz"), rows(["1", "2"], name="g.npz")
    with pytest.raises(
        RecallatkError, match=r"query \(q.npz\): .* integers \(int\), gallery \(g.npz\): .* text \(str\)"
    ):
        build_relevance(query, gallery, EvalProtocol())
    with pytest.raises(
        RecallatkError, match=r"query \(g.npz\): .* text \(str\), gallery \(q.npz\): .* integers \(int\)"
    ):
        build_relevance(gallery, query, EvalProtocol())


def test_a_side_without_any_label_has_no_kind():
    relevance = build_relevance(rows([[1], [2]]), rows([[], []]), EvalProtocol())
    assert judged(relevance, 2) == [(set(), set())] * 2


def test_a_column_that_is_not_there_is_named_with_those_that_are():
    query, gallery = rows("a", groups={"camera": ["1"], "city": ["x"]}, name="query"), rows("a", name="gallery")
    with pytest.raises(RecallatkError, match=r"query: .* 'cam', but the columns are: label, camera, city"):
        build_relevance(query, gallery, EvalProtocol(ignore_same="cam"))
    with pytest.raises(RecallatkError, match=r"gallery: .* 'camera', but the columns are: label$"):
        build_relevance(query, gallery, EvalProtocol(ignore_same="camera+label"))


def test_content_that_is_not_known_is_said():
    known, unknown = rows("a", content=["1f"], name="query"), rows("a", name="gallery")
    with pytest.raises(RecallatkError, match=r"gallery: exclude_self=content needs the sha256"):
        build_relevance(known, unknown, EvalProtocol(exclude_self="content"))
    with pytest.raises(RecallatkError, match=r"gallery: exclude_self=content needs the sha256"):
        build_relevance(unknown, None, EvalProtocol(exclude_self="content"))


# Reasons


def test_the_reason_is_the_first_rule_that_took_every_positive():
    query = rows("abcd", ids=list("wxyz"), groups={"camera": ["1", "1", "1", "1"]})
    gallery = rows("abccdd", ids=["w", "p", "y", "q", "z", "r"], groups={"camera": ["2", "1", "2", "1", "2", "2"]})
    relevance = build_relevance(query, gallery, EvalProtocol(ignore_same="camera"))
    by_self = "every positive is the query itself (exclude_self=id)"
    by_camera = "every positive is of the query's camera (ignore_same=camera)"
    assert relevance.why_no_positive(0) == by_self
    assert relevance.why_no_positive(1) == by_camera
    both = relevance.why_no_positive(2)
    assert by_self in both
    assert "of the query's camera" in both
    assert judged(relevance, 4)[3] == ({5}, {1, 3, 4})
    other = build_relevance(query, rows("xyz"), EvalProtocol())
    assert other.why_no_positive(0) == "no gallery item shares its label"


def test_every_query_without_a_positive_gets_a_reason_that_holds():
    told = set()
    for seed in range(40):
        world = draw_world(seed, alone=bool(seed % 2), several=False)
        protocol = EvalProtocol(ignore_same="camera+label")
        relevance = build_relevance(world.query, world.gallery, protocol)
        unrestricted = oracle.judge(world.query, world.other, exclude_self="none")
        for q, (positives, _) in enumerate(world.judge(protocol)):
            if not positives:
                reason = relevance.why_no_positive(q)
                assert (reason == "no gallery item shares its label") == (not unrestricted[q][0])
                told.add(reason)
    assert len(told) >= 3
