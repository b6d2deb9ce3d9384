"""Grid rows in 8 bits for the native backend: the frame they are seen in, and what the C code reads."""

from __future__ import annotations

import dataclasses
import importlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.ranking.counts import Similarities
from recallatk.ranking.equal_rows import EqualRows, group_equal_rows
from recallatk.ranking.grid import GridRows

Float32 = npt.NDArray[np.float32]

SUPERBLOCK = 192
LEFT, RIGHT = 6, 64

STEPS = 2.0**52
"""Grid steps of similarity in the unit that thresholds are computed in."""

MOST_COLUMNS = 2**15
"""So many products of two 8-bit numbers, 255 * 127 + 128 * 127 for each, and two biases of 2**28 stay below 2**31."""

LARGEST_BIAS = 2.0**28

FINE = 32_000
"""The longest row of a superblock in steps of 16 bits: products of two rows stay below 2**31."""

SAMPLE = 256
ROWS_A_TASK = 16 * SUPERBLOCK

WORTH_TURNING = 1.2
"""A turn pays if it makes the error of 8 bits smaller by this factor."""


def extension() -> Any:
    """The C extension."""
    return importlib.import_module("recallatk.ranking._native")


@dataclasses.dataclass(frozen=True)
class Frame:
    """How rows are seen before they are rounded: from where, and from which side.

    Any frame is right; a good one is fast.

    Attributes:
        origin: (d,) grid steps that are taken off every row; empty: none. The kernel adds its products again.
        signs: (d,) of the random turn, 1 or -1; empty: no turn.
        reach: about how far rows are from the origin, in units of 2**26 steps.
    """

    origin: GridRows
    signs: Float32
    reach: float = 1.0

    @property
    def is_plain(self) -> bool:
        """Whether rows are seen as they are."""
        return not len(self.origin) and not len(self.signs)

    @property
    def square(self) -> float:
        """The product of the origin with itself, in units."""
        origin = self.origin.astype(np.float64)
        return float(origin @ origin) / STEPS

    def least_scale(self, longest: Similarities) -> Similarities:
        """The smallest scale at which every bias is below LARGEST_BIAS steps of any product; see docs/exactness.md."""
        least = math.sqrt(math.sqrt(self.square) * self.reach / LARGEST_BIAS) * 1.001
        return least * np.maximum(longest / self.reach, 1.0)


NO_FRAME = Frame(np.empty(0, np.int32), np.empty(0, np.float32))


def choose_frame(rows: GridRows) -> Frame:
    """The frame in which a sample of rows is more exact in 8 bits.

    Rows with a common part (a collapsed encoder, features that are never negative) are small without it, and the error
    of 8 bits is a share of what is left. A row with a few large coordinates is coarse in all the others; turned, it has
    coordinates like normal random numbers. Rows of a few distinct values lose by either.
    """
    sample = rows[:: max(1, len(rows) // SAMPLE)].astype(np.float64) * 2.0**-26
    d = rows.shape[1]
    mean = np.rint(sample.mean(axis=0) * 2.0**26)
    plain, centred = (_rounding_error(part) for part in (sample, sample - mean * 2.0**-26))
    worth_it = math.prod(centred) < math.prod(plain) / 2
    tail, length = centred if worth_it else plain
    # The largest of d normal numbers is about sqrt(2 log 2d) times their deviation.
    turned = math.sqrt(2 * math.log(2 * d) / 12) / 127 * length
    signs = NO_FRAME.signs
    if d >= RIGHT and tail > WORTH_TURNING * turned:
        signs = np.random.default_rng(0).choice(np.array([-1, 1], np.float32), d)
    reach = float(np.linalg.norm(sample - mean * 2.0**-26, axis=1).max())
    if not worth_it or not reach:
        return Frame(NO_FRAME.origin, signs)
    return Frame(mean.astype(np.int32), signs, reach)


def _rounding_error(rows: Similarities) -> tuple[float, float]:
    """What 8 bits lose of a row, and how long it is, on average."""
    scale = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 2.0**-26) / 127
    rest = rows - np.rint(rows / scale) * scale
    return float(np.mean(np.linalg.norm(rest, axis=1))), float(np.mean(np.linalg.norm(rows, axis=1)))


@dataclasses.dataclass(frozen=True)
class Packed:
    """Distinct rows as 8-bit integers in the order of the kernel.

    Attributes:
        equal: which rows share a place.
        order: (places,) the group of each place.
        frame: how the rows were seen.
        d: columns.
        buffers: what the C code reads: see side_t in _native.h.
    """

    equal: EqualRows
    order: npt.NDArray[np.int64]
    frame: Frame
    d: int
    buffers: tuple[npt.NDArray[Any], ...]

    @property
    def n(self) -> int:
        """How many places are taken."""
        return len(self.order)

    def ask(self, best: npt.NDArray[np.floating]) -> None:
        """Set another best positive for each row, in units of similarity; no rows share a place."""
        self.buffers[10][: self.n] = best[self.buffers[1]]

    @property
    def superblocks(self) -> int:
        """How many blocks of places share a scale."""
        return -(-self.n // SUPERBLOCK)


def pack(
    rows: GridRows,
    best: Similarities | None,
    frame: Frame,
    *,
    left: bool = True,
    right: bool = True,
    threads: int = 1,
) -> Packed:
    """Sort distinct rows by their largest coordinate, so that neighbours share a scale, and round them to 8 bits.

    Args:
        rows: (n, d) grid rows, at least one.
        best: (n,) the best positive of each row as a query, in grid steps, +inf for none; None for a gallery.
        frame: the same for every set that is compared.
        left: pack them as queries.
        right: pack them as gallery rows.
        threads: how many.
    """
    rows = np.ascontiguousarray(rows)
    d = rows.shape[1]
    words, width = -(-d // 4), -(-d // 32) * 32
    equal = group_equal_rows(rows, best)
    n = len(equal.first)
    blocks = -(-n // SUPERBLOCK)
    places = blocks * SUPERBLOCK
    starts = np.arange(0, n, SUPERBLOCK)
    tasks = range(0, n, ROWS_A_TASK)
    native = extension()

    largest, length = np.empty(n), np.zeros(places)
    common, smallest = np.zeros(n, np.int32), np.zeros(n, np.int32)
    measured = (rows, equal.first, frame.origin, frame.signs, largest, length, common, smallest)
    in_parallel(threads, lambda start: native.measure(measured, start, min(start + ROWS_A_TASK, n), d), tasks)
    order = np.argsort(largest, kind="stable")
    row = equal.first[order]
    length[:n] = length[:n][order]
    longest = np.maximum.reduceat(length, starts)
    step = _steps(common[order], smallest[order], starts) if frame.is_plain else np.zeros(blocks)
    top = np.maximum(largest[order][np.minimum(starts + SUPERBLOCK, n) - 1], 2.0**-26) / 127
    if len(frame.origin):
        top = np.maximum(top, frame.least_scale(longest))
    scale = np.where(step > 0, step * 2.0**-26, top.astype(np.float32))
    fine_scale = (np.maximum(longest, 2.0**-26) / FINE).astype(np.float32).astype(np.float64)

    left_rows = aligned(places * words * 4 if left else 0, np.int8)
    right_rows = aligned(places * words * 4 if right else 0, np.uint8)
    fine = aligned(n * width * 2, np.int16)
    offset = np.zeros(places, np.int32)
    head, tail, fine_tail, bias = (np.zeros(places) for _ in range(4))
    sides = (left_rows, right_rows, fine, offset, head, tail, fine_tail, bias)
    packed = (rows, row, frame.origin, frame.signs, scale, fine_scale, step, length, *sides)
    in_parallel(threads, lambda start: native.pack(packed, start, min(start + ROWS_A_TASK, n), d), tasks)

    weight = np.ones(places, np.int32)
    weight[:n] = equal.weight[order]
    plain = (weight.reshape(-1, RIGHT) == 1).all(axis=1)
    most_tail, most_fine_tail = (x.reshape(blocks, SUPERBLOCK).max(axis=1) for x in (tail, fine_tail))
    sorted_best = np.full(places, np.inf)
    if best is not None:
        sorted_best[:n] = best[row] / STEPS
    of_places = (rows, row, left_rows, right_rows, fine, weight, plain, offset, head, tail, sorted_best, bias)
    of_superblocks = (scale, most_tail, longest, fine_scale, most_fine_tail, step)
    return Packed(equal, order, frame, d, (*of_places, *of_superblocks))


def _steps(common: GridRows, smallest: GridRows, starts: npt.NDArray[np.int64]) -> Similarities:
    """For each superblock the step of which all its coordinates are multiples that fit 8 bits; 0: there is none.

    Either all coordinates but zeros have one size (codes, multi-hot rows): then that has the bits of all together. Or
    a power of two does it (8-bit rows from elsewhere).

    Args:
        common: (n,) the bits that any coordinate of a row has.
        smallest: (n,) the smallest size of a coordinate that is not zero.
        starts: the first row of each superblock.
    """
    bits, least = np.bitwise_or.reduceat(common, starts), np.minimum.reduceat(smallest, starts)
    power = bits & -bits
    fits = (power > 0) & (bits <= 127 * power)
    return np.where(bits == least, bits, np.where(fits, power, 0)).astype(np.float64)


def in_parallel(threads: int, work: Callable[[int], object], items: Iterable[int]) -> None:
    """Call for each item, on so many threads; C gives way while it works."""
    if threads == 1:
        for item in items:
            work(item)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, items))


def aligned(size: int, dtype: Any) -> npt.NDArray[Any]:
    """So many bytes of zeros; the first is at a multiple of 64, as the kernel's loads want."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype)
