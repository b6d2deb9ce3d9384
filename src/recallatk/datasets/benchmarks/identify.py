"""What a folder or an archive of unknown origin is: told by what lies in it and by content, not by its name."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path

from recallatk.datasets.benchmarks.counting import deviations, in_words
from recallatk.datasets.benchmarks.description import Benchmark
from recallatk.datasets.benchmarks.files import is_there
from recallatk.types import RecallatkError

ARCHIVES = (".tgz", ".tar", ".gz", ".zip", ".bz2", ".xz")


@dataclasses.dataclass(frozen=True)
class Identified:
    """One thing that DATA may be.

    Attributes:
        name: the benchmark.
        part: which of its evaluations the copy was read for; None for an archive.
        found: what was found, as a text.
        official: whether it is the official data: the archive's hash, or every count.
    """

    name: str
    part: str | None
    found: str
    official: bool


def looks_like(data: Path, benchmarks: Mapping[str, Benchmark]) -> list[str]:
    """The benchmarks all of whose marks lie in a folder; nothing is read."""
    return [
        name
        for name, benchmark in benchmarks.items()
        if benchmark.marks and benchmark.reads == "folder" and all(is_there(data, mark) for mark in benchmark.marks)
    ]


def identify(data: Path, benchmarks: Mapping[str, Benchmark]) -> list[Identified]:
    """What a folder or an archive is, by content.

    Archives in DATA are told by their md5 whatever they are called; a folder is read as every benchmark and held
    against the official counts. What has the files of a benchmark and cannot be read is said, with the reason.

    Raises:
        RecallatkError: there is no such file or folder, or an archive cannot be read.
    """
    if not data.exists():
        raise RecallatkError(f"{data}: no such file or folder; name a folder or an archive")
    archives = [data] if data.is_file() else _archives(data)
    found = [one for archive in archives for one in _identify_archive(archive, benchmarks)]
    alike = looks_like(data, benchmarks)
    for name, benchmark in benchmarks.items():
        if (data.is_file() and benchmark.reads == "folder") or (data.is_dir() and benchmark.reads == "file"):
            continue
        for part_name, part in benchmark.whole_parts.items():
            try:
                dataset = benchmark.load(data, part=part_name, on_error="skip")
            except RecallatkError as error:
                if name in alike:  # else it is something else
                    found.append(Identified(name, part_name, f"cannot be read: {error}", official=False))
                continue
            different = deviations(part, dataset.query, dataset.gallery)
            fits = f"every official count: {part.summary}" if part.counts else part.summary
            found.append(
                Identified(name, part_name, in_words(part, different) or fits, bool(part.counts and not different))
            )
    return found


def _archives(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in ARCHIVES and file.is_file())


def _identify_archive(archive: Path, benchmarks: Mapping[str, Benchmark]) -> list[Identified]:
    known = {md5: (name, file) for name, benchmark in benchmarks.items() for md5, file in benchmark.archives.items()}
    try:
        with archive.open("rb") as stream:
            md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise RecallatkError(f"{archive}: cannot be read ({error.strerror or error})") from error
    if md5 not in known:
        return []
    name, file = known[md5]
    return [Identified(name, None, f"{archive.name} is {file}, byte for byte (md5 {md5})", official=True)]
