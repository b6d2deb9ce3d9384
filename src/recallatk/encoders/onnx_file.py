"""`onnx:PATH`: a model file of the user's own, run by onnxruntime."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recallatk.encoders.inputs import rgb_image
from recallatk.encoders.transforms import DEFAULT_STEPS, PixelSteps, overridden, override
from recallatk.extras import import_extra
from recallatk.types import first_line

if TYPE_CHECKING:
    from recallatk.encoders.request import Request
    from recallatk.types import Float32Rows

ELEMENTS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(uint8)": np.uint8}


@dataclasses.dataclass(frozen=True, eq=False)
class OnnxFileEncoder:
    """A session together with what it does to an image first.

    Attributes:
        name: the name it was asked for by.
        fingerprint: sha256 of the model file, and of the files beside it that hold its weights.
        preprocessing: what happens to the image first, as JSON values.
        notes: what people should see and the record should hold.
        device: where it runs.
        session: the loaded model.
        steps: resize, crop and normalisation.
        element: the type of the model's input; uint8 gets the pixels as they are.
        channels_last: whether the input is (n, height, width, 3) instead of (n, 3, height, width).
        one_by_one: whether the file takes one image at a time.
        output: the name of the output that is the embedding.
    """

    name: str
    fingerprint: str
    preprocessing: Mapping[str, Any]
    notes: tuple[str, ...]
    device: str
    session: Any
    steps: PixelSteps
    element: type[Any]
    channels_last: bool
    one_by_one: bool
    output: str

    def __call__(self, batch: list[Any], /) -> Float32Rows:
        """A list of n RGB images to float32 (n, d)."""
        return self.encode_prepared([self.prepare(image) for image in batch])

    def prepare(self, image: Any) -> npt.NDArray[Any]:
        """What the model takes of one RGB image; any thread may do it."""
        rgb = rgb_image(image, self.name)
        if self.element is np.uint8:
            pixels: npt.NDArray[Any] = np.asarray(self.steps.cropped(rgb)).transpose(2, 0, 1)
        else:
            pixels = self.steps(rgb).astype(self.element)
        return pixels.transpose(1, 2, 0) if self.channels_last else pixels

    def encode_prepared(self, prepared: Sequence[npt.NDArray[Any]]) -> Float32Rows:
        """A list of n prepared images to float32 (n, d)."""
        taken = self.session.get_inputs()[0].name
        size = 1 if self.one_by_one else len(prepared)
        parts = [np.stack(prepared[start : start + size]) for start in range(0, len(prepared), size)]
        outputs = [self.session.run([self.output], {taken: np.ascontiguousarray(part)})[0] for part in parts]
        return np.concatenate(outputs).astype(np.float32)


def load(request: Request) -> OnnxFileEncoder:
    """The model in a file that takes one batch of images.

    Raises:
        RecallatkError: onnxruntime is absent, the file is not there or no model of images, or the device is not there.
        ChoiceError: a dtype is asked for, or the output is not named where there are several.
    """
    onnxruntime = import_extra("onnxruntime", "onnx", f"the encoder {request.spec}")
    file = Path(request.target)
    if not file.is_file():
        raise request.fault(f"there is no file {file}; check the path")
    if request.dtype != "float32":
        raise request.wrong_choice(f"the file fixes what it computes in; leave out --dtype {request.dtype}")
    providers = _providers(onnxruntime, request)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads burn no processor time
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=providers)
    except Exception as error:  # onnxruntime has a class of error for each status code
        raise request.fault(f"{file} cannot be loaded ({first_line(error)})") from error
    if session.get_providers()[0] != providers[0]:
        raise request.fault(f"onnxruntime could not start {providers[0]}; use --device cpu, or mend its installation")
    element, channels_last, size, batch = _input(session, request)
    steps = DEFAULT_STEPS
    if size is not None and "size" in request.options and override(steps, request).size != size:
        raise request.wrong_choice(f"size={request.options['size']}: the file takes {size[0]}x{size[1]}")
    if size is not None:
        steps = dataclasses.replace(steps, size=size, resize=round(256 / 224 * max(size)))
    steps = override(steps, request)
    record = steps.record()
    if element is np.uint8:
        if {"mean", "std"} & set(request.options):
            raise request.wrong_choice("the model takes pixels in 0..255 as they are; leave out mean= and std=")
        record |= {"range": [0, 255], "mean": None, "std": None}
    replaced = overridden(request.options)
    note = "the file says nothing of the preprocessing: " + (
        f"{', '.join(replaced)} as given, the rest as is usual for ImageNet"
        if replaced
        else "the usual one for ImageNet is used, unless size=, resize=, interpolation=, mean= and std= say otherwise"
    )
    return OnnxFileEncoder(
        request.spec,
        _fingerprint(file),
        record | {"architecture": "onnx", "output": (output := _output(session, request))},
        (note, f"onnxruntime {onnxruntime.__version__}, {providers[0]}"),
        "cpu" if providers[0].startswith("CPU") else "cuda",
        session,
        steps,
        element,
        channels_last,
        batch == 1,
        output,
    )


def _providers(onnxruntime: Any, request: Request) -> list[Any]:
    gpu = "CUDAExecutionProvider"
    kind, _, number = request.device.partition(":")
    there = gpu in onnxruntime.get_available_providers()
    if kind == "cpu" or (kind == "auto" and not there):
        return ["CPUExecutionProvider"]
    if kind not in ("auto", "cuda"):
        raise request.wrong_choice(f"onnxruntime has no device {request.device!r} here; use cpu, cuda or auto")
    if not there:
        raise request.fault("this onnxruntime has no CUDA (that is onnxruntime-gpu); use --device cpu")
    if number not in ("", "0"):
        raise request.wrong_choice(f"{request.device}: choose the GPU with CUDA_VISIBLE_DEVICES, and --device cuda")
    return [gpu]


def _input(session: Any, request: Request) -> tuple[type[Any], bool, tuple[int, int] | None, int | None]:
    """The input's element type, whether channels come last, height and width and batch where they are fixed."""
    inputs = session.get_inputs()
    shape = inputs[0].shape if inputs else []
    if len(inputs) != 1 or len(shape) != 4 or inputs[0].type not in ELEMENTS or 3 not in (shape[1], shape[3]):
        said = ", ".join(f"{one.name}: {one.type} {one.shape}" for one in inputs)
        raise request.fault(f"its input is {said or 'nothing'}; it must be one batch of RGB images of numbers or bytes")
    last = shape[1] != 3
    height, width = shape[1:3] if last else shape[2:]
    fixed = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    batch = shape[0] if isinstance(shape[0], int) else None
    if batch not in (None, 1):
        raise request.fault(f"it takes exactly {batch} images at a time; export it with a batch of any size, or of one")
    return ELEMENTS[inputs[0].type], last, fixed, batch


def _output(session: Any, request: Request) -> str:
    names = [one.name for one in session.get_outputs()]
    asked = request.options.get("output")
    if asked is None and len(names) == 1:
        return str(names[0])
    if asked not in names:
        raise request.wrong_choice(f"say which output is the embedding, output=NAME: {', '.join(names)}")
    return str(asked)


def _fingerprint(file: Path) -> str:
    """sha256 of the model; with weights in files of their own, which the model names, of them all."""
    model = file.read_bytes()
    digest = hashlib.sha256(model)
    for name in sorted(_external_files(model)):
        other = file.parent / name
        if other.is_file():
            with other.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _external_files(model: bytes) -> set[str]:
    """The files, relative to the model, in which an ONNX model says that tensors lie.

    In the bytes of a model each is an entry (onnx.proto, StringStringEntryProto): field 1 is the text "location",
    field 2 the path, which its length in base 128 comes before.
    """
    names = set()
    for entry in re.finditer(rb"\x0a\x08location\x12([\x80-\xff]*)([\x00-\x7f])", model):
        digits = [byte & 127 for byte in entry[1] + entry[2]]
        length = sum(digit << 7 * place for place, digit in enumerate(digits))
        names.add(model[entry.end() : entry.end() + length].decode(errors="replace"))
    return names
