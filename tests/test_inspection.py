"""What is found in a data set before anything is encoded: real odd pictures, copies, names, links and labels."""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from command_line import recallatk
from recallatk import EvalProtocol, Finding, Inspection, Qrels, inspect_dataset, load_dataset
from recallatk.encoding import encode
from recallatk.inspection import labels as label_findings
from recallatk.inspection.copies import NEAR_BITS, _near_groups
from recallatk.inspection.pictures import Picture
from recallatk.relevance import build_relevance
from recallatk.types import RecallatkError

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"


def photo(number: int, size: tuple[int, int] = (64, 48)) -> Image.Image:
    """A picture like no other of another number."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return coarse.resize(size, Image.Resampling.BICUBIC)


def put(root: Path, **pictures: Any) -> Path:
    for number, name in enumerate(pictures.get("names", ())):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        photo(number).save(file)
    return root


def inspect(data: Path, **options: Any) -> Inspection:
    return inspect_dataset(load_dataset(data, on_error="skip"), **options)


def kinds(inspection: Inspection, level: str | None = None) -> set[str]:
    return {finding.kind for finding in inspection.findings if level in (None, finding.level)}


def only(inspection: Inspection, kind: str) -> Finding:
    (found,) = [finding for finding in inspection.findings if finding.kind == kind]
    assert "\n" not in found.line()
    return found


CLEAN = ("query/cat/1.png", "query/dog/1.png", "gallery/cat/2.png", "gallery/dog/2.png")


def test_a_clean_data_set_has_no_finding(tmp_path: Path) -> None:
    found = inspect(put(tmp_path, names=CLEAN))
    assert found.findings == ()
    assert found.images == found.readable == {"query": 2, "gallery": 2}
    assert found.evaluated == 2
    assert found.labels == {"cat": {"query": 1, "gallery": 1}, "dog": {"query": 1, "gallery": 1}}
    assert found.sizes["width"] == (64, 64, 64)
    assert found.sizes["height"] == (48, 48, 48)
    assert found.sizes["bytes"][0] == min((tmp_path / name).stat().st_size for name in CLEAN)


# --- files


def test_files_that_cannot_be_used_are_errors_by_kind_with_the_file_named(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    cats = tmp_path / "gallery" / "cat"
    (cats / "empty.jpg").touch()
    (cats / "text.jpg").write_text("this is no picture", encoding="utf-8")
    photo(7).save(cats / "whole.jpg")
    (cats / "cut.jpg").write_bytes((cats / "whole.jpg").read_bytes()[:-300])
    (cats / "nowhere.png").symlink_to("not-there.png")
    found = inspect(tmp_path)
    assert kinds(found, "error") == {"missing", "empty", "truncated", "unreadable"}
    assert only(found, "empty").items == ("gallery/cat/empty.jpg: the file is empty",)
    assert only(found, "truncated").items[0].startswith("gallery/cat/cut.jpg: ")
    assert only(found, "unreadable").items == ("gallery/cat/text.jpg: it is no image of a known format",)
    assert only(found, "missing").items == ("gallery/cat/nowhere.png: a link to a file that is not there",)
    assert found.readable == {"query": 2, "gallery": 3}
    assert found.images["gallery"] == 6
    assert not kinds(inspect(tmp_path, on_error="skip"), "error")


def test_a_file_that_is_gone_when_it_is_opened_is_an_error(tmp_path: Path) -> None:
    dataset = load_dataset(put(tmp_path, names=CLEAN))
    (tmp_path / CLEAN[0]).unlink()
    found = inspect_dataset(dataset)
    assert only(found, "unopened").items == (f"{CLEAN[0]}: cannot be read (No such file or directory)",)
    assert found.evaluated == 1


def save_odd_pictures(folder: Path) -> dict[str, str]:
    """Pictures as people have them, each with the words that must be found for it."""
    folder.mkdir(parents=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    photo(1).save(folder / "turned.jpg", exif=exif)
    photo(2).convert("CMYK").save(folder / "print.jpg")
    Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)).save(folder / "deep.png")
    photo(3).save(folder / "moving.gif", save_all=True, append_images=[photo(4)])
    clear = photo(5).convert("RGBA")
    clear.putalpha(100)
    clear.save(folder / "clear.png")
    photo(6).convert("L").save(folder / "grey.png")
    photo(7).convert("P").save(folder / "palette.png")
    return {
        "turned.jpg": "EXIF orientation applied",
        "print.jpg": "CMYK converted",
        "deep.png": "16-bit scaled to 8-bit",
        "moving.gif": "first of several frames used",
        "clear.png": "transparency composited on white",
        "grey.png": "greyscale converted",
        "palette.png": "palette converted",
    }


def test_odd_pictures_are_noted_as_what_they_are(tmp_path: Path) -> None:
    expected = save_odd_pictures(tmp_path / "odd")
    found = inspect(tmp_path)
    notes = {finding.what.partition(": ")[2]: finding.items for finding in found.of("note")}
    for name, phrase in expected.items():
        assert f"odd/{name}" in notes[phrase], phrase
    assert not found.errors
    assert found.sizes["height"] == (48, 48, 64)
    assert found.sizes["width"] == (48, 64, 64)  # the turned one stands
    assert "EXIF orientation applied" not in str(inspect_dataset(load_dataset(tmp_path), policy=_as_stored()).findings)


def _as_stored() -> Any:
    from recallatk.images import DecodePolicy

    return DecodePolicy(exif="ignore")


def test_tiny_and_huge_pictures_are_named_with_their_size(tmp_path: Path) -> None:
    put(tmp_path, names=("a/1.png", "a/2.png"))
    photo(3, (31, 400)).save(tmp_path / "a" / "thumb.png")
    Image.new("1", (10_000, 5_001)).save(tmp_path / "a" / "scan.png")
    found = inspect(tmp_path)
    assert (only(found, "tiny").level, only(found, "tiny").items) == ("warning", ("a/thumb.png (31 x 400)",))
    assert (only(found, "huge").level, only(found, "huge").items) == ("note", ("a/scan.png (10000 x 5001)",))


# --- copies


def copy_as(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(source.read_bytes())


def test_equal_bytes_are_found_within_and_across_the_sides_and_other_labels_come_first(tmp_path: Path) -> None:
    put(tmp_path, names=(*CLEAN, "query/cat/3.png"))
    copy_as(tmp_path / "query/cat/1.png", tmp_path / "gallery/cat/leak.png")
    copy_as(tmp_path / "query/dog/1.png", tmp_path / "gallery/cat/wrong.png")
    copy_as(tmp_path / "gallery/dog/2.png", tmp_path / "gallery/dog/again.png")
    found = inspect(tmp_path)
    assert [finding.kind for finding in found.findings] == [
        "byte-equal-other-label",
        "byte-equal-query-gallery",
        "byte-equal-gallery",
    ]
    assert only(found, "byte-equal-other-label").items == ("query/dog/1.png (dog) = gallery/cat/wrong.png (cat)",)
    assert only(found, "byte-equal-query-gallery").items == (
        "query/cat/1.png (cat) = gallery/cat/leak.png (cat)",
        "query/dog/1.png (dog) = gallery/cat/wrong.png (cat)",
    )
    assert only(found, "byte-equal-gallery").level == "note"
    assert only(found, "byte-equal-gallery").items == ("gallery/dog/again.png (dog) = gallery/dog/2.png (dog)",)
    left_out = inspect(tmp_path, protocol=EvalProtocol(exclude_self="content"))
    assert only(left_out, "byte-equal-query-gallery").level == "note"


def test_equal_pixels_in_other_bytes_are_found_and_other_pixels_are_not(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    photo(0).save(tmp_path / "gallery/cat/as.bmp")
    changed = photo(1)
    changed.putpixel((0, 0), (0, 0, 0))
    changed.save(tmp_path / "gallery/dog/nearly.png")
    found = inspect(tmp_path)
    assert kinds(found) == {"pixel-equal-query-gallery"}
    assert only(found, "pixel-equal-query-gallery").items == ("query/cat/1.png (cat) = gallery/cat/as.bmp (cat)",)


def test_alone_every_copy_is_in_the_gallery_of_the_other(tmp_path: Path) -> None:
    put(tmp_path, names=("cat/1.png", "cat/2.png"))
    copy_as(tmp_path / "cat/1.png", tmp_path / "cat/3.png")
    found = inspect(tmp_path)
    assert (only(found, "byte-equal-both").level, len(only(found, "byte-equal-both").items)) == ("warning", 1)


def test_pictures_that_are_nearly_the_same_are_found_on_request(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    photo(0).save(tmp_path / "gallery/cat/small.jpg", quality=80)
    photo(1).resize((128, 96)).save(tmp_path / "gallery/cat/large.png")
    assert not inspect(tmp_path).findings
    pytest.importorskip("imagehash")
    found = inspect(tmp_path, near_duplicates=True)
    assert only(found, "near-duplicate-other-label").items == ("query/dog/1.png (dog) = gallery/cat/large.png (cat)",)
    assert [item.split(" ")[0] for item in only(found, "near-duplicate-query-gallery").items] == [
        "query/cat/1.png",
        "query/dog/1.png",
    ]


def test_without_the_library_near_duplicates_name_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "imagehash", None)
    with pytest.raises(RecallatkError, match=r"pip install 'recallatk\[near-duplicates\]'"):
        inspect(put(tmp_path, names=CLEAN), near_duplicates=True)


def test_groups_of_near_hashes_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(5)
    hashes = [int(value) for value in rng.integers(0, 2**63, 40)]
    for value in hashes[:30]:
        flips = rng.choice(64, int(rng.integers(1, 8)), replace=False)
        hashes.append(value ^ sum(1 << int(bit) for bit in flips))
    groups = _near_groups([Picture(perceptual=value) for value in hashes])
    joined = {value: {value} for value in hashes}
    for a in hashes:
        for b in hashes:
            if (a ^ b).bit_count() <= NEAR_BITS and joined[a] is not joined[b]:
                union = joined[a] | joined[b]
                for value in union:
                    joined[value] = union
    assert any(len(union) > 1 for union in joined.values())
    for a in hashes:
        assert {b for b in hashes if groups[b] == groups[a]} == joined[a]


# --- names and links


def test_links_are_followed_and_noted_and_a_link_to_the_query_is_no_copy(tmp_path: Path) -> None:
    put(tmp_path / "data", names=CLEAN)
    photo(9).save(tmp_path / "elsewhere.png")
    cats = tmp_path / "data" / "gallery" / "cat"
    (cats / "link.png").symlink_to("../../query/cat/1.png")
    (cats / "out.png").symlink_to(tmp_path / "elsewhere.png")
    (cats / "loop").symlink_to(tmp_path / "data" / "gallery")
    found = inspect(tmp_path / "data")
    assert only(found, "link").items == ("gallery/cat/link.png", "gallery/cat/out.png")
    assert only(found, "outside").items == (f"gallery/cat/out.png -> {tmp_path / 'elsewhere.png'}",)
    assert (only(found, "same-file").level, only(found, "same-file").items) == ("note", ("query/cat/1.png",))
    assert only(found, "layout").what == "1 linked folder not followed: a loop (such as 'gallery/cat/loop')"
    assert not [kind for kind in kinds(found) if "equal" in kind]
    assert only(inspect(tmp_path / "data", protocol=EvalProtocol(exclude_self="none")), "same-file").level == "warning"


def test_one_name_in_two_unicode_forms_is_a_warning_and_in_two_cases_a_note(tmp_path: Path) -> None:
    names = [unicodedata.normalize(form, "café.png") for form in ("NFC", "NFD")]
    put(tmp_path, names=(*(f"a/{name}" for name in names), "a/IMG.png", "a/img.png"))
    found = inspect(tmp_path)
    assert len({os.fspath(path) for path in (tmp_path / "a").iterdir()}) == 4
    assert only(found, "unicode-clash").level == "warning"
    assert only(found, "unicode-clash").items == ("'a/cafe\\u0301.png' and 'a/caf\\xe9.png'",)
    assert (only(found, "case-clash").level, only(found, "case-clash").items) == (
        "note",
        ("'a/IMG.png' and 'a/img.png'",),
    )


# --- labels and positives


def test_labels_of_one_side_come_with_the_nearest_spelling(tmp_path: Path) -> None:
    put(tmp_path, names=(*CLEAN, "query/Golden Retriever/1.png", "gallery/golden_retriever/1.png", "query/zebra/1.png"))
    put(tmp_path / "more", names=())
    found = inspect(tmp_path)
    assert only(found, "label-query-only").level == "warning"
    assert only(found, "label-query-only").items == ("'Golden Retriever', nearest 'golden_retriever'", "'zebra'")
    assert only(found, "label-gallery-only").level == "note"
    assert only(found, "label-gallery-only").items == ("'golden_retriever', nearest 'Golden Retriever'",)
    assert found.evaluated == 2


def test_a_misspelt_label_is_near_and_another_word_is_not(tmp_path: Path) -> None:
    put(tmp_path, names=(*CLEAN, "query/scisors/1.png", "gallery/scissors/1.png"))
    assert only(inspect(tmp_path), "label-query-only").items == ("'scisors', nearest 'scissors'",)


def test_numbers_that_differ_are_other_classes_and_no_slips(tmp_path: Path) -> None:
    put(tmp_path, names=(*CLEAN, "query/person 101/1.png", "gallery/person 102/1.png", "gallery/person_103/1.png"))
    assert only(inspect(tmp_path), "label-query-only").items == ("'person 101'",)


def test_a_query_without_a_positive_names_the_rule_that_took_it(tmp_path: Path) -> None:
    put(tmp_path, names=("1.png", "2.png", "3.png", "4.png"))
    table = "path,label,role,camera\n1.png,a,query,c1\n2.png,a,gallery,c1\n3.png,b,query,c1\n4.png,b,gallery,c2\n"
    (tmp_path / "list.csv").write_text(table, encoding="utf-8")
    assert not inspect(tmp_path / "list.csv").findings
    found = inspect(tmp_path / "list.csv", protocol=EvalProtocol(ignore_same="camera+label"))
    assert only(found, "no-positive").items == ("1.png",)
    assert "of the query's camera and label" in only(found, "no-positive").what
    assert (only(found, "no-positive").level, found.evaluated) == ("warning", 1)
    strict = EvalProtocol(ignore_same="camera+label", no_positive="error")
    assert only(inspect(tmp_path / "list.csv", protocol=strict), "no-positive").level == "error"


def test_an_unreadable_positive_leaves_its_query_without_one(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    (tmp_path / "gallery/cat/2.png").write_bytes(b"")
    assert only(inspect(tmp_path), "no-positive").items == ("query/cat/1.png",)


def test_classes_of_one_image_and_a_set_with_nothing_to_evaluate(tmp_path: Path) -> None:
    found = inspect(put(tmp_path, names=("cat/1.png", "dog/1.png", "dog/2.png")))
    assert only(found, "single-image-label").items == ("'cat'",)
    assert "the query itself" in only(found, "no-positive").what
    assert not found.errors
    (tmp_path / "dog/2.png").unlink()
    assert only(inspect(tmp_path), "nothing").level == "error"
    for file in tmp_path.rglob("*.png"):
        file.write_bytes(b"")
    assert {"nothing", "empty"} <= kinds(inspect(tmp_path), "error")


def test_what_an_evaluation_refuses_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    found = inspect(tmp_path, protocol=EvalProtocol(ignore_same="camera"))
    assert "'camera'" in only(found, "relevance").what
    assert only(found, "relevance").level == "error"


def test_judged_pairs_count_as_they_do_in_an_evaluation(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    qrels = Qrels(["query/cat/1.png", "nobody"], ["gallery/dog/2.png", "gallery/dog/2.png"], np.array([1, 1]))
    found = inspect(tmp_path, protocol=EvalProtocol(relevance="qrels"), qrels=qrels)
    assert only(found, "no-positive").items == ("query/dog/1.png",)
    assert "nobody" in only(found, "relevance").what


@pytest.mark.parametrize("seed", range(5))
def test_queries_without_positive_are_those_of_judging_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from recallatk.types import SampleSet

    monkeypatch.setattr(label_findings, "PAIRS_A_BLOCK", 7)
    rng = np.random.default_rng(seed)
    several = seed % 2

    def labels(n: int) -> list[Any]:
        drawn = rng.integers(0, 40 if several else 12, (n, 2)).tolist()
        return [tuple(map(str, pair)) if several else str(pair[0]) for pair in drawn]

    query = SampleSet(labels(30), ids=[f"q{i}" for i in range(30)], groups={"c": rng.integers(0, 2, 30).tolist()})
    gallery = SampleSet(labels(20), ids=[f"g{i}" for i in range(20)], groups={"c": rng.integers(0, 2, 20).tolist()})
    protocol = EvalProtocol(ignore_same="c", distractor_labels=("3",) if seed == 4 else ())
    relevance = build_relevance(query, gallery, protocol)
    judged = relevance.judge(slice(0, 30))
    expected = [f"q{row}" for row in np.flatnonzero(np.diff(judged.positive_starts) == 0)]
    found, evaluated = label_findings.find_queries_without_positive(relevance, query, protocol)
    assert sorted(name for finding in found for name in finding.items) == sorted(expected)
    assert expected
    assert evaluated == 30 - len(expected)


# --- boxes


def test_a_box_outside_its_picture_is_an_error_and_boxes_are_images(tmp_path: Path) -> None:
    put(tmp_path, names=("scene.png",))
    rows = ["scene.png,a,0,0,40,48", "scene.png,a,20,0,64,48", "scene.png,a,0,0,65,48"]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,x1,y1,x2,y2", *rows]), encoding="utf-8")
    found = inspect(tmp_path / "list.csv")
    assert only(found, "box-outside").items[0].startswith("scene.png@0,0,65,48: the box (0, 0, 65, 48) is not inside")
    assert found.sizes["width"] == (40, 42, 44)
    assert kinds(found) == {"box-outside"}


# --- what is counted is what an evaluation counts


def test_the_check_and_the_evaluation_agree_on_the_photos(tmp_path: Path) -> None:
    from recallatk import evaluate_embeddings

    dataset = load_dataset(PHOTOS)
    found = inspect_dataset(dataset, threads=3)
    encoded = encode([dataset.query], lambda batch: np.array([np.asarray(i).mean((0, 1)) for i in batch]))
    report = evaluate_embeddings(encoded.sets[0])
    assert found.evaluated == report.num_evaluated
    assert found.images["both"] == report.num_queries
    assert len(found.labels) == report.num_labels
    counted = {f.what.partition(": ")[2]: len(f.items) for f in found.findings if f.kind == "converted"}
    assert counted == dict(encoded.conversions)


# --- the command


def test_the_command_prints_and_ends_with_3_only_on_errors(tmp_path: Path) -> None:
    put(tmp_path, names=(*CLEAN, "query/cow/1.png"))
    result = recallatk("check", tmp_path)
    assert (result.code, result.err) == (0, "")
    assert "queries with a positive: 2\n" in result.out
    assert "\nwarning: 1 label is on the query side only (such as 'cow'); " in result.out
    assert result.out.endswith("0 errors, 2 warnings, 0 notes\n")
    (tmp_path / "gallery/cat/torn.png").write_bytes(b"torn")
    result = recallatk("check", tmp_path)
    assert (result.code, result.err) == (3, "recallatk: 1 error in the data\n")
    assert "\nerror: 1 file cannot be read as an image (such as gallery/cat/torn.png: " in result.out
    assert recallatk("check", tmp_path, "--on-error", "skip").code == 0


def test_the_command_gives_strict_json_of_everything(tmp_path: Path) -> None:
    put(tmp_path, names=CLEAN)
    (tmp_path / "gallery/cat/torn.png").write_bytes(b"torn")
    result = recallatk("check", tmp_path, "--json")
    record = json.loads(result.out)
    assert result.code == 3
    assert record["images"] == {"query": 2, "gallery": 3}
    assert record["readable"] == {"query": 2, "gallery": 2}
    (finding,) = record["findings"]
    assert (finding["kind"], finding["level"], finding["count"]) == ("unreadable", "error", 1)
    assert record == inspect(tmp_path).record()


def test_the_command_reads_as_eval_does(tmp_path: Path) -> None:
    put(tmp_path, names=("q/a/1.png", "g/a/2.png"))
    folders = ("--queries-folder", tmp_path / "q", "--database_folder", tmp_path / "g")
    assert recallatk("check", *folders, "--quiet").code == 0
    (tmp_path / "list.csv").write_text("path,label,camera\nq/a/1.png,a,1\ng/a/2.png,a,1\n", encoding="utf-8")
    result = recallatk("check", tmp_path / "list.csv", "--ignore-same", "camera")
    assert result.code == 3
    assert "of the query's camera (ignore_same=camera)" in result.out
    assert recallatk("check", tmp_path / "nowhere").code == 3
    assert recallatk("check", tmp_path, "--ignore-same").code == 2


def test_a_name_with_a_line_break_stays_in_its_line(tmp_path: Path) -> None:
    put(tmp_path, names=("a/1.png", "a/2.png"))
    (tmp_path / "a" / "two\nlines.png").write_bytes(b"torn")
    result = recallatk("check", tmp_path)
    assert "two\\nlines.png" in result.out
    assert result.code == 3


def test_a_hostile_folder_is_told_in_one_go(tmp_path: Path) -> None:
    put(tmp_path / "data", names=CLEAN)
    cats = tmp_path / "data" / "gallery" / "cat"
    (cats / "again").symlink_to(cats, target_is_directory=True)
    (cats / "self.png").symlink_to("self.png")
    for form in ("NFC", "NFD"):
        photo(20 + len(form)).save(cats / unicodedata.normalize(form, "ü.png"))
    (cats / "empty.png").touch()
    (cats / "notes.jpg").write_text("see the other folder", encoding="utf-8")
    (cats / "README.txt").write_text("hello", encoding="utf-8")
    (cats / os.fsdecode(b"caf\xe9.png")).write_bytes((tmp_path / "data" / CLEAN[0]).read_bytes())
    result = recallatk("check", tmp_path / "data")
    assert result.code == 3
    for words in (
        "error: 1 item is missing or cannot be used (such as gallery/cat/self.png: ",
        "error: 1 file is empty (such as gallery/cat/empty.png: ",
        "error: 1 file cannot be read as an image (such as gallery/cat/notes.jpg: ",
        "warning: 1 query has identical bytes in the gallery "
        "(such as query/cat/1.png (cat) = gallery/cat/caf\\xe9.png (cat))",
        "warning: 1 group of images has one name in two Unicode forms (NFC and NFD)",
        "note: 1 other file left aside (such as 'gallery/cat/README.txt')",
        "note: 1 linked folder not followed: a loop (such as 'gallery/cat/again')",
    ):
        assert words in result.out, result.out
