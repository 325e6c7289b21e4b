"""Threads, devices, worker processes and random generators: where and how a computation runs."""

import hashlib
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from lib.io.files import InputError

Result = TypeVar("Result")

_progress: Callable[[int], object] | None = None  # reports work done, to a bar here or in the parent process


def use_threads(n_threads: int) -> None:
    """Compute with `n_threads` from here on, in torch and in BLAS, whatever the machine's cores."""
    torch.set_num_threads(n_threads)
    threadpool_limits(n_threads)


def available_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def use_device(name: str) -> torch.device:
    """The torch device of that name; raises `InputError` where this machine has none."""
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise InputError(f"device: wanted {name}, got a machine on which torch sees no GPU")
    return torch.device(name)


def matmul_rate(device: torch.device, dtype: torch.dtype, size: int) -> float:
    """Floating-point operations a second of a square matrix product on this device, measured in a moment."""
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
    total: int,
    label: str,
    unit: str = "step",
    n_threads: int = 1,
) -> Iterator[Result]:
    """Yield `function(*job)` for each job, in order, computed with `n_threads` each, here or by worker processes.

    A progress bar counts what the jobs `advance`, up to `total`. They are pure functions of their arguments, so that
    the number of processes changes no bit. What needs one process alone is computed here, which saves its start. A
    worker ends when its parent does; the first error of a worker is raised here, and what has not begun is cancelled.
    """
    n_processes = min(n_processes, len(jobs))
    every = 1 if sys.stderr.isatty() else 20
    with tqdm(total=total, desc=label, unit=unit, mininterval=every) as bar:
        if n_processes > 1:
            yield from _spread_over_workers(function, jobs, n_processes, n_threads, label, bar)
        else:
            use_threads(n_threads)
            for job in jobs:
                with _reporting(bar.update):
                    result = function(*job)
                yield result


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
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    pool = ProcessPoolExecutor(n_processes, context, _start_worker, (counter, n_threads))
    try:
        futures: list[Future[Result]] = [pool.submit(function, *job) for job in jobs]
        for future in futures:
            while not future.done():
                waiting = [f for f in futures if not f.done()]
                wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                bar.update(counter.value - bar.n)
                for ended in futures:
                    if ended.done() and ended.exception():
                        ended.result()
            bar.update(counter.value - bar.n)
            yield future.result()
    except BrokenProcessPool as error:
        for worker in multiprocessing.active_children():  # one that began while the pool broke would be waited for
            worker.kill()
        raise RuntimeError(f"{label}: a worker process died, see above; memory?") from error
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)  # a worker in the middle of a job ends with this process
        raise
    pool.shutdown()


def _start_worker(counter: Any, n_threads: int) -> None:
    def report(n: int) -> None:
        with counter.get_lock():
            counter.value += n

    global _progress
    _progress = report
    use_threads(n_threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
