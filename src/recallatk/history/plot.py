"""The curve as a picture, without a display and without the state that pyplot shares with its user."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from recallatk.extras import import_extra
from recallatk.types import ChoiceError, RecallatkError
from recallatk.wording import one_line

if TYPE_CHECKING:
    from recallatk.history.curve import History

SUFFIXES = (".png", ".svg")
_LONGEST_LABEL = 24


def check_plot(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be drawn, before any work is done.

    Raises:
        ChoiceError: it is neither PNG nor SVG.
        RecallatkError: matplotlib is not installed.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ChoiceError(f"--plot {path}: a plot is a .png or .svg file; name one")
    import_extra("matplotlib", "plot", f"--plot {path}")


def plot_history(history: History, path: str | os.PathLike[str]) -> None:
    """Draw the values over the steps, with their intervals; failed and missing runs are marked below.

    Args:
        history: what `track` returned.
        path: a .png or .svg file.

    Raises:
        ChoiceError: another suffix.
        RecallatkError: matplotlib is not installed (`pip install 'recallatk[plot]'`), or the file cannot be written.
    """
    check_plot(path)
    matplotlib = import_extra("matplotlib", "plot", f"--plot {path}")
    figure_module = import_extra("matplotlib.figure", "plot", f"--plot {path}")
    ticker = import_extra("matplotlib.ticker", "plot", f"--plot {path}")
    steps = history.steps
    numbers = _numbers(history)
    figure = figure_module.Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    # What failed is a gap in the line.
    values = [math.nan if step.value is None else step.value for step in steps]
    lows = [value if step.interval is None else step.interval.low for step, value in zip(steps, values, strict=True)]
    highs = [value if step.interval is None else step.interval.high for step, value in zip(steps, values, strict=True)]
    axes.plot(numbers, values, marker="o", color="C0", label=_literal(history.metric))
    if any(step.interval for step in steps):
        label = f"{100 * history.rule.confidence:g} % interval, over other queries"
        axes.fill_between(numbers, lows, highs, alpha=0.2, color="C0", label=label)
        axes.vlines(numbers, lows, highs, color="C0", alpha=0.4, linewidth=1)  # a band of one run has no width
    best = next(place for place, step in zip(numbers, steps, strict=True) if step is history.best)
    axes.plot(
        [best],
        [history.best.value],
        marker="o",
        markersize=11,
        fillstyle="none",
        color="C1",
        linestyle="",
        label="best",
    )
    failed = [place for place, step in zip(numbers, steps, strict=True) if step.value is None]
    if failed:
        bottom = axes.get_xaxis_transform()
        axes.plot(failed, [0.03] * len(failed), "x", color="C3", transform=bottom, label="failed", clip_on=False)
    if _are_numbers(history):
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=all(n == int(n) for n in numbers)))
        axes.set_xlabel("step" if not history.missing else _literal(f"step (no run for {', '.join(history.missing)})"))
    else:
        shown = [_literal(s.step if len(s.step) <= _LONGEST_LABEL else f"...{s.step[-_LONGEST_LABEL:]}") for s in steps]
        axes.set_xticks(numbers, shown, rotation=30, ha="right")
    axes.set_ylabel(_literal(history.metric))
    axes.set_title(f"{history.best.n:,} queries", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        # Without a date and with names of its own for clips, the same history gives the same bytes.
        metadata = {"Date": None} if Path(path).suffix.lower() == ".svg" else None
        with matplotlib.rc_context({"svg.hashsalt": "recallatk", "svg.fonttype": "none"}):
            figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise RecallatkError(f"{path}: cannot be written ({error.strerror or error})") from error


def _literal(text: str) -> str:
    """Text that matplotlib does not take for a formula."""
    return one_line(text).replace("$", r"\$")


def _are_numbers(history: History) -> bool:
    return all(step.number is not None for step in history.steps)


def _numbers(history: History) -> list[float]:
    if _are_numbers(history):
        return [step.number for step in history.steps if step.number is not None]
    return [float(row) for row in range(len(history.steps))]
