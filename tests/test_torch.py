"""The torch backend counts as whole numbers do, on the CPU by value; and no product breaks the bound of its screen."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from grid_worlds import (
    UNIT,
    WORLDS,
    World,
    assert_same,
    clusters,
    codes,
    columns_of,
    duplicates,
    truth_of,
    world,
)
from recallatk.evaluation import evaluate_embeddings
from recallatk.ranking import Block, fastest_backend, positives, rank, stream_grid, to_grid, torch_screen
from recallatk.ranking.passes import LevelCounts
from recallatk.ranking.torch_arithmetic import check_arithmetic, plain_arithmetic, sum_error, to_device
from recallatk.ranking.torch_screen import Panel, Plan, count_levels, rank_blocks, thresholds
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, EvalProtocol, RecallatkError

pytestmark = pytest.mark.integration
torch = pytest.importorskip("torch", reason="make test-integrations installs it")

NEAR = 2**52 // 1_000_000
HALF = Plan("cpu", "float16", panel=10**6, tile=10**6, pairs=10**6)
PLANS = {
    "half": HALF,
    "float": dataclasses.replace(HALF, dtype="float32"),
    "half, in panels": dataclasses.replace(HALF, panel=17, tile=5, pairs=7),
    "float, in panels": dataclasses.replace(HALF, dtype="float32", panel=16, tile=16, pairs=5),
    "half, one panel in tiles": dataclasses.replace(HALF, tile=13, pairs=50),
}


@pytest.fixture(params=[0.0, 1.0], ids=["whole tiles", "pair by pair"])
def recheck(request, monkeypatch):
    """Whatever is open is decided in a product of the tile, or pair by pair."""
    monkeypatch.setattr(torch_screen, "MOST_OPEN", request.param)


def check(it: World, what: str = "") -> None:
    """Every plan against whole numbers."""
    expected = truth_of(it)
    for name, plan in PLANS.items():
        found = rank_blocks(it.query, it.gallery, it.relevance, depth="first", memory=2**28, plan=plan)
        assert_same(columns_of(found), expected, f"{name}: {what}")


@pytest.mark.usefixtures("recheck")
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("name", WORLDS)
def test_counts_are_those_of_whole_numbers(name, similarity):
    rng = np.random.default_rng(1)
    for d in (1, 2, 3, 65):
        check(world(rng, WORLDS[name](rng, 60, d), similarity=similarity), f"{d} columns")
        check(world(rng, WORLDS[name](rng, 70, d), 20, similarity=similarity, ignore_same="camera"), f"{d}, separate")


@pytest.mark.usefixtures("recheck")
@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 18, 34])
def test_sizes_around_tiles_and_panels(n):
    rng = np.random.default_rng(n)
    rows = duplicates(rng, n + 3, 9)
    check(world(rng, rows[:n], n_labels=max(n // 4, 1)))
    check(world(rng, np.resize(rows, (1 + n, 9)), 1, n_labels=4))
    check(world(rng, np.resize(rows, (n + 1, 9)), n, n_labels=40))


def test_wide_rows_count_as_whole_numbers_do():
    rng = np.random.default_rng(2)
    check(world(rng, clusters(rng, 40, 5000)))


@pytest.mark.parametrize("depth", ["first", "all"])
@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_the_backend_of_that_name_counts_what_it_screens_and_what_it_leaves_to_numpy(similarity, depth):
    rng = np.random.default_rng(3)
    it = world(rng, clusters(rng, 90, 12), similarity=similarity)
    for choices in ({}, {"memory": 250_000}, {"block": Block(3, 7, 5)}, {"threads": 2}):
        found = columns_of(rank(it.query, it.gallery, it.relevance, depth=depth, backend="torch", **choices))
        assert_same(found, truth_of(it, depth), str(choices))


@pytest.mark.parametrize("part", [7, 64, 10**6])
def test_grids_in_parts_count_the_same(part):
    rng = np.random.default_rng(part)
    rows, labels = duplicates(rng, 120, 11), [f"l{k}" for k in rng.integers(0, 20, 120)]
    one, two = EmbeddingSet(rows[:80], labels[:80]), EmbeddingSet(rows[80:], labels[80:])
    for query, gallery in ((one, None), (one, two), (two, one)):
        relevance = build_relevance(query, gallery, EvalProtocol())
        streamed = stream_grid(*(side.embeddings for side in (query, gallery) if side is not None))
        expected = columns_of(rank(streamed[0], streamed[-1], relevance, backend="reference"))
        choices = {"depth": "first", "memory": 2**28, "block": Block(5, 60, 9, part)}
        for name in ("half, in panels", "float"):
            found = rank_blocks(streamed[0], streamed[-1], relevance, plan=PLANS[name], **choices)
            assert_same(columns_of(found), expected, f"{name}, {part} rows a part")


def test_counts_of_shards_of_a_gallery_add():
    rng = np.random.default_rng(9)
    rows = to_grid(clusters(rng, 70, 8))[0].rows
    exact = (rows[:20].astype(np.int64) @ rows[20:].astype(np.int64).T).astype(np.float64)
    best = exact.max(axis=1) - 1
    total = LevelCounts.zeros(20)
    for shard in (slice(20, 41), slice(41, 41), slice(41, 70)):
        here, there = count_levels(rows[:20], rows[shard], best, None, near=NEAR, threads=1, size=Block.least())
        assert there is None
        total.plus(here)
    gap = exact - best[:, None]
    for found, hit in (
        (total.far_above, gap > NEAR),
        (total.above, gap > 0),
        (total.level, gap == 0),
        (total.near_below, (gap < 0) & (gap >= -NEAR)),
    ):
        assert found.tolist() == hit.sum(axis=1).tolist()
    assert total.above.min() > 0


def test_few_large_classes_are_compared_on_the_device(monkeypatch):
    monkeypatch.setattr(positives, "SHARED", 2)
    rng = np.random.default_rng(10)
    check(world(rng, duplicates(rng, 60, 7), n_labels=3))
    check(world(rng, duplicates(rng, 60, 7), 30, n_labels=3, ignore_same="camera"))


def test_rows_that_may_not_be_written_or_lie_apart_are_read():
    rng = np.random.default_rng(4)
    it = world(rng, clusters(rng, 30, 6))
    rows = np.repeat(it.query.rows, 2, axis=1)[:, ::2]
    rows.flags.writeable = False
    grid = dataclasses.replace(it.query, rows=rows)
    assert not rows.flags.c_contiguous
    check(dataclasses.replace(it, query=grid, gallery=grid))


def test_a_report_is_the_same_as_with_numpy():
    rng = np.random.default_rng(5)
    rows, labels = codes(rng, 200, 16), [f"l{k}" for k in rng.integers(0, 20, 200)]
    by_torch, by_numpy = (
        evaluate_embeddings(EmbeddingSet(rows, labels), metrics=["mrr", "map_r"], backend=backend)
        for backend in ("torch", "numpy")
    )
    assert by_torch.signature == by_numpy.signature
    assert by_torch.values_by_metric == by_numpy.values_by_metric


def test_auto_is_not_torch_even_where_it_is_loaded():
    assert "torch" in sys.modules
    assert fastest_backend()[0] != "torch"


# The bound: what a device may do to a product


def panel_of(rows: np.ndarray, plan: Plan) -> Panel:
    return Panel.of(to_device(rows, "cpu"), plan)


def hard_halves(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Half-precision rows whose products are hard to add: of one sign, of many sizes, cancelling, ending in ones."""
    rows = rng.normal(size=(n, d))
    rows[::4] = np.abs(rows[::4])
    rows[1::4] *= 2.0 ** rng.integers(-12, 1, (len(rows[1::4]), d))
    rows[2::4] = np.where(rng.random((len(rows[2::4]), d)) < 0.5, -1, 1) * (2 - 2.0**-10)
    rows[3::4, d // 2 :] = -rows[3::4, : d - d // 2]
    return (rows * (127 / np.linalg.norm(rows, axis=1, keepdims=True))).astype(np.float16)


def cut(values: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Toward zero, behind the 24th bit of numbers that begin at 2**exponent."""
    step = np.exp2(exponent - 23.0)
    return np.trunc(values / step) * step


def add_as_tensor_cores_do(products: np.ndarray, width: int) -> np.ndarray:
    """Sum over the last axis: `width` products and the sum so far are cut to the place of the largest, then added, and
    the result is cut to 24 bits."""
    total = np.zeros(products.shape[:-1])
    for start in range(0, products.shape[-1], width):
        terms = np.concatenate([products[..., start : start + width], total[..., None]], axis=-1)
        exponents = np.where(terms == 0, -200.0, np.frexp(terms)[1] - 1.0)
        terms = cut(terms, exponents.max(axis=-1, keepdims=True))
        total = terms.sum(axis=-1)
        total = cut(total, np.where(total == 0, -200.0, np.frexp(total)[1] - 1.0))
    return total


@pytest.mark.parametrize("width", [1, 4, 8, 16])
@pytest.mark.parametrize("d", [1, 3, 4, 5, 16, 64, 300])
def test_sums_of_tensor_cores_stay_within_the_bound(d, width):
    rng = np.random.default_rng(d)
    rows = hard_halves(rng, 24, d).astype(np.float64)
    products = rows[:, None] * rows[None]
    lengths = np.sqrt((rows**2).sum(axis=1))
    gap = np.abs(add_as_tensor_cores_do(products, width) - products.sum(axis=-1))
    assert (gap <= sum_error(d) * np.outer(lengths, lengths)).all()
    if d >= 64:
        assert gap.max() > 2.0**-26 * lengths.max() ** 2  # the cuts are there


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("d", [1, 3, 64, 65, 300, 5000])
def test_products_of_torch_stay_within_the_bound(d, dtype):
    rng = np.random.default_rng(d)
    rows = hard_halves(rng, 64, d)
    if dtype == "float32":
        rows = (rows * (1 + rng.uniform(-(2.0**-11), 2.0**-11, rows.shape))).astype(np.float32)
    with plain_arithmetic(1):
        given_ = torch.from_numpy(rows)
        product = (given_ @ given_.T).double().numpy()
    wide = rows.astype(np.float64)
    exact, lengths = wide @ wide.T, np.sqrt((wide**2).sum(axis=1))
    rounding = np.abs(exact) * 2.0**-10 + 2.0**-24 if dtype == "float16" else 0.0
    assert (np.abs(product - exact) <= sum_error(d) * np.outer(lengths, lengths) + rounding).all()


def cut_to_half(values: np.ndarray) -> np.ndarray:
    """Half precision toward zero."""
    nearest = values.astype(np.float16)
    return np.where(np.abs(nearest.astype(np.float64)) > np.abs(values), np.nextafter(nearest, np.float16(0)), nearest)


def worst_rounded(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows that lose as much as half precision can take, all in one direction."""
    coarse = 2.0 ** np.floor(np.log2(UNIT / np.sqrt(d)) - 1)  # just above a power of two it is coarsest
    step = coarse * 2.0**-10
    rows = coarse + rng.integers(0, 4, (n, d)) * step + step / 2 - 1
    return rows * np.where(rng.random((n, 1)) < 0.5, -1, 1)


HARD = {**WORLDS, "worst rounded": worst_rounded}


@settings(deadline=None)
@given(
    st.sampled_from(sorted(HARD)),
    st.sampled_from([1, 2, 3, 5, 16, 64]),
    st.sampled_from(["cosine", "dot"]),
    st.integers(0, 2**32 - 1),
)
@example("worst rounded", 64, "dot", 0)
def test_no_product_that_a_device_may_give_decides_wrongly(name, d, similarity, seed):
    rng = np.random.default_rng(seed)
    rows = HARD[name](rng, 24, d)
    rows = np.where((rows == 0).all(axis=1, keepdims=True), 1.0, rows)
    grid = to_grid(rows, similarity=similarity)[0]
    exact = (grid.rows.astype(np.int64) @ grid.rows.astype(np.int64).T).astype(np.float64)
    best = exact[np.arange(24), rng.integers(0, 24, 24)]
    gap = exact - best[:, None]
    panel = panel_of(grid.rows, HALF)
    cheap = panel.cheap.double().numpy()
    products = cheap[:, None] * cheap[None]
    lengths = np.sqrt((cheap**2).sum(axis=1))
    worst = sum_error(d) * np.outer(lengths, lengths)
    sums = [add_as_tensor_cores_do(products, width) for width in (4, 16)]
    sums += [products.sum(axis=-1) + sign * worst for sign in (-1, 1)]
    low, high = (
        side.astype(np.float64)[:, None] for side in thresholds(panel, panel, best, grid.near, dtype="float16")
    )
    for total, to_half in itertools.product(sums, (np.float16, cut_to_half)):
        product = to_half(total).astype(np.float64)
        assert (gap[product > high] > grid.near).all()
        assert (gap[product < low] < -grid.near).all()


def test_the_rest_of_a_row_is_measured_whatever_was_lost():
    """Coordinates below the smallest half-precision number vanish; the bound knows it."""
    rows = np.full((2, 3), 1, dtype=np.int32)
    rows[0, 0] = UNIT
    panel = panel_of(rows, HALF)
    assert panel.cheap.tolist() == [[128.0, 2.0**-19, 2.0**-19] + [0.0] * 5, [2.0**-19] * 3 + [0.0] * 5]
    lost = panel_of(np.array([[UNIT - 1, 2**14 + 1]], dtype=np.int32), HALF)
    kept = lost.cheap[:, :2].double().numpy() * 2**19
    assert kept.tolist() == [[UNIT, 2**14]]
    assert lost.tail[0] >= np.sqrt(2) / 2**19
    assert lost.tail[0] < 1.5 / 2**19


# Settings


def torch_settings() -> tuple[object, ...]:
    cuda = torch.backends.cuda.matmul
    return (
        cuda.fp32_precision,
        torch.backends.mkldnn.matmul.fp32_precision,
        cuda.allow_fp16_accumulation,
        cuda.allow_fp16_reduced_precision_reduction,
        getattr(cuda, "allow_fp16_reduced_precision_reduction_split_k", None),
        torch.get_num_threads(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
    )


@pytest.fixture
def loose_arithmetic():
    """A training script that lets everything be fast."""
    cuda = torch.backends.cuda.matmul
    before = cuda.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision, torch.get_num_threads()
    cuda.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision = "tf32", "bf16"
    cuda.allow_fp16_accumulation = True
    cuda.allow_fp16_reduced_precision_reduction = (False, False)
    torch.set_num_threads(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield
    cuda.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision = before[:2]
    cuda.allow_fp16_accumulation = False
    cuda.allow_fp16_reduced_precision_reduction = True
    torch.set_num_threads(before[2])


@pytest.mark.usefixtures("loose_arithmetic")
def test_fast_settings_of_the_caller_change_no_count_and_come_back():
    before = torch_settings()
    assert before[:3] == ("tf32", "bf16", True)
    with plain_arithmetic(1):
        assert torch_settings()[:4] == ("ieee", "ieee", False, False)
        assert torch_settings()[-3:] == (1, False, False)
    assert torch_settings() == before
    rng = np.random.default_rng(6)
    check(world(rng, clusters(rng, 80, 64)))
    assert torch_settings() == before


@pytest.mark.usefixtures("loose_arithmetic")
def test_settings_come_back_after_an_error():
    before = torch_settings()
    with pytest.raises(ZeroDivisionError), plain_arithmetic(1):
        raise ZeroDivisionError
    assert torch_settings() == before


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_arithmetic_that_loses_bits_is_found_before_anything_is_counted(dtype):
    with plain_arithmetic(1):
        check_arithmetic("cpu", dtype)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(RecallatkError, match=f"{dtype} products on cpu are less exact"),
    ):
        check_arithmetic("cpu", dtype)


def sum_in_half(left, right):
    """Sixteen products at once, and the sum so far in half precision."""
    total = torch.zeros(len(left), right.shape[1], dtype=torch.float16)
    for start in range(0, left.shape[1], 16):
        part = slice(start, start + 16)
        total = (total.float() + torch.mm(left[:, part].float(), right[part].float())).half()
    return total


def lose_subnormals(left, right):
    kept = (torch.where(side.abs() < 2.0**-14, 0, side) for side in (left, right))
    return torch.mm(*kept)


def keep_ten_bits(left, right):
    """TF32: the last 13 bits of float32 are not read."""
    return torch.mm(*((side.view(torch.int32) & ~0x1FFF).view(torch.float32) for side in (left, right.contiguous())))


@pytest.mark.parametrize(
    ("dtype", "product"), [("float16", sum_in_half), ("float16", lose_subnormals), ("float32", keep_ten_bits)]
)
def test_each_way_of_losing_bits_is_found(dtype, product, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "__matmul__", product)
    with pytest.raises(RecallatkError, match=f"{dtype} products on cpu are less exact"):
        check_arithmetic("cpu", dtype)


def test_float64_that_is_not_exact_is_found(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "double", torch.Tensor.float)
    with pytest.raises(RecallatkError, match="float64 products on cpu are not exact"):
        check_arithmetic("cpu", "float16")


def test_a_torch_that_cannot_be_told_is_refused(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(allow_tf32=False))
    with pytest.raises(RecallatkError, match=r"needs torch 2\.9 or newer, and this is 2\."), plain_arithmetic(1):
        pass


# Choices


def test_memory_and_device_decide_the_sizes(monkeypatch):
    plan = Plan.of(512, memory=2**30)
    assert (plan.device, plan.dtype) == ("cpu", "float32")
    assert 2 * plan.panel * 512 * 8 <= 2**29
    assert plan.tile**2 * 24 <= 2**28
    assert plan.pairs * 512 * 24 <= 2**28
    assert Plan.of(60_000, memory=2**30).tile * 60_000 * 16 <= 2**28
    assert Plan.of(10**4, memory=1) == Plan("cpu", "float32", 1, 1, 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**31, 2**33))
    on_gpu = Plan.of(512, memory=1)
    assert (on_gpu.device, on_gpu.dtype) == ("cuda", "float16")
    assert (on_gpu.tile, on_gpu.pairs) == (plan.tile, plan.pairs)
    assert on_gpu.panel == 2**29 // (2 * 512 * 6)


def test_a_query_without_a_positive_is_never_open():
    rng = np.random.default_rng(7)
    grid = to_grid(clusters(rng, 10, 4))[0]
    for dtype in ("float16", "float32"):
        panel = panel_of(grid.rows, dataclasses.replace(HALF, dtype=dtype))
        low, high = thresholds(panel, panel, np.full(10, np.inf), grid.near, dtype=dtype)
        assert (low > 2**15).all()
        assert (high > 2**15).all()


def test_nothing_to_rank_against():
    rng = np.random.default_rng(8)
    query, gallery = EmbeddingSet(clusters(rng, 3, 4), ["a"] * 3), EmbeddingSet(np.empty((0, 4)), [])
    grids = to_grid(query.embeddings, gallery.embeddings)
    relevance = build_relevance(query, gallery, EvalProtocol())
    blocks = list(rank(*grids, relevance, backend="torch"))
    assert columns_of(blocks)["n_candidates"].tolist() == [0, 0, 0]


def test_without_torch_the_pip_command_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from recallatk import EmbeddingSet, RecallatkError, evaluate_embeddings\n"
        "try: evaluate_embeddings(EmbeddingSet(np.eye(2), ['a', 'a']), backend='torch')\n"
        "except RecallatkError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "the backend torch needs torch: pip install 'recallatk[torch]'\n"
