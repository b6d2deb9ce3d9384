"""Runs for the tests of the page: real pictures, and names that try to become markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from recallatk import EmbeddingSet, evaluate_embeddings
from recallatk.page import Images, PageSource

PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
HOSTILE = (
    "<script>window.hit=1</script>",
    '"><img src=x onerror="window.hit=1">',
    "</script><script>window.hit=1</script>",
    "<!--<script>",
    "{{ 7*7 }} ${7*7} $x^2$",
    "'quotes' & \"more\"",
    "🐈‍⬛ \u202egnp.tac",
    "שלום/قطة.png",
    "line\nbreak\u2028and\u2029more",
    "https://example.org/x.png",
)


def grouped(n: int, labels: int, *, dim: int = 16, noise: float = 1.0, seed: int = 0) -> EmbeddingSet:
    """Embeddings around a direction for each label."""
    rng = np.random.default_rng(seed)
    of = np.arange(n) % labels
    points = rng.normal(size=(labels, dim))[of] + noise * rng.normal(size=(n, dim))
    ids = [f"label{code}/{row:05d}.png" for row, code in enumerate(of)]
    return EmbeddingSet(points.astype(np.float32), [f"label{code}" for code in of], ids=ids)


def source(rows: EmbeddingSet, **more) -> PageSource:
    """A leave-one-out run of these embeddings."""
    return PageSource(evaluate_embeddings(rows), "run", query=rows, images=Images(missing="there are none."), **more)


def photos(noise: float = 1.0) -> PageSource:
    """The photos of the package under embeddings that are partly wrong; one file is not there."""
    files = sorted(PHOTOS.glob("*/*.webp"))
    rng = np.random.default_rng(1)
    labels = [file.parent.name for file in files]
    codes = np.unique(labels, return_inverse=True)[1]
    points = rng.normal(size=(codes.max() + 1, 32))[codes] + noise * rng.normal(size=(len(files), 32))
    ids = [f"{file.parent.name}/{file.name}" for file in files]
    rows = EmbeddingSet(points, labels, ids=ids)
    places = dict(zip(ids, [(file, None) for file in files], strict=True))
    places[ids[-1]] = (PHOTOS / "gone.webp", None)
    return PageSource(evaluate_embeddings(rows), "photos", query=rows, images=Images(places, places))


def hostile() -> PageSource:
    """Every name and label of the hostile ones, twice."""
    n = len(HOSTILE)
    names = [*HOSTILE, *(f"{name} again" for name in HOSTILE)]
    rows = EmbeddingSet(np.random.default_rng(2).normal(size=(2 * n, 8)), [*HOSTILE, *HOSTILE], ids=names)
    report = evaluate_embeddings(rows)
    return PageSource(report, HOSTILE[2], query=rows, images=Images({}, {}))
