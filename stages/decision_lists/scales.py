r"""Follow gradient flow on W from 0 at V = cP at other scales c than the theorem's: the law of the
time, and spectra.

The flow is followed in u = cW and $\tau = c^2 t$ (`ScaledFlow`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from lib.decision_lists.attention import Rows, ScaledFlow
from lib.decision_lists.lists import COLUMNS, Task, tasks_by_name
from lib.files.files import InputError, clear
from lib.files.inputs import read_as
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Count, Interval, Positive, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.files.tables import read_table, write_table
from lib.training.devices import use_threads
from lib.training.stiff_flow import Step, along, stiff_flow, until_positive
from lib.work.cells import Course, Saved, Tables, joined, spread_cells
from lib.work.command import OutFolder, run

Tolerance = Annotated[float, Interval("[1e-12, 1e-2]")]


@dataclass(frozen=True)
class Spectral:
    """Runs whose snapshots are kept, at times evenly spaced in the logarithm."""

    scale: Positive
    first_time: Positive
    last_time: Positive
    n_snapshots: Annotated[int, Interval("[2, 1000]")]


@dataclass(frozen=True)
class Scales:
    """The scales at which the law of the time is looked for, beside infinity."""

    law_scales: tuple[Positive, ...]
    spectral: Spectral


@dataclass(frozen=True)
class Solver:
    """Relative tolerances; the longest run, in the rescaled time; at how many times paths are
    compared.
    """

    rtol_law: Tolerance
    rtol_spectral: Tolerance
    longest_law: Positive
    n_compared: Count


def main(section: str, solver: str, tasks: Path, tables: OutFolder, runs: OutFolder) -> None:
    use_threads(1)
    params, solve = read_params(section, Scales), read_params(solver, Solver)
    rows = read_table(tasks, COLUMNS).to_dict("records")
    listed = read_as("a table of tasks", lambda _: tasks_by_name(rows), tasks).values()
    check_memory(section, max((memory(task, params, solve) for task in listed), default=0))
    spectra = [task for task in listed if task.use == "spectral"]
    of_runs = sum(
        params.spectral.n_snapshots * (8 * task.n_tokens**2 + 1000) + 10_000 for task in spectra
    )
    check_disk(
        runs,
        COPIES * (of_runs + 200 * len(listed) * (1 + len(params.law_scales)) + 10_000),
        section,
    )
    jobs = {
        "law": [(law, task, params.law_scales, solve) for task in listed if task.use == "law"],
        "spectral": [(spectral, task, params.spectral, solve) for task in spectra],
    }
    clear(tables, "*.parquet")
    clear_runs(runs)
    found = spread_cells(
        jobs,
        label=section,
        unit="run",
    )
    tables.mkdir(parents=True, exist_ok=True)
    if found["law"]:
        write_table(joined(found["law"], "law"), tables / "law.parquet")
    for task, course in zip(spectra, found["spectral"], strict=True):
        publish(runs, task, params.spectral.scale, course.states)


def memory(task: Task, params: Scales, solve: Solver) -> int:
    """Bytes: the loss, and two paths at the times at which they are compared, or the snapshots."""
    n_states = {"law": 3 * solve.n_compared, "spectral": 2 * params.spectral.n_snapshots}.get(
        task.use, 0
    )
    return task.memory + 8 * n_states * task.n_tokens**2


def flow_of(task: Task, scale: float) -> ScaledFlow:
    return ScaledFlow(Rows.of(*task.classes), task.labels, scale)


def steps_of(flow: ScaledFlow, end: float, rtol: float) -> Iterator[Step]:
    return stiff_flow(flow.velocity, None, flow.start, end, rtol=rtol, atol=rtol)


def law(task: Task, scales: tuple[float, ...], solve: Solver) -> Tables:
    """The rescaled time T c² at every scale, and how far each trajectory is from the limit's.

    Of a task that is right at once at any scale there is no time to compare: a row that says so,
    and no more.
    """
    flow, rtol, longest = flow_of(task, math.inf), solve.rtol_law, solve.longest_law
    about: dict[str, Any] = {
        "task": task.name,
        "law": task.law,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
    }
    if flow.at_once():
        return {
            "law": pd.DataFrame(
                [about | {"scale": math.inf, "at_once": True, "rescaled_time": 0.0}]
            )
        }
    limit = until_positive(steps_of(flow, longest, rtol), flow.margin)
    if limit is None:
        raise InputError(
            f"{task.name}: wanted all right by the rescaled time {longest:g}, got errors"
        )
    end, steps = limit
    times = np.geomspace(end / 1000, end, solve.n_compared)
    wanted = along(steps, times)
    rows = [about | {"scale": math.inf, "at_once": False, "rescaled_time": end}]
    for scale in scales:
        flow = flow_of(task, scale)
        row: dict[str, Any] = about | {"scale": scale, "at_once": flow.at_once()}
        found = until_positive(steps_of(flow, longest, rtol), flow.margin)
        got = along(list(steps_of(flow, end, rtol)), times)
        error = np.linalg.norm(got - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        row["path_error"] = float(error.max())
        if found is not None:
            row["rescaled_time"], steps = found
            state = steps[-1].path(found[0])
            row["largest_attention"] = flow.largest_attention(state)
            row["attention_to_star"] = flow.attention_to_star(state)
        rows.append(row)
    return {"law": pd.DataFrame(rows)}


def spectral(task: Task, params: Spectral, solve: Solver) -> Course:
    """W at times evenly spaced in the logarithm, 0 first, with loss, accuracy and margin there."""
    flow = flow_of(task, params.scale)
    times = np.geomspace(params.first_time, params.last_time, params.n_snapshots)
    c2 = params.scale**2
    steps = list(steps_of(flow, times[-1] * c2 * (1 + 1e-9), solve.rtol_spectral))
    states: list[Saved] = []
    for time, x in zip([0.0, *times], [flow.start, *along(steps, times * c2)], strict=True):
        row = flow.measured(x)
        row["margin"] /= flow.scale
        states.append(({"W": flow.matrix(x)[None] / params.scale}, [{"time": time, **row}]))
    return Course({}, states)


def publish(runs: Path, task: Task, scale: float, states: list[Saved]) -> None:
    """Write the run of one task."""
    cell = {"task": task.name, "group": task.group, "law": task.law, "scale": scale}
    layout = Layout(
        "decision_lists",
        {"W": ["seed", "row", "col"]},
        gauge={"W": "column shift"},
        cell=cell,
        seeds=[0],
    )
    with write_run(runs, task.name, layout) as run:
        for weights, rows in states:
            run.add(weights, rows)


if __name__ == "__main__":
    run(main)
