"""What a cluster's workers do, without a cluster: what they hold, what they give, and how their work is cut."""

from __future__ import annotations

import dataclasses
import mmap

import numpy as np
import pytest

from recallatk.cluster import Node
from recallatk.cluster.plan import PROCESS, plan_deep_ranking
from recallatk.cluster.sources import MappedFile, Pieces
from recallatk.cluster.tasks import added, compact, wide
from recallatk.memory import release_shared_pages, resident_memory
from recallatk.ranking.blocks import BYTES_A_PAIR, Block, query_blocks
from recallatk.ranking.level_blocks import FAR
from recallatk.ranking.shards import AllCounts

MB = 2**20


def counts(ahead, tied, n=2):
    nothing = np.zeros(n, np.int64)
    return AllCounts(np.array(ahead), np.array(tied), nothing, nothing, nothing, 10)


def test_whole_numbers_travel_in_as_few_bytes_as_they_need():
    found = compact(counts([3, 127, 128], [0, -1, 40_000]))
    assert (found.ahead.dtype, found.tied.dtype, found.near_above.dtype) == (np.int16, np.int32, np.int8)
    again = wide(found)
    assert again.ahead.dtype == again.tied.dtype == np.int64
    np.testing.assert_array_equal(again.ahead, [3, 127, 128])
    np.testing.assert_array_equal(again.tied, [0, -1, 40_000])


def test_counts_of_different_sizes_add_without_loss_and_far_stays_far():
    parts = [
        counts([100, FAR, 7], [1, 2, 3]),
        counts([100, FAR, 30_000], [100, 0, 0]),
        counts([2**31, 5, 0], [0, 0, 0]),
    ]
    found = wide(added([added([compact(part) for part in parts[:2]]), compact(parts[2])]))
    np.testing.assert_array_equal(found.ahead, [200 + 2**31, FAR, 30_007])
    np.testing.assert_array_equal(found.tied, [101, 2, 3])
    assert found.n_gallery == 30


@dataclasses.dataclass
class Place:
    rows: np.ndarray
    opened: list

    def open(self):
        self.opened.append(len(self.rows))
        return self.rows


def test_rows_in_pieces_are_those_of_the_whole_and_only_what_is_asked_for_is_opened(tmp_path):
    rows = np.random.default_rng(1).normal(size=(100, 3)).astype(np.float16)
    opened: list[int] = []
    places = tuple(Place(rows[start : start + 30], opened) for start in range(0, 100, 30))
    pieces = Pieces((0, 30, 60, 90, 100), places, slice(0, 100), rows.dtype, 3)
    np.save(tmp_path / "rows.npy", rows)
    mapped = MappedFile.of(np.load(tmp_path / "rows.npy", mmap_mode="r"), slice(0, 100))
    for some in (slice(5, 95), slice(0, 100), slice(31, 33)):
        part = pieces.part(some)
        assert part.shape == rows[some].shape
        assert part.dtype == rows.dtype
        np.testing.assert_array_equal(part[0 : len(part)], rows[some])
        np.testing.assert_array_equal(part.part(slice(1, 2))[:], rows[some][1:2])
        np.testing.assert_array_equal(mapped.part(some).part(slice(1, 2)).open(), rows[some][1:2])
    np.testing.assert_array_equal(pieces.part(slice(10, 100))[np.array([80, 0, 19, 20])], rows[[90, 10, 29, 30]])
    opened.clear()
    pieces[40:50]
    assert opened == [30]


@pytest.mark.skipif(not resident_memory(), reason="memory of a process is read from /proc")
def test_shared_pages_are_given_back_and_keep_what_was_written():
    private = mmap.mmap(-1, MB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    private.write(b"2" * MB)
    with mmap.mmap(-1, 100 * MB) as shared:
        shared.write(b"1" * (100 * MB))
        held = resident_memory()
        release_shared_pages()
        assert resident_memory() < held - 90 * MB
        assert shared[:] == b"1" * (100 * MB)
    assert private[:] == b"2" * MB


def test_a_task_has_no_more_positives_than_fit_and_a_gallery_is_cut_for_few_queries_only():
    nodes = [Node("one", 2, 0, 8000 * MB)]
    many = plan_deep_ranking(np.full(20_000, 2000), 20_000, 64, nodes, memory=400 * MB)
    assert many.shard == 20_000
    assert BYTES_A_PAIR * many.pairs <= (400 * MB - PROCESS) / 4
    few = plan_deep_ranking(np.full(200, 5), 600_000, 64, nodes, memory=400 * MB)
    assert (few.block, few.shard) == (200, 75_000)
    least = plan_deep_ranking(np.full(200, 5), 6_000, 64, nodes, memory=400 * MB)
    assert least.shard == 3_000
    assert few.tasks == 8
    assert many.tasks == len(list(query_blocks(np.full(20_000, 2001), Block(many.block, many.pairs))))
