"""Optional packages: imported where they are used, or the pip command that brings them."""

from __future__ import annotations

import importlib
from typing import Any

from recallatk.types import RecallatkError


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import an optional module.

    Args:
        module: the module's import name.
        extra: the extra of recallatk that installs it.
        purpose: what it is needed for, as the start of a sentence ("the encoder lite0").

    Raises:
        RecallatkError: the package is absent; the message is the pip command.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise RecallatkError(f"{purpose} needs {module.split('.')[0]}: pip install 'recallatk[{extra}]'") from error
