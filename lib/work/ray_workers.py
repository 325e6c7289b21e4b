"""Jobs computed by the workers of a Ray cluster: `spread` of compute.py, as `LAB_WORKERS` says.

A worker computes what a process here would compute, from the same code and files, on a CPU of the
same kind: Ray ships the code, all machines share the working folder and scratch, and a worker that
finds it otherwise refuses its job. Ray tries a job again whose worker is lost.
"""

import logging
import os
import pickle
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from multiprocessing import spawn
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from tqdm import tqdm

import lib
from lib.files.files import InputError
from lib.training.devices import keep_freed_memory, use_threads
from lib.work.errors import StoppedError
from lib.work.machines import machine
from lib.work.progress import reporting
from lib.work.scratch import scratch_root

# in the environment, not in params.yaml: no bit of a result depends on who computes it
WORKERS = "LAB_WORKERS"
MIXED = "LAB_MIXED_CPUS"
VARIABLES = ("DVC_ROOT", "DVC_EXP_NAME", MIXED)  # workers have those of this process
LEFT_OUT = ("/*", "!.", "!/lib", "!/stages", "__pycache__")  # all but lib and stages
IN_FLIGHT = 4096  # jobs given to Ray: more than a cluster has cores, few enough to hold in memory
RETRIES = 3  # for a job whose worker is lost
EVERY = 0.2  # seconds between two looks at what has ended


@dataclass(frozen=True)
class Terms:
    """The things that a worker must find: this machine's folders, kind of CPU and packages."""

    home: Path  # the working folder here
    marks: tuple[Path, ...]  # files of this work alone, in the folders that all machines share
    machine: Mapping[str, str] = field(hash=False)
    main: str  # the module that runs here as `__main__`
    n_threads: int


def cluster(workers: str) -> str | None:
    """The address of the Ray cluster that `LAB_WORKERS` names; None for this machine's processes.

    Raises `InputError` for a value that names neither.
    """
    if workers in ("", "local"):
        return None
    address = workers.removeprefix("ray:")
    if address in (workers, "", "//"):
        wanted = "wanted local, ray:auto, ray:HOST:PORT or ray://HOST:PORT"
        raise InputError(f"{WORKERS}: {wanted}, got {workers!r}")
    return workers if address.startswith("//") else address


def spread_over_cluster(
    function: Callable[..., Any],
    jobs: Sequence[tuple],
    address: str,
    needs: Mapping[str, int],
    label: str,
    bar: tqdm,
) -> Iterator[Any]:
    """Yield `function(*job)` for each job, in order, computed by the workers of the Ray cluster at
    that address; `needs` says what Ray reserves for a job.

    A job that ends moves the bar. Raises `InputError` where Ray or the cluster is missing, or a
    worker does not fit, the first error of a job, and `StoppedError` where Ray gives up a job.
    """
    ray = _connected(address)
    task = ray.remote(max_retries=RETRIES, **needs)(_work)
    waiting = enumerate(jobs)
    running: dict[Any, int] = {}
    done: dict[int, Any] = {}
    number = 0
    with _terms(needs["num_cpus"]) as terms:
        try:
            for following in range(len(jobs)):
                while following not in done:
                    for number, job in islice(waiting, IN_FLIGHT - len(running)):
                        running[task.remote(terms, pickle.dumps((function, job)))] = number
                    ended, _ = ray.wait(list(running), num_returns=len(running), timeout=EVERY)
                    for reference in ended:
                        number = running.pop(reference)
                        done[number], advanced = pickle.loads(ray.get(reference))  # noqa: S301
                        bar.update(advanced)
                yield done.pop(following)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
        except ray.exceptions.UnserializableException:
            raise  # an error of a job that cannot be unpickled; it says the worker's traceback
        except ray.exceptions.RayError as error:
            said = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
            raise StoppedError(f"{label}: Ray gives up job {number} (memory?): {said}") from error
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _connected(address: str) -> Any:
    """The module of Ray, after it joined the cluster at that address; it ships this code to the
    workers.
    """
    root = Path(lib.__path__[0]).parent
    variables = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    variables[WORKERS] = "local"  # a job spreads no jobs
    shipped = {"working_dir": str(root), "excludes": list(LEFT_OUT), "env_vars": variables}
    try:
        import ray  # pyright: ignore[reportMissingImports]

        if not ray.is_initialized():
            ray.init(address, runtime_env=shipped, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
        said = str(error).strip().split("\n")[0]
        wanted = f"wanted a Ray cluster at {address}, and Ray here (make .venv/ray)"
        raise InputError(f"{WORKERS}: {wanted}, got: {said}") from error
    return ray


@contextmanager
def _terms(n_threads: int) -> Iterator[Terms]:
    """Yield the terms of the work; their marks stand in the shared folders while it lasts."""
    home = Path.cwd()
    here = home / ".dvc" / "tmp"
    scratch = scratch_root().absolute()
    here.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True)
    main = spawn.get_preparation_data("").get("init_main_from_name", "")
    with NamedTemporaryFile(dir=here) as one, NamedTemporaryFile(dir=scratch) as other:
        yield Terms(home, (Path(one.name), Path(other.name)), machine(), main, n_threads)


# What follows runs in a worker.


def _work(terms: Terms, job: bytes) -> bytes:
    """The result of a job, and how much it advanced; Ray's own pickles would copy its classes."""
    accept(terms)
    function, arguments = pickle.loads(job)  # noqa: S301
    advanced: list[int] = []
    with reporting(advanced.append):
        result = function(*arguments)
    return pickle.dumps((result, sum(advanced)))


@lru_cache(maxsize=1)  # a worker has many jobs of one work
def accept(terms: Terms) -> None:
    """Make this process a worker; raises `InputError` where it could not give the same bytes."""
    where = f"the Ray worker on {platform.node()}"
    for mark in terms.marks:
        if not mark.is_file():
            wanted = f"wanted a file system that all machines share at {mark.parent}"
            raise InputError(f"{where}: {wanted}, got one without {mark.name}")
    code = Path(lib.__path__[0])
    if "runtime_resources" not in code.parts:
        wanted = "wanted the code that was shipped, in runtime_resources"
        raise InputError(f"{where}: {wanted}, got {code}")
    wanted = dict(terms.machine.items() - machine().items())
    if wanted:
        found = {name: machine().get(name) for name in wanted}
        said = f"{where}: wanted {wanted}, which gives the same last digits, got {found}"
        if os.environ.get(MIXED, "") in ("", "0"):
            raise InputError(f"{said}; {MIXED}=1 allows it")
        print(said, file=sys.stderr, flush=True)
    os.chdir(terms.home)
    if terms.main.startswith("stages."):
        spawn.prepare({"init_main_from_name": terms.main})
    use_threads(terms.n_threads)
    keep_freed_memory()
