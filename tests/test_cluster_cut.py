"""How a ranking is cut for a cluster, without one: any cut and any order of tasks give the counts of one machine."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grid_worlds import WORLDS, assert_same, columns_of, sample
from other_engine import MB, AnyOrder
from recallatk.cluster import RankingPlan, rank, rank_blocks_of_scores
from recallatk.embeddings import read_matrix
from recallatk.evaluation import evaluate_scores
from recallatk.ranking import rank as rank_here
from recallatk.ranking import rank_scores, stream_grid
from recallatk.relevance import Relevance, build_relevance
from recallatk.run import measure_score_files, score_matrix
from recallatk.run.kept import Kept, keeping
from recallatk.types import ChoiceError, EvalProtocol, RecallatkError, SampleSet

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


@pytest.mark.parametrize("shape", [(5, 4), (3, 4), (4, 5), (4, 3), (4,), (4, 4, 1), (0, 4), ()])
def test_scores_of_other_samples_are_the_line_of_one_machine(shape, tmp_path):
    np.save(tmp_path / "scores.npy", np.ones(shape, np.float32))
    samples = SampleSet(["a", "a", "b", "b"])
    with pytest.raises(RecallatkError) as here:
        score_matrix(tmp_path / "scores.npy", samples)
    there = functools.partial(rank_blocks_of_scores, engine=AnyOrder(np.random.default_rng(0)))
    keep, scores = keeping(Kept(str(tmp_path / "kept")), []), read_matrix(tmp_path / "scores.npy")
    with pytest.raises(RecallatkError) as found:
        evaluate_scores(scores, samples, rank_scores=there, keep=keep)
    assert str(found.value) == str(here.value)
    assert "4 queries and 4 gallery items need (4, 4)" in str(here.value)
    (tmp_path / "labels.txt").write_text("a\na\nb\nb\n")
    files = {"scores": tmp_path / "scores.npy", "query_labels": tmp_path / "labels.txt"}
    with pytest.raises(RecallatkError, match=re.escape(str(here.value))):  # --dry-run
        measure_score_files(files, qrels=None, protocol=EvalProtocol())


def test_what_cannot_be_ranked_is_refused_before_a_block_is_asked_for():
    rows = small(np.random.default_rng(0), "duplicates", 9)
    grid = stream_grid(rows.embeddings, similarity="cosine")[0]
    relevance = build_relevance(rows, None, EvalProtocol())
    for choices in ({"threads": 0}, {"threads": -1}, {"backend": "reference"}):
        with pytest.raises(ChoiceError):
            rank(grid, grid, relevance, engine=AnyOrder(np.random.default_rng(0)), **choices)


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
