"""Grids that are not in memory, and galleries in shards: the same counts from any parts."""

from __future__ import annotations

import dataclasses
import itertools
import pickle

import numpy as np
import pytest

from grid_worlds import WORLDS, assert_same, columns_of
from recallatk.ranking import BACKENDS, Block, rank, stream_grid, to_grid
from recallatk.ranking.blocks import bytes_a_row
from recallatk.ranking.grid import Grid, LoadedGrid, StreamedRows
from recallatk.ranking.native import why_not
from recallatk.ranking.shards import (
    Shard,
    best_in_shard,
    count_all_both,
    count_all_in_shard,
    count_both,
    count_in_shard,
    deep_ranking_of_shards,
    merge_all_counts,
    merge_best_positives,
    merge_counts,
    merge_positives,
    positives_in_shard,
    ranking_of_shards,
)
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol, Qrels

HERE = [name for name in BACKENDS if name in ("numpy", "reference") or (name == "native" and why_not() is None)]


def sample(rng, maker, n, *, n_labels=20, d=11, name="row"):
    labels = [f"label {i}" for i in rng.integers(0, n_labels, n)]
    cameras = tuple(f"camera {i}" for i in rng.integers(0, 3, n))
    return EmbeddingSet(maker(rng, n, d), labels, ids=[f"{name} {i}" for i in range(n)], groups={"camera": cameras})


@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
def test_streamed_rows_are_those_of_the_grid(similarity, tmp_path):
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(50, 7)) * rng.lognormal(size=(50, 1))).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = to_grid(rows, rows[:5], similarity=similarity)
    found = stream_grid(mapped, mapped[:5], similarity=similarity)
    some = np.array([0, 3, 3, 49])
    for whole, streamed in zip(expected, found, strict=True):
        assert isinstance(streamed.rows, StreamedRows)
        assert streamed.rows.shape == whole.rows.shape
        assert (streamed.unit, streamed.near) == (whole.unit, whole.near)
        np.testing.assert_array_equal(streamed.load().rows, whole.rows)
        np.testing.assert_array_equal(streamed.part(slice(2, 5)).rows, whole.rows[2:5])
    np.testing.assert_array_equal(found[0].rows[some], expected[0].rows[some])


def test_a_private_mapping_keeps_what_was_written_to_it(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((40, 5), np.float32))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="c")
    mapped[:, 0] = 7
    stream_grid(mapped)[0].load()
    assert (mapped[:, 0] == 7).all()


@pytest.mark.parametrize("part", [1, 7, 64, 89, 10**6])
@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize("backend", HERE)
def test_grids_in_parts_count_the_same(backend, depth, part):
    rng = np.random.default_rng(part)
    for maker, similarity in itertools.product(("clusters", "duplicates", "one point"), ("cosine", "euclidean")):
        n = min(90, 12 * part)
        one = sample(rng, WORLDS[maker], n, n_labels=n // 4)
        two = sample(rng, WORLDS[maker], n // 2, n_labels=n // 4, name="other")
        protocol = EvalProtocol(ignore_same="camera", similarity=similarity)
        for query, gallery in ((one, None), (one, two), (two, one)):
            relevance = build_relevance(query, gallery, protocol)
            sets = [query.embeddings] if gallery is None else [query.embeddings, gallery.embeddings]
            loaded, streamed = (make(*sets, similarity=similarity) for make in (to_grid, stream_grid))
            expected = columns_of(rank(loaded[0], loaded[-1], relevance, depth=depth, backend="reference"))
            blocks = rank(
                streamed[0],
                streamed[-1],
                relevance,
                depth=depth,
                backend=backend,
                block=Block(5, 60, 9, part),
                threads=2,
            )
            assert_same(columns_of(blocks), expected, f"{maker}, {similarity}, {part} rows a part")


def test_rows_that_do_not_fit_are_never_in_memory_together(monkeypatch):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3000, 40)).astype(np.float32)
    labels = [str(i) for i in rng.integers(0, 500, 3000)]
    relevance = build_relevance(EmbeddingSet(rows, labels), None, EvalProtocol())
    grid = stream_grid(rows)[0]
    asked = []
    plain = StreamedRows.__getitem__
    monkeypatch.setattr(StreamedRows, "__getitem__", lambda self, of: (asked.append(of), plain(self, of))[1])
    memory = 1000 * bytes_a_row(40)
    blocks = columns_of(rank(grid, grid, relevance, backend=HERE[0], memory=memory))
    assert_same(blocks, columns_of(rank(grid.load(), grid.load(), relevance, backend="reference")), "in parts")
    sizes = [of.stop - of.start if isinstance(of, slice) else len(of) for of in asked[:-2]]
    assert len(sizes) > 10
    assert max(sizes) * bytes_a_row(40) <= memory // 8 + 64 * bytes_a_row(40)


def in_shards(query, gallery, protocol, starts, backend):
    """The ranking of a gallery in shards, merged in another order than theirs."""
    similarity = protocol.similarity
    own, whole = to_grid(query.embeddings, gallery.embeddings, similarity=similarity)
    shards = []
    for start, stop in itertools.pairwise([*starts, len(gallery)]):
        part = gallery.take(range(start, stop))
        grid = LoadedGrid(whole.rows[start:stop], similarity, whole.unit, whole.near)
        shards.append(Shard(grid, build_relevance(query, part, protocol), start))
    best = merge_best_positives([best_in_shard(own, shard) for shard in shards][::-1])
    counts = [count_in_shard(own, shard, best, backend=backend, memory=10**6) for shard in shards]
    some, rest = counts[::2], counts[1::2]
    merged = merge_counts([merge_counts(part) for part in (rest, some) if part])
    return ranking_of_shards(best, merged, unit=whole.unit)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_large_classes_in_shards_add_up(similarity):
    rng = np.random.default_rng(4)
    gallery = sample(rng, WORLDS["clusters"], 600, n_labels=3)
    query = sample(rng, WORLDS["clusters"], 450, n_labels=3, name="query")
    protocol = EvalProtocol(similarity=similarity)
    own, whole = to_grid(query.embeddings, gallery.embeddings, similarity=similarity)
    expected = columns_of(rank(own, whole, build_relevance(query, gallery, protocol), backend="reference"))
    assert_same(columns_of([in_shards(query, gallery, protocol, [0, 450], HERE[0])]), expected, similarity)


@pytest.mark.parametrize("backend", [name for name in HERE if name != "reference"])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("maker", ["clusters", "duplicates", "one point", "codes", "almost one point"])
@pytest.mark.parametrize("starts", [[0], [0, 1, 2], [0, 33, 34, 70], [0, 17, 17, 55]])
def test_shards_add_up_to_the_whole_gallery(starts, maker, similarity, backend):
    rng = np.random.default_rng(2)
    gallery = sample(rng, WORLDS[maker], 80)
    protocol = EvalProtocol(ignore_same="camera", similarity=similarity)
    for query in (sample(rng, WORLDS[maker], 30, name="query"), gallery.take(range(60, 20, -1))):
        own, whole = to_grid(query.embeddings, gallery.embeddings, similarity=similarity)
        expected = columns_of(rank(own, whole, build_relevance(query, gallery, protocol), backend="reference"))
        found = columns_of([in_shards(query, gallery, protocol, starts, backend)])
        assert_same(found, expected, f"{maker}, shards from {starts}")


def cut(n, starts):
    return [slice(start, stop) for start, stop in itertools.pairwise([*starts, n])]


def rule(kind, rng, query, gallery):
    """A protocol and judged pairs of each kind of relevance."""
    if kind == "qrels":
        other = query if gallery is None else gallery
        drawn = rng.integers(0, [len(query), len(other)], (400, 2)).tolist()
        pairs = sorted({(query.ids[a], other.ids[b]) for a, b in drawn})
        levels = [("easy", "hard", "junk")[i] for i in rng.integers(0, 3, len(pairs))]
        grades = rng.integers(0, 4, len(pairs))
        qrels = Qrels(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), grades, tuple(levels))
        return EvalProtocol(relevance="qrels", level="medium"), qrels
    if kind == "radius":
        return EvalProtocol(relevance="radius", radius=9.0), None
    return EvalProtocol(ignore_same="camera+label" if kind == "camera" else "none", junk_labels=("label 3",)), None


@pytest.mark.parametrize("kind", ["label", "camera", "qrels", "radius"])
@pytest.mark.parametrize("alone", [True, False])
def test_relevance_cut_into_parts_judges_the_same(kind, alone):
    rng = np.random.default_rng(5)
    query, gallery = sample(rng, WORLDS["clusters"], 40), sample(rng, WORLDS["clusters"], 60, name="other")
    query, gallery = (
        dataclasses.replace(side, positions=rng.integers(0, 40, (len(side), 2)).astype(float))
        for side in (query, gallery)
    )
    gallery = None if alone else gallery
    protocol, qrels = rule(kind, rng, query, gallery)
    relevance = build_relevance(query, gallery, protocol, qrels=qrels)
    for queries, rows in itertools.product(cut(40, [0, 1, 25]), cut(relevance.n_gallery, [0, 11, 11, 39])):
        part = relevance.part(queries, rows).judge(slice(0, queries.stop - queries.start))
        whole = relevance.judge(queries)
        for name in ("positive", "ignored"):
            owners, found = getattr(whole, f"{name}_queries"), getattr(whole, f"{name}_rows")
            inside = (found >= rows.start) & (found < rows.stop)
            np.testing.assert_array_equal(getattr(part, f"{name}_rows"), found[inside] - rows.start)
            np.testing.assert_array_equal(getattr(part, f"{name}_queries"), owners[inside])
        if whole.positive_grades is not None:
            inside = (whole.positive_rows >= rows.start) & (whole.positive_rows < rows.stop)
            np.testing.assert_array_equal(part.positive_grades, whole.positive_grades[inside])


@pytest.mark.parametrize("backend", [name for name in HERE if name != "reference"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("maker", ["duplicates", "one point", "almost one point"])
def test_pairs_of_parts_of_one_set_are_counted_once_for_both(maker, similarity, backend):
    rng = np.random.default_rng(6)
    one = sample(rng, WORLDS[maker], 90, n_labels=15)
    protocol = EvalProtocol(ignore_same="camera", similarity=similarity)
    relevance = build_relevance(one, None, protocol)
    (grid,) = stream_grid(one.embeddings, similarity=similarity)
    parts = cut(90, [0, 20, 21, 60])
    bests, counts = [], [[] for _ in parts]
    for queries in parts:
        shards = [Shard(Grid(*fields(grid, rows)), relevance.part(queries, rows), rows.start) for rows in parts]
        bests.append(merge_best_positives([best_in_shard(grid.part(queries), shard) for shard in shards[::-1]]))
    for (i, queries), (j, rows) in itertools.combinations_with_replacement(enumerate(parts), 2):
        own, other = grid.part(queries), grid.part(rows)
        if i == j:
            shard = Shard(own, relevance.part(queries, queries), rows.start)
            counts[i].append(count_in_shard(own, shard, bests[i], backend=backend))
        else:
            both = relevance.part(queries, rows), relevance.part(rows, queries)
            here, there = count_both(own, other, both, (bests[i], bests[j]), backend=backend)
            counts[i].append(here)
            counts[j].append(there)
    blocks = [
        dataclasses.replace(ranking_of_shards(best, merge_counts(found), unit=grid.unit), queries=queries)
        for queries, best, found in zip(parts, bests, counts, strict=True)
    ]
    assert_same(columns_of(blocks), columns_of(rank(grid, grid, relevance, backend="reference")), maker)


def fields(grid, rows):
    return StreamedRows(grid.rows.embeddings[rows], grid.rows.bits), grid.similarity, grid.unit, grid.near


@pytest.mark.parametrize("backend", [name for name in HERE if name != "reference"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("kind", ["label", "camera", "qrels"])
@pytest.mark.parametrize("maker", ["clusters", "duplicates", "almost one point"])
def test_all_levels_in_shards_are_those_of_the_whole_gallery(maker, kind, similarity, backend):
    rng = np.random.default_rng(8)
    query, gallery = sample(rng, WORLDS[maker], 40), sample(rng, WORLDS[maker], 70, n_labels=6, name="other")
    protocol, qrels = rule(kind, rng, query, gallery)
    protocol = dataclasses.replace(protocol, similarity=similarity)
    relevance = build_relevance(query, gallery, protocol, qrels=qrels)
    own, whole = to_grid(query.embeddings, gallery.embeddings, similarity=similarity)
    for limit in (None, np.arange(40) % 7):
        rows = cut(70, [0, 9, 10, 40])
        shards = [Shard(whole.part(some), relevance.part(slice(0, 40), some), some.start) for some in rows]
        positives = merge_positives([positives_in_shard(own, shard) for shard in shards[::-1]])
        counts = [
            count_all_in_shard(own, shard, positives.levels, limit=limit, backend=backend, memory=10**6)
            for shard in shards
        ]
        merged = merge_all_counts([merge_all_counts(counts[2:]), *counts[:2]])
        found = deep_ranking_of_shards(positives, merged, unit=whole.unit, limit=limit)
        expected = rank(own, whole, relevance, depth="all", backend="reference", limit=limit)
        assert_same(columns_of([found]), columns_of(expected), f"{maker}, {kind}, limit {limit is not None}")


@pytest.mark.parametrize("backend", [name for name in HERE if name != "reference"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
@pytest.mark.parametrize("maker", ["clusters", "duplicates", "one point"])
def test_all_levels_of_parts_of_a_set_are_counted_for_both_at_once(maker, similarity, backend):
    rng = np.random.default_rng(10)
    protocol = EvalProtocol(ignore_same="camera", similarity=similarity)
    one = sample(rng, WORLDS[maker], 90, n_labels=9)
    relevance = build_relevance(one, None, protocol)
    (grid,) = to_grid(one.embeddings, similarity=similarity)
    rows = cut(90, [0, 31, 40])
    for limit in (None, np.arange(90) % 11):
        limits = [None if limit is None else limit[some] for some in rows]
        found = []
        for some in rows:
            shards = [Shard(grid.part(other), relevance.part(some, other), other.start) for other in rows]
            found.append(merge_positives([positives_in_shard(grid.part(some), shard) for shard in shards]))
        counts = [[] for _ in rows]
        for i, j in itertools.combinations_with_replacement(range(len(rows)), 2):
            sides = grid.part(rows[i]), grid.part(rows[j])
            both = relevance.part(rows[i], rows[j]), relevance.part(rows[j], rows[i])
            how = {"backend": backend, "memory": 10**6, "threads": 2}
            if i == j:
                shard = Shard(sides[0], both[0], 0)
                counts[i].append(count_all_in_shard(sides[0], shard, found[i].levels, limit=limits[i], **how))
                continue
            levels = found[i].levels, found[j].levels
            here, there = count_all_both(sides, both, levels, (limits[i], limits[j]), **how)
            counts[i].append(here)
            counts[j].append(there)
        blocks = [
            dataclasses.replace(
                deep_ranking_of_shards(own, merge_all_counts(parts), unit=grid.unit, limit=within), queries=some
            )
            for some, own, parts, within in zip(rows, found, counts, limits, strict=True)
        ]
        expected = rank(grid, grid, relevance, depth="all", backend="reference", limit=limit)
        assert_same(columns_of(blocks), columns_of(expected), f"{maker}, limit {limit is not None}")


@pytest.mark.parametrize("backend", [name for name in HERE if name != "reference"])
def test_levels_are_counted_in_a_shard_that_is_never_in_memory(backend, monkeypatch):
    rng = np.random.default_rng(9)
    query, gallery = sample(rng, WORLDS["duplicates"], 30), sample(rng, WORLDS["duplicates"], 300, name="other")
    relevance = build_relevance(query, gallery, EvalProtocol())
    own, whole = stream_grid(query.embeddings, gallery.embeddings)
    own, shard = own.load(), Shard(whole, relevance, 0)
    positives = positives_in_shard(own, shard)
    asked = []
    plain = StreamedRows.__getitem__
    monkeypatch.setattr(StreamedRows, "__getitem__", lambda self, of: (asked.append(of), plain(self, of))[1])
    memory = Block.least().bytes(whole.dim)
    found = count_all_in_shard(own, shard, positives.levels, backend=backend, memory=memory)
    assert max(of.stop - of.start for of in asked) == Block.least().part
    expected = rank(own, whole, relevance, depth="all", backend="reference")
    assert_same(columns_of([deep_ranking_of_shards(positives, found, unit=whole.unit)]), columns_of(expected), backend)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize(("queries", "n"), [(0, 5), (0, 0), (5, 0)])
def test_nothing_to_rank_is_no_error(queries, n, depth, backend):
    rows = np.ones((9, 3), np.float32)
    own, whole = to_grid(rows[:queries], rows[:n])
    query, gallery = (EmbeddingSet(rows[:size], ["a"] * size) for size in (queries, n))
    limit = None if depth == "first" else np.zeros(queries, np.int64)
    relevance = build_relevance(query, gallery, EvalProtocol())
    blocks = list(rank(own, whole, relevance, depth=depth, backend=backend, limit=limit))
    assert sum(len(block) for block in blocks) == queries
    assert all((block.n_positives == 0).all() for block in blocks)


def test_a_part_by_radius_is_sent_without_what_was_made_of_it():
    positions = np.random.default_rng(6).uniform(0, 100, (400, 2))
    one = EmbeddingSet(np.ones((400, 2)), None, positions=positions)
    part = build_relevance(one, None, EvalProtocol(relevance="radius", radius=9.0)).part(slice(0, 50), slice(0, 400))
    before = len(pickle.dumps(part))
    expected = part.positive.pairs
    assert len(pickle.dumps(part)) == before
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).positive.pairs, expected)
