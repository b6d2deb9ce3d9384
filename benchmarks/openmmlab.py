"""Time `RetrievalRecall.calculate` beside mmpretrain's own, in one process on the same tensors; prints Markdown.

    python benchmarks/openmmlab.py [--queries 2000] [--gallery 10000] [--rounds 5]

Needs mmengine and mmpretrain beside recallatk; `make test-integrations` installs them without what they ask for.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import types
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recallatk.integrations.openmmlab import RetrievalRecall

TOPK = (1, 5, 10)


def load_theirs() -> Any:
    """The module of mmpretrain's metrics without the rest of it, which needs mmcv, torchvision and OpenCV.

    numpy 2.4 took away `in1d`, which mmpretrain calls; here it is `isin`, as its documentation says.
    """
    root = Path(str(distribution("mmpretrain").locate_file("mmpretrain")))
    for name in ("mmpretrain", "mmpretrain.evaluation", "mmpretrain.evaluation.metrics"):
        package = types.ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    if not hasattr(np, "in1d"):
        np.in1d = np.isin  # noqa: NPY201 (it is theirs)
    from mmpretrain.evaluation.metrics import retrieval

    return retrieval


def seconds(work: Callable[[], Any]) -> float:
    """Wall seconds of a piece of work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compare(scores: torch.Tensor, target: Any, rounds: int, theirs: Any, **flags: bool) -> tuple[float, float, bool]:
    """The median seconds of ours and of theirs, taken in turns, and whether the values are equal."""
    calls = [
        lambda metric=metric: metric.calculate(scores, target, TOPK, **flags) for metric in (RetrievalRecall, theirs)
    ]
    same = calls[0]() == calls[1]()  # also warms both up
    times = [[seconds(call) for call in calls] for _ in range(rounds)]
    ours, mmpretrain = (statistics.median(column) for column in zip(*times, strict=True))
    return ours, mmpretrain, same


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one row for each kind of target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--gallery", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args(arguments)
    torch.manual_seed(0)
    n, m = asked.queries, asked.gallery
    # distinct in each row, so that no order of equal scores can part the two
    scores = (torch.rand(n, m).argsort(dim=1).float() + 1) / m
    one = torch.randint(m, (n,))
    one_hot = torch.nn.functional.one_hot(one, m)
    several = torch.rand(n, m) < 10 / m
    theirs = load_theirs().RetrievalRecall
    print(
        f"scores ({n}, {m}) float32, topk {TOPK}, {torch.get_num_threads()} threads; "
        f"seconds, median of {asked.rounds}\n"
    )
    print("| target | recallatk | mmpretrain | times faster | same values |\n|---|---|---|---|---|")
    for name, target, flags in (
        ("one-hot, int64", one_hot, {}),
        ("one-hot, bool", one_hot.bool(), {}),
        ("ten of them, bool", several, {}),
        ("lists of positions", [[position] for position in one.tolist()], {"target_indices": True}),
    ):
        ours, mmpretrain, same = compare(scores, target, asked.rounds, theirs, **flags)
        print(f"| {name} | {ours:.3f} | {mmpretrain:.3f} | {mmpretrain / ours:.1f} | {'yes' if same else 'NO'} |")


if __name__ == "__main__":
    main()
