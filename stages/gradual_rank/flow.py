"""Follow gradient flow of the diagonal head, for every seed and scale of the start, to the end of its last stage."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.data.gaussian_sequences import Toy, read_toy
from lib.dynamics.gradient_flow import LogCoordinates, Solver, log_flow, with_events
from lib.dynamics.stiff_flow import StalledError
from lib.io.command import run
from lib.io.compute import available_cores, spread, use_threads
from lib.io.params import Interval, Positive, read_params
from lib.io.runs import Layout, clear_runs, write_run
from lib.io.tables import read_table, write_table
from lib.models.attention import PRODUCTS
from lib.models.diagonal_attention import DiagonalHead

LogScale = Annotated[float, Interval("[-1000, 0)")]


@dataclass(frozen=True)
class Problem:
    """How a problem is followed; `curvature_share` where it is another than the solver's."""

    log10_init_scales: tuple[LogScale, ...]
    n_snapshots: Annotated[int, Interval("[2, 10000]")]
    n_times: Annotated[int, Interval("[2, 100000]")]
    curvature_share: Annotated[float, Interval("(0, 1]")] | None = None


@dataclass(frozen=True)
class Flow:
    small: Problem
    paper: Problem
    control_log10_init_scale: LogScale
    rest: Positive
    rtol: Annotated[float, Interval("(0, 0.1]")]

    def __post_init__(self) -> None:
        if not (self.small.log10_init_scales and self.paper.log10_init_scales):
            raise ValueError("log10_init_scales: wanted at least one, got none")


class Trajectory(NamedTuple):
    """One flow: what it was at the times that were asked for, and when coordinates joined and left."""

    snapshots: list[dict[str, np.ndarray]]
    snapshot_rows: list[dict[str, Any]]
    times: list[dict[str, Any]]
    plateaus: list[dict[str, Any]]
    events: list[dict[str, Any]]


class Uphill:
    """A loss with the sign of its gradient flipped: a control."""

    def __init__(self, loss: DiagonalHead):
        self.loss = loss

    def gradient(self, p: Tensor) -> Tensor:
        return -self.loss.gradient(p)

    def hessian(self, p: Tensor, support: Tensor) -> Tensor:
        return -self.loss.hessian(p, support)


def main(section: str, solver: str, tasks: Path, predictions: Path, runs: Path, flows: Path) -> None:
    """Write, for each problem, the runs, and `times`, `plateaus` and `events`; and the events of the control."""
    use_threads(1)
    params, common = read_params(section, Flow), read_params(solver, Solver)
    problems = {"paper": params.paper, "small": params.small}  # the larger first
    files = {name: (tasks / f"{name}.safetensors", predictions / f"{name}_stages.parquet") for name in problems}
    toys = {name: read_toy(task) for name, (task, _) in files.items()}
    shares = {name: problem.curvature_share or common.curvature_share for name, problem in problems.items()}
    solvers = {name: replace(common, rtol=params.rtol, curvature_share=share) for name, share in shares.items()}
    cells = [(name, scale, False) for name, problem in problems.items() for scale in sorted(problem.log10_init_scales)]
    cells.append(("small", params.control_log10_init_scale, True))
    jobs = [
        (*files[name], problems[name], params.rest, solvers[name], i, scale, uphill)
        for name, scale, uphill in cells
        for i in range(len(toys[name].seeds))
    ]
    for name in problems:
        clear_runs(runs / name)
    found = iter(list(spread(follow, jobs, n_processes=available_cores(), label=section, unit="flow")))
    for name, problem in problems.items():
        kept: list[Trajectory] = []
        for scale in sorted(problem.log10_init_scales):
            here = [next(found) for _ in toys[name].seeds]
            publish(runs / name, scale, toys[name], here)
            kept += here
        for table in ("times", "plateaus", "events"):
            rows = [row for flow in kept for row in getattr(flow, table)]
            write_table(pd.DataFrame(rows), flows / f"{name}_{table}.parquet")
    control = [row for flow in found for row in flow.events]
    columns = ["seed", "log10_init_scale", "time", "coordinate", "sign", "rises"]
    write_table(pd.DataFrame(control, columns=columns), flows / "control.parquet")


def follow(
    task: Path,
    stages: Path,
    params: Problem,
    rest: float,
    solver: Solver,
    index: int,
    log10_init_scale: float,
    uphill: bool,
) -> Trajectory:
    """The flow of one seed from one scale, to the middle of the last plateau that Algorithm 1 predicts."""
    toy = read_toy(task)
    u, v, seed = toy.u[index].numpy(), toy.v[index].numpy(), int(toy.seeds[index])
    loss = DiagonalHead(toy.X[index], toy.Y[index])
    curvature = loss.on_share(solver.curvature_share)
    table = read_table(stages)
    predicted = table[table["seed"] == seed].sort_values("stage")
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(u, v, log_scale)
    last = float(predicted["time"].max())
    middles = (predicted["time"] + predicted["next_time"].clip(upper=(1 + 2 * rest) * last)) / 2 * -log_scale
    end = max(solver.end(last, log_scale), float(middles.max()))
    cell = {"seed": seed, "log10_init_scale": log10_init_scale}
    wanted = [
        *((time, "snapshot", i) for i, time in enumerate(np.linspace(0.0, end, params.n_snapshots).tolist())),
        *((time, "time", i) for i, time in enumerate(np.linspace(0.0, end, params.n_times).tolist())),
        *((time, "plateau", stage) for stage, time in zip(predicted["stage"], middles, strict=True)),
    ]
    wanted.sort()
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    found = Trajectory([], [], [], [], [])

    def note(time: float, kind: str, number: int, y: np.ndarray) -> None:
        p = start.products(y)
        relative = float(loss.value(torch.from_numpy(p))) / initial
        row = {"time": time, "rescaled_time": time / -log_scale, "loss": relative}
        if kind == "snapshot":
            w_u, w_v = start.weights(y, np.sign(u + v), np.sign(u - v))
            found.snapshots.append({"u": w_u, "v": w_v, "y": y.copy(), "p": p})
            found.snapshot_rows.append({"seed": seed, **row})
        elif kind == "time":
            found.times.append({**cell, **row, "p": p.astype(np.float32)})
        else:
            found.plateaus.append({**cell, **row, "stage": number, "p": p})

    bent = (Uphill(loss), Uphill(curvature)) if uphill else (loss, curvature)
    flow = log_flow(bent[0], start, end, rtol=solver.rtol, atol=solver.atol, curvature=bent[1])
    try:
        for step, events in with_events(flow, start, solver.threshold):
            while wanted and wanted[0][0] <= step.time and not uphill:
                time, kind, number = wanted.pop(0)
                note(time, kind, number, start.y if time == 0 else step.path(time))
            found.events.extend({**cell, **vars(event)} for event in events)
    except StalledError as error:
        if not uphill:  # whose products grow without bound
            raise StalledError(f"seed {seed}, init scale 1e{log10_init_scale:g}: {error}") from error
    return found


def publish(runs: Path, log10_init_scale: float, toy: Toy, flows: list[Trajectory]) -> None:
    """Write the flows of all seeds from one scale as one run: diagonal matrices, and y, p and log c as they are."""
    d = toy.X.shape[-1]
    layout = Layout(
        family="gradual_rank",
        matrices={name: ["seed", "row", "col"] for name in ("W_K", "W_Q", "W_V", "W_O")},
        products=PRODUCTS,
        cell={"variant": f"log10_init_scale={log10_init_scale:g}", "log10_init_scale": log10_init_scale},
        seeds=toy.seeds.tolist(),
    )
    starts = [
        LogCoordinates.of(u.numpy(), v.numpy(), log10_init_scale * math.log(10))
        for u, v in zip(toy.u, toy.v, strict=True)
    ]  # fmt: skip
    log_c = torch.tensor(np.stack([start.log_c for start in starts]))
    with write_run(runs, f"log10_init_scale={log10_init_scale:g}", layout) as writer:
        for k in range(len(flows[0].snapshots)):
            u, v, y, p = (
                torch.from_numpy(np.stack([flow.snapshots[k][name] for flow in flows])) for name in ("u", "v", "y", "p")
            )
            weights = {"W_K": u[:, :d], "W_Q": v[:, :d], "W_V": u[:, d:], "W_O": v[:, d:]}
            diagonal = {name: torch.diag_embed(w) for name, w in weights.items()}
            writer.add({**diagonal, "y": y, "p": p, "log_c": log_c}, [flow.snapshot_rows[k] for flow in flows])


if __name__ == "__main__":
    run(main)
