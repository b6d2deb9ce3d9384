"""Time the pipeline: a folder of JPEG photos through the encoder that comes with the package.

    python benchmarks/encoding.py [--images 400] [--rounds 5]

Beside it: what the processor time of its parts allows, and a torch DataLoader with Pillow around the same model. The
best of the rounds is printed: other work on the machine only ever makes them slower.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance

from recallatk import ImageSet, encode, load_encoder
from recallatk.cache import Cache
from recallatk.cores import usable_cores
from recallatk.images import decode

BATCH = 32
SIZE = (500, 375)


def make_photos(folder: Path, number: int) -> list[Path]:
    """The packaged photos as JPEG files of 500 x 375, brightened a little so that each is another image."""
    photos = [Path(str(path)) for path in sorted((files("recallatk") / "assets" / "photos").rglob("*.webp"))]
    paths = []
    for index in range(number):
        photo = Image.open(photos[index % len(photos)]).convert("RGB").resize(SIZE, Image.Resampling.BICUBIC)
        photo = ImageEnhance.Brightness(photo).enhance(1 + index // len(photos) / 100)
        paths.append(folder / f"{index:05}.jpg")
        photo.save(paths[-1], quality=90)
    return paths


def as_set(paths: list[Path]) -> ImageSet:
    """One side, with made-up labels."""
    names = tuple(path.name for path in paths)
    return ImageSet(tuple(map(str, paths)), names, names)


def spent() -> float:
    """The processor time so far of all threads, and of the processes that have ended."""
    return sum(part for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) for part in resource.getrusage(who)[:2])


def processor_seconds(work: Callable[[], Any]) -> float:
    """The processor time that a piece of work takes, all threads together."""
    start = spent()
    work()
    return spent() - start


def budget(paths: list[Path], encoder: Any) -> dict[str, float]:
    """Processor seconds for an image of each part, alone, a batch at a time."""
    parts: dict[str, list[float]] = {"read and decode": [], "resize": [], "model": []}
    for start in range(0, min(len(paths), 8 * BATCH), BATCH):
        some = paths[start : start + BATCH]
        images: list[Any] = []
        prepared: list[Any] = []
        parts["read and decode"].append(
            processor_seconds(
                lambda: images.extend(decode(path.read_bytes(), name=path.name).image for path in some)  # noqa: B023
            )
        )
        parts["resize"].append(
            processor_seconds(lambda: prepared.extend(map(encoder.prepare, images)))  # noqa: B023
        )
        parts["model"].append(processor_seconds(lambda: encoder.encode_prepared(prepared)))  # noqa: B023
    return {name: statistics.median(seconds) / BATCH for name, seconds in parts.items()}


def torch_loader(paths: list[Path], encoder: Any, workers: int) -> np.ndarray:
    """What people write: a Dataset that opens and resizes with Pillow, a DataLoader, and the model in a loop."""
    from torch.utils.data import DataLoader, Dataset

    class Photos(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return len(paths)

        def __getitem__(self, index: int) -> np.ndarray:
            return encoder.prepare(Image.open(paths[index]).convert("RGB"))

    loader = DataLoader(Photos(), batch_size=BATCH, num_workers=workers, collate_fn=list)
    return np.concatenate([encoder.encode_prepared(batch) for batch in loader])


def torch_reason() -> str | None:
    """Why the DataLoader is left out; None if it is not."""
    try:
        import torch.utils.data  # noqa: F401
    except ImportError as error:
        return f"not installed ({error})"
    return None


def main() -> int:
    """Print a table; the exit status is 1 if the embeddings differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    cores = usable_cores()
    encoder: Any = load_encoder("lite0")
    with tempfile.TemporaryDirectory() as folder:
        paths = make_photos(Path(folder), options.images)
        images = as_set(paths)
        ways: dict[str, Callable[[], Any]] = {
            "recallatk, no cache": lambda: encode([images], encoder, batch=BATCH).sets[0].embeddings
        }
        reason = torch_reason()
        if reason is None:
            for workers in sorted({0, 1, cores, 2 * cores}):
                ways[f"torch DataLoader, {workers} workers"] = lambda w=workers: torch_loader(paths, encoder, w)
        results: dict[str, list[float]] = {name: [] for name in ways}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        budgets = []
        outputs = {}
        for turn in range(options.rounds):
            budgets.append(budget(paths, encoder))
            for name, way in ways.items():
                start, before = time.perf_counter(), spent()
                outputs[name] = way()
                results[name].append(time.perf_counter() - start)
                costs[name].append((spent() - before) / len(paths))
                rate = f"{len(paths) / results[name][-1]:.1f} images/s, {1e3 * costs[name][-1]:.2f} ms"
                print(f"round {turn}: {name}: {rate} of processor time an image", file=sys.stderr)
        cached = []
        with Cache(Path(folder) / "cache").rows("benchmark") as rows:
            for _ in range(2):
                start = time.perf_counter()
                encode([images], encoder, batch=BATCH, cache=rows)
                cached.append(time.perf_counter() - start)
    parts = {name: min(one[name] for one in budgets) for name in budgets[0]}
    allowed = cores / sum(parts.values())
    print(f"{len(paths)} JPEG files of {SIZE[0]} x {SIZE[1]}, lite0, batches of {BATCH}, {cores} cores\n")
    print("processor time of an image, ms: " + ", ".join(f"{name} {1e3 * s:.2f}" for name, s in parts.items()))
    print(f"so {cores} cores allow {allowed:.1f} images/s\n")
    print("| | images/s | of what the cores allow | processor time of an image, ms |\n|---|---|---|---|")
    for name, seconds in results.items():
        rate = len(paths) / min(seconds)
        print(f"| {name} | {rate:.1f} | {rate / allowed:.0%} | {1e3 * min(costs[name]):.2f} |")
    for name, seconds in zip(("filling the cache", "all from the cache"), cached, strict=True):
        print(f"| recallatk, {name} | {len(paths) / seconds:.1f} | | |")
    if reason is not None:
        print(f"\ntorch DataLoader: left out, {reason}")
    first = outputs["recallatk, no cache"]
    return int(any(not np.array_equal(first, output) for output in outputs.values()))


if __name__ == "__main__":
    sys.exit(main())
