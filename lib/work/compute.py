"""Worker processes: they decide who computes, which changes no bit of a result."""

import functools
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from lib.files.files import clear, write_files
from lib.training.devices import keep_freed_memory, kind_of, use_threads
from lib.work.errors import StoppedError
from lib.work.progress import advance, report_to, reporting
from lib.work.ranks import is_first
from lib.work.ray_workers import WORKERS, cluster, spread_over_cluster
from lib.work.signals import end_worker_with_parent, kill_with_parent

Result = TypeVar("Result")
Drawing = TypeVar("Drawing")  # the function that makes a figure


def available_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def n_parallel(device: str, n_threads: int = 1) -> int:
    """The number of jobs of `n_threads` that are computed here side by side; one on a GPU."""
    return 1 if kind_of(device) == "cuda" else available_cores() // n_threads or 1


def spread(
    function: Callable[..., Result],
    jobs: Sequence[tuple],
    *,
    label: str,
    unit: str = "step",
    total: int | None = None,
    device: str = "cpu",
    n_threads: int = 1,
    n_processes: int | None = None,
    n_bytes: int = 0,
) -> Iterator[Result]:
    """Yield `function(*job)` for each job, in order, computed with `n_threads` each, here or by
    worker processes: as many as `n_parallel` says, or `n_processes`.

    A progress bar counts the jobs that are done, or, up to `total`, the units that they `advance`.
    Jobs are pure functions of their arguments, so that the number of processes changes no bit.
    Work for one process alone is done here. A worker ends when its parent does; the first error
    of a worker is raised here, and jobs that have not begun are cancelled. A worker that dies ends
    the work (`StoppedError`).

    Where the environment's `LAB_WORKERS` names a Ray cluster, its workers compute all jobs, however
    many processes are named. There each job is given `n_bytes` of memory, and a GPU where `device`
    is one; a job whose worker is lost is tried again.
    """
    address = cluster(os.environ.get(WORKERS, ""))
    if total is None:
        function = functools.partial(_counted, function)
        total = len(jobs)
    n_processes = min(n_processes or n_parallel(device, n_threads), len(jobs))
    every = 1 if sys.stderr.isatty() else 20
    hidden = not is_first()
    with tqdm(total=total, desc=label, unit=unit, mininterval=every, disable=hidden) as bar:
        if address and jobs:
            needs = {
                "num_cpus": n_threads,
                "num_gpus": int(kind_of(device) == "cuda"),
                "memory": n_bytes,
            }
            yield from spread_over_cluster(function, jobs, address, needs, label, bar)
        elif n_processes > 1:
            yield from _spread_over_workers(function, jobs, n_processes, n_threads, label, bar)
        else:
            yield from _computed_here(function, jobs, n_threads, bar)


def write_figures(
    folder: Path, drawings: Mapping[str, Drawing], as_svg: Callable[[Drawing], bytes]
) -> None:
    """Draw figures by their names on all cores; they replace those of an earlier run."""
    jobs = [(draw,) for draw in drawings.values()]
    drawn = list(spread(as_svg, jobs, label="figures", unit="figure"))
    clear(folder, "*.svg")
    write_files(folder, {f"{name}.svg": svg for name, svg in zip(drawings, drawn, strict=True)})


def _counted(function: Callable[..., Result], *job: Any) -> Result:
    result = function(*job)
    advance()
    return result


def _computed_here(
    function: Callable[..., Result], jobs: Sequence[tuple], n_threads: int, bar: tqdm
) -> Iterator[Result]:
    use_threads(n_threads)
    keep_freed_memory()
    for job in jobs:
        with reporting(bar.update):
            result = function(*job)
        yield result


def _spread_over_workers(
    function: Callable[..., Result],
    jobs: Sequence[tuple],
    n_processes: int,
    n_threads: int,
    label: str,
    bar: tqdm,
) -> Iterator[Result]:
    # A fork saves the imports of every worker, some seconds; OpenMP's threads do not survive it.
    how = "fork" if sys.platform == "linux" and n_threads == 1 else "spawn"
    context = multiprocessing.get_context(how)
    try:  # without /dev/shm there are no semaphores
        advanced = context.Value("q", 0)
        pool = ProcessPoolExecutor(n_processes, context, _start_worker, (advanced, n_threads))
    except (OSError, ImportError, NotImplementedError) as error:
        said = f"{label}: this system has no worker processes ({error}); one process computes"
        bar.write(said, file=sys.stderr)
        yield from _computed_here(function, jobs, n_threads, bar)
        return
    workers = pool._processes
    n_kills = _kills_for_memory()
    try:
        futures = _submitted(pool, function, jobs)
        for future in futures:
            while not future.done():
                wait([f for f in futures if not f.done()], timeout=0.5, return_when=FIRST_COMPLETED)
                bar.update(advanced.value - bar.n)
                for ended in futures:
                    if ended.done() and ended.exception():
                        ended.result()
            bar.update(advanced.value - bar.n)
            yield future.result()
    except BrokenProcessPool as error:
        why = _cause_of_death(list(workers.values()), n_kills) or str(error)
        # a worker that began while the pool broke would be waited for
        for worker in multiprocessing.active_children():
            worker.kill()
        raise StoppedError(f"{label}: a worker process died: {why}") from error
    except BaseException:  # a worker in the middle of a job ends with this process
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _submitted(
    pool: ProcessPoolExecutor, function: Callable[..., Result], jobs: Sequence[tuple]
) -> list[Future[Result]]:
    try:
        return [pool.submit(function, *job) for job in jobs]
    except OSError as error:  # "handle is closed" says a pool that breaks meanwhile
        raise BrokenProcessPool(str(error)) from error


def _cause_of_death(workers: Iterable[BaseProcess], n_kills: int) -> str:
    """The way in which the first worker ended, and its likely cause; the pool ends the others by
    SIGTERM.
    """
    end = time.monotonic() + 2
    while True:  # for a moment, another thread may be the one that asks for a process's end
        ended = [(worker.pid, worker.exitcode) for worker in workers if worker.exitcode is not None]
        first = next((one for one in ended if one[1] != -signal.SIGTERM), None)
        if first or time.monotonic() > end:
            break
        time.sleep(0.02)
    if not ended:
        return ""
    pid, code = first or ended[0]
    if not code or code > 0:
        return f"process {pid} ended with exit code {code}, and not by an error of its work"
    how = f"process {pid} was ended by {signal.Signals(-code).name}"
    if code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE, -signal.SIGABRT):
        return f"{how}, a fault in compiled code (a package, or memory)"
    if code != -signal.SIGKILL:
        return how
    killed = _kills_for_memory() - n_kills
    known = f"the kernel has ended {killed} process(es) for it meanwhile; " if killed else ""
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    free = _field("meminfo", "MemAvailable:") / 2**20
    total = _field("meminfo", "MemTotal:") / 2**20
    sizes = f"the largest process had {largest:.1f} GB, and {free:.1f} of {total:.1f} GB are free"
    return f"{how}, as the system does where memory is short ({known}{sizes} now), or by hand"


def _kills_for_memory() -> int:
    """The number of processes that Linux has ended for want of memory; 0 if it is not known."""
    return int(_field("vmstat", "oom_kill"))


def _field(file: str, name: str) -> float:
    """A number in a file of /proc; 0 where there is none."""
    try:
        lines = [line.split() for line in Path("/proc", file).read_text("utf-8").splitlines()]
    except OSError:
        return 0.0
    return next((float(line[1]) for line in lines if line[0] == name), 0.0)


def _start_worker(advanced: Any, n_threads: int) -> None:
    def report(n: int) -> None:
        with advanced.get_lock():
            advanced.value += n

    report_to(report)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to say
    kill_with_parent()
    use_threads(n_threads)
    keep_freed_memory()
    end_worker_with_parent()
