"""`hf:REPO`: vision models of transformers, and its models of images and texts."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from recallatk.encoders.torch_model import (
    TextTower,
    TorchEncoder,
    hash_vocabulary,
    import_library,
    import_torch,
    keys_named,
    wrap_model,
)
from recallatk.encoders.transforms import PixelSteps
from recallatk.types import first_line
from recallatk.wording import counted

if TYPE_CHECKING:
    from recallatk.encoders.request import Request

Pooling: TypeAlias = Literal["image_features", "pooler", "cls", "mean"]
POOLINGS: tuple[str, ...] = get_args(Pooling)
# Of a configuration, what says how the model was saved, not what it computes.
NOT_ARCHITECTURE = {"transformers_version", "dtype", "torch_dtype", "architectures", "id2label", "label2id"}


def load(request: Request) -> TorchEncoder:
    """The model in float32 with the image processor of its repository; REPO may be a folder.

    Raises:
        RecallatkError: transformers is absent, the model or its processor cannot be had, weights are missing, it takes
            no images, or the pooling is none that it has.
    """
    torch = import_library("torch", "hf", request.spec)
    transformers = import_library("transformers", "hf", request.spec)
    with quietly(transformers):
        try:
            kind = _class(transformers, transformers.AutoConfig.from_pretrained(request.target))
            model, loaded = kind.from_pretrained(request.target, dtype=torch.float32, output_loading_info=True)
            processor = transformers.AutoImageProcessor.from_pretrained(request.target)
        except Exception as error:  # of transformers, of the hub, of the network
            raise request.fault(
                f"the model or its image processor could not be loaded ({type(error).__name__}: {first_line(error)}); "
                "check the name; without a network, name a folder that holds config.json, the weights and "
                "preprocessor_config.json, or point HF_HOME to a folder of downloads"
            ) from error
    if getattr(model.config, "mask_ratio", 0):
        raise request.fault(
            f"{type(model).__name__} hides {model.config.mask_ratio:.0%} of the patches at random, so its rows would "
            "be chance; load its encoder with timm, or as module:attribute without the mask"
        )
    missing = sorted(loaded["missing_keys"])
    left_out = sorted(loaded["unexpected_keys"])
    pooling = choose_pooling(model, missing, request)
    lacking = [key for key in missing if not key.startswith("pooler.") and ".pooler." not in key]
    if lacking:
        raise request.fault(
            f"{counted(len(lacking), 'weight')} of the model not in the repository ({keys_named(lacking)}); they would "
            "be random, so it cannot be evaluated"
        )
    notes = [f"pooling: {pooling}"]
    if missing:
        notes.append(f"{keys_named(missing)} not in the repository, and not used")
    if left_out:
        notes.append(f"{counted(len(left_out), 'key')} of the head left out ({keys_named(left_out)})")

    def pixels(image: Any) -> Any:
        return processor(images=[image], return_tensors="pt")["pixel_values"][0]

    settings = {key: value for key, value in processor.to_dict().items() if not key.startswith("_")}
    steps = _steps(settings)
    own_record = {**(steps.record() if steps else {}), "processor": json.loads(json.dumps(settings, default=str))}
    own_record["processor"] |= {"class": type(processor).__name__, "backend": _backend(processor)}
    return wrap_model(
        request,
        model,
        _forward(model, pooling),
        architecture=f"transformers {type(model).__name__} {_digest(model.config)}",
        steps=steps,
        own_transform=pixels,
        own_record=own_record,
        more={"pooling": pooling},
        notes=notes,
        load_texts=functools.partial(_texts, transformers, model, request)
        if pooling == "image_features" and hasattr(model, "get_text_features")
        else None,
    )


def _texts(transformers: Any, model: Any, request: Request) -> TextTower:
    """The projected features of texts, with the tokenizer of the repository.

    SigLIP was trained on texts filled up to its length, others on texts as long as the longest of a batch.
    """
    with quietly(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(request.target)
        except Exception as error:  # of transformers, of the hub, of the network
            raise request.fault(
                f"its tokenizer could not be loaded ({type(error).__name__}: {first_line(error)}); without a network, "
                "name a folder that holds it too, or point HF_HOME to a folder of downloads"
            ) from error
    vocabulary = tokenizer.get_vocab()
    # Where its files are missing, transformers makes a tokenizer without words.
    if set(vocabulary) <= set(tokenizer.all_special_tokens):
        raise request.fault(
            "its tokenizer could not be loaded: the repository holds no vocabulary, so every text would be the same; "
            "add tokenizer.json, or the files that the tokenizer has in its place"
        )
    config = getattr(model.config, "text_config", model.config)
    length = min(getattr(config, "max_position_embeddings", tokenizer.model_max_length), tokenizer.model_max_length)
    padding = "max_length" if model.config.model_type.startswith("siglip") else "longest"

    def tokenize(texts: list[str]) -> Any:
        return dict(tokenizer(texts, padding=padding, truncation=True, max_length=length, return_tensors="pt"))

    def text_features(tokens: Any) -> Any:
        output = model.get_text_features(**tokens)
        return output if hasattr(output, "shape") else output.pooler_output

    record = {
        "tokenizer": type(tokenizer).__name__,
        "context_length": length,
        "padding": padding,
        "vocabulary": hash_vocabulary(vocabulary),
        "pooling": "text_features",
    }
    return TextTower(tokenize, text_features, record)


def _class(transformers: Any, config: Any) -> Any:
    """The class that keeps all weights: an image tower with its projection would lose that one as an `AutoModel`."""
    towers = [name for name in config.architectures or () if name.endswith("VisionModelWithProjection")]
    return getattr(transformers, towers[0], transformers.AutoModel) if towers else transformers.AutoModel


def choose_pooling(model: Any, missing: list[str], request: Request) -> Pooling:
    """How one row is made of the model's output: what was asked for, else what the model itself brings.

    In this order: the projected features of an image-text model; its pooler, if that was trained; the class token; the
    mean over tokens or positions.

    Raises:
        RecallatkError: the model takes no images.
        ChoiceError: the model has no such pooling.
    """
    features = hasattr(model, "get_image_features")
    if not features and model.main_input_name != "pixel_values":
        raise request.fault(f"{type(model).__name__} takes {model.main_input_name}, not images; name a vision model")
    outputs = _outputs(model, request)
    features = features or "image_embeds" in outputs
    untrained = any(key.startswith("pooler.") or ".pooler." in key for key in missing)
    token = any(name.rpartition(".")[2] in ("cls_token", "class_embedding") for name, _ in model.named_parameters())
    # A model without parameters of a pooler may still pool (convolutional networks do): that is seen when it runs.
    pooled = not untrained and "pooler_output" in outputs
    there = {"image_features": features, "pooler": pooled and not features, "cls": token and not features}
    there["mean"] = not features
    asked = request.options.get("pooling")
    if asked is not None and not there.get(asked, False):
        why = " (its pooler is untrained)" if asked == "pooler" and untrained else ""
        able = ", ".join(name for name in POOLINGS if there[name])
        raise request.wrong_choice(f"pooling={asked}{why}: this model has {able}")
    chosen: Any = asked or next(name for name in POOLINGS if there[name])
    return chosen  # type: ignore[no-any-return]


def _outputs(model: Any, request: Request) -> list[str]:
    """The names of what the model returns, seen on one black image."""
    torch = import_torch(request.spec)
    if hasattr(model, "get_image_features"):
        return []
    size = getattr(model.config, "image_size", None) or 224
    height, width = (size, size) if isinstance(size, int) else size
    channels = getattr(model.config, "num_channels", 3)
    model.eval()
    try:
        with torch.inference_mode():
            output = model(pixel_values=torch.zeros(1, channels, height, width))
    except Exception as error:  # whatever a model of this kind does without its other inputs
        raise request.fault(
            f"{type(model).__name__} cannot be run on images alone ({type(error).__name__}: {first_line(error)}); name "
            "a vision model"
        ) from error
    return [name for name in output.keys() if output[name] is not None]  # noqa: SIM118 - no plain dict


def _forward(model: Any, pooling: Pooling) -> Callable[[Any], Any]:
    def image_features(pixels: Any) -> Any:
        if not hasattr(model, "get_image_features"):
            return model(pixel_values=pixels).image_embeds
        output = model.get_image_features(pixel_values=pixels)
        return output if hasattr(output, "shape") else output.pooler_output

    def of_tokens(pixels: Any) -> Any:
        output = model(pixel_values=pixels)
        if pooling == "pooler":
            return output.pooler_output.flatten(1)
        hidden = output.last_hidden_state
        if hidden.ndim == 4:  # (n, d, height, width)
            return hidden.mean(dim=(2, 3))
        return hidden[:, 0] if pooling == "cls" else hidden.mean(dim=1)

    return image_features if pooling == "image_features" else of_tokens


def _steps(settings: dict[str, Any]) -> PixelSteps | None:
    """A processor's settings as steps, if it does what they can say: resize, crop, scale by 1/255, normalise."""
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    plain = all(settings.get(key, True) for key in ("do_resize", "do_rescale", "do_normalize"))
    filters = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}
    interpolation = filters.get(settings.get("resample", -1))
    scale = settings.get("rescale_factor", 1 / 255)
    if not plain or settings.get("do_pad") or interpolation is None or abs(scale * 255 - 1) > 1e-6:
        return None
    mean, std = (tuple(map(float, settings.get(key) or ())) for key in ("image_mean", "image_std"))
    cropped = settings.get("do_center_crop")
    final = crop if cropped else size
    if not {"height", "width"} <= set(final) or len(mean) != 3 or len(std) != 3:
        return None
    if cropped and set(size) != {"shortest_edge"}:
        return None
    shorter = size["shortest_edge"] if cropped else None
    return PixelSteps((final["height"], final["width"]), shorter, interpolation, mean, std)


def _backend(processor: Any) -> str:
    """Which library resizes: pil or torchvision; they give other pixels."""
    backend = getattr(processor, "backend", None)
    if isinstance(backend, str):
        return backend
    names = " ".join(kind.__name__ for kind in type(processor).__mro__).lower()
    return "torchvision" if "torchvision" in names or "fast" in names else "pil"


def _digest(config: Any) -> str:
    settings = {k: v for k, v in config.to_dict().items() if k not in NOT_ARCHITECTURE and not k.startswith("_")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:12]


@contextlib.contextmanager
def quietly(transformers: Any) -> Iterator[None]:
    """Within, transformers shows no bars and no report on the weights: what matters of it is in the notes."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
