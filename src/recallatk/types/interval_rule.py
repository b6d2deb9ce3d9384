"""How intervals are made: it never changes a number, only what is said of its precision."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias, get_args

from recallatk.types.checks import valid_text
from recallatk.types.errors import ChoiceError

IntervalMethod: TypeAlias = Literal["cluster-t", "cluster-bootstrap", "wilson", "clopper-pearson", "none"]
"""`ci`. The first two know that queries of one cluster are alike; the next two take every query as independent."""


@dataclasses.dataclass(frozen=True)
class IntervalRule:
    """How the interval beside a value is made.

    Attributes:
        ci: the interval: cluster-t (robust to queries of one label that are alike), cluster-bootstrap, wilson or
            clopper-pearson (every query on its own), none.
        cluster: what queries of one cluster share: label, or a column of the queries.
        confidence: the share of such intervals that hold the true value, in 0..1.
    """

    ci: IntervalMethod = "cluster-t"
    cluster: str = "label"
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.ci not in get_args(IntervalMethod):
            raise ChoiceError(f"ci={self.ci!r} is not a choice; choose one of: {', '.join(get_args(IntervalMethod))}")
        if not isinstance(self.cluster, str) or not self.cluster:
            raise ChoiceError(f"cluster={self.cluster!r} is no column; name one, or label")
        object.__setattr__(self, "cluster", valid_text(self.cluster))
        try:
            object.__setattr__(self, "confidence", float(self.confidence))
        except (TypeError, ValueError) as error:
            raise ChoiceError(f"confidence={self.confidence!r}: {error}") from error
        if not 0 < self.confidence < 1:
            raise ChoiceError(f"confidence={self.confidence!r} is no share between 0 and 1; 0.95 is usual")

    @property
    def alpha(self) -> float:
        """The level of a test that goes with it: 1 - confidence, in its own digits."""
        return round(1 - self.confidence, 12)

    @property
    def clustered(self) -> bool:
        """Whether queries of one cluster are taken together."""
        return self.ci in ("cluster-t", "cluster-bootstrap")
