"""`module:attribute`: an encoder in the user's own code."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallatk.types import PreparingEncoder, RecallatkError, TextEncoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedEncoder:
    """Somebody's encoder under the name it was asked for by; the object itself is left as it is."""

    encode: Callable[[list[Any]], Any]
    name: str
    fingerprint: str | None
    preprocessing: Mapping[str, Any] | None
    encode_texts: Callable[[list[str]], Any] | None = None  # None: it is no TextEncoder
    text_preprocessing: Mapping[str, Any] | None = None

    def __call__(self, batch: list[Any], /) -> Any:
        """Hand the batch on, and the result back, unchanged."""
        return self.encode(batch)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedPreparingEncoder(NamedEncoder):
    """The same of an encoder that can be called in two steps."""

    prepare: Callable[[Any], Any]
    encode_prepared: Callable[[list[Any]], Any]


def load_callable(spec: str) -> NamedEncoder:
    """The encoder that `module:attribute` names; its own `name`, where it has one, stays.

    Raises:
        RecallatkError: no such module or attribute, a class that needs arguments, or nothing that can be called.
            Errors inside the module or the factory are not caught: they are the user's and keep their traceback.
    """
    module_name, _, attribute = spec.rpartition(":")
    target = _attribute(_module(module_name, spec), attribute, spec)
    encoder = _built(target, spec)
    if not callable(encoder):
        raise RecallatkError(
            f"encoder {spec!r}: it gives {type(encoder).__name__}, which cannot be called; "
            "an encoder takes a list of images and returns an array (n, d)"
        )
    own_name = getattr(encoder, "name", None)
    said: dict[str, Any] = {
        "encode": encoder,
        "name": own_name if isinstance(own_name, str) and own_name else spec,
        "fingerprint": getattr(encoder, "fingerprint", None),
        "preprocessing": getattr(encoder, "preprocessing", None),
        "encode_texts": encoder.encode_texts if isinstance(encoder, TextEncoder) else None,
        "text_preprocessing": getattr(encoder, "text_preprocessing", None),
    }
    if isinstance(encoder, PreparingEncoder):
        return NamedPreparingEncoder(**said, prepare=encoder.prepare, encode_prepared=encoder.encode_prepared)
    return NamedEncoder(**said)


def _module(name: str, spec: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
        dotted = name.removesuffix(".py").replace("/", ".").strip(".")
        raise RecallatkError(f"encoder {spec!r}: {name!r} is not a module's name; write it with dots, such as {dotted}")
    module = _import(name)
    if module is None and not {"", str(Path.cwd())} & set(sys.path):
        # Like `python -m`: the folder one stands in. It stays, for what the module imports later on.
        sys.path.insert(0, str(Path.cwd()))
        importlib.invalidate_caches()
        module = _import(name)
        if module is None:
            sys.path.remove(str(Path.cwd()))
    if module is None:
        raise RecallatkError(
            f"encoder {spec!r}: there is no module {name!r}, installed or in the current directory; "
            "check the name, or go to the folder that holds it"
        )
    return module


def _import(name: str) -> ModuleType | None:
    """The module, or None if there is none of that name; what goes wrong inside it is raised."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            return None
        raise


def _attribute(module: ModuleType, dotted: str, spec: str) -> Any:
    target: Any = module
    for part in dotted.split("."):
        if not part or not hasattr(target, part):
            public = [name for name in dir(target) if not name.startswith("_")]
            near = difflib.get_close_matches(part, public, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}?" if near else "check the name after the colon"
            place = getattr(module, "__file__", None) or module.__name__
            raise RecallatkError(f"encoder {spec!r}: there is no {part!r} in {place}; {hint}")
        target = getattr(target, part)
    return target


def _built(target: Any, spec: str) -> Any:
    """What a factory makes, or the object itself."""
    if not (inspect.isclass(target) or inspect.isroutine(target) or isinstance(target, functools.partial)):
        return target
    try:
        parameters = inspect.signature(target).parameters.values()
    except ValueError:  # compiled, without a signature
        parameters = None
    if parameters is None:
        return target() if inspect.isclass(target) else target
    required = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not required:
        return target() if inspect.isclass(target) else _made(target)
    if inspect.isclass(target):
        raise RecallatkError(
            f"encoder {spec!r}: the class needs arguments ({', '.join(required)}); "
            "name a function without arguments that returns the encoder"
        )
    return target


def _made(factory: Callable[[], Any]) -> Any:
    """What the factory returns; its error says why it was called, as it may be an encoder with a default too many."""
    try:
        return factory()
    except Exception as error:
        error.add_note(
            "recallatk called it without arguments because none is required, so it was taken for a function that "
            "makes an encoder; an encoder itself needs one required parameter, the batch"
        )
        raise
