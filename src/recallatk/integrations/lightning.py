"""recall@K after each validation of a Lightning Trainer, logged beside everything else.

`validation_step` (and `test_step`) returns a dict with `embeddings` and `labels`, and `ids` wherever a sampler may
repeat rows, as with several devices.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from recallatk.extras import import_extra
from recallatk.integrations.processes import TIMEOUT, CollectDevice
from recallatk.integrations.rows import Role
from recallatk.integrations.values import flat_values
from recallatk.report import Report
from recallatk.types import EvalProtocol, Qrels, RecallatkError

# Both packages are the same code; a Trainer of one does not take what belongs to the other.
_older = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
Callback: Any = import_extra(
    "pytorch_lightning" if _older else "lightning.pytorch", "lightning", "RecallCallback"
).Callback

COLUMNS = ("embeddings", "labels", "ids", "groups", "positions")
"""What a step may return, as `RecallAtK.update` takes it."""


class RecallCallback(Callback):  # type: ignore[misc]  # lightning is not installed where types are checked
    """Log recall@K at the end of each validation and test: `val/recall@1`, with the ends of its interval.

    Embeddings wait on the CPU. The report of the last validation or test is `report`.

    Args:
        ks: the cutoffs; default those of the protocol (1, 5, 10).
        protocol: everything that can change the number.
        metrics: metrics beside recall@k, such as `"mrr"`.
        qrels: judged pairs, for `relevance="qrels"`.
        roles: what each dataloader holds: "both" (leave-one-out), or one a dataloader, such as ("query", "gallery").
        prefix: before each name; default the stage, `val/` or `test/`.
        collect_device: where rows of several processes travel: "cpu", or "gpu" (NCCL).
        timeout: seconds that processes wait for each other, counting included.
    """

    def __init__(
        self,
        ks: int | Sequence[int] | None = None,
        *,
        protocol: EvalProtocol | None = None,
        metrics: Sequence[str] = (),
        qrels: Qrels | None = None,
        roles: Literal["both"] | Sequence[Role] = "both",
        prefix: str | None = None,
        collect_device: CollectDevice = "cpu",
        timeout: float = TIMEOUT,
    ) -> None:
        from recallatk.integrations.torchmetrics import RecallAtK  # after lightning, which brings torchmetrics

        super().__init__()
        self.metric = RecallAtK(
            ks, protocol=protocol, metrics=metrics, qrels=qrels, collect_device=collect_device, timeout=timeout
        )
        self.roles, self.prefix = roles, prefix

    @property
    def report(self) -> Report:
        """The report of the last validation or test."""
        return self.metric.report

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget the rows of the last validation."""
        self.metric.reset()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Remember what `validation_step` returned."""
        self._remember(outputs, dataloader_idx, "validation_step")

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Evaluate and log; a sanity check sees too few batches for that."""
        if not trainer.sanity_checking:
            self._log(pl_module, "val/")

    def on_test_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Forget the rows of the last test."""
        self.metric.reset()

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Remember what `test_step` returned."""
        self._remember(outputs, dataloader_idx, "test_step")

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Evaluate and log."""
        self._log(pl_module, "test/")

    def _remember(self, outputs: Any, dataloader_idx: int, step: str) -> None:
        if not isinstance(outputs, Mapping) or not {"embeddings", "labels"} <= set(outputs):
            got = f"the keys {sorted(map(str, outputs))}" if isinstance(outputs, Mapping) else type(outputs).__name__
            raise RecallatkError(
                f"RecallCallback: {step} returned {got}; return a dict with 'embeddings' and 'labels' (and 'ids')"
            )
        role: Role = "both"
        if self.roles != "both":
            if isinstance(self.roles, str) or dataloader_idx >= len(self.roles):
                raise RecallatkError(
                    f"RecallCallback: roles={self.roles!r} has none for dataloader {dataloader_idx}; give one a "
                    "dataloader, such as roles=('query', 'gallery')"
                )
            role = self.roles[dataloader_idx]
        given = {name: outputs[name] for name in COLUMNS if name in outputs}
        rows = given.pop("embeddings")
        self.metric.update(rows.cpu() if hasattr(rows, "cpu") else rows, role=role, **given)

    def _log(self, pl_module: Any, stage: str) -> None:
        self.metric.compute()
        values = flat_values(self.report, stage if self.prefix is None else self.prefix)
        self.metric.reset()
        # Every process has these values already; sync_dist says so to Lightning, and takes their mean.
        pl_module.log_dict(values, sync_dist=True)
