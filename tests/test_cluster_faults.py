"""A real Ray that loses workers and nodes, or is given up: the same counts, or one line, and nothing left behind."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import gc
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from cluster_processes import gone, ray_processes
from command_line import COMMAND
from grid_worlds import assert_same, columns_of
from recallatk.embeddings import load_embeddings
from recallatk.ranking import rank as rank_here
from recallatk.ranking import stream_grid
from recallatk.relevance import build_relevance
from recallatk.types import EmbeddingSet, Ended, EvalProtocol, RecallatkError

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
pytest.importorskip("ray", reason="make test-integrations installs it")

from recallatk.cluster import RankingPlan, joined, rank  # noqa: E402

MB = 2**20
MOST_SECONDS = 480


@pytest.fixture(autouse=True)
def bounded():
    """No test waits for a cluster that will never answer."""

    def give_up(*_):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # where not even this is heard, the process ends
        signal.alarm(MOST_SECONDS // 4)
        raise TimeoutError(f"not done after {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(MOST_SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def wait_until(happened, what, within=MOST_SECONDS / 2):
    """What a function gives as soon as it gives something."""
    end = time.monotonic() + within
    while not (found := happened()):
        assert time.monotonic() < end, what
        time.sleep(0.05)
    return found


def workers_of(node, but="Agent"):
    """The processes in which a node runs tasks, but those with such a name."""
    raylet = next(iter(node.all_processes["raylet"])).process.pid
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    processes = ray_processes()
    return [int(child) for child in children if re.match(rf"ray::(?!\w*({but}))", processes.get(int(child), ""))]


@pytest.fixture
def nodes():
    """A cluster of a node without cores, where the driver is, and of three with one core each."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    head = {"num_cpus": 0, "object_store_memory": 200 * MB, "include_dashboard": False}
    before = ray_processes().keys()
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        yield cluster, [cluster.add_node(num_cpus=1, object_store_memory=200 * MB) for _ in range(3)]
    finally:
        ray.shutdown()
        cluster.shutdown()
        assert gone(ray_processes().keys() - before)


@pytest.fixture(scope="module")
def long_work(tmp_path_factory):
    """A set in a file, its relevance, and what one machine counts: a few seconds for three cores."""
    rng = np.random.default_rng(11)
    rows = rng.normal(size=(30_000, 64)).astype(np.float32)
    rows[::9] = rows[rng.integers(0, 30_000, len(rows[::9]))]  # copies under other labels
    file = tmp_path_factory.mktemp("long") / "rows.npy"
    np.save(file, rows)
    one = EmbeddingSet(np.load(file, mmap_mode="r"), [str(i) for i in rng.integers(0, 5000, len(rows))])
    relevance = build_relevance(one, None, EvalProtocol())
    (grid,) = stream_grid(one.embeddings)
    return grid, relevance, columns_of(rank_here(grid, grid, relevance))


def rank_while(long_work, address, happens, moments):
    """The counts, while something happens at each of these moments (seconds, the first from when a task runs).

    However slow this machine is, it happens in the middle: when two thirds are done, the rest comes slowly until then.
    """
    grid, relevance, expected = long_work

    def do():
        wait_until(
            lambda: any(re.match("ray::(best|count)", text) for text in ray_processes().values()), "no task runs"
        )
        for moment in moments:
            time.sleep(moment)
            happens()

    def told(done, total):
        if done > total * 2 // 3:
            concurrent.futures.wait([happened], timeout=1.0)

    with joined(address, told=told) as engine, concurrent.futures.ThreadPoolExecutor(1) as beside:
        happened = beside.submit(do)
        blocks = rank(grid, grid, relevance, engine=engine, plan=RankingPlan(1500, 1500, 300 * MB, 0))
        assert_same(columns_of(blocks), expected, "with a fault")
        happened.result()


def test_killed_workers_change_nothing(nodes, long_work):
    cluster, all_nodes = nodes
    rng = random.Random(os.getpid())
    killed = []

    def one_killed():
        # One that begins is not among them: Ray waits for it for a minute.
        candidates = [worker for node in all_nodes for worker in workers_of(node, but="Agent|IDLE")]
        with contextlib.suppress(ProcessLookupError, IndexError):  # it ended by itself; there is none at this moment
            os.kill(worker := rng.choice(candidates), signal.SIGKILL)
            killed.append(worker)
            return True

    def kill():
        wait_until(one_killed, "no task to kill")

    rank_while(long_work, cluster.address, kill, [rng.random() / 2 for _ in range(4)])
    assert len(killed) == 4


def test_a_killed_node_changes_nothing(nodes, long_work):
    cluster, all_nodes = nodes
    rng = random.Random(os.getpid())
    lost = all_nodes.pop(rng.randrange(3))
    rank_while(long_work, cluster.address, lambda: cluster.remove_node(lost, allow_graceful=False), [rng.random()])


def test_a_cluster_without_nodes_is_one_line_after_a_while(nodes, long_work, monkeypatch):
    cluster, all_nodes = nodes
    monkeypatch.setattr("recallatk.cluster.ray_engine.ABSENT", 2.0)

    def lose_all():
        while all_nodes:
            cluster.remove_node(all_nodes.pop(), allow_graceful=False)

    with pytest.raises(RecallatkError, match="the cluster lost its nodes: for 2 s none was left") as caught:
        rank_while(long_work, cluster.address, lose_all, [0.1])
    assert "\n" not in str(caught.value)


def ray_nodes(address):
    import ray

    ray.init(address=address, log_to_driver=False)
    try:
        return ray.nodes()
    finally:
        ray.shutdown()


def test_a_cluster_that_was_joined_is_left_as_it_was(nodes, long_work):
    cluster, all_nodes = nodes
    alive = [(node["NodeID"], node["Alive"]) for node in ray_nodes(cluster.address)]
    grid, relevance, _ = long_work
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # in this process Ray was begun without us before, and took it
    for sent, raised in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Ended)):
        with pytest.raises(raised), joined(cluster.address, told=functools.partial(end, sent)) as engine:
            list(rank(grid, grid, relevance, engine=engine, plan=RankingPlan(1500, 1500, 300 * MB, 0)))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    left = {worker for node in all_nodes for worker in workers_of(node)}
    assert gone(left), [ray_processes().get(worker) for worker in left]
    assert [(node["NodeID"], node["Alive"]) for node in ray_nodes(cluster.address)] == alive


def end(sent, done, total):
    if done == 5:
        os.kill(os.getpid(), sent)


PHOTOS = Path(__file__).parents[1] / "src" / "recallatk" / "assets" / "photos"
EMBED = [*COMMAND, "embed", "photos", "--encoder", "hog", "--no-cache", "--quiet"]


def port_nobody_takes():
    """One that is free, and that neither the system nor Ray gives to anybody until it is asked for by its number."""
    for port in random.SystemRandom().sample(range(25_000, 32_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@pytest.fixture(scope="module")
def two_cores():
    """A cluster of one node, by its address and the one for clients outside it."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    port = port_nobody_takes()
    node = {"num_cpus": 2, "object_store_memory": 200 * MB, "include_dashboard": False, "ray_client_server_port": port}
    with pytest.MonkeyPatch.context() as environment:  # else some clients wait 40 seconds: docs/scaling.md
        environment.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        cluster = Cluster(initialize_head=True, head_node_args=node)
    yield cluster.address, f"ray://127.0.0.1:{port}"
    cluster.shutdown()
    del cluster
    gc.collect()  # files that Ray did not close are told of here, where that is ignored, and not when pytest ends


def test_a_client_from_outside_encodes_inside_the_cluster(two_cores, tmp_path):
    """With relative paths, which mean nothing to the processes of the cluster."""
    shutil.copytree(PHOTOS, tmp_path / "photos")
    (tmp_path / "photos" / "fish" / "broken.jpg").write_bytes(b"no image")
    run = functools.partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=MOST_SECONDS / 2)
    said = [run([*EMBED, *more]) for more in (["-o", "rows.npz"], ["-o", "bad", "--run-on", two_cores[1]])]
    assert [one.returncode for one in said] == [3, 3]
    assert said[1].stderr == said[0].stderr
    assert "broken.jpg" in said[0].stderr
    (tmp_path / "photos" / "fish" / "broken.jpg").unlink()
    ran = run([*EMBED, "-o", "rows", "--run-on", two_cores[1]])
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "rows/query\n", "")
    assert run([*EMBED, "-o", "rows.npz"]).returncode == 0
    here, there = (load_embeddings(tmp_path / name).embeddings for name in ("rows.npz", "rows/query"))
    np.testing.assert_array_equal(np.asarray(there.embeddings), here.embeddings)
    assert gone({pid for pid, text in ray_processes().items() if re.match("ray::(_Inside|MapWorker)", text)})


@contextlib.contextmanager
def run_to_its_end(command, **options):
    """A command that runs, and that is killed where the test ends before it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as running:
        try:
            yield running
        finally:
            running.kill()


def with_one_killed(command, those, **options):
    """What a command gave while the first process that is one of those was killed, as soon as there was one."""
    before, killed = ray_processes().keys(), []

    def one_killed():
        found = [pid for pid, text in ray_processes().items() if pid not in before and re.search(those, text)]
        with contextlib.suppress(ProcessLookupError):
            for pid in found[:1]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
        return killed or running.poll() is not None

    with run_to_its_end(command, **options) as running:
        wait_until(one_killed, f"nothing to kill: {those}")
        out, err = running.communicate(timeout=MOST_SECONDS / 2)
    assert killed, f"it ended before there was anything to kill: {err}"
    return subprocess.CompletedProcess(command, running.returncode, out, err)


OWN = """\
import numpy as np
def means(batch):
    return np.array([np.asarray(image).mean((0, 1)) for image in batch])
def upside_down(batch):
    print("called")
    raise ValueError("upside down")
"""


def test_a_client_from_outside_takes_an_encoder_from_the_folder_it_runs_in(two_cores, tmp_path):
    """One without a fingerprint, whose rows nobody can ask for again: they go when they were ranked, not before."""
    shutil.copytree(PHOTOS, tmp_path / "photos")
    (tmp_path / "own_means.py").write_text(OWN)
    run = functools.partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True, timeout=MOST_SECONDS / 3)
    command = [*COMMAND, "eval", "photos", "--cache-dir", "cache", "--encoder"]
    here = run([*command, "own_means:means"])
    there = with_one_killed(
        [*command, "own_means:means", "--cluster", two_cores[1]], r"^ray::_Inside\.call", cwd=tmp_path
    )
    assert (there.returncode, there.stdout, there.stderr) == (0, here.stdout, here.stderr)
    assert not (tmp_path / "cache" / "encoded").exists()
    wrong = run([*command, "own_means:upside_down", "--cluster", two_cores[1]])
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (3, "", 1), wrong.stderr
    assert "the encoder raised ValueError: upside down" in wrong.stderr
    assert not (tmp_path / "cache" / "encoded").exists()


def test_a_client_whose_process_inside_dies_as_it_begins_asks_for_another(two_cores):
    """What Ray's head does to some clients by itself; here it is done to one, always."""
    found = with_one_killed([*COMMAND, "info", "--cluster", two_cores[1]], "--mode=specific-server")
    assert (found.returncode, found.stderr) == (0, "")
    assert "1 node" in found.stdout


ONE_CORE = """\
import operator, sys, tempfile
from pathlib import Path
from recallatk import encode_dataset, load_dataset
from recallatk.cluster import joined
from recallatk.encoders import load_encoder
from recallatk.run import Elsewhere
with tempfile.TemporaryDirectory() as folder, joined("ray", cores=1):
    found = encode_dataset(load_dataset(Path(sys.argv[1])), load_encoder("hog"), elsewhere=Elsewhere("ray", folder))
    print(len(found.query.ids))
with joined("ray", cores=2) as engine:
    print(engine.fetch(engine.run(operator.add, 1, 1, cores=2)))
"""


def test_two_encodings_at_once_do_not_wait_for_each_other(two_cores, tmp_path):
    """A model each on both cores would leave none that reads images."""
    (tmp_path / "photos").symlink_to(PHOTOS)
    running = [
        subprocess.Popen(
            [*EMBED, "--run-on", two_cores[0], "-o", f"rows-{one}"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
        )
        for one in range(2)
    ]
    try:
        for one in running:
            out, _ = one.communicate(timeout=MOST_SECONDS / 2)
            assert (one.returncode, out.count("\n")) == (0, 1)
    finally:
        for one in running:
            one.kill()


def test_one_core_is_enough():
    """The actor that holds the model takes a little of it, and tasks must run beside that."""
    script = [sys.executable, "-c", ONE_CORE, PHOTOS]
    ran = subprocess.run(script, capture_output=True, text=True, timeout=MOST_SECONDS / 4)
    assert (ran.stdout, ran.returncode) == ("138\n2\n", 0), ran.stderr


def test_a_task_that_dies_every_time_is_one_line():
    with (
        pytest.raises(RecallatkError, match=r"a task, 6 times.*blocks of a ranking.*are kept") as caught,
        joined("ray", cores=1) as engine,
    ):
        engine.fetch(engine.run(os._exit, 1))
    told = re.fullmatch(r"[^\n]*; what Ray logged is in (/[^\n]*)/session_latest/logs", str(caught.value))
    assert told is not None
    assert any(Path(told[1]).glob("session_latest/logs/*"))
    shutil.rmtree(told[1])


DYING = """\
import os, sys
from recallatk.cluster import joined
from recallatk.types import RecallatkError
with joined("ray", cores=1) as engine:
    try:
        engine.fetch(engine.run(os._exit, 1))
    except RecallatkError:
        sys.stdin.read()
print("the result")
"""


KILLED = """\
import os, signal, sys
from recallatk.cli import main
from recallatk.embeddings import parts
plain = parts.write_bytes
def write_bytes(*given):
    plain(*given)
    os.kill(os.getpid(), signal.SIGKILL)
parts.write_bytes = write_bytes
main(sys.argv[1:])
"""


def test_a_ranking_whose_driver_was_killed_goes_on_behind_what_is_finished(nodes, tmp_path):
    cluster, _ = nodes
    rng = np.random.default_rng(14)
    rows = rng.normal(size=(20_000, 16)).astype(np.float32)
    rows[::9] = rows[0]
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "rows.txt").write_text("\n".join(str(i) for i in rng.integers(0, 4000, len(rows))))
    rank_rows = ["eval", "--query", str(tmp_path / "rows.npy"), "--query-labels", str(tmp_path / "rows.txt")]
    there = [*rank_rows, "--cluster", cluster.address, "--parts", str(tmp_path)]
    killed = subprocess.run([sys.executable, "-c", KILLED, *there], timeout=MOST_SECONDS / 3)
    assert killed.returncode == -signal.SIGKILL
    (file,) = tmp_path.glob("ranking/*/block-*.npz")
    before = int(file.name.split("-")[2])
    assert 0 < before < len(rows)
    here = subprocess.run([*COMMAND, *rank_rows], capture_output=True, text=True, check=True)
    again = subprocess.run([*COMMAND, *there], capture_output=True, text=True, timeout=MOST_SECONDS / 3)
    assert (again.returncode, again.stdout) == (0, here.stdout)
    assert f"ranked {20_000 - before:,} of 20,000 queries; {before:,} were ranked before" in again.stderr
    assert not (tmp_path / "ranking").exists()


def test_what_ray_tells_of_dead_workers_is_not_on_stdout(tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    with (
        out.open("w") as stdout,
        err.open("w") as stderr,
        subprocess.Popen([sys.executable, "-c", DYING], stdin=subprocess.PIPE, stdout=stdout, stderr=stderr) as running,
    ):
        # When it tells no more, `engine.joined` need not look after it.
        wait_until(lambda: "A worker died" in out.read_text() + err.read_text(), "Ray tells nothing")
        running.communicate(timeout=MOST_SECONDS / 3)
    assert out.read_text() == "the result\n"


def test_a_worker_without_memory_is_one_line():
    with (
        joined("ray", cores=1) as engine,
        pytest.raises(RecallatkError, match=r"ran out of memory .*--memory") as caught,
    ):
        engine.fetch(engine.run(np.empty, (2**40, 2**10)))
    assert "\n" not in str(caught.value)


@pytest.fixture
def for_ray(monkeypatch):
    """The folder in which Ray makes its own; its name is short, as the paths of sockets must be."""
    with tempfile.TemporaryDirectory(prefix="sock-", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        yield Path(folder)


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "ended by SIGTERM")],
)
def test_what_ends_the_command_ends_the_ray_that_it_started(sent, code, said, tmp_path, for_ray):
    rng = np.random.default_rng(12)
    np.savez(tmp_path / "rows.npz", embeddings=rng.normal(size=(60_000, 256)), labels=rng.integers(0, 900, 60_000))
    before = ray_processes().keys()
    command = [*COMMAND, "eval", "--query", str(tmp_path / "rows.npz"), "--cluster", "ray"]

    def counts():
        assert running.poll() is None
        return any(text.startswith("ray::count") for pid, text in ray_processes().items() if pid not in before)

    with run_to_its_end(command) as running:
        wait_until(counts, "no task runs")
        assert list(for_ray.iterdir())
        running.send_signal(sent)
        out, err = running.communicate(timeout=MOST_SECONDS / 3)
    assert (running.returncode, out) == (code, ""), err
    assert err.strip().splitlines()[-1] == f"recallatk: {said}"
    assert (sent == signal.SIGINT) or err.count("\n") == 1
    assert gone(ray_processes().keys() - before)
    assert not list(for_ray.iterdir())


LOSING = """\
import sys, time
from recallatk.cluster import head, joined
head.LOOK_EVERY, head.SILENT = 1.0, 4.0
with joined(sys.argv[1]), joined(sys.argv[1]) as engine:
    slow = engine.run(time.sleep, 100)
    print("running", flush=True)
    engine.fetch(slow)
"""


def test_a_lost_head_is_one_line():
    """Ray itself would end the process after a minute, and say nothing."""
    import ray
    from ray.cluster_utils import Cluster

    ray.shutdown()
    before = ray_processes().keys()
    node = {"num_cpus": 1, "object_store_memory": 200 * MB, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        command = [sys.executable, "-c", LOSING, cluster.address]
        with run_to_its_end(command) as driver:
            assert driver.stdout.readline() == "running\n"
            cluster.head_node.kill_gcs_server(check_alive=False)
            said = driver.communicate(timeout=MOST_SECONDS / 2)[1]
        assert re.search(
            r"ClusterError: the cluster lost its head: \S+:\d+ has not answered for 4 s; .* are kept", said
        )
    finally:
        cluster.shutdown()
        for left in ray_processes().keys() - before:  # without a head some of Ray's own wait for it
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
