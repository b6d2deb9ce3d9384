"""The C extension: its kernel, its error bound, what it refuses, and life without it."""

from __future__ import annotations

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

from grid_worlds import UNIT, WORLDS, assert_same, columns_of, truth_of, world
from recallatk.ranking import native, rank, to_grid
from recallatk.ranking.native import LEFT, MOST_COLUMNS, RIGHT, SUPERBLOCK, pack, why_not

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
    extension = native._extension()
    words = left.shape[1] // 4
    packed_left = np.ascontiguousarray(left.astype(np.int8).reshape(LEFT, words, 4).transpose(1, 0, 2))
    packed_right = native._aligned(words * 4 * RIGHT, np.uint8).reshape(words, RIGHT, 4)
    packed_right[:] = (right + 128).astype(np.uint8).reshape(RIGHT, words, 4).transpose(1, 0, 2)
    start = 7 * np.arange(LEFT, dtype=np.int32)
    columns = native._aligned(4 * RIGHT, np.int32)
    columns[:] = -3 * np.arange(RIGHT)
    offset = (-128 * left.sum(axis=1)).astype(np.int32) + start
    found = np.frombuffer(extension.products(packed_left, packed_right, offset, columns, words), np.int32)
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


# The bound of the 8-bit screen


def quantised(rows: np.ndarray, centre: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """What `pack` made of grid rows, in the order of its places, read back from both packed forms."""
    centre = np.zeros(rows.shape[1], np.int32) if centre is None else centre
    packed = pack(rows, None, centre).buffers
    n, left, right, offset, _, order, head, tail, scale, most_tail, longest, _, bias = packed
    exact = (rows[order] - centre).astype(object) @ centre.astype(object)
    np.testing.assert_allclose(bias[:n], np.array(exact, dtype=float) * 2.0**-52, rtol=0, atol=2.0**-50)
    words = -(-rows.shape[1] // 4)
    signed = left.reshape(-1, words, LEFT, 4).transpose(0, 2, 1, 3).reshape(-1, words * 4).astype(np.int64)
    unsigned = right.reshape(-1, words, RIGHT, 4).transpose(0, 2, 1, 3).reshape(-1, words * 4).astype(np.int64)
    np.testing.assert_array_equal(signed[:n], unsigned[:n] - 128)
    np.testing.assert_array_equal(offset[:n], -128 * signed[:n].sum(axis=1))
    block = np.arange(n) // SUPERBLOCK
    return {
        "rows": rows[order] - centre,
        "codes": signed[:n, : rows.shape[1]],
        "padding": signed[:n, rows.shape[1] :],
        "head": head[:n],
        "tail": tail[:n],
        "scale": scale[block],
        "most_tail": most_tail[block],
        "longest": longest[block],
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


@needs_native
@pytest.mark.parametrize("d", [1, 3, 4, 64, 65])
@pytest.mark.parametrize("centred", [False, True])
def test_head_tail_and_longest_are_upper_bounds(d, centred):
    """In whole numbers and fractions: the lengths of s r, of x - s r and of x, with and without a common row."""
    rng = np.random.default_rng(d)
    for name, rows in grid_worlds(rng, 250, d).items():
        q = quantised(rows, np.rint(rows.mean(axis=0)).astype(np.int32) if centred else None)
        assert not q["padding"].any(), name
        assert (np.abs(q["codes"]) <= 127).all(), name
        for place in {0, 1, 100, SUPERBLOCK - 1, SUPERBLOCK, len(rows) - 1}:
            x, codes = q["rows"][place].tolist(), q["codes"][place].tolist()
            s = Fraction(float(q["scale"][place]))
            rest = sum((Fraction(a, UNIT) - s * r) ** 2 for a, r in zip(x, codes, strict=True))
            assert s * s * sum(r * r for r in codes) <= Fraction(float(q["head"][place])) ** 2, name
            assert rest <= Fraction(float(q["tail"][place])) ** 2, name
            assert Fraction(sum(a * a for a in x), UNIT**2) <= Fraction(float(q["longest"][place])) ** 2, name
            assert q["tail"][place] <= q["most_tail"][place], name


@needs_native
@pytest.mark.parametrize("d", [1, 2, 3, 5, 64, 65, 200, 3000])
def test_no_pair_is_further_from_its_8_bit_product_than_the_bound(d):
    rng = np.random.default_rng(d)
    worlds = {name: quantised(rows) for name, rows in grid_worlds(rng, 120 if d > 200 else 200, d).items()}
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
        tightest = max(tightest, float((gap / bound).max()))
    # The worlds are hard enough to come near to the bound: a bound that is too small would be found.
    assert tightest > (0.9 if d >= 64 else 0.3)


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


@needs_native
def test_pairs_are_multiplied_exactly_at_every_width():
    rng = np.random.default_rng(2)
    for d in (1, 7, 31, 32, 33, 64, 100, 4096):
        grid = to_grid(rng.normal(size=(20, d)))[0].rows
        owners, rows = (rng.integers(0, 20, 50) for _ in range(2))
        found = np.empty(50)
        native._extension().pair_products(grid, grid, owners, rows, d, found)
        expected = (grid[owners].astype(np.int64) * grid[rows].astype(np.int64)).sum(axis=1)
        assert found.astype(np.int64).tolist() == expected.tolist()


# What it refuses

SETUP = """
import numpy as np
from recallatk.ranking import native, to_grid
extension = native._extension()
rng = np.random.default_rng(0)
n, d = 400, 10
words = 3
grid = to_grid(rng.normal(size=(n, d)))[0].rows
q = native.pack(grid, np.zeros(n), np.zeros(d, np.int32)).buffers
counts = [np.zeros(n, np.int64) for _ in range(4)]
def count(query=q, gallery=q, words=words, d=d, span=(0, 3, 0, 3), symmetric=True, counts=counts):
    extension.count(query, gallery, words, d, 1, 2.0**52, 0.0, *span, symmetric, *counts)
def swap(buffers, at, value):
    return (*buffers[:at], value, *buffers[at + 1:])
def pack(rows=np.zeros((192, d), np.float32), d=d, words=words, first=0, scale=np.ones(1), places=192, **other):
    sizes = {"left": np.zeros(places * words * 4, np.int8), "right": np.zeros(places * words * 4, np.uint8),
             "offset": np.zeros(places, np.int32), "head": np.zeros(places), "tail": np.zeros(places)} | other
    extension.pack(rows, d, words, first, scale, 0.0, *sizes.values())
def pairs(x=grid, y=grid, owners=np.arange(5), rows=np.arange(5), d=d, out=np.zeros(5)):
    extension.pair_products(x, y, owners, rows, d, out)
def products(left=6 * 12, right=64 * 12, init=24, words=3, shift=0):
    aligned = native._aligned(right + 64, np.uint8)[shift : shift + right]
    columns = native._aligned(4 * 64, np.int32)
    extension.products(np.zeros(left, np.int8), aligned, np.zeros(init, np.uint8), columns, words)
big = 10**7
"""

WRONG_CALLS = {
    "products: a short left side": "products(left=71)",
    "products: a short right side": "products(right=700)",
    "products: short offsets": "products(init=23)",
    "products: no words": "products(words=0)",
    "products: negative words": "products(words=-1)",
    "products: more words than there are": "products(words=2**61)",
    "products: a right side that is not aligned": "products(shift=1)",
    "pack: no columns": "pack(d=0)",
    "pack: negative columns": "pack(d=-1)",
    "pack: fewer words than columns": "pack(words=1)",
    "pack: a first place below zero": f"pack(first=-{10**9})",
    "pack: a first place beyond the end": f"pack(first={10**9})",
    "pack: too few scales": f"pack(rows=np.zeros(({10**6}, d), np.float32), places={10**6})",
    "pack: a short left side": "pack(left=np.zeros(1, np.int8))",
    "pack: a short right side": "pack(right=np.zeros(1, np.uint8))",
    "pack: short offsets": "pack(offset=np.zeros(1, np.int32))",
    "pack: short heads": "pack(head=np.zeros(1))",
    "pack: short tails": "pack(tail=np.zeros(1))",
    "pairs: a query row that is not there": "pairs(owners=np.full(5, 10**9))",
    "pairs: a negative query row": "pairs(owners=np.full(5, -10**9))",
    "pairs: a gallery row that is not there": "pairs(rows=np.full(5, 10**9))",
    "pairs: fewer rows than owners": "pairs(rows=np.arange(1))",
    "pairs: a short result": "pairs(out=np.zeros(1))",
    "pairs: wider rows than there are": "pairs(d=10**9)",
    "count: no tuple of buffers": "count(query=[1, 2, 3])",
    "count: more rows than packed": "count(query=(big, *q[1:]))",
    "count: negative rows": "count(query=(-5, *q[1:]))",
    **{
        f"count: a short {what}": f"count(query=swap(q, {at}, np.zeros(1, np.uint8)))"
        for at, what in enumerate(
            ("left side", "right side", "offset", "grid", "order", "head", "tail", "scale", "most_tail", "longest"), 1
        )
    },
    "count: short best positives": "count(query=swap(q, 11, np.zeros(1, np.uint8)))",
    "count: more words than packed": "count(words=10**6)",
    "count: no words": "count(words=0)",
    "count: wider rows than there are": "count(d=10**6)",
    "count: superblocks beyond the end": "count(span=(0, 3, 0, 10**6))",
    "count: queries beyond the end": "count(span=(10**6, 10**6 + 3, 0, 3))",
    "count: superblocks below zero": "count(span=(-5, 2, 0, 3))",
    "count: a gallery from below zero": "count(span=(0, 3, -10**6, 3), symmetric=False)",
    "count: more superblocks at once than it has room for": "count(span=(0, 9, 0, 3))",
    "count: short counts": "count(counts=[np.zeros(1, np.int64)] * 4)",
}


RIGHT_CALLS = ["products()", "pack()", "pairs()", "count()", "count(symmetric=False)"]

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
    real = native._extension()

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

    monkeypatch.setattr(native, "_extension", lambda: Faulty)
    why_not.cache_clear()
    try:
        assert why_not() == "the kernel failed its self-test on this machine"
    finally:
        monkeypatch.undo()
        why_not.cache_clear()


def test_a_build_without_a_compiler_succeeds(tmp_path):
    ranking = Path("src", "recallatk", "ranking")
    (tmp_path / ranking).mkdir(parents=True)
    for name in ("setup.py", ranking / "_native.c"):
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
