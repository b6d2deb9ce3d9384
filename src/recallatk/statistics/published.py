"""A printed number against a run: which counts of hits print so, which numbers of queries can, and an exact test.

Printed digits are taken as they stand: all arithmetic on them is on whole numbers and fractions.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from fractions import Fraction

from recallatk.types import ChoiceError
from recallatk.wording import counted

ALPHA = 0.05
SMALLEST_SHOWN = 8
LARGEST_N_TRIED = 200_000
"""Numbers of queries that are tried; with more digits than these can give, larger ones are left untried."""

_FORM = re.compile(r"(?:(?P<metric>[^=\s]+)\s*=)?\s*(?P<digits>\d+(?:\.\d+)?|\.\d+)\s*(?P<percent>%?)")


@dataclasses.dataclass(frozen=True)
class PublishedNumber:
    """A number as it was printed.

    Attributes:
        metric: what it is of ("recall@5"); None: the run's first.
        printed: the digits as given, such as "69.9%".
        value: what they say, in 0..1.
        step: one unit of the last digit, in 0..1: 1/1000 for 0.699 and for 69.9%.
    """

    metric: str | None
    printed: str
    value: Fraction
    step: Fraction

    @property
    def low(self) -> Fraction:
        """The least value that prints so; it does so when a half is rounded up."""
        return max(self.value - self.step / 2, Fraction(0))

    @property
    def high(self) -> Fraction:
        """The end of the values that print so."""
        return min(self.value + self.step / 2, Fraction(1))

    @property
    def high_included(self) -> bool:
        """Whether the end itself prints so: when halves go to the even digit and the last digit is even."""
        return self.value + self.step / 2 > 1 or (self.value / self.step) % 2 == 0

    def prints(self, value: Fraction) -> bool:
        """Whether a value is printed with these digits, a half being rounded up or to the even digit."""
        return self.low <= value < self.high or (value == self.high and self.high_included)

    def nearest(self, value: Fraction) -> Fraction:
        """Of the values that print so the one that is nearest to a value."""
        return min(max(value, self.low), self.high)

    def hits(self, n: int) -> range:
        """The counts of hits among n queries that print so; empty where none does."""
        first, last = math.ceil(self.low * n), math.floor(self.high * n)
        return range(first, last + (Fraction(last, n) != self.high or self.high_included))

    @property
    def every_n_from(self) -> int:
        """From this number of queries on some count of hits prints so, whatever the number."""
        return math.ceil(1 / self.step)

    def smallest_n(self, most: int = SMALLEST_SHOWN, up_to: int = LARGEST_N_TRIED) -> tuple[int, ...]:
        """The smallest numbers of queries of which some count of hits prints so."""
        # Whole numbers over one denominator: as exact as fractions, and much faster.
        low, high = self.low, self.high
        scale = math.lcm(low.denominator, high.denominator)
        low_part, high_part = int(low * scale), int(high * scale)
        found: list[int] = []
        for n in range(1, up_to + 1):
            first = -(-low_part * n // scale)
            if first * scale < high_part * n or (first * scale == high_part * n and self.high_included):
                found.append(n)
                if len(found) == most:
                    break
        return tuple(found)


@dataclasses.dataclass(frozen=True)
class OtherCount:
    """Another number of queries that may stand behind a printed number.

    Attributes:
        what: in words.
        n: how many queries.
        fits: whether some count of hits among them prints so.
        ours_prints: whether our hits among them do.
    """

    what: str
    n: int
    fits: bool
    ours_prints: bool


@dataclasses.dataclass(frozen=True)
class PublishedCheck:
    """What a printed number and a run say of each other.

    Attributes:
        published: the number.
        metric: what was compared.
        value: ours, in 0..1.
        n: our queries.
        hits: ours; None where the value is no share of queries (average=macro).
        hits_min: with every tie broken against us.
        hits_max: with every tie broken for us.
        reproduced: whether our value prints so.
        fitting_hits: the least and the largest count of hits among our n that prints so; None where none does, or
            where the value is no share of queries.
        p_value: the exact two-sided binomial test of our hits against the printed value
            (`scipy.stats.binomtest(hits, n, value)`); hits that ties leave open are rounded.
        p_nearest: the same against the nearest value that prints so, where that is larger: what the rounding hid is
            no difference.
        smallest_n: the smallest numbers of queries that can give these digits; empty where none up to
            LARGEST_N_TRIED can.
        others: other numbers of queries of this run that may have been meant.
    """

    published: PublishedNumber
    metric: str
    value: float
    n: int
    hits: float | None
    hits_min: int | None
    hits_max: int | None
    reproduced: bool
    fitting_hits: tuple[int, int] | None
    p_value: float | None
    p_nearest: float | None
    smallest_n: tuple[int, ...]
    others: tuple[OtherCount, ...]

    @property
    def _nearest(self) -> Fraction:
        """Of the values that print so the one that is nearest to ours."""
        return self.published.nearest(Fraction(self.hits or 0) / self.n)

    @property
    def verdict(self) -> str:
        """What it comes to, in one line."""
        printed = self.published.printed
        if self.reproduced:
            return f"reproduced: ours prints as {printed}"
        if self.p_value is None or self.p_nearest is None:
            return f"not reproduced: ours does not print as {printed}"
        queries = counted(self.n, "query", "queries")
        cannot = "" if self.fitting_hits else f", and no count of hits among {self.n:,} prints so"
        if self.p_value >= ALPHA:
            return f"not the same, but within the noise of {queries} (p = {self.p_value:.3g}){cannot}"
        if self._hidden_by_rounding:
            near = f"against {_decimal(self._nearest)}, which prints so: p = {self.p_nearest:.3g}"
            return f"not the same, but within the noise of {queries} and its rounding ({near}){cannot}"
        return f"different: more than the noise of {queries} explains (p = {self.p_value:.3g}){cannot}"

    @property
    def _hidden_by_rounding(self) -> bool:
        """Whether ours differs from the printed value, and not from one that prints so."""
        return self.p_value is not None and self.p_value < ALPHA <= (self.p_nearest or 0.0)

    def lines(self) -> list[str]:
        """The check as text, a line each, the verdict first."""
        published, n = self.published, self.n
        end = "<=" if published.high_included else "<"
        lines = [
            f"{self.metric}, published {published.printed}: {self.verdict}",
            f"prints as {published.printed}: {_decimal(published.low)} <= value {end} {_decimal(published.high)}",
        ]
        if self.hits is None:
            return [*lines, f"ours: {self.value:.6f}, a mean over labels: counts of hits and the test do not apply"]
        lines.append(f"ours: {self.value:.6f} ({_count(self.hits)} of {counted(n, 'query', 'queries')})")
        if self.hits_min != self.hits_max:
            lines.append(f"ties leave ours open between {self.hits_min:,} and {self.hits_max:,} hits")
        if self.fitting_hits is None:
            lines.append(
                f"no count of hits among {n:,} prints so: it was another number of queries, or no share of hits"
            )
        else:
            first, last = self.fitting_hits
            which = f"{first:,}" if first == last else f"{first:,} to {last:,}"
            lines.append(f"counts of hits among {n:,} that print so: {which}")
        smallest = ", ".join(f"{one:,}" for one in self.smallest_n)
        if smallest:
            every = self.published.every_n_from
            lines.append(f"smallest numbers of queries that can print so: {smallest}; from {every:,} on all can")
        else:
            lines.append(f"no number of queries up to {LARGEST_N_TRIED:,} can print so: no share of hits, or of more")
        for other in self.others:
            if other.ours_prints:
                lines.append(f"our hits among {other.n:,} ({other.what}) print so: that may be what was published")
            elif other.fits and self.fitting_hits is None:
                lines.append(f"{other.n:,} ({other.what}) can print so")
        if self.p_value is not None:
            lines.append(f"exact binomial test of ours against {_decimal(published.value)}: p = {self.p_value:.6g}")
            lines.append(
                "the test takes queries as independent and the published number as a constant; both make p too small"
            )
        return lines


def parse_published(text: str) -> PublishedNumber:
    """Read a printed number: `0.699`, `69.9%`, `recall@5=0.914`, `recall@5=91.4%`.

    Raises:
        ChoiceError: it has another form, or is above 1 and not in percent.

    >>> parse_published("recall@5=69.9%").value
    Fraction(699, 1000)
    >>> parse_published("0.699").hits(5924)
    range(4138, 4144)
    """
    form = _FORM.fullmatch(text.strip())
    if form is None or not text.isascii():
        raise ChoiceError(
            f"published {text!r} is no printed number; write its digits as they are printed: 0.699, 69.9%, or with "
            "the metric recall@5=91.4%"
        )
    digits, percent = form["digits"], form["percent"]
    whole = 100 if percent else 1
    value, step = Fraction(digits) / whole, Fraction(1, 10 ** len(digits.partition(".")[2])) / whole
    if value > 1:
        hint = "a share is at most 100%" if percent else f"write {digits}% if that is percent"
        raise ChoiceError(f"published {text!r} is above {whole}{percent}; {hint}")
    return PublishedNumber(form["metric"], digits + percent, value, step)


def check_published(
    published: PublishedNumber,
    *,
    metric: str,
    value: float,
    n: int,
    hits: float | None = None,
    hits_min: int | None = None,
    hits_max: int | None = None,
    other_counts: Mapping[str, int] | None = None,
) -> PublishedCheck:
    """Hold a printed number against ours.

    Args:
        published: the printed number.
        metric: what it is of.
        value: ours, in 0..1.
        n: our evaluated queries.
        hits: our hits, a real number under ties; None where the value is no share of queries (average=macro).
        hits_min: our hits with every tie broken against us; default `hits`.
        hits_max: our hits with every tie broken for us; default `hits`.
        other_counts: other numbers of queries that may have been meant, by what they are.

    >>> check = check_published(parse_published("0.699"), metric="recall@1", value=4100 / 5924, n=5924, hits=4100)
    >>> check.reproduced, check.fitting_hits, round(check.p_value, 6)
    (False, (4138, 4143), 0.251305)
    """
    if hits is None:
        reproduced = published.prints(Fraction(value))
        return PublishedCheck(published, metric, value, n, None, None, None, reproduced, None, None, None, (), ())
    from scipy.stats import binomtest

    ours = Fraction(hits)
    fitting = published.hits(n)
    others = [
        OtherCount(what, count, bool(published.hits(count)), ours <= count and published.prints(ours / count))
        for what, count in (other_counts or {}).items()
        if count > 0
    ]
    nearest = published.nearest(ours / n)
    p_value, p_nearest = (float(binomtest(round(hits), n, float(one)).pvalue) for one in (published.value, nearest))
    return PublishedCheck(
        published=published,
        metric=metric,
        value=value,
        n=n,
        hits=hits,
        hits_min=round(hits) if hits_min is None else hits_min,
        hits_max=round(hits) if hits_max is None else hits_max,
        reproduced=published.prints(ours / n),
        fitting_hits=(fitting[0], fitting[-1]) if fitting else None,
        p_value=p_value,
        p_nearest=max(p_value, p_nearest),
        smallest_n=published.smallest_n(),
        others=tuple(others),
    )


def _decimal(value: Fraction) -> str:
    """A fraction of a power of ten in its own digits.

    >>> _decimal(Fraction(6985, 10000))
    '0.6985'
    """
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = f"{int(value * 10**places):0{places + 1}d}"
    return f"{digits[:-places]}.{digits[-places:]}" if places else digits


def _count(hits: float) -> str:
    return f"{int(hits):,}" if float(hits).is_integer() else f"{hits:,.4f}"
