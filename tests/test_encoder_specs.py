"""Encoders by `scheme:target?options`: how they are read, ONNX files, and the check of any encoder; without torch."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from command_line import recallatk
from recallatk.encoders import ENCODERS, SCHEMES, expand_series, load_encoder
from recallatk.encoders.consistency import check_encoder, check_encoder_on_files
from recallatk.encoders.onnx_file import _external_files
from recallatk.encoders.request import PIXEL_OPTIONS, Request, natural_order, split_options
from recallatk.encoders.transforms import PixelSteps, override
from recallatk.types import ChoiceError, RecallatkError

PROJECT = Path(__file__).parents[1]
ASSETS = resources.files("recallatk") / "assets"
LITE0 = str(ASSETS / "lite0_fp16.onnx")


@pytest.fixture(scope="module")
def photos():
    files = sorted((file.name, file) for label in (ASSETS / "photos").iterdir() for file in label.iterdir())
    return [Image.open(str(file)).convert("RGB") for _, file in files[::20]]


# --- the tables


def test_every_extra_of_a_scheme_exists():
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {entry.extra for entry in SCHEMES.values()} <= set(extras)


def test_every_scheme_and_option_is_described():
    page = (PROJECT / "docs" / "encoders.md").read_text("utf-8")
    options = {option for entry in SCHEMES.values() for option in entry.options}
    missing = [word for word in (*SCHEMES, *options, *PIXEL_OPTIONS) if f"`{word}`" not in page]
    assert not missing


def test_the_command_lists_every_scheme_with_its_extra():
    table = recallatk("encoders").out
    for name, entry in SCHEMES.items():
        assert re.search(rf"^{re.escape(name)}:{re.escape(entry.target)} +{entry.extra} +", table, re.MULTILINE)


def test_no_scheme_is_imported_before_it_is_used():
    code = "import sys, recallatk.encoders; print([m for m in sys.modules if m.startswith('recallatk.encoders.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['recallatk.encoders.request']"


@pytest.mark.parametrize(
    ("spec", "module", "extra"),
    [
        ("timm:resnet18", "torch", "timm"),
        ("open_clip:RN50/openai", "torch", "open-clip"),
        ("hf:facebook/dinov2-small", "torch", "hf"),
        ("torchvision:resnet18", "torch", "torchvision"),
        ("torchscript:model.pt", "torch", "torch"),
        ("onnx:model.onnx", "onnxruntime", "onnx"),
    ],
)
def test_without_the_library_the_pip_command_is_named(spec, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RecallatkError, match=rf"encoder {spec} needs {module}: pip install 'recallatk\[{extra}\]'"):
        load_encoder(spec)


# --- how a name is read


def test_options_stand_behind_the_last_question_mark_and_a_pattern_keeps_its_own():
    assert split_options("a/b.pt?arch=timm:resnet18&mean=0.5,0.5,0.5") == (
        "a/b.pt",
        {"arch": "timm:resnet18", "mean": "0.5,0.5,0.5"},
    )
    assert split_options("epoch_?.pt?arch=timm:x")[0] == "epoch_?.pt"
    assert split_options("epoch_?.pt") == ("epoch_?.pt", {})
    with pytest.raises(ChoiceError, match="mean is given more than once"):
        split_options("x?mean=1&mean=2")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("timm:", "nothing follows the colon; write timm:NAME"),
        ("onnx:x.onnx?sise=3", "no option 'sise'; did you mean 'size'"),
        ("checkpoint:weights.pt", "say which architecture the weights are for"),
        ("checkpoint:weights.pt?arch=keras:x", "say which architecture"),
        ("checkpoint:nowhere.pt?arch=timm:resnet18", "there is no file nowhere.pt"),
        ("onnx:nowhere.onnx", "there is no file nowhere.onnx"),
        ("resnet50", "or timm:NAME, open_clip:ARCH/PRETRAINED"),
    ],
)
def test_a_wrong_name_is_one_line(spec, said):
    with pytest.raises(RecallatkError, match=said) as caught:
        load_encoder(spec)
    assert "\n" not in str(caught.value)


def test_what_has_no_device_or_dtype_does_not_take_one_in_silence():
    assert load_encoder("hog", device="cpu").name == "hog"
    for choice in ({"device": "cuda"}, {"dtype": "bfloat16"}):
        with pytest.raises(ChoiceError, match="leave out --device and --dtype"):
            load_encoder("hog", **choice)
    with pytest.raises(ChoiceError, match="no dtype 'int8'; choose one of float32"):
        load_encoder("hog", dtype="int8")
    with pytest.raises(ChoiceError, match="the file fixes what it computes in"):
        load_encoder(f"onnx:{LITE0}", dtype="float16")


def test_numbers_in_names_are_sorted_as_numbers(tmp_path):
    names = ["e1-s20.pt", "e1-s3.pt", "e10-s1.pt", "e2-s1.pt", "last.pt"]
    assert sorted(names, key=natural_order) == ["e1-s3.pt", "e1-s20.pt", "e2-s1.pt", "e10-s1.pt", "last.pt"]
    for name in names:
        (tmp_path / name).touch()
    specs = expand_series(f"checkpoint:{tmp_path}/e?-s*.pt?arch=timm:x")
    assert [Path(spec.split("?")[0]).name for spec in specs] == ["e1-s3.pt", "e1-s20.pt", "e2-s1.pt"]
    (tmp_path / "[best].pt").touch()
    assert expand_series(f"checkpoint:{tmp_path}/[best].pt?arch=timm:x") == (
        f"checkpoint:{tmp_path}/[best].pt?arch=timm:x",
    )


# --- the steps


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": "22x"}, "size=22x is no|size= is no"),
        ({"size": "0"}, "no whole number of pixels"),
        ({"resize": "100"}, "less than the size"),
        ({"interpolation": "cubic"}, "choose one of nearest"),
        ({"mean": "0.5,0.5"}, "one number or three"),
        ({"std": "0"}, "above zero"),
        ({"std": "nan"}, "one number or three"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options, said):
    with pytest.raises(ChoiceError, match=said):
        override(PixelSteps(), Request("x:y", "y", options))


def test_steps_are_resize_crop_and_normalisation():
    image = Image.new("RGB", (40, 80), (255, 0, 51))
    pixels = PixelSteps((20, 10), 30, "bicubic", (0.0, 0.5, 0.2), (1.0, 0.5, 0.1))(image)
    assert pixels.shape == (3, 20, 10)
    assert pixels[:, 3, 3] == pytest.approx([1, -1, 0], abs=1e-6)
    left = Image.new("RGB", (80, 40))
    left.paste((255, 255, 255), (0, 0, 40, 40))
    (channel, _, _) = PixelSteps((40, 40), 40, "nearest", (0.0,) * 3, (1.0,) * 3)(left)
    assert channel[0].tolist() == [1.0] * 20 + [0.0] * 20, "the crop is the middle"


# --- ONNX files


def test_the_packaged_model_by_its_path_gives_its_rows(photos):
    encoder = load_encoder(f"onnx:{LITE0}?resize=squash&interpolation=bicubic")
    builtin = load_encoder("lite0")
    assert np.array_equal(encoder(photos), builtin(photos))
    assert encoder.fingerprint == builtin.fingerprint
    assert encoder.preprocessing == {
        "size": [224, 224],
        "resize": "squash",
        "crop": None,
        "interpolation": "bicubic",
        "antialias": True,
        "mode": "RGB",
        "range": [0, 255],
        "mean": None,
        "std": None,
        "architecture": "onnx",
        "output": "embedding",
    }
    assert any("resize, interpolation as given" in note for note in encoder.notes)
    assert np.array_equal(encoder.encode_prepared([encoder.prepare(p) for p in photos]), encoder(photos))


def test_an_onnx_file_that_says_nothing_of_its_preprocessing_gets_the_usual_one_and_says_so(photos):
    encoder = load_encoder(f"onnx:{LITE0}")
    assert (encoder.preprocessing["resize"], encoder.preprocessing["crop"]) == (256, "center")
    assert any("the usual one for ImageNet is used" in note for note in encoder.notes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("size=96", "the file takes 224x224"),
        ("mean=0.5", "pixels in 0..255 as they are"),
        ("output=logits", "embedding"),
    ],
)
def test_an_option_that_the_file_rules_out_is_refused(options, said):
    with pytest.raises(ChoiceError, match=said):
        load_encoder(f"onnx:{LITE0}?{options}")


def test_a_file_that_is_no_model_is_one_line(tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"not a model")
    with pytest.raises(RecallatkError, match="cannot be loaded") as caught:
        load_encoder(f"onnx:{tmp_path / 'x.onnx'}")
    assert "\n" not in str(caught.value)


def write_model(path: Path, *, channels_last: bool, batch: str | int = "n", external: bool = False) -> None:
    """A model that averages each channel over the image, times a weight."""
    onnx = pytest.importorskip("onnx", reason="models are written with it; reading them needs only onnxruntime")
    shape = [batch, 8, 8, 3] if channels_last else [batch, 3, 8, 8]
    axes = [1, 2] if channels_last else [2, 3]
    weight = onnx.numpy_helper.from_array(np.array([1, 2, 3], np.float32), "weight")
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("ReduceMean", ["image"], ["means"], axes=axes, keepdims=0),
            onnx.helper.make_node("Mul", ["means", "weight"], ["embedding"]),
        ],
        "means",
        [onnx.helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, shape)],
        [
            onnx.helper.make_tensor_value_info("embedding", onnx.TensorProto.FLOAT, [batch, 3]),
            onnx.helper.make_tensor_value_info("means", onnx.TensorProto.FLOAT, [batch, 3]),
        ],
        [weight],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("batch", ["n", 1])
def test_a_model_of_floats_gets_normalised_pixels_in_its_layout(tmp_path, photos, channels_last, batch):
    write_model(tmp_path / "m.onnx", channels_last=channels_last, batch=batch)
    encoder = load_encoder(f"onnx:{tmp_path}/m.onnx?output=embedding&mean=0.1,0.2,0.3&std=0.5")
    steps = PixelSteps((8, 8), 9, "bilinear", (0.1, 0.2, 0.3), (0.5,) * 3)
    expected = [steps(photo).mean(axis=(1, 2)) * [1, 2, 3] for photo in photos]
    assert encoder(photos) == pytest.approx(np.array(expected), abs=1e-5)
    with pytest.raises(ChoiceError, match="say which output is the embedding, output=NAME: embedding, means"):
        load_encoder(f"onnx:{tmp_path}/m.onnx")


def test_the_files_that_hold_weights_are_read_from_the_bytes_of_a_model():
    def entry(path: str) -> bytes:
        text = path.encode()
        length = bytes([len(text)]) if len(text) < 128 else bytes([len(text) & 127 | 128, len(text) >> 7])
        return b"\x0a\x08location\x12" + length + text

    names = {"weights.bin", "sub/more.bin", "x" * 300}
    assert _external_files(b"\x08\x01".join(map(entry, names)) + b"location") == names
    assert _external_files(Path(LITE0).read_bytes()) == set()


def test_weights_in_a_file_beside_the_model_count_for_the_fingerprint(tmp_path):
    write_model(tmp_path / "m.onnx", channels_last=False, external=True)
    spec = f"onnx:{tmp_path}/m.onnx?output=embedding"
    first = load_encoder(spec).fingerprint
    shutil.copy(LITE0, tmp_path / "unrelated.onnx")
    assert load_encoder(spec).fingerprint == first
    weights = bytearray((tmp_path / "weights.bin").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "weights.bin").write_bytes(weights)
    assert load_encoder(spec).fingerprint != first


# --- is it the same row every time?


def thumbnails(images):
    return np.stack([np.asarray(image.resize((4, 4)), dtype=np.float64).ravel() for image in images])


def centred(images):
    return thumbnails(images) - thumbnails(images).mean(axis=0)


class Dice:
    def __init__(self):
        self.generator = np.random.default_rng(1)

    def __call__(self, images):
        return thumbnails(images) + self.generator.normal(size=(len(images), 48))


def by_brightness(images):
    rows = thumbnails(images)
    return rows[np.argsort(rows.sum(axis=1))]


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        (centred, "depends on the other images of its batch"),
        (Dice(), "not deterministic"),
        (by_brightness, "depends on the order of the batch"),
    ],
)
def test_the_check_says_what_is_wrong(encoder, said, photos):
    (warning,) = check_encoder(encoder, photos).warnings()
    assert said in warning


@pytest.mark.parametrize("name", ENCODERS)
def test_the_built_in_encoders_pass_the_check_by_value(name, photos):
    found = check_encoder(load_encoder(name), photos)
    assert found.warnings() == []
    assert found.lines() == [
        f"{len(photos)} images encoded in a batch and {way}: identical" for way in ("twice", "shuffled", "alone")
    ]


def test_the_check_is_told_apart_from_rounding(photos):
    def last_digit(images):
        return thumbnails(images) * (1 + 1e-7 * (len(images) == 1))

    found = check_encoder(last_digit, photos, names=[f"photo {row}" for row in range(len(photos))])
    assert found.warnings() == []
    assert re.search(r"and alone: differ by 1\.0e-07 of the length \(photo \d\)", found.lines()[2])


def test_the_check_takes_the_files_that_can_be_read_and_needs_two(tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"broken")
    paths = [tmp_path / "broken.jpg", *(Path(str(ASSETS / "photos" / "hammer" / f"hammer{n}.webp")) for n in (1, 2))]
    assert check_encoder_on_files(thumbnails, paths, ["broken", "one", "two"]).images == 2
    with pytest.raises(RecallatkError, match="at least two images"):
        check_encoder_on_files(thumbnails, paths[:2], ["broken", "one"])
    with pytest.raises(RecallatkError, match=r"shape \(4,\) for a batch of 2 images"):
        check_encoder_on_files(lambda _: np.zeros(4), paths, ["broken", "one", "two"])


def test_the_command_notes_the_differences_and_warns_in_the_report(tmp_path, monkeypatch):
    (tmp_path / "own_centred.py").write_text(
        "import numpy as np\n"
        "def encode(images):\n"
        "    rows = np.stack([np.asarray(i.resize((4, 4)), dtype=float).ravel() for i in images])\n"
        "    return rows - rows.mean(axis=0) + 1\n"
    )
    monkeypatch.chdir(tmp_path)
    photos = str(ASSETS / "photos")
    done = recallatk("eval", photos, "--encoder", "own_centred:encode", "--check-encoder", "-k", "1")
    assert "- a row depends on the other images of its batch" in done.out
    assert re.search(r"8 images encoded in a batch and alone: differ by \d", done.err)
    fine = recallatk("eval", "--check-encoder", photos, "--encoder", "pixels", "-k", "1")
    assert "depends on" not in fine.out
    assert "and twice: identical" in fine.err
