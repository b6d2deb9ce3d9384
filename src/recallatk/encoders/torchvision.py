"""`torchvision:NAME`: any classification model of torchvision, without its last layer."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from recallatk.encoders.timm import UNTRAINED, is_file, unreachable
from recallatk.encoders.torch_model import TorchEncoder, import_library, reproducible_start, wrap_model
from recallatk.encoders.transforms import DEFAULT_STEPS, PixelSteps
from recallatk.encoders.weights_file import load_weights

if TYPE_CHECKING:
    from recallatk.encoders.request import Request

HEADS = ("fc", "classifier", "heads", "head")


def load(request: Request) -> TorchEncoder:
    """What the model hands to its last layer, with the transforms of its weights.

    Raises:
        RecallatkError: torchvision is absent, there is no such model or weights, or they cannot be had or do not fit.
    """
    torch = import_library("torch", "torchvision", request.spec)
    models = import_library("torchvision.models", "torchvision", request.spec)
    if request.target not in models.list_models(module=models):
        near = difflib.get_close_matches(request.target, models.list_models(module=models), n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise request.wrong_choice(f"torchvision has no model {request.target!r}; {hint}see torchvision.models")
    wanted = request.options.get("weights", "DEFAULT")
    known = models.get_model_weights(request.target)
    trained = None
    if wanted in known.__members__:
        trained = known[wanted]
    elif wanted != "none" and not is_file(wanted):
        raise request.wrong_choice(
            f"weights={wanted} is no file, and none of {', '.join(known.__members__)}, DEFAULT or none"
        )
    with reproducible_start(torch):
        try:
            model = models.get_model(request.target, weights=trained)
        except Exception as error:  # of the network
            raise request.fault(unreachable(error)) from error
    head = cut_head(model, torch, request)
    notes = [] if trained else ["torchvision says nothing of the preprocessing: its usual one for ImageNet is used"]
    if wanted == "none":
        notes.append(UNTRAINED)
    elif trained is None:
        notes += load_weights(model, wanted, request, heads=[head])
    steps = DEFAULT_STEPS if trained is None else _steps(trained.transforms())
    own = DEFAULT_STEPS if trained is None else trained.transforms()
    return wrap_model(
        request, model, model, architecture=f"torchvision {request.target}", steps=steps, own_transform=own, notes=notes
    )


def cut_head(model: Any, torch: Any, request: Request) -> str:
    """Replace the last layer with weights, the one that gives classes, by nothing; returns its name.

    Raises:
        RecallatkError: the model has no such layer.
    """
    top = next((name for name, _ in model.named_children() if name in HEADS), None)
    layers = (torch.nn.Linear, torch.nn.Conv2d)
    named = [name for name, child in model.named_modules() if isinstance(child, layers)]
    inside = [name for name in named if top is not None and (name == top or name.startswith(f"{top}."))]
    if not inside:
        raise request.fault("it has no last layer of classes to take off; use a model for classification")
    parent, _, last = inside[-1].rpartition(".")
    setattr(model.get_submodule(parent), last, torch.nn.Identity())
    return str(inside[-1])


def _steps(preset: Any) -> PixelSteps | None:
    """The steps of torchvision's preset for classification."""
    try:
        crop, resize = (list(preset.crop_size), list(preset.resize_size))
        height, width = crop if len(crop) == 2 else crop * 2
        mean, std = tuple(preset.mean), tuple(preset.std)
        steps = PixelSteps((height, width), resize[0], preset.interpolation.value, mean, std)
    except (AttributeError, TypeError, ValueError):
        return None
    return steps if len(resize) == 1 else None
