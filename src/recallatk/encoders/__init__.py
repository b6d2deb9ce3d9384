"""Encoders by name: ENCODERS, SCHEMES and load_encoder. An outside library is imported only when it is used."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from recallatk.encoders.request import (
    DTYPES,
    PIXEL_OPTIONS,
    Dtype,
    Request,
    check_options,
    files_of_series,
    split_options,
)
from recallatk.types import ChoiceError

if TYPE_CHECKING:
    from recallatk.types import Encoder


class EncoderEntry(NamedTuple):
    """A row of the table.

    Attributes:
        load: "module:function"; the function takes nothing and returns the encoder.
        extra: the extra of recallatk that it needs; None for the base installation.
        summary: one line for the list of encoders.
    """

    load: str
    extra: str | None
    summary: str


class SchemeEntry(NamedTuple):
    """A kind of encoder, `scheme:target`.

    Attributes:
        load: "module:function"; the function takes a `Request` and returns the encoder.
        extra: the extra of recallatk that it needs.
        target: what follows the colon.
        summary: one line for the list of encoders.
        options: what may follow as `?option=value`, beside PIXEL_OPTIONS, each with a line.
    """

    load: str
    extra: str
    target: str
    summary: str
    options: Mapping[str, str]


ENCODERS: dict[str, EncoderEntry] = {
    "lite0": EncoderEntry(
        "recallatk.encoders.onnx:lite0", "onnx", "EfficientNet-Lite0 (ImageNet), pooled features, 1280-d, included"
    ),
    "hog": EncoderEntry(
        "recallatk.encoders.weightless:hog", None, "histograms of oriented gradients on 64 x 64 grey, 1765-d"
    ),
    "color-histogram": EncoderEntry(
        "recallatk.encoders.weightless:color_histogram", None, "8 x 8 x 8 RGB histogram, square roots, 512-d"
    ),
    "pixels": EncoderEntry("recallatk.encoders.weightless:pixels", None, "16 x 16 RGB thumbnail, mean removed, 769-d"),
}

_ENTRY = {"entry": "which entry of the file holds the state dict; by default the one with a usual name"}

SCHEMES: dict[str, SchemeEntry] = {
    "timm": SchemeEntry(
        "recallatk.encoders.timm:load",
        "timm",
        "NAME",
        "a model of timm, pooled features before the classifier",
        {"weights": "pretrained (the default), none (random), or a file", **_ENTRY},
    ),
    "open_clip": SchemeEntry(
        "recallatk.encoders.open_clip:load",
        "open-clip",
        "ARCH/PRETRAINED",
        "a model of open_clip, with its tower for texts; PRETRAINED is a tag or a file",
        {"weights": "in place of /PRETRAINED: a tag, none (random), or a file", **_ENTRY},
    ),
    "hf": SchemeEntry(
        "recallatk.encoders.hugging_face:load",
        "hf",
        "REPO",
        "a vision model of transformers, or one of images and texts; REPO may be a folder",
        {"pooling": "image_features, pooler, cls or mean; by default the first that the model has trained"},
    ),
    "torchvision": SchemeEntry(
        "recallatk.encoders.torchvision:load",
        "torchvision",
        "NAME",
        "a model of torchvision, what comes before its last layer",
        {"weights": "a name such as IMAGENET1K_V1 (DEFAULT is the default), none (random), or a file", **_ENTRY},
    ),
    "checkpoint": SchemeEntry(
        "recallatk.encoders.checkpoint:load",
        "timm",
        "PATH?arch=timm:NAME",
        "weights of a training run; a pattern such as epoch_*.pt is a series, an encoder each",
        {"arch": "the architecture: timm:NAME, torchvision:NAME or open_clip:ARCH", **_ENTRY},
    ),
    "torchscript": SchemeEntry(
        "recallatk.encoders.torchscript:load", "torch", "PATH", "a file of torch.jit that returns (n, d)", {}
    ),
    "onnx": SchemeEntry(
        "recallatk.encoders.onnx_file:load",
        "onnx",
        "PATH",
        "a file that onnxruntime runs, on float or byte images",
        {"output": "which output is the embedding, where there are several"},
    ),
}


def load_encoder(spec: str, *, device: str = "auto", dtype: Dtype = "float32") -> Encoder:
    """The encoder behind a name: one of ENCODERS, `scheme:target` of SCHEMES, or `module:attribute` of your own code.

    An encoder takes a list of PIL images in mode RGB and returns float32 (n, d); one of images and texts has a method
    `encode_texts` too. All carry `name`, `fingerprint` and
    `preprocessing`; for code of your own the last two are None unless it carries them itself.

    `module:attribute` imports the module (from the current directory too). A class, or a function that needs no
    argument, is called once and returns the encoder; anything else callable is the encoder.

    Args:
        spec: the name; a scheme's may end in options, `timm:resnet18?size=192&interpolation=bilinear`.
        device: for schemes: auto (a GPU if torch sees one), or a name that torch knows: cpu, cuda, cuda:1, mps.
        dtype: for schemes in torch: float32; float16 or bfloat16 for weights and arithmetic in it; autocast-float16 or
            autocast-bfloat16 for float32 weights and torch's choice by operation. Embeddings are float32 in any case.

    Raises:
        ChoiceError: no such name, option, device or dtype; or the encoder cannot be told its device or dtype.
        RecallatkError: no such module, attribute or file, what it names is not callable, or it cannot be loaded.

    >>> load_encoder("pixels").name
    'pixels'
    """
    if dtype not in DTYPES:
        raise ChoiceError(f"there is no dtype {dtype!r}; choose one of {', '.join(DTYPES)}")
    scheme, _, rest = spec.partition(":")
    if scheme in SCHEMES and ":" in spec:
        return _load_scheme(spec, scheme, rest, device, dtype)
    if (device, dtype) not in (("auto", "float32"), ("cpu", "float32")):
        raise ChoiceError(
            f"encoder {spec}: it runs where and in what it was written to; leave out --device and --dtype "
            f"(they are for {', '.join(SCHEMES)})"
        )
    if spec in ENCODERS:
        return cast("Encoder", _function(ENCODERS[spec].load)())
    if ":" in spec:
        from recallatk.encoders.callables import load_callable

        return load_callable(spec)
    near = difflib.get_close_matches(spec, ENCODERS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    forms = ", ".join(f"{name}:{entry.target}" for name, entry in SCHEMES.items())
    raise ChoiceError(
        f"there is no encoder {spec!r}; {hint}choose one of {', '.join(ENCODERS)}, or {forms}, or name your own as "
        "module:attribute"
    )


def expand_series(spec: str) -> tuple[str, ...]:
    """The encoders that a name stands for: a `checkpoint:` pattern is one for each file, in natural order.

    Raises:
        RecallatkError: no file matches the pattern.

    >>> expand_series("lite0")
    ('lite0',)
    """
    scheme, _, rest = spec.partition(":")
    if scheme != "checkpoint":
        return (spec,)
    target, _ = split_options(rest)
    options = rest.removeprefix(target)
    return tuple(f"{scheme}:{file}{options}" for file in files_of_series(spec, target))


def _load_scheme(spec: str, scheme: str, rest: str, device: str, dtype: Dtype) -> Encoder:
    entry = SCHEMES[scheme]
    target, options = split_options(rest)
    request = Request(spec, target, options, device, dtype)
    if not target:
        raise request.wrong_choice(f"nothing follows the colon; write {scheme}:{entry.target}")
    check_options(request, [*entry.options, *PIXEL_OPTIONS])
    return cast("Encoder", _function(entry.load)(request))


def _function(named: str) -> Callable[..., Any]:
    module, _, function = named.partition(":")
    loader: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return loader
