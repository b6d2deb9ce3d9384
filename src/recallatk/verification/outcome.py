"""What a verification found: what moved, what may have moved it, and what could not be checked."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal, TypeAlias

from recallatk.wording import one_line

ITEMS_SHOWN = 10

Part: TypeAlias = Literal[
    "record",
    "images",
    "skipped",
    "labels",
    "columns",
    "relevance",
    "protocol",
    "encoder",
    "weights",
    "preprocessing",
    "decoding",
    "embeddings",
    "values",
    "intervals",
    "queries",
]
"""The parts of a run, causes before results: the order in which they are shown."""


@dataclasses.dataclass(frozen=True)
class Moved:
    """One thing that is not as the run says.

    Attributes:
        part: what it is of.
        text: what moved, and how many.
        items: which ones, a line each; all of them.
    """

    part: Part
    text: str
    items: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Verification:
    """What `verify_run` found.

    Attributes:
        run: the folder of the run.
        run_id: its id.
        checked: what was repeated, in words.
        moved: everything that is not as the run says, causes first; empty: the run is identical.
        causes: what may have moved the numbers where neither data nor encoder did, such as another version.
        unchecked: what could not be held against anything, a line each.
        notes: what is good to know and moved no number, such as another order of the rows.
    """

    run: str
    run_id: str
    checked: str
    moved: tuple[Moved, ...] = ()
    causes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def identical(self) -> bool:
        """Whether everything that could be checked is as the run says."""
        return not self.moved

    def text(self) -> str:
        """The outcome as it is printed: one line first that says which, then sections as they apply."""
        if self.identical:
            limits = ", as far as could be checked" if self.unchecked else ""
            first = f"identical{limits}: {self.checked} (run id {self.run_id})"
        else:
            parts = ", ".join(dict.fromkeys(moved.part for moved in self.moved))
            same = "" if {"values", "queries"} & {moved.part for moved in self.moved} else "; every number is the same"
            first = f"differs in {parts}{same}: {self.checked} (run id {self.run_id})"
        lines = [first]
        if self.moved:
            lines.append("[moved]")
        for moved in self.moved:
            lines.append(one_line(f"{moved.part}: {moved.text}"))
            lines += [f"  {one_line(item)}" for item in moved.items[:ITEMS_SHOWN]]
            if len(moved.items) > ITEMS_SHOWN:
                lines.append(f"  and {len(moved.items) - ITEMS_SHOWN:,} more (--json has all)")
        for name, section in (("likely cause", self.causes), ("not checked", self.unchecked), ("notes", self.notes)):
            if section:
                lines += [f"[{name}]", *map(one_line, section)]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything as strict JSON."""
        return json.dumps({"identical": self.identical, **dataclasses.asdict(self)}, indent=2, ensure_ascii=False)
