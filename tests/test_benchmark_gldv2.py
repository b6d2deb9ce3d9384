"""Google Landmarks v2 on a look-alike: id lists, Ignored rows, and where copies have their lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import recallatk
from lookalikes import on_the_circle, write_lines, write_picture
from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.datasets import detect_layout, load_dataset
from recallatk.datasets.benchmarks import BENCHMARKS, identify
from recallatk.types import RecallatkError

# The first two are one file twice; the last is greyscale.
INDEX = ["0000015d4a1f2a3b", "00000d5e6c7f8091", "0a1b2c3d4e5f6071", "f0e1d2c3b4a59687", "fff0e1d2c3b4a596"]
PRIVATE, PUBLIC, OTHER, IGNORED = "d41d8cd98f00b204", "90015098ad3cd217", "c3fcd3d76192e400", "900150983cd24fb0"
SOLUTION = [
    "id,images,Usage",
    f"{PRIVATE},{INDEX[0]} {INDEX[2]},Private",
    f"{IGNORED},None,Ignored",
    f"{PUBLIC},{INDEX[3]},Public",
    f"{OTHER},{INDEX[4]},Private",
]


def path_of(folder: str, image: str) -> str:
    return f"{folder}/{image[0]}/{image[1]}/{image[2]}/{image}.jpg"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "google-landmark"
    for shade, image in zip([40, 40, 90, 140, 190], INDEX, strict=True):
        write_picture(root / path_of("index", image), shade, grey=image == INDEX[-1])
    for number, image in enumerate((PRIVATE, PUBLIC, OTHER, IGNORED)):
        write_picture(root / path_of("test", image), 45 + 50 * number)
    write_lines(root / "index_image_to_landmark.csv", ["id,landmark_id", *(f"{image},17" for image in INDEX)])
    write_lines(root / "retrieval_solution_v2.1.csv", SOLUTION)
    (root / "index" / ".DS_Store").write_bytes(b"\0")
    return root


@pytest.mark.parametrize(
    ("part", "queries", "aside"),
    [
        ("private", [PRIVATE, OTHER], "1 query"),
        ("public", [PUBLIC], "2 queries"),
        ("both", [PRIVATE, PUBLIC, OTHER], ""),
    ],
)
def test_the_usage_parts_the_queries(copy: Path, part: str, queries: list[str], aside: str) -> None:
    dataset = load_dataset(copy, layout="gldv2", part=part, counts="any")
    assert dataset.gallery is not None
    assert dataset.query.ids == tuple(path_of("test", query) for query in queries)
    assert dataset.gallery.ids == tuple(path_of("index", image) for image in INDEX)
    assert dataset.notes[0] == "retrieval_solution_v2.1.csv: 1 row marked Ignored left aside"
    assert dataset.notes[1:] == (
        (f"retrieval_solution_v2.1.csv: {aside} of the other part left aside",) if aside else ()
    )


def test_the_lists_are_the_judgements(copy: Path) -> None:
    dataset = load_dataset(copy.parent, layout="gldv2", counts="any")
    assert dataset.qrels is not None
    assert list(zip(dataset.qrels.query_ids, dataset.qrels.gallery_ids, strict=True)) == [
        (path_of("test", PRIVATE), path_of("index", INDEX[0])),
        (path_of("test", PRIVATE), path_of("index", INDEX[2])),
        (path_of("test", OTHER), path_of("index", INDEX[4])),
    ]


@pytest.mark.parametrize("folder", ["metadata", "ground_truth", "test", "index"])
def test_lists_may_lie_beside_the_images(copy: Path, folder: str) -> None:
    (copy / folder).mkdir(exist_ok=True)
    (copy / "retrieval_solution_v2.1.csv").rename(copy / folder / "retrieval_solution_v2.1.csv")
    (copy / "index_image_to_landmark.csv").unlink()
    write_lines(copy / folder / "index.csv", ["id", *INDEX])
    dataset = load_dataset(copy, layout="gldv2", counts="any")
    assert dataset.gallery is not None
    assert len(dataset.gallery) == 5


def test_values_by_hand(copy: Path) -> None:
    dataset = load_dataset(copy, layout="gldv2", counts="any")
    assert dataset.gallery is not None
    report = evaluate_embeddings(
        EmbeddingSet(on_the_circle([0, 90]), None, ids=dataset.query.ids),
        EmbeddingSet(on_the_circle([1, 2, 3, 4, 95]), None, ids=dataset.gallery.ids),
        protocol=dataset.protocol,
        metrics=[*dataset.metrics, "map_capped@1"],
        qrels=dataset.qrels,
    )
    # Found at 1 and 3 of two, and at 1 of one.
    assert report["map_capped@100"] == pytest.approx(((1 + 2 / 3) / 2 + 1) / 2)
    assert report["map_capped@1"] == 1.0
    assert report["recall@1"] == 1.0


def test_a_query_without_relevant_images_in_the_index_counts_as_nothing(copy: Path) -> None:
    write_lines(copy / "retrieval_solution_v2.1.csv", [*SOLUTION[:3], f"{OTHER},aaaaaaaaaaaaaaaa,Private"])
    dataset = load_dataset(copy, layout="gldv2", counts="any")
    assert dataset.gallery is not None
    assert f"1 query has relevant images that the list of the index does not name (such as {OTHER}: aaaa" in (
        " ".join(dataset.warnings)
    )
    report = evaluate_embeddings(
        EmbeddingSet(on_the_circle([0, 90]), None, ids=dataset.query.ids),
        EmbeddingSet(on_the_circle([1, 2, 3, 4, 95]), None, ids=dataset.gallery.ids),
        protocol=dataset.protocol,
        metrics=dataset.metrics,
        qrels=dataset.qrels,
    )
    assert report["recall@1"] == 1 / 2
    assert report.num_evaluated == 2


def test_the_official_counts(copy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"private: 2 queries where .* 750; 5 gallery images where .* 761,757"):
        load_dataset(copy, layout="gldv2")


def test_lists_as_windows_leaves_them(copy: Path) -> None:
    expected = load_dataset(copy, layout="gldv2", counts="any")
    for name in ("retrieval_solution_v2.1.csv", "index_image_to_landmark.csv"):
        text = (copy / name).read_text("utf-8")
        (copy / name).write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"\r\n")
    dataset = load_dataset(copy, layout="gldv2", counts="any")
    assert dataset.query.ids == expected.query.ids
    assert dataset.gallery is not None
    assert expected.gallery is not None
    assert dataset.gallery.ids == expected.gallery.ids


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (SOLUTION[1:], "line 1: the header is not id,images,Usage"),
        ([*SOLUTION, PUBLIC], r"line 6 has 1 field, not 3 \(id, images, Usage\)"),
        ([*SOLUTION, SOLUTION[1]], f"line 6: the query {PRIVATE} stands there twice"),
        ([*SOLUTION, f"0123456789abcdef,{INDEX[0]},Train"], "line 6: the Usage is 'Train', not Public, Private or Ign"),
        ([*SOLUTION, f"0123456789abcdef,{INDEX[0]};{INDEX[1]},Public"], "line 6: .* is no id of an image"),
        ([*SOLUTION, f"../../x,{INDEX[0]},Private"], "line 6: '../../x' is no id of an image"),
        ([SOLUTION[0], SOLUTION[3]], "no row whose Usage is Private"),
        ([], "line 1: the header is not id,images,Usage"),
    ],
)
def test_a_damaged_solution_is_told(copy: Path, lines: list[str], message: str) -> None:
    write_lines(copy / "retrieval_solution_v2.1.csv", lines)
    with pytest.raises(RecallatkError, match=rf"retrieval_solution_v2.1.csv: {message}"):
        load_dataset(copy, layout="gldv2", counts="any")


def test_what_is_missing_is_named(copy: Path) -> None:
    (copy / path_of("index", INDEX[2])).unlink()
    with pytest.raises(RecallatkError, match=r"0a1b2c3d4e5f6071.jpg: no such file: of the 5 .*index image"):
        load_dataset(copy, layout="gldv2", counts="any")
    dataset = load_dataset(copy, layout="gldv2", counts="any", on_error="skip")
    assert [skipped.item for skipped in dataset.skipped] == [path_of("index", INDEX[2])]
    (copy / "retrieval_solution_v2.1.csv").unlink()
    with pytest.raises(RecallatkError, match=r"no retrieval_solution_v2.1.csv in it, nor in its folders"):
        load_dataset(copy, layout="gldv2", counts="any")
    (copy / "index").rename(copy / "elsewhere")
    with pytest.raises(RecallatkError, match=r"no index in this folder"):
        load_dataset(copy, layout="gldv2", counts="any")


def test_a_link_is_the_file_that_it_leads_to(copy: Path, tmp_path: Path) -> None:
    linked = copy / path_of("index", INDEX[2])
    linked.rename(tmp_path / "elsewhere.jpg")
    linked.symlink_to(tmp_path / "elsewhere.jpg")
    dataset = load_dataset(copy, layout="gldv2", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.same is not None
    assert dataset.gallery.same[2] == str(tmp_path / "elsewhere.jpg")
    assert dataset.gallery.same[1] == dataset.gallery.ids[1]


def test_it_is_recognised_and_evaluated(copy: Path) -> None:
    assert "--layout gldv2" in " ".join(detect_layout(copy)[1])
    assert {one.name for one in identify(copy, BENCHMARKS)} == {"gldv2"}
    found = recallatk("eval", copy, "--layout", "gldv2", "--counts", "any", "--encoder", "color-histogram")
    assert found.code == 0, found.err
    assert "num queries: 2\nnum gallery: 5\n" in found.out
    assert "map_capped@100" in found.values()
