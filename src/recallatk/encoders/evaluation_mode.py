"""No model is evaluated in training mode: batch norm would mix the images of a batch, dropout would be chance."""

from __future__ import annotations

from typing import Any

from recallatk.types import RecallatkError
from recallatk.wording import and_more


def check_evaluation_mode(encoder: Any, name: str) -> None:
    """Refuse a torch module, or a method of one, that has a part in training mode; anything else passes.

    torch is not imported for it.

    Raises:
        RecallatkError: names the part and what to call.
    """
    bare = getattr(encoder, "encode", encoder)  # what `module:attribute` named is inside
    owners = (encoder, bare, getattr(encoder, "__self__", None), getattr(bare, "__self__", None))
    module = next((owner for owner in owners if hasattr(owner, "named_modules")), None)
    if module is None:
        return
    training = [part for part, child in module.named_modules() if getattr(child, "training", False)]
    if training:
        part = next((part for part in training if part), "the model itself")
        raise RecallatkError(
            f"encoder {name}: {part}{and_more(len(training), 'part')} in training mode, where batch norm and dropout "
            "make a row depend on its batch and on chance; call model.eval()"
        )
