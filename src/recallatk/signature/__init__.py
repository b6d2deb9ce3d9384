"""The signature: the recipe of the number in one line, and the hash rules behind its parts.

Hashes are sha256 over UTF-8 lines that end in a line feed, sorted by role (g before q) and id, so they depend neither
on the order of the rows nor on where the data lie. Ids are in Unicode's composed form (NFC) with "/" between folders;
a tab, a line break or a backslash in a name is written as a backslash escape.
"""

from recallatk.signature.grammar import (
    DATA_KEYS,
    KEYS,
    PROTOCOL_KEYS,
    REPORT_KEYS,
    SHORT,
    SYSTEM_KEYS,
    UNKNOWN,
    Signature,
    escape_part,
    short_fingerprint,
)
from recallatk.signature.hashes import (
    Column,
    content_hash,
    count_equal_rows,
    embedding_hash,
    first_ranks_hash,
    json_hash,
    label_hash,
    qrels_cells,
    relevance_hash,
    score_hash,
)
from recallatk.signature.sides import Side

__all__ = [
    "DATA_KEYS",
    "KEYS",
    "PROTOCOL_KEYS",
    "REPORT_KEYS",
    "SHORT",
    "SYSTEM_KEYS",
    "UNKNOWN",
    "Column",
    "Side",
    "Signature",
    "content_hash",
    "count_equal_rows",
    "embedding_hash",
    "escape_part",
    "first_ranks_hash",
    "json_hash",
    "label_hash",
    "qrels_cells",
    "relevance_hash",
    "score_hash",
    "short_fingerprint",
]
