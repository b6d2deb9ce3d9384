"""The engine of a cluster of Ray: functions run there as Ray's tasks, and what Ray says of them in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recallatk.cluster.engine import IN_FLIGHT, ClusterError, Engine, Node, Ref, Told, able_nodes
from recallatk.memory import megabytes, release_shared_pages
from recallatk.types import RecallatkError, first_line

RETRIES = 5
"""So often a task is run again whose worker or node died. What a task itself raises is never tried again."""

PATIENCE = 10.0
"""Seconds until an address that does not answer is given up, and between two looks at what goes on."""

ABSENT = 60.0
"""Seconds for which there may be no node that could run a task: one that was lost may come back, or another one."""

SHARE_OF_A_CORE = 0.001
"""What a process asks for that lives long and takes none of the cores of tasks: it is put on a node that has some."""

LEFT_OF_A_CORE = 0.01
"""What a task leaves of its cores for such processes: on a node of one core it would never run beside one."""

LOOK_EVERY = 0.5
"""Seconds between two looks at how far something is inside the cluster."""


@dataclasses.dataclass(frozen=True)
class SharedForLater:
    """A value in Ray's object store, as `Later`."""

    ref: Ref

    def open(self) -> Any:
        """The value."""
        import ray

        return ray.get(self.ref)


@dataclasses.dataclass(frozen=True)
class Spent:
    """What a task took.

    Attributes:
        seconds: from its beginning to its end.
        processor: seconds of processor time.
        resident: the most that its process ever held, in bytes.
        moved: bytes of arrays that it was given and gave, without what is shared by all tasks.
    """

    seconds: float
    processor: float
    resident: int
    moved: int


@dataclasses.dataclass(eq=False)
class RayEngine(Engine):
    """A cluster of Ray that was joined; a client is one that reaches it through ray://, which has no Ray Data.

    Attributes:
        spent: what each finished task took.
        shared: bytes that were shared.
        head_answers: whether the head of the cluster can be reached now.
    """

    spent: list[Spent] = dataclasses.field(default_factory=list)
    shared: int = 0
    head_answers: Callable[[], bool] = lambda: True
    _running: list[Ref] = dataclasses.field(default_factory=list)
    _steps: set[Ref] = dataclasses.field(default_factory=set)
    _needs: tuple[int, int, int] = (1, 0, 0)

    def share(self, value: Any) -> Ref:
        """Put a value in the object store."""
        import ray

        self.shared += _nbytes(value)
        return ray.put(value)

    def share_for_later(self, value: Any) -> SharedForLater:
        """Put a value in the object store, which is fetched from there when it is opened."""
        return SharedForLater(self.share(value))

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        returns: int = 1,
        cores: int = 1,
        gpus: int = 0,
        memory: int = 0,
        step: bool = False,
    ) -> Any:
        """Run a function as a task of Ray, which it runs again when a worker or a node dies."""
        import ray

        self._wait(self._most // cores)
        self._needs = max(self._needs[0], cores), max(self._needs[1], gpus), max(self._needs[2], memory)
        remote = ray.remote(_measured).options(
            num_returns=returns + 1,
            num_cpus=cores - LEFT_OF_A_CORE,
            num_gpus=gpus,
            memory=memory,
            max_retries=RETRIES,
            retry_exceptions=False,
            name=function.__name__.strip("_"),
        )
        *results, spent = remote.remote(function, returns, *arguments)
        self._running.append(spent)
        if step:
            self._steps.add(spent)
        return results[0] if returns == 1 else tuple(results)

    def fetch(self, ref: Ref) -> Any:
        """Wait for values in Ray's object store; an error there comes as one line."""
        import ray

        try:
            with in_one_line():
                self._first_of(ref if isinstance(ref, list) else [ref])
                return ray.get(ref)
        except BaseException:
            # What else runs was for the same result. It ends with the job, or as it comes: Ray can be told to end it
            # now, but that races with tasks that are just done, and ends the driver.
            self._running.clear()
            self._steps.clear()
            raise

    def ready(self, ref: Ref) -> bool:
        """Whether the object store has the value."""
        import ray

        return bool(ray.wait([ref], timeout=0)[0])

    def call_inside(
        self, function: Callable[..., Any], *arguments: Any, on_progress: Told | None, **choices: Any
    ) -> Any:
        """Call a function in an actor, which is made again when its process dies."""
        import ray

        again = {"max_restarts": RETRIES, "max_task_retries": RETRIES}
        inside = ray.remote(_Inside).options(num_cpus=SHARE_OF_A_CORE, max_concurrency=2, **again).remote()
        try:
            with in_one_line():
                answer = inside.call.remote(function, arguments, choices)
                while not ray.wait([answer], timeout=LOOK_EVERY)[0]:
                    if on_progress is not None and (told := ray.get(inside.told_last.remote())) is not None:
                        on_progress(*told)
                return ray.get(answer)
        finally:
            ray.kill(inside)

    def finish(self) -> None:
        """Wait for all tasks that were run."""
        self._wait(1)

    @property
    def _most(self) -> int:
        return max(IN_FLIGHT * self.cores, 2)

    def _wait(self, most: int) -> None:
        """Until fewer than so many tasks run; what one of them raised is raised here, at once."""
        while len(self._running) >= max(most, 1):
            done, self._running = self._first_of(self._running)
            self.spent += self.fetch(done)
            if self._steps.intersection(done):
                self._steps.difference_update(done)
                self.advance(len(done))

    def _first_of(self, refs: list[Ref]) -> tuple[list[Ref], list[Ref]]:
        """The first of these values that is there, and the others.

        Raises:
            RecallatkError: nothing comes, as no node is left that could run a task.
        """
        import ray

        able = time.monotonic()
        while True:
            done, others = ray.wait(refs, num_returns=1, timeout=min(PATIENCE, ABSENT / 2))
            if done:
                return done, others
            if not self.head_answers() or able_nodes(live_nodes(ray), *self._needs):
                able = time.monotonic()
            elif time.monotonic() - able > ABSENT:
                raise ClusterError(
                    f"the cluster lost its nodes: for {ABSENT:.0f} s none was left that could run a task "
                    f"({self._needs[0]} cores, {self._needs[1]} GPUs, {megabytes(self._needs[2])}); start some, and "
                    "run the command again"
                )


def live_nodes(ray: Any) -> tuple[Node, ...]:
    """The machines of the cluster that are there."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return tuple(
        Node(
            str(node["NodeManagerHostname"]),
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
            int(node["Resources"].get("memory", 0)),
        )
        for node in alive
    )


class _Inside:
    """An actor that calls a function, and says meanwhile how far that is."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], choices: Mapping[str, Any]) -> Any:
        import ray

        return function(RayEngine(live_nodes(ray)), *arguments, **choices, on_progress=self._tell)

    def told_last(self) -> tuple[int, int] | None:
        return self._last

    def _tell(self, done: int, total: int) -> None:
        self._last = done, total


def _measured(function: Callable[..., Any], returns: int, *arguments: Any) -> tuple[Any, ...]:
    """What every task runs: the function, whose results it gives with what they took."""
    import resource  # not on Windows, where this file is imported all the same

    release_shared_pages()  # what the last task read and gave
    start, busy = time.perf_counter(), time.process_time()
    result = function(*arguments)
    release_shared_pages()
    kilobyte = 1 if sys.platform == "darwin" else 1024
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilobyte
    own = [argument for argument in arguments if not hasattr(argument, "nbytes")]
    seconds, processor = time.perf_counter() - start, time.process_time() - busy
    spent = Spent(seconds, processor, resident, _nbytes(result) + sum(map(_nbytes, own)))
    return (*([result] if returns == 1 else result), spent)


def _nbytes(value: Any) -> int:
    """The bytes of all arrays in a value."""
    if dataclasses.is_dataclass(value):
        return sum(_nbytes(part) for part in vars(value).values())
    if isinstance(value, Mapping):
        return sum(map(_nbytes, value.values()))
    if isinstance(value, tuple | list):
        return sum(map(_nbytes, value))
    return int(getattr(value, "nbytes", 0))


@contextlib.contextmanager
def in_one_line() -> Iterator[None]:
    """Our own errors as they were raised there; the cluster's in one line; what is a bug keeps its traceback."""
    from ray.exceptions import OutOfMemoryError, RayError, RayTaskError

    try:
        yield
    except RayTaskError as error:
        for cause in _causes(error):
            if isinstance(cause, RecallatkError):
                raise cause from None
            if isinstance(cause, MemoryError):
                what = f"a worker ran out of memory ({first_line(cause)}); allow it less with --memory"
                raise RecallatkError(what) from error
            if missing := re.search(r"No module named '[^']*'", str(cause)):
                what = f"a worker cannot import what it was sent ({missing[0]})"
                raise RecallatkError(f"{what}; install it on every node, or run in the folder of it") from error
        raise
    except RayError as error:
        again = (
            "run the command again: parts of encoding and blocks of a ranking that are finished are kept (these not "
            "with --no-cache)"
        )
        if isinstance(error, OutOfMemoryError):
            again = f"use a smaller --batch-size, or less --memory, and {again}"
        what = f"the cluster lost a task, {RETRIES + 1} times ({type(error).__name__}: {first_line(error)})"
        raise ClusterError(f"{what}; {again}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """What a task raised, whatever it was wrapped in on the way."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = getattr(error, "cause", None) or error.__cause__
    yield from seen[1:]
