"""What stands on the command line before it becomes arguments: filled up from files, and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, Token

from recallatk.cli.datasets import part_of
from recallatk.types import ChoiceError, EvalProtocol


def fill_protocol(_app: App, _commands: Any, arguments: ArgumentCollection) -> None:
    """Fill protocol flags that were not given: from --protocol, from the benchmark, from what --qrels means."""
    from recallatk.run import read_protocol

    by_name = {name: argument for argument in arguments for name in argument.names}
    layout, part = (_given(by_name, name) for name in ("--layout", "--part"))
    path = _given(by_name, "--protocol") or ""
    found = read_protocol(path) if path else {}
    if _given(by_name, "--qrels") and "--relevance" in by_name:
        path, found = path or "--qrels", {"relevance": "qrels", **found}
    benchmark = part_of(layout, part) if "--relevance" in by_name else None
    if benchmark is not None:
        path, found = path or "--layout", {**benchmark.protocol, **found}
    for field, value in found.items():
        argument = by_name[f"--{field.replace('_', '-')}"]
        if not argument.tokens:
            values = value if isinstance(value, list | tuple) else [value]
            for index, one in enumerate(values):
                argument.append(Token(keyword=argument.names[0], value=str(one), source=path, index=index))


def _given(by_name: Mapping[str, Any], name: str) -> str | None:
    """The value of a flag that stands on the command line."""
    return by_name[name].tokens[0].value if name in by_name and by_name[name].tokens else None


def check_whole_numbers(_app: App, _commands: Any, arguments: ArgumentCollection) -> None:
    """Refuse 1.5 where a whole number is meant; the library would round it."""
    for argument in arguments:
        if int not in (argument.hint, *get_args(argument.hint)):
            continue
        wrong = [token.value for token in argument.tokens if not re.fullmatch(r"[+-]?[0-9]+", token.value)]
        if not wrong:
            continue
        problem = f"{wrong[0]!r} is not a whole number"
        if argument.name == "--ks":
            try:
                EvalProtocol(ks=(wrong[0],))  # type: ignore[arg-type]  # it has the words for what is wrong
            except ChoiceError as error:
                problem = str(error)
        raise ChoiceError(f"{argument.name}: {problem}")
