"""recall@K as torchmetrics sees it: a metric like its own, and the report of evaluate_embeddings."""

from __future__ import annotations

import copy
import doctest
import io
import pickle
import warnings

import numpy as np
import pytest

from recallatk.evaluation import NothingToEvaluateError, evaluate_embeddings
from recallatk.types import ChoiceError, EmbeddingSet, EvalProtocol, Qrels, RecallatkError

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="make test-integrations installs it")
torchmetrics = pytest.importorskip("torchmetrics", reason="make test-integrations installs it")

from recallatk.integrations import rows  # noqa: E402
from recallatk.integrations import torchmetrics as ours  # noqa: E402
from recallatk.integrations.torchmetrics import RecallAtK, recall_at_k  # noqa: E402

N = 40


def data(seed=3, n=N):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 6, (n,), generator=generator)
    return torch.randn(n, 8, generator=generator) + labels[:, None] / 3, labels


def in_batches(metric, emb, labels, ids=None, size=7, **role):
    for i in range(0, len(emb), size):
        part = slice(i, i + size)
        metric.update(emb[part], labels[part], None if ids is None else ids[part], **role)
    return metric


def floats(values):
    return {name: float(value) for name, value in values.items()}


def as_float32(report):
    return {name: float(np.float32(value)) for name, value in report.items()}


def test_leave_one_out_is_evaluate_embeddings():
    emb, labels = data()
    metric = in_batches(RecallAtK((1, 3), metrics=["mrr", "map"]), emb, labels, range(N))
    expected = evaluate_embeddings(
        EmbeddingSet(emb.numpy(), labels.numpy(), ids=range(N)),
        protocol=EvalProtocol(ks=(1, 3)),
        metrics=["mrr", "map"],
    )
    assert floats(metric.compute()) == as_float32(expected)
    assert str(metric.report) == str(expected)
    assert all(value.shape == () for value in metric.compute().values())


def test_query_and_gallery_in_any_order():
    emb, labels = data()
    metric = RecallAtK()
    in_batches(metric, emb[10:], labels[10:], role="gallery")
    in_batches(metric, emb[:10], labels[:10], role="query")
    expected = evaluate_embeddings(EmbeddingSet(emb[:10], labels[:10]), EmbeddingSet(emb[10:], labels[10:]))
    assert floats(metric.compute()) == as_float32(expected)
    mixed = RecallAtK()
    mixed.update(emb, labels, role=["query"] * 10 + ["gallery"] * 30)
    assert str(mixed.compute()) == str(metric.compute())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8])
def test_other_dtypes_are_what_they_are_as_float32(dtype):
    emb, labels = data()
    emb = (emb * 10).to(dtype)
    metric = in_batches(RecallAtK(), emb, labels)
    expected = evaluate_embeddings(EmbeddingSet(emb.float().numpy(), labels))
    assert floats(metric.compute()) == as_float32(expected)
    assert metric.report.hashes["emb"] == expected.hashes["emb"]
    assert metric.embeddings[0].dtype == dtype


def test_set_dtype_and_devices_keep_labels_and_ids():
    emb, labels = data()
    metric = in_batches(RecallAtK(), emb, [f"klasse é {i}" for i in labels.tolist()], [f"a/{i}" for i in range(N)])
    half = in_batches(RecallAtK(), emb.half(), [f"klasse é {i}" for i in labels.tolist()], [f"a/{i}" for i in range(N)])
    metric.set_dtype(torch.float16)
    assert metric.notes[0].dtype == torch.float16  # torchmetrics converts all states
    metric.compute(), half.compute()
    assert str(metric.report) == str(half.report)
    assert metric.to("cpu").compute() == half.compute()


def test_all_forms_of_relevance():
    emb, labels = data()
    metric = RecallAtK(protocol=EvalProtocol(ignore_same="camera"))
    cameras = [f"c{i % 3}" for i in range(N)]
    metric.update(emb, labels, groups={"camera": cameras})
    metric.compute()
    same = EmbeddingSet(emb, labels, groups={"camera": cameras})
    assert dict(metric.report) == dict(evaluate_embeddings(same, protocol=metric.protocol))

    places = torch.rand(N, 2) * 100
    metric = RecallAtK(protocol=EvalProtocol(relevance="radius", radius=20))
    metric.update(emb, None, positions=places)
    metric.compute()
    same = EmbeddingSet(emb, None, positions=places)
    assert dict(metric.report) == dict(evaluate_embeddings(same, protocol=metric.protocol))

    several = [[int(i), 9] if i % 2 else [int(i)] for i in labels]
    metric = RecallAtK()
    metric.update(emb, several)
    metric.compute()
    assert dict(metric.report) == dict(evaluate_embeddings(EmbeddingSet(emb, several)))

    qrels = Qrels(("0", "1"), ("5", "6"), np.array([1, 1]))
    metric = RecallAtK(protocol=EvalProtocol(relevance="qrels"), qrels=qrels)
    metric.update(emb, None, range(N))
    metric.compute()
    same = EmbeddingSet(emb, None, ids=range(N))
    assert dict(metric.report) == dict(evaluate_embeddings(same, protocol=metric.protocol, qrels=qrels))


def test_rows_that_come_again_are_left_out_and_counted():
    emb, labels = data()
    metric = in_batches(RecallAtK(), emb, labels, range(N))
    metric.update(emb[:3] + 1e-3, labels[:3], range(3))
    once = in_batches(RecallAtK(), emb, labels, range(N))
    assert metric.compute() == once.compute()
    assert metric.report.signature == once.report.signature
    assert metric.report.provenance.notes[0].startswith("3 rows left out")
    assert once.report.provenance.notes == ()


def test_without_reset_the_next_epoch_is_an_error():
    emb, labels = data()
    metric = in_batches(RecallAtK(), emb, labels, range(N))
    in_batches(metric, emb.flip(1), labels, range(N))
    with pytest.raises(RecallatkError, match=r"the id '0' came twice, with embeddings that differ by \d+%.*reset\(\)"):
        metric.compute()
    metric.reset()
    in_batches(metric, emb.flip(1), labels, range(N)).compute()


def test_row_numbers_of_two_data_sets_as_ids_are_doubted():
    emb, _ = data()
    metric = RecallAtK(1)
    metric.update(emb[:5], [0] * 5, range(5), "query")
    metric.update(emb[20:], [0] * 20, range(20), "gallery")
    with pytest.warns(UserWarning, match="5 queries have the id of a gallery item with another embedding"):
        metric.compute()
    same = RecallAtK(1)
    same.update(emb[:5], [0] * 5, range(5), "query")
    same.update(emb, [0] * N, range(N), "gallery")
    same.compute()
    assert not same.report.warnings


def test_forward_gives_the_batch_and_keeps_it():
    emb, labels = data()
    metric = RecallAtK(1)
    for i in range(0, N, 10):
        part = slice(i, i + 10)
        values = metric(emb[part], labels[part])
        assert floats(values) == as_float32(
            evaluate_embeddings(EmbeddingSet(emb[part], labels[part]), protocol=metric.protocol)
        )
    assert metric.compute() == in_batches(RecallAtK(1), emb, labels).compute()
    alone = metric(torch.ones(1, 8), [0])
    assert torch.isnan(alone["recall@1"])


def test_one_metric_as_a_tensor():
    emb, labels = data()
    metric = in_batches(RecallAtK((1, 5), metrics=["mrr"], only="mrr"), emb, labels)
    assert metric.compute() == recall_at_k(emb, labels, metrics=["mrr"])["mrr"]
    assert metric(emb, labels).shape == ()
    assert torch.isnan(metric(emb[:1], labels[:1]))
    assert metric.compute().shape == ()
    with pytest.raises(ChoiceError, match="only='map' is not among the metrics; choose one of: recall@1, recall@5"):
        RecallAtK((1, 5), only="map")


def test_in_a_collection():
    emb, labels = data()
    one = in_batches(RecallAtK((1, 5)), emb, labels).compute()
    collection = torchmetrics.MetricCollection({"a": RecallAtK(1), "b": RecallAtK(5)}, prefix="val/")
    in_batches(collection, emb, labels)
    assert floats(collection.compute()) == {
        "val/recall@1": float(one["recall@1"]),
        "val/recall@5": float(one["recall@5"]),
    }
    assert [*collection.compute_groups.values()] == [["a", "b"]]  # their rows are kept once
    collection.reset()
    single = torchmetrics.MetricCollection([RecallAtK(1)], prefix="val/")
    assert floats(in_batches(single, emb, labels).compute()) == {"val/recall@1": float(one["recall@1"])}
    assert set(in_batches(single, emb, labels)(emb, labels)) == {"val/recall@1"}


def test_copies_and_checkpoints_hold_everything():
    emb, labels = data()
    metric = in_batches(RecallAtK(metrics="mrr"), emb, labels, range(N))
    expected = metric.compute()
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric)), metric.clone()):
        assert other.compute() == expected
        assert str(other.report) == str(metric.report)
    assert not metric.state_dict()
    metric.persistent(True)
    file = io.BytesIO()
    torch.save(metric.state_dict(), file)
    file.seek(0)
    loaded = RecallAtK(metrics="mrr")
    loaded.load_state_dict(torch.load(file, weights_only=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchmetrics: not updated since it was loaded
        assert loaded.compute() == expected
    first, second = (in_batches(RecallAtK(metrics="mrr"), emb[s], labels[s], range(N)[s]) for s in HALVES)
    first.merge_state(second)
    assert first.compute() == expected


HALVES = (slice(0, 15), slice(15, N))


def test_what_the_loop_does_to_its_tensors_later_changes_nothing():
    emb, labels = data()
    buffer = torch.empty(10, 8, requires_grad=True)
    metric = RecallAtK()
    for i in range(0, N, 10):
        with torch.no_grad():
            buffer.copy_(emb[i : i + 10])
        metric.update(buffer, labels[i : i + 10])
    assert metric.compute() == in_batches(RecallAtK(), emb, labels).compute()
    assert not metric.embeddings[0].requires_grad


def test_arrays_and_an_empty_batch():
    emb, labels = data()
    metric = RecallAtK(compute_on_cpu=True)
    metric.update(emb[:0], labels[:0])
    metric.update(emb.numpy(), labels.numpy())
    assert metric.compute() == recall_at_k(emb, labels.tolist())


def test_many_small_batches_in_small_blocks(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_BYTES", 3 * 8 * 4)
    emb, labels = data()
    small = in_batches(RecallAtK(), emb, labels, range(N), size=2)
    small.update(emb[:1], labels[:1], [0])
    assert small.compute() == recall_at_k(emb, labels)


EMB, LABELS = torch.eye(4), [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((EMB, LABELS[:3]), "labels: 3 entries for 4 rows of embeddings"),
        ((EMB[0], LABELS), r"the shape \(4,\); they must be two-dimensional"),
        ((EMB[None], LABELS), "two-dimensional"),
        ((None, LABELS), "embeddings are NoneType, and no tensor"),
        (({"logits": EMB}, LABELS), "embeddings are dict, and no tensor"),
        ((EMB.bool(), LABELS), "real numbers are needed"),
        ((EMB, torch.tensor(LABELS).float()), r"label of row 0 is 0.0 \(float\)"),
        ((EMB, torch.nn.functional.one_hot(torch.tensor(LABELS), 3).tolist()), "one-hot"),
        ((EMB, LABELS, range(3)), "ids: 3 entries for 4 rows"),
        ((EMB, LABELS, ["a", "", "c", "d"]), "row 1 of the batch has an empty id"),
        ((EMB, LABELS, [0.5] * 4), "ids are text or integers"),
        ((EMB, LABELS, None, "querry"), "role='querry' is not a choice"),
        ((EMB, LABELS, None, ["query"]), "role: 1 entry for 4 rows"),
        ((EMB, LABELS, None, "both", {"camera": ["a"]}), "camera: 1 entry for 4 rows"),
        ((EMB, LABELS, None, "both", None, EMB), r"need \(4, 2\)"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_at_once(arguments, message):
    metric = RecallAtK()
    with pytest.raises(RecallatkError, match=message):
        metric.update(*arguments)
    assert not metric.embeddings
    assert not metric.notes


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"role": "query"}, "some rows came with role='query' and some without a role"),
        ({"ids": None}, "some batches came with ids and some without"),
        ({"labels": ["a", "b", "c", "d"]}, "labels are integers in some batches and text in others"),
        ({"embeddings": torch.eye(5)[:4]}, "4 columns in one batch and 5 in another"),
        ({"groups": {"camera": ["a"] * 4}}, "came with the groups"),
        ({"positions": torch.zeros(4, 2)}, "came with positions and some without"),
        ({"ids": [0, 5, 6, 7], "labels": [1, 0, 1, 1]}, "the id '0' came twice, with the label '0' and '1'"),
        ({"embeddings": EMB * torch.nan}, "is not finite"),
        ({"embeddings": EMB * 0}, "all zero"),
    ],
)
def test_batches_that_do_not_fit_each_other(second, message):
    metric = RecallAtK()
    metric.update(EMB, LABELS, range(4))
    metric.update(**{"embeddings": EMB, "labels": LABELS, "ids": range(4, 8), **second})
    with pytest.raises(RecallatkError, match=message):
        metric.compute()


def test_choices_that_do_not_exist():
    with pytest.raises(ChoiceError, match="k=0"):
        RecallAtK(0)
    with pytest.raises(ChoiceError, match="there is no metric 'recal'"):
        RecallAtK(metrics=["recal"])
    with pytest.raises(RecallatkError, match="dist_sync_fn: RecallAtK brings"):
        RecallAtK(dist_sync_fn=len)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        RecallAtK(top_k=1)
    with pytest.raises(RecallatkError, match=r"call compute\(\) first"):
        _ = RecallAtK().report


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_to_evaluate_is_an_error():
    with pytest.raises(NothingToEvaluateError, match="there are no rows"):
        RecallAtK().compute()
    metric = RecallAtK()
    metric.update(EMB, LABELS, role="query")
    with pytest.raises(NothingToEvaluateError, match="the gallery is empty"):
        metric.compute()


def test_doctests():
    assert doctest.testmod(ours) == (0, 1)
