"""How a ranking is cut for a cluster, without one: any cut and any order of tasks give the counts of one machine."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid_worlds import WORLDS, assert_same, columns_of, sample
from other_engine import MB, AnyOrder
from recallatk.cluster import RankingPlan, rank, rank_blocks_of_scores
from recallatk.ranking import rank as rank_here
from recallatk.ranking import rank_scores, stream_grid
from recallatk.relevance import Relevance, build_relevance
from recallatk.types import EvalProtocol

small = functools.partial(sample, labels=7, d=5)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    maker=st.sampled_from(sorted(WORLDS)),
    similarity=st.sampled_from(["cosine", "dot", "euclidean"]),
    depth=st.sampled_from(["first", "all"]),
    alone=st.booleans(),
    limited=st.booleans(),
)
def test_any_cut_in_any_order(seed, maker, similarity, depth, alone, limited):
    rng = np.random.default_rng(seed)
    query = small(rng, maker, int(rng.integers(1, 40)), name="query")
    gallery = None if alone else small(rng, maker, int(rng.integers(1, 60)))
    protocol = EvalProtocol(ignore_same="camera+label", similarity=similarity)
    relevance = build_relevance(query, gallery, protocol)
    sets = [query.embeddings] if gallery is None else [query.embeddings, gallery.embeddings]
    grids = stream_grid(*sets, similarity=similarity)
    limit = rng.integers(1, 20, len(query)) if limited and depth == "all" else None
    expected = columns_of(rank_here(grids[0], grids[-1], relevance, depth=depth, limit=limit, backend="reference"))
    block, shard = (int(rng.integers(-(-n // 4), n + 1)) for n in (len(query), relevance.n_gallery))
    plan = RankingPlan(shard if alone else block, shard, 500 * MB, 0)
    choices = {"engine": AnyOrder(rng), "depth": depth, "limit": limit, "plan": plan, "backend": "numpy"}
    blocks = list(rank(grids[0], grids[-1], relevance, **choices))
    assert_same(columns_of(blocks), expected, f"{maker}, blocks of {plan.block}, shards of {plan.shard}")
    kept = int(rng.integers(0, len(blocks) + 1))  # as after a run that was interrupted behind so many blocks
    start = blocks[kept].queries.start if kept < len(blocks) else len(query)
    rest = rank(grids[0], grids[-1], relevance, **choices, start=start)
    assert_same(columns_of([*blocks[:kept], *rest]), expected, f"{maker}, from query {start}")


@pytest.mark.parametrize("depth", ["first", "all"])
def test_scores_of_somebody_else(depth):
    rng = np.random.default_rng(5)
    query, gallery = small(rng, "duplicates", 30, name="query"), small(rng, "duplicates", 50)
    relevance = build_relevance(query, gallery, EvalProtocol())
    scores = np.round(rng.normal(size=(30, 50)), 1)
    expected = columns_of(rank_scores(scores, relevance, depth=depth))
    engine, told = AnyOrder(rng), []
    engine.told = lambda *steps: told.append(steps)
    found = columns_of(rank_blocks_of_scores(scores, relevance, engine=engine, depth=depth, queries=7))
    assert_same(found, expected, "scores")
    assert told == [(0, 5)]  # said once, so that progress never has another end


@pytest.mark.parametrize("depth", ["first", "all"])
def test_pairs_of_a_mapped_gallery_are_counted_once_for_all_blocks(depth, tmp_path, monkeypatch):
    rng = np.random.default_rng(6)
    query, gallery = small(rng, "duplicates", 40, name="query"), small(rng, "duplicates", 60)
    relevance = build_relevance(query, gallery, EvalProtocol())
    np.save(tmp_path / "gallery.npy", gallery.embeddings)
    grids = stream_grid(query.embeddings, np.load(tmp_path / "gallery.npy", mmap_mode="r"), similarity="cosine")
    expected = columns_of(rank_here(*grids, relevance, depth=depth, backend="reference"))
    asked = []
    pairs = Relevance.pairs.fget
    counted = property(lambda relevance: asked.append(relevance) or pairs(relevance))
    monkeypatch.setattr(Relevance, "pairs", counted)
    plan = RankingPlan(10, 20, 500 * MB, 0)
    found = columns_of(rank(*grids, relevance, engine=AnyOrder(rng), depth=depth, plan=plan, backend="numpy"))
    assert_same(found, expected, "a mapped gallery")
    whole = [one for one in asked if one is relevance]
    assert len(whole) <= 2  # by the first pass once, and where blocks are cut by them
