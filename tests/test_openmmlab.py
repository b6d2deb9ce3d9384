"""The metrics for OpenMMLab: mmpretrain's values where they are sound; evaluators, runners, several processes."""

from __future__ import annotations

import doctest
import importlib.util
import json
import logging.handlers
import os
import pickle
import re
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from casebank_runner import ADAPTER_KIND, CASES, NotUnderstoodError, iter_checks
from recallatk.types import ChoiceError, RecallatkError

PROJECT = Path(__file__).parents[1]
CONFORMANCE = CASES.parent / "conformance" / "mmpretrain_cases.json"

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore")]  # mmengine's own
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="make test-integrations installs it")
    pytest.importorskip("mmengine.evaluator", reason="make test-integrations installs it")
    from mmengine.evaluator import Evaluator
    from mmengine.logging import MMLogger
    from mmengine.registry import DefaultScope
    from mmengine.structures import BaseDataElement

    from recallatk.integrations.openmmlab import RetrievalAveragePrecision, RetrievalRecall
    from recallatk.integrations.openmmlab_inputs import NoQueriesError

METRICS = {"RetrievalRecall": RetrievalRecall, "RetrievalAveragePrecision": RetrievalAveragePrecision}
BOTH = {"pred_indices": True, "target_indices": True}


@pytest.fixture(scope="module")
def theirs():
    """mmpretrain's two classes, from the installed package."""
    if importlib.util.find_spec("mmpretrain") is None:
        pytest.skip("make test-integrations installs mmpretrain")
    spec = importlib.util.spec_from_file_location("openmmlab_benchmark", PROJECT / "benchmarks" / "openmmlab.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    return benchmark.load_theirs()


def numbers(result: Any) -> Any:
    return [float(value) for value in result] if isinstance(result, list) else float(result)


# --- values and errors that were measured


def with_nan(values: Any) -> Any:
    return [with_nan(value) for value in values] if isinstance(values, list) else np.nan if values is None else values


def rows(values: list[Any], kind: Any) -> list[Any]:
    return [{} if row is None else kind(row) for row in values]


KINDS = {
    "dict": lambda data: {},
    "none": lambda data: None,
    "list": lambda data: data,
    "list_with_dict": lambda data: rows(data, list),
    "list_of_int_ndarray": lambda data: rows(data, np.array),
    "list_of_int_ndarray_with_dict": lambda data: rows(data, np.array),
    "list_of_float_tensor": lambda data: rows(data, lambda row: torch.tensor(row, dtype=torch.float32)),
    "ndarray_f64": lambda data: np.array(with_nan(data), dtype=np.float64),
    "ndarray_i64": lambda data: np.array(data, dtype=np.int64),
    "tensor_f32": lambda data: torch.tensor(with_nan(data), dtype=torch.float32),
    "tensor_i64": lambda data: torch.tensor(data, dtype=torch.int64),
    "tensor_bool": lambda data: torch.tensor(data).bool(),
}

# Where ours is another answer on purpose: a value, or an error and what it says.
ON_PURPOSE = {
    "E07": (RecallatkError, "no samples"),
    "E11": {"retrieval/Recall@1": 100.0},
    "R36": (RecallatkError, "row 0 holds NaN"),
    "R37": (RecallatkError, "4 columns .* 3 gallery items"),
    "R39": (RecallatkError, "no queries"),
    "A20": 0.0,
    "A23": 100.0,
    "A24": 100.0,
}
TIED = {"E18"}


def measured() -> list[Any]:
    if not CONFORMANCE.is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no measured cases at {CONFORMANCE}"))]
    found = json.loads(CONFORMANCE.read_text("utf-8"))
    return [pytest.param(case, id=case["id"]) for case in (*found["calculate"], *found["evaluate"])]


def run_measured(case: dict[str, Any], **choices: Any) -> Any:
    metric = METRICS[case["call"].split(".")[0]]
    if "samples" in case:
        made = metric(case["topk"], **case["init"], **choices)
        for sample in case["samples"]:
            made.process(None, [{key: torch.tensor(v) if key.endswith("score") else v for key, v in sample.items()}])
        return made.evaluate(case["size"])
    data = (KINDS[case[name]["kind"]](case[name].get("data")) for name in ("pred", "target"))
    flags = {key: case[key] for key in ("pred_indices", "target_indices", "mode") if key in case}
    return numbers(metric.calculate(*data, case["topk"], **flags, **choices))


@pytest.mark.parametrize("case", measured())
def test_what_was_measured_of_mmpretrain(case):
    expected = ON_PURPOSE.get(case["id"], case.get("expected"))
    if isinstance(expected, tuple):
        with pytest.raises(expected[0], match=expected[1]):
            run_measured(case)
    elif expected is None:
        with pytest.raises(__builtins__[case["raises"]["type"]], match=case["raises"].get("match")) as error:
            run_measured(case)
        assert type(error.value).__name__ == case["raises"]["type"]
    elif case["id"] in TIED:
        low, high = (run_measured(case, ties=ties) for ties in ("pessimistic", "optimistic"))
        assert all(low[key] <= value <= high[key] for key, value in expected.items())
        assert low != high
    else:
        assert run_measured(case) == pytest.approx(expected, rel=1e-14, abs=0)


@pytest.mark.parametrize(
    ("case", "check"),
    [
        pytest.param(case, check, id=check["check"])
        for _, case, check in (iter_checks() if (CASES / "casebank.py").is_file() else ())
        if case["kind"] == ADAPTER_KIND
    ],
)
def test_acceptance_case(case, check):
    settings = dict(check["with"])
    call = settings.pop("call")
    if call == "calculate":
        given = pickle.dumps((settings["pred"], settings["target"]))
        got = dict(zip(check["values"], numbers(RetrievalRecall.calculate(**settings)), strict=True))
        assert pickle.dumps((settings["pred"], settings["target"])) == given
        settings = {}
    elif call.startswith("process, evaluate("):
        metric = RetrievalRecall(settings.pop("topk"))
        n = len(settings["pred_score"])
        sizes = [int(size) for size in re.findall(r"\d+", settings.pop("split", str(n)))]
        samples = samples_of(settings)
        for size in sizes:
            metric.process(None, samples[:size])
            samples = samples[size:]
        got = metric.evaluate(int(re.search(r"\d+", call)[0]))
        settings = {}
    elif call == "process(first), evaluate(1), process(second), evaluate(1)":
        metric, got = RetrievalRecall(settings.pop("topk")), {}
        for epoch in ("first", "second"):
            metric.process(None, samples_of(settings.pop(epoch)))
            (got[epoch],) = metric.evaluate(1).values()
    else:
        raise NotUnderstoodError(call)
    assert not settings
    assert got == pytest.approx(check["values"], abs=check["tolerance"])


def samples_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {field: torch.tensor(v) if field.endswith("score") else v for field, v in zip(columns, row, strict=True)}
        for row in zip(*columns.values(), strict=True)
    ]


# --- what mmpretrain's own tests ask of its metrics


TEN = np.linspace(0.95, 0.05, 10)
MARKS = torch.tensor([[1, 0, 1, 0, 0, 1, 0, 0, 1, 1], [0, 1, 0, 0, 1, 0, 1, 0, 0, 0]])
SIX = torch.tensor([[0.7, 0, 0.3], [0.5, 0.2, 0.3], [0.4, 0.5, 0.1], [0, 0, 1], [0, 0, 1], [0, 0, 1]])
LABELS = [[0], [0, 1], [1], [2], [1, 2], [0, 1]]


def six(kind: Any = dict) -> list[Any]:
    return [kind(pred_score=score, gt_label=label) for score, label in zip(SIX, LABELS, strict=True)]


class DataSample(BaseDataElement):
    """What mmpretrain's is, but for its setters."""


@pytest.mark.parametrize("kind", [dict, lambda **fields: DataSample(metainfo={"sample_idx": 0}, **fields)])
def test_an_evaluator_built_from_a_config_takes_dicts_and_data_samples(kind):
    evaluator = Evaluator({"type": "recallatk.RetrievalRecall", "topk": 1})
    evaluator.process(six(kind))
    assert evaluator.evaluate(6) == {"retrieval/Recall@1": pytest.approx(500 / 6, abs=1e-12)}
    assert isinstance(evaluator.metrics[0], RetrievalRecall)
    direct = RetrievalRecall()
    direct.process(None, six(kind))
    assert direct.evaluate(6) == {"retrieval/Recall@1": pytest.approx(500 / 6, abs=1e-12)}


def test_data_samples_of_mmpretrain_itself(theirs):
    from mmpretrain.structures import DataSample as Theirs

    samples = [Theirs().set_pred_score(score).set_gt_label(label) for score, label in zip(SIX, LABELS, strict=True)]
    for metric in METRICS.values():
        found = []
        for given in (samples, [sample.to_dict() for sample in samples]):
            made = metric(2)
            made.process(None, given)
            found.append(made.evaluate(6))
        assert found[0] == found[1]
        evaluator = Evaluator(metric(2))
        assert evaluator.offline_evaluate(samples, chunk_size=4) == found[0]
    recall = RetrievalRecall()
    recall.process(None, samples)
    assert recall.evaluate(6) == {"retrieval/Recall@1": pytest.approx(500 / 6)}


def test_galleries_of_several_sizes_in_one_batch_stay_apart():
    samples = [
        {"pred_score": torch.arange(n).double() if n % 2 else torch.arange(n), "gt_label": [n - 1 - n % 3]}
        for n in (5, 5, 7, 6, 5, 8)
    ]
    together, alone = RetrievalRecall((1, 2, 3)), RetrievalRecall((1, 2, 3))
    together.process(None, samples)
    for sample in samples:
        alone.process(None, [sample])
    assert together.results == alone.results
    assert [result.values["expected"] for result in alone.results[:4]] == [(0, 0, 1), (0, 0, 1), (0, 1, 1), (1, 1, 1)]


@pytest.mark.parametrize("name", METRICS)
def test_the_scope_is_found_under_another_default_scope(name):
    with DefaultScope.overwrite_default_scope("mmengine"):
        assert isinstance(Evaluator({"type": f"recallatk.{name}", "topk": 2}).metrics[0], METRICS[name])


def test_building():
    assert RetrievalRecall().topk == (1,)
    assert RetrievalRecall(5).topk == (5,)
    assert RetrievalRecall((1, 2, 5)).topk == RetrievalRecall([1, 2, 5]).topk == (1, 2, 5)
    assert RetrievalRecall(np.array([1, 2])).topk == RetrievalRecall(torch.tensor([1, 2])).topk == (1, 2)
    for wrong in (-1, 0, (1, 0)):
        with pytest.raises(ValueError, match="`topk` must be a"):
            RetrievalRecall(wrong)
    for wrong in ((1, 2.5), 1.0, "1", None):
        with pytest.raises(TypeError, match="whole number"):
            RetrievalRecall(wrong)
    with pytest.raises(ValueError, match="at least one"):
        RetrievalRecall(())
    for wrong in (-1, None):
        with pytest.raises(ValueError, match="`topk` must be a"):
            RetrievalAveragePrecision(wrong)
    with pytest.raises(TypeError):
        RetrievalAveragePrecision((1, 5))
    with pytest.raises(AssertionError, match="Invalid `mode`"):
        RetrievalAveragePrecision(5, mode="m")
    with pytest.raises(ChoiceError, match="expected, pessimistic, optimistic"):
        RetrievalRecall(ties="random")
    with pytest.raises(TypeError):
        RetrievalRecall(collect_dir="x")


def test_average_precision_over_data_samples_and_its_size():
    metric = RetrievalAveragePrecision(10)
    samples = [DataSample(pred_score=torch.tensor(TEN), gt_score=marks) for marks in MARKS]
    metric.process(None, samples)
    assert metric.evaluate(2) == {"retrieval/mAP@10": pytest.approx(53.25396825396825)}
    metric.process(None, samples)
    first = 100 * (1 / 1 + 2 / 3 + 3 / 6 + 4 / 9 + 5 / 10) / 5
    assert metric.evaluate(1) == {"retrieval/mAP@10": pytest.approx(first)}
    metric = RetrievalAveragePrecision(10, mode="integrate")
    metric.process(None, samples)
    assert metric.evaluate(2) == {"retrieval/mAP@10": pytest.approx(45.08531746031746)}


# --- beside mmpretrain itself


SCORES = {
    "float32": lambda s: s,
    "float64": lambda s: s.double(),
    "numpy": lambda s: s.numpy(),
    "with a gradient": lambda s: s.clone().requires_grad_(),
    "int64": lambda s: (s * 1000).long(),
    "transposed": lambda s: s.T.contiguous().T,
}
TARGETS = {
    "bool": (lambda m: m, {}),
    "int64": (lambda m: m.long(), {}),
    "float": (lambda m: m.float() * -0.5, {}),
    "numpy": (lambda m: m.numpy(), {}),
    "nested lists": (lambda m: m.long().tolist(), {}),
    "lists": (lambda m: [row.nonzero().flatten().tolist() for row in m], {"target_indices": True}),
    "arrays": (lambda m: [row.nonzero().flatten().numpy() for row in m], {"target_indices": True}),
    "tensors in a tuple": (lambda m: tuple(row.nonzero().flatten() for row in m), {"target_indices": True}),
}


def draw(seed: int) -> tuple[Any, Any]:
    """Distinct scores of any sign, and marks with some rows empty."""
    generator = torch.Generator().manual_seed(seed)
    n, m = 1 + seed % 9, 12 + 40 * (seed % 4)
    order = torch.rand(n, m, generator=generator).argsort(dim=1)
    return (order.float() - m // 2) / 8, torch.rand(n, m, generator=generator) < [0.02, 0.1, 0.5][seed % 3]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("score", SCORES)
def test_distinct_scores_give_their_values_to_the_last_bit(theirs, score, target, seed):
    scores, marks = draw(seed)
    form, flags = TARGETS[target]
    for topk in (1, (1, 5, 10), [12, 3, 3]):
        given = SCORES[score](scores), form(marks), topk
        ours, expected = (metric.calculate(*given, **flags) for metric in (RetrievalRecall, theirs.RetrievalRecall))
        assert numbers(ours) == numbers(expected)
        assert [(v.shape, v.dtype, v.requires_grad) for v in ours] == [(v.shape, v.dtype, False) for v in expected]


@pytest.mark.parametrize("seed", range(60))
def test_their_value_of_equal_scores_lies_between_ours(theirs, seed):
    scores, marks = draw(seed)
    scores = (scores / 3).round()
    theirs_at = numbers(theirs.RetrievalRecall.calculate(scores, marks, (1, 2, 5, 12)))
    low, mean, high = (
        numbers(RetrievalRecall.calculate(scores, marks, (1, 2, 5, 12), ties=ties))
        for ties in ("pessimistic", "expected", "optimistic")
    )
    for values in (theirs_at, mean):
        assert all(a <= value <= b for a, value, b in zip(low, values, high, strict=True))


@pytest.mark.parametrize("seed", range(40))
def test_ranked_lists_of_any_form_and_length_give_their_values(theirs, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    lists = [rng.integers(-2, 15, size=rng.integers(1, 9)).tolist() for _ in range(n)]  # with repeated items
    wanted = [rng.integers(-2, 15, size=rng.integers(0, 4)).tolist() for _ in range(n)]
    forms = [list, np.array, torch.tensor, lambda row: torch.tensor(row).float(), lambda row: np.array(row, np.int32)]
    lists = [forms[rng.integers(5)](row) for row in lists]
    before = pickle.dumps(lists)
    ours = RetrievalRecall.calculate(lists, wanted, (1, 3, 20), **BOTH)
    assert pickle.dumps(lists) == before
    expected = theirs.RetrievalRecall.calculate(lists, wanted, (1, 3, 20), **BOTH)  # cuts the lists
    assert numbers(ours) == numbers(expected)


@pytest.mark.parametrize("mode", ["IR", "integrate"])
@pytest.mark.parametrize("seed", range(20))
def test_average_precision_gives_their_values(theirs, seed, mode):
    scores, marks = draw(seed)
    marks[:, 3] = True  # theirs divides by zero without any
    wanted = [row.nonzero().flatten().tolist() for row in marks]
    lists = [row.argsort(descending=True).tolist() for row in scores]
    for k in (1, 4, 12):
        for pred, target, flags in (
            (scores, marks, {}),
            (scores, wanted, {"target_indices": True}),
            (lists, marks, {"pred_indices": True}),
            (lists, wanted, BOTH),
        ):
            ours, expected = (
                metric.calculate(list(pred) if pred is lists else pred, target, k, mode=mode, **flags)
                for metric in (RetrievalAveragePrecision, theirs.RetrievalAveragePrecision)
            )
            assert ours == expected  # to the last bit
            assert type(ours) is type(expected)


def test_average_precision_to_the_last_bit_without_mmpretrain():
    """mmpretrain's own test of `calculate` asks for exactly these doubles."""
    lists = [list(range(10))] * 2, [[0, 2, 5, 8, 9], [1, 4, 6]]
    assert RetrievalAveragePrecision.calculate(*lists, 10, True, True).item() == 53.25396825396825
    scores = np.array([TEN] * 2)
    assert RetrievalAveragePrecision.calculate(scores, MARKS, 10).item() == 53.25396825396825
    assert RetrievalAveragePrecision.calculate(scores, MARKS, topk=5).item() == 31.666666666666664
    assert RetrievalAveragePrecision.calculate(scores, MARKS, topk=5, mode="integrate").item() == 25.416666666666664


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.uint8, torch.int8])
def test_small_dtypes(theirs, dtype):
    scores = torch.stack([torch.randperm(100) for _ in range(20)]).to(dtype)
    marks = torch.rand(20, 100) < 0.05
    both = [numbers(m.calculate(scores, marks, (1, 10))) for m in (RetrievalRecall, theirs.RetrievalRecall)]
    assert both[0] == both[1]


def test_samples_of_an_evaluator_give_their_values(theirs):
    scores, marks = draw(3)
    both = []
    for metric in (RetrievalRecall((1, 5)), theirs.RetrievalRecall((1, 5))):
        metric.process(
            None,
            [
                {"pred_score": score, "gt_label": row.nonzero().flatten()}
                for score, row in zip(scores, marks, strict=True)
            ],
        )
        both.append(metric.evaluate(len(scores)))
    assert both[0] == both[1]


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "flags", "error", "words"),
    [
        ((SIX, torch.zeros(6, 2), 1), {}, RecallatkError, "2 columns .* 3 gallery items"),
        ((SIX, torch.tensor([0, 0, 1, 2, 1, 0]), 1), {}, RecallatkError, "query_labels.*target_indices=True"),
        ((SIX, [0, 0, 1, 2, 1, 0], 1), {}, RecallatkError, "query_labels.*target_indices=True"),
        ((SIX, [0, 0, 1, 2, 1, 0], 1), {"target_indices": True}, AssertionError, "`target` should be .* row 0"),
        ((SIX, [[0], [3], [0], [0], [0], [0]], 1), {"target_indices": True}, RuntimeError, "query 1 names .* item 3"),
        ((SIX, LABELS, 1), {}, ValueError, "different lengths.*target_indices=True"),
        ((SIX, "abc", 1), {}, TypeError, "`target`"),
        ((SIX[0], LABELS, 1), {"target_indices": True}, RecallatkError, "gallery items"),
        ((SIX > 0.5, LABELS, 1), {"target_indices": True}, TypeError, "bool"),
        ((torch.where(SIX == 1, torch.nan, SIX), MARKS[:1], 1), {}, AssertionError, "Length of `pred`"),
        ((torch.where(SIX == 1, torch.nan, SIX), SIX > 2, 1), {}, RecallatkError, "row 3 holds NaN"),
        ((torch.zeros(0, 3), torch.zeros(0, 3), 1), {}, NoQueriesError, "no queries"),
        ((torch.zeros(2, 0), torch.zeros(2, 0), 1), {}, RuntimeError, "selected index k"),
        (([["a"]], [[0]], 1), BOTH, AssertionError, "`pred` should be"),
        (([np.array(["a"])], [[0]], 1), BOTH, TypeError, "whole numbers"),
        (([np.array([0.5])], [[0]], 1), BOTH, RecallatkError, "holds 0.5"),
        (([np.zeros((2, 2))], [[0]], 1), BOTH, AssertionError, "one-dimensional"),
        (([[1], []], [[0], [1]], 1), BOTH, ValueError, "query 1 is empty"),
        (([torch.tensor([torch.inf])], [[0]], 1), BOTH, RecallatkError, "holds inf"),
        (([[0, 1]], [np.array([True, False])], 1), BOTH, TypeError, "row 0 holds booleans"),
        (([0, 1], [[0], [1]], 1), BOTH, AssertionError, "`pred` should be .* row 0 is of type int"),
        (([{1}], [[0]], 1), BOTH, AssertionError, "`pred` should be"),
    ],
)
def test_bad_arguments_get_one_line(arguments, flags, error, words):
    with pytest.raises(error, match=words) as raised:
        RetrievalRecall.calculate(*arguments, **flags)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("sample", "error", "words"),
    [
        ({"gt_label": 0}, KeyError, "sample 0 has no `pred_score`"),
        ({"pred_score": SIX[0]}, KeyError, "neither `gt_score` nor `gt_label`"),
        ({"pred_score": SIX[0], "gt_label": 3}, RuntimeError, "sample 0: `gt_label` names gallery item 3, .* 0 to 2"),
        ({"pred_score": SIX[0], "gt_label": [-1]}, RuntimeError, "gallery item -1"),
        ({"pred_score": SIX[0], "gt_label": [0.9]}, AssertionError, "whole numbers"),
        ({"pred_score": SIX[0], "gt_label": "0"}, TypeError, "sample 0: `gt_label`"),
        ({"pred_score": SIX[0], "gt_label": {0}}, TypeError, "sample 0: `gt_label` is of type set"),
        ({"pred_score": SIX[0], "gt_label": torch.zeros(1, 1)}, AssertionError, "one-dimensional"),
        ({"pred_score": SIX[0], "gt_score": [1, 0]}, RecallatkError, "sample 0: `gt_score`"),
        ({"pred_score": SIX, "gt_label": 0}, TypeError, "1-D"),
        ({"pred_score": [1, 2], "gt_label": 0}, TypeError, "1-D"),
        ({"pred_score": SIX[0] * torch.nan, "gt_label": 0}, RecallatkError, "sample 0: `pred_score` holds NaN"),
        (SIX[0], TypeError, "a list of dicts or DataSample"),
    ],
)
def test_bad_samples_get_one_line(sample, error, words):
    with pytest.raises(error, match=words):
        RetrievalRecall().process(None, [sample])


@pytest.mark.parametrize("label", [0, np.int64(0), [0, 0], (0,), np.array([0], np.int32), torch.tensor(0), range(1)])
def test_every_form_of_a_label(label):
    metric = RetrievalRecall()
    metric.process(None, [{"pred_score": SIX[0], "gt_label": label}])
    assert metric.evaluate(1) == {"retrieval/Recall@1": 100.0}


@pytest.mark.parametrize("metric", [RetrievalRecall(1), RetrievalAveragePrecision(1)])
def test_samples_may_come_from_an_iterator(metric):
    metric.process(None, ({"pred_score": score, "gt_label": [0]} for score in SIX[:2]))
    assert list(metric.evaluate(2).values()) == [100.0]


def test_what_ties_misses_and_lost_samples_can_do_is_logged():
    handler = logging.handlers.BufferingHandler(100)
    logger = MMLogger.get_current_instance()
    logger.addHandler(handler)
    metric = RetrievalRecall((1, 2))
    metric.process(None, [{"pred_score": torch.tensor([1.0, 1, 0]), "gt_label": label} for label in (0, [])])
    assert metric.evaluate(3) == {"retrieval/Recall@1": 25.0, "retrieval/Recall@2": 50.0}
    logger.removeHandler(handler)
    said = "\n".join(record.getMessage() for record in handler.buffer)
    assert "1 query has no relevant gallery item and counts as a miss" in said
    assert "Recall@1: equal scores can move it from 0.0000 to 50.0000; ties='expected' gives 25.0000" in said
    assert "Recall@2" not in said
    assert "2 samples were processed, and the data set has 3" in said


def test_without_mmengine_the_import_says_what_to_install():
    code = "import sys; sys.modules['mmengine'] = None; import recallatk.integrations.openmmlab"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "recallatk.integrations.openmmlab needs mmengine: pip install 'recallatk[openmmlab]'"
    )


# --- several processes


RANKS = """
import json, logging, os, sys
import torch
from mmengine.dataset import DefaultSampler
from recallatk.integrations.openmmlab import RetrievalAveragePrecision, RetrievalRecall

rank, world, meet = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"] = str(rank), str(world), "0"
torch.distributed.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=world)
scores = torch.rand(7, 9, generator=torch.Generator().manual_seed(1))
labels = [[i % 4, (i + 3) % 9] for i in range(7)]
N = len(labels)
each = -(-N // world)
runs = [(i % N) for i in range(each * world)][rank * each:(rank + 1) * each]
SHARDS = {
    "one by one": list(DefaultSampler(labels, shuffle=False)),
    "shuffled": list(DefaultSampler(labels, shuffle=True, seed=3)),
    "in runs": runs,
    "all on the last": list(range(N)) if rank == world - 1 else [],
    "unequal": list(range(N))[rank::world] if rank else list(range(0, N, world)) + [0, world, 0],
    "everything everywhere": list(range(N)),
    "nothing": [],
    "some again, some never": [list(range(4)), list(range(3)), []][rank],
}
answers = {}
for name, shard in SHARDS.items():
    for device in ("cpu", "gpu"):
        for metric in (RetrievalRecall((1, 3), device), RetrievalAveragePrecision(5, collect_device=device)):
            for identity in (lambda i: {"sample_idx": i}, lambda i: {"img_path": f"{i}.jpg"}, lambda i: {}):
                batch = [{"pred_score": scores[i], "gt_label": labels[i], **identity(i)} for i in shard]
                metric.process(None, batch)
                try:
                    got = metric.evaluate(N)
                except Exception as error:
                    got = {"error": f"{type(error).__name__}: {error}"}
                answers.setdefault(name, []).append(got)


class Broken(RetrievalRecall):
    def compute_metrics(self, results):
        raise KeyError("a fault of its own")


try:
    Broken(1).evaluate(N)
except KeyError as error:
    answers["broken"] = str(error)
print("ANSWERS", json.dumps(answers), flush=True)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""


@pytest.mark.parametrize("world", [2, 3])
def test_every_process_gets_the_answer_of_one(world, tmp_path):
    script = tmp_path / "ranks.py"
    script.write_text(RANKS, "utf-8")
    command = [sys.executable, "-W", "ignore", str(script)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(world), str(tmp_path / "meet")],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for rank in range(world)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * world, outputs
    answers = [json.loads(re.search(r"^ANSWERS (.*)$", output, re.MULTILINE)[1]) for output in outputs]
    assert all(answer == answers[0] for answer in answers)

    assert all("a fault of its own" in answer.pop("broken") for answer in answers)

    scores = torch.rand(7, 9, generator=torch.Generator().manual_seed(1))
    labels = [[i % 4, (i + 3) % 9] for i in range(7)]
    recall = [RetrievalRecall((1, 3)), RetrievalAveragePrecision(5)]
    truth = []
    for metric in recall:
        metric.process(None, [{"pred_score": s, "gt_label": label} for s, label in zip(scores, labels, strict=True)])
        truth.append(metric.evaluate(7))
    answers[0].pop("some again, some never")  # no answer to it is right; the log says so
    for name, got in answers[0].items():
        # two devices x two metrics x (known by index, known by path, unknown)
        expected = [one for _ in ("cpu", "gpu") for metric in truth for one in [metric] * 3]
        for place, (value, one) in enumerate(zip(got, expected, strict=True)):
            if name == "nothing":
                assert value["error"].startswith("NoQueriesError: there are no samples")
            elif place % 3 < 2 or name in ("one by one", "all on the last"):
                assert value == pytest.approx(one), (name, place)
    assert "their fields do not say which are repeated" in outputs[0]
    assert "7, but by their fields only 4 different ones" in outputs[0]


# --- in a runner, and over mmpretrain's name


def run_script(text: str, folder: Path, *words: str) -> str:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text), "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_runner_with_a_config_file_trains_two_epochs_and_keeps_the_best(tmp_path):
    pytest.importorskip("cv2", reason="mmengine's runner needs OpenCV")
    (tmp_path / "config.py").write_text(
        textwrap.dedent("""
            custom_imports = dict(imports=['tiny'])
            model = dict(type='Tiny')
            loader = dict(batch_size=16, collate_fn=dict(type='pseudo_collate'), dataset=dict(type='Photos'))
            train_dataloader = dict(sampler=dict(type='DefaultSampler', shuffle=True), **loader)
            val_dataloader = dict(sampler=dict(type='DefaultSampler', shuffle=False), **loader)
            train_cfg = dict(by_epoch=True, max_epochs=2, val_interval=1)
            val_cfg = dict()
            optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.05))
            val_evaluator = [dict(type='recallatk.RetrievalRecall', topk=(1, 5)),
                             dict(type='recallatk.RetrievalAveragePrecision', topk=5)]
            default_hooks = dict(checkpoint=dict(type='CheckpointHook', save_best='retrieval/Recall@1', rule='greater'))
            work_dir = 'work'
        """),
        "utf-8",
    )
    (tmp_path / "tiny.py").write_text(
        textwrap.dedent("""
            from importlib.resources import files
            import numpy as np, torch
            from PIL import Image
            from mmengine.model import BaseModel
            from mmengine.registry import DATASETS, MODELS
            from mmengine.structures import BaseDataElement

            PATHS = sorted((files('recallatk') / 'assets' / 'photos').glob('*/*.webp'))
            FOLDERS = [path.parent.name for path in PATHS]

            def pixels(path):
                image = Image.open(path).convert('RGB').resize((8, 8))
                return torch.tensor(np.asarray(image) / 255.0).float().flatten()

            @DATASETS.register_module()
            class Photos(torch.utils.data.Dataset):
                metainfo = {}
                def __len__(self):
                    return len(PATHS)
                def __getitem__(self, i):
                    same = [j for j, name in enumerate(FOLDERS) if name == FOLDERS[i] and j != i]
                    sample = BaseDataElement(metainfo=dict(sample_idx=i), gt_label=torch.tensor(same, dtype=torch.long))
                    return dict(inputs=pixels(PATHS[i]), data_samples=sample)

            @MODELS.register_module()
            class Tiny(BaseModel):
                def __init__(self):
                    super().__init__()
                    self.layer = torch.nn.Linear(192, 16)
                    self.gallery = torch.stack([pixels(path) for path in PATHS])
                def forward(self, inputs, data_samples=None, mode='tensor'):
                    rows = self.layer(torch.stack(inputs))
                    scores = rows @ self.layer(self.gallery).T
                    if mode == 'loss':
                        return dict(loss=scores.tanh().mean())
                    for sample, score in zip(data_samples, scores):
                        sample.pred_score = score
                    return data_samples
        """),
        "utf-8",
    )
    printed = run_script(
        """
        from mmengine.config import Config
        from mmengine.runner import Runner
        from recallatk.integrations.openmmlab import RetrievalRecall
        runner = Runner.from_cfg(Config.fromfile("config.py"))
        runner.train()
        print(runner.val())
        # The same from the model's scores at once.
        from tiny import FOLDERS
        import torch
        with torch.no_grad():
            rows = runner.model.layer(runner.model.gallery)
            scores = rows @ rows.T
        marks = torch.tensor([[a == b and i != j for j, b in enumerate(FOLDERS)] for i, a in enumerate(FOLDERS)])
        print("AT ONCE", [round(float(v), 3) for v in RetrievalRecall.calculate(scores, marks, (1, 5))])
        """,
        tmp_path,
    )
    values = re.findall(r"'retrieval/(?:Recall@1|Recall@5)': ([\d.]+)", printed)
    at_once = json.loads(re.search(r"AT ONCE (.*)", printed)[1])
    assert [float(value) for value in values[-2:]] == pytest.approx(at_once, abs=0.002)
    assert "retrieval/mAP@5" in printed
    assert len(list((tmp_path / "work").glob("best_retrieval_Recall@1_*.pth"))) == 1


def page_blocks() -> list[str]:
    return re.findall(r"^```py\n(.*?)^```$", (PROJECT / "docs" / "openmmlab.md").read_text("utf-8"), re.M | re.S)


def test_the_examples_of_the_page_do_what_it_shows():
    names: dict[str, Any] = {}
    for block in page_blocks():
        if block.startswith("# takeover.py"):
            continue  # below, as it changes mmpretrain
        if ">>>" in block:
            test = doctest.DocTestParser().get_doctest(block, names, "openmmlab.md", None, 0)
            result = doctest.DocTestRunner().run(test, clear_globs=False)
            assert (result.failed, result.attempted > 0) == (0, True)
            names |= test.globs
        else:
            exec(block, names)


def test_the_bare_name_is_taken_over_under_mmpretrains_scope(tmp_path, theirs):
    (block,) = [block for block in page_blocks() if block.startswith("# takeover.py")]
    (tmp_path / "takeover.py").write_text(block, "utf-8")
    (tmp_path / "config.py").write_text(
        "custom_imports = dict(imports=['takeover'])\n"
        "val_evaluator = [dict(type='RetrievalRecall', topk=1), dict(type='RetrievalAveragePrecision', topk=1)]\n",
        "utf-8",
    )
    printed = run_script(
        """
        import runpy, sys
        runpy.run_path(sys.argv[1])["load_theirs"]()
        from mmengine.config import Config
        from mmengine.evaluator import Evaluator
        from mmengine.registry import DefaultScope
        config = Config.fromfile("config.py", import_custom_modules=False)
        with DefaultScope.overwrite_default_scope("mmpretrain"):
            print(*[type(metric).__module__ for metric in Evaluator(config.val_evaluator).metrics])
            config = Config.fromfile("config.py")
            print(*[type(metric).__module__ for metric in Evaluator(config.val_evaluator).metrics])
        """,
        tmp_path,
        str(PROJECT / "benchmarks" / "openmmlab.py"),
    )
    before, after = printed.strip().splitlines()[-2:]
    assert set(before.split()) == {"mmpretrain.evaluation.metrics.retrieval"}
    assert set(after.split()) == {"recallatk.integrations.openmmlab"}


def test_the_benchmark_prints_how_many_times_faster(theirs):
    script = PROJECT / "benchmarks" / "openmmlab.py"
    command = [sys.executable, "-W", "ignore", str(script), "--queries", "50", "--gallery", "60", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    table = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")][1:]
    assert len(table) == 4
    assert all(row[-1] == "yes |" for row in table)
