"""A benchmark in words, for people: `recallatk datasets show NAME`."""

from __future__ import annotations

from recallatk.datasets.benchmarks.description import Benchmark, Part


def describe(name: str, benchmark: Benchmark) -> str:
    """Everything the table says of a benchmark, in sections like those of a report."""
    lines = [f"{name}: {benchmark.title}", benchmark.summary, "[files]"]
    lines += [f"{file}: {what}" for file, what in benchmark.files.items()]
    lines += [f"{archive}: md5 {md5}" for md5, archive in benchmark.archives.items()]
    for part_name, part in benchmark.whole_parts.items():
        lines += [f"[part {part_name}{' (default)' * (part_name == benchmark.default_part)}]", part.summary]
        lines += [f"{what}: {count:,}" for what, count in part.counts.items()]
        lines += [f"evaluates: {', '.join(part.views)}"] if part.views else []
        lines += [f"protocol: {protocol_text(part)}"]
        lines += [f"metrics: {', '.join(part.metrics)}"] if part.metrics else []
        lines += [f"with {count:,} it is: {what}" for count, what in part.other_counts.items()]
        lines += [f"command: {command(name, benchmark, part_name)}"]
        for row in part.published:
            printed = ", ".join(f"{metric} {digits}" for metric, digits in row.values.items())
            lines.append(f"published: {row.system}: {printed} ({row.source})")
    lines += ["[what goes wrong]", *benchmark.traps] if benchmark.traps else []
    return "\n".join(lines) + "\n"


def protocol_text(part: Part) -> str:
    """The fields that differ from the defaults, as flags are written."""
    named = [
        f"{field}={','.join(map(str, value)) if isinstance(value, tuple) else value}"
        for field, value in part.protocol.items()
    ]
    return " ".join(named) or "the defaults"


def command(name: str, benchmark: Benchmark, part: str) -> str:
    """The one command that evaluates a part."""
    chosen = f" --part {part}" if part != benchmark.default_part else ""
    return f"recallatk eval DATA --layout {name}{chosen} --encoder SPEC"
