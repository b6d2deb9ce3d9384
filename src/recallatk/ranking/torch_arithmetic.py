"""What torch must not do while it counts: round more than the bound allows. Its settings, and a test of them."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recallatk.extras import import_extra
from recallatk.types import RecallatkError

Tensor: TypeAlias = Any

SUM_ERROR = 2.0**-22
"""What a sum of d products errs for each of d + 1 terms, as a share of the two lengths: two cuts after 24 bits."""

SMALLEST_HALF = 2.0**-24


def import_torch() -> Any:
    """The module torch, or the pip command."""
    return import_extra("torch", "torch", "the backend torch")


def why_not() -> str | None:
    """Why the backend torch cannot be used here; None if it can. torch itself is not imported for it."""
    return None if importlib.util.find_spec("torch") else "torch is not installed (pip install 'recallatk[torch]')"


def sum_error(d: int) -> float:
    """How far a product of rows of d columns may be from the exact product of the same rows, per length times length.

    Holds for sums in float32 in any order, and in tensor cores, which cut instead of rounding (docs/exactness.md).
    """
    return (d + 1) * SUM_ERROR * (1 + 2 * (d + 1) * SUM_ERROR)


def to_device(values: npt.NDArray[np.generic], device: str) -> Tensor:
    """An array of the host as a tensor there; on the CPU it may share memory, so it is only read."""
    there = np.ascontiguousarray(values)
    return import_torch().from_numpy(there if there.flags.writeable else there.copy()).to(device)


def pair_products(left: Tensor, owners: Tensor, right: Tensor, others: Tensor) -> Tensor:
    """Exact similarities of pairs of grid rows: whole numbers in float64, every sum below 2**53."""
    return left[owners].double().mul_(right[others]).sum(dim=1)


@contextlib.contextmanager
def plain_arithmetic(threads: int) -> Iterator[None]:
    """Within, torch multiplies what it is given and sums in float32; afterwards the caller's settings are back.

    Off are: TF32 and bfloat16 inside float32 products, sums and partial sums in half precision, and autocast.

    Raises:
        RecallatkError: this torch is too old to be told.
    """
    torch = import_torch()
    cuda = torch.backends.cuda.matmul
    if not hasattr(cuda, "fp32_precision"):
        raise RecallatkError(f"the backend torch needs torch 2.9 or newer, and this is {torch.__version__}")
    reduction = "allow_fp16_reduced_precision_reduction"
    split = getattr(cuda, f"{reduction}_split_k", True)
    allowed = getattr(cuda, reduction)
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(setattr, cuda, reduction, allowed if split else (allowed, split))
        setattr(cuda, reduction, False)
        for place, name, value in (
            (cuda, "fp32_precision", "ieee"),
            (torch.backends.mkldnn.matmul, "fp32_precision", "ieee"),
            (cuda, "allow_fp16_accumulation", False),
        ):
            afterwards.callback(setattr, place, name, getattr(place, name))
            setattr(place, name, value)
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(threads)
        for device in ("cuda", "cpu"):
            afterwards.enter_context(torch.autocast(device, enabled=False))
        yield


def check_arithmetic(device: str, dtype: str) -> None:
    """Products of rows that show it if a device rounds more than the bound allows, in a few milliseconds.

    It cannot prove the bound; it finds a setting or a device that breaks what the bound assumes.

    Raises:
        RecallatkError: one of the products is wrong.
    """
    for d in (64, 4096):
        if not _screens_within_bound(device, dtype, d):
            raise RecallatkError(
                f"torch's {dtype} products on {device} are less exact than they must be; choose another backend"
            )
    if not _sums_whole_numbers(device):
        raise RecallatkError(f"torch's float64 products on {device} are not exact; choose another backend")


def _screens_within_bound(device: str, dtype: str, d: int) -> bool:
    torch = import_torch()
    rng = np.random.default_rng(d)
    rows = np.ones((8, d))
    rows[1] += 2.0**-10 + 2.0**-22  # lost where inputs lose bits: bfloat16, and TF32 for float32 rows
    rows[2] = np.resize([1.3, 0.2, -1.3], d)
    rows[3] = np.repeat([1.3, 0.04, -1.3], d // 3 + 1)[:d]  # the middle is lost in a sum of half precision
    rows[4:7] = rng.uniform(-1.9, 1.9, (3, d))
    rows[7] = 2.0**-15  # no normal number in half precision
    given = to_device(rows, device).to(getattr(torch, dtype))
    product = (given @ given.T).double().cpu().numpy()
    exact = given.double().cpu().numpy()
    lengths = np.sqrt((exact**2).sum(axis=1))
    expected = exact @ exact.T
    slack = sum_error(d) * np.outer(lengths, lengths)
    if dtype == "float16":  # the result is rounded as well; half a unit in the last place, or a whole one if it is cut
        slack = slack + 2.0**-10 * np.abs(expected) + SMALLEST_HALF
    return bool((np.abs(product - expected) <= slack).all())


def _sums_whole_numbers(device: str) -> bool:
    rows = np.tile(np.array([2**20 + 1, -(2**20) + 1, 2**20 - 3], dtype=np.int32), (3, 1366))[:, :4096]
    rows[1] = np.abs(rows[1])
    rows[2] = rows[2][::-1]
    exact = to_device(rows, device)
    left, right = (to_device(places.ravel(), device) for places in np.indices((3, 3)))
    pairs = pair_products(exact, left, exact, right).cpu().numpy().reshape(3, 3)
    product = (exact.double() @ exact.double().T).cpu().numpy()
    expected = (rows.astype(np.int64) @ rows.astype(np.int64).T).astype(np.float64)
    return np.array_equal(pairs, expected) and np.array_equal(product, expected)
