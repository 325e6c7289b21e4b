"""Where and how a computation runs changes no bit of it, and no worker is left behind."""

import _multiprocessing
import errno
import faulthandler
import multiprocessing
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import _ExecutorManagerThread
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
import torch
from threadpoolctl import threadpool_info

from lib.files.files import InputError
from lib.matrices.spectra import singular_values
from lib.training.devices import generator, use_threads
from lib.work import compute
from lib.work.compute import n_parallel, spread
from lib.work.errors import StoppedError
from lib.work.machines import machine
from lib.work.progress import advance
from lib.work.ray_workers import cluster

ROOT = Path(__file__).parents[2]


def test_the_generator_of_a_purpose_is_the_same_on_every_machine():
    assert generator(0, "epoch", 3).initial_seed() == 6042273707363361164
    drawn = torch.randint(1000, (4,), generator=generator(7, "weights"))
    assert drawn.tolist() == [605, 275, 386, 392]


def test_every_seed_and_purpose_draws_for_itself():
    purposes = [(0,), (1,), (0, "a"), (0, "b"), (0, "a", 1), (0, "a", "1"), (0, "a1"), (1, "a")]
    seeds = {generator(*purpose).initial_seed() for purpose in purposes}
    assert len(seeds) == len(purposes)


def test_a_machine_is_known_by_the_packages_that_compute_and_its_kind_of_cpu_or_gpu(monkeypatch):
    packages = ("torch", "numpy", "scipy", "pandas", "pyarrow", "pillow", "transformers", "peft")
    modules = {"pillow": "PIL"}
    installed = {one: version(one) for one in packages if find_spec(modules.get(one, one))}
    here = machine()
    assert here.items() >= installed.items()
    assert here.keys() - installed == {"CPU", "vector instructions"}
    assert platform.machine() in here["CPU"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"the GPU of {device}")
    assert machine("cuda:1") == installed | {"GPU": "the GPU of cuda:1"}


def test_a_generator_leaves_the_global_randomness_alone():
    before = torch.get_rng_state()
    torch.rand(3, generator=generator(0, "a"))
    assert torch.equal(torch.get_rng_state(), before)


def test_threads_are_set_in_torch_and_in_blas():
    try:
        use_threads(2)
        assert torch.get_num_threads() == 2
    finally:
        use_threads(1)
    assert torch.get_num_threads() == 1
    assert {pool["num_threads"] for pool in threadpool_info()} == {1}


def test_jobs_of_several_threads_share_the_cores_and_a_gpu_takes_one(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert [n_parallel("cpu", n_threads) for n_threads in (1, 3, 9)] == [8, 2, 1]
    assert n_parallel("cuda:1", 2) == 1


@pytest.fixture(scope="module")
def matrices():
    g = torch.Generator().manual_seed(0)
    sizes = [300, 2, 40, 3]  # so that the first ends last
    return [torch.randn(size, size, generator=g) for size in sizes]


def spread_quietly(function, jobs, n_processes, n_threads=1):
    return spread(function, jobs, n_processes=n_processes, label="toy", n_threads=n_threads)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_any_number_of_processes_gives_the_bits_of_none_in_order(matrices, n_threads):
    jobs = [(W,) for W in matrices]
    try:
        use_threads(n_threads)
        wanted = [singular_values(W) for W in matrices]
        for n_processes in (1, 2):
            found = list(spread_quietly(singular_values, jobs, n_processes, n_threads))
            assert len(found) == len(wanted)
            assert all(map(torch.equal, found, wanted))
    finally:
        use_threads(1)


@pytest.mark.parametrize("n_processes", [1, 2])
def test_the_error_of_a_job_is_raised(matrices, n_processes):
    broken = torch.full((2, 2), torch.nan)
    with pytest.raises(torch.linalg.LinAlgError, match="non-finite"):
        list(spread_quietly(singular_values, [(matrices[0],), (broken,)], n_processes))


def product_and_slope(W):
    """A gradient that BLAS, torch's own kernels and autograd compute."""
    X = W.clone().requires_grad_()
    (X.sigmoid() @ X).sum().backward()
    return X.grad


def test_a_worker_computes_after_threads_have_computed_here(matrices):
    """A fork has none of them, and must not wait for them."""
    W = torch.randn(1500, 1500)
    try:
        use_threads(2)
        product_and_slope(W), W.numpy() @ W.numpy()
        found = list(spread_quietly(product_and_slope, [(W,) for W in matrices], 2))
    finally:
        use_threads(1)
    assert all(map(torch.equal, found, map(product_and_slope, matrices)))


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_worker_that_dies_is_an_error_that_says_so(n_threads):
    died = (
        r"^toy: a worker process died: process \d+ ended with exit code 3, and not by an "
        r"error of its work$"
    )
    with pytest.raises(StoppedError, match=died):
        list(spread_quietly(os._exit, [(3,), (3,)], 2, n_threads))


@pytest.mark.parametrize(
    ("signum", "why"),
    [
        (
            signal.SIGKILL,
            r"SIGKILL, as the system does where memory is short \(.*\d GB are free now\), or by "
            r"hand$",
        ),
        (signal.SIGBUS, r"SIGBUS, a fault in compiled code \(a package, or memory\)$"),
        (signal.SIGTERM, "SIGTERM$"),
    ],
)
def test_a_worker_that_is_killed_is_an_error_that_says_by_what(signum, why):
    with pytest.raises(
        StoppedError, match=rf"^toy: a worker process died: process \d+ was ended by {why}"
    ):
        list(spread_quietly(end_by, [(signum,), (signum,)], 2))


def end_by(signum):
    faulthandler.disable()  # which would print where every thread was
    signal.raise_signal(signum)


def test_the_kernel_counts_whom_it_ended_for_memory(monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda *_: "oom_kill_of_others 1\noom_kill 3\n")
    assert compute._kills_for_memory() == 3


@pytest.mark.parametrize(
    "error", [OSError(errno.EROFS, "Read-only file system"), ImportError("no sem_open")]
)
def test_without_semaphores_one_process_computes_and_says_so(error, monkeypatch, capfd):
    def refused(*_):
        raise error

    monkeypatch.setattr(_multiprocessing, "SemLock", refused)
    assert list(spread_quietly(os.getpid, [(), ()], 2)) == [os.getpid()] * 2
    said = [
        line.split("\r")[-1]
        for line in capfd.readouterr().err.splitlines()
        if "no worker processes" in line
    ]
    assert said == [f"toy: this system has no worker processes ({error}); one process computes"]


@pytest.mark.parametrize(
    ("named", "address"),
    [
        ("ray:auto", "auto"),
        ("ray:10.0.0.1:6379", "10.0.0.1:6379"),
        ("ray://10.0.0.1:10001", "ray://10.0.0.1:10001"),
    ],
)
def test_the_environment_names_a_cluster(named, address):
    assert cluster(named) == address


@pytest.mark.parametrize("named", ["ray", "ray:", "ray://", "dask:auto", "2", "auto"])
def test_a_name_of_no_cluster_is_refused_before_any_job(named, monkeypatch):
    monkeypatch.setenv("LAB_WORKERS", named)
    with pytest.raises(InputError, match=f"LAB_WORKERS: wanted local, ray:auto, .*, got '{named}'"):
        list(spread_quietly(os._exit, [(3,)], 1))


def test_a_cluster_without_ray_is_refused_in_words(monkeypatch):
    monkeypatch.setenv("LAB_WORKERS", "ray:auto")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        InputError, match=r"LAB_WORKERS: .* Ray here \(make .*\), got: import of ray"
    ):
        list(spread_quietly(os._exit, [(3,)], 1))


def test_work_for_no_cluster_does_not_import_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert list(spread_quietly(os.getpid, [()], 1)) == [os.getpid()]


def test_a_pool_that_breaks_while_it_is_given_work_says_so(monkeypatch):
    def closed(*_):
        raise OSError("handle is closed")

    monkeypatch.setattr(ProcessPoolExecutor, "submit", closed)
    with pytest.raises(RuntimeError, match="toy: a worker process died"):
        list(spread_quietly(os.getpid, [(), ()], 2))


def test_a_worker_that_starts_while_another_dies_is_not_waited_for(monkeypatch):
    start = SpawnProcess.start

    def start_slowly(worker):
        others = multiprocessing.active_children()
        start(worker)
        for other in others:
            other.kill()
            time.sleep(1)  # until the pool has noticed, and ended the workers that it knows

    monkeypatch.setattr(SpawnProcess, "start", start_slowly)
    with pytest.raises(RuntimeError, match="toy: a worker process died"):
        list(spread_quietly(os.getpid, [(), ()], 2, n_threads=2))  # who are not forked but started
    managers = [
        thread for thread in threading.enumerate() if isinstance(thread, _ExecutorManagerThread)
    ]
    for manager in managers:
        manager.join(10)
    assert not any(manager.is_alive() for manager in managers)


def test_what_needs_one_process_is_computed_here():
    assert list(spread_quietly(os.getpid, [()], 2)) == [os.getpid()]
    assert list(spread_quietly(os.getpid, [(), ()], 1)) == [os.getpid()] * 2
    assert os.getpid() not in list(spread_quietly(os.getpid, [(), ()], 2))


@pytest.mark.parametrize("n_processes", [1, 2])
@pytest.mark.parametrize(("total", "said"), [(5, "5/5"), (None, "2/2")])
def test_the_bar_counts_what_jobs_say_or_the_jobs(n_processes, total, said, capfd):
    function = advance if total else abs
    list(spread(function, [(2,), (3,)], n_processes=n_processes, total=total, label="toy"))
    assert said in capfd.readouterr().err
    assert advance(3) is None  # nobody counts here


PARENT = """
import os, sys, time
from lib.work.compute import spread

def work():
    # Whole: an unbuffered print is two writes, and two workers share the pipe.
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    list(spread(work, [(), ()], n_processes=2, label="toy", n_threads=int(sys.argv[1])))
"""


@pytest.mark.parametrize("n_threads", ["1", "2"])
def test_a_worker_ends_when_its_parent_is_killed(tmp_path, n_threads):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, script, n_threads], env=environment, **pipes) as parent:
        workers = []
        try:
            workers += [int(parent.stdout.readline()) for _ in range(2)]
            parent.send_signal(signal.SIGKILL)
            # the pipe ends when the last process that holds it does, and the workers hold it
            assert parent.communicate(timeout=60)[0] == ""
        except (subprocess.TimeoutExpired, ValueError):
            parent.kill()
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            raise


SCRIPT = """
import resource
import torch
from lib.training.devices import keep_freed_memory
assert keep_freed_memory()
def faults():
    for _ in range(10):
        tensors = [torch.zeros(10_000_000) for _ in range(2)]
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
first = faults()
print(faults() - first)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_freed_memory_is_used_again_without_faults():
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1000


def test_figures_replace_those_of_an_earlier_run(tmp_path):
    (tmp_path / "old.svg").write_text("of an earlier run")
    compute.write_figures(tmp_path, {"a": b"1", "b": b"2"}, bytes.upper)
    compute.write_figures(tmp_path, {"b": b"x", "c": b"y"}, bytes.upper)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {
        "b.svg": b"X",
        "c.svg": b"Y",
    }
