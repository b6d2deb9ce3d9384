"""`recallatk datasets`: the layouts of DATA, what a benchmark is, and what an unknown copy is."""

# No `from __future__ import annotations`: the command line is made from these annotations.

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cyclopts import App

from recallatk.cli.flags import Reading
from recallatk.cli.printing import print_table
from recallatk.types import ChoiceError
from recallatk.wording import one_line

datasets = App(name="datasets", help="The layouts of DATA that are read; benchmarks are among them.")


@datasets.default
def list_layouts() -> None:
    """List the layouts of DATA."""
    from recallatk.datasets import LAYOUTS

    print_table(("layout", "what it is"), [(name, layout.summary) for name, layout in LAYOUTS.items()])


@datasets.command
def show(name: str, /) -> None:
    """Show a benchmark: its files, its evaluations, what was published, what goes wrong.

    Args:
        name: a layout that `recallatk datasets` lists.
    """
    from recallatk.datasets import describe_layout

    print(describe_layout(name), end="")


@datasets.command
def identify(data: Path, /) -> None:
    """Say what a folder or an archive of unknown origin is, by its content.

    Args:
        data: a folder that may be a copy of a benchmark, or hold its archives; or an archive.
    """
    from recallatk.datasets import BENCHMARKS
    from recallatk.datasets.benchmarks import identify as identify_copy

    found = identify_copy(data, BENCHMARKS)
    rows = [(one.name, one.part or "-", "yes" if one.official else "no", one_line(one.found)) for one in found]
    if rows:
        print_table(("benchmark", "part", "official", "what was found"), rows)
    else:
        print(f"{one_line(str(data))}: no copy of a benchmark that recallatk knows (see `recallatk datasets`)")


def part_of(layout: str | None, part: str | None) -> Any:
    """The part of a benchmark that --layout and --part name; None where the layout is no benchmark."""
    from recallatk.datasets import find_layout

    benchmark = None if layout is None else find_layout(layout).benchmark
    if benchmark is None:
        if part is not None:
            raise ChoiceError(f"--part {part} belongs to a benchmark; name it with --layout (see `recallatk datasets`)")
        return None
    return benchmark.parts[benchmark.part_named(part)]


def check_embeddings(encoded: Any, reading: Reading) -> Any:
    """Embeddings of a benchmark, their counts held against the official ones as those of images are."""
    import dataclasses

    from recallatk.datasets import find_layout
    from recallatk.datasets.benchmarks import check_counts

    benchmark = None if reading.layout is None else find_layout(reading.layout).benchmark
    if benchmark is None:
        return encoded
    part = benchmark.part_named(reading.part)
    warnings = check_counts(benchmark, part, encoded.query, encoded.gallery, counts=reading.counts)
    provenance = encoded.provenance
    provenance = dataclasses.replace(provenance, warnings=tuple(dict.fromkeys((*warnings, *provenance.warnings))))
    return dataclasses.replace(encoded, provenance=provenance, views=benchmark.parts[part].views)


def published_of(reading: Reading) -> Callable[[str, Any], list[str]]:
    """What prints how a report compares with the published rows of the benchmark that --layout names.

    Raises:
        ChoiceError: the layout is no benchmark, nothing was published for it, or only a sample of it is evaluated.
    """
    from recallatk.datasets import find_layout

    part = part_of(reading.layout, reading.part)
    if part is None:
        raise ChoiceError("--published needs a benchmark; name it with --layout (see `recallatk datasets`)")
    benchmark = find_layout(str(reading.layout)).benchmark
    parts = {name: benchmark.parts[name] for name in part.views} if benchmark else {}
    if not any(one.published for one in (part, *parts.values())):
        raise ChoiceError(
            f"--published: no row is known of --layout {reading.layout} in this part; hold a printed number against "
            "the run with `recallatk verify --published`"
        )
    if reading.limit is not None:
        raise ChoiceError("--published compares the whole benchmark; leave --limit out")

    def lines(name: str, report: Any) -> list[str]:
        from recallatk.comparison.published import compare_with_published, protocol_differences, published_lines

        # A run of one view is called by it, behind its encoder where there are several.
        own = parts.get(name.rpartition(" ")[2], part)
        known = {what: n for n, what in own.other_counts.items()}
        others = {"the official count": own.counts["queries"], **known} if "queries" in own.counts else known
        rows = [row for row in own.published if row.queries in (None, report.num_queries)]
        elsewhere = [row.system for row in own.published if row not in rows]
        systems = compare_with_published(report, rows, other_counts=others)
        different = protocol_differences(report, own.eval_protocol)
        warning = [f"ours is not under the published protocol: {'; '.join(different)}"] if different else []
        official = own.counts.get("queries", report.num_queries)
        if official != report.num_queries:
            warning.append(f"ours is of other images: {report.num_queries:,} queries, officially {official:,}")
        if elsewhere:
            warning.append(f"of other data than these {report.num_queries:,} queries: {'; '.join(elsewhere)}")
        if not rows:
            return ["[published]", *warning, "nothing to compare: no row is known of these data"]
        if not systems:
            printed = ", ".join(dict.fromkeys(metric for row in rows for metric in row.values))
            return [
                "[published]",
                *warning,
                f"nothing to compare: they are of {printed}, and the run has none of it",
            ]
        return ["[published]", *warning, *published_lines(systems)]

    return lines
