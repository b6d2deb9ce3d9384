"""A report into TensorBoard, W&B, MLflow or a CSV file: one `log(report, step)`, the same names in all of them.

Logged are each metric and the ends of its interval (`recall@1`, `recall@1_low`, `recall@1_high`), the counts of the
record (`num_evaluated`, `num_excluded`, `tied_queries`, ...) and `num_warnings`, the run id, the protocol id and the
signature, and the run folder. MLflow refuses `@` in names: there it is `recall_at_1`.
"""

from __future__ import annotations

from recallatk.integrations.loggers.csv_file import csv_logger
from recallatk.integrations.loggers.interface import Logger
from recallatk.integrations.loggers.mlflow import mlflow_logger
from recallatk.integrations.loggers.tensorboard import tensorboard_logger
from recallatk.integrations.loggers.wandb import wandb_logger

__all__ = ["Logger", "csv_logger", "mlflow_logger", "tensorboard_logger", "wandb_logger"]
