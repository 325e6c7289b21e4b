r"""Follow gradient flow on W from 0 at V = cP, at the theorem's scale c: until all is right, and on
to its bound.

The flow is followed in u = cW and $\tau = c^2 t$ (`ScaledFlow`).
"""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from lib.decision_lists.attention import ExchangeableFlow, Rows, ScaledFlow
from lib.decision_lists.bounds import (
    FlowBound,
    flow_bound,
    rarest_conflict,
    rarest_conflict_of_uniform,
)
from lib.decision_lists.lists import COLUMNS, Task, tasks_by_name
from lib.files.files import clear
from lib.files.inputs import read_as
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Interval, Positive, read_cases, read_params
from lib.files.tables import read_table, write_table
from lib.training.devices import use_threads
from lib.training.stiff_flow import first_crossing, stiff_flow, until_positive
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run

Tolerance = Annotated[float, Interval("[1e-12, 1e-2]")]
Size = Annotated[int, Interval("[1, 1000000]")]
# of a flow, twice the mean of those in git, which no shape tells; each is a row of its path
STEPS = 200
LARGEST_SCALE = 1e12  # above it, attention that differs from uniform by 1/c is lost to rounding


@dataclass(frozen=True)
class Flow:
    """The scale of the runs on sequences with repeats; delta over P_min / n of the runs whose gamma
    varies.
    """

    repeats_scale: Positive
    gamma_shares: tuple[Annotated[float, Interval("(0, 4)")], ...]


@dataclass(frozen=True)
class Solver:
    """Relative tolerances; the longest run on sequences with repeats."""

    rtol_theorem: Tolerance
    rtol_to_bound: Tolerance  # once all is right
    rtol_repeats: Tolerance
    rtol_many: Tolerance
    longest_repeats: Positive


@dataclass(frozen=True)
class Many:
    """Uniform subsets of many tokens, in the closed form."""

    n_tokens: Size
    seq_len: Annotated[int, Interval("[2, 1000000]")]  # one token decides nothing
    list_length: Annotated[int, Interval("[1, 12]")]

    def __post_init__(self) -> None:
        if self.seq_len + self.list_length > self.n_tokens:
            raise ValueError(
                f"n_tokens: wanted at least seq_len + list_length, got {self.n_tokens}"
            )
        if self.bound.scale > LARGEST_SCALE:
            raise ValueError(
                f"n_tokens: wanted a scale c of at most {LARGEST_SCALE:g}, got "
                f"{self.bound.scale:.3g}"
            )

    @property
    def bound(self) -> FlowBound:
        P_min = rarest_conflict_of_uniform(self.n_tokens, self.seq_len, self.list_length)
        return flow_bound(P_min, self.n_tokens, self.seq_len, self.list_length)


def main(section: str, solver: str, tasks: Path, of_many: Path, tables: OutFolder) -> None:
    use_threads(1)
    params, solve = read_params(section, Flow), read_params(solver, Solver)
    sizes = read_cases(of_many, Many)
    rows = read_table(tasks, COLUMNS).to_dict("records")
    listed = read_as("a table of tasks", lambda _: tasks_by_name(rows), tasks).values()
    check_memory(section, max((task.memory for task in listed), default=0))
    jobs = {
        "theorem": [
            (theorem, task, 1.0, solve) for task in listed if task.use in ("theorem", "bound")
        ],
        "gamma": [
            (theorem, task, share, solve)
            for task in listed
            if task.use == "gamma"
            for share in params.gamma_shares
        ],
        "repeats": [
            (repeats, task, params.repeats_scale, solve) for task in listed if task.use == "repeats"
        ],
        "many": [(many, case, solve) for case in sizes],
    }
    n_runs = {name: len(of) for name, of in jobs.items()}
    n_paths = n_runs["theorem"] + n_runs["gamma"]  # of both in scratch
    check_disk(
        tables, COPIES * (40 * STEPS * n_paths + 2000 * sum(n_runs.values()) + 30_000), section
    )
    clear(tables, "*.parquet")
    found = spread_cells(jobs, label=section, unit="run")
    for name, parts in {**found, "paths": found["theorem"]}.items():
        if parts:
            write_table(
                joined(parts, "paths" if name == "paths" else "rows"), tables / f"{name}.parquet"
            )


@dataclass
class Course:
    """A flow from W = 0: its path, when all is right for the first time, when no longer, and when
    last again.
    """

    flow: ScaledFlow
    path: list[dict[str, float]] = field(default_factory=list)
    first: float = math.nan
    lost: float = math.nan
    regained: float = math.nan
    n_lost: int = 0
    largest_attention: float = 1.0

    def __post_init__(self) -> None:
        self.state, self.end = self.flow.start, 0.0
        self.path.append({"time": 0.0, **self.flow.measured(self.state)})

    @property
    def right(self) -> bool:
        return self.path[-1]["margin"] > 0

    def follow(self, end: float, rtol: float, *, until_right: bool) -> None:
        """On from where it is to the rescaled time `end`, or until all is right."""
        flow, c2 = self.flow, self.flow.scale**2
        for step in stiff_flow(
            flow.velocity, None, self.state, end, rtol=rtol, atol=rtol, begin=self.end
        ):
            was, self.state, self.end = self.right, step.state, step.time
            self.path.append({"time": step.time / c2, **flow.measured(step.state)})
            if self.right != was:
                sign = 1 if self.right else -1
                self._crossed(first_crossing(step, lambda x, sign=sign: sign * flow.margin(x)) / c2)
            if until_right:
                self.largest_attention = max(
                    self.largest_attention, flow.largest_attention(step.state)
                )
                if self.right:
                    break

    def _crossed(self, time: float) -> None:
        if not self.right:
            self.lost, self.n_lost = time, self.n_lost + 1
        elif math.isnan(self.first):
            self.first = time
        else:
            self.regained = time


def theorem(task: Task, share: float, solve: Solver) -> Tables:
    """A run at the theorem's scale: when all is right, and whether it still is at the bound, where
    it is followed.
    """
    P_min = rarest_conflict(task.counts, task.chances, task.place, task.lists)
    bound = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest, share)
    flow = ScaledFlow(Rows.of(*task.classes), task.labels, bound.scale)
    course, end, to_bound = Course(flow), bound.time * bound.scale**2, task.use == "bound"
    course.follow(end, solve.rtol_theorem, until_right=True)
    if to_bound and course.end < end:
        course.follow(end, solve.rtol_to_bound, until_right=False)
    losses = [point["loss"] for point in course.path]
    row = {
        "task": task.name,
        "group": task.group,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
    }
    row |= {
        "length": task.longest,
        "law": task.law,
        "P_min": P_min,
        "gamma": bound.gamma,
        "scale": bound.scale,
    }
    row |= {"bound": bound.time, "at_once": flow.at_once(), "first_time": course.first}
    row |= {"perfect_at_bound": float(course.right) if to_bound else math.nan}
    row |= {"lost": course.n_lost, "lost_time": course.lost, "regained_time": course.regained}
    row |= {"largest_rise": max(b - a for a, b in pairwise(losses))}
    row |= {"largest_attention": course.largest_attention, "n_steps": len(course.path)}
    return {"rows": pd.DataFrame([row]), "paths": pd.DataFrame(course.path).assign(task=task.name)}


def repeats(task: Task, scale: float, solve: Solver) -> Tables:
    """A run on sequences with repeats, to which the theorem does not apply, at a given scale."""
    flow = ScaledFlow(Rows.of(*task.classes), task.labels, scale)
    end, rtol = solve.longest_repeats * scale**2, solve.rtol_repeats
    found = until_positive(
        stiff_flow(flow.velocity, None, flow.start, end, rtol=rtol, atol=rtol), flow.margin
    )
    row: dict[str, Any] = {
        "task": task.name,
        "law": task.law,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
    }
    row |= {
        "length": task.longest,
        "first_time": math.nan,
        "largest_W": math.nan,
        "attention_to_star": math.nan,
    }
    if found is not None:
        u = found[1][-1].path(found[0])
        row |= {
            "first_time": found[0] / scale**2,
            "largest_W": float(flow.matrix(u).abs().max()) / scale,
        }
        row["attention_to_star"] = flow.attention_to_star(u)
    return {"rows": pd.DataFrame([row])}


def many(case: Many, solve: Solver) -> Tables:
    """A run at the theorem's scale on uniform subsets, in the m + 1 values that a column holds."""
    bound, rtol = case.bound, solve.rtol_many
    flow = ExchangeableFlow(case.n_tokens, case.seq_len, case.list_length, bound.scale)
    steps = stiff_flow(
        flow.velocity, None, flow.start, bound.time * bound.scale**2, rtol=rtol, atol=rtol
    )
    found = until_positive(steps, flow.margin)
    row = {
        "n_tokens": case.n_tokens,
        "seq_len": case.seq_len,
        "length": case.list_length,
        "scale": bound.scale,
    }
    row |= {"bound": bound.time, "first_time": found[0] / bound.scale**2 if found else math.nan}
    return {"rows": pd.DataFrame([row | {"at_once": flow.at_once()}])}


if __name__ == "__main__":
    run(main)
