"""recall@K as a metric of torchmetrics: it remembers rows, and `evaluate_embeddings` counts."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from recallatk.evaluation import NothingToEvaluateError
from recallatk.evaluation.task import metric_names
from recallatk.extras import import_extra
from recallatk.integrations.processes import TIMEOUT, CollectDevice, evaluate_rows, number_and_world
from recallatk.integrations.rows import Notes, Role, Rows, note_batch
from recallatk.report import Report
from recallatk.types import ChoiceError, EvalProtocol, Qrels, RecallatkError

torch = import_extra("torch", "torchmetrics", "RecallAtK")
Metric: Any = import_extra("torchmetrics", "torchmetrics", "RecallAtK").Metric

Tensor: TypeAlias = Any


class RecallAtK(Metric):  # type: ignore[misc]  # torchmetrics is not installed where types are checked
    """recall@K (hit rate) of embeddings, and any other metric of recallatk.

    `compute()` gives `{"recall@1": tensor, ...}`, which a `MetricCollection` takes as its own entries and
    `LightningModule.log_dict` logs; `report` is the whole report of the last `compute()`, with exact values, ties,
    excluded queries and the signature. All processes get the same. Values are floats of torch's default dtype.

    `forward` adds the batch and gives the values within that batch alone; NaN where no query of it has a positive.

    Args:
        ks: the cutoffs; default those of the protocol (1, 5, 10).
        protocol: everything that can change the number.
        metrics: metrics beside recall@k, such as `"mrr"`.
        qrels: judged pairs, for `relevance="qrels"`.
        only: the one metric that `compute()` and `forward` give, as a tensor instead of a dict: `"recall@1"` for
            `self.log("val/recall@1", metric)` of Lightning, which takes no dict.
        collect_device: where rows of several processes travel: "cpu", or "gpu" (NCCL).
        timeout: seconds that processes wait for each other in `compute()`, counting included.
        kwargs: those of `torchmetrics.Metric`: `compute_on_cpu`, `process_group`, `sync_on_compute`, ...

    Raises:
        RecallatkError: a choice that does not exist.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    plot_lower_bound = 0.0
    plot_upper_bound = 1.0

    embeddings: list[Tensor]
    notes: list[Tensor]

    def __init__(
        self,
        ks: int | Sequence[int] | None = None,
        *,
        protocol: EvalProtocol | None = None,
        metrics: Sequence[str] = (),
        qrels: Qrels | None = None,
        only: str | None = None,
        collect_device: CollectDevice = "cpu",
        timeout: float = TIMEOUT,
        **kwargs: Any,
    ) -> None:
        for name in ("dist_sync_fn", "dist_sync_on_step"):
            if kwargs.get(name):
                raise RecallatkError(
                    f"{name}: RecallAtK brings the rows of all processes together by itself, in compute(); leave it out"
                )
        super().__init__(**kwargs)
        protocol = EvalProtocol() if protocol is None else protocol
        self.protocol = protocol if ks is None else dataclasses.replace(protocol, ks=cast("tuple[int, ...]", ks))
        self.names = [str(name) for name in metric_names(self.protocol, metrics)]
        if only is not None and only not in self.names:
            raise ChoiceError(f"only={only!r} is not among the metrics; choose one of: {', '.join(self.names)}")
        self.only = only
        self.metrics, self.qrels = tuple(metrics) if not isinstance(metrics, str) else (metrics,), qrels
        self.collect_device, self.timeout = collect_device, timeout
        self._report: Report | None = None
        self._group: Any = None
        # Labels and ids are text: as bytes they are tensors too, so that a checkpoint and `to(device)` take them along.
        self.add_state("embeddings", default=[], dist_reduce_fx="cat")
        self.add_state("notes", default=[], dist_reduce_fx="cat")

    @property
    def report(self) -> Report:
        """The report of the last `compute()`."""
        if self._report is None:
            raise RecallatkError("there is no report yet; call compute() first")
        return self._report

    def update(
        self,
        embeddings: Tensor,
        labels: Tensor | Iterable[Any] | None,
        ids: Tensor | Iterable[Any] | None = None,
        role: Role | Sequence[Role] = "both",
        groups: Mapping[str, Iterable[Any]] | None = None,
        positions: Tensor | None = None,
    ) -> None:
        """Add a batch.

        Args:
            embeddings: (n, d), of any real dtype, on any device; kept as they are (with `compute_on_cpu`, on the CPU).
            labels: one a row, integers or text; lists for several labels.
            ids: one a row, integers or text, such as the index in the data set or the path. A row whose id came before
                is left out: samplers of several processes repeat rows, and without ids nobody can know.
            role: "query", "gallery", or "both" for leave-one-out; or one a row.
            groups: named columns, such as `camera`, for `ignore_same`.
            positions: (n, 2), in metres, for `relevance="radius"`.

        Raises:
            RecallatkError: something does not fit, or is no label, id or role.
        """
        rows = _as_tensor(embeddings)
        noted = note_batch(rows, labels, ids, role, groups=groups, positions=positions)
        self.embeddings.append(rows.clone())  # the loop may write its next batch into the same memory
        self.notes.append(torch.frombuffer(bytearray(noted.to_line()), dtype=torch.uint8))

    def forward(self, *args: Any, **kwargs: Any) -> dict[str, Tensor] | Tensor:
        """Add a batch, and give the values within it."""
        self.update(*args, **kwargs)
        try:
            values: Mapping[str, float] = self._evaluate(self.embeddings[-1:], self.notes[-1:], together=False)
        except NothingToEvaluateError:
            values = dict.fromkeys(self.names, math.nan)
        self._forward_cache = self._tensors(values)
        return self._forward_cache

    def compute(self) -> dict[str, Tensor] | Tensor:
        """The values over all rows of all processes.

        Raises:
            RecallatkError: nothing to evaluate, or rows that do not fit each other; on every process.
        """
        try:
            self._report = self._evaluate(self.embeddings, self.notes, together=self._is_synced)
        except Exception:
            if self._is_synced:  # torchmetrics does so only where nothing goes wrong
                self.unsync()
            raise
        if number_and_world(self._group if self._is_synced else None)[0] == 0:
            for warning in self._report.warnings:
                warnings.warn(warning, stacklevel=3)
        return self._tensors(self._report)

    def _evaluate(self, embeddings: list[Tensor], notes: list[Tensor], *, together: bool) -> Report:
        # Bytes that `set_dtype` made numbers of another dtype are still those bytes.
        lines = b"".join(bytes(part.to("cpu", torch.uint8).numpy()) for part in notes)
        return evaluate_rows(
            Rows(embeddings, Notes.from_lines(lines)),
            protocol=self.protocol,
            qrels=self.qrels,
            metrics=self.metrics,
            together=together,
            group=self._group,
            collect_device=self.collect_device,
            timeout=self.timeout,
        )

    def _tensors(self, values: Mapping[str, float]) -> dict[str, Tensor] | Tensor:
        if self.only is not None:
            return torch.tensor(values[self.only], device=self.device)
        return {name: torch.tensor(value, device=self.device) for name, value in values.items()}

    def _sync_dist(self, dist_sync_fn: Any = None, process_group: Any = None) -> None:
        """Rows stay where they are: `compute()` brings them to one process, not to all."""
        self._group = process_group or self.process_group

    def _copy_state_dict(self) -> dict[str, list[Tensor]]:
        """The lists: their tensors are never written to."""
        return {"embeddings": list(self.embeddings), "notes": list(self.notes)}


def _as_tensor(embeddings: Any) -> Tensor:
    try:
        return torch.as_tensor(embeddings).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecallatkError(
            f"embeddings are {type(embeddings).__name__}, and no tensor can be made of it; give one tensor of "
            "(rows, columns), such as output.last_hidden_state[:, 0]"
        ) from error


def recall_at_k(
    embeddings: Tensor,
    labels: Tensor | Iterable[Any] | None,
    ids: Tensor | Iterable[Any] | None = None,
    role: Role | Sequence[Role] = "both",
    *,
    ks: int | Sequence[int] | None = None,
    protocol: EvalProtocol | None = None,
    metrics: Sequence[str] = (),
) -> dict[str, Tensor]:
    """recall@K of the rows of this process; what `RecallAtK` gives after one update with them.

    >>> recall_at_k(torch.eye(3)[[0, 0, 1, 1, 2]], torch.tensor([7, 7, 8, 8, 9]), ids=range(5), ks=1)
    {'recall@1': tensor(1.)}
    """
    metric = RecallAtK(ks, protocol=protocol, metrics=metrics, sync_on_compute=False)
    metric.update(embeddings, labels, ids, role)
    metric.compute()
    return {name: torch.tensor(value) for name, value in metric.report.items()}
