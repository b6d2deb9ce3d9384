"""The flags: groups of them as dataclasses, the spellings of other tools, and how their values are read."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from recallatk.cli.cluster import Cluster, with_run_on
from recallatk.encoders.request import Dtype
from recallatk.types import ChoiceError, EvalProtocol, IntervalRule, OnError

PROTOCOL_GROUP = Group("Protocol: everything that can change the number", sort_key=1)
INPUT_GROUP = Group("Embeddings, in place of an encoder", sort_key=2)
SCORES_GROUP = Group("Scores of any system", sort_key=2)
FOLDERS_GROUP = Group("Reading DATA", sort_key=3)
ENCODING_GROUP = Group("Encoding", sort_key=4)
RANKING_GROUP = Group("Ranking: speed and memory, never the number", sort_key=5)
INTERVALS_GROUP = Group("Intervals: how sure the number is", sort_key=5)
GATE_GROUP = Group("Gate: exit code 1 where a run is not good enough", sort_key=5)
OUTPUT_GROUP = Group("Output", sort_key=6)
PAGE_GROUP = Group("An HTML page (needs the extra report)", sort_key=7)

Protocol = Annotated[EvalProtocol, Parameter(name="*", group=PROTOCOL_GROUP)]
Intervals = Annotated[IntervalRule, Parameter(name="*", group=INTERVALS_GROUP)]
Many = tuple[str, ...]

# Spellings of other tools, and short forms. `_` and `-` are alike in every flag.
ALIASES = {
    "-k": "--ks",
    "--recall-k": "--ks",
    "--recall-values": "--ks",
    "-m": "--metric",
    "-o": "--output",
    "--model": "--encoder",
    "--database-folder": "--gallery-folder",
    "--query-embeddings": "--query",
    "--gallery-embeddings": "--gallery",
    "--recall-at": "--ks",
    "--num-workers": "--workers",
    "--neighbors": "--neighbours",
}


@Parameter(name="*", group=FOLDERS_GROUP)
@dataclasses.dataclass(frozen=True)
class Reading:
    """How DATA is read.

    Attributes:
        queries_folder: a folder of queries anywhere, together with --gallery-folder, in place of DATA.
        gallery_folder: a folder of gallery images anywhere.
        layout: folder, classes, manifest or a benchmark (see `recallatk datasets`); by default what DATA looks like. A
            benchmark brings its protocol and metrics; flags given win.
        part: which evaluation of a benchmark; see `recallatk datasets show NAME`.
        counts: whether a benchmark's copy must have the official counts, or may have others (any), which is said.
        split_column: the column of a table of wildlife-datasets that tells queries from gallery.
        label_from: parent (the folder that holds the image), or regex:... searched in the path below DATA.
        label_separator: splits a label into several, such as "|".
        root: what the paths of a manifest or another table are relative to; by default its folder.
        limit: at most so many images a side, seeded and stratified by label, for a first look.
        seed: the seed of --limit.
        on_error: an image or row that cannot be used is an error, or is skipped and counted.
        qrels: judged pairs, a TREC file or a table; with them --relevance is qrels unless another one is given.
    """

    queries_folder: Path | None = None
    gallery_folder: Path | None = None
    layout: str | None = None
    part: str | None = None
    counts: Literal["official", "any"] = "official"
    split_column: str | None = None
    label_from: str = "parent"
    label_separator: str | None = None
    root: Path | None = None
    limit: int | None = None
    seed: int = 0
    on_error: OnError = "error"
    qrels: Path | None = None


@Parameter(name="*", group=ENCODING_GROUP)
@dataclasses.dataclass(frozen=True)
class Encoding:
    """How images are encoded.

    Attributes:
        batch_size: how many images go into the encoder at once.
        exif: turn images as their EXIF orientation says, or leave them as they are stored.
        hand_over: pixels (decoded RGB images), or paths for an encoder that reads files itself.
        device: where models run: auto (a GPU if there is one), or cpu, cuda, cuda:1, mps.
        dtype: what models in torch compute in; autocast-... keeps float32 weights. Embeddings are float32 in any case.
        check_encoder: first encode a few images alone, in a batch, shuffled and twice, and say how far the rows differ.
        workers: threads that read and decode beside the encoder; by default one for each core.
        cache_dir: the folder of the cache; by default that of `recallatk cache path`.
        cache_limit: the most that the cache may hold, such as 2GB; what was used longest ago goes first.
        no_cache: encode everything, and keep nothing.
    """

    batch_size: int = 32
    exif: Literal["apply", "ignore"] = "apply"
    hand_over: Literal["pixels", "paths"] = "pixels"
    device: str = "auto"
    dtype: Dtype = "float32"
    check_encoder: bool = False
    workers: int | None = None
    cache_dir: Path | None = None
    cache_limit: str = "10GB"
    no_cache: bool = False

    def cache(self) -> Any:
        """The cache that `encode_dataset` takes."""
        from recallatk.cache import Cache

        limit = parse_bytes(self.cache_limit, "--cache-limit")
        return None if self.no_cache else Cache(self.cache_dir, limit)


@Parameter(name="*", group=INPUT_GROUP)
@dataclasses.dataclass(frozen=True)
class Embeddings:
    """Precomputed embeddings.

    Attributes:
        query: embeddings of the queries (.npy, .npz, .parquet, .safetensors, .h5, a clip-retrieval folder); alone:
            leave-one-out.
        gallery: embeddings of the gallery.
        query_labels: labels for a bare .npy: .npy, .txt (one a line), .csv, .tsv, .json or .parquet.
        gallery_labels: labels for a bare .npy of the gallery.
        both_directions: from the gallery to the queries too, side by side, as between texts and images.
    """

    query: Path | None = None
    gallery: Path | None = None
    query_labels: Path | None = None
    gallery_labels: Path | None = None
    both_directions: bool = False


@Parameter(name="*", group=SCORES_GROUP)
@dataclasses.dataclass(frozen=True)
class Scores:
    """What a system said, and of what.

    Attributes:
        run: ranked lists: a TREC run, or a table (.csv, .tsv, .jsonl, .parquet) of query_id, gallery_id and score (or
            rank).
        scores: a matrix of scores, a .npy file with a row a query and a column a gallery item; higher is nearer.
        qrels: judged pairs, a TREC file or a table; with them --relevance is qrels unless another one is given.
        query_labels: labels of the queries: .npy, .txt (one a line), .csv, .tsv, .json or .parquet; tables may have
            ids, groups and positions.
        gallery_labels: labels of the gallery; without them and --gallery-ids: leave-one-out.
        query_ids: ids of the queries, one a line.
        gallery_ids: ids of the gallery, one a line.
        label_separator: splits a label into several, such as "|".
    """

    run: Path | None = None
    scores: Path | None = None
    qrels: Path | None = None
    query_labels: Path | None = None
    gallery_labels: Path | None = None
    query_ids: Path | None = None
    gallery_ids: Path | None = None
    label_separator: str | None = None


@Parameter(name="*", group=RANKING_GROUP)
@dataclasses.dataclass(frozen=True)
class Ranking:
    """How the ranking is computed.

    Attributes:
        memory: what the whole process may hold while it ranks, such as 2GB; what does not fit is ranked in parts. By
            default a quarter of what is free.
        backend: auto, or one that `recallatk info` lists.
        threads: by default as many as there are cores.
    """

    memory: str | None = None
    backend: str = "auto"
    threads: int | None = None

    def arguments(self) -> dict[str, Any]:
        """As arguments of `evaluate_encoded`."""
        memory = None if self.memory is None else parse_bytes(self.memory)
        return {"memory": memory, "backend": self.backend, "threads": self.threads}


@Parameter(name="*", group=GATE_GROUP)
@dataclasses.dataclass(frozen=True)
class Gate:
    """What a run has to reach.

    Attributes:
        min: METRIC=VALUE, such as recall@1=0.80: the run may not be below it. Several may be given.
        max_drop: RUN=VALUE, such as runs/main=0.01: the run may not lose more than that against an earlier run on the
            same data. Several may be given.
        significant_only: a drop fails only if the paired test shows that the run is worse at all.
    """

    min: Many = ()
    max_drop: Many = ()
    significant_only: bool = False


@Parameter(name="*", group=OUTPUT_GROUP)
@dataclasses.dataclass(frozen=True)
class Output:
    """What is printed and written.

    Attributes:
        output: write a run to this folder: record.json, queries.parquet.
        save_embeddings: write the embeddings into that folder too.
        overwrite: write over an earlier run in that folder.
        json: print the record as JSON.
        percent: print values in 0..100.
        quiet: no progress and no notes.
    """

    output: Path | None = None
    save_embeddings: bool = False
    overwrite: bool = False
    json: bool = False
    percent: bool = False
    quiet: bool = False


@Parameter(name="*", group=PAGE_GROUP)
@dataclasses.dataclass(frozen=True)
class PageContent:
    """What goes into the page; nothing of it changes a number.

    Attributes:
        num_queries: so many queries are shown with neighbours and pictures: misses first, labels in turn.
        neighbours: so many nearest gallery items of each.
        only_wrong: only queries that miss at the smallest k.
        pictures: inside the page (embed), in a folder beside it (folder), or none.
        max_size: what page and pictures may take together; pictures become smaller, then fewer, and that is said.
        page_seed: of its random choices, and of the random order of the queries.
    """

    num_queries: int = 500
    neighbours: int = 10
    only_wrong: bool = False
    pictures: Literal["embed", "folder", "none"] = "embed"
    max_size: str = "30MB"
    page_seed: int = 0

    def options(self) -> Any:
        """As `PageOptions`."""
        from recallatk.page import PageOptions

        given = {**vars(self), "max_size": parse_bytes(self.max_size, "--max-size")}
        return PageOptions(seed=given.pop("page_seed"), **given)


# What a command gets when none of a group's flags is there; frozen, so sharing them is safe.
NO_READING = Reading()
NO_ENCODING = Encoding()
NO_EMBEDDINGS = Embeddings()
NO_SCORES = Scores()
NO_RANKING = Ranking()
NO_OUTPUT = Output()
NO_GATE = Gate()
NO_PROTOCOL = EvalProtocol()
NO_INTERVALS = IntervalRule()
NO_PAGE = PageContent()


# Flags of several values: numbers may follow each other, and the first label may be anything, such as -1.
SEVERAL = {"--ks": r"-?[\d.,]+", "--junk-labels": r"-?\d+", "--distractor-labels": r"-?\d+"}
# Commands that are given the folders of runs.
ON_RUNS = {"compare", "gate", "history", "plan", "report"}
# Suffixes of embeddings that no manifest has.
EMBEDDINGS_ONLY = {".npy", ".npz", ".safetensors", ".h5", ".hdf5"}
# Flags that no value follows.
SWITCHES = {
    f"--{field.name.replace('_', '-')}"
    for group in (Cluster, Embeddings, Encoding, Gate, Output, PageContent)
    for field in dataclasses.fields(group)
    if field.type is bool
}
_FLAG = r"--?[A-Za-z][\w-]*(=.*)?"


def expand_tokens(argv: Sequence[str]) -> list[str]:
    """Bring flags to one spelling: aliases, `_` for `-`, and one flag for each of several values.

    Raises:
        ChoiceError: a word that is no flag's value and stands where it cannot be DATA.

    >>> expand_tokens(["eval", "--recall_values", "1", "5,10", "-o", "run_1"])
    ['eval', '--ks=1', '--ks=5', '--ks=10', '--output', 'run_1']
    >>> expand_tokens(["eval", "--distractor-labels", "0", "-1", "--junk_labels=x", "DATA"])
    ['eval', '--distractor-labels=0', '--distractor-labels=-1', '--junk-labels=x', 'DATA']
    >>> expand_tokens(["eval", "DATA", "--cluster", "[::1]:6379", "--cluster=sequence"])
    ['eval', 'DATA', '--run-on', '[::1]:6379', '--cluster=sequence']
    """
    argv = with_run_on(argv)
    tokens: list[str] = []
    reading = ""  # the flag whose values come; it stands alone until the first of them
    words: list[str] = []  # what is no flag and no flag's value: the command and DATA
    stray = ""  # the first of them that follows cutoffs
    for token in argv:
        alone = bool(reading) and tokens[-1] == reading
        if re.fullmatch(_FLAG, token, re.DOTALL):
            flag, equals, value = token.partition("=")
            flag = flag.replace("_", "-") if flag.startswith("--") else flag
            flag = ALIASES.get(flag, flag)
            reading = flag if flag in SEVERAL and not equals else ""
            tokens += _values(flag, value) if flag in SEVERAL and equals else [flag + equals + value]
        elif reading and (re.fullmatch(SEVERAL[reading], token) or (alone and reading != "--ks")):
            tokens[len(tokens) - alone :] = _values(reading, token)
        else:
            if token != "--" and not _takes_value(tokens[-1:]):
                words.append(token)
                stray = stray or token * (reading == "--ks")
            reading = ""
            tokens.append(token)
    _check_words(words, stray)
    return tokens


def _takes_value(last: list[str]) -> bool:
    """Whether the last token is a flag whose value has yet to come."""
    return any(re.fullmatch(_FLAG, flag) and "=" not in flag and flag not in SWITCHES for flag in last)


def _check_words(words: list[str], stray: str) -> None:
    """Refuse a cutoff that is no number where there is DATA beside it, and embeddings in the place of DATA."""
    command, *others = words or [""]
    # Beside cutoffs `score` takes no word, and commands on runs take any number of them.
    if stray and command not in ON_RUNS and len(others) > (command != "score"):
        raise ChoiceError(f"-k {stray!r} is not a cutoff; every k must be a whole number of at least 1")
    for word in others if command == "eval" else ():
        if Path(word).suffix.lower() in EMBEDDINGS_ONLY and not os.path.isdir(word):  # noqa: PTH112 - a name may be long
            raise ChoiceError(f"{word}: embeddings, not images; use --query {word} without --encoder")


def _values(flag: str, text: str) -> list[str]:
    """One flag for each value; only cutoffs are parted by commas, as a label may hold one."""
    values = text.removesuffix(",").split(",") if flag == "--ks" else [text]
    return [f"{flag}={value}" for value in values]


def parse_bytes(text: str, flag: str = "--memory") -> int:
    """A size such as 500MB, 2GiB or 1000000.

    Raises:
        ChoiceError: not a size.

    >>> parse_bytes("1.5GB")
    1500000000
    """
    units = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if match is None or match[2] not in units:
        raise ChoiceError(f"{flag} {text!r} is not a size; write a number with B, KB, MB, GB or GiB, such as 500MB")
    return int(float(match[1]) * units[match[2]])
