"""The counts of every backend against the oracle, and what may never move them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import oracle
from backends_here import HERE
from recallatk.ranking import Block, Grid, Ranking, rank, to_grid
from recallatk.relevance import build_relevance
from recallatk.types import ChoiceError, EmbeddingSet, EvalProtocol, RecallatkError
from worlds import draw_world

DEFAULT = EvalProtocol()
DEPTHS = ("first", "all")
BLOCKS = {
    "one-by-one": Block(1, 1, 1),
    "three-by-two": Block(queries=3, pairs=5, gallery=2),
    "two-by-seven": Block(queries=2, pairs=1000, gallery=7),
    "larger-than-the-data": Block(queries=1000, pairs=10**6, gallery=1000),
}
PER_QUERY = ("best_positive", "near_above", "near_below", "n_positives", "n_candidates", "n_ranked")
PER_LEVEL = ("similarity", "negatives_ahead", "negatives_tied", "positives_tied")

Counts = list[dict[str, object]]

STEPS = 2**52
"""A cosine of 1 in the whole numbers of the oracle."""


def counts(query, gallery=None, protocol=DEFAULT, *, depth="all", backend="reference", **choices) -> Counts:
    """One dict a query: its levels, and its counts, from all blocks."""
    relevance = build_relevance(query, gallery, protocol)
    grids = to_grid(*[side.embeddings for side in (query, gallery) if side is not None])
    found: Counts = []
    for block in rank(grids[0], grids[-1], relevance, depth=depth, backend=backend, **choices):
        assert block.queries.start == len(found), "blocks cover the queries in order"
        for i in range(len(block)):
            levels = zip(
                *(getattr(block, c)[block.starts[i] : block.starts[i + 1]].tolist() for c in PER_LEVEL), strict=True
            )
            found.append({"levels": list(levels), **{c: int(getattr(block, c)[i]) for c in PER_QUERY}})
    assert len(found) == len(query)
    return found


def without(found: Counts, column: str) -> Counts:
    return [{name: value for name, value in row.items() if name != column} for row in found]


def oracle_counts(world, protocol, depth) -> Counts:
    found: Counts = []
    for sims, (positives, ignored) in zip(world.similarities, world.judge(protocol), strict=True):
        levels = oracle.levels(sims, positives, ignored)
        above, below = oracle.near_negatives(sims, positives, ignored) if positives else (0, 0)
        best = next((g for g in range(len(sims)) if g in positives and sims[g] == levels[0][0]), -1)
        cosines = [(steps / STEPS, *others) for steps, *others in levels]  # exact: steps are below 2^53
        found.append(
            {
                "levels": cosines if depth == "all" else cosines[:1],
                **{"best_positive": best, "near_above": above, "near_below": below},
                **{"n_positives": len(positives), "n_candidates": len(sims) - len(ignored)},
                **{"n_ranked": len(sims) - len(ignored)},
            }
        )
    return found


@pytest.mark.parametrize("alone", [False, True], ids=["two-sets", "leave-one-out"])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("backend", HERE)
def test_counts_equal_the_oracle_for_any_block(backend, depth, block, alone):
    for seed in range(24):
        world = draw_world(seed, alone=alone, several=bool(seed % 2))
        protocol = EvalProtocol(
            exclude_self=("id", "content", "none")[seed % 3], ignore_same=("none", "camera")[seed % 2]
        )
        found = counts(world.query, world.gallery, protocol, depth=depth, backend=backend, block=BLOCKS[block])
        assert found == oracle_counts(world, protocol, depth)


def test_the_oracle_and_the_engine_mean_the_same_millionth():
    (grid,) = to_grid(np.eye(2))
    assert grid.near == oracle.NEAR
    assert grid.unit == 1 / STEPS


@pytest.mark.parametrize("backend", HERE)
def test_a_near_tie_ends_at_a_millionth_exactly(backend):
    # Along (1, 2^26) an item (a, b) has the similarity a + 2^26 b; the positive has 0.
    high, low = divmod(oracle.NEAR, 2**26)
    items = [[0, 0], [low, high], [low + 1, high], [-low, -high], [-low - 1, -high], [0, 0]]
    query, gallery = (
        Grid(np.array(rows, np.int32), "cosine", 1 / STEPS, oracle.NEAR) for rows in ([[1, 2**26]], items)
    )
    relevance = build_relevance(EmbeddingSet([[1.0]], ["a"]), EmbeddingSet(np.ones((6, 1)), list("abbbbb")), DEFAULT)
    (block,) = rank(query, gallery, relevance, backend=backend)
    assert (block.near_above.tolist(), block.near_below.tolist()) == ([1], [1])
    assert (block.negatives_ahead.tolist(), block.negatives_tied.tolist()) == ([2], [1])


# What may never move a count


@st.composite
def sets(draw) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Queries and a gallery of whole numbers, so that every dtype holds them; an id names one image on both sides."""
    d = draw(st.integers(1, 4))
    cell = st.integers(0, 3)
    images = draw(
        st.lists(
            st.tuples(st.lists(cell, min_size=d, max_size=d).filter(any), st.sampled_from("abc")),
            min_size=2,
            max_size=12,
        )
    )

    def side(name: str) -> EmbeddingSet:
        rows = draw(st.lists(st.integers(0, len(images) - 1), min_size=1, max_size=10, unique=True))
        return EmbeddingSet(
            np.array([images[r][0] for r in rows], dtype=np.float32),
            [images[r][1] for r in rows],
            ids=[f"x{r}" for r in rows],
            groups={"camera": [str(r % 3) for r in rows]},
            name=name,
        )

    return side("query"), side("gallery")


PROTOCOLS = st.sampled_from(
    [EvalProtocol(), EvalProtocol(exclude_self="none"), EvalProtocol(ignore_same="camera+label")]
)
BACKEND = st.sampled_from(HERE)


@given(sets(), PROTOCOLS, BACKEND, st.integers(1, 12), st.integers(1, 30), st.integers(1, 12), st.sampled_from(DEPTHS))
def test_blocks_do_not_move_a_count(both, protocol, backend, queries, pairs, tile, depth):
    block = Block(queries, pairs, tile)
    assert counts(*both, protocol, depth=depth, block=block, backend=backend) == counts(*both, protocol, depth=depth)


@given(sets(), PROTOCOLS, BACKEND, st.integers(180_000, 10**9))
def test_memory_does_not_move_a_count(both, protocol, backend, memory):
    assert counts(*both, protocol, memory=memory, backend=backend) == counts(*both, protocol)


@given(sets(), PROTOCOLS, BACKEND, st.randoms(use_true_random=False))
def test_row_order_does_not_move_a_count(both, protocol, backend, random):
    query, gallery = both
    orders = [random.sample(range(len(side)), len(side)) for side in both]
    moved = counts(query.take(orders[0]), gallery.take(orders[1]), protocol, backend=backend)
    plain = counts(query, gallery, protocol)
    # The row of the best positive is a row: among equals the first, so only its similarity can be compared.
    assert without(moved, "best_positive") == without([plain[row] for row in orders[0]], "best_positive")
    for row, old in zip(moved, orders[0], strict=True):
        best, was = row["best_positive"], plain[old]["best_positive"]
        assert (best == -1) == (was == -1)
        if was != -1:
            q, g = to_grid(query.embeddings[[old]], gallery.embeddings)
            a, b = (g.rows[i].tolist() for i in (orders[1][best], was))
            assert oracle.similarity(q.rows[0].tolist(), a) == oracle.similarity(q.rows[0].tolist(), b)


@given(sets(), PROTOCOLS, BACKEND, st.data())
def test_powers_of_two_do_not_move_a_count(both, protocol, backend, data):
    scaled = []
    for side in both:
        powers = data.draw(st.lists(st.integers(-120, 120), min_size=len(side), max_size=len(side)))
        scaled.append(
            dataclasses.replace(side, embeddings=side.embeddings * np.exp2(powers).astype(np.float32)[:, None])
        )
    assert counts(*scaled, protocol, backend=backend) == counts(*both, protocol)


@given(sets(), BACKEND, st.sampled_from(["<f2", ">f4", "f8", "g", "i1", "u1", "i4", ">i8", "u8"]))
def test_the_dtype_does_not_move_a_count(both, backend, dtype):
    converted = [dataclasses.replace(side, embeddings=side.embeddings.astype(dtype)) for side in both]
    assert counts(*converted, backend=backend) == counts(*both)


@given(sets(), BACKEND, st.integers(1, 4), st.integers(0, 10))
def test_items_ignored_for_every_query_do_not_move_a_count(both, backend, n, at):
    query = dataclasses.replace(both[0], groups={"person": ["1"] * len(both[0])})
    gallery = dataclasses.replace(both[1], groups={"person": ["2"] * len(both[1])})
    junk = EmbeddingSet(
        query.embeddings[[0] * n],
        query.labels[:1] * n,
        ids=[f"junk{i}" for i in range(n)],
        groups={"person": ["1"] * n},
    )
    at = min(at, len(gallery))
    grown = join(gallery.take(range(at)), junk, gallery.take(range(at, len(gallery))))
    protocol = EvalProtocol(ignore_same="person")
    found, plain = counts(query, grown, protocol, backend=backend), counts(query, gallery, protocol)
    assert without(found, "best_positive") == without(plain, "best_positive")
    rows = [row["best_positive"] for row in plain]
    assert [row["best_positive"] for row in found] == [row + n * (row >= at) for row in rows]


@given(sets(), BACKEND, st.integers(1, 3))
def test_copies_of_an_ignored_item_do_not_move_a_count(both, backend, n):
    query, gallery = both
    shared = [row for row, name in enumerate(gallery.ids) if name in query.ids]
    assume(shared)
    row = shared[0]
    copies = EmbeddingSet(
        gallery.embeddings[[row] * n],
        [gallery.labels[row]] * n,
        ids=[f"copy{i}" for i in range(n)],
        same=[gallery.ids[row]] * n,
        groups={"camera": [gallery.groups["camera"][row]] * n},
    )
    grown = join(dataclasses.replace(gallery, same=gallery.ids), copies)
    q = query.ids.index(gallery.ids[row])
    assert counts(query, grown, backend=backend)[q] == counts(query, gallery)[q]


def join(*sides: EmbeddingSet) -> EmbeddingSet:
    def column(name):
        return sum((getattr(side, name) for side in sides), ())

    return EmbeddingSet(
        np.concatenate([side.embeddings for side in sides]),
        column("labels"),
        ids=column("ids"),
        same=None if sides[0].same is None else column("same"),
        groups={group: sum((side.groups[group] for side in sides), ()) for group in sides[0].groups},
    )


# Large enough for several real blocks


@pytest.mark.parametrize("backend", HERE)
def test_real_blocks_equal_a_plain_product(backend):
    rng = np.random.default_rng(5)
    n_query, n_gallery, d = 1100, 9000, 3
    # Few distinct directions, so that ties are everywhere.
    query, gallery = (rng.integers(-2, 3, size=(n, d)).astype(np.float32) for n in (n_query, n_gallery))
    query[~query.any(axis=1)] = gallery[~gallery.any(axis=1)] = 1
    labels = rng.integers(0, 50, n_query), rng.integers(0, 60, n_gallery)
    rows, columns = to_grid(query, gallery)
    relevance = build_relevance(EmbeddingSet(query, labels[0]), EmbeddingSet(gallery, labels[1]), EvalProtocol())
    whole = join_blocks(rank(rows, columns, relevance, depth="all", backend=backend))
    sims = rows.rows.astype(np.int64) @ columns.rows.astype(np.int64).T
    positive = labels[0][:, None] == labels[1][None, :]
    assert np.array_equal(whole["n_positives"], positive.sum(axis=1))
    for q in range(0, n_query, 7):
        negatives = np.sort(sims[q, ~positive[q]])
        levels, tied = np.unique(sims[q, positive[q]], return_counts=True)
        mine = slice(*whole["starts"][q : q + 2])
        assert np.array_equal(whole["similarity"][mine] * STEPS, levels[::-1])
        assert np.array_equal(whole["positives_tied"][mine], tied[::-1])
        after = len(negatives) - np.searchsorted(negatives, levels[::-1], side="right")
        assert np.array_equal(whole["negatives_ahead"][mine], after)
        level = len(negatives) - np.searchsorted(negatives, levels[::-1], side="left") - after
        assert np.array_equal(whole["negatives_tied"][mine], level)


def join_blocks(blocks) -> dict[str, np.ndarray]:
    blocks: list[Ranking] = list(blocks)
    assert len(blocks) > 2
    joined = {c: np.concatenate([getattr(block, c) for block in blocks]) for c in (*PER_QUERY, *PER_LEVEL)}
    sizes = np.concatenate([np.diff(block.starts) for block in blocks])
    return {**joined, "starts": np.concatenate([[0], np.cumsum(sizes)])}


def test_at_best_gives_zero_where_there_is_no_positive():
    query = EmbeddingSet(np.eye(2), list("az"))
    gallery = EmbeddingSet(np.eye(2), list("aa"))
    grids = to_grid(query.embeddings, gallery.embeddings)
    (block,) = rank(*grids, build_relevance(query, gallery, EvalProtocol()))
    assert block.at_best(block.positives_tied).tolist() == [1, 0]
    assert block.best_positive.tolist() == [0, -1]


def test_an_unknown_backend_is_named():
    query = EmbeddingSet(np.eye(2), list("aa"))
    with pytest.raises(ChoiceError, match="no backend 'gpu'; choose one of: auto, native, numpy, torch, reference"):
        counts(query, backend="gpu")


@pytest.mark.parametrize("memory", [0, 1, 100_000])
def test_too_little_memory_says_how_much_is_needed(memory):
    query = EmbeddingSet(np.eye(2), list("aa"))
    with pytest.raises(RecallatkError, match=f"memory={memory} bytes is too little .* give at least") as error:
        counts(query, memory=memory)
    enough = int(str(error.value).rsplit(maxsplit=1)[1])
    assert counts(query, memory=enough) == counts(query)


@pytest.mark.parametrize("dim", [1, 64, 100_000])
@pytest.mark.parametrize("memory", [2 * 10**8, 10**9, 10**11])
def test_a_block_stays_within_its_memory(memory, dim):
    assert Block.within(memory, dim).bytes(dim) <= memory


@pytest.mark.parametrize("dim", [1, 64, 100_000])
def test_neither_pairs_nor_tiles_starve_the_other(dim):
    memory = 2 * 10**8
    block = Block.within(memory, dim)
    assert memory // 3 < 160 * block.pairs <= memory // 2
    twice = Block(2 * block.queries, block.pairs, 2 * block.gallery)
    assert block.queries == Block.queries or twice.bytes(dim) > memory


# Memory, measured from outside


def peak_memory(n: int, memory: int) -> int:
    """Bytes that evaluating n x n x 64 takes above what is resident once the sets are made."""
    code = f"""
    import resource, sys
    import numpy as np
    from recallatk.evaluation import evaluate_embeddings
    from recallatk.types import EmbeddingSet

    rng = np.random.default_rng(0)
    labels = rng.integers(0, {n} // 10, {n})
    query, gallery = (EmbeddingSet(rng.standard_normal(({n}, 64), dtype=np.float32), labels) for _ in range(2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    evaluate_embeddings(query, gallery, memory={memory})
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each thread of a BLAS has buffers of its own
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=one_thread)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_memory_does_not_grow_with_the_number_of_pairs():
    small, large = (peak_memory(n, memory=100 * 2**20) for n in (10_000, 20_000))
    matrix = 20_000 * 20_000 * 4
    assert large < matrix / 8
    # The pairs grow fourfold (by 1.2 GB as float32); the rows, their grid and their names grow twofold.
    assert large - small < 60 * 2**20
