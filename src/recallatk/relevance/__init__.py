"""Who is positive for a query, and who is ignored: asked for a block of queries at a time."""

from recallatk.relevance.judgements import Judgements, Relevance
from recallatk.relevance.matching import Matcher
from recallatk.relevance.rules import build_relevance, check_labels_agree, same_image_keys, side_names

__all__ = [
    "Judgements",
    "Matcher",
    "Relevance",
    "build_relevance",
    "check_labels_agree",
    "same_image_keys",
    "side_names",
]
