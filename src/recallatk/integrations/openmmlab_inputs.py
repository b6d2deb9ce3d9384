"""What mmpretrain's retrieval metrics are called with -> scores, ranked lists and relevant positions as numpy arrays.

Errors that mmpretrain raises too have its types; what only recallatk refuses is a `RecallatkError`.
"""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.evaluation import NothingToEvaluateError
from recallatk.evaluation.queries import Positions, tally_lists, tally_scores
from recallatk.evaluation.tally import Tally
from recallatk.types import RecallatkError
from recallatk.wording import counted

Array = npt.NDArray[Any]

IDENTITIES = ("sample_idx", "img_id", "image_id", "img_path")
"""Fields of a data sample that say together which sample of the data set it is."""


class NoQueriesError(NothingToEvaluateError, ZeroDivisionError):
    """There is no query to take a mean over; a ZeroDivisionError too, as in mmpretrain, so that handlers still work."""


def read_cutoff(topk: Any) -> int:
    """One cutoff.

    Raises:
        TypeError: not a whole number.
        ValueError: None, or below 1.
    """
    if topk is not None and not isinstance(topk, numbers.Integral):
        raise TypeError(f"`topk` is {topk!r}; pass a whole number, such as 10")
    if topk is None or topk < 1:
        raise ValueError(f"`topk` must be a whole number of at least 1, not {topk!r}")
    return int(topk)


def read_cutoffs(topk: Any) -> tuple[int, ...]:
    """One cutoff or several, in the order given.

    Raises:
        TypeError: not whole numbers.
        ValueError: none at all, or one below 1.
    """
    if isinstance(topk, numbers.Integral):
        return (read_cutoff(topk),)
    if isinstance(topk, str) or not isinstance(topk, Iterable):
        raise TypeError(f"`topk` is {topk!r}; pass a whole number or several, such as (1, 5)")
    values = topk.tolist() if hasattr(topk, "tolist") else topk  # arrays and tensors
    cutoffs = tuple(map(read_cutoff, values if isinstance(values, Iterable) else [values]))
    if not cutoffs:
        raise ValueError(f"`topk` must be at least one whole number, such as (1, 5); it is {topk!r}")
    return cutoffs


def tally(
    pred: Any,
    target: Any,
    cutoff: int,
    metrics: Sequence[str],
    *,
    pred_indices: bool,
    target_indices: bool,
    empty_lists: bool,
) -> Tally:
    """The metrics of each query, from the arguments of `calculate`.

    Args:
        pred: scores (queries, gallery items), or a list of ranked positions for each query.
        target: marks (queries, gallery items), or a list of relevant positions for each query.
        cutoff: the largest; lists are read up to here.
        metrics: such as `"recall@5"`.
        pred_indices: whether `pred` is lists.
        target_indices: whether `target` is lists.
        empty_lists: whether a ranked list may be empty.
    """
    scores = None if pred_indices else _read_scores(pred, cutoff)
    lists = _read_lists(pred, "pred", cutoff) if scores is None else []
    marks = None if target_indices else _read_marks(target)
    wanted = _read_lists(target, "target") if marks is None else []
    n = len(lists) if scores is None else len(scores)
    n_targets = len(wanted) if marks is None else len(marks)
    if n != n_targets:
        raise AssertionError(f"Length of `pred` and of `target` must be the same, one row a query: {n} and {n_targets}")
    if not n:
        raise NoQueriesError("there are no queries: `pred` and `target` are empty; pass at least one row")
    if scores is None:
        empty = [query for query, row in enumerate(lists) if not len(row)]
        if empty and not empty_lists:
            raise ValueError(f"`pred`: the ranked list of query {empty[0]} is empty; every query needs a ranking")
        relevant = Positions.of(wanted) if marks is None else Positions.marked(marks)
        return tally_lists(Positions.of(lists), relevant, metrics)
    n_gallery = scores.shape[1]
    if marks is not None and marks.shape[1] != n_gallery:
        raise RecallatkError(
            f"`target` has {counted(marks.shape[1], 'column')} and `pred` scores {counted(n_gallery, 'gallery item')}; "
            "there must be one column for each gallery item"
        )
    relevant = _inside(wanted, n_gallery) if marks is None else Positions.marked(marks)
    return tally_scores(scores, relevant, metrics)


def tally_samples(samples: Iterable[Any], first: int, cutoff: int, metrics: Sequence[str]) -> Iterator[Tally]:
    """The metrics of data samples, dicts or DataSample objects: `pred_score` with `gt_score` or else `gt_label`.

    Args:
        samples: in a batch.
        first: the place of the first among those that this process was given; errors name a sample by its place.
        cutoff: the largest.
        metrics: such as `"recall@5"`.

    Yields:
        The metrics of the samples in order, those in a row whose galleries are of one size together.
    """
    read = [_read_sample(sample, number, cutoff) for number, sample in enumerate(samples, first)]
    for _, together in itertools.groupby(read, key=lambda one: len(one[0])):
        scores, relevant = zip(*together, strict=True)
        yield tally_scores(np.stack(scores), Positions.of(relevant), metrics)


def identity_of(sample: Any) -> tuple[str, ...] | None:
    """Which sample of the data set this is, as far as its fields say; None if they do not."""
    known = tuple(f"{field}={sample.get(field)}" for field in IDENTITIES if sample.get(field, None) is not None)
    return known or None


def _is_array(values: Any) -> bool:
    return isinstance(values, np.ndarray) or hasattr(values, "detach")


def _to_numpy(values: Any) -> Array:
    """A tensor on any device, an array, or nested lists; bfloat16 becomes float32, which is exact."""
    if hasattr(values, "detach"):
        tensor = values.detach().cpu()
        values = tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor
        return np.asarray(values.numpy())
    return np.asarray(values)


def _kind(values: Any) -> str:
    shape = getattr(values, "shape", None)
    return f"of type {type(values).__name__}" + ("" if shape is None else f" of shape {tuple(shape)}")


def _read_scores(pred: Any, cutoff: int) -> Array:
    if not _is_array(pred):
        raise TypeError(
            f"`pred` is {_kind(pred)}; scores must be a torch.Tensor or np.ndarray (queries, gallery items), "
            "and ranked lists of gallery positions need pred_indices=True"
        )
    scores = _to_numpy(pred)
    if scores.dtype.kind not in "fiu":
        raise TypeError(f"`pred` has the dtype {scores.dtype}; scores must be real numbers")
    if scores.ndim != 2:
        raise RecallatkError(f"`pred` has the shape {scores.shape}; scores must be (queries, gallery items)")
    if len(scores) and cutoff > scores.shape[1]:
        raise RuntimeError(
            f"selected index k out of range: `topk` holds {cutoff}, and `pred` scores only "
            f"{counted(scores.shape[1], 'gallery item')}; take a smaller `topk`"
        )
    return scores


def _read_marks(target: Any) -> Array:
    if not _is_array(target) and not isinstance(target, list | tuple):
        raise TypeError(
            f"`target` is {_kind(target)}; pass a tensor, an array or nested lists (queries, gallery items) with 1 "
            "where an item is relevant, or lists of gallery positions with target_indices=True"
        )
    if not _is_array(target):
        rows = [_to_numpy(row) for row in target]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(
                "`target`: the rows have different lengths; if they are lists of gallery positions, pass "
                "target_indices=True"
            )
        target = np.stack(rows) if rows else np.empty((0, 0))
    marks = _to_numpy(target)
    if marks.dtype.kind not in "fiub":
        raise TypeError(f"`target` has the dtype {marks.dtype}; marks must be numbers or booleans")
    if marks.ndim != 2:
        raise RecallatkError(
            f"`target` has the shape {marks.shape}; it must be (queries, gallery items), with 1 where an item is "
            "relevant. From class ids: query_labels[:, None] == gallery_labels[None]. Or pass lists of gallery "
            "positions with target_indices=True"
        )
    return marks


def _read_lists(values: Any, name: str, cutoff: int | None = None) -> list[Array]:
    """One array of positions for each query, cut at `cutoff`; the caller's lists stay as they are."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise AssertionError(
            f"`{name}` must be Sequence of rows of gallery positions, one for each query; it is {_kind(values)}"
        )
    return [
        _read_row(row, f"`{name}` should be Sequence of rows of gallery positions: row {i}", cutoff)
        for i, row in enumerate(values)
    ]


def _read_row(row: Any, what: str, cutoff: int | None = None) -> Array:
    if not (_is_array(row) or isinstance(row, list | tuple | range)):
        raise AssertionError(f"{what} is {_kind(row)}; pass a list of whole numbers, a 1-D array or a 1-D tensor")
    positions = _to_numpy(row if _is_array(row) else list(row)[:cutoff])
    if positions.dtype.kind == "b":
        raise TypeError(
            f"{what} holds booleans, which are marks; pass positions, or marks without the flag for indices"
        )
    if positions.dtype.kind not in "iu" and positions.size and not _is_array(row):
        odd_one = next((value for value in row if not isinstance(value, numbers.Integral)), row[0])
        raise AssertionError(f"{what} holds {odd_one!r}; pass a list of whole numbers")
    if positions.ndim > 1:
        raise AssertionError(f"{what} has the shape {positions.shape}; it must be one-dimensional")
    if positions.dtype.kind not in "fiu":
        raise TypeError(f"{what} has the dtype {positions.dtype}; positions are whole numbers")
    positions = np.atleast_1d(positions)[:cutoff]
    if positions.dtype.kind == "f":
        odd = positions[~np.isfinite(positions) | (positions != np.floor(positions))]
        if odd.size:
            raise RecallatkError(f"{what} holds {odd[0]}; positions are whole numbers")
    return positions.astype(np.int64)


def _read_sample(sample: Any, number: int, cutoff: int) -> tuple[Array, Array]:
    """The scores of a data sample, and its relevant positions."""
    if not (isinstance(sample, Mapping) or hasattr(sample, "get")):
        raise TypeError(f"sample {number} is {_kind(sample)}; pass a list of dicts or DataSample objects")
    pred, marks, label = (sample.get(field, None) for field in ("pred_score", "gt_score", "gt_label"))
    if pred is None:
        raise KeyError(f"sample {number} has no `pred_score`: the scores of the gallery, one for each item")
    if marks is None and label is None:
        raise KeyError(f"sample {number} has neither `gt_score` nor `gt_label`: which gallery items are relevant")
    if not _is_array(pred) or pred.ndim != 1:
        raise TypeError(f"sample {number}: `pred_score` is {_kind(pred)}; pass a 1-D tensor, a score a gallery item")
    (scores,) = _read_scores(pred[None], cutoff)
    if np.isnan(scores).any():
        raise RecallatkError(f"sample {number}: `pred_score` holds NaN; every score must be a number")
    if marks is None:
        if not (_is_array(label) or isinstance(label, list | tuple | range | numbers.Integral)):
            raise TypeError(
                f"sample {number}: `gt_label` is {_kind(label)}; pass one position in the gallery or a list"
            )
        positions = _read_row([label] if isinstance(label, numbers.Integral) else label, f"sample {number}: `gt_label`")
        return scores, _inside([positions], len(scores), f"sample {number}: `gt_label`").rows
    marked = _to_numpy(marks)
    if marked.shape != scores.shape:
        raise RecallatkError(
            f"sample {number}: `gt_score` has the shape {marked.shape} and `pred_score` {scores.shape}; "
            "there must be one entry for each gallery item"
        )
    return scores, np.flatnonzero(marked != 0)


def _inside(lists: list[Array], n_gallery: int, what: str = "`target`") -> Positions:
    positions = Positions.of(lists)
    outside = np.flatnonzero((positions.rows < 0) | (positions.rows >= n_gallery))
    if len(outside):
        row = "" if len(lists) == 1 else f" of query {positions.owners[outside[0]]}"
        raise RuntimeError(
            f"{what}{row} names gallery item {positions.rows[outside[0]]}, and there are scores for "
            f"{counted(n_gallery, 'item')}, 0 to {n_gallery - 1}; it holds positions in the gallery, not class ids"
        )
    return positions
