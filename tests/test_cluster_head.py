"""A head that does not answer ends what waits for the cluster; no Ray is needed to see it."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from recallatk.cluster.head import answers

LOSING = """\
import signal, time
from recallatk.cluster import head
head.LOOK_EVERY, head.SILENT, head.REACTS = 0.1, 0.3, {reacts}
if {deaf}:  # as Ray's pipeline is, which does not let the signal in
    signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    with head.watched("{address}"):
        time.sleep({seconds})
        print("done")
except head.ClusterError as error:
    print("raised", error)
"""


def run(address, *, deaf=False, seconds=50):
    reacts = 0.5 if deaf else 50  # one that hears of it may be slow
    code = LOSING.format(address=address, deaf=deaf, seconds=seconds, reacts=reacts)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def nobody():
    """An address where nothing listens, nor can while the test runs."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_a_lost_head_is_an_error_where_the_work_waits(nobody):
    done = run(nobody)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"raised the cluster lost its head: {nobody} has not answered for 0 s; start it")


def test_a_lost_head_ends_a_process_that_hears_of_nothing(nobody):
    done = run(nobody, deaf=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"recallatk: the cluster lost its head: {nobody} has not answered")
    assert done.stderr.count("\n") == 1


def test_a_head_that_answers_lets_the_work_come_to_its_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert answers(address)
        assert run(address, seconds=1).stdout == "done\n"
    assert not answers(address)
