"""Plots as SVG inside the page: text stays text, and colours are those of the page, light or dark."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recallatk.extras import import_extra
from recallatk.page.curves import Point
from recallatk.wording import one_line

# Colours that nobody uses, each replaced by a variable of the page's style sheet.
COLOURS = {
    "ink": "#010101",
    "faint": "#020202",
    "hit": "#030303",
    "miss": "#040404",
    "first": "#050505",
    "second": "#060606",
    "third": "#070707",
    "fourth": "#080808",
}
SERIES = ("first", "second", "third", "fourth")
MARKS = ("o", "s", "^", "D")
DASHES = ("-", "--", "-.", ":")

Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Plot:
    """A drawn plot: how to read it, and what it shows in words, for those who cannot see it."""

    title: str
    says: str
    words: str
    svg: str


def check_plotting(purpose: str) -> None:
    """Refuse before any work is done where plots cannot be drawn.

    Raises:
        RecallatkError: matplotlib is not installed.
    """
    import_extra("matplotlib", "report", purpose)


def draw_recall(curves: Mapping[str, Sequence[Point]], ks: Sequence[int]) -> Plot:
    """Recall over K, with its interval as a band, and chance."""
    with _figure() as (figure, axes):
        for number, (name, points) in enumerate(curves.items()):
            colour = COLOURS[SERIES[number % len(SERIES)]]
            xs = [point.k for point in points]
            axes.plot(
                xs,
                [point.value for point in points],
                color=colour,
                label=_literal(name),
                linestyle=DASHES[number % len(DASHES)],
            )
            known = [point for point in points if point.low is not None]
            if known:
                axes.fill_between(
                    [p.k for p in known],
                    [p.low for p in known],
                    [p.high for p in known],
                    color=colour,
                    alpha=0.18,
                    lw=0,
                )
            at = [point for point in points if point.k in ks]
            axes.plot(
                [p.k for p in at],
                [p.value for p in at],
                MARKS[number % len(MARKS)],
                color=colour,
                markersize=5,
            )
        first = next(iter(curves.values()))
        if first[0].chance is not None:
            chance = [point.chance for point in first]
            axes.plot([point.k for point in first], chance, color=COLOURS["faint"], linestyle=":", label="chance")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("K, nearest gallery items looked at")
        axes.set_ylabel("recall@K")
        _legend(axes)
        said = [
            f"{name}: " + ", ".join(f"{p.value:.3f} at K={p.k}" for p in points if p.k in ks)
            for name, points in curves.items()
        ]
    says = "The band is the interval at each K; marks stand at the K of the report."
    return _plot("recall-over-k", "Recall over K", says, "; ".join(said) + ".", figure)


def draw_ranks(counts: Mapping[str, Sequence[tuple[str, int]]]) -> Plot:
    """At which rank the best positives stand."""
    names = list(dict.fromkeys(name for rows in counts.values() for name, _ in rows))
    with _figure() as (figure, axes):
        width = 0.8 / len(counts)
        for number, (name, rows) in enumerate(counts.items()):
            of = dict(rows)
            places = np.arange(len(names)) + (number - (len(counts) - 1) / 2) * width
            counted = [of.get(one, 0) for one in names]
            colour = COLOURS[SERIES[number % len(SERIES)]]
            bars = axes.barh(places, counted, width, color=colour, label=_literal(name))
            if len(counts) < 3:
                axes.bar_label(bars, [f"{count:,}" for count in counted], color=COLOURS["ink"], padding=3)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.14)
        axes.xaxis.set_major_locator(import_extra("matplotlib.ticker", "report", "a plot").MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlabel("queries")
        axes.set_ylabel("rank of the best positive")
        if len(counts) > 1:
            _legend(axes)
    said = "; ".join(
        f"{name}: " + ", ".join(f"{count:,} at rank {one}" for one, count in rows) for name, rows in counts.items()
    )
    says = "How many queries have their first right item at which rank."
    return _plot("ranks", "Rank of the best positive", says, said, figure)


def draw_similarities(best: Values, wrong: Values, missed: npt.NDArray[np.bool_], *, whole: bool) -> Plot:
    """The best positive against the nearest negative of each query: below the line is a miss.

    Args:
        best: the similarity of the best positive.
        wrong: that of the nearest negative.
        missed: which queries miss.
        whole: whether these are all queries that have both; if not, the plot says that they are a sample.
    """
    with _figure() as (figure, axes):
        for flags, name, colour, mark in ((~missed, "hit", "hit", "o"), (missed, "miss", "miss", "x")):
            if flags.any():
                axes.plot(
                    wrong[flags],
                    best[flags],
                    mark,
                    color=COLOURS[colour],
                    markersize=4 if mark == "o" else 5,
                    alpha=0.6,
                    label=f"{name} ({np.count_nonzero(flags):,})",
                    markeredgewidth=0 if mark == "o" else 1.3,
                )
        low, high = min(best.min(), wrong.min()), max(best.max(), wrong.max())
        pad = (high - low or 1) * 0.04
        axes.plot([low - pad, high + pad], [low - pad, high + pad], color=COLOURS["faint"], linestyle="--", lw=1)
        axes.set_xlabel("similarity of the nearest negative")
        axes.set_ylabel("similarity of the best positive")
        _legend(axes)
    title, says = "Best positive against nearest negative", "One mark a query"
    if not whole:
        title, says = f"{title} (a random {len(best):,} queries)", f"{says}, of a random {len(best):,} of them"
    words = (
        f"Median similarity of the best positive {np.median(best):.3f}, of the nearest negative "
        f"{np.median(wrong):.3f}; the nearest negative is nearer in {np.count_nonzero(wrong > best):,} of "
        f"{len(best):,} queries."
    )
    says += ". Below the line, a wrong item is nearer than every right one."
    return _plot("similarities", title, says, words, figure)


@dataclasses.dataclass(frozen=True)
class Line:
    """One curve of a history; None where a run has no value."""

    name: str
    values: Sequence[float | None]
    lows: Sequence[float | None]
    highs: Sequence[float | None]


def draw_history(steps: Sequence[str], lines: Sequence[Line], failed: Sequence[int]) -> Plot:
    """Values over the steps, with their intervals; what failed is a gap and a mark at the bottom."""
    places = list(range(len(steps)))
    with _figure(width=5.6, height=3.3) as (figure, axes):
        for number, line in enumerate(lines):
            colour = COLOURS[SERIES[number % len(SERIES)]]
            values, lows, highs = (
                np.array([np.nan if one is None else one for one in column], np.float64)
                for column in (line.values, line.lows, line.highs)
            )
            mark, dash = MARKS[number % len(MARKS)], DASHES[number // len(SERIES) % len(DASHES)]
            axes.plot(places, values, mark, color=colour, linestyle=dash, label=_literal(line.name), markersize=5)
            axes.fill_between(places, lows, highs, color=colour, alpha=0.15, lw=0)
        if failed:
            bottom = axes.get_xaxis_transform()
            axes.plot(
                failed,
                [0.03] * len(failed),
                "x",
                color=COLOURS["miss"],
                transform=bottom,
                label="failed",
                clip_on=False,
            )
        shown = places[:: max(1, -(-len(places) // 10))]
        texts = [_literal(steps[place])[-16:] for place in shown]
        turned = 30 if sum(map(len, texts)) > 60 else 0
        axes.set_xticks(shown, texts, rotation=turned, ha="right" if turned else "center")
        axes.set_xlabel("step")
        _legend(axes)
    said = "; ".join(f"{line.name} from {_first(line.values):.3f} to {_first(line.values[::-1]):.3f}" for line in lines)
    says = "The bands are intervals over other queries."
    return _plot("history", "Values over the steps", says, f"{said}.", figure)


def _first(values: Sequence[float | None]) -> float:
    return next((value for value in values if value is not None), float("nan"))


def _legend(axes: Any) -> None:
    """Above the plot, where it covers nothing; one below the other where names are long."""
    names = axes.get_legend_handles_labels()[1]
    columns = len(names) if sum(map(len, names)) + 5 * len(names) < 48 else 1
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2, columnspacing=1.4)


@contextlib.contextmanager
def _figure(width: float = 4.7, height: float = 3.3) -> Iterator[tuple[Any, Any]]:
    """A figure and its axes, in the colours of the page, without the state that pyplot shares with its user."""
    matplotlib = import_extra("matplotlib", "report", "a plot")
    figures = import_extra("matplotlib.figure", "report", "a plot")
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
        figure = figures.Figure(figsize=(width, height), layout="constrained")
        yield figure, figure.add_subplot()


_STYLE = {
    "backend": "svg",
    "svg.fonttype": "none",
    "svg.hashsalt": "recallatk",
    "font.family": ["sans-serif"],
    "font.size": 10,
    "axes.labelsize": 10,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "legend.fontsize": 10,
    "legend.handlelength": 1.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), COLOURS["ink"]),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), COLOURS["faint"]),
}


def _plot(name: str, title: str, says: str, words: str, figure: Any) -> Plot:
    matplotlib = import_extra("matplotlib", "report", "a plot")
    stream = io.StringIO()
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **_STYLE}):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    return Plot(title, says, words, _for_page(stream.getvalue(), name, title, words))


def _for_page(svg: str, name: str, title: str, words: str) -> str:
    """The drawing alone, with ids of its own, colours as variables, a title and a description."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<[^>]*>", lambda tag: _adapt(tag[0], name), svg)  # not the text: a run may be called #010101
    box = re.search(r'viewBox="[^"]*"', svg)
    end = svg.index(">")
    described = (
        f'<svg {box[0] if box else ""} role="img" class="plot" aria-labelledby="{name}-title {name}-words">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-words">{html.escape(one_line(words))}</desc>'
    )
    return described + svg[end + 1 :]


def _adapt(tag: str, name: str) -> str:
    """One tag of a drawing, with ids of its own and colours as variables."""
    tag = re.sub(r'\bid="', f'id="{name}-', tag)
    tag = re.sub(r"url\(#", f"url(#{name}-", tag)
    tag = re.sub(r'href="#', f'href="#{name}-', tag)
    tag = re.sub(r"font: ([\d.]+px) 'sans-serif'", r"font-size: \1", tag)
    for variable, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{variable})")
    return tag


def _literal(text: str) -> str:
    """Text that matplotlib does not take for a formula, and that fits."""
    text = one_line(text)
    return (text if len(text) <= 30 else text[:29] + "…").replace("$", r"\$").lstrip("_") or "run"
