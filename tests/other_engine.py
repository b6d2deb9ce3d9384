"""Another engine and pipeline than those of Ray, as `recallatk.cluster` asks for: all of it here, in any order."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

from recallatk.cluster import Engine, Job, Node
from recallatk.cluster.tables import EncodeTables, decode_table, tables_of

MB = 2**20


@dataclasses.dataclass(eq=False)
class Task:
    """What was asked for: it travels as a pickle, as it would to another machine, and so does what it gives."""

    sent: bytes
    arguments: tuple[Any, ...]
    returns: int
    given: list[bytes] | None = None

    def run(self) -> None:
        function, places = pickle.loads(self.sent)
        values = [value_of(self.arguments[place]) if plain is None else plain[0] for place, plain in places]
        result = function(*values)
        self.given = [pickle.dumps(one) for one in ((result,) if self.returns == 1 else result)]


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """One value that a task gives."""

    task: Task
    place: int


def value_of(ref: Value) -> Any:
    """The value, after the tasks that it comes from."""
    if ref.task.given is None:
        ref.task.run()
    return pickle.loads(ref.task.given[ref.place])


@dataclasses.dataclass(frozen=True)
class Closed:
    """A value that is opened by who asks for it."""

    sent: bytes

    def open(self) -> Any:
        return pickle.loads(self.sent)


class AnyOrder(Engine):
    """Tasks run when a result is asked for, in an order of their own; a third of them again, as after a loss."""

    def __init__(self, rng: np.random.Generator, cores: int = 3) -> None:
        super().__init__(nodes=(Node("here", cores, 0, 64 * 1024 * MB),))
        self.rng = rng
        self.known: list[Task] = []

    def share(self, value: Any) -> Any:
        task = Task(b"", (), 1, [pickle.dumps(value)])
        return Value(task, 0)

    def share_for_later(self, value: Any) -> Any:
        return Closed(pickle.dumps(value))

    def run(self, function: Any, *arguments: Any, returns: int = 1, **_: Any) -> Any:
        places = [(place, None if isinstance(one, Value) else (one,)) for place, one in enumerate(arguments)]
        task = Task(pickle.dumps((function, places)), arguments, returns)
        self.known.append(task)
        values = tuple(Value(task, place) for place in range(returns))
        return values[0] if returns == 1 else values

    def fetch(self, ref: Any) -> Any:
        for task in self.rng.permutation(np.array([*self.known, None], object))[
            : self.rng.integers(len(self.known) + 1)
        ]:
            if task is not None and (task.given is None or self.rng.random() < 1 / 3):
                task.run()
        return value_of(ref)

    def ready(self, ref: Any) -> bool:
        return self.rng.random() < 1 / 2

    def finish(self) -> None:
        self.known.clear()


def other_pipeline(engine: Engine, image_sets: Any, job: Job, gpus: int | None) -> Iterator[list[dict[str, Any]]]:
    """Images are read, decoded and encoded here, a table after the other: all that encoding asks of a pipeline."""
    encode = EncodeTables(job)
    for table in tables_of(image_sets, engine.cores):
        decoded = decode_table(table, job=job)
        for start in range(0, len(decoded), job.batch):
            yield encode(decoded.slice(start, job.batch)).to_pylist()
