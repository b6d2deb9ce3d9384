"""A cluster of Ray joined, or started here and ended again; what it would print by itself is kept off stdout."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recallatk.cluster.engine import ClusterError, Engine, Told
from recallatk.cluster.head import answers, knock, watched
from recallatk.cluster.logs import folder_of_ours, keeping_logs, own_folder
from recallatk.cluster.ray_engine import RayEngine, live_nodes
from recallatk.cluster.signals import ended_by_signals, signals_later, still_ended
from recallatk.extras import import_extra
from recallatk.types import ChoiceError, RecallatkError, first_line

CLIENT_ATTEMPTS = 3
"""So often a client asks the head of a cluster to let it in."""


@contextlib.contextmanager
def joined(where: str, *, cores: int | None = None, told: Told | None = None) -> Iterator[Engine]:
    """Join a cluster, or start one on this machine; a cluster that was started here ends with the `with` block.

    Where this process had not joined one before, SIGTERM and SIGHUP end the block by `Ended`, unless they are handled.

    Args:
        where: "ray" starts Ray on this machine; "auto", HOST:PORT and ray://HOST:PORT join a cluster that runs, and
            leave it as it was. In a process that has joined one already, that one is used.
        cores: of the cluster that is started; default all that this process may use.
        told: told of the progress.

    Raises:
        ChoiceError: `where` is none of these.
        RecallatkError: Ray is not installed, cannot be started, or does not answer there.
    """
    address = address_of(where)
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # we raise the first one ourselves, in one line
    ray = import_extra("ray", "ray", f"the cluster {where!r}")
    if ray.is_initialized():
        # `Ended` from here on, as who is between this block and the outer one must know it from a plain SystemExit.
        with keeping_logs(ray.exceptions.RayError), still_ended():
            yield _engine(ray, where, told)
        return
    with _told_on_stderr(), own_folder() if address is None else contextlib.nullcontext(), ended_by_signals():
        with keeping_logs(ray.exceptions.RayError):
            _begin(ray, where, cores)
        try:
            with keeping_logs(ray.exceptions.RayError), watched(_head(ray, where)):
                yield _engine(ray, where, told)
        finally:
            ray.shutdown()  # with the job end its workers, also on another cluster


def _head(ray: Any, where: str) -> str:
    client = ray.util.client.ray.is_connected()
    return where if client else str(ray.get_runtime_context().gcs_address)


def _engine(ray: Any, where: str, told: Told | None) -> Engine:
    client = bool(ray.util.client.ray.is_connected())
    head_answers = functools.partial(answers, _head(ray, where))
    return RayEngine(live_nodes(ray), told=told, client=client, head_answers=head_answers)


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

    >>> address_of("ray"), address_of("10.0.0.1:6379"), address_of("[::1]:6379"), address_of("ray://head:10001")
    (None, '10.0.0.1:6379', '[::1]:6379', 'ray://head:10001')
    """
    if where == "ray":
        return None
    if where == "auto" or re.fullmatch(r"(ray://)?([\w.-]+|\[[\da-fA-F:.%]+\]):\d+", where):
        return where
    raise ChoiceError(f"the cluster {where!r}: give ray (on this machine), auto, HOST:PORT or ray://HOST:PORT")


def _begin(ray: Any, where: str, cores: int | None) -> None:
    """Start Ray or join it, without what it would print."""
    from recallatk.cores import usable_cores

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": True}
    address = address_of(where)
    if address is None:
        # "local": without it Ray joins a cluster that it finds on this machine.
        quiet |= {"address": "local", "num_cpus": cores or usable_cores(), "include_dashboard": False}
        quiet |= {"_temp_dir": folder_of_ours()}
    else:
        quiet |= {"address": address}
    try:
        if address not in (None, "auto"):
            knock(address)
        _init(ray, quiet)
        if ray.util.client.ray.is_connected():  # what the process inside writes would be written here, also on stdout
            ray.util.client.ray.worker.log_client.disable_logs()
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        if address is None:
            raise ClusterError(f"Ray cannot be started on this machine ({first_line(error)})") from error
        if isinstance(error, ConnectionAbortedError):  # a traceback of the head is quoted; its last line is the reason
            reason = str(error).strip().rpartition("\n")[2]
            raise RecallatkError(f"the cluster {where!r}: its head lets no client in ({reason})") from error
        raise RecallatkError(f"the cluster {where!r}: none answers there ({first_line(error)})") from error


def _init(ray: Any, choices: dict[str, Any]) -> None:
    """Begin, over ray:// again where the process that the head starts for this client dies as it begins.

    It is forked beside running threads of gRPC, and of some fifteen such processes one dies of that
    (https://github.com/ray-project/ray/issues/63202); Ray's client tells of it after 40 seconds.
    """
    for _ in range(CLIENT_ATTEMPTS - 1):
        with contextlib.suppress(ConnectionAbortedError):
            _init_once(ray, choices)
            return
    _init_once(ray, choices)


def _init_once(ray: Any, choices: dict[str, Any]) -> None:
    """Begin; signals that come meanwhile are heard at the end of it, so also between two attempts."""
    with contextlib.redirect_stdout(sys.stderr), _signals_are_ours(ray), _quiet_core():
        ray.init(**choices)


@contextlib.contextmanager
def _signals_are_ours(ray: Any) -> Iterator[None]:
    """Ctrl-C while Ray begins would crash it, so it waits; and Ray's own handler of SIGTERM is not installed."""
    private = importlib.import_module("ray._private.utils")
    handle = getattr(private, "set_sigterm_handler", None)
    with signals_later(ray.shutdown):
        if handle is not None:
            vars(private)["set_sigterm_handler"] = lambda handler: None
        try:
            yield
        finally:
            if handle is not None:
                vars(private)["set_sigterm_handler"] = handle


@contextlib.contextmanager
def _quiet_core() -> Iterator[None]:
    """Ray's C++ writes to file 2, past Python, about retries and trifles; in this block only what ends the process.

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
