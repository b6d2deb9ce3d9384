"""MTEB's image retrieval on look-alikes: images inside Parquet files, read when they are needed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import recallatk
from lookalikes import write_lines, write_picture
from recallatk.cli import main
from recallatk.datasets import load_dataset
from recallatk.datasets.packed import KEPT, ROWS, PackedImage, list_packed
from recallatk.inspection import inspect_dataset
from recallatk.run import encode_dataset
from recallatk.types import Dataset, RecallatkError

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
QUERIES = {"q1": 10, "q2": 100, "q3": 200, "q4": 40}
CORPUS = {"c1": 12, "c2": 10, "c3": 120, "c4": 180, "q1": 240}
QRELS = [("q1", "c1", 1), ("q2", "c3", 1), ("q2", "c1", 0), ("q3", "c3", 0)]  # q3 has no positive, q4 is not judged


def picture(folder: Path, shade: int) -> bytes:
    file = folder / f"{shade}.png"
    write_picture(file, shade, grey=shade == 180)
    return file.read_bytes()


def write_images(file: Path, images: Mapping[str, bytes | None], *, group: int = 100, **columns: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    cells = [{"bytes": data, "path": f"{name}.png"} for name, data in images.items()]
    table = pa.table(
        {
            "id": list(images),
            "modality": ["image"] * len(images),
            "image": pa.array(cells, IMAGE),
            "text": pa.nulls(len(images), pa.string()),
            **columns,
        }
    )
    pq.write_table(table, file, row_group_size=group)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "CUB 200 I2I"
    pictures = {shade: picture(tmp_path / "pictures", shade) for shade in {*QUERIES.values(), *CORPUS.values()}}
    write_images(root / "query" / "test-00000-of-00001.parquet", {name: pictures[one] for name, one in QUERIES.items()})
    corpus = {name: pictures[one] for name, one in CORPUS.items()}
    halves = [dict([*corpus.items()][:3]), dict([*corpus.items()][3:])]
    for number, half in enumerate(halves):
        write_images(root / "corpus" / f"corpus-0000{number}-of-00002-3cc2a566.parquet", half, group=2)
    (root / "corpus" / "._corpus-00000-of-00002.parquet").write_bytes(b"a file of a Mac")
    write_lines(root / "README.md", ["words"])
    (root / "qrels").mkdir()
    query, item, score = zip(*QRELS, strict=True)
    table = pa.table({"query-id": query, "corpus-id": item, "score": pa.array(score, pa.float64())})
    pq.write_table(table, root / "qrels" / "test-00000-of-00001.parquet")
    return root


def recall(dataset: Dataset) -> tuple[float, int, int]:
    from recallatk.run import evaluate_encoded

    def mean_shade(batch: list[Any]) -> np.ndarray[Any, Any]:
        angles = [np.radians(np.asarray(image, dtype=np.float64).mean() * 0.7) for image in batch]
        return np.array([[np.cos(angle), np.sin(angle)] for angle in angles])

    report = evaluate_encoded(encode_dataset(dataset, mean_shade))
    return report["recall@1"], report.num_evaluated, report.num_gallery


def test_ids_are_those_of_the_files(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load_dataset(copy, layout="mteb")
    assert dataset.gallery is not None
    assert dataset.query.ids == ("q1", "q2", "q3")
    assert dataset.gallery.ids == tuple(CORPUS)
    assert dataset.qrels is not None
    assert len(dataset.qrels) == 4
    assert dataset.notes == ("1 query left aside that the qrels do not name",)
    assert dataset.query.same is not None
    assert dataset.query.same[0] == "query/test-00000-of-00001.parquet: row 0 (counted from 0)"
    element = dataset.gallery.elements[3]
    assert isinstance(element, PackedImage)
    assert element.read_bytes() == (copy.parent / "pictures" / "180.png").read_bytes()
    monkeypatch.chdir(copy)
    (relative, *_) = list_packed(Path("query/test-00000-of-00001.parquet"), "image")
    assert relative is not None
    assert pickle.loads(pickle.dumps(relative)).file == relative.file.absolute()  # another process finds it
    assert str(element).endswith("corpus-00001-of-00002-3cc2a566.parquet: row 0 of group 0")


def test_recall_by_hand(copy: Path) -> None:
    """q1 has a copy in the corpus (c2), which is nearer than c1; q2 finds c3; q3 has no positive and is a miss."""
    assert recall(load_dataset(copy, layout="mteb")) == (1 / 3, 3, 5)
    assert recall(load_dataset(copy, layout="mteb", part="without-itself")) == (2 / 3, 3, 5)


def test_equal_bytes_are_one_image(copy: Path) -> None:
    dataset = load_dataset(copy, layout="mteb")
    encoded = encode_dataset(dataset, lambda batch: np.ones((len(batch), 2)))
    assert encoded.gallery is not None
    assert encoded.query.content is not None
    assert encoded.gallery.content is not None
    assert encoded.query.content[0] == encoded.gallery.content[1]
    inspection = inspect_dataset(dataset, protocol=dataset.protocol)
    assert "byte-equal-query-gallery" in {finding.kind for finding in inspection.findings}
    assert inspection.errors == ()
    assert "same-file" not in {finding.kind for finding in inspection.findings}  # q1 is an id of both sides


def test_files_beside_each_other_and_other_names(copy: Path) -> None:
    flat = copy.parent / "flat"
    flat.mkdir()
    (copy / "query" / "test-00000-of-00001.parquet").rename(flat / "queries.parquet")
    for number in range(2):
        name = f"corpus-0000{number}-of-00002"
        (copy / "corpus" / f"{name}-3cc2a566.parquet").rename(flat / f"{name}.parquet")
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{item}\t{score}" for query, item, score in QRELS)]
    (flat / "qrels.tsv").write_bytes("".join(f"{line}\r\n" for line in lines).encode("utf-8-sig"))
    dataset = load_dataset(flat, layout="mteb")
    assert dataset.gallery is not None
    assert (dataset.query.ids, dataset.gallery.ids) == (("q1", "q2", "q3"), tuple(CORPUS))
    assert recall(dataset)[0] == 1 / 3


def test_splits(copy: Path) -> None:
    file = copy / "query" / "test-00000-of-00001.parquet"
    write_images(copy / "query" / "train-00000-of-00001.parquet", {"t1": b"x"})
    assert load_dataset(copy, layout="mteb").query.ids == ("q1", "q2", "q3")
    file.rename(file.with_name("validation-00000-of-00001.parquet"))
    with pytest.raises(RecallatkError, match="the queries have the splits train, validation, and none is called test"):
        load_dataset(copy, layout="mteb")


def test_missing_shards_and_kinds(copy: Path) -> None:
    (copy / "corpus" / "corpus-00001-of-00002-3cc2a566.parquet").rename(copy / "kept")
    with pytest.raises(RecallatkError, match=r"of the 2 files of the corpus, number 1 \(counted from 0\) is missing"):
        load_dataset(copy, layout="mteb")
    (copy / "kept").rename(copy / "corpus" / "corpus-00001-of-00002.parquet")
    (copy / "qrels" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(RecallatkError, match=r"no qrels/ with files \.parquet, \.tsv, \.csv, \.jsonl in this folder"):
        load_dataset(copy, layout="mteb")
    write_lines(copy / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", "other\tc1\t1"])
    with pytest.raises(RecallatkError, match="the qrels name none of the 4 queries"):
        load_dataset(copy, layout="mteb")


def test_an_image_without_bytes_lies_beside_the_file_or_is_missing(copy: Path) -> None:
    file = copy / "query" / "test-00000-of-00001.parquet"
    write_images(file, {"q1": None, "q2": None, "q3": picture(copy.parent / "pictures", 200)})
    write_picture(file.parent / "q1.png", 10)
    with pytest.raises(RecallatkError, match="the image of 'q2' is neither in the file nor beside it"):
        load_dataset(copy, layout="mteb")
    dataset = load_dataset(copy, layout="mteb", on_error="skip")
    assert dataset.query.ids == ("q1", "q3")
    assert dataset.query.elements[0] == file.parent / "q1.png"
    assert [skipped.item for skipped in dataset.skipped] == ["q2"]


def test_texts_are_refused(copy: Path) -> None:
    file = copy / "query" / "test-00000-of-00001.parquet"
    write_images(file, {"q1": b"x"}, modality=["text"])
    with pytest.raises(RecallatkError, match=r"row 0 \(counted from 0\): the modality is 'text'"):
        load_dataset(copy, layout="mteb")
    pq.write_table(pa.table({"id": ["q1"], "text": ["a bird"]}), file)
    with pytest.raises(RecallatkError, match="no column 'image' of images; columns found: 'id', 'text'"):
        load_dataset(copy, layout="mteb")
    pq.write_table(pa.table({"id": ["q1"], "image": ["a.png"]}), file)
    with pytest.raises(RecallatkError, match="the column 'image' holds string, no images"):
        load_dataset(copy, layout="mteb")
    file.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(RecallatkError, match="cannot be read as Parquet"):
        load_dataset(copy, layout="mteb")


@pytest.mark.parametrize("group", [7, 10_000])
def test_any_order_and_any_thread(tmp_path: Path, group: int) -> None:
    """Plain bytes in a column, in small row groups or in one that is larger than what is kept."""
    data = [b"%d" % row for row in range(ROWS * (KEPT + 3))]
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": data}), file, row_group_size=group)
    images = list_packed(file, "image")
    rows = [*range(len(data)), *reversed(range(len(data))), *np.random.default_rng(0).permutation(len(data)).tolist()]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda row: images[row].read_bytes(), rows))  # type: ignore[union-attr]
    assert found == [data[row] for row in rows]
    assert threading.active_count() < 50


def test_an_image_that_is_gone(copy: Path) -> None:
    dataset = load_dataset(copy, layout="mteb")
    (copy / "query" / "test-00000-of-00001.parquet").unlink()
    with pytest.raises(RecallatkError, match="q1: cannot be read"):
        recall(dataset)


def test_the_command(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["eval", str(copy), "--layout", "mteb", "--encoder", "color-histogram", "--no-cache", "-k", "1,5"])
    text = capsys.readouterr().out
    assert text.startswith("[evaluation]\nnum queries: 3\nnum gallery: 5\n")
    assert "counted as a miss (no positive): 1" in text
    assert "ndcg@10:" in text
    assert "self:none" in text


def test_a_saved_run_finds_its_judged_pairs_with_its_data(copy, tmp_path):
    run, page = tmp_path / "run", tmp_path / "page.html"
    done = recallatk("eval", copy, "--layout", "mteb", "--encoder", "pixels", "-o", run, "--save-embeddings")
    assert done.code == 0, done.err
    assert recallatk("report", run, "-o", page).code == 0
    assert "No neighbours" not in page.read_text("utf-8")
    assert recallatk("report", run, "-o", tmp_path / "a.qrels").code == 0
    assert (tmp_path / "a.qrels").read_text("utf-8").split() == ["q1", "0", "c1", "1", "q2", "0", "c3", "1"]
    assert recallatk("verify", run).code == 0
    moved = copy.rename(tmp_path / "elsewhere")
    done = recallatk("verify", run)
    assert done.code == 0, done.out  # nothing has moved that can be checked
    assert "values: the judged pairs of the run are not there any more" in done.out
    assert recallatk("report", run, "-o", page, "--overwrite").code == 0
    assert "No neighbours" in page.read_text("utf-8")
    assert recallatk("report", run, "-o", page, "--overwrite", "--data", moved).code == 0
    assert "No neighbours" not in page.read_text("utf-8")
