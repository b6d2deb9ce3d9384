"""Flickr30k on a look-alike: Karpathy's list and CLIP_benchmark's give the same two sides."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import recallatk
from lookalikes import write_lines
from recallatk import EmbeddingSet, evaluate_embeddings, load_dataset
from recallatk.types import ChoiceError, ImageSet, RecallatkError

ENCODER = ("--encoder", "two_towers:towers", "--no-cache")
LIKE = ("--layout", "flickr30k", "--counts", "any")
# The scores of four captions with two images; captions 0 and 1 are of image 0.
CAPTIONS = {
    "1007129816.jpg": ["A dog, 0.9 and 0.1, runs .", 'A man says "0.2 and 0.8" .'],
    "1009434119.jpg": ['"Two" boys: 0.6 and 0.5, "three"', "A red ball 0.3 and 0.7"],
}
COLOURS = {"1007129816.jpg": (255, 0, 0), "1009434119.jpg": (0, 255, 0)}


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, colour in COLOURS.items():
        Image.new("RGB", (8, 8), colour).save(folder / name)
    for odd in (".DS_Store", "Thumbs.db", "._1007129816.jpg", "readme.txt"):
        (folder / odd).write_bytes(b"no picture")


def entry(name: str, captions: list[str], split: str = "test") -> dict[str, object]:
    sentences = [{"tokens": raw.split(), "raw": raw, "imgid": 0, "sentid": n} for n, raw in enumerate(captions)]
    return {"sentids": [], "imgid": 0, "sentences": sentences, "split": split, "filename": name}


@pytest.fixture
def karpathy(tmp_path: Path) -> Path:
    root = tmp_path / "flickr30k"
    write_pictures(root / "flickr30k-images")
    images = [entry(name, captions) for name, captions in CAPTIONS.items()]
    images.insert(1, entry("1000092795.jpg", ["Two young guys"], "train"))
    images.append(entry("1000268201.jpg", ["A child"], "val"))
    (root / "dataset_flickr30k.json").write_text(json.dumps({"images": images, "dataset": "flickr30k"}), "utf-8")
    return root


def rows(quoted: bool = True) -> list[str]:
    """As a table is written: quotes where a caption holds a comma or a quote."""

    def cell(text: str) -> str:
        return '"' + text.replace('"', '""') + '"' if quoted and set(text) & set(',"') else text

    return ["image,caption", *(f"{name},{cell(text)}" for name, texts in CAPTIONS.items() for text in texts)]


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    root = tmp_path / "other" / "flickr30k"
    write_pictures(root / "flickr30k_images" / "flickr30k_images")
    write_lines(root / "flickr30k_test_karpathy.txt", rows())
    return root


def test_texts_search_images_and_the_way_back_is_a_view(karpathy: Path) -> None:
    dataset = load_dataset(karpathy, layout="flickr30k", counts="any")
    assert dataset.gallery is not None
    assert (dataset.query.kind, dataset.gallery.kind) == ("text", "image")
    assert dataset.query.elements == tuple(text for texts in CAPTIONS.values() for text in texts)
    assert dataset.gallery.ids == tuple(f"flickr30k-images/{name}" for name in CAPTIONS)
    assert dataset.query.ids[1] == "flickr30k-images/1007129816.jpg#1"
    assert dataset.query.labels == ("1007129816.jpg",) * 2 + ("1009434119.jpg",) * 2
    assert list(dataset.views) == ["text-to-image", "image-to-text"]
    assert dataset.notes == ("dataset_flickr30k.json: 2 images of other splits left aside (train 1, val 1)",)
    back = load_dataset(karpathy, layout="flickr30k", part="image-to-text", counts="any")
    assert (back.query.ids, back.gallery and back.gallery.ids) == (dataset.gallery.ids, dataset.query.ids)
    assert not back.views


@pytest.mark.parametrize("quoted", [True, False])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_list_of_clip_benchmark_is_the_same(listed: Path, karpathy: Path, quoted: bool, ends: str) -> None:
    text = "\ufeff" + ends.join(rows(quoted)) + ends * 2
    (listed / "flickr30k_test_karpathy.txt").write_bytes(text.encode())
    ours, theirs = (load_dataset(place, layout="flickr30k", counts="any") for place in (listed, karpathy))
    assert ours.query.elements == theirs.query.elements, "commas and quotes stay in their captions"
    assert ours.query.labels == theirs.query.labels
    assert ours.gallery is not None
    assert ours.gallery.ids[0] == "flickr30k_images/flickr30k_images/1007129816.jpg"
    assert ("3 captions taken out of the quotes" in "".join(ours.notes)) == quoted


def test_the_folder_above_gives_the_same_ids(karpathy: Path) -> None:
    above, own = (load_dataset(place, layout="flickr30k", counts="any") for place in (karpathy.parent, karpathy))
    assert above.query.ids == own.query.ids


def test_the_list_may_lie_beside_the_pictures(karpathy: Path) -> None:
    (karpathy / "annotations").mkdir()
    (karpathy / "dataset_flickr30k.json").rename(karpathy / "annotations" / "dataset_flickr30k.json")
    dataset = load_dataset(karpathy, layout="flickr30k", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.ids[0] == "flickr30k-images/1007129816.jpg"


def test_both_directions_stand_side_by_side(karpathy: Path, tmp_path: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "-k", "1", "-m", "set_recall@1", "-o", tmp_path / "run")
    assert done.code == 0
    lines = {line.split()[0]: line.split() for line in done.out.splitlines() if line.startswith(("text-", "image-"))}
    assert lines["text-to-image"][1] == "0.500000"
    assert lines["image-to-text"][1] == "0.500000"
    assert "set_recall@1" in done.out.splitlines()[0]
    assert "0.250000" in lines["image-to-text"], "of two captions one"
    assert "[signature]\ntext-to-image: k:1|" in done.out
    assert "published numbers are of other images" in done.err
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["image-to-text", "text-to-image"]
    for direction in ("image-to-text", "text-to-image"):
        record = json.loads((tmp_path / "run" / direction / "record.json").read_text("utf-8"))
        assert record["metrics"]["recall@1"]["value"] == 0.5
        assert record["provenance"]["data"]["read"]["part"] == direction
        assert record["provenance"]["preprocessing"]["text"] == {"tokenizer": "numbers"}
        repeated = recallatk("verify", tmp_path / "run" / direction)
        assert repeated.code == 0, repeated.err
        assert repeated.out.startswith("identical")


def test_one_direction_is_a_report_as_any(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, "--part", "image-to-text", *ENCODER, "-m", "set_recall@1")
    assert done.out.startswith("[evaluation]\nnum queries: 2\nnum gallery: 4\nembedding_dim: 2\n[recall]\n")
    assert done.values()["recall@1"] == 0.5
    assert done.values()["set_recall@1"] == 0.25
    assert "wilson" in done.out


def test_five_captions_are_one_cluster(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, "--part", "text-to-image", *ENCODER, "-k", "1")
    assert "cluster-robust t over 2 labels" in done.out


def test_records_and_several_encoders(karpathy: Path, tmp_path: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "--json", "--quiet")
    assert [record["counts"]["num_queries"] for record in json.loads(done.out)] == [4, 2]
    done = recallatk(
        "eval", karpathy, *LIKE, *ENCODER, "--encoder", "two_towers:TwoTowers", "-k", "1", "-o", tmp_path / "run"
    )
    assert done.out.split()[:3] == ["encoder", "direction", "recall@1"]
    assert (tmp_path / "run" / "two_towers_TwoTowers" / "image-to-text" / "record.json").is_file()


def test_an_encoder_of_images_alone_is_refused_in_one_line_and_the_other_goes_on(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, "--encoder", "color-histogram")
    assert done.code == 3
    told = [line for line in done.err.splitlines() if line.startswith("recallatk: ")]
    assert len(told) == 1
    assert "color-histogram takes images only" in told[0]
    done = recallatk("eval", karpathy, *LIKE, "--encoder", "color-histogram", *ENCODER, "-k", "1")
    assert done.code == 3
    assert "two_towers:towers   text-to-image" in done.out


def test_towers_of_other_widths_are_refused(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, "--encoder", "two_towers:other_width", "--no-cache")
    assert done.code == 3
    assert "2 columns for images and 3 for texts" in done.err


def test_a_gate_holds_in_both_directions(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "-k", "1", "--min", "recall@1=0.6", "--quiet")
    assert done.code == 1


def test_published_numbers_are_of_their_direction(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "--published")
    there, back = done.out.split("[published] text-to-image\n")[1].split("[published] image-to-text\n")
    assert "5,000 can (the official count)" in there
    assert "1,000 can (the official count)" in back
    assert re.search(r"CLIP ViT-B/32 of OpenAI +recall@1 +0.5878 .* 0.500000", there)
    assert re.search(r"CLIP ViT-B/32 of OpenAI +recall@1 +0.7890 .* 0.500000", back)
    assert re.search(r"by MTEB +recall@1 +0.781 ", back)
    done = recallatk("eval", karpathy, *LIKE, "--part", "text-to-image", *ENCODER, "--published")
    assert re.search(r"by MTEB +recall@1 +0.6578 .* 0.500000", done.out)


def test_a_page_has_captions_in_the_place_of_pictures(karpathy: Path, tmp_path: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "-k", "1", "--report", tmp_path / "page.html")
    assert done.code == 0, done.err
    page = (tmp_path / "page-image-to-text.html").read_text("utf-8")
    found = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    texts = {found["items"]["id"][int(item)]: text for item, text in found["texts"].items()}
    assert texts["flickr30k-images/1009434119.jpg#1"] == "A red ball 0.3 and 0.7"
    assert found["notes"] == {}  # which say why a picture is not there
    assert "missing; the page says why" not in page


def test_a_caption_that_changed_since_the_run_is_said_on_its_page(karpathy: Path, tmp_path: Path) -> None:
    assert recallatk("eval", karpathy, *LIKE, *ENCODER, "--save-embeddings", "-o", tmp_path / "run").code == 0
    listed = karpathy / "dataset_flickr30k.json"
    listed.write_text(listed.read_text("utf-8").replace("A red ball", "A blue ball"), "utf-8")
    done = recallatk("report", tmp_path / "run" / "text-to-image", "-o", tmp_path / "page.html")
    assert "1 text has changed since the run" in done.err
    assert "the text has changed since it was evaluated" in (tmp_path / "page.html").read_text("utf-8")


def test_a_caption_that_changed_is_called_a_text(karpathy: Path, tmp_path: Path) -> None:
    assert recallatk("eval", karpathy, *LIKE, *ENCODER, "-o", tmp_path / "then").code == 0
    listed = karpathy / "dataset_flickr30k.json"
    listed.write_text(listed.read_text("utf-8").replace("A red ball", "A blue ball"), "utf-8")
    there = recallatk("verify", tmp_path / "then" / "text-to-image").out
    assert "every image and text encoded again" in there
    assert "1 text (query) has other bytes" in there
    assert "1 text (gallery) has other bytes" in recallatk("verify", tmp_path / "then" / "image-to-text").out
    assert recallatk("eval", karpathy, *LIKE, *ENCODER, "-o", tmp_path / "now").code == 0
    done = recallatk("compare", tmp_path / "then" / "text-to-image", tmp_path / "now" / "text-to-image")
    assert "not comparable: bytes of images and texts: " in done.err


def test_embeddings_of_captions_are_counted_as_texts_once(karpathy: Path, tmp_path: Path) -> None:
    direction = ("--part", "image-to-text")
    assert recallatk("embed", karpathy, *LIKE, *direction, *ENCODER, "-o", tmp_path / "e.npz").code == 0
    sides = ("--query", tmp_path / "e-query.npz", "--gallery", tmp_path / "e-gallery.npz")
    done = recallatk("eval", *sides, *LIKE, *direction, "-k", "1")
    assert done.out.count("where the official count is 5,000") == 1
    assert "4 gallery texts where" in done.out


def test_a_folder_of_directions_says_which_runs_lie_in_it(karpathy: Path, tmp_path: Path) -> None:
    for epoch in ("epoch_1", "epoch_2"):
        assert recallatk("eval", karpathy, *LIKE, *ENCODER, "-o", tmp_path / "all" / epoch).code == 0
    one = tmp_path / "all" / "epoch_1"
    for command in ("verify", "report", "gate"):
        done = recallatk(command, one, *(("--min", "recall@1=0.1") if command == "gate" else ()))
        assert done.code == 3
        assert f"name one of the runs in {one}: image-to-text, text-to-image" in done.err
    done = recallatk("history", tmp_path / "all")
    assert f"lie a folder deeper; name those of one kind, such as {tmp_path / 'all'}/*/image-to-text" in done.err
    there = [tmp_path / "all" / epoch / "text-to-image" for epoch in ("epoch_1", "epoch_2")]
    assert recallatk("history", *there).code == 0


def test_an_error_names_the_direction_it_is_of(karpathy: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "--ignore-same", "camera")
    assert "recallatk: image-to-text: query: ignore_same names the column 'camera'" in done.err


def test_a_look_before_encoding_opens_no_text(karpathy: Path) -> None:
    done = recallatk("check", karpathy, *LIKE)
    assert done.code == 0
    assert "queries with a positive: 4" in done.out


def test_a_sample_is_the_same_in_both_directions(karpathy: Path, tmp_path: Path) -> None:
    done = recallatk("eval", karpathy, *LIKE, *ENCODER, "--limit", "1", "-k", "1", "-o", tmp_path / "run")
    assert done.code == 0, done.err
    assert recallatk("verify", tmp_path / "run" / "image-to-text").out.startswith("identical")


def test_a_copy_of_other_counts_is_refused(karpathy: Path) -> None:
    with pytest.raises(RecallatkError, match=r"both: 4 queries where the official count is 5,000.*--counts any"):
        load_dataset(karpathy, layout="flickr30k")
    with pytest.raises(RecallatkError, match=r"4 gallery texts where the official count is 5,000"):
        load_dataset(karpathy, layout="flickr30k", part="image-to-text")
    with pytest.raises(ChoiceError, match="choose one of: both, text-to-image, image-to-text"):
        load_dataset(karpathy, layout="flickr30k", part="t2i")


def damage(path: Path, change: str, into: str) -> None:
    text = path.read_text("utf-8")
    assert change in text
    path.write_text(text.replace(change, into, 1), "utf-8")


@pytest.mark.parametrize(
    ("change", "into", "said"),
    [
        ('"raw": "A red', '"rav": "A red', r"images\[2\]: its `raw` is None, not a text"),
        ('"sentences"', '"sentence"', r"images\[0\]: it has no list `sentences`"),
        ('"split": "test"', '"split": null', r"images\[0\]: its `split` is None"),
        ('{"images"', '{"pictures"', "there is no list `images` in it"),
        ("1009434119", "1007129816", "the image 1007129816.jpg stands there twice"),
        ('"A red ball 0.3 and 0.7"', '" "', r"caption flickr30k-images/1009434119.jpg#1 is empty"),
        ('"dataset": "flickr30k"}', "", "this is no JSON"),
    ],
)
def test_a_damaged_list_is_named(karpathy: Path, change: str, into: str, said: str) -> None:
    damage(karpathy / "dataset_flickr30k.json", change, into)
    with pytest.raises(RecallatkError, match=said) as caught:
        load_dataset(karpathy, layout="flickr30k", counts="any")
    assert "\n" not in str(caught.value)
    assert "dataset_flickr30k.json" in str(caught.value)


def test_a_damaged_row_is_named(listed: Path) -> None:
    damage(listed / "flickr30k_test_karpathy.txt", "1009434119.jpg,A", "1009434119 A")
    with pytest.raises(RecallatkError, match=r"flickr30k_test_karpathy.txt: line 5: this is no row"):
        load_dataset(listed, layout="flickr30k", counts="any")


def test_missing_pictures_and_lists(karpathy: Path) -> None:
    (karpathy / "flickr30k-images" / "1009434119.jpg").unlink()
    with pytest.raises(RecallatkError, match=r"1009434119.jpg: no such file: of the 2 that the lists name"):
        load_dataset(karpathy, layout="flickr30k", counts="any")
    dataset = load_dataset(karpathy, layout="flickr30k", counts="any", on_error="skip")
    assert len(dataset.skipped) == 1
    (karpathy / "dataset_flickr30k.json").unlink()
    with pytest.raises(RecallatkError, match=r"none of dataset_flickr30k.json, flickr30k_test_k.* in this"):
        load_dataset(karpathy, layout="flickr30k", counts="any")


def test_suffixes_in_capitals_and_blanks_in_names(tmp_path: Path) -> None:
    (tmp_path / "my images").mkdir()
    Image.new("L", (8, 8), 90).save(tmp_path / "my images" / "a b,c.JPG", "JPEG")
    write_lines(tmp_path / "flickr30k_test_karpathy.txt", ["a b,c.JPG,one, two.jpg, three", "a b,c.JPG,four"])
    dataset = load_dataset(tmp_path, layout="flickr30k", counts="any")
    assert dataset.gallery is not None
    assert dataset.gallery.ids == ("my images/a b,c.JPG",)
    assert dataset.query.elements == ("one, two.jpg, three", "four"), "without a header no row is lost"


def test_an_image_without_a_caption_is_excluded_and_equal_captions_are_a_tie(tmp_path: Path, karpathy: Path) -> None:
    images = [entry(name, ["0.9 0.1"]) for name in CAPTIONS] + [entry("3.jpg", [])]
    Image.new("RGB", (8, 8), (255, 0, 0)).save(karpathy / "flickr30k-images" / "3.jpg")  # the bytes of another
    (karpathy / "dataset_flickr30k.json").write_text(json.dumps({"images": images}), "utf-8")
    done = recallatk("eval", karpathy, *LIKE, "--part", "image-to-text", *ENCODER, "-k", "1")
    assert "excluded (no positive): 1" in done.out
    assert done.values()["recall@1"] == 0.5, "two equal captions: each image has one in two"


def test_recall_by_hand() -> None:
    """Of embeddings it is two calls, with the image's id as the label of both sides."""
    texts = EmbeddingSet(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.5], [0.3, 0.7]]), ["0", "0", "1", "1"])
    images = EmbeddingSet(np.eye(2), ["0", "1"])
    assert evaluate_embeddings(texts, images)["recall@1"] == 0.5
    back = evaluate_embeddings(images, texts, metrics=["set_recall@1"])
    assert (back["recall@1"], back["set_recall@1"]) == (0.5, 0.25)


def same_samples(one: ImageSet | None, other: ImageSet | None) -> bool:
    assert one is not None
    assert other is not None
    return (one.elements, one.ids, one.labels) == (other.elements, other.ids, other.labels)


def blip_list() -> list[dict[str, object]]:
    return [{"image": f"flickr30k-images/{name}", "caption": captions} for name, captions in CAPTIONS.items()]


def test_the_lists_of_blip_and_hugging_face_are_the_same(karpathy: Path) -> None:
    theirs = load_dataset(karpathy, layout="flickr30k", counts="any")
    (karpathy / "dataset_flickr30k.json").unlink()
    blip = karpathy / "flickr30k_test.json"
    blip.write_text(json.dumps(blip_list()), "utf-8")
    ours = load_dataset(karpathy, layout="flickr30k", counts="any")
    assert all(same_samples(*sides) for sides in ((ours.query, theirs.query), (ours.gallery, theirs.gallery)))
    blip.unlink()
    table = ["raw,sentids,split,filename,img_id"]
    for number, (name, captions) in enumerate({"1000092795.jpg": ["Two young guys"], **CAPTIONS}.items()):
        cell = json.dumps(captions).replace('"', '""')
        table.append(f'"{cell}","[0, 1]",{"test" if number else "train"},{name},{number}')
    write_lines(karpathy / "flickr_annotations_30k.csv", table)
    ours = load_dataset(karpathy, layout="flickr30k", counts="any")
    assert all(same_samples(*sides) for sides in ((ours.query, theirs.query), (ours.gallery, theirs.gallery)))
    assert ours.notes == ("flickr_annotations_30k.csv: 1 image of other splits left aside (train 1)",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "it is no list"),
        (
            '[{"image": "a.jpg", "caption": "one text"}]',
            r"flickr30k_test.json: \[0\]: its `caption` is no list of texts",
        ),
        ('[{"caption": ["a"]}]', r"flickr30k_test.json: \[0\]: its `image` is None"),
    ],
)
def test_a_list_that_is_something_else_is_named(karpathy: Path, content: str, message: str) -> None:
    (karpathy / "dataset_flickr30k.json").unlink()
    (karpathy / "flickr30k_test.json").write_text(content, "utf-8")
    with pytest.raises(RecallatkError, match=message):
        load_dataset(karpathy, layout="flickr30k", counts="any")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["raw,split", "[],test"], "no column filename"),
        (["raw,split,filename", "no list,test,a.jpg"], "line 2: its `raw` is no JSON list"),
    ],
)
def test_a_table_that_is_something_else_is_named(karpathy: Path, rows: list[str], message: str) -> None:
    (karpathy / "dataset_flickr30k.json").unlink()
    write_lines(karpathy / "flickr_annotations_30k.csv", rows)
    with pytest.raises(RecallatkError, match=message):
        load_dataset(karpathy, layout="flickr30k", counts="any")
