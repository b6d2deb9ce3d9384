"""`timm:NAME`: any model of timm, without its classifier."""

from __future__ import annotations

import difflib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.encoders.torch_model import (
    TorchEncoder,
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

UNTRAINED = "untrained weights: random, from a fixed seed"


def load(request: Request) -> TorchEncoder:
    """The model's pooled features (`num_classes=0`), with the preprocessing of its pretrained configuration.

    Raises:
        RecallatkError: timm or torch is absent, there is no such model, or its weights cannot be had or do not fit.
    """
    torch = import_library("torch", "timm", request.spec)
    timm = import_library("timm", "timm", request.spec)
    weights = request.options.get("weights", "pretrained")
    if ":" not in request.target and not timm.is_model(request.target):
        near = difflib.get_close_matches(request.target, timm.list_models(), n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise request.wrong_choice(f"timm has no model {request.target!r}; {hint}see timm.list_models()")
    extra: dict[str, Any] = {}
    if "size" in request.options and ":" not in request.target:
        config = timm.get_pretrained_cfg(request.target, allow_unregistered=True)
        if config is not None and config.fixed_input_size:
            extra["img_size"] = override(DEFAULT_STEPS, request).size
    with reproducible_start(torch):
        try:
            model = timm.create_model(request.target, pretrained=weights == "pretrained", num_classes=0, **extra)
        except Exception as error:  # of timm, of the hub, of the network
            raise request.fault(unreachable(error)) from error
    notes = [UNTRAINED] if weights == "none" else []
    if weights not in ("none", "pretrained"):
        head = model.pretrained_cfg.get("classifier") or ()
        notes += load_weights(model, weights, request, heads=[head] if isinstance(head, str) else head)
    config = timm.data.resolve_model_data_config(model)
    compose = timm.data.create_transform(**config, is_training=False)
    record = {
        "size": list(config["input_size"][1:]),
        "crop": config["crop_mode"],
        "crop_pct": config["crop_pct"],
        "interpolation": config["interpolation"],
        "antialias": True,
        "mode": "RGB",
        "range": [0, 1],
        "mean": list(config["mean"]),
        "std": list(config["std"]),
    }
    steps = steps_of(compose)
    architecture = f"timm {model.pretrained_cfg.get('architecture') or request.target}"
    if ":" in request.target:  # a repository or folder has a configuration of its own, such as another pooling
        architecture += f" {hashlib.sha256(repr(model).encode()).hexdigest()[:12]}"
    return wrap_model(
        request,
        model,
        model,
        architecture=architecture + "".join(f" {key}={value}" for key, value in extra.items()),
        steps=steps,
        own_transform=compose,
        own_record=None if steps else record,
        notes=notes,
    )


def unreachable(error: BaseException) -> str:
    """What to do where pretrained weights could not be fetched."""
    return (
        f"the model could not be made ({type(error).__name__}: {first_line(error)}); without a network, fetch the "
        "weights elsewhere and name the file with ?weights=FILE, or point HF_HOME to a folder that holds them"
    )


def is_file(text: str) -> bool:
    """Whether a text is a path of a file that is there."""
    return len(text) < 4096 and Path(text).is_file()
