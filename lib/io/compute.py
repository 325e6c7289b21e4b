"""Threads, devices, worker processes and random generators: where and how a computation runs."""

import ctypes
import functools
import hashlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from operator import call
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from lib.io.command import kill_with_parent
from lib.io.files import InputError

Result = TypeVar("Result")

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of glibc's malloc.h

_progress: Callable[[int], object] | None = None  # reports work done, to a bar here or in the parent process


def use_threads(n_threads: int) -> None:
    """Compute with `n_threads` from here on, in torch and in BLAS, whatever the machine's cores."""
    torch.set_num_threads(n_threads)
    threadpool_limits(n_threads)


def keep_freed_memory(n_bytes: int = 1 << 30) -> bool:
    """Keep up to `n_bytes` of freed memory for later use; False, and nothing done, where the C library is not glibc.

    Else glibc gives large blocks back, every use of a new one faults, and a training whose temporary tensors have
    megabytes spends a quarter of its time on page faults.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {M_MMAP_THRESHOLD: n_bytes, M_TRIM_THRESHOLD: n_bytes, M_TOP_PAD: n_bytes >> 4}
    return all(mallopt(option, value) == 1 for option, value in options.items())


def available_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def n_parallel(device: str, n_threads: int = 1) -> int:
    """How many jobs of `n_threads` this machine computes side by side: one on a GPU, one per so many cores on a CPU."""
    return 1 if device == "cuda" else available_cores() // n_threads or 1


def use_device(name: str) -> torch.device:
    """The torch device of that name; raises `InputError` where this machine has none."""
    with warnings.catch_warnings():  # what torch warns of is said here
        warnings.simplefilter("ignore")
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(f"device: wanted {name}, got {_why_no_gpu()}")
    return torch.device(name)


def _why_no_gpu() -> str:
    """What keeps torch from the GPU, as far as it says so."""
    if torch.version.cuda is None:
        return "a torch made for the CPU alone, which sees no GPU"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        found = re.search(r"driver.*too old.*found version (\d+)", str(error), re.DOTALL)
        if found:
            driver = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
            newer = f"older than CUDA {torch.version.cuda}, for which this torch is made"
            return f"a driver for CUDA {driver}, {newer}: install a newer driver, or a torch made for CUDA {driver}"
    return "a machine on which torch sees no GPU"


def matmul_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Floating-point operations per second of a square matrix product on this device, measured in a moment."""
    A, B = torch.randn(2, size, size, device=device).to(dtype)
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        torch.mm(A, B)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times)


def generator(seed: int, *purpose: str | int, device: str | torch.device = "cpu") -> torch.Generator:
    """A generator of its own for each named purpose of a seed, e.g. `generator(0, "epoch", 3)`."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def advance(n: int = 1) -> None:
    """Report `n` units of work done to the progress bar of `spread`, if there is one."""
    if _progress is not None:
        _progress(n)


def spread(
    function: Callable[..., Result],
    jobs: Sequence[tuple],
    *,
    n_processes: int,
    label: str,
    total: int | None = None,
    unit: str = "step",
    n_threads: int = 1,
) -> Iterator[Result]:
    """Yield `function(*job)` for each job, in order, computed with `n_threads` each, here or by worker processes.

    A progress bar counts the jobs that are done, or, up to `total`, what they `advance`. They are pure functions of
    their arguments, so that the number of processes changes no bit. What needs one process alone is computed here. A
    worker ends when its parent does; the first error of a worker is raised here, and what has not begun is cancelled.
    """
    if total is None:
        function, total = functools.partial(_counted, function), len(jobs)
    n_processes = min(n_processes, len(jobs))
    every = 1 if sys.stderr.isatty() else 20
    with tqdm(total=total, desc=label, unit=unit, mininterval=every) as bar:
        if n_processes > 1:
            yield from _spread_over_workers(function, jobs, n_processes, n_threads, label, bar)
        else:
            use_threads(n_threads)
            keep_freed_memory()
            for job in jobs:
                with _reporting(bar.update):
                    result = function(*job)
                yield result


def spread_kinds(
    jobs: Mapping[str, Sequence[tuple]], *, n_processes: int, label: str, unit: str
) -> dict[str, list[Any]]:
    """What jobs (function, *arguments) of several kinds give, one list of results per kind; all are spread together."""
    every = [job for alike in jobs.values() for job in alike]
    done = iter(list(spread(call, every, n_processes=n_processes, label=label, unit=unit)))
    return {kind: [next(done) for _ in alike] for kind, alike in jobs.items()}


def _counted(function: Callable[..., Result], *job: Any) -> Result:
    result = function(*job)
    advance()
    return result


@contextmanager
def _reporting(report: Callable[[int], object]) -> Iterator[None]:
    global _progress
    before, _progress = _progress, report
    try:
        yield
    finally:
        _progress = before


def _spread_over_workers(
    function: Callable[..., Result], jobs: Sequence[tuple], n_processes: int, n_threads: int, label: str, bar: tqdm
) -> Iterator[Result]:
    # A fork saves the imports of every worker, some seconds; but the threads of OpenMP do not survive it.
    context = multiprocessing.get_context("fork" if sys.platform == "linux" and n_threads == 1 else "spawn")
    advanced = context.Value("q", 0)
    pool = ProcessPoolExecutor(n_processes, context, _start_worker, (advanced, n_threads))
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
        for worker in multiprocessing.active_children():  # one that began while the pool broke would be waited for
            worker.kill()
        raise RuntimeError(f"{label}: a worker process died, see above; memory?") from error
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)  # a worker in the middle of a job ends with this process
        raise
    pool.shutdown()


def _submitted(
    pool: ProcessPoolExecutor, function: Callable[..., Result], jobs: Sequence[tuple]
) -> list[Future[Result]]:
    try:
        return [pool.submit(function, *job) for job in jobs]
    except OSError as error:  # "handle is closed" says a pool that breaks meanwhile
        raise BrokenProcessPool(str(error)) from error


def _start_worker(advanced: Any, n_threads: int) -> None:
    def report(n: int) -> None:
        with advanced.get_lock():
            advanced.value += n

    global _progress
    _progress = report
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to say
    kill_with_parent()
    use_threads(n_threads)
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
