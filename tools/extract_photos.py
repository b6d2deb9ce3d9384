"""Rebuild the photos and CREDITS.csv from the Debian package they came in, and compare them with the shipped ones.

    python tools/extract_photos.py [--deb FILE] [--output FOLDER]

Needs apt-get (unless --deb is given) and dpkg-deb. Nothing is written without --output. Exit status 1: they differ.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath

from qt_resource import read_resources

ASSETS = Path(__file__).parents[1] / "src" / "recallatk" / "assets"
PACKAGE = "gcompris-qt-data=3.1-2"
RESOURCE = "usr/share/gcompris-qt/rcc/categorization.rcc"
IMAGES = "gcompris/src/activities/categorization/resource/images/"
FREE = ("Public Domain", "CC0-1.0")
COLUMNS = ("path", "label", "licence", "author", "source")


def tidy_path(folder: str, file: str) -> str:
    """Where a photo goes: `<label>/<file>` in lower case with underscores.

    A monument is a class with many names; all others are named after what they show, with a number.

    >>> tidy_path("tools", "measuringTape3.webp"), tidy_path("monuments", "IndiaGate.webp")
    ('measuring_tape/measuring_tape3.webp', 'monument/india_gate.webp')
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", file).lower()
    label = "monument" if folder == "monuments" else PurePosixPath(name).stem.rstrip("0123456789")
    return f"{label}/{name}"


def read_credits(readme: str) -> dict[str, dict[str, str]]:
    """What a folder's README says of each file: paragraphs of `Key: value` lines, then `Files:` and names."""
    found = {}
    for paragraph in re.split(r"\n\s*\n", readme.strip()):
        facts, _, files = paragraph.partition("Files:")
        fields = dict(line.split(": ", 1) for line in facts.strip().splitlines() if ": " in line)
        for file in files.split():
            found[file] = {
                "licence": fields["License"].strip(),
                "author": fields["Copyright"].strip(),
                "source": fields.get("Source", "").strip(),
            }
    return found


def free_photos(resources: dict[str, bytes]) -> tuple[dict[str, bytes], str]:
    """The photos that are in the public domain or CC0, by tidy path, and CREDITS.csv as text."""
    photos, rows = {}, []
    for readme in sorted(path for path in resources if path.startswith(IMAGES) and path.endswith("/README")):
        folder = readme.removesuffix("README")
        for file, facts in read_credits(resources[readme].decode()).items():
            if facts["licence"] not in FREE or folder + file not in resources or not file.endswith(".webp"):
                continue
            path = tidy_path(PurePosixPath(folder).name, file)
            photos[path] = resources[folder + file]
            rows.append({"path": path, "label": path.split("/")[0], **facts})
    table = io.StringIO()
    writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: row["path"]))
    return photos, table.getvalue()


def differences(photos: dict[str, bytes], credits_csv: str, assets: Path) -> list[str]:
    """One line for each way in which they differ from what lies below `assets`; by sha256 for the photos."""
    shipped = {path.relative_to(assets / "photos").as_posix(): path for path in (assets / "photos").glob("*/*")}
    lines = [f"not in the package: {path}" for path in sorted(shipped.keys() - photos.keys())]
    lines += [f"not shipped: {path}" for path in sorted(photos.keys() - shipped.keys())]
    for path in sorted(photos.keys() & shipped.keys()):
        if hashlib.sha256(photos[path]).digest() != hashlib.sha256(shipped[path].read_bytes()).digest():
            lines.append(f"other bytes: {path}")
    if (assets / "CREDITS.csv").read_text(encoding="utf-8") != credits_csv:
        lines.append("CREDITS.csv has another content")
    return lines


def read_package(deb: Path | None) -> bytes:
    """The resource file inside the package, which is downloaded if it is not at hand."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if deb is None:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True)
            (deb,) = folder.glob("*.deb")
        subprocess.run(["dpkg-deb", "--extract", deb, folder / "unpacked"], check=True)
        return (folder / "unpacked" / RESOURCE).read_bytes()


def main() -> int:
    """Rebuild, compare, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deb", type=Path, help="the package, if it is already at hand")
    parser.add_argument("--output", type=Path, help="write photos/ and CREDITS.csv into this folder")
    arguments = parser.parse_args()
    photos, credits_csv = free_photos(read_resources(read_package(arguments.deb)))
    if arguments.output is not None:
        for path, data in photos.items():
            target = arguments.output / "photos" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        (arguments.output / "CREDITS.csv").write_text(credits_csv, encoding="utf-8")
    different = differences(photos, credits_csv, ASSETS)
    print("\n".join(different) if different else f"{len(photos)} photos and CREDITS.csv: the same as shipped")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
