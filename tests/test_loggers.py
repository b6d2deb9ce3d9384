"""Reports in a CSV file, TensorBoard, W&B and MLflow: logged with the real library, offline, and read back."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from recallatk.evaluation import evaluate_embeddings
from recallatk.integrations.loggers import csv_logger, mlflow_logger, tensorboard_logger, wandb_logger
from recallatk.run import load_report, read_record
from recallatk.types import EmbeddingSet, EvalProtocol, IntervalRule, RecallatkError

NEEDED = "make test-integrations installs it"
REPORT_PARTS = ("run_id", "protocol_id", "signature")


def evaluated(seed=0, **choices):
    rng = np.random.default_rng(seed)
    labels = [*rng.integers(0, 4, 30).astype(str), "only one"]  # which is excluded
    rows = np.round(rng.standard_normal((31, 3)) * 2) + 0.5  # coarse: some are tied
    protocol = EvalProtocol(ks=choices.pop("ks", (1, 5)))
    return evaluate_embeddings(EmbeddingSet(rows, labels), protocol=protocol, metrics=("mrr",), **choices)


REPORTS = [evaluated(seed) for seed in range(3)]
assert REPORTS[0].num_excluded == 1
assert REPORTS[0].tied_queries


def expected(report):
    """Every number of a report by the name that it has everywhere, written down once more."""
    numbers = {}
    for name, value in report.values_by_metric.items():
        numbers[name] = value.value
        numbers[f"{name}_low"], numbers[f"{name}_high"] = value.interval.low, value.interval.high
    for name in ("num_queries", "num_evaluated", "num_excluded", "num_gallery", "num_labels", "embedding_dim"):
        numbers[name] = getattr(report, name)
    numbers |= {"num_skipped": 0, "num_warnings": len(report.warnings)}
    return numbers | {"tied_queries": report.tied_queries, "near_tied_queries": report.near_tied_queries}


def identity(report):
    signature = report.signature
    return {"run_id": signature.run_id, "protocol_id": signature.protocol_id, "signature": str(signature)}


def same_run(folder, report):
    again = load_report(folder)
    return dict(again) == dict(report) and str(again.signature) == str(report.signature)


# --- CSV


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_of_the_csv_file_has_every_number_with_all_digits(tmp_path):
    path = tmp_path / "logs" / "recall.csv"
    logger = csv_logger(path)
    for step, report in enumerate(REPORTS):
        logger.log(report, np.int64(step))
    rows = rows_of(path)
    assert [row["step"] for row in rows] == ["0", "1", "2"]
    for row, report in zip(rows, REPORTS, strict=True):
        numbers = expected(report)
        assert {name: float(row[name]) for name in numbers} == numbers
        assert {name: row[name] for name in REPORT_PARTS} == identity(report)
        assert same_run(path.parent / row["run_folder"], report)
        assert set(row) == {"step", "warnings", "run_folder", *numbers, *REPORT_PARTS}
    assert rows[2]["run_folder"].startswith("recall-runs/step-000002-")


def test_what_is_not_known_is_an_empty_cell_and_no_other_column(tmp_path):
    path = tmp_path / "recall.csv"
    warned = dataclasses.replace(REPORTS[1], warnings=("one,\ntwo", 'and "three"'))
    for report in (REPORTS[0], warned, evaluated(1, intervals=IntervalRule("none"))):
        csv_logger(path, keep_run=False).log(report, 1)
    rows = rows_of(path)
    assert len(path.read_text("utf-8").splitlines()) == 4
    assert rows[1]["warnings"] == 'one,\\ntwo | and "three"'
    assert rows[1]["num_warnings"] == "2"
    assert rows[2]["recall@1_low"] == rows[2]["run_folder"] == ""
    assert not list(tmp_path.glob("*-runs"))


def test_a_restart_appends_and_loses_no_run(tmp_path):
    path = tmp_path / "recall.csv"
    for report in (REPORTS[0], REPORTS[1], REPORTS[1]):  # step 3 again, with other weights and with the same
        csv_logger(path).log(report, 3)
    folders = [row["run_folder"] for row in rows_of(path)]
    assert folders[0] != folders[1] == folders[2]
    assert same_run(tmp_path / folders[0], REPORTS[0])
    assert same_run(tmp_path / folders[1], REPORTS[1])


def test_other_columns_are_refused_and_the_run_is_kept(tmp_path):
    path = tmp_path / "recall.csv"
    csv_logger(path).log(REPORTS[0], 0)
    before = path.read_bytes()
    for ks, said in (((1, 5, 10), "it has no column 'recall@10' (and 2 more)"), ((1,), "nothing is known for its")):
        other = evaluated(1, ks=ks)
        with pytest.raises(RecallatkError) as refused:
            csv_logger(path).log(other, 1)
        assert said in str(refused.value)
        kept = re.search(r"this run is kept: (.*)\)", str(refused.value))
        assert same_run(kept[1], other)
    assert path.read_bytes() == before


def test_columns_in_another_order_are_refused(tmp_path):
    path = tmp_path / "recall.csv"
    csv_logger(path, keep_run=False).log(REPORTS[0], 0)
    path.write_text(path.read_text("utf-8").replace("run_id,protocol_id", "protocol_id,run_id"), "utf-8")
    with pytest.raises(RecallatkError, match="in another order"):
        csv_logger(path, keep_run=False).log(REPORTS[0], 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"epoch,loss\n1,0.5\n", "not one that csv_logger wrote"),
        (b"\n", "not one that csv_logger wrote"),
        (b"step,recall@1,run_folder\n1,0.5", "its last row is torn"),
        (b"step,recall@1,run_fol", "not one that csv_logger wrote"),
        (b"\xff\xfe\x00", "cannot be read as CSV"),
        (b"\x00" * 10, "not one that csv_logger wrote|cannot be read as CSV"),
    ],
)
def test_a_file_of_somebody_else_is_refused_before_the_training(content, said, tmp_path):
    path = tmp_path / "recall.csv"
    path.write_bytes(content)
    with pytest.raises(RecallatkError, match=said) as refused:
        csv_logger(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == content


def test_a_place_that_cannot_be_written_is_refused_before_the_training(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecallatkError, match="is a file"):
        csv_logger(tmp_path / "file" / "recall.csv")
    with pytest.raises(RecallatkError, match="cannot be read as CSV"):
        csv_logger(tmp_path)
    with pytest.raises(RecallatkError, match="needs the name of a file"):
        csv_logger("")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_one_line(tmp_path):
    (tmp_path / "recall.csv").symlink_to("/dev/full")
    with pytest.raises(RecallatkError, match=r"recall\.csv: cannot be written"):
        csv_logger(tmp_path / "recall.csv", keep_run=False).log(REPORTS[0], 0)


LOOP = """
import sys
sys.path.insert(0, sys.argv[2])
from test_loggers import REPORTS, csv_logger
logger = csv_logger(sys.argv[1], keep_run=False)
for step in range(10**6):
    logger.log(REPORTS[step % 3], step)
    if not step:
        print("logs", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_process_leaves_whole_rows(tmp_path):
    path = tmp_path / "recall.csv"
    command = [sys.executable, "-c", LOOP, path, Path(__file__).parent]
    for _ in range(3):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "logs\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
    with path.open(encoding="utf-8", newline="") as file:
        lengths = {len(row) for row in csv.reader(file)}
    assert lengths == {len(expected(REPORTS[0])) + 6}
    assert sum(row["step"] == "0" for row in rows_of(path)) == 3


# --- what all loggers have in common


@pytest.mark.parametrize("step", [1.5, -1, "1", None, True, np.float64(2), 10**20])
def test_a_step_is_a_whole_number(step, tmp_path):
    with pytest.raises(RecallatkError, match="a step is a whole number from 0 on"):
        csv_logger(tmp_path / "recall.csv").log(REPORTS[0], step)
    assert not list(tmp_path.iterdir())


def test_only_reports_are_logged(tmp_path):
    with pytest.raises(RecallatkError, match=r"takes a Report, not dict; in a loop it is `recall\.report`"):
        csv_logger(tmp_path / "recall.csv").log({"recall@1": 0.5}, 1)


def test_a_closed_logger_says_so(tmp_path):
    with csv_logger(tmp_path / "recall.csv") as logger:
        logger.log(REPORTS[0], 0)
    logger.close()
    with pytest.raises(RecallatkError, match="closed"):
        logger.log(REPORTS[0], 1)


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("tensorboard", lambda: tensorboard_logger("runs")),
        ("wandb", wandb_logger),
        ("mlflow", mlflow_logger),
    ],
)
def test_an_absent_library_is_a_pip_command(module, make, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RecallatkError, match=rf"{module}_logger needs {module}: pip install 'recallatk\[{module}\]'"):
        make()


def test_importing_the_loggers_imports_no_library():
    code = "import sys, recallatk.integrations.loggers; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorboard", "tensorboardX", "wandb", "mlflow", "torch"} & set(done.stdout.split())


PROCESS = """
import sys
sys.path.insert(0, sys.argv[2])
import torch.distributed as dist
from test_loggers import REPORTS, csv_logger
logger = csv_logger(sys.argv[1])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=int(sys.argv[4]), world_size=2)
for step in range(2):
    logger.log(REPORTS[step], step)
    dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.integration
def test_of_several_processes_one_writes(tmp_path):
    pytest.importorskip("torch", reason=NEEDED)
    path, meeting = tmp_path / "recall.csv", tmp_path / "meeting"
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, path, Path(__file__).parent, meeting, str(rank)])
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in started] == [0, 0]
    assert [row["step"] for row in rows_of(path)] == ["0", "1"]


# --- TensorBoard


def scalars_and_texts(folder):
    """What TensorBoard itself reads: tag -> [(step, number)], tag -> [(step, text)]."""
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason=NEEDED)
    events = event_accumulator.EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()
    scalars = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags["scalars"]}
    texts = {
        tag.removesuffix("/text_summary"): [
            (event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(tag)
        ]
        for tag in tags["tensors"]
    }
    return scalars, texts


def check_tensorboard(folder, prefix="retrieval/", at="@"):
    scalars, texts = scalars_and_texts(folder)
    scalars = {tag.replace(at, "@"): events for tag, events in scalars.items()}
    assert [step for step, _ in texts[f"{prefix}report"]] == [0, 1, 2]
    for step, report in enumerate(REPORTS):
        for name, number in expected(report).items():
            assert scalars[f"{prefix}{name}"][step] == (step, float(np.float32(number))), name
        shown = texts[f"{prefix}report"][step][1].splitlines()
        assert [line.removeprefix("    ") for line in shown] == report.text().splitlines()
        assert same_run(next(Path(folder, "recallatk-runs").glob(f"step-{step:06d}-*")), report)
    assert {tag for tag in scalars if tag.startswith(prefix)} == {f"{prefix}{name}" for name in expected(REPORTS[0])}
    return scalars


@pytest.mark.integration
def test_tensorboard_with_an_event_file_of_our_own(tmp_path):
    pytest.importorskip("tensorboard", reason=NEEDED)
    with tensorboard_logger(tmp_path / "events") as logger:
        assert not list(tmp_path.iterdir())  # a process that logs nothing leaves nothing
        for step, report in enumerate(REPORTS):
            logger.log(report, step)
        check_tensorboard(tmp_path / "events")  # before it is closed: a killed training has them
    check_tensorboard(tmp_path / "events")


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # the writers' own
@pytest.mark.parametrize(("module", "at"), [("torch.utils.tensorboard", "@"), ("tensorboardX", "_at_")])
def test_tensorboard_with_the_writer_of_the_loop(module, at, tmp_path):
    writer = pytest.importorskip(module, reason=NEEDED).SummaryWriter(str(tmp_path))
    with tensorboard_logger(writer, prefix="val/") as logger:
        for step, report in enumerate(REPORTS):
            writer.add_scalar("loss", 1.0 / (step + 1), step)
            logger.log(report, step)
    writer.add_scalar("loss", 0.0, 3)  # it is still open
    writer.close()
    assert [step for step, _ in check_tensorboard(tmp_path, "val/", at)["loss"]] == [0, 1, 2, 3]


@pytest.mark.integration
def test_what_tensorboard_cannot_take_is_said_before_the_training(tmp_path):
    pytest.importorskip("tensorboard", reason=NEEDED)
    (tmp_path / "file").touch()
    for log_dir, said in (
        (object(), "takes a folder or a SummaryWriter, not object"),
        (None, "not NoneType; in Lightning it is trainer.logger.experiment"),
        ("", "needs the name of a folder"),
        ("s3://bucket/events", "pass keep_run=False"),
        (tmp_path / "file", "is a file"),
    ):
        with pytest.raises(RecallatkError, match=said):
            tensorboard_logger(log_dir)


# --- W&B


def wandb_records(file):
    """The records of an offline run's file: a LevelDB log after a header of seven bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, parts = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the rest of a block is padding
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


@pytest.fixture
def wandb(tmp_path, monkeypatch):
    for name in ("WANDB_DIR", "WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_MODE", "offline")
    found = pytest.importorskip("wandb", reason=NEEDED)
    yield found
    found.teardown()


def history_of(records):
    rows = []
    for record in records:
        if record.WhichOneof("record_type") == "history":
            rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item})
    return rows


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # wandb's own
@pytest.mark.parametrize("given", [True, False])
def test_wandb_offline(given, wandb, tmp_path):
    run = wandb.init(project="recall")
    file = Path(run.settings.sync_file)
    with wandb_logger(run) if given else wandb_logger() as logger:
        for step, report in enumerate(REPORTS):
            run.log({"loss": 1.0 / (step + 1)})
            logger.log(report, 10 * step)
        logger.log(REPORTS[0], 5)  # behind the others: W&B would drop its own step 5
    run.log({"loss": 0.0})  # the run goes on
    name = f"retrieval-{run.id}"
    run.finish()
    wandb.teardown()  # waits for the process that writes the file
    records = list(wandb_records(file))
    history = history_of(records)
    ours = {row["retrieval/step"]: row for row in history if "retrieval/step" in row}
    assert list(ours) == [0, 10, 20, 5]
    for step, report in zip((0, 10, 20, 5), (*REPORTS, REPORTS[0]), strict=True):
        logged = {key.removeprefix("retrieval/"): value for key, value in ours[step].items() if not key.startswith("_")}
        assert logged == {"step": step, "warnings": "", **expected(report), **identity(report)}
    assert [row["loss"] for row in history if "loss" in row] == [1.0, 0.5, pytest.approx(1 / 3), 0.0]
    metrics = [record.metric for record in records if record.WhichOneof("record_type") == "metric"]
    assert {metric.step_metric for metric in metrics if metric.name == "retrieval/recall@1"} == {"retrieval/step"}
    artifacts = [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    assert [(artifact.name, artifact.type) for artifact in artifacts] == [(name, "recallatk-run")] * 4
    for step, report, artifact in zip((0, 10, 20, 5), (*REPORTS, REPORTS[0]), artifacts, strict=True):
        assert f"step-{step}" in artifact.aliases
        assert json.loads(artifact.metadata) == {"step": step, **identity(report)}
        files = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        assert {"record.json", "queries.parquet"} <= set(files)
        assert read_record(files["record.json"]) == report.record()  # still there, though our copy is gone


@pytest.mark.integration
def test_wandb_without_a_run_says_what_to_do(wandb):
    with pytest.raises(RecallatkError, match=r"takes what wandb\.init returned, not str"):
        wandb_logger("a name")
    with pytest.raises(RecallatkError, match=r"no W&B run is active; call wandb\.init\(\) before"):
        wandb_logger().log(REPORTS[0], 0)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # wandb's own
def test_wandb_that_is_switched_off(wandb):
    with wandb.init(mode="disabled") as run:
        wandb_logger(run, prefix="ü @/").log(REPORTS[0], 0)


# --- MLflow


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.chdir(tmp_path)
    found = pytest.importorskip("mlflow", reason=NEEDED)
    yield found
    while found.active_run():
        found.end_run()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # mlflow's own
@pytest.mark.parametrize("store", ["file", "sqlite"])
@pytest.mark.parametrize("given", [True, False])
def test_mlflow_in_a_local_store(store, given, mlflow, tmp_path):
    mlflow.set_tracking_uri(
        {"file": (tmp_path / "mlruns").as_uri(), "sqlite": f"sqlite:///{tmp_path}/mlflow.db"}[store]
    )
    client = mlflow.MlflowClient()
    run_id = mlflow.start_run().info.run_id
    with mlflow_logger(run_id, client=client) if given else mlflow_logger() as logger:
        for step, report in enumerate(REPORTS):
            logger.log(report, step)
    assert mlflow.active_run().info.run_id == run_id  # it goes on
    for name, number in expected(REPORTS[0]).items():
        history = client.get_metric_history(run_id, f"retrieval/{name.replace('@', '_at_')}")
        assert [metric.step for metric in history] == [0, 1, 2]
        assert history[0].value == number
    run = client.get_run(run_id)
    assert set(run.data.metrics) == {f"retrieval/{name.replace('@', '_at_')}" for name in expected(REPORTS[0])}
    for name, text in identity(REPORTS[2]).items():
        assert run.data.tags[f"retrieval/{name}"] == text
    folders = [entry.path for entry in client.list_artifacts(run_id, "retrieval")]
    assert len(folders) == 3
    for folder, report in zip(sorted(folders), REPORTS, strict=True):
        saved = Path(client.download_artifacts(run_id, folder, str(tmp_path)))
        assert same_run(saved, report)
        assert (saved / "report.txt").read_text("utf-8") == report.text() + "\n"


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # mlflow's own
def test_mlflow_takes_more_metrics_than_it_does_at_once(mlflow, tmp_path):
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    report = evaluated(ks=tuple(range(1, 400)))
    with mlflow.start_run() as run:
        mlflow_logger(keep_run=False).log(report, 1)
        mlflow_logger(prefix="v@1/").log(REPORTS[0], 1)
    metrics = mlflow.MlflowClient().get_run(run.info.run_id).data.metrics
    assert len(metrics) == len(expected(report)) + len(expected(REPORTS[0])) > 1000
    assert metrics["v_at_1/recall_at_1"] == REPORTS[0]["recall@1"]
    assert metrics["retrieval/recall_at_399"] == report["recall@399"]


@pytest.mark.integration
def test_mlflow_without_a_run_says_what_to_do(mlflow):
    with pytest.raises(RecallatkError, match=r"no MLflow run is active; call mlflow\.start_run\(\) before"):
        mlflow_logger().log(REPORTS[0], 0)
    assert not list(Path.cwd().iterdir())  # and none was started


# --- inside Trainers, as the page shows


PAGE = Path(__file__).parents[1] / "docs" / "loggers.md"
EMBEDDINGS = np.random.default_rng(5).standard_normal((24, 4)).astype(np.float32)
LABELS = np.arange(24) % 3


@pytest.fixture
def page(wandb, mlflow, tmp_path, monkeypatch):
    """The names that the blocks of the page leave behind, run one after the other in an empty folder."""
    for module in ("tensorboard", "lightning.pytorch", "transformers"):
        pytest.importorskip(module, reason=NEEDED)
    names = {"__name__": "page"}
    exec(
        "\n".join(re.findall(r"^```(?:py|python)\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)),
        names,
    )
    return names


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_the_page_runs_and_logs_in_both_trainers(page, tmp_path):
    import torch
    import transformers

    class Identity(page["pl"].LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def training_step(self, batch, batch_idx):
            return (batch[0] * self.weight).square().mean()

        def validation_step(self, batch, batch_idx):
            return {"embeddings": batch[0], "labels": batch[1]}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    rows = torch.utils.data.TensorDataset(torch.from_numpy(EMBEDDINGS), torch.from_numpy(LABELS))
    loader = torch.utils.data.DataLoader(rows, batch_size=8)
    events = page["pl"].loggers.TensorBoardLogger(tmp_path, name="lightning")
    trainer = page["pl"].Trainer(
        accelerator="cpu", max_epochs=2, callbacks=page["callbacks"], logger=events, default_root_dir=tmp_path,
        enable_progress_bar=False, enable_checkpointing=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Identity(), loader, loader)
    tensorboard_logger(trainer.logger.experiment).log(page["recall"].report, trainer.global_step)
    known = evaluate_embeddings(EmbeddingSet(EMBEDDINGS, LABELS), protocol=EvalProtocol(ks=(1, 5)))
    logged = rows_of(Path("lightning.csv"))
    assert [(row["step"], float(row["recall@1"])) for row in logged] == [
        ("3", known["recall@1"]),
        ("6", known["recall@1"]),
    ]
    scalars, _ = scalars_and_texts(trainer.logger.log_dir)
    assert scalars["retrieval/recall@1"] == [(6, float(np.float32(known["recall@1"])))]
    assert scalars["val/recall@1"]  # of Lightning itself

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, pixels, labels):
            return {"loss": (pixels * self.weight).square().mean(), "embeddings": pixels * self.weight}

    samples = [{"pixels": row, "labels": int(label)} for row, label in zip(EMBEDDINGS, LABELS, strict=True)]
    arguments = transformers.TrainingArguments(
        str(tmp_path / "hf"), num_train_epochs=2, learning_rate=0.0, eval_strategy="epoch", save_strategy="no",
        report_to=[], use_cpu=True, disable_tqdm=True, remove_unused_columns=False, label_names=["labels"],
    )  # fmt: skip
    transformers.Trainer(
        Model(), arguments, train_dataset=samples, eval_dataset=samples,
        compute_metrics=page["compute_metrics"], callbacks=[page["LogEvaluation"]()],
    ).train()  # fmt: skip
    again = rows_of(Path("lightning.csv"))[2:]
    assert [(row["step"], float(row["recall@1"])) for row in again] == [
        ("3", known["recall@1"]),
        ("6", known["recall@1"]),
    ]
