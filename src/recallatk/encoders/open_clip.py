"""`open_clip:ARCH/PRETRAINED`: a model of open_clip, its tower for images and that for texts."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any

from recallatk.encoders.timm import UNTRAINED, is_file, unreachable
from recallatk.encoders.torch_model import (
    TextTower,
    TorchEncoder,
    hash_vocabulary,
    import_library,
    reproducible_start,
    steps_of,
    wrap_model,
)
from recallatk.encoders.transforms import DEFAULT_STEPS, override
from recallatk.encoders.weights_file import load_weights
from recallatk.types import first_line

if TYPE_CHECKING:
    from recallatk.encoders.request import Request

SCHEMAS = ("hf-hub:", "local-dir:")


def load(request: Request) -> TorchEncoder:
    """`encode_image` and `encode_text`, not normalised (cosine does that), with the model's own preprocessing.

    Raises:
        RecallatkError: open_clip is absent, there is no such model or tag, or the weights cannot be had or do not fit.
    """
    torch = import_library("torch", "open-clip", request.spec)
    open_clip = import_library("open_clip", "open-clip", request.spec)
    arch, pretrained = request.target, request.options.get("weights")
    extra: dict[str, Any] = {}
    notes: list[str] = []
    if not arch.startswith(SCHEMAS):
        if pretrained is None:
            arch, _, pretrained = arch.partition("/")
        _check_names(open_clip, arch, pretrained, request)
        extra, notes = _activation(open_clip, arch, pretrained, request)
    if "size" in request.options:
        height, width = override(DEFAULT_STEPS, request).size
        extra["force_image_size"] = height if height == width else (height, width)
    tag = pretrained if pretrained and pretrained != "none" and not is_file(pretrained) else None
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)  # open_clip warns of weights that we load ourselves, or that are asked to be random
    try:
        with reproducible_start(torch):
            if tag or arch.startswith(SCHEMAS):  # this one fails where the weights cannot be had
                model, compose = open_clip.create_model_from_pretrained(arch, pretrained=tag, **extra)
            else:
                model, _, compose = open_clip.create_model_and_transforms(arch, pretrained_text=False, **extra)
    except Exception as error:  # of open_clip, of the hub, of the network
        raise request.fault(unreachable(error)) from error
    finally:
        log.setLevel(level)
    if pretrained == "none":
        notes.append(UNTRAINED)
    elif pretrained and tag is None:
        notes += load_weights(model, pretrained, request, heads=())
    config = json.dumps([open_clip.get_model_config(arch), extra], sort_keys=True, default=str)
    digest = hashlib.sha256(config.encode()).hexdigest()[:12]
    return wrap_model(
        request,
        model,
        model.encode_image,
        architecture=f"open_clip {digest if arch.startswith(SCHEMAS) else f'{arch} {digest}'}",
        steps=steps_of(compose),
        own_transform=compose,
        own_record={"transforms": repr(compose)} if steps_of(compose) is None else None,
        more={"pooling": "encode_image"},
        notes=notes,
        load_texts=functools.partial(_texts, open_clip, model, arch, request),
    )


def _texts(open_clip: Any, model: Any, arch: str, request: Request) -> TextTower:
    """The model's own tokenizer, which for some models is one of the hub."""
    try:
        tokenizer = open_clip.get_tokenizer(arch)
    except Exception as error:  # of open_clip, of the hub, of the network
        raise request.fault(
            f"its tokenizer could not be loaded ({type(error).__name__}: {first_line(error)}); without a network, "
            "point HF_HOME to a folder of downloads"
        ) from error
    inner = getattr(tokenizer, "tokenizer", tokenizer)
    vocabulary = inner.get_vocab() if hasattr(inner, "get_vocab") else getattr(inner, "encoder", {})
    record = {
        "tokenizer": type(tokenizer).__name__,
        "context_length": getattr(tokenizer, "context_length", None),
        "vocabulary": hash_vocabulary(vocabulary),
        "pooling": "encode_text",
    }
    return TextTower(lambda texts: {"text": tokenizer(texts)}, lambda tokens: model.encode_text(tokens["text"]), record)


def _check_names(open_clip: Any, arch: str, pretrained: str | None, request: Request) -> None:
    if arch not in open_clip.list_models():
        near = difflib.get_close_matches(arch, open_clip.list_models(), n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise request.wrong_choice(f"open_clip has no model {arch!r}; {hint}see open_clip.list_models()")
    tags = open_clip.list_pretrained_tags_by_model(arch)
    if not pretrained:
        raise request.wrong_choice(
            f"say which weights: open_clip:{arch}/TAG with one of {', '.join(tags) or '(none are known)'}, or a file"
        )
    if pretrained != "none" and pretrained not in tags and not is_file(pretrained):
        raise request.wrong_choice(
            f"{pretrained!r} is no file and no weights of {arch}; choose one of {', '.join(tags) or '(none are known)'}"
        )


def _activation(open_clip: Any, arch: str, tag: str | None, request: Request) -> tuple[dict[str, Any], list[str]]:
    """QuickGELU where the weights were trained with it: the weights alone would load, and give other embeddings."""
    trained = open_clip.get_pretrained_cfg(arch, tag) if tag else None
    if not trained:
        return {}, []
    config = open_clip.get_model_config(arch) or {}
    has, wants = bool(config.get("quick_gelu")), bool(trained.get("quick_gelu"))
    if has and not wants:
        raise request.wrong_choice(
            f"the weights {tag} were trained without QuickGELU; use open_clip:{arch.removesuffix('-quickgelu')}/{tag}"
        )
    if wants and not has:
        return {"force_quick_gelu": True}, [f"the weights {tag} were trained with QuickGELU, which is switched on"]
    return {}, []
