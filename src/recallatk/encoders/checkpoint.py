"""`checkpoint:PATH?arch=timm:NAME`: weights of a training run, in an architecture of timm, torchvision or open_clip."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recallatk.encoders.request import Request
    from recallatk.encoders.torch_model import TorchEncoder

ARCHITECTURES = {
    "timm": "recallatk.encoders.timm",
    "torchvision": "recallatk.encoders.torchvision",
    "open_clip": "recallatk.encoders.open_clip",
}


def load(request: Request) -> TorchEncoder:
    """The architecture that `arch` names, with the weights in the file and the architecture's preprocessing.

    Raises:
        ChoiceError: no architecture is named, or it is of none of these libraries.
        RecallatkError: as for the library's own scheme; the file is not there or does not fit.
    """
    scheme, _, name = request.options.get("arch", "").partition(":")
    if scheme not in ARCHITECTURES or not name:
        raise request.wrong_choice(
            "say which architecture the weights are for: checkpoint:PATH?arch=timm:resnet18 (or arch=torchvision:..., "
            "arch=open_clip:...)"
        )
    if not Path(request.target).is_file():
        raise request.fault(f"there is no file {request.target}; check the path")
    options = {key: value for key, value in request.options.items() if key != "arch"} | {"weights": request.target}
    loader = importlib.import_module(ARCHITECTURES[scheme])
    encoder: TorchEncoder = loader.load(dataclasses.replace(request, target=name, options=options))
    return encoder
