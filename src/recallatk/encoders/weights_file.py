"""Weights on disk: a state dict is read without running code, and nothing of it is dropped unsaid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from recallatk.encoders.torch_model import import_torch, keys_named
from recallatk.extras import import_extra
from recallatk.types import first_line
from recallatk.wording import counted

if TYPE_CHECKING:
    from recallatk.encoders.request import Request

State: TypeAlias = Mapping[str, Any]

# Where training scripts put the state dict in what they save; the first that is there is taken.
ENTRIES = ("state_dict", "model_state_dict", "model", "module", "net", "encoder", "backbone", "teacher", "student")
# What wrappers put in front of each name.
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.", "encoder.", "net.", "student.", "teacher.")


def read_state(path: str, request: Request) -> tuple[dict[str, Any], list[str]]:
    """The tensors by name that a file holds, and what to note on where they lay in it.

    Raises:
        RecallatkError: no such file, not readable without running code, or no tensors by name in it.
    """
    torch = import_torch(request.spec)
    file = Path(path)
    if not file.is_file():
        raise request.fault(f"there is no file {path}; check the path")
    try:
        if file.suffix == ".safetensors":
            safetensors = import_extra("safetensors.torch", "safetensors", f"reading {path}")
            loaded = safetensors.load_file(file)
        else:
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # each format, and each version of torch, has errors of its own
        if type(error).__name__ == "RecallatkError":
            raise
        raise request.fault(
            f"{path} cannot be read as weights ({first_line(error)}); save the state dict alone, with "
            "torch.save(model.state_dict(), path) or safetensors: files that run code are not opened"
        ) from error
    return _tensors(loaded, path, request)


def _tensors(loaded: Any, path: str, request: Request) -> tuple[dict[str, Any], list[str]]:
    notes = []
    wanted = request.options.get("entry")
    holder = loaded
    if isinstance(loaded, Mapping):
        entries = [key for key in loaded if isinstance(loaded[key], Mapping) and _has_tensors(loaded[key])]
        if wanted is not None and wanted not in entries:
            raise request.wrong_choice(f"entry={wanted} is not in {path}; it holds {', '.join(entries) or 'no entry'}")
        if wanted is None and not _has_tensors(loaded):
            wanted = next((key for key in (*ENTRIES, *entries) if key in entries), None)
        if wanted is not None:
            holder = loaded[wanted]
            others = [key for key in entries if key != wanted]
            beside = f"; beside it there is {', '.join(others)}: choose with entry=" if others else ""
            notes.append(f"the weights are the entry {wanted!r} of {Path(path).name}{beside}")
    if not isinstance(holder, Mapping) or not _has_tensors(holder):
        raise request.fault(
            f"{path} holds no tensors by name ({type(holder).__name__}); save model.state_dict(), not something else"
        )
    return {str(key): value for key, value in holder.items() if hasattr(value, "detach")}, notes


def _has_tensors(state: Mapping[Any, Any]) -> bool:
    return any(hasattr(value, "detach") and isinstance(key, str) for key, value in state.items())


def load_weights(model: Any, path: str, request: Request, *, heads: Sequence[str]) -> list[str]:
    """Fill a model from a file, and say what of the file was not used.

    Args:
        model: the module; all its weights must be in the file.
        path: the file.
        request: what was asked for.
        heads: names of the parts that the model had and that the embedding does without, such as "fc".

    Returns:
        Notes for people.

    Raises:
        RecallatkError: names keys that are missing, that nobody expects, or that have another shape.
    """
    state, notes = read_state(path, request)
    own = model.state_dict()
    prefix, state, outside = without_prefix(state, own)
    if prefix:
        notes.append(f"the names in {Path(path).name} begin with {prefix!r}, which was taken off")
    missing = [key for key in own if key not in state and not key.endswith("num_batches_tracked")]
    extra = [key for key in state if key not in own]
    head = [key for key in extra if any(key == name or key.startswith(f"{name}.") for name in heads)]
    unexpected = [key for key in extra if key not in head]
    shapes = [key for key in own if key in state and own[key].shape != state[key].shape]
    if missing or unexpected or shapes:
        faults = [
            f"{counted(len(keys), 'key')} {what} ({keys_named(keys)})"
            for keys, what in ((missing, "missing"), (unexpected, "unexpected"))
            if keys
        ]
        if shapes:
            first = shapes[0]
            there, here = tuple(state[first].shape), tuple(own[first].shape)
            faults.append(
                f"{counted(len(shapes), 'key')} of another shape "
                f"({first} is {there} in the file and {here} in the model)"
            )
        raise request.fault(
            f"{path} does not fit the model: {'; '.join(faults)}; name the architecture it was made for"
        )
    model.load_state_dict({key: state[key] for key in own if key in state}, strict=False)
    if head:
        notes.append(f"{counted(len(head), 'key')} of the head left out ({keys_named(head)})")
    if outside:
        notes.append(f"{counted(len(outside), 'key')} beside the model left out ({keys_named(outside)})")
    return notes


def without_prefix(state: State, own: State) -> tuple[str, dict[str, Any], list[str]]:
    """The wrappers' prefix under which most of the model's names are found, the state without it, and what has none.

    >>> without_prefix({"module.a": 1, "module.b": 2, "loss.w": 3}, {"a": 0, "b": 0})
    ('module.', {'a': 1, 'b': 2}, ['loss.w'])
    """
    prefixes = ["", *PREFIXES, *(first + second for first in PREFIXES for second in PREFIXES if first != second)]
    found = {prefix: sum(prefix + key in state for key in own) for prefix in prefixes}
    best = max(prefixes, key=lambda prefix: (found[prefix], -len(prefix)))
    inside = {key.removeprefix(best): value for key, value in state.items() if key.startswith(best)}
    return best, inside, [key for key in state if not key.startswith(best)]
