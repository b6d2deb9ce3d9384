"""Encoders in torch give what the model's own library gives, by value, on real photos; and say what they did.

Weights are random and local: nothing is fetched.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from importlib import resources

import numpy as np
import pytest
from PIL import Image

from recallatk.encoders import expand_series, load_encoder
from recallatk.encoders.consistency import check_encoder
from recallatk.encoders.transforms import PixelSteps
from recallatk.encoding import encode_all
from recallatk.types import ChoiceError, RecallatkError, TextEncoder

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore"),  # of the libraries: what they say of themselves is not tested here
]
os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub's library is imported
torch = pytest.importorskip("torch", reason="make test-encoders installs it")
PHOTOS = resources.files("recallatk") / "assets" / "photos"
_OPERATORS = []  # a library of operators lives as long as its object


def library(name: str):
    """The module, or a skip with the reason."""
    if name != "transformers":
        torchvision_here()
    return pytest.importorskip(name, reason="make test-encoders installs it")


def torchvision_here() -> None:
    """Declare two operators where a torchvision for CUDA meets a torch without it; no encoder uses them."""
    pytest.importorskip("torchvision", reason="make test-encoders installs it", exc_type=(ImportError, RuntimeError))


@pytest.fixture(scope="module", autouse=True)
def operators():
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        declared = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            declared.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _OPERATORS.append(declared)
    except ImportError:
        pass


@pytest.fixture(scope="module")
def photos():
    files = sorted((file.name, file) for label in PHOTOS.iterdir() for file in label.iterdir())
    return [Image.open(str(file)).convert("RGB") for _, file in files[::20]]


def save(state, path):
    torch.save(state, path)
    return str(path)


# --- timm


@pytest.fixture(scope="module")
def timm_weights(tmp_path_factory):
    """A small network with a head, its weights on disk."""
    timm = library("timm")
    torch.manual_seed(5)
    model = timm.create_model("mobilenetv3_small_050", num_classes=7)
    for module in model.modules():  # statistics as after training, not those of a new model
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return save(model.state_dict(), tmp_path_factory.mktemp("timm") / "weights.pth"), model.eval()


NAME = "mobilenetv3_small_050"


def test_timm_gives_what_its_own_pipeline_gives(timm_weights, photos):
    timm = library("timm")
    path, _ = timm_weights
    encoder = load_encoder(f"timm:{NAME}?weights={path}")
    model = timm.create_model(NAME, num_classes=0)
    state = torch.load(path, weights_only=True)
    model.load_state_dict({k: v for k, v in state.items() if not k.startswith("classifier.")})
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model), is_training=False)
    with torch.inference_mode():
        expected = model.eval()(torch.stack([transform(photo) for photo in photos])).numpy()
    assert np.array_equal(encoder(photos), expected)
    assert encoder(photos).dtype == np.float32
    assert encoder.preprocessing == {
        "size": [224, 224],
        "resize": 256,
        "crop": "center",
        "interpolation": "bicubic",
        "antialias": True,
        "mode": "RGB",
        "range": [0, 1],
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
        "architecture": f"timm {NAME}",
        "dtype": "float32",
    }
    assert any("2 keys of the head left out (classifier.bias, classifier.weight)" in note for note in encoder.notes)
    assert any(f"torch {torch.__version__} on {encoder.device}, float32" in note for note in encoder.notes)


def test_one_weight_or_its_name_changes_the_fingerprint_and_nothing_else_does(timm_weights, tmp_path):
    path, _ = timm_weights
    state = torch.load(path, weights_only=True)
    first = load_encoder(f"timm:{NAME}?weights={path}").fingerprint
    backwards = save(dict(reversed(state.items())), tmp_path / "backwards.pth")
    assert load_encoder(f"timm:{NAME}?weights={backwards}").fingerprint == first
    safetensors = pytest.importorskip("safetensors.torch")
    safetensors.save_file(state, tmp_path / "weights.safetensors")
    assert load_encoder(f"timm:{NAME}?weights={tmp_path}/weights.safetensors").fingerprint == first
    state["blocks.0.0.bn1.running_mean"][0] += 1e-3
    changed = save(state, tmp_path / "changed.pth")
    assert load_encoder(f"timm:{NAME}?weights={changed}").fingerprint != first


def test_options_replace_parts_of_the_preprocessing_and_are_noted(timm_weights, photos):
    path, _ = timm_weights
    plain = load_encoder(f"timm:{NAME}?weights={path}")
    same = load_encoder(f"timm:{NAME}?weights={path}&interpolation=bicubic")
    assert np.array_equal(plain(photos), same(photos)), "our own steps are those of the library"
    other = load_encoder(f"timm:{NAME}?weights={path}&size=160&interpolation=bilinear&mean=0.5")
    assert (other.preprocessing["size"], other.preprocessing["resize"]) == ([160, 160], 183)
    assert other.preprocessing["interpolation"] == "bilinear"
    assert other.preprocessing["mean"] == [0.5, 0.5, 0.5]
    assert any("size, interpolation, mean replaced" in note for note in other.notes)
    assert other.fingerprint == plain.fingerprint
    assert not np.array_equal(plain(photos), other(photos))


def test_a_transformer_of_fixed_size_is_made_for_the_size_that_is_asked_for(photos):
    library("timm")
    encoder = load_encoder("timm:vit_tiny_patch16_224?weights=none&size=96")
    assert encoder(photos[:2]).shape == (2, 192)
    assert encoder.preprocessing["size"] == [96, 96]


def test_random_weights_are_said_and_the_same_every_time():
    library("timm")
    before = torch.random.get_rng_state()
    first, second = (load_encoder("timm:resnet18?weights=none") for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert any("untrained" in note for note in first.notes)
    assert torch.equal(before, torch.random.get_rng_state())


def test_weights_that_cannot_be_fetched_say_what_to_do():
    library("timm")
    with pytest.raises(RecallatkError, match=r"without a network, .*weights=FILE, or point HF_HOME") as caught:
        load_encoder("timm:resnet18")
    assert "\n" not in str(caught.value)


# --- every library's own pipeline


def test_torchvision_gives_what_its_own_pipeline_gives(tmp_path, photos):
    library("torchvision")
    from torchvision import models, transforms

    torch.manual_seed(6)
    model = models.mobilenet_v3_small(weights=None)
    path = save({"model": model.state_dict(), "epoch": 3}, tmp_path / "weights.pth")
    encoder = load_encoder(f"torchvision:mobilenet_v3_small?weights={path}")
    model.classifier[3] = torch.nn.Identity()
    own = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    with torch.inference_mode():
        expected = model.eval()(torch.stack([own(photo) for photo in photos])).numpy()
    assert np.array_equal(encoder(photos), expected)
    assert any("entry 'model'" in note for note in encoder.notes)
    assert any("says nothing of the preprocessing" in note for note in encoder.notes)


@pytest.mark.parametrize("shape", [(320, 240), (240, 320), (500, 333), (224, 224), (97, 801)])
def test_our_steps_are_the_presets_of_torchvision(shape):
    library("torchvision")
    from torchvision.models import ResNet18_Weights

    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8))
    expected = ResNet18_Weights.IMAGENET1K_V1.transforms()(image)
    assert np.array_equal(PixelSteps()(image), expected.numpy())


@pytest.mark.parametrize(
    ("name", "columns"), [("squeezenet1_1", 512), ("vit_b_32", 768), ("densenet121", 1024), ("convnext_tiny", 768)]
)
def test_the_last_layer_of_any_kind_is_taken_off(name, columns, photos):
    library("torchvision")
    assert load_encoder(f"torchvision:{name}?weights=none")(photos[:1]).shape == (1, columns)


def test_open_clip_gives_what_its_own_pipeline_gives(tmp_path, photos):
    open_clip = library("open_clip")
    torch.manual_seed(7)
    model, _, transform = open_clip.create_model_and_transforms("RN50")
    path = save(model.state_dict(), tmp_path / "weights.pt")
    encoder = load_encoder(f"open_clip:RN50/{path}")
    some = photos[:3]
    with torch.inference_mode():
        expected = model.eval().encode_image(torch.stack([transform(photo) for photo in some])).numpy()
    assert np.array_equal(encoder(some), expected)
    assert encoder.preprocessing["mean"] == [0.48145466, 0.4578275, 0.40821073]
    assert (encoder.preprocessing["resize"], encoder.preprocessing["pooling"]) == (224, "encode_image")


def test_a_folder_of_open_clip_without_its_weights_is_an_error_not_a_random_model(tmp_path, photos):
    open_clip = library("open_clip")
    config = {"model_cfg": open_clip.get_model_config("RN50"), "preprocess_cfg": {"resize_mode": "squash"}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(RecallatkError, match="the model could not be made"):
        load_encoder(f"open_clip:local-dir:{tmp_path}")
    model = open_clip.create_model("RN50")
    torch.save(model.state_dict(), tmp_path / "open_clip_pytorch_model.bin")
    encoder = load_encoder(f"open_clip:local-dir:{tmp_path}")
    assert encoder.preprocessing["resize"] == "squash"
    assert str(tmp_path) not in str(encoder.preprocessing)
    with torch.inference_mode():
        _, transform = open_clip.create_model_from_pretrained(f"local-dir:{tmp_path}")
        expected = model.eval().encode_image(transform(photos[0])[None]).numpy()
    assert np.array_equal(encoder(photos[:1]), expected)


TEXTS = ["a red hammer", "two pairs of scissors, on a table", "a red hammer"]


def test_open_clip_encodes_texts_as_its_own_pipeline_does(tmp_path, photos):
    open_clip = library("open_clip")
    torch.manual_seed(7)
    model = open_clip.create_model("RN50")
    path = save(model.state_dict(), tmp_path / "weights.pt")
    encoder = load_encoder(f"open_clip:RN50/{path}")
    with torch.inference_mode():
        expected = model.eval().encode_text(open_clip.get_tokenizer("RN50")(TEXTS)).numpy()
    assert isinstance(encoder, TextEncoder)
    assert np.array_equal(encoder.encode_texts(TEXTS), expected)
    assert encoder.encode_texts(TEXTS[:1]).shape[1] == encoder(photos[:1]).shape[1]
    assert encoder.text_preprocessing["tokenizer"] == "SimpleTokenizer"
    assert encoder.text_preprocessing["context_length"] == 77
    assert "tokenizer" not in str(encoder.preprocessing), "a run of images alone is what it was"
    series = load_encoder(f"checkpoint:{path}?arch=open_clip:RN50")
    assert np.array_equal(series.encode_texts(TEXTS), expected)


def tiny_tokenizer(folder):
    """Some words, each a token."""
    transformers = library("transformers")
    tokenizers = library("tokenizers")
    words = ["<pad>", "<s>", "</s>", "a", "red", "hammer", "two", "pairs", "of", "scissors", "on", "table", "<unk>"]
    model = tokenizers.models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>")
    fast = tokenizers.Tokenizer(model)
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(("kind", "padding"), [("clip", "longest"), ("siglip", "max_length")])
def test_transformers_encodes_texts_as_its_own_pipeline_does(kind, padding, tmp_path, photos):
    model, _ = tiny(kind, tmp_path)
    tokenizer = tiny_tokenizer(tmp_path)
    encoder = load_encoder(f"hf:{tmp_path}")
    length = model.config.text_config.max_position_embeddings
    with torch.inference_mode():
        tokens = tokenizer(TEXTS, padding=padding, truncation=True, max_length=length, return_tensors="pt")
        output = model.eval().get_text_features(**tokens)
    expected = output if isinstance(output, torch.Tensor) else output.pooler_output
    rows = encoder.encode_texts(TEXTS)
    assert np.array_equal(rows, expected.numpy())
    assert rows[0] == pytest.approx(encoder.encode_texts(TEXTS[:1])[0], abs=1e-5), "alone as in a batch"
    assert (encoder.text_preprocessing["padding"], encoder.text_preprocessing["context_length"]) == (padding, length)
    assert rows.shape[1] == encoder(photos[:1]).shape[1]


def test_a_tokenizer_that_is_not_there_is_missed_only_where_there_are_texts(tmp_path, photos):
    tiny("clip", tmp_path)
    encoder = load_encoder(f"hf:{tmp_path}")
    assert encoder(photos[:1]).shape == (1, 16)
    with pytest.raises(RecallatkError, match="its tokenizer could not be loaded") as caught:
        encoder.encode_texts(TEXTS)
    assert "\n" not in str(caught.value)


def test_a_model_of_images_alone_takes_no_texts(tmp_path):
    tiny("dinov2", tmp_path)
    assert not isinstance(load_encoder(f"hf:{tmp_path}"), TextEncoder)


def tiny(kind: str, folder):
    """A small random model of transformers in a folder, with its processor."""
    transformers = library("transformers")
    torch.manual_seed(8)
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "dinov2":
        config = transformers.Dinov2Config(**vision, image_size=56, patch_size=14)
        model, processor = transformers.Dinov2Model(config), transformers.BitImageProcessor
    elif kind == "vit":
        config = transformers.ViTConfig(**vision, image_size=56, patch_size=14)
        model, processor = transformers.ViTModel(config, add_pooling_layer=False), transformers.BitImageProcessor
    elif kind == "clip tower":
        config = transformers.CLIPVisionConfig(**vision, image_size=56, patch_size=14, projection_dim=16)
        model, processor = transformers.CLIPVisionModelWithProjection(config), transformers.CLIPImageProcessor
    else:
        text = {**vision, "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}
        vision |= {"image_size": 56, "patch_size": 14}
        name = {"clip": "CLIP", "siglip": "Siglip"}[kind]
        parts = {"text_config": text, "vision_config": vision} | ({"projection_dim": 16} if kind == "clip" else {})
        model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**parts))
        processor = getattr(transformers, f"{name}ImageProcessor")
    model.save_pretrained(folder)
    side = {"height": 56, "width": 56}
    crop = {} if kind == "siglip" else {"crop_size": side}
    processor(size=side if kind == "siglip" else {"shortest_edge": 64}, **crop).save_pretrained(folder)
    return type(model).from_pretrained(folder), transformers.AutoImageProcessor.from_pretrained(folder)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        ("dinov2", "pooler"),
        ("clip", "image_features"),
        ("siglip", "image_features"),
        ("vit", "cls"),
        ("clip tower", "image_features"),
    ],
)
def test_transformers_gives_what_its_own_pipeline_gives(kind, pooling, tmp_path, photos):
    model, processor = tiny(kind, tmp_path)
    encoder = load_encoder(f"hf:{tmp_path}")
    with torch.inference_mode():
        inputs = processor(images=photos, return_tensors="pt")
        if pooling == "image_features":
            if kind == "clip tower":
                expected = model.eval()(**inputs).image_embeds
            else:
                output = model.eval().get_image_features(**inputs)
                expected = output if isinstance(output, torch.Tensor) else output.pooler_output
        else:
            output = model.eval()(**inputs)
            expected = output.pooler_output if pooling == "pooler" else output.last_hidden_state[:, 0]
    assert np.array_equal(encoder(photos), expected.numpy())
    assert encoder.preprocessing["pooling"] == pooling
    assert f"pooling: {pooling}" in " ".join(encoder.notes)
    assert json.loads(json.dumps(encoder.preprocessing)) == encoder.preprocessing
    assert encoder.preprocessing["size"] == [56, 56]
    assert encoder.preprocessing["processor"]["backend"] in ("pil", "torchvision")


def test_the_pooling_of_transformers_is_a_choice_that_is_refused_where_it_would_be_random(tmp_path, photos):
    tiny("vit", tmp_path)
    mean, token = (load_encoder(f"hf:{tmp_path}?pooling={pooling}") for pooling in ("mean", "cls"))
    assert not np.allclose(mean(photos), token(photos))
    assert mean.preprocessing != token.preprocessing
    with pytest.raises(ChoiceError, match=r"pooling=pooler \(its pooler is untrained\): this model has cls, mean"):
        load_encoder(f"hf:{tmp_path}?pooling=pooler")


def test_a_model_that_hides_patches_at_random_is_refused(tmp_path):
    transformers = library("transformers")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.ViTMAEModel(transformers.ViTMAEConfig(**sizes, image_size=32)).save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    with pytest.raises(RecallatkError, match=r"ViTMAEModel hides 75% of the patches at random"):
        load_encoder(f"hf:{tmp_path}")


def test_weights_that_a_repository_lacks_are_an_error(tmp_path):
    tiny("dinov2", tmp_path)
    safetensors = pytest.importorskip("safetensors.torch")
    state = safetensors.load_file(tmp_path / "model.safetensors")
    lost = state.pop(next(name for name in state if "layer.1" in name and name.endswith("weight")))
    assert lost is not None
    safetensors.save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(RecallatkError, match=r"1 weight of the model not in the repository \(.*layer\.1"):
        load_encoder(f"hf:{tmp_path}")


# --- checkpoints and TorchScript


def test_a_checkpoint_is_its_architecture_with_its_weights(timm_weights, tmp_path, photos):
    path, _ = timm_weights
    state = torch.load(path, weights_only=True)
    wrapped = {"state_dict": {f"module.backbone.{key}": value for key, value in state.items()}, "epoch": 4}
    wrapped["state_dict"]["module.loss.proxies"] = torch.zeros(3, 4)
    file = save(wrapped, tmp_path / "epoch_4.ckpt")
    encoder = load_encoder(f"checkpoint:{file}?arch=timm:{NAME}")
    plain = load_encoder(f"timm:{NAME}?weights={path}")
    assert np.array_equal(encoder(photos), plain(photos))
    assert (encoder.fingerprint, encoder.preprocessing) == (plain.fingerprint, plain.preprocessing)
    said = " ".join(encoder.notes)
    assert "entry 'state_dict'" in said
    assert "'module.backbone.'" in said
    assert "1 key beside the model left out (module.loss.proxies)" in said


def test_a_pattern_is_a_series_in_natural_order(tmp_path):
    for number in (10, 9, 2):
        (tmp_path / f"epoch_{number}.pt").touch()
    specs = expand_series(f"checkpoint:{tmp_path}/epoch_*.pt?arch=timm:{NAME}")
    assert [spec.rpartition("/")[2] for spec in specs] == [f"epoch_{n}.pt?arch=timm:{NAME}" for n in (2, 9, 10)]
    with pytest.raises(RecallatkError, match="no file matches"):
        expand_series(f"checkpoint:{tmp_path}/step_*.pt?arch=timm:{NAME}")


def test_weights_that_do_not_fit_are_named(timm_weights, tmp_path):
    path, _ = timm_weights
    state = torch.load(path, weights_only=True)
    with pytest.raises(RecallatkError, match=r"missing \(.*unexpected \(.*name the architecture"):
        load_encoder(f"checkpoint:{path}?arch=timm:resnet18")
    reshaped = save(state | {"conv_stem.weight": torch.zeros(16, 1, 3, 3)}, tmp_path / "grey.pth")
    with pytest.raises(RecallatkError, match=r"conv_stem.weight is \(16, 1, 3, 3\) in the file and \(16, 3, 3, 3\)"):
        load_encoder(f"checkpoint:{reshaped}?arch=timm:{NAME}")
    with pytest.raises(ChoiceError, match="say which architecture"):
        load_encoder(f"checkpoint:{path}")


class Payload:
    def __reduce__(self):
        return (print, ("code in a checkpoint ran",))


def test_a_file_that_would_run_code_is_not_opened(tmp_path, capsys):
    library("timm")
    path = save({"state_dict": Payload()}, tmp_path / "evil.pt")
    with pytest.raises(RecallatkError, match="files that run code are not opened") as caught:
        load_encoder(f"checkpoint:{path}?arch=timm:{NAME}")
    assert "\n" not in str(caught.value)
    assert "ran" not in capsys.readouterr().out


@pytest.fixture
def scripted(tmp_path):
    torch.manual_seed(9)
    layers = (torch.nn.Conv2d(3, 8, 7, stride=7), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())
    module = torch.nn.Sequential(*layers, torch.nn.Dropout(0.5))  # in training mode, as it was forgotten
    path = tmp_path / "model.pt"
    torch.jit.script(module).save(str(path))
    return path, module


def test_torchscript_runs_in_eval_mode_on_pixels_made_as_said(scripted, photos):
    path, module = scripted
    encoder = load_encoder(f"torchscript:{path}?size=64&resize=squash&mean=0.5&std=0.5")
    steps = PixelSteps((64, 64), None, "bilinear", (0.5,) * 3, (0.5,) * 3)
    with torch.inference_mode():
        expected = module.eval()(torch.stack([torch.as_tensor(steps(photo)) for photo in photos])).numpy()
    assert encoder(photos) == pytest.approx(expected, abs=1e-5)
    assert check_encoder(encoder, photos).warnings() == []


def test_a_model_that_does_not_give_rows_is_an_error(tmp_path, photos):
    path = tmp_path / "map.pt"
    torch.jit.script(torch.nn.Conv2d(3, 8, 7)).save(str(path))
    with pytest.raises(RecallatkError, match=r"returns \(1, 8, 218, 218\) for 1 images, not \(n, d\)"):
        load_encoder(f"torchscript:{path}")(photos[:1])


# --- guards


@pytest.mark.parametrize("dtype", ["bfloat16", "autocast-bfloat16", "float16"])
def test_half_precision_is_recorded_and_gives_float32_near_the_full_one(dtype, timm_weights, photos):
    path, _ = timm_weights
    full = load_encoder(f"timm:{NAME}?weights={path}", device="cpu")
    half = load_encoder(f"timm:{NAME}?weights={path}", device="cpu", dtype=dtype)
    rows, expected = half(photos[:3]), full(photos[:3])
    assert rows.dtype == np.float32
    assert not np.array_equal(rows, expected)
    cosine = (rows * expected).sum(1) / np.linalg.norm(rows, axis=1) / np.linalg.norm(expected, axis=1)
    assert (cosine > 0.99).all()
    assert half.preprocessing["dtype"] == dtype
    assert half.fingerprint == full.fingerprint


def test_a_module_put_back_into_training_mode_is_an_error_that_names_the_part(timm_weights, photos):
    path, _ = timm_weights
    encoder = load_encoder(f"timm:{NAME}?weights={path}")
    encoder.model.blocks[0].train()
    with pytest.raises(RecallatkError, match=r"blocks\.0 \(and \d+ more parts\) in training mode.*eval\(\)"):
        encoder(photos)


def test_an_own_module_in_training_mode_is_refused(photos):
    module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.BatchNorm1d(2))
    with pytest.raises(RecallatkError, match="in training mode"):
        encode_all(photos, module)
    with pytest.raises(RecallatkError, match="in training mode"):
        encode_all(photos, module.forward)
    with pytest.raises(TypeError, match="Tensor, not list"):  # past the guard
        encode_all(photos, module.eval())


class Hidden:
    """A model in a closure, whose mode nobody can look up."""

    def __init__(self, module):
        self.run = lambda pixels: module(pixels).detach().numpy()

    def __call__(self, images):
        return self.run(torch.stack([torch.as_tensor(PixelSteps((32, 32), None)(image)) for image in images]))


def test_the_check_finds_batch_norm_in_training_mode(photos):
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 5), torch.nn.BatchNorm2d(4), torch.nn.Flatten())
    found = check_encoder(Hidden(module), photos)
    assert found.twice.share < 1e-5 < 0.01 < found.alone.share
    assert "depends on the other images of its batch" in found.warnings()[0]
    assert check_encoder(Hidden(module.eval()), photos).warnings() == []


def test_the_check_finds_dropout(photos):
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5))
    assert "not deterministic" in check_encoder(Hidden(module), photos).warnings()[0]


def test_a_device_that_is_not_there_is_one_line():
    library("timm")
    for device in ("cuda:77", "xpu"):
        with pytest.raises(RecallatkError, match="cannot be used here") as caught:
            load_encoder("timm:resnet18?weights=none", device=device)
        assert "\n" not in str(caught.value)
    with pytest.raises(ChoiceError, match="no device 'gpu'"):
        load_encoder("timm:resnet18?weights=none", device="gpu")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("timm:resnt18", "did you mean resnet18"),
        ("torchvision:resnet81", "did you mean resnet18"),
        ("torchvision:resnet18?weights=V9", "none of IMAGENET1K_V1"),
        ("open_clip:ViT-B-33/openai", "did you mean ViT-B-32"),
        ("open_clip:ViT-B-32", "say which weights: open_clip:ViT-B-32/TAG with one of openai"),
        ("open_clip:ViT-B-32/opnai", "no weights of ViT-B-32; choose one of openai"),
        ("torchscript:nowhere.pt", "there is no file"),
        ("hf:nobody/nothing", "without a network, name a folder that holds config.json"),
    ],
)
def test_a_wrong_target_is_one_line_that_says_what_to_write(spec, said):
    library({"hf": "transformers", "torchscript": "torch"}.get(spec.partition(":")[0], spec.partition(":")[0]))
    with pytest.raises(RecallatkError, match=said) as caught:
        load_encoder(spec)
    assert "\n" not in str(caught.value)


def test_a_torchvision_that_does_not_fit_is_one_line(monkeypatch, tmp_path):
    library("timm")
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "timm")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(RecallatkError, match=r"cannot be imported .*nms does not exist.*belong together") as caught:
        load_encoder("torchvision:resnet18")
    assert "\n" not in str(caught.value)


def test_float32_is_not_cut_and_the_callers_settings_come_back(timm_weights, photos):
    encoder = load_encoder(f"timm:{NAME}?weights={timm_weights[0]}")
    conv, seen = torch.backends.cudnn.conv, []
    before = conv.fp32_precision
    encoder.model.register_forward_hook(lambda *_: seen.append(conv.fp32_precision))
    encoder(photos[:1])
    assert (seen, conv.fp32_precision) == (["ieee"], before)
