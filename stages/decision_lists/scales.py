r"""Follow gradient flow on W from 0 at V = cP at other scales c than the theorem's.

The runs serve the law of the time, and spectra. The flow is followed in u = cW and $\tau = c^2 t$.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from lib.decision_lists.flow import ScaledFlow
from lib.decision_lists.lists import Task, read_tasks, used_for
from lib.decision_lists.runs import publish
from lib.decision_lists.tables.scales import FOLDER
from lib.files.files import InputError
from lib.files.params import Interval, Positive, read_params
from lib.files.runs import clear_runs
from lib.training.devices import use_threads
from lib.training.stiff_flow import along, until_positive
from lib.work.cells import Course, Saved, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there

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
    """The relative tolerances, the longest rescaled time, and at how many times paths meet."""

    rtol_law: Tolerance
    rtol_spectral: Tolerance
    longest_law: Positive
    n_compared: Annotated[int, Interval("[1, 100000]")]


def main(section: str, solver: str, tasks: Path, scales: OutFolder, runs: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Scales)
    solve = read_params(solver, Solver)
    listed = read_tasks(tasks)
    seen = used_for(listed, "spectral")
    jobs = {
        "law": [(law, task, params.law_scales, solve) for task in used_for(listed, "law")],
        "spectral": [(spectral, task, params.spectral, solve) for task in seen],
    }
    found = spread_cells(jobs, label=section, unit="run")
    write_tables_there(FOLDER, found, scales)
    clear_runs(runs)
    for task, course in zip(seen, found["spectral"], strict=True):
        publish(runs, task, [0], [course], scale=params.spectral.scale)


def law(task: Task, scales: tuple[float, ...], solve: Solver) -> Tables:
    """The rescaled time T c² at every scale, and how far each trajectory is from the limit's.

    A task that is right at once, at any scale, has no time to compare. It gets a row that says so,
    and no more.
    """
    longest = solve.longest_law
    rtol = solve.rtol_law
    nothing = {"path_error": math.nan, "attention_to_star": math.nan}
    flow = ScaledFlow(task, math.inf)
    of_limit: dict[str, Any] = task.about() | {"scale": math.inf, "at_once": flow.at_once()}
    if of_limit["at_once"]:
        return {"law": pd.DataFrame([of_limit | {"rescaled_time": 0.0} | nothing])}
    limit = until_positive(flow.steps(longest, rtol), flow.margin)
    if limit is None:
        raise InputError(
            f"{task.name}: wanted all right by the rescaled time {longest:g}, got errors"
        )
    end, steps = limit
    times = np.geomspace(end / 1000, end, solve.n_compared)
    wanted = along(steps, times)
    rows = [of_limit | {"rescaled_time": end} | nothing]
    for scale in scales:
        flow = ScaledFlow(task, scale)
        row = task.about() | {"scale": scale, "at_once": flow.at_once(), "rescaled_time": math.nan}
        row |= nothing
        found = until_positive(flow.steps(longest, rtol), flow.margin)
        got = along(list(flow.steps(end, rtol)), times)
        error = np.linalg.norm(got - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        row["path_error"] = float(error.max())
        if found is not None:
            row["rescaled_time"], steps = found
            state = steps[-1].path(row["rescaled_time"])
            row["attention_to_star"] = flow.attention_to_star(state)
        rows.append(row)
    return {"law": pd.DataFrame(rows)}


def spectral(task: Task, params: Spectral, solve: Solver) -> Course:
    """W at times evenly spaced in the logarithm, 0 first, with loss, accuracy and margin there."""
    flow = ScaledFlow(task, params.scale)
    times = np.geomspace(params.first_time, params.last_time, params.n_snapshots)
    c2 = params.scale**2
    steps = list(flow.steps(times[-1] * c2 * (1 + 1e-9), solve.rtol_spectral))
    states: list[Saved] = []
    for time, x in zip([0.0, *times], [flow.start, *along(steps, times * c2)], strict=True):
        row = {"time": time, **flow.measured(x)}
        row["margin"] /= flow.scale
        states.append(({"W": flow.weights(x)}, [row]))
    return Course({}, states)


if __name__ == "__main__":
    run(main)
