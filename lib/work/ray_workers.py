"""Jobs computed by the workers of a Ray cluster; `spread` of compute.py comes here where
`LAB_WORKERS` says so.

A worker computes what a process here would compute, from the same code and files, on a CPU of the
same kind. So the code is shipped (lib, stages and params.yaml, no data), the working folder and
scratch are shared between all machines, and a worker that finds it otherwise refuses its job. What
is large goes through that shared folder, never through Ray's store of objects. An error of a job
ends the work, as it does here; a job whose worker is lost is tried again.
"""

import logging
import os
import pickle
import platform
import secrets
import shutil
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import spawn
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from tqdm import tqdm

import lib
from lib.files.files import InputError, atomic
from lib.training.devices import keep_freed_memory, use_threads
from lib.work.cluster import WORKERS
from lib.work.errors import StoppedError
from lib.work.machines import machine
from lib.work.progress import reporting
from lib.work.scratch import scratch_root

Result = TypeVar("Result")

LARGE = 64 * 1024  # bytes: below, Ray keeps arguments and results in its messages, not in its store
# jobs given to Ray per place of work: enough to hide its delays, few enough to hold in memory
IN_FLIGHT = 4
TRIES = 4  # of a job whose worker is lost
EVERY = 1.0  # seconds between two reports of progress
# of the environment here: they say where scratch and live curves lie
VARIABLES = ("DVC_ROOT", "DVC_EXP_NAME")

_shipped = False  # whether this process has connected to a cluster, and shipped its code


@dataclass(frozen=True)
class Terms:
    """What a worker must find: the folders of this machine, its kind of CPU and its packages."""

    token: str
    home: Path  # the working folder here
    shared: Path  # of this work, in the shared scratch
    machine: Mapping[str, str]
    mixed: bool  # whether other kinds of CPU will do
    main: Mapping[str, Any]  # where the functions of `__main__` are imported from
    variables: Mapping[str, str | None]
    n_threads: int


def spread_over_cluster(
    function: Callable[..., Result],
    jobs: Sequence[tuple],
    address: str,
    needs: Mapping[str, int],
    label: str,
    bar: tqdm,
) -> Iterator[Result]:
    """Yield `function(*job)` for each job, in order, computed by the workers of the Ray cluster at
    that address; `needs` says what Ray reserves for a job.

    Raises `InputError` where Ray or the cluster is missing, or a worker does not fit, the first
    error of a job, and `StoppedError` where a job has lost its worker in every try.
    """
    connect(address)
    with _terms(needs["num_cpus"]) as terms:
        given = [pickle.dumps((function, job)) for job in jobs]
        yield from _results(terms, given, needs, label, bar)


def connect(address: str) -> None:
    """Join the cluster at `auto`, HOST:PORT or ray://HOST:PORT, and ship it this code, once."""
    global _shipped
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        wanted = "wanted the package ray (make .venv/ray)"
        raise InputError(f"{WORKERS}: {wanted}, got none") from error
    if _shipped and ray.is_initialized():
        return
    root = Path(lib.__path__[0]).parent
    with TemporaryDirectory() as folder:
        for part in ("lib", "stages"):
            if (root / part).is_dir():
                shutil.copytree(
                    root / part,
                    Path(folder, part),
                    ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
                )
        if Path("params.yaml").is_file():
            shutil.copy2("params.yaml", folder)
        try:
            ray.init(address, runtime_env={"working_dir": folder}, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, ImportError) as error:
            said = str(error).strip().split("\n")[0]
            raise InputError(
                f"{WORKERS}: wanted a Ray cluster at {address}, got: {said}"
            ) from error
    _shipped = True


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """In which points two machines differ, in words; empty where they do not."""
    points = [
        f"{key} {there.get(key)}, not {value}"
        for key, value in here.items()
        if there.get(key) != value
    ]
    return "; ".join(points)


@contextmanager
def _terms(n_threads: int) -> Iterator[Terms]:
    """The terms of one work, whose marks stand in the shared folders while it lasts."""
    home = Path.cwd()
    token = secrets.token_hex(8)
    shared = scratch_root().absolute() / "ray" / token
    marks = [shared / "mark", home / ".dvc" / "tmp" / f"{token}.mark"]
    main = {
        key: value
        for key, value in spawn.get_preparation_data("").items()
        if key.startswith("init_main")
    }
    if not main.get("init_main_from_name", "stages.").startswith("stages."):
        main = {}  # a program that is not shipped, such as pytest: its own functions cannot be jobs
    variables = {name: os.environ.get(name) for name in VARIABLES}
    variables[WORKERS] = None  # a job spreads no jobs
    mixed = os.environ.get("LAB_MIXED_CPUS", "") not in ("", "0")
    try:
        for mark in marks:
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(token, encoding="utf-8")
        yield Terms(token, home, shared, machine(), mixed, main, variables, n_threads)
    finally:
        marks[1].unlink(missing_ok=True)
        shutil.rmtree(shared, ignore_errors=True)  # a worker may be ending in it


def _results(
    terms: Terms, jobs: list[bytes], needs: Mapping[str, Any], label: str, bar: tqdm
) -> Iterator[Any]:
    """What each job gave, in order; raises the first error, and tries a lost job again."""
    import ray  # pyright: ignore[reportMissingImports]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]

    task = ray.remote(max_retries=0, **needs)(_work)
    given = ray.put(terms)
    waiting = list(reversed(range(len(jobs))))
    running: dict[Any, int] = {}
    tried: Counter[int] = Counter()
    done: dict[int, Any] = {}
    advanced = 0
    looked = 0.0
    try:
        for following in range(len(jobs)):
            while following not in done:
                while waiting and len(running) < IN_FLIGHT * _places(needs, label):
                    number = waiting.pop()
                    tried[number] += 1
                    parcel = _parcel(terms, f"job-{number}", jobs[number])
                    running[task.remote(given, number, parcel)] = number
                ended, _ = ray.wait(list(running), timeout=EVERY)
                for reference in ended:
                    number = running.pop(reference)
                    try:
                        result, error, n = _opened(ray.get(reference))
                    except RayError as lost:
                        _lost(lost, number, tried[number], label)
                        waiting.append(number)
                        continue
                    if error is not None:
                        raise error
                    done[number] = result
                    advanced += n
                if time.monotonic() - looked > EVERY or not (running or waiting):
                    looked = time.monotonic()
                    partly = sum(_said(terms, number) for number in running.values())
                    bar.update(min(advanced + partly, bar.total) - bar.n)
            yield done.pop(following)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


@lru_cache(maxsize=1)
def _places_at(moment: int, needs: tuple[tuple[str, int], ...]) -> int:
    """How many jobs of such needs the cluster has room for, at a moment."""
    import ray  # pyright: ignore[reportMissingImports]

    names = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}
    room = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(int(min(has.get(names[name], 0) // n for name, n in needs if n)) for has in room)


_waits: set[str] = set()


def _places(needs: Mapping[str, int], label: str) -> int:
    places = _places_at(int(time.monotonic() / 5), tuple(needs.items()))
    if not places and label not in _waits:
        _waits.add(label)
        wanted = (
            f"{needs['num_cpus']} CPUs, {needs['num_gpus']} GPUs and "
            f"{needs['memory'] / 1e9:.2g} GB of memory"
        )
        tqdm.write(
            f"{label}: no node of the cluster has {wanted}; waiting for one", file=sys.stderr
        )
    return places or 1


def _lost(error: Exception, number: int, tried: int, label: str) -> None:
    """Say that a job lost its worker; raises `StoppedError` where another try is of no use."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0] if lines else 'no more is known'}"
    if _no_use(error) or tried >= TRIES:
        how = f"its worker was lost {tried} times" if tried > 1 else "its worker was lost"
        raise StoppedError(
            f"{label}: job {number}: {how}, the last time by {said}; memory?"
        ) from error
    tqdm.write(
        f"{label}: job {number} lost its worker, and is tried again: {said}", file=sys.stderr
    )


def _no_use(error: Exception) -> bool:
    """Whether another try would end as this one."""
    from ray.exceptions import RuntimeEnvSetupError  # pyright: ignore[reportMissingImports]

    return isinstance(error, RuntimeEnvSetupError)


def _parcel(terms: Terms, name: str, data: bytes) -> bytes | Path:
    """The bytes themselves where they are few, else a file of the shared folder that holds them."""
    if len(data) <= LARGE:
        return data
    with atomic(terms.shared / name) as part:
        part.write_bytes(data)
    return terms.shared / name


def _opened(parcel: bytes | Path) -> Any:
    if isinstance(parcel, bytes):
        return pickle.loads(parcel)  # noqa: S301 (from a worker of ours)
    data = parcel.read_bytes()
    parcel.unlink()
    return pickle.loads(data)  # noqa: S301


def _said(terms: Terms, number: int) -> int:
    """How much a job that is running has advanced."""
    try:
        return int((terms.shared / f"at-{number}").read_text(encoding="utf-8") or 0)
    except (OSError, ValueError):
        return 0


# What follows runs in a worker.

_checked: set[str] = set()  # tokens of the works whose terms this worker has found to hold


def _work(terms: Terms, number: int, job: bytes | Path) -> bytes | Path:
    """A job, with its error as a value: Ray would put its own around it."""
    at = 0
    try:
        if terms.token not in _checked:
            accept(terms)
            _checked.add(terms.token)
        function, arguments = pickle.loads(job if isinstance(job, bytes) else job.read_bytes())  # noqa: S301
        with _reporting(terms, number) as report:
            found = function(*arguments), None
        at = report.n
    except Exception as error:
        found = None, _carried(error)
    return _parcel(terms, f"done-{number}-{secrets.token_hex(4)}", pickle.dumps((*found, at)))


def accept(terms: Terms) -> None:
    """Make this process a worker; raises `InputError` where it could not give the same bytes."""
    where = f"the Ray worker on {platform.node()}"
    marks = [terms.shared / "mark", terms.home / ".dvc" / "tmp" / f"{terms.token}.mark"]
    for mark in marks:
        try:
            found = mark.read_text(encoding="utf-8")
        except OSError as error:
            found = str(error)
        if found != terms.token:
            folder = terms.shared.parent if mark is marks[0] else terms.home
            wanted = f"wanted a file system that all machines share at {folder}"
            raise InputError(f"{where}: {wanted}, got one without the mark of this work: {found}")
    code = Path(lib.__path__[0])
    if "runtime_resources" not in code.parts:
        raise InputError(
            f"{where}: wanted the code that was shipped, in runtime_resources, got {code}"
        )
    found = differences(terms.machine, machine())
    if found:
        if not terms.mixed:
            wanted = "wanted a machine that gives the same bits (or LAB_MIXED_CPUS=1)"
            raise InputError(f"{where}: {wanted}, got {found}")
        print(f"{where} may give other last digits: {found}", file=sys.stderr, flush=True)
    os.chdir(terms.home)
    for name, value in terms.variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    spawn.prepare(dict(terms.main))
    use_threads(terms.n_threads)
    keep_freed_memory()


class _Report:
    """Writes now and then how much of a job is done, for the machine that has the bar."""

    def __init__(self, file: Path):
        self.file = file
        self.n = 0
        self.looked = time.monotonic()

    def __call__(self, n: int) -> None:
        self.n += n
        if time.monotonic() - self.looked > EVERY:
            self.looked = time.monotonic()
            self.file.write_text(str(self.n), encoding="utf-8")


@contextmanager
def _reporting(terms: Terms, number: int) -> Iterator[_Report]:
    report = _Report(terms.shared / f"at-{number}")
    with reporting(report):
        yield report


def _carried(error: Exception) -> Exception:
    """The error as it can travel, with the worker's traceback as a note."""
    error.add_note(
        f"in the Ray worker on {platform.node()}:\n{''.join(traceback.format_exception(error))}"
    )
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return RuntimeError("".join(traceback.format_exception(error)))
    return error
