"""What the adapter for OpenMMLab makes of its arguments, from numpy arrays and lists alone; no torch is needed."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import oracle
from recallatk.evaluation.queries import Positions, tally_lists, tally_scores
from recallatk.integrations.openmmlab_inputs import identity_of, read_cutoffs, tally, tally_samples
from recallatk.types import RecallatkError

NAMES = ("recall@1", "recall@3", "map@4", "map_trapezoid@4", "map")
TIES = ("expected", "pessimistic", "optimistic")
FORMS = [(pred, target) for pred in ("scores", "lists") for target in ("marks", "positions")]


def draw(seed: int):
    """Scores with ties, and the relevant positions of each query, some without any."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 6)), int(rng.integers(4, 8))
    scores = rng.integers(-2, 3, size=(n, m)).astype(rng.choice([np.float16, np.float32, np.float64, np.int16]))
    return scores, [np.flatnonzero(rng.random(m) < 0.3) for _ in range(n)]


@pytest.mark.parametrize("seed", range(30))
def test_scores_give_the_values_of_the_oracle(seed):
    scores, relevant = draw(seed)
    doubled = [np.concatenate([row[::-1], row]) for row in relevant]  # in any order, and twice
    marks = np.array([np.isin(np.arange(scores.shape[1]), row) for row in relevant]) * -0.5
    for given in (Positions.of(relevant), Positions.of(doubled), Positions.marked(marks)):
        columns = tally_scores(scores, given, NAMES)
        for name in NAMES:
            metric, _, k = name.partition("@")
            for ties in TIES:
                expected = [
                    float(oracle.value(metric, row.tolist(), set(wanted.tolist()), k=int(k) if k else None, ties=ties))
                    if len(wanted)
                    else 0.0
                    for row, wanted in zip(scores.astype(np.float64), relevant, strict=True)
                ]
                assert columns.values[name, ties] == pytest.approx(expected, abs=1e-12), (name, ties)
        assert columns.counts["n_positives"].tolist() == [len(row) for row in relevant]


@pytest.mark.parametrize("seed", range(30))
def test_lists_give_the_values_counted_one_by_one(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    lists = [rng.integers(-3, 6, size=rng.integers(0, 8)) for _ in range(n)]  # with repeated items
    relevant = [rng.integers(-3, 9, size=rng.integers(0, 5)) for _ in range(n)]
    columns = tally_lists(Positions.of(lists), Positions.of(relevant), NAMES)
    for query, (row, wanted) in enumerate(zip(lists, relevant, strict=True)):
        wanted = set(wanted.tolist())
        seen: set[int] = set()
        found, precisions, areas = [], [], []
        for rank, item in enumerate(row.tolist(), start=1):
            if item in wanted - seen:
                found.append(rank)
                precisions.append(len(found) / rank)
                areas.append((precisions[-1] + ((len(found) - 1) / (rank - 1) if rank > 1 else 1)) / 2)
            seen.add(item)
        up_to_4 = sum(rank <= 4 for rank in found)
        expected = (
            float(any(rank <= 1 for rank in found)),
            float(any(rank <= 3 for rank in found)),
            sum(precisions[:up_to_4]) / max(len(wanted), 1),
            sum(areas[:up_to_4]) / max(len(wanted), 1),
            sum(precisions) / max(len(wanted), 1),
        )
        for ties in TIES:
            assert [columns.values[name, ties][query] for name in NAMES] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("pred", "target"), FORMS)
def test_every_pair_of_forms_says_the_same(pred, target):
    scores = np.array([[0.7, 0.0, 0.3, 0.9], [0.5, 0.2, 0.4, 0.3]])
    lists = [[3, 0, 2, 1], [0, 2, 3, 1]]
    marks = [[0, 0, 1, 0], [0, 2, 1, 0]]
    columns = tally(
        scores if pred == "scores" else lists,
        marks if target == "marks" else [[2], [1, 2]],
        3,
        ["recall@1", "recall@2", "recall@3", "map@3"],
        pred_indices=pred == "lists",
        target_indices=target == "positions",
        empty_lists=False,
    )
    values = [columns.values[name, "expected"].tolist() for name in ("recall@1", "recall@2", "recall@3", "map@3")]
    assert values == [[0, 0], [0, 1], [1, 1], [1 / 3, 1 / 4]]
    assert lists == [[3, 0, 2, 1], [0, 2, 3, 1]]


def test_class_ids_in_place_of_marks_get_an_error_that_says_what_to_pass():
    with pytest.raises(RecallatkError, match=r"query_labels\[:, None\] == gallery_labels\[None\]"):
        tally(
            np.eye(3),
            np.array([2, 0, 1]),
            1,
            ["recall@1"],
            pred_indices=False,
            target_indices=False,
            empty_lists=False,
        )


def test_cutoffs_in_every_form():
    for topk in (2, np.int64(2), (2,), [2], range(2, 3), {2}, np.array([2]), np.array(2), iter([2])):
        assert read_cutoffs(topk) == (2,)


def test_samples_of_a_batch_are_named_by_their_place():
    good = {"pred_score": np.array([0.5, 0.1]), "gt_label": 1}
    with pytest.raises(RuntimeError, match="sample 12: `gt_label` names gallery item 2"):
        list(tally_samples([good, good, {**good, "gt_label": 2}], 10, 1, ["recall@1"]))


def test_a_sample_is_known_by_all_its_fields_that_say_who_it_is():
    assert identity_of({"sample_idx": 3, "img_path": "a.jpg"}) == ("sample_idx=3", "img_path=a.jpg")
    assert identity_of({"sample_idx": 0}) == ("sample_idx=0",)
    assert identity_of({"pred_score": 1}) is None


def test_nothing_of_a_framework_is_imported():
    code = "import sys, recallatk.integrations.openmmlab_inputs; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "mmengine", "mmpretrain"} & set(done.stdout.split())
