"""Who is timed: recallatk's backends, and exact searches of other libraries as their users would write them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from data import Case

from recallatk.evaluation import evaluate_embeddings
from recallatk.evaluation.task import Task
from recallatk.ranking import fastest_backend, rank, stream_grid
from recallatk.types import EmbeddingSet, EvalProtocol

KS = (1, 5, 10)
Found = dict[str, float]
Places = npt.NDArray[np.integer]

# ---- recallatk


def sets_of(case: Case) -> tuple[EmbeddingSet, EmbeddingSet | None]:
    """The case as embedding sets; self-retrieval has no gallery of its own."""
    query = EmbeddingSet(case.query, case.query_labels)
    return query, None if case.gallery is None else EmbeddingSet(case.gallery, case.gallery_labels)


def count_with(backend: str) -> Callable[[Case], Callable[[], Found]]:
    """Grid, relevance, counts and metrics with one backend; checking and hashing the data are left out."""

    def prepare(case: Case) -> Callable[[], Found]:
        query, gallery = sets_of(case)

        def run() -> Found:
            task = Task.of(query, gallery, EvalProtocol(ks=KS), None, case.metrics)
            grids = stream_grid(*[side.embeddings for side in (query, gallery) if side is not None])
            blocks = rank(
                grids[0], grids[-1], task.relevance, depth=task.depth, limit=task.limit, backend=backend, threads=1
            )
            hits: dict[str, list[npt.NDArray[np.float64]]] = {str(name): [] for name in task.names}
            for block in blocks:
                for name in task.names:
                    hits[str(name)].append(name.values(block, ties="expected")[block.n_positives > 0])
            return {name: float(np.concatenate(values).mean()) for name, values in hits.items()}

        return run

    return prepare


def evaluate(case: Case) -> Callable[[], Found]:
    """A whole evaluation, from arrays to a report: data checked, hashed and signed."""

    def run() -> Found:
        report = evaluate_embeddings(*sets_of(case), metrics=case.metrics, protocol=EvalProtocol(ks=KS), threads=1)
        return {f"recall@{k}": report[f"recall@{k}"] for k in KS}

    return run


# ---- others: each fetches the nearest rows and looks for a positive among them


def hit_rates(case: Case, nearest: Places) -> Found:
    """The share of queries with a positive among the first k, the query itself and queries without one left out."""
    alone = case.gallery is None
    labels = case.query_labels if alone else case.gallery_labels
    queries = np.arange(len(nearest))
    if alone:
        not_self = nearest != queries[:, None]
        order = np.argsort(~not_self, axis=1, kind="stable")[:, : nearest.shape[1] - 1]
        nearest = np.take_along_axis(nearest, order, axis=1)
    hits = labels[nearest] == case.query_labels[queries, None]
    sizes = np.bincount(labels, minlength=int(case.query_labels.max()) + 1)[case.query_labels[queries]] - alone
    return {f"recall@{k}": float(hits[sizes > 0, :k].any(axis=1).mean()) for k in KS}


def largest_k(case: Case) -> int:
    """How many rows have to be fetched: the query finds itself as well."""
    gallery = case.query if case.gallery is None else case.gallery
    return min(max(case.largest_k, max(KS)) + (case.gallery is None), len(gallery))


def faiss_flat(case: Case) -> Callable[[], Found]:
    """faiss.IndexFlatIP."""
    import faiss

    gallery = case.query if case.gallery is None else case.gallery

    def run() -> Found:
        faiss.omp_set_num_threads(1)
        index = faiss.IndexFlatIP(gallery.shape[1])
        index.add(gallery)
        return hit_rates(case, index.search(case.query, largest_k(case))[1])

    return run


def recipe(case: Case) -> Callable[[], Found]:
    """What people write: the whole similarity matrix, then argpartition."""
    gallery = case.query if case.gallery is None else case.gallery
    k = largest_k(case)

    def run() -> Found:
        query = case.query / np.linalg.norm(case.query, axis=1, keepdims=True)
        similarity = query @ (gallery / np.linalg.norm(gallery, axis=1, keepdims=True)).T
        top = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(similarity, top, axis=1), axis=1)
        return hit_rates(case, np.take_along_axis(top, order, axis=1))

    return run


def torch_topk(case: Case) -> Callable[[], Found]:
    """torch: product and topk, 1024 queries at a time."""
    import torch

    torch.set_num_threads(1)
    query = torch.from_numpy(case.query)
    gallery = query if case.gallery is None else torch.from_numpy(case.gallery)

    def run() -> Found:
        parts = [(query[at : at + 1024] @ gallery.T).topk(largest_k(case)).indices for at in range(0, len(query), 1024)]
        return hit_rates(case, torch.cat(parts).numpy())

    return run


def scikit_learn(case: Case) -> Callable[[], Found]:
    """sklearn.neighbors.NearestNeighbors, brute force."""
    from sklearn.neighbors import NearestNeighbors

    gallery = case.query if case.gallery is None else case.gallery

    def run() -> Found:
        index = NearestNeighbors(n_neighbors=largest_k(case), algorithm="brute", metric="cosine", n_jobs=1)
        return hit_rates(case, index.fit(gallery).kneighbors(case.query, return_distance=False))

    return run


def usearch_exact(case: Case) -> Callable[[], Found]:
    """usearch.index.search(..., exact=True)."""
    from usearch.index import MetricKind, search

    gallery = case.query if case.gallery is None else case.gallery

    def run() -> Found:
        found = search(gallery, case.query, largest_k(case), MetricKind.IP, exact=True, threads=1)
        return hit_rates(case, found.keys.astype(np.int64))

    return run


def metric_learning(case: Case) -> Callable[[], Found]:
    """pytorch-metric-learning's AccuracyCalculator with its own search; it has precision@1 and no recall@k."""
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    alone = case.gallery is None
    sides = (case.query, case.query_labels) if alone else (case.gallery, case.gallery_labels)

    def run() -> Found:
        calculator = AccuracyCalculator(include=("precision_at_1",), k=largest_k(case) - alone)
        found = calculator.get_accuracy(case.query, case.query_labels, *sides, ref_includes_query=alone)
        return {"recall@1": found["precision_at_1"]}

    return run


def torchmetrics_hit_rate(case: Case) -> Callable[[], Found]:
    """RetrievalHitRate of torchmetrics, which is given every pair of a query and a gallery item."""
    import torch
    from torchmetrics.retrieval import RetrievalHitRate

    torch.set_num_threads(1)
    query, labels = torch.from_numpy(case.query), torch.from_numpy(case.query_labels)
    alone = case.gallery is None
    gallery = query if alone else torch.from_numpy(case.gallery)
    gallery_labels = labels if alone else torch.from_numpy(case.gallery_labels)

    def run() -> Found:
        similarity, relevant = query @ gallery.T, labels[:, None] == gallery_labels
        owners = torch.arange(len(query))[:, None].expand_as(similarity)
        pairs = ~torch.eye(len(query), dtype=torch.bool) if alone else torch.ones_like(relevant)
        flat = similarity[pairs], relevant[pairs], owners[pairs]
        found = {}
        for k in KS:
            metric = RetrievalHitRate(empty_target_action="skip", top_k=k)
            found[f"recall@{k}"] = float(metric(flat[0], flat[1], indexes=flat[2]))
        return found

    return run


Contender = tuple[str, str, Callable[[Case], Callable[[], Found]], int]
CONTENDERS: dict[str, Contender] = {
    "faiss": ("faiss", "faiss-cpu", faiss_flat, 0),
    "native": ("recallatk", "recallatk", count_with("native"), 0),
    "numpy": ("recallatk", "recallatk", count_with("numpy"), 0),
    "whole evaluation": ("recallatk", "recallatk", evaluate, 0),
    "forty-line recipe": ("numpy", "numpy", recipe, 2000),
    "torch top-k": ("torch", "torch", torch_topk, 0),
    "scikit-learn": ("sklearn", "scikit-learn", scikit_learn, 4000),
    "pytorch-metric-learning": ("pytorch_metric_learning", "pytorch-metric-learning", metric_learning, 0),
    "torchmetrics": ("torchmetrics", "torchmetrics", torchmetrics_hit_rate, 200),
    "usearch exact": ("usearch", "usearch", usearch_exact, 400),
}
"""Name -> (module, distribution, what prepares a run, how many queries it is given: its time is scaled up; 0: all)."""


def installed(name: str) -> bool:
    """Whether the contender's package is there (and, for native, whether it works on this machine)."""
    return importlib.util.find_spec(CONTENDERS[name][0]) is not None and (
        name != "native" or fastest_backend()[0] == "native"
    )


def fewer_queries(case: Case, n: int) -> Case:
    """The first queries against the whole gallery."""
    if not n or n >= len(case.query):
        return case
    if case.gallery is not None:
        return Case(case.query[:n], case.query_labels[:n], case.gallery, case.gallery_labels, largest_k=case.largest_k)
    return Case(case.query[:n], case.query_labels[:n], case.query, case.query_labels, largest_k=case.largest_k)
