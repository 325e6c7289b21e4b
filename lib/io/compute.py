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
from multiprocessing import connection
from typing import Any, TypeVar

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from lib.io.files import InputError

Result = TypeVar("Result")

_progress: Any = None  # a shared counter, set in each worker process


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
    """Report `n` units of work done to the progress bar of the parent process, if there is one."""
    if _progress is not None:
        with _progress.get_lock():
            _progress.value += n


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
    """Yield `function(*job)` for each job, in order, computed by worker processes of `n_threads` each.

    A progress bar counts what the workers `advance`, up to `total`. The jobs are pure functions of their arguments,
    so that the number of processes changes no bit. A worker ends when its parent does; the first error of a worker
    is raised here, and what has not begun is cancelled.
    """
    context = multiprocessing.get_context("spawn")
    counter = context.Value("q", 0)
    pool = ProcessPoolExecutor(max(1, min(n_processes, len(jobs))), context, _start_worker, (counter, n_threads))
    every = 1 if sys.stderr.isatty() else 20
    with pool, tqdm(total=total, desc=label, unit=unit, mininterval=every) as bar:
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
            raise RuntimeError(f"{label}: a worker process died, see above; memory?") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(counter: Any, n_threads: int) -> None:
    global _progress
    _progress = counter
    use_threads(n_threads)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
