"""The nouns: what is on disk, what an encoder made of it, and everything that can change the number."""

from recallatk.types.checks import (
    Float32Rows,
    Label,
    LabelKind,
    as_labels,
    as_numbers,
    as_rows,
    float32_blocks,
    unusable_rows,
)
from recallatk.types.errors import ChoiceError, RecallatkError
from recallatk.types.protocol import Average, EvalProtocol, ExcludeSelf, NoPositive, RelevanceKind, Similarity, Ties
from recallatk.types.sets import Dataset, EmbeddingSet, Encoder, ImageSet, OnError, Skipped

__all__ = [
    "Average",
    "ChoiceError",
    "Dataset",
    "EmbeddingSet",
    "Encoder",
    "EvalProtocol",
    "ExcludeSelf",
    "Float32Rows",
    "ImageSet",
    "Label",
    "LabelKind",
    "NoPositive",
    "OnError",
    "RecallatkError",
    "RelevanceKind",
    "Similarity",
    "Skipped",
    "Ties",
    "as_labels",
    "as_numbers",
    "as_rows",
    "float32_blocks",
    "unusable_rows",
]
