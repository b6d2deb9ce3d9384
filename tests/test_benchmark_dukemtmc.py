"""DukeMTMC-reID on a look-alike: the folders of Market-1501, other names, and no junk."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import recallatk
from lookalikes import on_the_circle, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import detect_layout, load_dataset
from recallatk.datasets.benchmarks import BENCHMARKS, identify
from recallatk.types import RecallatkError

# Person 41 was seen by camera 5 alone; the two of person 5 by camera 2 are one file twice.
QUERIES = ["0005_c2_f0046985.jpg", "0041_c5_f0059340.jpg"]
GALLERY = ["0005_c2_f0047105.jpg", "0005_c2_f0047225.jpg", "0005_c5_f0051341.jpg", "0041_c5_f0059460.jpg"]
DISTRACTOR = "0012_c1_f0044001.jpg"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "DukeMTMC-reID"
    for number, name in enumerate(QUERIES):
        write_picture(root / "query" / name, 30 + 100 * number)
    for shade, name in zip([60, 60, 90, 150], GALLERY, strict=True):
        write_picture(root / "bounding_box_test" / name, shade)
    write_picture(root / "bounding_box_test" / DISTRACTOR, 35, grey=True)
    (root / "bounding_box_test" / ".DS_Store").write_bytes(b"\0")
    (root / "LICENSE_DukeMTMC-reID.txt").write_text("-")
    return root


def test_the_names_say_person_and_camera(copy: Path) -> None:
    dataset = load_dataset(copy.parent, layout="dukemtmc", counts="any")
    assert dataset.gallery is not None
    assert dataset.query.labels == ("0005", "0041")
    assert dataset.query.groups["camera"] == ("2", "5")
    assert dataset.gallery.ids[3] == f"bounding_box_test/{DISTRACTOR}"
    assert dataset.gallery.labels == ("0005", "0005", "0005", "0012", "0041")
    assert dataset.protocol is not None
    assert dataset.protocol.junk_labels == ()
    assert dataset.notes == ("bounding_box_test/: 1 other item left aside (such as '.DS_Store')",)


def test_recall_by_hand(copy: Path) -> None:
    dataset = load_dataset(copy, layout="dukemtmc", counts="any")
    assert dataset.gallery is not None
    degrees = dict(zip([*GALLERY, DISTRACTOR], [1, 2, 9, 81, 5], strict=True))
    gallery = [degrees[name.rpartition("/")[2]] for name in dataset.gallery.ids]
    report = evaluate_embeddings(
        EmbeddingSet(on_the_circle([0, 80]), dataset.query.labels, groups=dict(dataset.query.groups)),
        EmbeddingSet(on_the_circle(gallery), dataset.gallery.labels, groups=dict(dataset.gallery.groups)),
        protocol=dataset.protocol,
        metrics=dataset.metrics,
    )
    # Those at 1 and 2 degrees are of the query's camera; the distractor at 5 stands before the one at 9.
    assert (report.num_evaluated, report.num_excluded) == (1, 1)
    assert report["recall@1"] == 0.0
    assert report["recall@5"] == 1.0
    assert report["map"] == 1 / 2


def test_the_official_counts(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"2 queries where .* 2,228; 5 gallery images where .* 17,661; 2 labels"):
        load_dataset(copy, layout="dukemtmc")


def test_it_is_not_taken_for_market1501(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"0005_c2_f0046985.jpg: no name of this benchmark"):
        load_dataset(copy, layout="market1501", counts="any")
    assert "--layout dukemtmc" in " ".join(detect_layout(copy)[1])
    assert {one.name for one in identify(copy, BENCHMARKS)} == {"dukemtmc"}


def test_the_command_line(copy: Path) -> None:
    found = recallatk("eval", copy, "--layout", "dukemtmc", "--counts", "any", "--encoder", "color-histogram")
    assert found.code == 0, found.err
    assert "num queries: 2\nnum gallery: 5\n" in found.out
    assert "map" in found.values()
