"""The flags of a cluster, what it is, and what it would do."""

# No `from __future__ import annotations`: the command line is made from these annotations.

import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cyclopts import Group, Parameter

from recallatk.cli.printing import progress, tell
from recallatk.memory import megabytes
from recallatk.types import ChoiceError, Dataset, EmbeddingSet, RecallatkError

CLUSTER_GROUP = Group("Past one machine: the same number from a cluster (needs the extra ray)", sort_key=5)

MUCH = 2**26
"""Bytes of embeddings that are sent without a word."""

SAMPLED = 32
"""Images that are encoded here to know what encoding takes; it is one batch."""


@Parameter(name="*", group=CLUSTER_GROUP)
@dataclasses.dataclass(frozen=True)
class Cluster:
    """Where the work is done; never the number.

    Attributes:
        run_on: ray starts Ray on this machine and ends it again; auto, HOST:PORT and ray://HOST:PORT join a cluster.
            --memory (by default a share of half of what its node has, at most 4 GiB) and --threads (by default one) are
            then those of each worker. With such a value --cluster is the same flag.
        num_gpus: copies of the model, each with a GPU of its own; by default one for each GPU there is. 0: on CPUs.
        parts: where rows are written while images are encoded, a folder that every node reads or an address such as
            s3://bucket/folder; an interrupted run goes on there. Finished blocks of a ranking are kept there too until
            the command is done. By default both go to the folder of the cache, where there is one.
        dry_run: only say what the cluster is, how the work would be cut, and what it would take.
    """

    run_on: str | None = None
    num_gpus: int | None = None
    parts: str | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if self.run_on is not None:
            from recallatk.cluster import address_of

            address_of(self.run_on)
        else:
            given = {"--dry-run": self.dry_run, "--num-gpus": self.num_gpus is not None, "--parts": self.parts}
            for flag in (flag for flag, value in given.items() if value):
                raise ChoiceError(f"{flag} is for a cluster; give --cluster too: ray, auto or HOST:PORT")

    def elsewhere(
        self, folder: str | None = None, *, several: bool = False, overwrite: bool = False, once: bool = False
    ) -> Any:
        """As `encode_dataset` takes it; None: in this process.

        Args:
            folder: where the rows go, in place of --parts.
            several: whether there are several encoders, whose rows are not put into one folder.
            overwrite: begin anew where there are parts already.
            once: nothing is taken from the folder, and nothing left there.
        """
        from recallatk.run import Elsewhere

        if self.run_on is None:
            return None
        if several and self.parts is not None:
            raise ChoiceError("--parts is for the rows of one encoder; leave it out, or give one --encoder")
        if folder is not None and self.parts is not None:
            raise ChoiceError(f"--parts: the rows go to {folder}, which --output names; leave --parts out")
        return Elsewhere(self.run_on, folder or self.parts, self.num_gpus, overwrite, once)

    def refuse_gpus(self, what: str) -> None:
        """Refuse --num-gpus where nothing is encoded.

        Args:
            what: what is there already.
        """
        if self.num_gpus is not None:
            raise ChoiceError(f"--num-gpus is for encoding; here are {what} already")

    def keeping(self, cache: Any) -> contextlib.AbstractContextManager[Any]:
        """What keeps finished blocks of a ranking, below --parts or in the folder of the cache; None: nothing does."""
        from recallatk.embeddings import parts
        from recallatk.run import kept_in

        if self.run_on is None or (self.parts is None and cache is None):
            return contextlib.nullcontext()
        if self.parts is not None:
            return kept_in(parts.inside(self.parts, "ranking"))
        return kept_in(str(cache.rankings))


NO_CLUSTER = Cluster()

# The commands that a cluster can run: with anything but its address, --cluster names a column in the first of them.
ON_A_CLUSTER = {"eval", "score"}
NO_COLUMN = {"embed", "info", "verify"}


def with_run_on(argv: Sequence[str]) -> Sequence[str]:
    """The words of a command, in which --cluster with the address of a cluster is --run-on."""
    if argv and argv[0] in NO_COLUMN:
        return [re.sub(r"--cluster(?==|$)", "--run-on", token) for token in argv]
    return list(_renamed(argv)) if argv and argv[0] in ON_A_CLUSTER else argv


def _renamed(argv: Sequence[str]) -> Iterator[str]:
    for place, token in enumerate(argv):
        flag, equals, value = token.partition("=")
        if not equals:
            value = argv[place + 1] if place + 1 < len(argv) else ""
        yield token.replace("--cluster", "--run-on", 1) if flag == "--cluster" and _is_cluster(value) else token


def _is_cluster(value: str) -> bool:
    from recallatk.cluster import address_of

    try:
        address_of(value)
    except ChoiceError:  # what can be no column is told so
        return re.fullmatch(r"ray://.*|\d+(\.\d+){3}", value, re.DOTALL) is not None
    return True


def parts_folder(output: Path) -> str | None:
    """The folder or address that an output with --cluster names; None where it is a file of embeddings.

    >>> parts_folder(Path("s3://bucket/rows")), parts_folder(Path("rows.npy"))
    ('s3://bucket/rows', None)
    """
    from recallatk.embeddings import FORMATS, parts

    return parts.store_address(output) or (None if output.suffix.lower() in FORMATS else str(output))


def tell_what_is_sent(cluster: Cluster, files: Any, *, quiet: bool) -> None:
    """Embeddings that pass through this process, where they are many, with what to use instead."""
    if cluster.run_on is None:
        return
    from recallatk.cluster import are_found_there

    for side in (files.query, files.gallery):
        if side is not None and side.embeddings.nbytes > MUCH and not are_found_there(side.embeddings):
            what = (
                f"{side.name}: {megabytes(side.embeddings.nbytes)} of embeddings go through this process to the nodes"
            )
            tell([f"{what}; a .npy file or a folder of parts (embed --cluster) is read where it lies"], quiet=quiet)


@dataclasses.dataclass
class Steps:
    """The steps of a job on a cluster, each with progress of its own: a reader sees how many there are."""

    total: int
    begun: int = 0

    def title(self, what: str) -> str:
        """What the next of them is called."""
        self.begun += 1
        return f"{what} ({self.begun} of {self.total})" if self.total > 1 else what


def steps_of(cluster: Cluster, total: int) -> Steps | None:
    """So many steps, where there is a cluster."""
    return None if cluster.run_on is None else Steps(total)


def progress_of(
    steps: Steps | None, what: str, total: int | None = None, *, quiet: bool
) -> contextlib.AbstractContextManager[Any]:
    """The progress of some work; of a step on a cluster also in a log, as it may take hours."""
    if steps is None:
        return progress(what, total, quiet=quiet)
    return progress(steps.title(what), total, quiet=quiet, logged=True)


@contextlib.contextmanager
def session(cluster: Cluster, choices: dict[str, Any] | None = None) -> Iterator[None]:
    """One cluster for all that a command does, where there is one, if it has what a task of the ranking asks for."""
    if cluster.run_on is None:
        yield
        return
    from recallatk.cluster import joined, task_memory

    with joined(cluster.run_on) as engine:
        if choices is not None:
            task_memory(engine.nodes, choices["memory"], _threads(choices), choices["backend"])
        yield


def _threads(choices: dict[str, Any]) -> int:
    """Of each task of the ranking."""
    return 1 if choices["threads"] is None else int(choices["threads"])


def node_lines(where: str) -> dict[str, str]:
    """What a cluster is."""
    from recallatk.cluster import describe_nodes, joined

    with joined(where) as engine:
        return describe_nodes(engine.nodes)


def print_plan(
    cluster: Cluster,
    sides: tuple[int, int | None],
    dim: int,
    choices: dict[str, Any],
    *,
    more: dict[str, str] | None = None,
) -> None:
    """What the cluster is, and what ranking so many queries and gallery items would take."""
    from recallatk.cluster import describe_nodes, describe_ranking, joined, plan_ranking

    n, others = sides
    alone, threads = others is None, _threads(choices)
    assert cluster.run_on is not None
    with joined(cluster.run_on) as engine:
        size = n, n if others is None else others, dim
        memory = choices["memory"]
        plan = plan_ranking(
            *size, engine.nodes, alone=alone, memory=memory, threads=threads, backend=choices["backend"]
        )
        ranked = describe_ranking(*size, plan, engine.nodes, alone=alone, threads=threads)
        _print_lines(describe_nodes(engine.nodes), more or {}, ranked)


def print_plan_of_scores(cluster: Cluster, size: Any, memory: int | None) -> None:
    """As `print_plan`, for scores or lists of this size, as `measure_score_files` says it."""
    from recallatk.cluster import describe_nodes, describe_scores, joined, plan_scores

    assert cluster.run_on is not None
    with joined(cluster.run_on) as engine:
        plan = plan_scores(size.queries, engine.nodes, memory=memory)
        ranked = describe_scores(size.queries, size.gallery, size.listed, plan, width=size.width)
        _print_lines(describe_nodes(engine.nodes), ranked)


def _print_lines(*sections: dict[str, str]) -> None:
    for section in sections:
        for name, value in section.items():
            print(f"{name}: {value}")


def print_plan_of_files(cluster: Cluster, query: EmbeddingSet, gallery: EmbeddingSet | None, choices: Any) -> None:
    """As `print_plan`, for embeddings."""
    print_plan(cluster, (len(query), None if gallery is None else len(gallery)), query.embeddings.shape[1], choices)


def print_plan_of_images(
    cluster: Cluster, dataset: Dataset, encode: Callable[[Dataset], Any], choices: dict[str, Any]
) -> None:
    """As `print_plan`, for images (and texts): a batch is encoded here, to measure its width and its time.

    Args:
        cluster: the cluster.
        dataset: the images.
        encode: encodes some of them in this process.
        choices: of ranking.
    """
    from recallatk.cluster import copies_of_the_model, in_words, joined

    with session(cluster, choices):  # before anything is encoded
        sides = len(dataset.query), None if dataset.gallery is None else len(dataset.gallery)
        images = sum(side or 0 for side in sides)
        both = [side for side in (dataset.query, dataset.gallery) if side is not None]
        what = " and ".join(sorted({f"{side.kind}s" for side in both}))
        slow = next((side for side in both if side.kind == "image"), dataset.query)
        sample = slow.take(range(min(SAMPLED, len(slow))))
        start = time.perf_counter()
        encoded = encode(dataclasses.replace(dataset, query=sample, gallery=None))
        if isinstance(encoded, RecallatkError):
            raise encoded
        seconds = (time.perf_counter() - start) / len(sample)
        dim = encoded.query.embeddings.shape[1]
        assert cluster.run_on is not None
        with joined(cluster.run_on) as engine:
            models = copies_of_the_model(engine, cluster.num_gpus)
        more = {
            what: f"{images:,}; {len(sample)} of them took {1000 * seconds:.1f} ms each on this machine's cores",
            "copies of the model": f"{models:,}",
            "time to encode, if a copy is as fast (estimated)": in_words(images * seconds / models),
        }
        print_plan(cluster, sides, dim, choices, more=more)
