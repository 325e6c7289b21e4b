"""The cost of having a cell computed elsewhere: by this pool, by joblib's back ends or by Ray, with
one to four workers.

Each way has a process of its own, so that its start counts. A cell here does nothing, waits, or
computes one hash; it is a function of the standard library, which every worker has. Ray and dask
are measured where they are installed.
"""

import hashlib
import json
import operator
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import Row, Spread, write_results
from lib.training.devices import use_threads
from lib.work.cells import spread_cells
from lib.work.command import run
from lib.work.compute import spread

Way = Callable[[Callable, list[tuple]], Iterable[Any]]
JOBLIB = ("loky", "multiprocessing", "ray", "dask")
NEEDS = {"joblib, ray": "ray", "ours, Ray": "ray", "joblib, dask": "distributed"}
WORKERS = (1, 2, 4)
ROUNDS = 1
HASHES = 120_000  # a tenth of a second
PATIENCE = 20  # seconds that a way may take to notice a dead worker


PACKAGES = ("torch", "joblib", "ray", "distributed")


def main(backends: Path, scaling: Path) -> None:
    write_scaling(scaling)
    write_backends(backends)


def write_backends(backends: Path) -> None:
    ways = ["ours, here", "ours, pool", *(f"joblib, {name}" for name in JOBLIB), "ours, Ray"]
    rows: list[Row] = []
    for way in ways:
        found = [measured(way, 2, "start", "cells") for _ in range(ROUNDS)]
        row: Row = {"way": way} | {
            name: Spread.of([one[name] for one in found]) for name in found[0] if found[0]
        }
        rows.append(
            row
            | {
                "a worker dies": ""
                if way == "ours, here"
                else measured(way, 2, "death").get("death")
            }
        )
    notes = [
        "Two workers. Start: until both have imported torch and given a first result, from when "
        "Ray's cluster is "
        "there. Overhead: wall time of one cell of 2,000 that do nothing; head: CPU time of the "
        "process that gives "
        "the work.",
    ]
    write_results(
        backends,
        "Cells by joblib's back ends and by ours",
        whole(rows),
        ROUNDS,
        PACKAGES,
        notes=notes,
    )


def write_scaling(scaling: Path) -> None:
    rows: list[Row] = []
    for way in ("ours, pool", "ours, Ray"):
        for n in WORKERS:
            found = [measured(way, n, "waits", "hashes") for _ in range(ROUNDS)]
            many = measured(way, n, "many", "kept")
            spreads = {name: Spread.of([one[name] for one in found]) for name in found[0]}
            rows.append({"way": way, "workers": n} | spreads | many)
    notes = [
        "Cells that wait take 50 ms, 40 for each worker: ideally 2 s. 40 hashes take about a "
        "tenth of a second of a "
        "core each. The rest is one round, wall and head CPU milliseconds for one cell: of 10,000 "
        "that do nothing, and "
        "of 2,000 that `spread_cells` keeps, each in a locked folder with a table on disk.",
    ]
    write_results(scaling, "From one to four workers", whole(rows), ROUNDS, PACKAGES, notes=notes)


def whole(rows: list[Row]) -> list[Row]:
    """The rows with the columns of all."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def measured(way: str, n: int, *what: str) -> dict[str, Any]:
    """The numbers of one way with n workers, from a process of its own; none where its package is
    absent.
    """
    if way in NEEDS and find_spec(NEEDS[way]) is None:
        return {}
    command = [sys.executable, "-m", "benchmarks.workers", json.dumps([way, n, *what]), "-"]
    variables = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    with tempfile.TemporaryFile(
        "w+"
    ) as out:  # and not a pipe, which what is left of a way may hold open
        begun = subprocess.Popen(
            command, env=variables, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
        )
        failed = begun.wait()
        with suppress(ProcessLookupError):
            os.killpg(begun.pid, signal.SIGKILL)
        out.seek(0)
        said = out.read().splitlines()
    assert not failed, (command, failed)
    return json.loads(said[-1])


def one(way: str, n: int, *what: str) -> None:
    """Measure one way in this process, and print the numbers; a helper that a dead worker hangs is
    left behind.
    """
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="."))
        os.chdir(folder)
        stack.callback(os.chdir, "..")
        begun = time.perf_counter()
        by = chosen(way, n, stack)
        ready = time.perf_counter()
        for name in what:
            if name == "start":
                list(by(use_threads, [(1,)] * n))
                extra = 0 if way in ("ours, Ray", "joblib, ray") else ready - begun
                found["start s"] = extra + time.perf_counter() - ready
            elif name == "death":
                found["death"] = death(by)
            else:
                found |= timed(by, name, n, way)
    print(json.dumps(found), flush=True)
    os._exit(0)


def timed(by: Way, name: str, n: int, way: str) -> dict[str, float]:
    """Wall time of one kind of work, and CPU time of this process."""
    list(by(use_threads, [(1,)] * n))  # a worker that has not begun is no part of it
    if name == "kept":
        jobs = {"kept": [(nothing, i) for i in range(2000)]}
        if way == "ours, Ray":
            return {}  # a function of this module, which no worker of a cluster has
        os.sched_getaffinity = lambda _: set(range(n))  # a process for each core
        wall, head = clocked(lambda: spread_cells(jobs, label="bench", unit="cell"))
        return {"kept ms": wall / 2, "head of kept ms": head / 2}
    work = {
        "cells": (operator.pos, [(1,)] * 2000),
        "many": (operator.pos, [(1,)] * 10_000),
        "waits": (time.sleep, [(0.05,)] * 40 * n),
        "hashes": (hashlib.pbkdf2_hmac, [("sha256", b"cell", b"salt", HASHES)] * 40),
    }[name]
    wall, head = clocked(lambda: list(by(*work)))
    if name in ("cells", "many"):
        names = {"cells": ("overhead ms", "head ms"), "many": ("10,000: ms", "10,000: head ms")}[
            name
        ]
        return dict(zip(names, (1e3 * wall / len(work[1]), 1e3 * head / len(work[1])), strict=True))
    return {f"{name} s": wall}


def nothing(number: int) -> dict[str, pd.DataFrame]:
    return {"table": pd.DataFrame({"number": [number]})}


def clocked(work: Callable[[], Any]) -> tuple[float, float]:
    wall = time.perf_counter()
    cpu = time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def death(by: Way) -> str:
    """The words of a way for a worker that dies, and the seconds until they come."""
    import faulthandler
    import threading

    faulthandler.disable()
    begun = time.perf_counter()
    found: list[str] = []

    def tried() -> None:
        try:
            list(by(os._exit, [(3,)] * 2))
        except BaseException as error:
            found.append(type(error).__name__)

    helper = threading.Thread(target=tried, daemon=True)
    helper.start()
    helper.join(PATIENCE)
    return (
        f"{found[0]} after {time.perf_counter() - begun:.1f} s"
        if found
        else f"silent for {PATIENCE} s"
    )


def chosen(way: str, n: int, stack: ExitStack) -> Way:
    """The way of that name to have cells computed."""
    if way == "ours, here":
        return lambda function, jobs: spread(function, jobs, n_processes=1, label="bench")
    if way == "ours, pool":
        return lambda function, jobs: spread(function, jobs, n_processes=n, label="bench")
    if way.endswith("ay"):
        from ray.cluster_utils import Cluster

        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])  # joblib ships no code
        head = {"num_cpus": n, "include_dashboard": False, "object_store_memory": 80 << 20}
        address = Cluster(initialize_head=True, head_node_args=head).address
        if way == "ours, Ray":
            os.environ["LAB_WORKERS"] = f"ray:{address}"
            return lambda function, jobs: spread(function, jobs, n_processes=1, label="bench")
        import ray
        from ray.util.joblib import register_ray

        ray.init(address, logging_level="error")
        register_ray()
    if way == "joblib, dask":
        from distributed import Client

        stack.enter_context(Client(n_workers=n, threads_per_worker=1, dashboard_address=None))
    import joblib

    backend = way.partition(", ")[2]

    def by(function: Callable, jobs: list[tuple]) -> Iterator[Any]:
        with joblib.parallel_config(backend, n_jobs=n):
            yield from joblib.Parallel()(joblib.delayed(function)(*job) for job in jobs)

    return by


if __name__ == "__main__":
    if sys.argv[2:] == ["-"]:
        one(*json.loads(sys.argv[1]))
    else:
        run(main)
