"""The table of encoders, the built-in ones on real photos, and encoders of the user's own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from importlib import resources
from importlib.metadata import metadata

import numpy as np
import pytest
from PIL import Image

from recallatk.encoders import ENCODERS, load_encoder
from recallatk.encoders import onnx as onnx_encoders
from recallatk.images import decode
from recallatk.types import Encoder, RecallatkError

PHOTOS = resources.files("recallatk") / "assets" / "photos"
# recall@1, @5, @10 over the 115 photos that have another one of their label, leave-one-out
HITS = {"lite0": (107, 114, 114), "hog": (61, 85, 91), "color-histogram": (48, 74, 90), "pixels": (51, 85, 92)}


@pytest.fixture(scope="module")
def photos():
    files = sorted((file.parent.name, file.name, file) for label in PHOTOS.iterdir() for file in label.iterdir())
    return [decode(file.read_bytes(), name=name).image for _, name, file in files], [label for label, _, _ in files]


@pytest.fixture(scope="module")
def encoders():
    return {name: load_encoder(name) for name in ENCODERS}


@pytest.fixture(params=list(ENCODERS))
def encoder(request, encoders):
    return encoders[request.param]


def surface(*colour: int) -> Image.Image:
    return Image.new("RGB", (40, 30), colour)


def unit(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ENCODERS)
def test_the_photos_give_the_known_recall_by_plain_counting(name, photos, encoders):
    images, labels = photos
    rows = unit(np.concatenate([encoders[name](images[start : start + 46]) for start in range(0, 138, 46)]))
    hits, evaluated = np.zeros(3, int), 0
    for query, similarity in enumerate(rows @ rows.T):
        order = [other for other in np.argsort(-similarity, kind="stable") if other != query]
        positive = [labels[other] == labels[query] for other in order]
        evaluated += any(positive)
        hits += [any(positive[:k]) for k in (1, 5, 10)]
    assert (len(images), len(set(labels)), evaluated) == (138, 36, 115)
    assert tuple(hits) == HITS[name]


def test_a_row_does_not_depend_on_the_batch_it_came_in(encoder, photos):
    images = photos[0][:11]
    together = encoder(images)
    assert np.array_equal(together, np.concatenate([encoder([image]) for image in images]))
    assert np.array_equal(together[::-1], encoder(images[::-1]))


def test_rows_are_float32_finite_and_never_zero_even_for_even_surfaces(encoder):
    images = [surface(0, 0, 0), surface(255, 255, 255), surface(7, 7, 7), surface(200, 0, 0), Image.new("RGB", (1, 1))]
    rows = encoder(images)
    assert rows.dtype == np.float32
    assert rows.ndim == 2
    assert len(rows) == 5
    assert np.isfinite(rows).all()
    assert (rows != 0).any(axis=1).all()


def test_the_summary_names_the_number_of_columns(encoder):
    columns = encoder([surface(1, 2, 3)]).shape[1]
    assert f"{columns}-d" in ENCODERS[encoder.name].summary


def test_an_encoder_of_the_table_says_who_it_is_in_json_values(encoder):
    assert isinstance(encoder, Encoder)
    assert encoder.name in ENCODERS
    assert isinstance(encoder.fingerprint, str)
    assert encoder.fingerprint
    assert json.loads(json.dumps(encoder.preprocessing)) == encoder.preprocessing
    assert {"size", "mode"} <= set(encoder.preprocessing)


@pytest.mark.parametrize(
    ("given", "said"), [("cat.jpg", "str"), (np.zeros((4, 4, 3)), "ndarray"), (Image.new("L", (4, 4)), "mode L")]
)
def test_what_is_no_rgb_image_is_an_error_that_names_it(encoder, given, said):
    with pytest.raises(RecallatkError, match=rf"{encoder.name} takes PIL images in mode RGB, not .*{said}"):
        encoder([given])


def test_the_order_of_the_channels_matters_to_every_coloured_encoder(encoders):
    image = Image.new("RGB", (64, 64), (250, 20, 20))
    image.paste((20, 150, 20), (0, 32, 64, 64))
    swapped = Image.merge("RGB", image.split()[::-1])
    for name in ("lite0", "color-histogram", "pixels"):
        first, second = unit(encoders[name]([image, swapped]))
        assert first @ second < 0.999, name


# --- the formulas


def test_pixels_are_the_thumbnail_without_its_mean_and_a_constant_of_one_level(encoders):
    image = Image.fromarray(np.random.default_rng(3).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    (row,) = encoders["pixels"]([image]).astype(np.float64)
    values = np.asarray(image, dtype=np.float64).ravel()
    assert row[:-1] / 768 == pytest.approx(values - values.mean())
    assert row[-1] / 768 == 1
    assert np.array_equal(row, np.rint(row))


def test_pixels_ignore_brightness_and_tell_even_colours_but_not_even_greys_apart(encoders):
    dark, bright, red, blue = unit(
        encoders["pixels"]([surface(9, 9, 9), surface(200, 200, 200), surface(200, 0, 0), surface(0, 0, 200)])
    )
    assert dark @ bright == pytest.approx(1)
    assert red @ blue < 0


def test_the_colour_histogram_is_the_root_of_the_share_of_each_bin(encoders):
    image = surface(255, 0, 31)  # bin 7, 0, 0
    image.paste((0, 64, 255), (0, 0, 40, 10))  # a third: bin 0, 2, 7
    (row,) = encoders["color-histogram"]([image])
    assert np.flatnonzero(row).tolist() == [2 * 8 + 7, 7 * 64]
    assert row[[23, 448]] ** 2 == pytest.approx([1 / 3, 2 / 3])
    assert np.linalg.norm(row) == pytest.approx(1)


def stripes(angle: float) -> Image.Image:
    down, right = np.indices((64, 64))
    wave = np.sin((right * np.cos(angle) + down * np.sin(angle)) / 3)
    return Image.fromarray(np.uint8(128 + 100 * wave)).convert("RGB")


@pytest.mark.parametrize(("degrees", "orientation"), [(0, 0), (20, 1), (60, 3), (100, 5), (160, 8), (179.9, 0)])
def test_hog_puts_stripes_into_the_bin_of_their_gradient(encoders, degrees, orientation):
    (row,) = encoders["hog"]([stripes(np.radians(degrees))])
    assert row[:-1].reshape(-1, 9).sum(axis=0).argmax() == orientation


def test_hog_has_no_sign_and_does_not_care_for_contrast_or_brightness(encoders):
    image = stripes(0.5)
    negative, paler = image.point(lambda v: 255 - v), image.point(lambda v: 60 + v // 2)
    first, inverted, weaker, other = unit(encoders["hog"]([image, negative, paler, stripes(2.0)]))
    assert first @ inverted > 0.999
    assert first @ weaker > 0.99
    assert first @ other < 0.7


# --- the packaged model


def test_lite0_carries_the_hash_of_the_file_it_runs(encoders):
    model = resources.files("recallatk").joinpath("assets", "lite0_fp16.onnx").read_bytes()
    assert encoders["lite0"].fingerprint == hashlib.sha256(model).hexdigest()


def test_lite0_takes_bytes_of_rgb_and_runs_on_the_processor(encoders):
    session = encoders["lite0"].session
    assert session.get_inputs()[0].type == "tensor(uint8)"
    assert session.get_inputs()[0].shape[1:] == [224, 224, 3]
    assert session.get_providers() == ["CPUExecutionProvider"]


def test_a_damaged_model_file_is_refused(monkeypatch):
    monkeypatch.setattr(onnx_encoders, "_LITE0_FILE", "images.py")
    with pytest.raises(RecallatkError, match="lite0: its model file is damaged"):
        load_encoder("lite0")


def test_without_onnxruntime_lite0_names_the_pip_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(RecallatkError, match=r"encoder lite0 needs onnxruntime: pip install 'recallatk\[onnx\]'"):
        load_encoder("lite0")


def test_every_extra_of_the_table_exists():
    extras = metadata("recallatk").get_all("Provides-Extra")
    assert {entry.extra for entry in ENCODERS.values()} - {None} <= set(extras)


# --- encoders of the user's own

OWN = """
import numpy as np

def encode(images):
    return np.ones((len(images), 2), dtype=np.float32)

def make(width=3):
    return lambda images: np.ones((len(images), width))

class Model:
    preprocessing = {"size": [8, 8]}
    built = 0
    def __init__(self):
        type(self).built += 1
    def __call__(self, images):
        return np.ones((len(images), 4))

class Named(Model):
    name = "my-backbone"
    fingerprint = "abc"

class Sized:
    def __init__(self, width):
        self.width = width

class box:
    model = Model()

def gives_nothing():
    return None

number = 5
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module in the current directory, which is not on sys.path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "own_encoder.py").write_text(OWN)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith(("own_encoder", "own_package"))]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("attribute", "columns", "name"),
    [
        ("encode", 2, "own_encoder:encode"),
        ("make", 3, "own_encoder:make"),
        ("Model", 4, "own_encoder:Model"),
        ("Named", 4, "my-backbone"),
        ("box.model", 4, "own_encoder:box.model"),
    ],
)
def test_a_function_a_factory_a_class_or_an_object_is_an_encoder(own, attribute, columns, name):
    encoder = load_encoder(f"own_encoder:{attribute}")
    assert encoder(["a", "b"]).shape == (2, columns)
    assert encoder.name == name


def test_what_an_own_encoder_carries_is_passed_on_and_the_object_is_left_alone(own):
    named, plain = load_encoder("own_encoder:Named"), load_encoder("own_encoder:box.model")
    assert (named.fingerprint, named.preprocessing) == ("abc", {"size": [8, 8]})
    assert (plain.fingerprint, plain.preprocessing) == (None, {"size": [8, 8]})
    assert not hasattr(sys.modules["own_encoder"].box.model, "name")


def test_a_factory_is_called_once(own):
    encoder = load_encoder("own_encoder:Model")
    encoder(["a"])
    encoder(["b"])
    assert sys.modules["own_encoder"].Model.built == 2  # one for box, in the module itself


def test_the_current_directory_is_put_on_the_path_only_when_needed(own):
    load_encoder("json:dumps")
    assert str(own) not in sys.path
    load_encoder("own_encoder:encode")
    assert sys.path[0] == str(own)


def test_a_module_inside_a_package_is_found(own):
    (own / "own_package").mkdir()
    (own / "own_package" / "__init__.py").write_text("")
    (own / "own_package" / "inner.py").write_text(OWN)
    assert load_encoder("own_package.inner:encode")(["a"]).shape == (1, 2)
    with pytest.raises(RecallatkError, match=r"no module 'own_package\.outer'"):
        load_encoder("own_package.outer:encode")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("lite", "there is no encoder 'lite'; did you mean 'lite0'.*module:attribute"),
        ("colour-histogram", "did you mean 'color-histogram'"),
        ("resnet50", "choose one of lite0, hog, color-histogram, pixels"),
        ("not_there_at_all:encode", "no module 'not_there_at_all'.*current directory"),
        ("own_encoder:encod", "no 'encod' in .*own_encoder.py; did you mean encode"),
        ("own_encoder:box.other", "no 'other'"),
        ("own_encoder:", "check the name after the colon"),
        ("own_encoder:Sized", r"needs arguments \(width\)"),
        ("own_encoder:number", "gives int, which cannot be called"),
        ("own_encoder:gives_nothing", "gives NoneType, which cannot be called"),
        ("own_encoder.py:encode", "'own_encoder.py' is not a module's name; write it with dots, such as own_encoder"),
        ("models/own.py:encode", r"such as models\.own"),
        (":encode", "is not a module's name"),
    ],
)
def test_a_wrong_name_is_one_line_that_says_what_to_write(own, spec, said):
    with pytest.raises(RecallatkError, match=said) as caught:
        load_encoder(spec)
    assert "\n" not in str(caught.value)


def test_an_import_that_fails_inside_the_users_module_keeps_its_traceback(own):
    (own / "own_encoder_broken.py").write_text("import a_package_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there") as caught:
        load_encoder("own_encoder_broken:encode")
    assert any("own_encoder_broken.py" in str(entry.path) for entry in caught.traceback)


def test_an_error_inside_a_factory_keeps_its_traceback(own):
    (own / "own_encoder_raising.py").write_text("def make():\n    raise KeyError('weights')\n")
    with pytest.raises(KeyError, match="weights"):
        load_encoder("own_encoder_raising:make")


def test_an_encoder_whose_batch_is_optional_fails_with_a_note_on_why_it_was_called(own):
    (own / "own_encoder_optional.py").write_text(
        "def encode(batch=None):\n    return len(batch)\n"
        "class Model:\n    def __init__(self):\n        raise KeyError('weights')\n"
    )
    with pytest.raises(TypeError) as caught:
        load_encoder("own_encoder_optional:encode")
    (note,) = caught.value.__notes__
    assert "called it without arguments because none is required" in note
    assert "needs one required parameter, the batch" in note
    with pytest.raises(KeyError) as caught:
        load_encoder("own_encoder_optional:Model")
    assert not hasattr(caught.value, "__notes__"), "a class is always built first"


def test_listing_the_encoders_imports_no_outside_library():
    code = "import sys, recallatk.encoders; print([m for m in ('onnxruntime', 'PIL') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
