"""mmpretrain's retrieval metrics, counted by recallatk: in place of `RetrievalRecall` and `RetrievalAveragePrecision`.

What is the same, what differs and why: `docs/openmmlab.md`.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from recallatk.evaluation.tally import TIE_RULES, Tally
from recallatk.extras import import_extra
from recallatk.integrations.openmmlab_inputs import (
    NoQueriesError,
    identity_of,
    read_cutoff,
    read_cutoffs,
    tally,
    tally_samples,
)
from recallatk.registry import METRICS
from recallatk.types import ChoiceError, Ties
from recallatk.wording import counted

torch = import_extra("torch", "openmmlab", __name__)
dist = import_extra("mmengine.dist", "openmmlab", __name__)
BaseMetric: Any = import_extra("mmengine.evaluator", "openmmlab", __name__).BaseMetric
logs = import_extra("mmengine.logging", "openmmlab", __name__)

Mode = Literal["IR", "integrate"]
_AVERAGE_PRECISION: dict[str, str] = {"IR": "map", "integrate": "map_trapezoid"}


@dataclasses.dataclass(frozen=True)
class SampleResult:
    """What is kept of a sample until the end of the epoch: a few numbers, never its scores.

    Attributes:
        identity: which sample of the data set it is; None where it does not say.
        has_relevant: whether any gallery item is relevant to it.
        values: tie rule -> one value in 0..1 for each metric.
    """

    identity: tuple[str, ...] | None
    has_relevant: bool
    values: dict[Ties, tuple[float, ...]]


class _RetrievalMetric(BaseMetric):  # type: ignore[misc]
    """What both metrics share: a result for each sample, collected from all processes, and their mean in percent."""

    default_prefix = "retrieval"

    def __init__(
        self, metrics: dict[str, str], deepest: int, collect_device: str, prefix: str | None, ties: Ties
    ) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix)
        self.ties = _check_ties(ties)
        self._metrics = metrics
        self._deepest = deepest

    def process(self, data_batch: Any, data_samples: Iterable[Any]) -> None:
        """Count for each sample of a batch; its scores are not kept.

        Args:
            data_batch: not looked at.
            data_samples: dicts or DataSample objects with `pred_score`, (n_gallery,), and `gt_score`, marks
                (n_gallery,), or else `gt_label`, one position in the gallery or several.
        """
        names = list(self._metrics.values())
        given = list(data_samples)  # an iterator too is read once only
        samples = iter(given)
        for columns in tally_samples(given, len(self.results), self._deepest, names):
            per_rule = {
                rule: zip(*(columns.values[name, rule].tolist() for name in names), strict=True) for rule in TIE_RULES
            }
            for found in columns.counts["n_positives"].tolist():
                values = {rule: next(rows) for rule, rows in per_rule.items()}
                self.results.append(SampleResult(identity_of(next(samples)), found > 0, values))

    def compute_metrics(self, results: Sequence[SampleResult]) -> dict[str, float]:
        """The mean over these samples, in percent: `{"Recall@1": ...}`, or `{"mAP@10": ...}`.

        Raises:
            NoQueriesError: there is no sample.
        """
        if not results:
            raise NoQueriesError("there are no samples to evaluate: nothing was processed, or size is 0")
        without = sum(not result.has_relevant for result in results)
        if without:
            _say(f"{counted(without, 'query has', 'queries have')} no relevant gallery item and counts as a miss")
        means = {}
        for place, key in enumerate(self._metrics):
            low, value, high = (
                _percent([result.values[rule][place] for result in results])
                for rule in ("pessimistic", self.ties, "optimistic")
            )
            if low != high:
                _say(
                    f"{key}: equal scores can move it from {low:.4f} to {high:.4f}; "
                    f"ties={self.ties!r} gives {value:.4f}"
                )
            means[key] = value
        return means

    def evaluate(self, size: int) -> dict[str, float]:
        """Collect the samples of all processes, leave out those that a sampler repeated, and take the means.

        Args:
            size: the number of samples of the data set.

        Returns:
            The metrics with their prefix, the same on every process; the metric is empty again.

        Raises:
            NoQueriesError: there is no sample; on every process, so that none waits for another.
        """
        collected = dist.collect_results(self.results, sys.maxsize, self.collect_device)
        answer: list[Any] = [None]
        if dist.is_main_process():
            try:
                means = self.compute_metrics(_without_padding(collected, size))
                answer = [{f"{self.prefix}/{key}" if self.prefix else key: value for key, value in means.items()}]
            except Exception as error:  # whatever it is, the others wait for an answer
                answer = [error]
        dist.broadcast_object_list(answer)
        self.results.clear()
        if isinstance(answer[0], Exception):
            raise answer[0]
        means_with_prefix: dict[str, float] = answer[0]
        return means_with_prefix


@METRICS.register_module()
class RetrievalRecall(_RetrievalMetric):
    """recall@k, the hit rate, in percent; takes the place of mmpretrain's metric of this name.

    Args:
        topk: one cutoff or several.
        collect_device: where results of several processes meet: `"cpu"`, `"gpu"` or `"npu"`.
        prefix: stands before the keys; default `retrieval`, as in `retrieval/Recall@1`.
        ties: how equal scores are ordered: the mean over all orders, relevant items last, or first.

    Raises:
        TypeError, ValueError: `topk` is no whole number of at least 1.
        ChoiceError: there is no such tie rule.
    """

    def __init__(
        self, topk: Any = 1, collect_device: str = "cpu", prefix: str | None = None, *, ties: Ties = "expected"
    ) -> None:
        self.topk = read_cutoffs(topk)
        metrics = {f"Recall@{k}": f"recall@{k}" for k in self.topk}
        super().__init__(metrics, max(self.topk), collect_device, prefix, ties)

    @staticmethod
    def calculate(
        pred: Any,
        target: Any,
        topk: Any,
        pred_indices: bool = False,
        target_indices: bool = False,
        *,
        ties: Ties = "expected",
    ) -> list[Any]:
        """recall@k of rankings.

        Args:
            pred: scores (queries, gallery items), a tensor or an array, higher is nearer; or with `pred_indices` a list
                of ranked gallery positions for each query.
            target: marks (queries, gallery items), every entry other than 0 being relevant; or with `target_indices` a
                list of relevant gallery positions for each query. A query without any counts as a miss.
            topk: one cutoff or several.
            pred_indices: whether `pred` is lists.
            target_indices: whether `target` is lists.
            ties: as for the class.

        Returns:
            A tensor of no dimensions for each cutoff, in percent, in torch's default dtype.

        Raises:
            AssertionError, TypeError, ValueError, RuntimeError: what mmpretrain refuses too.
            RecallatkError: a score is NaN, `target` has another shape than `pred`, there are no queries.
        """
        cutoffs = read_cutoffs(topk)
        columns = tally(
            pred,
            target,
            max(cutoffs),
            [f"recall@{k}" for k in cutoffs],
            pred_indices=pred_indices,
            target_indices=target_indices,
            empty_lists=False,
        )
        # mmpretrain rounds the share to torch's default dtype, and then the percentage
        return [torch.tensor(_mean(columns, f"recall@{k}", _check_ties(ties))) * 100 for k in cutoffs]


@METRICS.register_module()
class RetrievalAveragePrecision(_RetrievalMetric):
    """mAP@k in percent; takes the place of mmpretrain's metric of this name.

    Args:
        topk: the cutoff.
        mode: `"IR"`, the precisions at the relevant items up to k, divided by the number of relevant items; or
            `"integrate"`, each averaged with the precision just before it.
        collect_device: as for `RetrievalRecall`.
        prefix: as for `RetrievalRecall`.
        ties: as for `RetrievalRecall`.

    Raises:
        TypeError, ValueError: `topk` is no whole number of at least 1.
        AssertionError: there is no such mode.
        ChoiceError: there is no such tie rule.
    """

    def __init__(
        self,
        topk: int | None = None,
        mode: Mode = "IR",
        collect_device: str = "cpu",
        prefix: str | None = None,
        *,
        ties: Ties = "expected",
    ) -> None:
        self.topk = read_cutoff(topk)
        self.mode = mode
        super().__init__(
            {f"mAP@{self.topk}": _average_precision(mode, self.topk)}, self.topk, collect_device, prefix, ties
        )

    @staticmethod
    def calculate(
        pred: Any,
        target: Any,
        topk: int | None = None,
        pred_indices: bool = False,
        target_indices: bool = False,
        mode: Mode = "IR",
        *,
        ties: Ties = "expected",
    ) -> np.float64:
        """mAP@k of rankings, in percent; the arguments are those of `RetrievalRecall.calculate`.

        A position that a list names again takes a rank and is not relevant; a query without a relevant item has the
        value 0.
        """
        name = _average_precision(mode, read_cutoff(topk))
        columns = tally(
            pred,
            target,
            read_cutoff(topk),
            [name],
            pred_indices=pred_indices,
            target_indices=target_indices,
            empty_lists=True,
        )
        # numpy's mean of percentages, as in mmpretrain: their tests compare it to the last bit
        return np.float64(np.mean(100 * columns.values[name, _check_ties(ties)]))


def register_over_mmpretrain() -> None:
    """Make the bare names of both metrics mean the classes here, in mmpretrain's configs too.

    Raises:
        RecallatkError: mmpretrain is absent.
    """
    theirs = import_extra("mmpretrain.registry", "openmmlab", "register_over_mmpretrain").METRICS
    theirs.import_from_location()  # else mmpretrain registers its own later, which fails on a name that is taken
    for metric in (RetrievalRecall, RetrievalAveragePrecision):
        theirs.register_module(module=metric, force=True)


def _without_padding(results: Sequence[SampleResult], size: int) -> Sequence[SampleResult]:
    """The samples of the data set, each once: samplers repeat some so that all processes have equally many.

    Samples that say who they are are told apart by that. Others are cut by position, as mmengine does; that is right
    for its default sampler, which deals samples out one by one, and may be wrong for one that deals out runs.
    """
    first = {result.identity: result for result in reversed(results)}
    if dist.get_world_size() == 1 or len(results) <= size:
        if len(results) < size:
            _say(f"{counted(len(results), 'sample was', 'samples were')} processed, and the data set has {size:,}")
        elif dist.get_world_size() > 1 and None not in first and len(first) < size:
            _say(
                f"as many samples were processed as the data set has, {size:,}, but by their fields only "
                f"{len(first):,} different ones: those that came again count again, and others may be "
                "missing; look at the sampler"
            )
        return results[:size]
    if None not in first and len(first) == size:
        return list(first.values())
    _say(
        f"{len(results):,} samples were processed for a data set of {size:,}, and their fields do not say which are "
        "repeated, so the last ones were left out: right for mmengine's DefaultSampler only. Let the data samples keep "
        "`sample_idx` (meta_keys of PackInputs)"
    )
    return results[:size]


def _average_precision(mode: str, k: int) -> str:
    if mode not in get_args(Mode):
        raise AssertionError(f"Invalid `mode` {mode!r}; it is one of {', '.join(get_args(Mode))}")
    return f"{_AVERAGE_PRECISION[mode]}@{k}"


def _check_ties(ties: str) -> Ties:
    for rule in TIE_RULES:
        if ties == rule:
            return rule
    raise ChoiceError(f"ties={ties!r}; it is one of {', '.join(TIE_RULES)}")


def _mean(columns: Tally, name: str, ties: Ties) -> float:
    values = columns.values[name, ties]
    return math.fsum(values) / len(values)


def _percent(values: Sequence[float]) -> float:
    return math.fsum(100 * value for value in values) / len(values)


def _say(text: str) -> None:
    logs.print_log(f"recallatk: {text}", logger="current", level=logging.WARNING)
