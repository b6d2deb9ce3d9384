"""recall@K inside the Trainers of Lightning and Transformers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from recallatk.evaluation import evaluate_embeddings
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # the Trainers' own
]
torch = pytest.importorskip("torch", reason="make test-integrations installs it")
pl = pytest.importorskip("lightning.pytorch", reason="make test-integrations installs it")
transformers = pytest.importorskip("transformers", reason="make test-integrations installs it")
pytest.importorskip("accelerate", reason="make test-integrations installs it")

from recallatk.integrations.lightning import RecallCallback  # noqa: E402
from recallatk.integrations.torchmetrics import RecallAtK  # noqa: E402
from recallatk.integrations.transformers import ComputeRecall  # noqa: E402

N, DIM = 37, 5
KS = EvalProtocol(ks=(1, 5))


def data(seed=1):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, DIM)).astype(np.float32), rng.integers(0, 5, N)


EMB, LABELS = data()


def expected(cut=None):
    if cut is None:
        return evaluate_embeddings(EmbeddingSet(EMB, LABELS, ids=range(N)), protocol=KS)
    query, gallery = (EmbeddingSet(EMB[s], LABELS[s]) for s in (slice(0, cut), slice(cut, N)))
    return evaluate_embeddings(query, gallery, protocol=KS)


# --- Lightning


class Identity(pl.LightningModule):
    def __init__(self, returns=("embeddings", "labels", "ids")):
        super().__init__()
        self.scale, self.returns = torch.nn.Parameter(torch.ones(1)), returns

    def training_step(self, batch, batch_idx):
        return (batch[0] * self.scale).square().mean()

    def validation_step(self, batch, batch_idx, dataloader_idx=0):
        rows = dict(zip(("embeddings", "labels", "ids"), batch, strict=True))
        return {name: rows[name] for name in self.returns}

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def loader(rows=slice(None)):
    parts = (torch.from_numpy(EMB)[rows], torch.from_numpy(LABELS)[rows], torch.arange(N)[rows])
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*parts), batch_size=4)


def trainer(callback, folder, **options):
    return pl.Trainer(
        accelerator="cpu",
        callbacks=[callback],
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        **options,
    )


def test_lightning_logs_each_validation_and_the_test(tmp_path):
    callback = RecallCallback((1, 5))
    seen = []
    watcher = pl.callbacks.LambdaCallback(
        on_validation_end=lambda t, m: seen.append((t.sanity_checking, dict(t.callback_metrics)))
    )
    run = trainer(callback, tmp_path, max_epochs=2)
    run.callbacks.append(watcher)
    run.fit(Identity(), loader(), loader())
    assert [sanity for sanity, _ in seen] == [True, False, False]
    assert seen[0][1] == {}
    value = expected().values_by_metric["recall@1"]
    for _, logged in seen[1:]:
        assert float(logged["val/recall@1"]) == pytest.approx(value.value)
        assert float(logged["val/recall@1_low"]) == pytest.approx(value.interval.low)
        assert float(logged["val/recall@1_high"]) == pytest.approx(value.interval.high)
    tested = run.test(Identity(), loader(), verbose=False)
    assert tested[0]["test/recall@5"] == pytest.approx(expected()["recall@5"])
    assert str(callback.report) == str(expected())


@pytest.mark.parametrize("devices", [1, 3])
def test_lightning_with_query_and_gallery_loaders_on_several_devices(tmp_path, devices):
    callback = RecallCallback(protocol=KS, roles=("query", "gallery"), prefix="")
    strategy = "auto" if devices == 1 else "ddp_fork"
    run = trainer(callback, tmp_path, devices=devices, strategy=strategy)
    logged = run.validate(Identity(), [loader(slice(0, 10)), loader(slice(10, N))], verbose=False)[0]
    assert logged["recall@1"] == pytest.approx(expected(10)["recall@1"])
    assert logged["recall@5"] == pytest.approx(expected(10)["recall@5"])


def test_lightning_says_what_to_return(tmp_path):
    with pytest.raises(RecallatkError, match=r"validation_step returned the keys \['embeddings'\]; return a dict with"):
        trainer(RecallCallback(), tmp_path).validate(Identity(returns=("embeddings",)), loader(), verbose=False)
    with pytest.raises(RecallatkError, match=r"roles=\('query',\) has none for dataloader 1"):
        trainer(RecallCallback(roles=("query",)), tmp_path).validate(Identity(), [loader(), loader()], verbose=False)


class OwnMetrics(Identity):
    """A metric of its own, logged in both ways that Lightning knows."""

    def __init__(self):
        super().__init__()
        self.one, self.several = RecallAtK(protocol=KS, only="recall@5"), RecallAtK(protocol=KS)

    def validation_step(self, batch, batch_idx):
        self.one.update(*batch)
        self.several.update(*batch)
        self.log("one", self.one)

    def on_validation_epoch_end(self):
        self.log_dict(self.several.compute())
        self.several.reset()


@pytest.mark.parametrize("devices", [1, 3])
def test_lightning_logs_metrics_of_the_module(tmp_path, devices):
    strategy = "auto" if devices == 1 else "ddp_fork"
    run = trainer(pl.Callback(), tmp_path, devices=devices, strategy=strategy)
    logged = run.validate(OwnMetrics(), loader(), verbose=False)[0]
    wanted = {"one": expected()["recall@5"], **expected()}
    assert logged == {name: pytest.approx(value) for name, value in wanted.items()}


# --- Transformers


class IdentityModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, pixel_values, labels=None):
        return {"loss": self.scale.sum(), "embeddings": pixel_values, "logits": pixel_values[:, :2]}


def evaluate_with_trainer(folder, compute, **options):
    rows = [{"pixel_values": row, "labels": int(label)} for row, label in zip(EMB, LABELS, strict=True)]
    args = transformers.TrainingArguments(
        str(folder), per_device_eval_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True, **options
    )
    return transformers.Trainer(IdentityModel(), args, eval_dataset=rows, compute_metrics=compute).evaluate()


@pytest.mark.parametrize("cut", [None, 10])
def test_transformers_trainer(tmp_path, cut):
    compute = ComputeRecall((1, 5), num_queries=cut)
    logged = evaluate_with_trainer(tmp_path, compute)
    value = expected(cut).values_by_metric["recall@1"]
    assert logged["eval_recall@1"] == value.value
    assert (logged["eval_recall@1_low"], logged["eval_recall@1_high"]) == (value.interval.low, value.interval.high)
    assert dict(compute.report) == dict(expected(cut))


def test_transformers_says_what_is_wrong(tmp_path):
    def compute(predictions, labels, **options):
        return ComputeRecall(**options)(SimpleNamespace(predictions=predictions, label_ids=labels))

    with pytest.raises(RecallatkError, match="output=5: the model has 2 outputs"):
        evaluate_with_trainer(tmp_path, ComputeRecall(output=5))
    with pytest.raises(RecallatkError, match="num_queries=37, and eval_dataset has 37 rows"):
        evaluate_with_trainer(tmp_path, ComputeRecall(num_queries=37))
    with pytest.raises(RecallatkError, match=r"label_names=\['labels'\]"):
        compute(EMB, None)
    with pytest.raises(RecallatkError, match=r"label_names=\['labels'\]"):
        compute(EMB, (LABELS, LABELS))
    with pytest.raises(RecallatkError, match="36 labels for 37 embeddings"):
        compute(EMB, LABELS[1:])
    with pytest.raises(RecallatkError, match="two-dimensional"):
        compute(EMB[None], LABELS)
    with pytest.raises(RecallatkError, match=r"call trainer\.evaluate\(\) first"):
        _ = ComputeRecall().report


# --- The page on both


def test_the_page_on_training_runs():
    page = (Path(__file__).parents[1] / "docs" / "training.md").read_text("utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    exec("\n".join(blocks), {"__name__": "page"})


def test_importing_recallatk_imports_no_framework():
    code = "import sys, recallatk, recallatk.cli, recallatk.evaluation; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "torchmetrics", "lightning", "transformers", "keras", "jax"} & set(done.stdout.split())
