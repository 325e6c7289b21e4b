r"""Follow gradient flow on W from 0 at V = cP: the theorem's runs, the law of the time, the runs whose spectra matter.

The flow is followed in u = cW and $\tau = c^2 t$ (`ScaledFlow`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from torch import Tensor

from lib.analysis.convergence_bounds import FlowBound, flow_bound, rarest_conflict, rarest_conflict_of_uniform
from lib.data.decision_lists import Task, tasks_by_name
from lib.dynamics.stiff_flow import Step, along, first_crossing, stiff_flow, until_positive
from lib.io.command import run
from lib.io.compute import available_cores, spread_kinds, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Positive, read_cases, read_params
from lib.io.runs import Layout, clear_runs, write_run
from lib.io.tables import read_table, write_table
from lib.models.list_attention import ExchangeableFlow, Rows, ScaledFlow

Tolerance = Annotated[float, Interval("[1e-12, 1e-2]")]
Size = Annotated[int, Interval("[1, 1000000]")]
LARGEST_SCALE = 1e12  # above it, attention that differs from uniform by 1/c is lost to rounding


@dataclass(frozen=True)
class Spectral:
    """Runs whose snapshots are kept, at times evenly spaced in the logarithm."""

    scale: Positive
    first_time: Positive
    last_time: Positive
    n_snapshots: Annotated[int, Interval("[2, 1000]")]


@dataclass(frozen=True)
class Flow:
    """The scales of the runs that the theorem does not set: for the law of the time, on sequences with repeats."""

    law_scales: tuple[Positive, ...]
    repeats_scale: Positive
    spectral: Spectral


@dataclass(frozen=True)
class Solver:
    """Relative tolerances; the longest runs, of the law in the rescaled time; at how many times paths are compared."""

    rtol_theorem: Tolerance
    rtol_to_bound: Tolerance  # once all is right
    rtol_law: Tolerance
    rtol_repeats: Tolerance
    rtol_spectral: Tolerance
    rtol_many: Tolerance
    longest_law: Positive
    longest_repeats: Positive
    n_compared: Count


@dataclass(frozen=True)
class Many:
    """Uniform subsets of many tokens, in the closed form."""

    n_tokens: Size
    seq_len: Annotated[int, Interval("[2, 1000000]")]  # one token decides nothing
    list_length: Annotated[int, Interval("[1, 12]")]

    def __post_init__(self) -> None:
        if self.seq_len + self.list_length > self.n_tokens:
            raise ValueError(f"n_tokens: wanted at least seq_len + list_length, got {self.n_tokens}")
        if self.bound.scale > LARGEST_SCALE:
            raise ValueError(f"n_tokens: wanted a scale c of at most {LARGEST_SCALE:g}, got {self.bound.scale:.3g}")

    @property
    def bound(self) -> FlowBound:
        P_min = rarest_conflict_of_uniform(self.n_tokens, self.seq_len, self.list_length)
        return flow_bound(P_min, self.n_tokens, self.seq_len, self.list_length)


def main(section: str, solver: str, tasks: Path, of_many: Path, tables: Path, runs: Path) -> None:
    use_threads(1)
    params, solve = read_params(section, Flow), read_params(solver, Solver)
    listed = tasks_by_name(read_table(tasks).to_dict("records")).values()
    spectra = [task for task in listed if task.use == "spectral"]
    jobs = {
        "theorem": [(theorem, task, solve) for task in listed if task.use in ("theorem", "bound")],
        "law": [(law, task, params.law_scales, solve) for task in listed if task.use == "law"],
        "repeats": [(repeats, task, params.repeats_scale, solve) for task in listed if task.use == "repeats"],
        "spectral": [(spectral, task, params.spectral, solve) for task in spectra],
        "many": [(many, case, solve) for case in read_cases(of_many, Many)],
    }
    clear(tables, "*.parquet")
    clear_runs(runs)
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="run")
    theorems, paths = zip(*found["theorem"], strict=True)
    for name, parts in {**found, "theorem": theorems, "paths": paths}.items():
        if name != "spectral":
            write_table(pd.concat(parts, ignore_index=True), tables / f"{name}.parquet")
    for task, snapshots in zip(spectra, found["spectral"], strict=True):
        publish(runs, task, params.spectral.scale, snapshots)


def flow_of(task: Task, scale: float) -> ScaledFlow:
    return ScaledFlow(Rows.of(*task.classes), task.labels, scale)


def steps_of(flow: ScaledFlow | ExchangeableFlow, end: float, rtol: float) -> Iterator[Step]:
    return stiff_flow(flow.velocity, None, flow.start, end, rtol=rtol, atol=rtol)


def theorem(task: Task, solve: Solver) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A run at the theorem's scale: when all is right, and whether it still is at the bound, where it is followed."""
    P_min = rarest_conflict(task.counts, task.chances, task.place, task.lists)
    bound = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest)
    flow = flow_of(task, bound.scale)
    c2, end = bound.scale**2, bound.time * bound.scale**2
    first, rise, attention, lost = math.nan, -math.inf, 1.0, 0
    state, time, right, to_bound = flow.start, 0.0, False, task.use == "bound"
    path = [{"time": 0.0, **flow.measured(state)}]
    for accurate in (True, False) if to_bound else (True,):
        rtol = solve.rtol_theorem if accurate else solve.rtol_to_bound
        offset = time
        for step in stiff_flow(flow.velocity, None, state, end - offset, rtol=rtol, atol=rtol):
            state, time = step.state, offset + step.time
            path.append({"time": time / c2, **flow.measured(state)})
            rise = max(rise, path[-1]["loss"] - path[-2]["loss"])
            lost += right and path[-1]["margin"] <= 0
            right = path[-1]["margin"] > 0
            if accurate:
                attention = max(attention, flow.largest_attention(state))
                if right:
                    first = first_crossing(step, flow.margin) / c2
                    break
    row = {"task": task.name, "group": task.group, "n_tokens": task.n_tokens, "seq_len": task.seq_len}
    row |= {"length": task.longest, "law": task.law, "P_min": P_min, "scale": bound.scale, "bound": bound.time}
    at_bound = float(right) if to_bound else math.nan
    row |= {"at_once": flow.at_once(), "first_time": first, "perfect_at_bound": at_bound, "lost": lost}
    row |= {"largest_rise": rise, "largest_attention": attention, "n_steps": len(path)}
    return pd.DataFrame([row]), pd.DataFrame(path).assign(task=task.name)


def law(task: Task, scales: tuple[float, ...], solve: Solver) -> pd.DataFrame:
    """The rescaled time T c² at every scale, and how far each trajectory is from the limit's."""
    flow, rtol, longest = flow_of(task, math.inf), solve.rtol_law, solve.longest_law
    limit = until_positive(steps_of(flow, longest, rtol), flow.margin)
    if limit is None:
        raise InputError(f"{task.name}: wanted all right by the rescaled time {longest:g}, got errors")
    end, steps = limit
    times = np.geomspace(end / 1000, end, solve.n_compared)
    wanted = along(steps, times)
    rows = [{"task": task.name, "scale": math.inf, "rescaled_time": end}]
    for scale in scales:
        flow = flow_of(task, scale)
        row: dict[str, Any] = {"task": task.name, "scale": scale}
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
    return pd.DataFrame(rows)


def repeats(task: Task, scale: float, solve: Solver) -> pd.DataFrame:
    """A run on sequences with repeats, to which the theorem does not apply, at a given scale."""
    flow = flow_of(task, scale)
    found = until_positive(steps_of(flow, solve.longest_repeats * scale**2, solve.rtol_repeats), flow.margin)
    row: dict[str, Any] = {"task": task.name, "law": task.law, "n_tokens": task.n_tokens, "seq_len": task.seq_len}
    row["first_time"] = math.nan
    if found is not None:
        W = flow.matrix(found[1][-1].path(found[0])) / scale
        row |= {"first_time": found[0] / scale**2, "largest_W": float(W.abs().max())}
    return pd.DataFrame([row])


def spectral(task: Task, params: Spectral, solve: Solver) -> list[tuple[Tensor, dict[str, float]]]:
    """W at times evenly spaced in the logarithm, 0 first, with loss, accuracy and margin there."""
    flow = flow_of(task, params.scale)
    times = np.geomspace(params.first_time, params.last_time, params.n_snapshots)
    c2 = params.scale**2
    steps = list(steps_of(flow, times[-1] * c2 * (1 + 1e-9), solve.rtol_spectral))
    kept = []
    for time, x in zip([0.0, *times], [flow.start, *along(steps, times * c2)], strict=True):
        row = flow.measured(x)
        row["margin"] /= flow.scale
        kept.append((flow.matrix(x) / params.scale, {"time": time, **row}))
    return kept


def publish(runs: Path, task: Task, scale: float, kept: list[tuple[Tensor, dict[str, float]]]) -> None:
    """Write the run of one task."""
    cell = {"task": task.name, "group": task.group, "law": task.law, "scale": scale}
    layout = Layout("decision_lists", {"W": ["seed", "row", "col"]}, gauge={"W": "column shift"}, cell=cell, seeds=[0])
    with write_run(runs, task.name, layout) as run:
        for W, row in kept:
            run.add({"W": W[None]}, [row])


def many(case: Many, solve: Solver) -> pd.DataFrame:
    """A run at the theorem's scale on uniform subsets, in the m + 1 values that a column holds."""
    bound = case.bound
    flow = ExchangeableFlow(case.n_tokens, case.seq_len, case.list_length, bound.scale)
    found = until_positive(steps_of(flow, bound.time * bound.scale**2, solve.rtol_many), flow.margin)
    row = {"n_tokens": case.n_tokens, "seq_len": case.seq_len, "length": case.list_length, "scale": bound.scale}
    row |= {"bound": bound.time, "first_time": found[0] / bound.scale**2 if found else math.nan}
    return pd.DataFrame([row | {"at_once": flow.at_once()}])


if __name__ == "__main__":
    run(main)
