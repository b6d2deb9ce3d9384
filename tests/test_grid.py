"""The grid: each row rounded once and alike on every machine, and every product of two rows exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import oracle
from recallatk import ranking
from recallatk.types import EmbeddingSet, RecallatkError

UNIT = 2**26
LARGEST, SMALLEST = np.finfo(np.float32).max, np.float32(1e-45)

FLOATS = st.one_of(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, float(SMALLEST), -float(SMALLEST), float(LARGEST), 1.1754943508222875e-38]),
    st.integers(-9, 9).map(float),
)


def to_grid(rows) -> np.ndarray:
    (grid,) = ranking.to_grid(rows)
    return grid.rows


def assert_rounded_once(rows):
    """Equal to the exact grid, but for one step where a coordinate lies so near a border that float64 may differ."""
    grid = to_grid(rows)
    assert grid.shape == rows.shape
    assert grid.dtype == np.int32
    for row, found in zip(rows, grid.tolist(), strict=True):
        for ours, exact, near in zip(found, oracle.grid_row(row), oracle.near_border(row), strict=True):
            assert abs(ours - exact) <= near


@given(arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=FLOATS))
def test_a_row_is_rounded_once(rows):
    rows = rows[rows.any(axis=1)]
    assert_rounded_once(rows)


@pytest.mark.parametrize("d", [1, 2, 3, 7, 64, 65, 1000])
def test_rows_of_any_width_are_rounded_once(d):
    rng = np.random.default_rng(d)
    assert_rounded_once(rng.normal(size=(4, d)).astype(np.float32))
    assert_rounded_once((rng.normal(size=(2, d)) * 10.0 ** rng.integers(-30, 30, size=(2, d))).astype(np.float32))


@pytest.mark.parametrize("scale", [1e-45, 1e-43, 1e-40, 1e-38, 1e-20, 1e20, 3e38])
def test_denormal_and_huge_rows_have_their_direction(scale):
    rows = (np.array([[1.0, 0, 0], [1, 1, -1], [0.9, 1, 0.25], [1, -1, 0]]) * scale).astype(np.float32)
    assert_rounded_once(rows)
    assert to_grid(rows)[0].tolist() == [UNIT, 0, 0]
    assert to_grid(rows)[3].tolist() == [47453133, -47453133, 0]


def test_exact_halves_stay_within_a_step():
    # Of length 2^27: every coordinate becomes its half. The squares add up beyond 2^53, where float64 drops a bit.
    row = [134217720, 46340, 296, 18, 1, 3, -5, -3]
    assert sum(x * x for x in row) == 2**54
    assert_rounded_once(np.array([row]))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e39, -3.5e38])
def test_what_float32_cannot_hold_never_reaches_the_grid(value):
    with pytest.raises(RecallatkError, match=r"row 1 .* is not finite \(NaN, or beyond float32\)"):
        EmbeddingSet(np.array([[1.0, 0], [0, value]]), list("ab"))


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-46, -1e-300])
def test_what_is_zero_as_float32_never_reaches_the_grid(value):
    with pytest.raises(RecallatkError, match=r"row 1 .* is all zero"):
        EmbeddingSet(np.array([[1.0, 0], [0, value]]), list("ab"))


@given(arrays.arrays(np.float32, (3, 5), elements=st.floats(-1, 1, width=32)), st.integers(-60, 60))
def test_a_power_of_two_changes_nothing(rows, power):
    rows = rows[(np.abs(rows) > 1e-6).any(axis=1)]
    rows[np.abs(rows) < 1e-6] = 0  # stay inside the normal range
    assert np.array_equal(to_grid(rows), to_grid(rows * np.float32(2.0**power)))


def test_turning_a_row_round_turns_its_grid_round():
    rows = np.random.default_rng(0).normal(size=(20, 33)).astype(np.float32)
    assert np.array_equal(to_grid(-rows), -to_grid(rows))


# A row's grid is its own


@pytest.mark.parametrize("d", [1, 3, 65, 1000])
def test_a_row_alone_equals_the_row_among_others(d):
    rows = np.random.default_rng(d).normal(size=(4100 if d < 100 else 2200, d)).astype(np.float32)
    together = to_grid(rows)  # more rows than are converted at a time
    for row in [0, 1, 2047, 2096, 2097, len(rows) - 1]:
        assert np.array_equal(to_grid(rows[row : row + 1])[0], together[row])
    assert np.array_equal(to_grid(rows[::-1])[::-1], together)


def test_the_memory_layout_changes_nothing(tmp_path):
    rows = np.random.default_rng(1).normal(size=(50, 70)).astype(np.float32)
    plain = to_grid(rows)
    np.save(tmp_path / "rows.npy", rows)
    locked = rows.copy()
    locked.setflags(write=False)
    wide = np.zeros((100, 140), np.float32)
    wide[::2, ::2] = rows
    unaligned = np.frombuffer(b"x" + rows.tobytes(), dtype=np.float32, offset=1).reshape(rows.shape)
    layouts = {
        "Fortran order": np.asfortranarray(rows),
        "strided": wide[::2, ::2],
        "backwards": np.ascontiguousarray(rows[::-1, ::-1])[::-1, ::-1],
        "transposed": np.ascontiguousarray(rows.T).T,
        "read-only": locked,
        "memory map": np.load(tmp_path / "rows.npy", mmap_mode="r"),
        "big-endian": rows.astype(">f4"),
        "unaligned": unaligned,
        "float64": rows.astype(np.float64),
    }
    for name, layout in layouts.items():
        before = np.array(layout)
        assert np.array_equal(to_grid(layout), plain), name
        assert np.array_equal(EmbeddingSet(layout, range(50)).embeddings, before), name


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint8, np.int64, np.uint64, np.longdouble])
def test_every_dtype_goes_through_float32(dtype):
    rows = np.random.default_rng(2).integers(1, 120, size=(20, 9))
    assert np.array_equal(to_grid(rows.astype(dtype)), to_grid(rows.astype(np.float32)))


def test_numbers_too_long_for_float32_are_rounded_to_it_first():
    rows = np.random.default_rng(3).normal(size=(20, 9))
    assert np.array_equal(to_grid(rows), to_grid(rows.astype(np.float32)))


# Every product is exact


def few_large_coordinates(rng, n, d):
    rows = np.full((n, d), 1e-9, np.float32)
    rows[np.arange(n)[:, None], rng.integers(0, min(d, 4), size=(n, 2))] = rng.choice([1, -1, 0.5], size=(n, 2))
    return rows


ROWS = {
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "all equal": lambda rng, n, d: np.ones((n, d)),
    "signs": lambda rng, n, d: rng.choice([-1.0, 1.0], size=(n, d)),
    "all in few coordinates": few_large_coordinates,
    "falling": lambda rng, n, d: rng.choice([-1.0, 1.0], size=(n, d)) * 2.0 ** -(np.arange(d) % 60),
    "rounded up": lambda rng, n, d: np.where(np.arange(d) < 1, 1.0, 0.51 * 2.0**-26)[None, :].repeat(n, axis=0),
}


@pytest.mark.parametrize("d", [1, 2, 64, 1000, 100_000])
@pytest.mark.parametrize("rows", ROWS)
def test_a_float64_product_is_the_exact_product(rows, d):
    rng = np.random.default_rng(d)
    grid = to_grid(ROWS[rows](rng, 6, d).astype(np.float32))
    product = grid.astype(np.float64) @ grid.astype(np.float64).T
    exact = [[sum(map(int.__mul__, a, b)) for b in grid.tolist()] for a in grid.tolist()]
    assert [[int(value) for value in row] for row in product.tolist()] == exact
    backwards = grid[:, ::-1].astype(np.float64, order="F") @ grid[:, ::-1].astype(np.float64, order="C").T
    assert np.array_equal(backwards, product)
    # Not only the whole sum, but every part of it, in any order, stays below 2^53.
    sizes = np.abs(grid.astype(np.int64))
    assert int((sizes @ sizes.T).max()) < 2**53


@pytest.mark.parametrize("d", [1, 2, 3, 100, 100_000])
def test_a_row_has_unit_length_on_the_grid(d):
    grid = to_grid(np.random.default_rng(d).normal(size=(5, d)).astype(np.float32)).astype(np.int64)
    lengths = np.sqrt((grid**2).sum(axis=1).astype(np.float64))
    assert np.all(np.abs(lengths - UNIT) <= np.sqrt(d) / 2)
