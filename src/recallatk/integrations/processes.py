"""Rows that lie in several processes of torch.distributed, evaluated as one set; every process gets the report.

The rows of the others travel to process 0, a block at a time, into two arrays that lie in a temporary file where they
would take more than a quarter of the free memory. Process 0 evaluates them as `evaluate_embeddings` does and sends the
report to all. So no process holds more than its own rows and a block, process 0 beside that what ranking takes, and the
report is that of one process. Whatever goes wrong on process 0 is raised on all.
"""

from __future__ import annotations

import contextlib
import datetime
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeVar, cast, get_args

from recallatk.evaluation import NothingToEvaluateError, evaluate_embeddings
from recallatk.extras import import_extra
from recallatk.integrations.rows import Notes, Rows, block_rows
from recallatk.integrations.sides import Sides
from recallatk.report import Provenance, Report
from recallatk.types import EvalProtocol, Float32Rows, Qrels, RecallatkError
from recallatk.wording import one_line

CollectDevice = Literal["cpu", "gpu"]

Made = TypeVar("Made")

TIMEOUT = 1800.0
"""Seconds; that of torch.distributed itself."""

_GPU = "cuda"
"""The current one of this process, as `torch.cuda.set_device` set it."""

_CONTROL_GROUPS: list[tuple[Any, float, Any]] = []
"""Process group, timeout, and the gloo group made for them: making one is an exchange in itself."""


def evaluate_rows(
    rows: Rows,
    *,
    protocol: EvalProtocol | None = None,
    qrels: Qrels | None = None,
    metrics: Sequence[str] = (),
    together: bool = True,
    group: Any = None,
    collect_device: CollectDevice = "cpu",
    timeout: float = TIMEOUT,
    memory: int | None = None,
    threads: int | None = None,
) -> Report:
    """Evaluate the rows of all processes; each of them calls this, also one that has no rows.

    Args:
        rows: those of this process.
        protocol: as for `evaluate_embeddings`; of process 0, as are qrels, metrics, memory and threads.
        qrels: as for `evaluate_embeddings`.
        metrics: as for `evaluate_embeddings`.
        together: False for the rows of this process alone.
        group: a process group; default all processes of torch.distributed, or this one alone where it is not in use.
        collect_device: where rows travel: "cpu" (gloo), or "gpu" (the NCCL of the group).
        timeout: seconds that processes wait for each other, counting included.
        memory: as for `evaluate_embeddings`.
        threads: as for `evaluate_embeddings`.

    Raises:
        RecallatkError: as for `evaluate_embeddings`; rows that do not fit each other; a process that does not come.
            On every process.
    """

    def count(sides: Sides, warnings: tuple[str, ...] = ()) -> Report:
        query, gallery = sides.sets()
        return evaluate_embeddings(
            query,
            gallery,
            protocol=protocol,
            qrels=qrels,
            metrics=metrics,
            memory=memory,
            threads=threads,
            provenance=Provenance(notes=sides.notes, warnings=(*warnings, *sides.doubts())),
        )

    number, world = number_and_world(group) if together else (0, 1)
    if world == 1:
        return count(_collect(rows))
    exchange = _Exchange(group, collect_device, timeout)
    heads = exchange.gather((rows.notes, *_dim_or_error(rows)))
    sides: list[Sides] = []

    def place() -> int:
        dim = _common_dim(heads)
        sides.append(Sides.of([head[0] for head in heads], dim))
        return dim

    def finish() -> Report:
        if failure is not None:
            raise failure
        return count(sides[0], _doubts([head[0] for head in heads]))

    dim = exchange.from_first(place)
    failure = exchange.bring(rows, dim, sides[0] if number == 0 else None, [len(head[0]) for head in heads])
    return exchange.from_first(finish)


def number_and_world(group: Any = None) -> tuple[int, int]:
    """The number of this process and how many there are; (0, 1) where torch.distributed is not in use."""
    if "torch" not in sys.modules:
        return 0, 1
    dist = _distributed()
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    number = dist.get_rank(group)
    if number < 0:
        raise RecallatkError("this process is not in the process group; only its members may call this")
    return number, dist.get_world_size(group)


class _Exchange:
    """What processes do together. Small things go through a gloo group of our own, whatever the backend is."""

    def __init__(self, group: Any, collect_device: CollectDevice, timeout: float) -> None:
        self.dist, self.torch = _distributed(), import_extra("torch", "torch", "an evaluation in several processes")
        self.timeout = timeout
        self.number, self.world = number_and_world(group)
        if collect_device not in get_args(CollectDevice):
            raise RecallatkError(f"collect_device={collect_device!r} is not a choice; choose one of: cpu, gpu")
        if collect_device == "gpu":
            self._check_gpu(group)
        parent = self.dist.group.WORLD if group is None else group
        with self._waiting():
            if self.dist.get_backend(parent) == "gloo":  # names who does not come; making a group would not
                self._meet(parent)
            self.control = self._control_group(parent)
            self._meet(self.control)
        self.route = group if collect_device == "gpu" else self.control
        self.device = _GPU if collect_device == "gpu" else "cpu"

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes on process 0; nothing on the others."""
        values: list[Any] | None = [None] * self.world if self.number == 0 else None
        with self._waiting():
            self.dist.gather_object(value, values, group=self.control, group_dst=0)
        return values or []

    def from_first(self, make: Callable[[], Made]) -> Made:
        """What process 0 makes, on all; or the error that it raises, on all."""
        answer: list[Any] = [None, None]
        if self.number == 0:
            try:
                answer[0] = make()
            except Exception as error:  # whatever it is, the others wait for an answer
                answer[1] = error
        sent = [*answer]
        if self.number == 0 and answer[1] is not None:
            sent = [None, _picklable(answer[1])]
        with self._waiting():
            self.dist.broadcast_object_list(sent, group=self.control, group_src=0)
        answer = answer if self.number == 0 else sent
        if answer[1] is not None:
            raise answer[1]
        return cast("Made", answer[0])

    def bring(self, rows: Rows, dim: int, sides: Sides | None, counts: Sequence[int]) -> Exception | None:
        """Bring the rows of all processes into the sides on process 0.

        Returns:
            The first thing that went wrong with rows; the others wait until theirs were taken all the same.
        """
        size = block_rows(dim)
        if sides is None:
            for block in rows.blocks(size):
                with self._waiting():
                    self.dist.send(self.torch.from_numpy(block).to(self.device), group=self.route, group_dst=0)
            return None
        failure: Exception | None = None
        for process, n in enumerate(counts):
            start = 0
            for block in rows.blocks(size) if process == 0 else self._received(process, n, dim, size):
                try:
                    if failure is None:
                        sides.fill(process, start, block)
                except Exception as error:
                    failure = error
                start += len(block)
        return failure

    def _received(self, process: int, n: int, dim: int, size: int) -> Iterator[Float32Rows]:
        for start in range(0, n, size):
            block = self.torch.empty((min(size, n - start), dim), dtype=self.torch.float32, device=self.device)
            with self._waiting():
                self.dist.recv(block, group=self.route, group_src=process)
            yield block.cpu().numpy()

    def _check_gpu(self, group: Any) -> None:
        if not self.torch.cuda.is_available():
            raise RecallatkError("collect_device='gpu', and this process has no GPU; use collect_device='cpu'")
        backend = self.dist.get_backend_config(group)
        if "nccl" not in backend:
            raise RecallatkError(
                f"collect_device='gpu' needs a process group with NCCL, and this one has {backend}; use "
                "collect_device='cpu', or init_process_group('nccl')"
            )

    def _meet(self, group: Any) -> None:
        self.dist.monitored_barrier(group, datetime.timedelta(seconds=self.timeout), wait_all_ranks=True)

    def _control_group(self, parent: Any) -> Any:
        for known, timeout, control in _CONTROL_GROUPS:
            if known is parent and timeout == self.timeout:
                return control
        control = self.dist.new_group(
            self.dist.get_process_group_ranks(parent),
            timeout=datetime.timedelta(seconds=self.timeout),
            backend="gloo",
            use_local_synchronization=True,  # only the members of the group come here
        )
        _CONTROL_GROUPS.append((parent, self.timeout, control))
        return control

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """What torch.distributed raises, in words."""
        try:
            yield
        except RuntimeError as error:
            first = one_line(str(error).strip().split("\n")[0])
            raise RecallatkError(
                f"process {self.number} of {self.world} lost the others: one failed (look at what it printed), did not "
                f"call compute() as all must, or took longer than timeout={self.timeout:g} s ({first})"
            ) from error


def _collect(rows: Rows) -> Sides:
    """The rows of the only process."""
    dim = _common_dim([(rows.notes, *_dim_or_error(rows))])
    sides = Sides.of([rows.notes], dim)
    start = 0
    for block in rows.blocks(block_rows(dim)):
        sides.fill(0, start, block)
        start += len(block)
    return sides


def _dim_or_error(rows: Rows) -> tuple[int | None, str | None]:
    try:
        return rows.dim, None
    except RecallatkError as error:
        return None, str(error)


def _common_dim(heads: Sequence[tuple[Notes, int | None, str | None]]) -> int:
    """The columns of all embeddings."""
    dims = {}
    for process, (_, dim, error) in enumerate(heads):
        if error is not None:
            raise RecallatkError(error)
        if dim is not None:
            dims[dim] = process
    if not dims:
        raise NothingToEvaluateError("there are no rows; update with at least one batch of embeddings")
    if len(dims) > 1:
        (one, first), (other, second) = sorted(dims.items())[:2]
        raise RecallatkError(
            f"the embeddings have {one} columns in process {first} and {other} in process {second}; the dimension must "
            "be the same, so load the same model everywhere"
        )
    return next(iter(dims))


def _doubts(parts: Sequence[Notes]) -> tuple[str, ...]:
    """Without ids, as many rows in every process can be the work of a sampler that pads; other numbers cannot."""
    if any(name is not None for part in parts for name in part.ids) or len({len(part) for part in parts}) > 1:
        return ()
    return (
        f"{len(parts)} processes hold as many rows each, as with samplers that repeat rows to that end (such as "
        "DistributedSampler); without ids repeated rows cannot be found and count twice, so give ids",
    )


def _distributed() -> Any:
    return import_extra("torch.distributed", "torch", "an evaluation in several processes")


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"process 0: {type(error).__name__}: {error}")
    return error
