"""The C extension: its kernel, its error bound, what it refuses, and life without it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import shutil
import subprocess
import sys
import textwrap
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg

from grid_worlds import UNIT, WORLDS, assert_same, clusters, columns_of, truth_of, world
from recallatk.ranking import native, rank, to_grid
from recallatk.ranking.native import why_not
from recallatk.ranking.packing import (
    LEFT,
    MOST_COLUMNS,
    NO_FRAME,
    RIGHT,
    SUPERBLOCK,
    Frame,
    aligned,
    choose_frame,
    extension,
    pack,
)

PROJECT = Path(__file__).parent.parent
needs_native = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def run_python(code: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter: what crashes there is seen here by its return code."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        input=given,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
    )


# The kernel


def kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The products of (6, d) and (64, d) 8-bit integers, d a multiple of 4, as the C code computes them."""
    words = left.shape[1] // 4
    packed_left = np.ascontiguousarray(left.astype(np.int8).reshape(LEFT, words, 4).transpose(1, 0, 2))
    packed_right = aligned(words * 4 * RIGHT, np.uint8).reshape(words, RIGHT, 4)
    packed_right[:] = (right + 128).astype(np.uint8).reshape(RIGHT, words, 4).transpose(1, 0, 2)
    start = 7 * np.arange(LEFT, dtype=np.int32)
    columns = aligned(4 * RIGHT, np.int32)
    columns[:] = -3 * np.arange(RIGHT)
    offset = (-128 * left.sum(axis=1)).astype(np.int32) + start
    found = np.frombuffer(extension().products(packed_left, packed_right, offset, columns, words), np.int32)
    return found.reshape(LEFT, RIGHT) - start[:, None] - columns


@needs_native
@pytest.mark.parametrize("words", [*range(1, 41), 1000])
def test_kernel_products_are_those_of_whole_numbers(words):
    rng = np.random.default_rng(words)
    extremes = np.array([-127, 127])
    for draw in (
        lambda n: rng.integers(-127, 128, (n, 4 * words)),
        lambda n: rng.choice(extremes, (n, 4 * words)),
        lambda n: np.resize(rng.choice(extremes, 2), (n, 4 * words)),  # alternating: pairs cancel or add up
        lambda n: np.full((n, 4 * words), rng.choice(extremes)),
    ):
        left, right = draw(LEFT), draw(RIGHT)
        np.testing.assert_array_equal(kernel(left, right), left @ right.T)


@needs_native
def test_the_widest_rows_do_not_overflow_32_bits():
    for left_sign, right_sign in itertools.product((127, -127), repeat=2):
        left = np.full((LEFT, MOST_COLUMNS), left_sign)
        right = np.full((RIGHT, MOST_COLUMNS), right_sign)
        np.testing.assert_array_equal(kernel(left, right), left @ right.T)
    # The largest partial sum: what is taken off first (128 a coordinate), and all unsigned products (255) after it.
    assert MOST_COLUMNS * 127 * (128 + 255) < 2**31


@needs_native
def test_one_more_column_than_the_widest_is_left_to_numpy():
    rng = np.random.default_rng(0)
    it = world(rng, rng.normal(size=(12, MOST_COLUMNS + 1)), n_labels=2)
    expected = truth_of(it)
    found = rank(it.query, it.gallery, it.relevance, backend="native")
    assert_same(columns_of(found), expected, "wide")


# The bound of the 8-bit screen, and that of 16 bits

NAMES = ["rows", "row", "left", "right", "fine", "weight", "plain", "offset", "head", "tail", "best", "bias"]
NAMES += ["scale", "most_tail", "longest", "fine_scale", "fine_tail", "step"]
OF_SUPERBLOCKS = NAMES[12:]


def frame_of(rows: np.ndarray, *, centred: bool = False, turned: bool = False) -> Frame:
    """A frame whether it pays or not."""
    d = rows.shape[1]
    mean = np.rint(rows.mean(axis=0)).astype(np.int32) if centred else NO_FRAME.origin
    signs = np.random.default_rng(d).choice(np.array([-1, 1], np.float32), d) if turned else NO_FRAME.signs
    reach = float(np.linalg.norm(rows - rows.mean(axis=0), axis=1).max()) / UNIT
    return Frame(mean, signs, max(reach, 1e-3))


def turned_by_hand(rows: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Signs, and a Hadamard matrix for each power of two from 16 on that the width is made of."""
    found, start = rows * signs.astype(np.float64), 0
    for size in (2**k for k in range(20, 3, -1)):
        if (rows.shape[1] - start) & size:
            part = slice(start, start + size)
            found[:, part] = found[:, part] @ scipy.linalg.hadamard(size) / np.sqrt(size)
            start += size
    return found


def quantised(rows: np.ndarray, frame: Frame = NO_FRAME) -> dict[str, np.ndarray]:
    """What `pack` made of grid rows, in the order of its places, read back from all packed forms."""
    packed = pack(rows, None, frame)
    buffers = dict(zip(NAMES, packed.buffers, strict=True))
    n, d = packed.n, rows.shape[1]
    seen = rows[buffers["row"]] - (frame.origin if len(frame.origin) else 0)
    exact = seen.astype(object) @ frame.origin.astype(object) if len(frame.origin) else np.zeros(n)
    np.testing.assert_allclose(buffers["bias"][:n], np.array(exact, dtype=float) * 2.0**-52, rtol=0, atol=2.0**-50)
    words = -(-d // 4)
    left, right = buffers["left"], buffers["right"]
    signed = left.reshape(-1, words, LEFT, 4).transpose(0, 2, 1, 3).reshape(-1, words * 4).astype(np.int64)
    unsigned = right.reshape(-1, words, RIGHT, 4).transpose(0, 2, 1, 3).reshape(-1, words * 4).astype(np.int64)
    np.testing.assert_array_equal(signed[:n], unsigned[:n] - 128)
    np.testing.assert_array_equal(buffers["offset"][:n], -128 * signed[:n].sum(axis=1))
    fine = buffers["fine"].reshape(n, -1).astype(np.int64)
    block = np.arange(n) // SUPERBLOCK
    return {
        "rows": seen,
        "in frame": turned_by_hand(seen, frame.signs) if len(frame.signs) else seen.astype(np.float64),
        "codes": signed[:n, :d],
        "fine": fine[:, :d],
        "padding": np.hstack([signed[:n, d:], fine[:, d:]]),
        "head": buffers["head"][:n],
        "tail": buffers["tail"][:n],
        "bias": buffers["bias"][:n],
        **{name: buffers[name][block] for name in OF_SUPERBLOCKS},
    }


def grid_worlds(rng: np.random.Generator, n: int, d: int) -> dict[str, np.ndarray]:
    """Grid rows of all kinds, raw ones included."""
    worlds = {name: to_grid(maker(rng, n, d))[0].rows for name, maker in WORLDS.items()}
    worlds |= {
        f"{name}, raw": to_grid(WORLDS[name](rng, n, d), similarity="dot")[0].rows
        for name in ("wild lengths", "one-sided", "outlier coordinate")
    }
    tiny = rng.integers(-1, 2, (n, d)).astype(np.int32)
    tiny[0] = 0
    tiny[-1] = UNIT // int(np.sqrt(d) + 1)
    return {**worlds, "a few steps and one long row": tiny}


FRAMES = [{}, {"centred": True}, {"turned": True}, {"centred": True, "turned": True}]


@needs_native
@pytest.mark.parametrize("d", [1, 3, 4, 64, 65])
@pytest.mark.parametrize("centred", [False, True])
def test_head_tail_and_longest_are_upper_bounds(d, centred):
    """In whole numbers and fractions: the lengths of s r, of x - s r and of x, with and without an origin."""
    rng = np.random.default_rng(d)
    for name, rows in grid_worlds(rng, 250, d).items():
        q = quantised(rows, frame_of(rows, centred=centred))
        n = len(q["rows"])
        assert not q["padding"].any(), name
        assert (np.abs(q["codes"]) <= 127).all(), name
        for place in {k for k in (0, 1, 100, SUPERBLOCK - 1, SUPERBLOCK, n - 1) if k < n}:
            x, codes = q["rows"][place].tolist(), q["codes"][place].tolist()
            s = Fraction(float(q["scale"][place]))
            rest = sum((Fraction(a, UNIT) - s * r) ** 2 for a, r in zip(x, codes, strict=True))
            assert s * s * sum(r * r for r in codes) <= Fraction(float(q["head"][place])) ** 2, name
            assert rest <= Fraction(float(q["tail"][place])) ** 2, name
            assert Fraction(sum(a * a for a in x), UNIT**2) <= Fraction(float(q["longest"][place])) ** 2, name
            assert q["tail"][place] <= q["most_tail"][place], name
            close = Fraction(float(q["fine_scale"][place]))
            rest = sum((Fraction(a, UNIT) - close * f) ** 2 for a, f in zip(x, q["fine"][place].tolist(), strict=True))
            assert rest <= Fraction(float(q["fine_tail"][place])) ** 2, name


@needs_native
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("d", [15, 16, 31, 64, 100, 513])
def test_what_rounding_leaves_over_is_within_the_tails(d, frame):
    rng = np.random.default_rng(d)
    for name, rows in grid_worlds(rng, 250, d).items():
        q = quantised(rows, frame_of(rows, **frame))
        in_frame = q["in frame"] / UNIT
        rest = np.linalg.norm(in_frame - q["scale"][:, None] * q["codes"], axis=1)
        close = np.linalg.norm(in_frame - q["fine_scale"][:, None] * q["fine"], axis=1)
        assert (rest <= q["tail"] + 1e-14).all(), name  # this check rounds too
        assert (close <= q["fine_tail"] + 1e-14).all(), name
        assert (rest >= 0.9 * q["tail"] - 1e-6).all(), name  # and they are no wider than they have to be
        assert ((q["fine"] ** 2).sum(axis=1) < 2**31).all(), name  # so no sum of products overflows


@needs_native
@pytest.mark.parametrize(
    ("d", "frame"), [*((d, {}) for d in (1, 2, 3, 5, 64, 65, 200, 3000)), *itertools.product((3, 65, 200), FRAMES[1:])]
)
def test_no_pair_is_further_from_its_product_than_the_bound(d, frame):
    rng = np.random.default_rng(d)
    grids = grid_worlds(rng, 120 if d > 200 else 200, d)
    shared = frame_of(grids["clusters"], **frame)
    worlds = {name: quantised(rows, shared) for name, rows in grids.items()}
    tightest = 0.0
    names = [*worlds]
    pairs = [(a, b) for a in names for b in (a, "one-sided")] + list(itertools.pairwise([*names, names[0]]))
    for left_name, right_name in [*pairs, *(("one-sided", name) for name in names)]:
        x, y = worlds[left_name], worlds[right_name]
        exact = (x["rows"].astype(np.float64) @ y["rows"].astype(np.float64).T) * 2.0**-52
        products = x["codes"].astype(np.float64) @ y["codes"].astype(np.float64).T  # whole numbers, exact
        screened = x["scale"][:, None] * y["scale"] * products
        bound = x["head"][:, None] * y["most_tail"] + x["tail"][:, None] * y["longest"]
        gap = np.abs(exact - screened)
        # This check rounds too, by less than four roundings of its terms.
        slack = 2.0**-51 * (np.abs(exact) + np.abs(screened))
        assert (gap <= bound + slack).all(), (left_name, right_name)
        tightest = max(tightest, float((gap / np.maximum(bound, 1e-9)).max()))
        fine = (
            x["fine_scale"][:, None] * y["fine_scale"] * (x["fine"].astype(np.float64) @ y["fine"].T.astype(np.float64))
        )
        head = (x["longest"] + x["fine_tail"])[:, None]
        bound = head * y["fine_tail"] + x["fine_tail"][:, None] * y["longest"]
        assert (np.abs(exact - fine) <= bound + slack).all(), (left_name, right_name)
    # The worlds are hard enough to come near to the bound: a bound that is too small would be found.
    assert frame or tightest > (0.9 if d >= 64 else 0.3)


@needs_native
@pytest.mark.parametrize("frame", FRAMES[1::2])
def test_biases_stay_below_2_to_the_28_steps(frame):
    """However short and however long the rows are: two of them and a product have to fit 32 bits."""
    rng = np.random.default_rng(3)
    for spread, d in itertools.product((1e-7, 1e-4, 0.1, 10.0), (3, 64, 500)):
        rows = to_grid(rng.normal(size=d) + spread * rng.normal(size=(400, d)) * rng.lognormal(0, 2, (400, 1)))[0].rows
        q = quantised(rows, dataclasses.replace(frame_of(rows, **frame), reach=choose_frame(rows[:50]).reach))
        assert np.abs(q["bias"]).max() <= q["scale"].min() ** 2 * 2**28
        assert (np.abs(q["bias"])[:, None] <= q["scale"][:, None] * q["scale"] * 2**28).all()


@needs_native
def test_pack_keeps_the_bound_when_rows_share_the_scale_of_a_far_longer_one():
    rng = np.random.default_rng(1)
    rows = rng.integers(-3, 4, (SUPERBLOCK, 8)).astype(np.int32)
    rows[7, 0] = UNIT
    q = quantised(rows)
    small = np.abs(q["rows"]).max(axis=1) < 4
    assert not q["codes"][small].any()  # nothing is left of them in 8 bits: the tail has to hold all
    lengths = np.sqrt((q["rows"].astype(np.float64) ** 2).sum(axis=1)) / UNIT
    assert (q["tail"][small] >= lengths[small]).all()


WITHOUT_ERROR = {
    "signs": lambda rng, n, d: np.where(rng.random((n, d)) < 0.5, -1, 1),
    "three ones": lambda rng, n, d: (rng.permuted(np.tile(np.arange(d), (n, 1)), axis=1) < 3).astype(int),
    "one one": lambda rng, n, d: np.eye(d)[rng.integers(0, d, n)],
}


@needs_native
@pytest.mark.parametrize("name", WITHOUT_ERROR)
def test_rows_of_one_size_have_no_error_at_all(name):
    rng = np.random.default_rng(5)
    for d in (5, 64, 128, 300):
        rows = to_grid(WITHOUT_ERROR[name](rng, 500, d))[0].rows
        q = quantised(rows)
        assert (q["step"] > 0).all()
        np.testing.assert_array_equal(q["step"][:, None].astype(np.int64) * q["codes"], q["rows"])
        np.testing.assert_array_equal(q["scale"], q["step"] / UNIT)
        assert not q["most_tail"].any()


@needs_native
def test_8_bit_rows_from_elsewhere_have_no_error_at_all():
    rows = np.random.default_rng(6).integers(-90, 91, (500, 40))
    q = quantised(to_grid(rows, similarity="dot")[0].rows)
    assert (q["step"] > 0).all()
    np.testing.assert_array_equal(q["step"][:, None].astype(np.int64) * q["codes"], q["rows"])


@needs_native
def test_one_row_of_another_kind_takes_the_step_from_its_superblock():
    rows = to_grid(np.where(np.random.default_rng(7).random((150, 64)) < 0.5, -1, 1))[0].rows.copy()
    rows[70, 3] += 1
    assert not quantised(rows)["step"].any()


def test_frames_are_chosen_where_they_pay():
    rng = np.random.default_rng(8)
    normal = rng.normal(size=(500, 96))
    spiky = normal * np.where(np.arange(96) < 3, 30.0, 1.0)
    for rows, origin, turned in (
        (normal, False, False),
        (normal + 3, True, False),
        (spiky, False, True),
        (spiky + 30, True, True),
        (np.sign(normal), False, False),
    ):
        frame = choose_frame(to_grid(rows)[0].rows)
        assert (len(frame.origin) > 0, len(frame.signs) > 0) == (origin, turned)


@needs_native
@pytest.mark.parametrize("d", [16, 50, 100, 257])
def test_rows_with_a_few_wide_columns_are_turned_and_count_the_same(d):
    rng = np.random.default_rng(d)
    rows = clusters(rng, 450, d) * np.where(np.arange(d) < 3, 25.0, 1.0)
    for it in (world(rng, rows, n_labels=60), world(rng, rows, 100, n_labels=60, similarity="dot")):
        assert d < RIGHT or len(choose_frame(it.gallery.rows).signs)
        assert_same(columns_of(rank(it.query, it.gallery, it.relevance, backend="native")), truth_of(it), f"{d}")


@needs_native
def test_pairs_are_multiplied_exactly_at_every_width():
    rng = np.random.default_rng(2)
    for d in (1, 7, 31, 32, 33, 64, 100, 4096):
        grid = to_grid(rng.normal(size=(20, d)))[0].rows
        owners, rows = (rng.integers(0, 20, 50) for _ in range(2))
        found = np.empty(50)
        extension().pair_products(grid, grid, owners, rows, d, found)
        expected = (grid[owners].astype(np.int64) * grid[rows].astype(np.int64)).sum(axis=1)
        assert found.astype(np.int64).tolist() == expected.tolist()


# What it refuses

SETUP = """
import numpy as np
from recallatk.ranking import native, packing, to_grid
extension = packing.extension()
rng = np.random.default_rng(0)
n, d = 400, 10
grid = to_grid(rng.normal(size=(n, d)))[0].rows
p = packing.pack(grid, np.zeros(n), packing.NO_FRAME)
q = p.buffers
def counts():
    return np.zeros((4, p.superblocks * 192), np.int64)
def count(query=q, n=n, gallery=q, m=n, rows=counts(), columns=counts(), d=d, span=(0, 3), triangle=True, both=True):
    extension.count(query, n, gallery, m, rows, columns, d, 1, 0.0, *span, triangle, both)
def swap(buffers, at, value):
    return (*buffers[:at], value, *buffers[at + 1:])
rows = np.arange(n)
none = np.empty(0, np.int32)
measures = (grid, rows, none, none, np.zeros(n), np.zeros(n), np.zeros(n, np.int32), np.zeros(n, np.int32))
def measure(buffers=measures, first=0, last=n, d=d):
    extension.measure(buffers, first, last, d)
def packed(places=576, d=d, right=True):
    left = np.zeros(places * 12, np.int8)
    sides = (left, np.zeros(places * 12 * right, np.uint8), np.zeros(places * 32, np.int16), np.zeros(places, np.int32))
    return (*measures[:4], np.ones(3), np.ones(3), np.zeros(3), np.ones(places), *sides, *np.zeros((4, places)))
def pack(buffers=packed(), first=0, last=n, d=d):
    extension.pack(buffers, first, last, d)
def pairs(x=grid, y=grid, owners=np.arange(5), rows=np.arange(5), d=d, out=np.zeros(5)):
    extension.pair_products(x, y, owners, rows, d, out)
def products(left=6 * 12, right=64 * 12, init=24, words=3, shift=0):
    aligned = packing.aligned(right + 64, np.uint8)[shift : shift + right]
    columns = packing.aligned(4 * 64, np.int32)
    extension.products(np.zeros(left, np.int8), aligned, np.zeros(init, np.uint8), columns, words)
big = 10**7
short = np.zeros(1, np.uint8)
far = np.full(n, 10**9)
"""

MEASURED = ["grid", "rows", "origin", "signs", "largest", "length", "common", "smallest"]
PACKED = [*MEASURED[:4], "scale", "fine_scale", "step", "length", "left", "right", "fine"]
PACKED += ["offset", "head", "tail", "fine_tail", "bias"]

WRONG_CALLS = {
    "products: a short left side": "products(left=71)",
    "products: a short right side": "products(right=700)",
    "products: short offsets": "products(init=23)",
    "products: no words": "products(words=0)",
    "products: negative words": "products(words=-1)",
    "products: more words than there are": "products(words=2**61)",
    "products: a right side that is not aligned": "products(shift=1)",
    **{
        f"{name}: {what}": f"{name}({how})"
        for name in ("measure", "pack")
        for what, how in (
            ("no tuple of buffers", "buffers=[1, 2, 3]"),
            ("too few buffers", "buffers=measures[:5]"),
            ("no columns", "d=0"),
            ("negative columns", "d=-1"),
            ("wider rows than there are", "d=10**9"),
            ("a first row below zero", "first=-(10**9)"),
            ("a last row before the first", "first=5, last=2"),
            ("rows beyond the end", "last=10**9"),
        )
    },
    **{f"measure: short {what}": f"measure(swap(measures, {at}, short))" for at, what in enumerate(MEASURED)},
    **{f"pack: short {what}": f"pack(swap(packed(), {at}, short))" for at, what in enumerate(PACKED)},
    "measure: a row that is not there": "measure(swap(measures, 1, far))",
    "measure: a negative row": "measure(swap(measures, 1, -far))",
    "measure: a result that cannot be written": "measure(swap(measures, 4, bytes(8 * n)))",
    "pack: a row that is not there": "pack(swap(packed(), 1, far))",
    "pack: a result that cannot be written": "pack(swap(packed(), 8, bytes(576 * 12)))",
    "pairs: a query row that is not there": "pairs(owners=np.full(5, 10**9))",
    "pairs: a negative query row": "pairs(owners=np.full(5, -10**9))",
    "pairs: a gallery row that is not there": "pairs(rows=np.full(5, 10**9))",
    "pairs: fewer rows than owners": "pairs(rows=np.arange(1))",
    "pairs: a short result": "pairs(out=np.zeros(1))",
    "pairs: wider rows than there are": "pairs(d=10**9)",
    "count: no tuple of buffers": "count(query=[1, 2, 3])",
    "count: more rows than packed": "count(n=big, m=big)",
    "count: negative rows": "count(n=-5, m=-5)",
    **{
        f"count: short {what}": f"count(query=swap(q, {at}, short), gallery=swap(q, {at}, short))"
        for at, what in enumerate(NAMES)
    },
    "count: a row that is not there": "count(gallery=swap(q, 1, far), triangle=False)",
    "count: wider rows than there are": "count(d=10**6)",
    "count: no columns": "count(d=0)",
    "count: queries beyond the end": "count(span=(10**6, 10**6 + 3))",
    "count: superblocks below zero": "count(span=(-5, 2))",
    "count: an end before the start": "count(span=(2, 1))",
    "count: more superblocks at once than it has room for": "count(span=(0, 9))",
    "count: a triangle of two sets": "count(gallery=swap(q, 3, q[3].copy()))",
    "count: a triangle that is not square": "count(m=300)",
    "count: short counts": "count(rows=np.zeros(1, np.int64))",
    "count: short counts of the columns": "count(columns=np.zeros(1, np.int64))",
}


RIGHT_CALLS = [
    "products()",
    "measure()",
    "pack()",
    "pack(packed(right=False))",
    "pairs()",
    "count()",
    "count(triangle=False)",
    "count(triangle=False, both=False, columns=np.zeros(1, np.int64))",
]

IN_CHILDREN = """
import json, os, sys
def ended(call):
    child = os.fork()
    if child == 0:
        try:
            exec(call)
        except (ValueError, TypeError, SystemError, IndexError):
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return "crashed" if os.WIFSIGNALED(status) else ("accepted", "refused")[os.WEXITSTATUS(status)]
print(json.dumps({call: ended(call) for call in json.loads(sys.stdin.read())}))
"""


@functools.cache
def endings() -> dict[str, str]:
    """How each call ended, in a process of its own: refused, accepted or crashed."""
    done = run_python(SETUP + IN_CHILDREN, given=json.dumps([*RIGHT_CALLS, *WRONG_CALLS.values()]))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_native
@pytest.mark.parametrize("call", RIGHT_CALLS)
def test_calls_that_fit_are_accepted(call):
    assert endings()[call] == "accepted"


@needs_native
@pytest.mark.parametrize("what", WRONG_CALLS)
def test_what_does_not_fit_is_refused(what):
    assert endings()[WRONG_CALLS[what]] == "refused"


# Without it

HIDDEN = """
import sys
sys.modules["recallatk.ranking._native"] = None  # an import of it fails
"""

EVALUATE = """
import numpy as np
from recallatk.evaluation import evaluate_embeddings
from recallatk.ranking import fastest_backend
from recallatk.types import EmbeddingSet
rng = np.random.default_rng(0)
rows = EmbeddingSet(rng.normal(size=(300, 16)), [f"l{k}" for k in rng.integers(0, 40, 300)])
print(fastest_backend()[0])
print(evaluate_embeddings(rows, metrics=["mrr"])["mrr"].hex())
"""


def test_without_the_extension_numpy_serves_and_says_why():
    with_it, without = run_python(EVALUATE), run_python(HIDDEN + EVALUATE)
    assert without.stdout.splitlines() == ["numpy", with_it.stdout.splitlines()[1]], without.stderr
    why = run_python(HIDDEN + "from recallatk.ranking.native import why_not; print(why_not())")
    assert why.stdout.strip() == "the C extension was not built (there was no compiler when recallatk was installed)"


def test_asking_for_native_without_the_extension_is_one_clear_line():
    done = run_python(
        HIDDEN
        + """
        import numpy as np
        from recallatk.ranking import rank, to_grid
        from recallatk.relevance import build_relevance
        from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError
        grid = to_grid(np.eye(2))[0]
        relevance = build_relevance(EmbeddingSet(np.eye(2), ["a", "a"]), None, EvalProtocol())
        try:
            list(rank(grid, grid, relevance, backend="native"))
        except RecallatkError as error:
            print(error)
        """.replace("\n        ", "\n")
    )
    assert "native cannot be used" in done.stdout, done.stderr
    assert "choose auto or numpy" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@needs_native
@pytest.mark.parametrize("fault", ["saturates at 16 bits", "loses the offset", "is off by one"])
def test_a_kernel_that_computes_wrongly_is_never_used(fault, monkeypatch):
    """The self-test against kernels that do what processors and compilers have been seen to do."""
    real = extension()

    class Faulty:
        supported = staticmethod(real.supported)

        @staticmethod
        def products(left, right, offset, columns, words):
            if fault == "loses the offset":
                return real.products(left, right, np.zeros_like(offset), columns, words)
            found = np.frombuffer(real.products(left, right, offset, columns, words), np.int32).copy()
            if fault == "is off by one":
                found[-1] += 1
                return found.tobytes()
            a = left.transpose(1, 0, 2).reshape(LEFT, -1, 2).astype(np.int64)
            b = right.transpose(1, 0, 2).reshape(RIGHT, -1, 2).astype(np.int64)
            pairs = np.clip(np.einsum("lpk,rpk->lrp", a, b), -(2**15), 2**15 - 1)
            return (pairs.sum(axis=2) + offset[:, None]).astype(np.int32).tobytes()

    monkeypatch.setattr(native, "extension", lambda: Faulty)
    why_not.cache_clear()
    try:
        assert why_not() == "the kernel failed its self-test on this machine"
    finally:
        monkeypatch.undo()
        why_not.cache_clear()


def test_a_build_without_a_compiler_succeeds(tmp_path):
    ranking = Path("src", "recallatk", "ranking")
    (tmp_path / ranking).mkdir(parents=True)
    for name in ("setup.py", *(path.relative_to(PROJECT) for path in (PROJECT / ranking).glob("_*.[ch]"))):
        shutil.copy(PROJECT / name, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env={**os.environ, "CC": "/bin/false", "CXX": "/bin/false"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.so"))
    assert "_native" in done.stdout + done.stderr  # it says what it could not build
