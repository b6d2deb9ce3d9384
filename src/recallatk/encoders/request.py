"""What is asked for when an encoder is named: `scheme:target?option=value&option=value`, a device and a dtype."""

from __future__ import annotations

import dataclasses
import difflib
import glob
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Literal, TypeAlias, get_args

from recallatk.types import ChoiceError, RecallatkError

Dtype: TypeAlias = Literal["float32", "float16", "bfloat16", "autocast-float16", "autocast-bfloat16"]
DTYPES: tuple[str, ...] = get_args(Dtype)

PIXEL_OPTIONS = {
    "size": "height and width of the model's input: 224, or 224x160",
    "resize": "what comes before the centre crop: the shorter side in pixels, or squash (to the size, without a crop)",
    "interpolation": "nearest, bilinear, bicubic, lanczos, box or hamming",
    "mean": "one number or three, for pixels in 0..1",
    "std": "one number or three, for pixels in 0..1",
}
"""Options of every scheme: they replace a part of the model's own preprocessing, and that is noted."""

_OPTIONS = re.compile(r"[\w-]+=[^&]*(&[\w-]+=[^&]*)*")


@dataclasses.dataclass(frozen=True)
class Request:
    """An encoder that is asked for.

    Attributes:
        spec: the whole, as it was written; it begins messages and is the encoder's name.
        target: what follows the scheme: a model's name, or a file.
        options: what follows the question mark.
        device: auto (a GPU if torch sees one, else the processor), or a name that torch knows, such as cuda:1.
        dtype: float32; float16 or bfloat16 for weights and arithmetic; autocast-... for torch's choice by operation.
    """

    spec: str
    target: str
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    device: str = "auto"
    dtype: Dtype = "float32"

    def fault(self, what: str) -> RecallatkError:
        """An error that begins with the encoder that was asked for."""
        return RecallatkError(f"encoder {self.spec}: {what}")

    def wrong_choice(self, what: str) -> ChoiceError:
        """The same, for a name or a value that does not exist."""
        return ChoiceError(f"encoder {self.spec}: {what}")


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """The target, and the options behind its last question mark (a question mark without options is a glob's).

    Raises:
        ChoiceError: an option is given twice.

    >>> split_options("resnet18?size=192&mean=0.5")
    ('resnet18', {'size': '192', 'mean': '0.5'})
    >>> split_options("epoch_?.pt")
    ('epoch_?.pt', {})
    """
    target, mark, tail = text.rpartition("?")
    if not mark or not _OPTIONS.fullmatch(tail):
        return text, {}
    options: dict[str, str] = {}
    for part in tail.split("&"):
        key, _, value = part.partition("=")
        if key in options:
            raise ChoiceError(f"encoder {text}: the option {key} is given more than once")
        options[key] = value
    return target, options


def check_options(request: Request, known: Sequence[str]) -> None:
    """Refuse an option that the scheme does not have.

    Raises:
        ChoiceError: names the option and the nearest one.
    """
    for key in request.options:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise request.wrong_choice(f"there is no option {key!r}; {hint}choose from {', '.join(known)}")


def files_of_series(spec: str, target: str) -> tuple[str, ...]:
    """The files that a pattern names, in natural order (epoch_2 before epoch_10); a plain path is itself.

    Raises:
        RecallatkError: no file matches.
    """
    if not glob.has_magic(target) or Path(target).exists():
        return (target,)
    paths = glob.glob(target, recursive=True)  # noqa: PTH207 - a pattern may begin anywhere
    files = [path for path in paths if Path(path).is_file()]
    if not files:
        raise RecallatkError(f"encoder {spec}: no file matches {target}; check the pattern, or the current folder")
    return tuple(sorted(files, key=natural_order))


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts the numbers in a name as numbers.

    The suffix counts last: a name that goes on comes after the one that ends.

    >>> sorted(["epoch_10.pt", "epoch_9.pt", "epoch_2.5.pt", "epoch_2.pt"], key=natural_order)
    ['epoch_2.pt', 'epoch_2.5.pt', 'epoch_9.pt', 'epoch_10.pt']
    """
    suffix = PurePath(name).suffix
    parts = (*re.split(r"(\d+)", name.removesuffix(suffix)), suffix)
    return tuple((int(part), part) if part.isdecimal() else (-1, part) for part in parts)
