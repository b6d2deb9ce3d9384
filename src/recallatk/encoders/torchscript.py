"""`torchscript:PATH`: a model saved by torch.jit, which brings its own code."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.encoders.torch_model import TorchEncoder, import_torch, wrap_model
from recallatk.encoders.transforms import DEFAULT_STEPS
from recallatk.types import first_line

if TYPE_CHECKING:
    from recallatk.encoders.request import Request

NO_PREPROCESSING = (
    "the file says nothing of the preprocessing: the usual one for ImageNet is used, unless size=, resize=, "
    "interpolation=, mean= and std= say otherwise"
)


def load(request: Request) -> TorchEncoder:
    """The module in the file, on float32 (n, 3, height, width); its fingerprint is that of the file.

    Raises:
        RecallatkError: torch is absent, or the file is not there or no TorchScript.
    """
    torch = import_torch(request.spec)
    file = Path(request.target)
    if not file.is_file():
        raise request.fault(f"there is no file {file}; check the path")
    try:
        model = torch.jit.load(str(file), map_location="cpu")
    except Exception as error:
        raise request.fault(f"{file} is no TorchScript ({first_line(error)}); save it with torch.jit.save") from error

    def forward(pixels: Any) -> Any:
        output = model(pixels)
        if not hasattr(output, "ndim") or output.ndim != 2:
            shape = tuple(output.shape) if hasattr(output, "shape") else type(output).__name__
            raise request.fault(f"it returns {shape} for {len(pixels)} images, not (n, d); script a module that does")
        return output

    with file.open("rb") as stream:
        fingerprint = hashlib.file_digest(stream, "sha256").hexdigest()
    return wrap_model(
        request,
        model,
        forward,
        architecture="torchscript",
        steps=DEFAULT_STEPS,
        own_transform=DEFAULT_STEPS,
        fingerprint=fingerprint,
        notes=[NO_PREPROCESSING],
    )
