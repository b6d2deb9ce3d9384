"""What all encoders in torch have in common: the device, the dtype, the eval mode, the hash of the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from recallatk.encoders.evaluation_mode import check_evaluation_mode
from recallatk.encoders.inputs import rgb_image
from recallatk.encoders.transforms import PixelSteps, overridden, override
from recallatk.extras import import_extra
from recallatk.types import RecallatkError, first_line
from recallatk.wording import counted

if TYPE_CHECKING:
    from recallatk.encoders.request import Dtype, Request
    from recallatk.types import Float32Rows

Tensor: TypeAlias = Any
Module: TypeAlias = Any


@dataclasses.dataclass(frozen=True, eq=False)
class TorchEncoder:
    """A model of torch together with what it does to an image first.

    Attributes:
        name: the name it was asked for by.
        fingerprint: a hash of the weights, before they were brought to `dtype`.
        preprocessing: what happens to the image, the architecture, the dtype and the pooling, as JSON values.
        notes: what people should see and the record should hold: the device, options that replace a part of the
            model's own preprocessing, weights that were left out.
        device: where it runs.
        dtype: what it computes in; the embeddings are float32 in any case.
        model: the module, in eval mode.
        transform: one RGB image to a tensor or array (3, height, width).
        forward: a tensor (n, 3, height, width) to (n, d).
    """

    name: str
    fingerprint: str
    preprocessing: Mapping[str, Any]
    notes: tuple[str, ...]
    device: str
    dtype: Dtype
    model: Module
    transform: Callable[[Any], Any]
    forward: Callable[[Tensor], Tensor]

    def __call__(self, batch: list[Any], /) -> Float32Rows:
        """A list of n RGB images to float32 (n, d)."""
        return self.encode_prepared([self.prepare(image) for image in batch])

    def prepare(self, image: Any) -> Any:
        """What the model takes of one RGB image; any thread may do it."""
        return self.transform(rgb_image(image, self.name))

    def encode_prepared(self, prepared: Sequence[Any]) -> Float32Rows:
        """A list of n prepared images to float32 (n, d)."""
        torch = import_torch(self.name)
        pixels = torch.stack([torch.as_tensor(image) for image in prepared]).to(self.device)
        if not self.dtype.startswith("autocast-"):
            pixels = pixels.to(getattr(torch, self.dtype))
        return self._run(self.forward, pixels)

    def _run(self, forward: Callable[[Any], Tensor], inputs: Any) -> Float32Rows:
        """One call of the model, without gradients, in its dtype; what comes back is float32."""
        torch = import_torch(self.name)
        check_evaluation_mode(self.model, self.name)
        kind = getattr(torch, self.dtype.removeprefix("autocast-"))
        autocast = self.dtype.startswith("autocast-")
        where = torch.autocast(torch.device(self.device).type, dtype=kind) if autocast else contextlib.nullcontext()
        with torch.inference_mode(), full_precision(torch), where:
            embeddings = forward(inputs)
        return np.asarray(embeddings.float().cpu().numpy(), dtype=np.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class TextTower:
    """What a model of images and texts does with texts.

    Attributes:
        tokenize: a list of n texts to whole numbers, tensors by name.
        forward: these tensors to (n, d).
        record: the tokenizer and the length, as JSON values.
    """

    tokenize: Callable[[list[str]], Mapping[str, Tensor]]
    forward: Callable[[Mapping[str, Tensor]], Tensor]
    record: Mapping[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class TwoTowerEncoder(TorchEncoder):
    """A model of images and texts.

    Attributes:
        load_texts: makes the tower for texts; asked when there are texts, as its tokenizer may not be there.
    """

    load_texts: Callable[[], TextTower]

    @functools.cached_property
    def _texts(self) -> TextTower:
        return self.load_texts()

    @property
    def text_preprocessing(self) -> Mapping[str, Any]:
        """What happens to a text, as JSON values."""
        return self._texts.record

    def encode_texts(self, batch: list[str], /) -> Float32Rows:
        """A list of n texts to float32 (n, d)."""
        tokens = {name: tensor.to(self.device) for name, tensor in self._texts.tokenize(list(batch)).items()}
        return self._run(self._texts.forward, tokens)


def import_torch(spec: str) -> Any:
    """The module torch, or the pip command."""
    return import_library("torch", "torch", spec)


def import_library(module: str, extra: str, spec: str) -> Any:
    """A library that encoders come from.

    Raises:
        RecallatkError: it is absent (the message is the pip command), or does not fit the torch that is installed.
    """
    try:
        return import_extra(module, extra, f"the encoder {spec}")
    except ModuleNotFoundError:
        raise
    except (ImportError, OSError, RuntimeError) as error:  # a torchvision that was built for another torch
        raise RecallatkError(
            f"encoder {spec}: {module} is installed and cannot be imported ({first_line(error)}); torch and "
            "torchvision must be of versions that belong together, both for the processor or both for CUDA"
        ) from error


@contextlib.contextmanager
def full_precision(torch: Any) -> Iterator[None]:
    """Within, float32 is not cut to TF32 or bfloat16 (as convolutions on a GPU are by default)."""
    backends = torch.backends
    places = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)
    before = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.fp32_precision = value


@contextlib.contextmanager
def reproducible_start(torch: Any) -> Iterator[None]:
    """Within, random weights are the same every time; the caller's random numbers go on as if nothing had been."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def wrap_model(
    request: Request,
    model: Module,
    forward: Callable[[Tensor], Tensor],
    *,
    architecture: str,
    steps: PixelSteps | None,
    own_transform: Callable[[Any], Any],
    own_record: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    fingerprint: str | None = None,
    notes: Sequence[str] = (),
    load_texts: Callable[[], TextTower] | None = None,
) -> TorchEncoder:
    """Bring a model to the device and the dtype, and put it together with its preprocessing.

    Args:
        request: what was asked for.
        model: the module, with its weights.
        forward: (n, 3, height, width) to (n, d), by that module.
        architecture: what the weights alone do not say: the name of the model, its configuration.
        steps: the model's own preprocessing as steps of ours; None if it cannot be said in them.
        own_transform: the model's own preprocessing, by its own library; used unless an option replaces a part.
        own_record: what `own_transform` does, where `steps` cannot say it.
        more: more fields of the record, such as the pooling.
        fingerprint: a hash of the weights, where the module cannot be asked for them.
        notes: what else people should see.
        load_texts: makes the model's tower for texts, where it has one.

    Raises:
        RecallatkError: the device is not there, or the preprocessing cannot be overridden.
    """
    torch = import_torch(request.spec)
    device = find_device(request)
    model.eval()
    fingerprint = fingerprint or hash_weights(model.state_dict())
    transform, record = own_transform, dict(own_record or (steps.record() if steps else {}))
    replaced, said = overridden(request.options), [*notes]
    if replaced:
        if steps is None:
            raise request.fault(
                f"its own preprocessing has steps that cannot be replaced one by one, so {replaced[0]}= cannot be used"
            )
        transform = override(steps, request)
        record = {**record, **transform.record()}
        said.append(f"not the model's own preprocessing: {', '.join(replaced)} replaced")
    record |= {"architecture": architecture, "dtype": request.dtype, **(more or {})}
    model.to(device)
    if not request.dtype.startswith("autocast-"):
        model.to(getattr(torch, request.dtype))
    said.append(f"torch {torch.__version__} on {device}, {request.dtype}")
    parts = (request.spec, fingerprint, record, tuple(said), device, request.dtype, model, transform, forward)
    return TorchEncoder(*parts) if load_texts is None else TwoTowerEncoder(*parts, load_texts)


def find_device(request: Request) -> str:
    """The device that was asked for, as torch writes it.

    Raises:
        ChoiceError: torch knows no such device.
        RecallatkError: it is not there.
    """
    torch = import_torch(request.spec)
    if request.device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(request.device)
    except RuntimeError as error:
        raise request.wrong_choice(f"there is no device {request.device!r}; use cpu, cuda, cuda:1 or auto") from error
    try:
        torch.empty(1, device=device)
    except Exception as error:  # torch raises AssertionError, NotImplementedError, RuntimeError: by device and version
        raise request.fault(
            f"the device {request.device} cannot be used here ({first_line(error)}); use --device cpu"
        ) from error
    return str(device)


def hash_weights(state: Mapping[str, Tensor]) -> str:
    """sha256 over the tensors in the order of their names: name, dtype, shape and bytes."""
    digest = hashlib.sha256()
    torch = import_torch("that is hashed")
    for name in sorted(state):
        tensor = state[name]
        if not hasattr(tensor, "detach"):  # extra state of a module: no tensor
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data if values.numel() else b"")
    return digest.hexdigest()


def hash_vocabulary(vocabulary: Mapping[str, int]) -> str:
    """The first digits of a hash of every token with its number."""
    return hashlib.sha256(json.dumps(sorted(vocabulary.items())).encode()).hexdigest()[:12]


def steps_of(compose: Any) -> PixelSteps | None:
    """The steps of a torchvision `Compose` for evaluation, as timm and open_clip build it; None if it has others."""
    found: dict[str, Any] = {}
    for step in compose.transforms:
        kind = type(step).__name__
        if kind == "Resize" and "size" not in found:
            size = step.size if isinstance(step.size, int) else tuple(step.size)
            found |= {"resize": size, "interpolation": getattr(step.interpolation, "value", None)}
        elif kind == "CenterCrop":
            found["size"] = (step.size, step.size) if isinstance(step.size, int) else tuple(step.size)
        elif kind == "Normalize":
            found |= {key: tuple(map(_as_written, getattr(step, key))) for key in ("mean", "std")}
        elif kind not in ("ToTensor", "MaybeToTensor", "MaybeConvertMode", "function"):
            return None
    resize = found.get("resize")
    if resize is None or "mean" not in found or found["interpolation"] is None:
        return None
    if isinstance(resize, tuple):
        if len(resize) != 2 or found.setdefault("size", resize) != resize:
            return None
        found["resize"] = None
    return PixelSteps(**found) if "size" in found else None


def _as_written(value: Any) -> float:
    """0.485, where a tensor of float32 holds 0.48500001."""
    return value if isinstance(value, float) else float(str(np.float32(value)))


def keys_named(keys: Sequence[str]) -> str:
    """The first keys of a state dict, and how many more there are."""
    named = ", ".join(sorted(keys)[:3])
    return named if len(keys) <= 3 else f"{named} and {counted(len(keys) - 3, 'more')[:-1]}"
