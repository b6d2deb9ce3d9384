"""From images or embedding files to a report, and runs on disk."""

from __future__ import annotations

from recallatk.run.elsewhere import Elsewhere
from recallatk.run.encoded import (
    EncodedDataset,
    embedding_files,
    encode_dataset,
    evaluate_encoded,
    load_encoded,
    save_encoded,
)
from recallatk.run.environment import describe_environment
from recallatk.run.folder import (
    check_run_folder,
    load_report,
    read_protocol,
    read_record,
    run_folder,
    save_failure,
    save_run,
)
from recallatk.run.joined import join_dataset
from recallatk.run.kept import Kept, kept_in
from recallatk.run.recipe import evaluate
from recallatk.run.samples import SavedSamples, digests_of
from recallatk.run.score_files import measure_score_files, score_files
from recallatk.run.scores import score_lists, score_matrix
from recallatk.run.series import distinct_names, load_runs
from recallatk.run.views import BOTH_DIRECTIONS, FoldMean, average_folds, describe_intervals, evaluate_views, view_of

__all__ = [
    "BOTH_DIRECTIONS",
    "Elsewhere",
    "EncodedDataset",
    "FoldMean",
    "Kept",
    "SavedSamples",
    "average_folds",
    "check_run_folder",
    "describe_environment",
    "describe_intervals",
    "digests_of",
    "distinct_names",
    "embedding_files",
    "encode_dataset",
    "evaluate",
    "evaluate_encoded",
    "evaluate_views",
    "join_dataset",
    "kept_in",
    "load_encoded",
    "load_report",
    "load_runs",
    "measure_score_files",
    "read_protocol",
    "read_record",
    "run_folder",
    "save_encoded",
    "save_failure",
    "save_run",
    "score_files",
    "score_lists",
    "score_matrix",
    "view_of",
]
