r"""Follow gradient flow on W from 0 at V = cP, at the theorem's scale c, until all is right.

Some runs go on to the bound. The flow is followed in u = cW and $\tau = c^2 t$.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd

from lib.decision_lists.bounds import (
    FlowBound,
    flow_bound,
    rarest_conflict_of_uniform,
)
from lib.decision_lists.flow import ExchangeableFlow, ScaledFlow
from lib.decision_lists.lists import Task, read_tasks, used_for
from lib.decision_lists.tables.flow import FOLDER
from lib.decision_lists.theorem_flow import followed_to_bound
from lib.files.params import Interval, Positive, read_cases, read_params
from lib.training.devices import use_threads
from lib.training.stiff_flow import until_positive
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_there

Tolerance = Annotated[float, Interval("[1e-12, 1e-2]")]
LARGEST_SCALE = 1e12  # above it, attention that differs from uniform by 1/c is lost to rounding


@dataclass(frozen=True)
class Flow:
    """The scale on sequences with repeats, and delta over P_min / n where gamma varies."""

    repeats_scale: Positive
    gamma_shares: tuple[Annotated[float, Interval("(0, 4)")], ...]


@dataclass(frozen=True)
class Solver:
    """The relative tolerances, and the longest run on sequences with repeats."""

    rtol_theorem: Tolerance
    rtol_to_bound: Tolerance  # from where all is right
    rtol_repeats: Tolerance
    rtol_many: Tolerance
    longest_repeats: Positive


@dataclass(frozen=True)
class Many:
    """Uniform subsets of many tokens, in the closed form."""

    n_tokens: Annotated[int, Interval("[1, 1000000]")]
    seq_len: Annotated[int, Interval("[2, 1000000]")]  # one token decides nothing
    list_length: Annotated[int, Interval("[1, 12]")]

    def __post_init__(self) -> None:
        if self.seq_len + self.list_length > self.n_tokens:
            raise ValueError(
                f"n_tokens: wanted at least seq_len + list_length, got {self.n_tokens}"
            )
        scale = self.bound.scale
        if scale > LARGEST_SCALE:
            raise ValueError(
                f"n_tokens: wanted a scale c of at most {LARGEST_SCALE:g}, got {scale:.3g}"
            )

    @property
    def bound(self) -> FlowBound:
        """The bound of the theorem."""
        P_min = rarest_conflict_of_uniform(self.n_tokens, self.seq_len, self.list_length)
        return flow_bound(P_min, self.n_tokens, self.seq_len, self.list_length)


def main(section: str, solver: str, tasks: Path, of_many: Path, flows: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Flow)
    solve = read_params(solver, Solver)
    sizes = read_cases(of_many, Many)
    listed = read_tasks(tasks)
    shares = params.gamma_shares
    jobs = {
        "theorem": [(theorem, task, solve) for task in used_for(listed, "theorem", "bound")],
        "gamma": [(gamma, task, x, solve) for task in used_for(listed, "gamma") for x in shares],
        "repeats": [
            (repeats, task, params.repeats_scale, solve) for task in used_for(listed, "repeats")
        ],
        "many": [(many, case, solve) for case in sizes],
    }
    write_tables_there(FOLDER, spread_cells(jobs, label=section, unit="run"), flows)


def theorem(task: Task, solve: Solver) -> Tables:
    """A run at the theorem's scale, and its path."""
    row, path = followed_to_bound(task, 1.0, solve.rtol_theorem, solve.rtol_to_bound)
    return {"theorem": pd.DataFrame([row]), "paths": pd.DataFrame(path).assign(task=task.name)}


def gamma(task: Task, share: float, solve: Solver) -> Tables:
    """A run at the theorem's scale for another delta."""
    row, _ = followed_to_bound(task, share, solve.rtol_theorem, solve.rtol_to_bound)
    return {"gamma": pd.DataFrame([row])}


def repeats(task: Task, scale: float, solve: Solver) -> Tables:
    """A run on sequences with repeats, to which the theorem does not apply, at a given scale."""
    flow = ScaledFlow(task, scale)
    steps = flow.steps(solve.longest_repeats * scale**2, solve.rtol_repeats)
    found = until_positive(steps, flow.margin)
    row: dict[str, Any] = task.about() | {
        "length": task.longest,
        "first_time": math.nan,
        "largest_W": math.nan,
        "attention_to_star": math.nan,
    }
    if found is not None:
        time, passed = found
        u = passed[-1].path(time)
        row["first_time"] = time / scale**2
        row["largest_W"] = float(abs(u).max()) / scale
        row["attention_to_star"] = flow.attention_to_star(u)
    return {"repeats": pd.DataFrame([row])}


def many(case: Many, solve: Solver) -> Tables:
    """A run at the theorem's scale on uniform subsets, in the m + 1 values that a column holds."""
    bound = case.bound
    flow = ExchangeableFlow(case.n_tokens, case.seq_len, case.list_length, bound.scale)
    found = until_positive(flow.steps(bound.time * bound.scale**2, solve.rtol_many), flow.margin)
    row = {
        "n_tokens": case.n_tokens,
        "seq_len": case.seq_len,
        "length": case.list_length,
        "bound": bound.time,
        "first_time": found[0] / bound.scale**2 if found else math.nan,
        "at_once": flow.at_once(),
    }
    return {"many": pd.DataFrame([row])}


if __name__ == "__main__":
    run(main)
