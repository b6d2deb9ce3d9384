"""History, texts and an artifact for each report in a Weights & Biases run."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from recallatk.extras import import_extra
from recallatk.integrations.loggers.interface import PREFIX, Logger, identity, known_numbers, save_step, warning_text
from recallatk.report import Report
from recallatk.types import RecallatkError


def wandb_logger(run: Any = None, *, prefix: str = PREFIX, keep_run: bool = True) -> Logger:
    """Log into a W&B run: numbers under `retrieval/recall@1`, texts under `retrieval/signature`.

    The x-axis of all of them is `retrieval/step`: W&B drops what is logged with a step of its own that lies behind
    others. Nothing is ever initialised, logged in to or finished: with `WANDB_MODE=offline`, all stays on disk.

    Args:
        run: what `wandb.init` returned; default the run that is active when `log` is called.
        prefix: before each name.
        keep_run: log each run folder as a version of the artifact `retrieval-WANDBRUN`, with the alias `step-3`.

    Raises:
        RecallatkError: wandb is not installed, or this is no run; on `log`, no run is active.
    """
    wandb = import_extra("wandb", "wandb", "wandb_logger")
    if run is not None and not hasattr(run, "log_artifact"):
        raise RecallatkError(f"wandb_logger takes what wandb.init returned, not {type(run).__name__}")

    def log(report: Report, step: int) -> None:
        target = wandb.run if run is None else run
        if target is None:
            raise RecallatkError("no W&B run is active; call wandb.init() before, or pass its run: wandb_logger(run)")
        logged = {**known_numbers(report), **identity(report), "warnings": warning_text(report)}
        at = f"{prefix}step"
        for name in logged:
            target.define_metric(f"{prefix}{name}", step_metric=at)
        target.log({at: step, **{f"{prefix}{name}": value for name, value in logged.items()}})
        if keep_run:
            _log_run(wandb, target, report, step, re.sub(r"[^A-Za-z0-9_.-]+", "-", f"{prefix}{target.id}"))

    return Logger(log)


def _log_run(wandb: Any, target: Any, report: Report, step: int, name: str) -> None:
    artifact = wandb.Artifact(name, type="recallatk-run", metadata={"step": step, **identity(report)})
    with tempfile.TemporaryDirectory() as folder:
        for file in sorted(save_step(report, step, Path(folder)).iterdir()):
            artifact.add_file(str(file))  # copies it
        target.log_artifact(artifact, aliases=[f"step-{step}"])
