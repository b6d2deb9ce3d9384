"""Functions run elsewhere: with `joining.py` all that ranking asks of Ray. For another engine, write two like them."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from recallatk.memory import megabytes
from recallatk.types import RecallatkError

Ref: TypeAlias = Any
"""A value that is somewhere in the cluster; as an argument of a task it is the value itself."""

FAN_IN = 8
"""So many partial results are merged by one task."""

IN_FLIGHT = 4
"""Tasks that wait or run for each core: enough that no core is idle, few enough that their arguments take no room."""

RETRIES = 5
"""So often a task is run again whose worker or node died. What a task itself raises is never tried again."""

PATIENCE = 10.0
"""Seconds until an address that does not answer is given up, and between two looks at what goes on."""

ABSENT = 60.0
"""Seconds for which there may be no node that could run a task: one that was lost may come back, or another one."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One machine of the cluster: its name, cores, GPUs, and the memory that tasks may ask for, in bytes."""

    name: str
    cores: int
    gpus: int
    memory: int


@dataclasses.dataclass(frozen=True)
class Spent:
    """What a task took.

    Attributes:
        seconds: from its begin to its end.
        processor: seconds of processor time.
        resident: the most that its process ever held, in bytes.
        moved: bytes of arrays that it was given and gave, without what is shared by all tasks.
    """

    seconds: float
    processor: float
    resident: int
    moved: int


class ClusterError(RecallatkError):
    """What the cluster itself did wrong: what it logged says more."""


Told: TypeAlias = Callable[[int, int], None]
"""Called with the number of steps that are done and that there will be."""


@dataclasses.dataclass(eq=False)
class Engine:
    """A cluster that was joined.

    Attributes:
        cores: of the whole cluster.
        nodes: its machines.
        spent: what each finished task took.
        shared: bytes that were shared.
        client: whether it is reached through ray://, which has no Ray Data.
        told: told of the progress: of steps that are done, and all that `expect` named.
    """

    nodes: tuple[Node, ...]
    spent: list[Spent] = dataclasses.field(default_factory=list)
    shared: int = 0
    client: bool = False
    told: Told | None = None
    _running: list[Ref] = dataclasses.field(default_factory=list)
    _steps: set[Ref] = dataclasses.field(default_factory=set)
    _done: int = 0
    _expected: int = 0
    _needs: tuple[int, int, int] = (1, 0, 0)

    @property
    def cores(self) -> int:
        """The cores of all nodes."""
        return sum(node.cores for node in self.nodes)

    def expect(self, steps: int) -> None:
        """So many steps will come: tasks whose number is known before, so that progress never goes back."""
        self._expected = self._done + steps
        self._tell()

    def share(self, value: Any) -> Ref:
        """Put a value where tasks find it; a node fetches it once, however many of its tasks ask for it."""
        import ray

        self.shared += _nbytes(value)
        return ray.put(value)

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
        """Run a function of a module somewhere, when there is room; waits while there is more than enough to do.

        The function must be pure: it may run again, and its result is then computed again, if a worker or node dies.

        Args:
            function: called with the arguments; a `Ref` among these is its value there.
            arguments: of the function.
            returns: with more than one, the function gives a tuple of so many values.
            cores: that it keeps busy.
            gpus: that it has for itself.
            memory: bytes that it may take; a node runs no more tasks at once than its memory holds.
            step: it is one of those that `expect` counts.

        Returns:
            The `Ref` of the result; a tuple of them with several `returns`.
        """
        import ray

        self._check(self._most // cores)
        self._needs = max(self._needs[0], cores), max(self._needs[1], gpus), max(self._needs[2], memory)
        remote = ray.remote(_measured).options(
            num_returns=returns + 1,
            num_cpus=cores,
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
        """The value behind a `Ref`, when it is there.

        Raises:
            RecallatkError: what the task raised, or the cluster lost it.
        """
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

    def finish(self) -> None:
        """Wait for everything that runs."""
        self._check(1)

    @property
    def _most(self) -> int:
        return max(IN_FLIGHT * self.cores, 2)

    def _check(self, most: int) -> None:
        """Wait until fewer than so many tasks run; what one of them raised is raised here, at once."""
        while len(self._running) >= max(most, 1):
            done, self._running = self._first_of(self._running)
            self.spent += self.fetch(done)
            if self._steps.intersection(done):
                self._steps.difference_update(done)
                self._done += len(done)
                self._tell()

    def _tell(self) -> None:
        if self.told is not None:
            self.told(self._done, self._expected)

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
            if able_nodes(live_nodes(ray), *self._needs):
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


def able_nodes(nodes: Sequence[Node], cores: int, gpus: int = 0, memory: int = 0) -> list[Node]:
    """The nodes that have what one task asks for."""
    return [node for node in nodes if node.cores >= cores and node.gpus >= gpus and node.memory >= memory]


class Merge:
    """Partial results merged in a tree, as they are handed over: no task has more than FAN_IN of them."""

    def __init__(self, engine: Engine, function: Callable[[Sequence[Any]], Any]) -> None:
        self._engine, self._function = engine, function
        self._levels: list[list[Ref]] = []

    def add(self, ref: Ref, level: int = 0) -> None:
        """Hand over a partial result."""
        if level == len(self._levels):
            self._levels.append([])
        self._levels[level].append(ref)
        if len(self._levels[level]) == FAN_IN:
            together, self._levels[level] = self._levels[level], []
            self.add(self._merged(together), level + 1)

    def root(self) -> Ref | None:
        """The result of everything that was handed over; None of nothing."""
        left = [ref for level in self._levels for ref in level]
        while len(left) > 1:
            left = [self._merged(left[start : start + FAN_IN]) for start in range(0, len(left), FAN_IN)]
        self._levels = [left]
        return left[0] if left else None

    def _merged(self, refs: list[Ref]) -> Ref:
        return refs[0] if len(refs) == 1 else self._engine.run(_merge, self._function, *refs)


def _merge(function: Callable[[Sequence[Any]], Any], *parts: Any) -> Any:
    return function(parts)


def _measured(function: Callable[..., Any], returns: int, *arguments: Any) -> tuple[Any, ...]:
    start, busy = time.perf_counter(), time.process_time()
    result = function(*arguments)
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
    from ray.exceptions import RayError, RayTaskError

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
        raise ClusterError(
            f"the cluster lost a task, {RETRIES + 1} times ({type(error).__name__}: {first_line(error)}); run the "
            "command again: parts of encoding that are finished are kept"
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """What a task raised, whatever it was wrapped in on the way."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = getattr(error, "cause", None) or error.__cause__
    yield from seen[1:]


def first_line(error: BaseException) -> str:
    """What an error says first."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
