"""Exact recall@K for image retrieval: one number that can be trusted, repeated and defended."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recallatk.comparison import Comparison, compare
    from recallatk.datasets import load_dataset, load_qrels, load_ranked_lists
    from recallatk.embeddings import load_embeddings, save_embeddings
    from recallatk.encoders import load_encoder
    from recallatk.encoding import encode, encode_all
    from recallatk.evaluation import evaluate_embeddings, evaluate_scores, recall_at_k
    from recallatk.gates import Condition, check_gate
    from recallatk.history import History, track
    from recallatk.inspection import Finding, Inspection, inspect_dataset
    from recallatk.neighbours import Neighbours, nearest
    from recallatk.planning import Plan, plan
    from recallatk.report import Report
    from recallatk.run import (
        EncodedDataset,
        encode_dataset,
        evaluate,
        evaluate_encoded,
        evaluate_views,
        join_dataset,
        load_encoded,
        load_report,
        load_runs,
        save_run,
        score_lists,
    )
    from recallatk.types import (
        Dataset,
        EmbeddingSet,
        Encoder,
        EvalProtocol,
        ImageSet,
        IntervalRule,
        Qrels,
        RankedLists,
        RecallatkError,
        SampleSet,
    )
    from recallatk.verification import Moved, Verification, verify_run

__all__ = [
    "Comparison",
    "Condition",
    "Dataset",
    "EmbeddingSet",
    "EncodedDataset",
    "Encoder",
    "EvalProtocol",
    "Finding",
    "History",
    "ImageSet",
    "Inspection",
    "IntervalRule",
    "Moved",
    "Neighbours",
    "Plan",
    "Qrels",
    "RankedLists",
    "RecallatkError",
    "Report",
    "SampleSet",
    "Verification",
    "check_gate",
    "compare",
    "encode",
    "encode_all",
    "encode_dataset",
    "evaluate",
    "evaluate_embeddings",
    "evaluate_encoded",
    "evaluate_scores",
    "evaluate_views",
    "inspect_dataset",
    "join_dataset",
    "load_dataset",
    "load_embeddings",
    "load_encoded",
    "load_encoder",
    "load_qrels",
    "load_ranked_lists",
    "load_report",
    "load_runs",
    "nearest",
    "plan",
    "recall_at_k",
    "save_embeddings",
    "save_run",
    "score_lists",
    "track",
    "verify_run",
]

_HOMES = {
    "comparison": ("Comparison", "compare"),
    "datasets": ("load_dataset", "load_qrels", "load_ranked_lists"),
    "embeddings": ("load_embeddings", "save_embeddings"),
    "encoders": ("load_encoder",),
    "encoding": ("encode", "encode_all"),
    "evaluation": ("evaluate_embeddings", "evaluate_scores", "recall_at_k"),
    "gates": ("Condition", "check_gate"),
    "history": ("History", "track"),
    "inspection": ("Finding", "Inspection", "inspect_dataset"),
    "neighbours": ("Neighbours", "nearest"),
    "planning": ("Plan", "plan"),
    "report": ("Report",),
    "run": (
        "EncodedDataset",
        "encode_dataset",
        "evaluate",
        "evaluate_encoded",
        "evaluate_views",
        "join_dataset",
        "load_encoded",
        "load_report",
        "load_runs",
        "save_run",
        "score_lists",
    ),
    "types": (
        "Dataset",
        "EmbeddingSet",
        "Encoder",
        "EvalProtocol",
        "ImageSet",
        "IntervalRule",
        "Qrels",
        "RankedLists",
        "RecallatkError",
        "SampleSet",
    ),
    "verification": ("Moved", "Verification", "verify_run"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Looked up when first used, so that importing one name does not import Pillow and everything else.
    if name not in _HOME_OF:
        raise AttributeError(f"module 'recallatk' has no attribute {name!r}")
    return getattr(importlib.import_module(f"recallatk.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
