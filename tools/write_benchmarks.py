"""Write what the table of benchmarks says into docs/protocols.md, between its markers.

    python tools/write_benchmarks.py [--check]

Run it after a row of `recallatk.datasets.BENCHMARKS` changed. Exit status 1 with --check: the page is not current.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from recallatk.datasets import BENCHMARKS
from recallatk.datasets.benchmarks import Benchmark, Part
from recallatk.datasets.benchmarks.writing import command, protocol_text
from written_pages import write_or_check

PAGE = Path(__file__).parents[1] / "docs" / "protocols.md"
END = "<!-- end of benchmark -->"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown, a line each."""
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines] + [""]


def block(name: str, benchmark: Benchmark) -> str:
    """All that the table says of a benchmark."""
    lines = [f"#### {benchmark.title}", "", f"`--layout {name}`: {benchmark.summary}. On disk:", ""]
    lines += [f"- `{file}`: {what}" for file, what in benchmark.files.items()]
    lines += [f"- md5 of `{archive}`: `{md5}`" for md5, archive in benchmark.archives.items()]
    lines += ["", *table(["part", "what is evaluated", "counts", "protocol", "metrics"], _parts(benchmark))]
    lines += ["```bash", *(command(name, benchmark, part) for part in benchmark.whole_parts), "```", ""]
    for part_name, part in benchmark.whole_parts.items():
        lines += _published(part_name, part) if part.published else []
    parts: dict[tuple[int, str], list[str]] = {}
    for part_name, part in benchmark.whole_parts.items():
        for other in part.other_counts.items():
            parts.setdefault(other, []).append(part_name)
    others = [f"- {count:,} ({', '.join(names)}): {what}." for (count, what), names in parts.items()]
    lines += ["Counts that say that it is another copy, or another part:", "", *others, ""] if others else []
    lines += ["What goes wrong:", "", *(f"- {trap}" for trap in benchmark.traps), ""] if benchmark.traps else []
    return "\n".join(lines).rstrip()


def _parts(benchmark: Benchmark) -> list[list[str]]:
    return [
        [
            f"`{name}`" + " (default)" * (name == benchmark.default_part),
            part.summary,
            ", ".join(f"{count:,} {what}" for what, count in part.counts.items()) or "-",
            f"`{protocol_text(part)}`",
            ", ".join(f"`{metric}`" for metric in part.metrics) or "-",
        ]
        for name, part in benchmark.whole_parts.items()
    ]


def _published(name: str, part: Part) -> list[str]:
    metrics = list(dict.fromkeys(metric for row in part.published for metric in row.values))
    rows = [[row.system, *(row.values.get(metric, "") for metric in metrics), row.source] for row in part.published]
    of = ", with runs of as many queries" if any(row.queries is not None for row in part.published) else ""
    return [f"Published under `{name}`, with the digits as printed (`--published` compares{of}):", "",
            *table(["system", *(f"`{metric}`" for metric in metrics), "source"], rows)]  # fmt: skip


def render(page: str) -> str:
    """The page with the current text between its markers, `<!-- benchmark: NAME -->` and `<!-- end of benchmark -->`.

    Raises:
        ValueError: a benchmark has no marker, or a marker has no benchmark.
    """
    marks = re.compile(rf"(<!-- benchmark: (\S+) -->\n).*?({re.escape(END)})", re.DOTALL)
    marked = [name for _, name, _ in marks.findall(page)]
    if sorted(marked) != sorted(BENCHMARKS):
        raise ValueError(f"the page has markers for {sorted(marked)}, the benchmarks are {sorted(BENCHMARKS)}")
    return marks.sub(lambda found: f"{found[1]}{block(found[2], BENCHMARKS[found[2]])}\n{found[3]}", page)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, render, __doc__))
