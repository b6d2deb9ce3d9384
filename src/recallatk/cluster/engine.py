"""Functions run elsewhere: all that ranking asks of Ray. For another engine, write another file like this one."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from recallatk.extras import import_extra
from recallatk.types import ChoiceError, RecallatkError

Ref: TypeAlias = Any
"""A value that is somewhere in the cluster; as an argument of a task it is the value itself."""

FAN_IN = 8
"""So many partial results are merged by one task."""

IN_FLIGHT = 4
"""Tasks that wait or run for each core: enough that no core is idle, few enough that their arguments take no room."""

RETRIES = 5
"""So often a task is run again whose worker or node died. What a task itself raises is never tried again."""


PATIENCE = 10.0
"""Seconds until an address that does not answer is given up."""


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


Told: TypeAlias = Callable[[int, int], None]
"""Called with the number of tasks that are done and that there will be."""


@dataclasses.dataclass(eq=False)
class Engine:
    """A cluster that was joined.

    Attributes:
        cores: of the whole cluster.
        nodes: its machines.
        spent: what each finished task took.
        shared: bytes that were shared.
        client: whether it is reached through ray://, which has no Ray Data.
        total: how many tasks there will be, where that is known.
        told: told of the progress.
    """

    nodes: tuple[Node, ...]
    spent: list[Spent] = dataclasses.field(default_factory=list)
    shared: int = 0
    client: bool = False
    total: int = 0
    told: Told | None = None
    _running: list[Ref] = dataclasses.field(default_factory=list)

    @property
    def cores(self) -> int:
        """The cores of all nodes."""
        return sum(node.cores for node in self.nodes)

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

        Returns:
            The `Ref` of the result; a tuple of them with several `returns`.
        """
        import ray

        self._check(self._most // cores)
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
        return results[0] if returns == 1 else tuple(results)

    def fetch(self, ref: Ref) -> Any:
        """The value behind a `Ref`, when it is there.

        Raises:
            RecallatkError: what the task raised, or the cluster lost it.
        """
        import ray

        try:
            with in_one_line():
                return ray.get(ref)
        except BaseException:
            # What else runs was for the same result. It ends with the job, or as it comes: Ray can be told to end it
            # now, but that races with tasks that are just done, and ends the driver.
            self._running.clear()
            raise

    def finish(self) -> None:
        """Wait for everything that runs."""
        self._check(1)

    @property
    def _most(self) -> int:
        return max(IN_FLIGHT * self.cores, 2)

    def _check(self, most: int) -> None:
        """Wait until fewer than so many tasks run; what one of them raised is raised here, at once."""
        import ray

        while len(self._running) >= max(most, 1):
            done, self._running = ray.wait(self._running, num_returns=1)
            self.spent += self.fetch(done)
            if self.told is not None:
                self.told(len(self.spent), max(self.total, len(self.spent)))


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
def joined(where: str, *, cores: int | None = None, told: Told | None = None) -> Iterator[Engine]:
    """Join a cluster, or start one on this machine; a cluster that was started here ends with the `with` block.

    Args:
        where: "ray" starts Ray on this machine; "auto", HOST:PORT and ray://HOST:PORT join a cluster that runs, and
            leave it as it was. In a process that has joined one already, that one is used.
        cores: of the cluster that is started; default all that this process may use.
        told: told of the progress.

    Raises:
        ChoiceError: `where` is none of these.
        RecallatkError: Ray is not installed, or nothing answers there.
    """
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # we raise the first one ourselves, in one line
    ray = import_extra("ray", "ray", f"the cluster {where!r}")
    if ray.is_initialized():
        yield Engine(_nodes(ray), told=told, client=bool(ray.util.client.ray.is_connected()))
        return
    with _told_on_stderr():
        _begin(ray, where, cores)
        try:
            yield Engine(_nodes(ray), told=told, client=bool(ray.util.client.ray.is_connected()))
        finally:
            ray.shutdown()  # with the job end its workers, also on another cluster


@contextlib.contextmanager
def _told_on_stderr() -> Iterator[None]:
    """Ray tells on stdout of workers that died, also without `log_to_driver`; that is for results, so on stderr."""
    worker = importlib.import_module("ray._private.worker")
    tell = getattr(worker, "print_to_stdstream", None)
    if tell is None:
        yield
        return
    vars(worker)["print_to_stdstream"] = lambda data, *rest, **more: tell({**data, "is_err": True}, *rest, **more)
    try:
        yield
    finally:
        vars(worker)["print_to_stdstream"] = tell


def address_of(where: str) -> str | None:
    """The address of a cluster that runs; None for one to be started here.

    >>> address_of("ray"), address_of("10.0.0.1:6379"), address_of("ray://head:10001")
    (None, '10.0.0.1:6379', 'ray://head:10001')
    """
    if where == "ray":
        return None
    if where == "auto" or re.fullmatch(r"(ray://)?([\w.-]+|\[[\da-fA-F:.%]+\]):\d+", where):
        return where
    raise ChoiceError(f"the cluster {where!r}: give ray (on this machine), auto, HOST:PORT or ray://HOST:PORT")


def _begin(ray: Any, where: str, cores: int | None) -> None:
    from recallatk.cores import usable_cores

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    address = address_of(where)
    if address is None:
        # "local": without it Ray joins a cluster that it finds on this machine.
        quiet |= {"address": "local", "num_cpus": cores or usable_cores(), "include_dashboard": False}
    else:
        quiet |= {"address": address}
    try:
        if address not in (None, "auto"):
            _knock(address)
        with contextlib.redirect_stdout(sys.stderr), _quiet_core():
            ray.init(**quiet)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise RecallatkError(f"the cluster {where!r}: none answers there ({_first_line(error)})") from error


@contextlib.contextmanager
def _quiet_core() -> Iterator[None]:
    """Ray's C++ writes on file 2, past Python, of what is tried again or of no matter; with this, only when it ends.

    The level is read by `ray.init`, which writes there that it has read it.
    """
    level = "RAY_BACKEND_LOG_LEVEL"
    if level in os.environ:
        yield
        return
    os.environ[level] = "fatal"
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        del os.environ[level]


def _knock(address: str) -> None:
    """Raise OSError at once where nothing listens; Ray would wait for minutes."""
    host, port = address.removeprefix("ray://").rsplit(":", 1)
    socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE).close()


def _nodes(ray: Any) -> tuple[Node, ...]:
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
                what = f"a worker ran out of memory ({_first_line(cause)}); allow it less with --memory"
                raise RecallatkError(what) from error
            if missing := re.search(r"No module named '[^']*'", str(cause)):
                what = f"a worker cannot import what it was sent ({missing[0]})"
                raise RecallatkError(f"{what}; install it on every node, or run in the folder of it") from error
        raise
    except RayError as error:
        raise RecallatkError(
            f"the cluster lost a task, {RETRIES + 1} times ({type(error).__name__}: {_first_line(error)}); what was "
            "finished is kept, so run the command again"
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """What a task raised, whatever it was wrapped in on the way."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = getattr(error, "cause", None) or error.__cause__
    yield from seen[1:]


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
