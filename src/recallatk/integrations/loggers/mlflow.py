"""Metrics, tags and artifacts for each report in an MLflow run."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from recallatk.extras import import_extra
from recallatk.integrations.loggers.interface import PREFIX, Logger, identity, known_numbers, run_name, save_step
from recallatk.report import Report
from recallatk.types import RecallatkError

MOST_METRICS = 1000
"""That MLflow takes at once."""


def mlflow_logger(
    run_id: str | None = None, *, client: Any = None, prefix: str = PREFIX, keep_run: bool = True
) -> Logger:
    """Log into an MLflow run: metrics under `retrieval/recall_at_1` (no `@` is allowed), ids and signature as tags.

    Tags are those of the last report. Runs are neither started nor ended, and the store is the one that is in use.

    Args:
        run_id: of the MLflow run; default the run that is active when `log` is called.
        client: the MlflowClient to use (in Lightning `trainer.logger.experiment`); default one for the store in use.
        prefix: before each name.
        keep_run: log each run folder and the printed report as artifacts, below `retrieval/step-000003-RUNID`.

    Raises:
        RecallatkError: mlflow is not installed; on `log`, no run is active.
    """
    mlflow = import_extra("mlflow", "mlflow", "mlflow_logger")
    entities = import_extra("mlflow.entities", "mlflow", "mlflow_logger")

    def log(report: Report, step: int) -> None:
        active = mlflow.active_run() if run_id is None else None
        target = run_id or (active and active.info.run_id)
        if target is None:
            raise RecallatkError("no MLflow run is active; call mlflow.start_run() before, or pass run_id")
        store = mlflow.MlflowClient() if client is None else client
        now = int(time.time() * 1000)
        metrics = [
            entities.Metric(_allowed(f"{prefix}{name}"), float(number), now, step)
            for name, number in known_numbers(report).items()
        ]
        tags = [entities.RunTag(_allowed(f"{prefix}{name}"), text) for name, text in identity(report).items()]
        for start in range(0, len(metrics), MOST_METRICS):
            store.log_batch(target, metrics[start : start + MOST_METRICS], tags=tags)
        if keep_run:
            with tempfile.TemporaryDirectory() as folder:
                run = save_step(report, step, Path(folder))
                (run / "report.txt").write_text(f"{report.text()}\n", "utf-8")
                store.log_artifacts(target, str(run), _allowed(f"{prefix}{run_name(report, step)}"))

    return Logger(log)


def _allowed(name: str) -> str:
    return name.replace("@", "_at_")
