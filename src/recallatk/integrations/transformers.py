"""recall@K as `compute_metrics` of a Transformers Trainer, which gathers the embeddings of all processes itself."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, cast

from recallatk.evaluation import evaluate_embeddings
from recallatk.integrations.processes import number_and_world
from recallatk.integrations.values import flat_values
from recallatk.report import Report
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError, as_rows
from recallatk.wording import counted


class ComputeRecall:
    """`Trainer(compute_metrics=ComputeRecall(ks=(1, 5)))` logs `eval_recall@1` with the ends of its interval.

    The first output of the model beside the loss must be the embeddings. `TrainingArguments(metric_for_best_model=
    "recall@1", greater_is_better=True)` keeps the best checkpoint. The report of the last evaluation is `report`.

    Args:
        ks: the cutoffs; default those of the protocol (1, 5, 10).
        protocol: everything that can change the number.
        metrics: metrics beside recall@k, such as `"mrr"`.
        num_queries: how many rows at the start of `eval_dataset` are the queries, the rest being the gallery;
            None for leave-one-out. The Trainer must keep the order (no sampler that groups by length).
        output: which output of the model are the embeddings, where it has several; the loss is not counted.
    """

    def __init__(
        self,
        ks: int | Sequence[int] | None = None,
        *,
        protocol: EvalProtocol | None = None,
        metrics: Sequence[str] = (),
        num_queries: int | None = None,
        output: int = 0,
    ) -> None:
        protocol = EvalProtocol() if protocol is None else protocol
        self.protocol = protocol if ks is None else dataclasses.replace(protocol, ks=cast("tuple[int, ...]", ks))
        self.metrics, self.num_queries, self.output = metrics, num_queries, output
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """The report of the last evaluation."""
        if self._report is None:
            raise RecallatkError("there is no report yet; call trainer.evaluate() first")
        return self._report

    def __call__(self, prediction: Any) -> dict[str, float]:
        """Evaluate an `EvalPrediction`.

        Raises:
            RecallatkError: no labels, no such output, or embeddings that are not (rows, columns).
        """
        outputs, labels = prediction.predictions, prediction.label_ids
        if isinstance(outputs, tuple | list):
            if not -len(outputs) <= self.output < len(outputs):
                raise RecallatkError(
                    f"output={self.output}: the model has {counted(len(outputs), 'output')}, from 0 on"
                )
            outputs = outputs[self.output]
        if labels is None or isinstance(labels, tuple | list):
            raise RecallatkError(
                "the Trainer has not exactly one column of labels; name it in TrainingArguments(label_names=['labels'])"
            )
        rows = as_rows(outputs, "predictions")
        if len(labels) != len(rows):
            raise RecallatkError(
                f"{len(labels)} labels for {counted(len(rows), 'embedding')}; there must be one for each"
            )
        cut = self.num_queries
        if cut is not None and not 0 < cut < len(rows):
            raise RecallatkError(
                f"num_queries={cut}, and eval_dataset has {counted(len(rows), 'row')}; give how many of them, at its "
                "start, are queries"
            )
        query = EmbeddingSet(rows[:cut], labels[:cut], name="eval_dataset" if cut is None else "query")
        gallery = None if cut is None else EmbeddingSet(rows[cut:], labels[cut:], name="gallery")
        self._report = evaluate_embeddings(query, gallery, protocol=self.protocol, metrics=self.metrics)
        if number_and_world()[0] == 0:
            for warning in self._report.warnings:
                warnings.warn(warning, stacklevel=2)
        return flat_values(self._report)
