"""What runs functions elsewhere, as ranking and encoding ask for it; `ray_engine.py` does it with Ray."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from recallatk.types import RecallatkError

Ref: TypeAlias = Any
"""A value that is somewhere in the cluster; as an argument of a task it is the value itself."""

Told: TypeAlias = Callable[[int, int], None]
"""Called with the number of steps that are done and that there will be."""

IN_FLIGHT = 4
"""Tasks that wait or run for each core: enough that no core is idle, few enough that their arguments take no room."""


@dataclasses.dataclass(frozen=True)
class Node:
    """One machine of the cluster: its name, cores, GPUs, and the memory that tasks may ask for, in bytes."""

    name: str
    cores: int
    gpus: int
    memory: int


class Later(Protocol):
    """A shared value that a task fetches when it asks for it, and gives back again; not all of it before it begins."""

    def open(self) -> Any:
        """The value."""


class ClusterError(RecallatkError):
    """What the cluster itself did wrong: what it logged says more."""


@dataclasses.dataclass(eq=False)
class Engine(abc.ABC):
    """A cluster that was joined.

    Attributes:
        nodes: its machines.
        client: whether it is reached from outside, where its pipeline cannot be used; then it has `call_inside`.
        told: told how many of the steps that `expect` announced are done.
    """

    nodes: tuple[Node, ...]
    client: bool = False
    told: Told | None = None
    _done: int = 0
    _expected: int = 0

    @property
    def cores(self) -> int:
        """The cores of all nodes."""
        return sum(node.cores for node in self.nodes)

    @property
    def gpus(self) -> int:
        """The GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    def expect(self, steps: int) -> None:
        """Announce so many more steps: tasks whose number is known before they run, so progress never goes back."""
        self._expected = self._done + steps
        self._tell()

    def advance(self, steps: int) -> None:
        """So many of the steps that were announced are done."""
        self._done += steps
        self._tell()

    @abc.abstractmethod
    def share(self, value: Any) -> Ref:
        """Put a value where tasks find it; a node fetches it once, however many of its tasks ask for it."""

    @abc.abstractmethod
    def share_for_later(self, value: Any) -> Later:
        """Share a value that tasks get closed: as part of an argument, and opened when they ask for it."""

    @abc.abstractmethod
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
        """Run a function somewhere; where enough tasks wait or run already, this waits until some of them are done.

        It must be a pure function of a module: if a worker or a node dies, it is run again.

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

    @abc.abstractmethod
    def fetch(self, ref: Ref) -> Any:
        """Wait for the value behind a `Ref`; for a list of them, for all their values.

        Raises:
            RecallatkError: the task raised it, or the cluster lost the task.
        """

    @abc.abstractmethod
    def ready(self, ref: Ref) -> bool:
        """Whether the value behind a `Ref` is there; of a task that failed it is what it raised."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Wait for everything that runs."""

    def call_inside(
        self, function: Callable[..., Any], *arguments: Any, on_progress: Told | None, **choices: Any
    ) -> Any:
        """Call a function in a process of the cluster, with an engine there, which can do what a client cannot.

        It is called again, elsewhere, if that process dies.

        Args:
            function: called with the engine and the arguments, and with `on_progress`.
            arguments: of the function.
            on_progress: told here what the function tells there.
            choices: of the function.

        Raises:
            RecallatkError: the function raised it, or the cluster lost the process.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be asked this; only an engine with `client` is")

    def _tell(self) -> None:
        if self.told is not None:
            self.told(self._done, self._expected)


def able_nodes(nodes: Sequence[Node], cores: int, gpus: int = 0, memory: int = 0) -> list[Node]:
    """The nodes that have what one task asks for."""
    return [node for node in nodes if node.cores >= cores and node.gpus >= gpus and node.memory >= memory]
