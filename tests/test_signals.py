"""Signals that end a process: what it does first, and what it leaves to others."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from recallatk.cluster import joining
from recallatk.cluster.signals import ended_by_signals, signals_later, still_ended
from recallatk.types import Ended


@pytest.fixture(autouse=True)
def handlers():
    """Signals as they are in a process of its own."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)}
    for each in before:
        signal.signal(each, signal.SIG_DFL)
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_what_was_begun_is_ended_once(sent, code):
    ended = []

    @ended_by_signals()
    def work():
        try:
            os.kill(os.getpid(), sent)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # an impatient one does not stop it
            ended.append(sent)

    with pytest.raises(Ended) as caught:
        work()
    assert (caught.value.code, ended) == (code, [sent])
    assert signal.getsignal(sent) is signal.SIG_DFL


def test_what_ray_makes_of_it_where_it_waits_is_the_same_end():
    """A SystemExit of 1, when the signal comes while its C++ looks for signals."""

    @ended_by_signals()
    def wait():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except SystemExit:
            sys.exit(1)

    with pytest.raises(Ended) as caught:
        wait()
    assert caught.value.code == 143
    between = []  # what stands between an outer and an inner block knows it already

    @ended_by_signals()
    def wait_between():
        try:
            still_ended()(wait.__wrapped__)()
        except BaseException as error:
            between.append(type(error))
            raise

    with pytest.raises(Ended):
        wait_between()
    assert between == [Ended]

    with pytest.raises(SystemExit) as caught, ended_by_signals():
        sys.exit(1)
    assert (type(caught.value), caught.value.code) == (SystemExit, 1)


def test_a_signal_that_is_ignored_or_handled_stays_so():
    told = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    signal.signal(signal.SIGTERM, lambda *_: told.append("mine"))
    with ended_by_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert told == ["mine"]


def test_a_signal_waits_for_the_end_of_the_block():
    done = []

    @ended_by_signals()
    @signals_later(lambda: done.append("undone"))
    def begin():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what somebody installs here is gone behind the block
        done.append("begun")

    with pytest.raises(Ended):
        begin()
    assert done == ["begun", "undone"]


def test_a_signal_is_heard_behind_a_block_that_fails():
    @ended_by_signals()
    @signals_later(lambda: None)
    def begin():
        os.kill(os.getpid(), signal.SIGTERM)
        raise ConnectionAbortedError("as often as it is tried")

    with pytest.raises(Ended):
        begin()


def test_between_two_attempts_of_a_client_signals_are_heard():
    asked = []

    def init(**_):
        asked.append("again")
        os.kill(os.getpid(), signal.SIGTERM)
        raise ConnectionAbortedError("the process inside died")

    ray = SimpleNamespace(init=init, shutdown=lambda: asked.append("undone"))
    pytest.importorskip("ray", reason="make test-integrations installs it")
    with pytest.raises(Ended), ended_by_signals():
        joining._init(ray, {})
    assert asked == ["again", "undone"]
