"""Follow gradient flow of the diagonal head, for every seed and scale of the start, to the end of
its last stage.
"""

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.files.files import InputError, clear
from lib.files.inputs import read_as
from lib.files.params import Interval, Name, Positive, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.files.tables import read_table, write_table
from lib.gradual_rank.diagonal_heads import Uphill, diagonal_network, head_matrices, same_entry
from lib.gradual_rank.flow import (
    LogCoordinates,
    Solver,
    event_table,
    log_flow,
    with_events,
    with_samples,
)
from lib.gradual_rank.tasks import Toy, read_problems, read_toy
from lib.training.attention import PRODUCTS
from lib.training.devices import use_threads
from lib.training.stiff_flow import StalledError
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run

LogScale = Annotated[float, Interval("[-1000, 0)")]
CELL = {"seed": int, "log10_init_scale": float}
TWIN = CELL | {"head": int, "share": float, "predicted": float}


@dataclass(frozen=True)
class Problem:
    """How a problem is followed; `curvature_share` where it is another than the solver's."""

    name: Name
    flow_scales: tuple[LogScale, ...]
    n_snapshots: Annotated[int, Interval("[2, 10000]")]
    n_times: Annotated[int, Interval("[2, 100000]")]
    curvature_share: Annotated[float, Interval("(0, 1]")] | None = None

    def __post_init__(self) -> None:
        if not self.flow_scales:
            raise ValueError("flow_scales: wanted at least one, got none")


@dataclass(frozen=True)
class Flow:
    """`grown` is the |p| at which a rise that began at the solver's threshold is over."""

    control_log10_init_scale: LogScale
    rest: Positive
    grown: Positive
    rtol: Annotated[float, Interval("(0, 0.1]")]
    atol: Annotated[float, Interval("(0, 0.1]")]


def main(
    section: str,
    solver: str,
    studied: str,
    usual: str,
    problems: Path,
    tasks: Path,
    predictions: Path,
    runs: OutFolder,
    flows: OutFolder,
) -> None:
    """Write, for each problem, the runs of heads, and `times`, `plateaus`, `events`, `grown` and
    `twins`; a control.
    """
    use_threads(1)
    params = read_params(section, Flow)
    base = read_params(studied, str)
    common = replace(read_params(solver, Solver), rtol=params.rtol, atol=params.atol)
    listed = read_problems(problems, Problem, usual)
    cases = {problem.name: problem for problem in listed}
    if base not in cases:
        raise InputError(f"{studied}: wanted one of the problems {sorted(cases)}, got {base!r}")
    files = {
        name: (tasks / f"{name}.safetensors", predictions / f"{name}_stages.parquet")
        for name in cases
    }
    toys = {name: read_as("a toy task", read_toy, task) for name, (task, _) in files.items()}
    large_first = sorted(cases, key=lambda name: -toys[name].X[0].numel())  # which take long
    cells = [
        (name, scale, False) for name in large_first for scale in sorted(cases[name].flow_scales)
    ]
    control = (base, params.control_log10_init_scale, True)
    jobs = {}
    for cell in (*cells, control):
        name, scale, uphill = cell
        alone = replace(cases[name], flow_scales=(scale,))  # another scale has no part in its cells
        how = (alone, params.rest, params.grown, common)
        seeds = range(len(toys[name].seeds))
        jobs[cell] = [(follow, *files[name], *how, i, uphill) for i in seeds]
    found = spread_cells(jobs, label=section, unit="flow")
    clear(flows, "*.parquet")
    for name, problem in cases.items():
        clear_runs(runs / name)
        here = {scale: found[name, scale, False] for scale in sorted(problem.flow_scales)}
        for scale, parts in here.items():
            if toys[name].frames is None:
                publish(runs / name, scale, toys[name], parts)
        every = list(itertools.chain(*here.values()))
        for table in ("times", "plateaus", "events", "grown", "twins"):
            write_table(joined(every, table), flows / f"{name}_{table}.parquet")
    write_table(joined(found[control], "events"), flows / "control.parquet")


def follow(
    task: Path,
    stages: Path,
    problem: Problem,
    rest: float,
    grown: float,
    solver: Solver,
    index: int,
    uphill: bool,
) -> Tables:
    """The flow of a seed from the problem's one scale, to the middle of the last plateau that
    Algorithm 1 predicts.
    """
    toy, (log10_init_scale,) = read_toy(task), problem.flow_scales
    u = toy.u[index].numpy()
    v = toy.v[index].numpy()
    seed = int(toy.seeds[index])
    loss = diagonal_network(**toy.network(index))
    of_twins = [] if toy.frames is None else ["coordinate", "sign"]
    table = read_table(stages, ["seed", "stage", "time", "next_time", *of_twins])
    predicted = table[table["seed"] == seed].sort_values("stage")
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(u, v, log_scale)
    last = float(predicted["time"].max())
    middles = (
        (predicted["time"] + predicted["next_time"].clip(upper=(1 + 2 * rest) * last))
        / 2
        * -log_scale
    )
    end = max(solver.end(last, log_scale), float(middles.max()))
    looks = {
        "snapshots": np.linspace(0.0, end, problem.n_snapshots),
        "times": np.linspace(0.0, end, problem.n_times),
    }
    looks |= {"plateaus": middles.to_numpy()}
    every = (
        (time, kind, i) for kind, times in looks.items() for i, time in enumerate(times.tolist())
    )
    wanted = [] if uphill else sorted(every)
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*looks, "events", "grown")}
    cell = {"seed": seed, "log10_init_scale": log10_init_scale}

    def note(y: np.ndarray, time: float, kind: str, number: int) -> None:
        p = start.products(y)
        relative = float(loss.value(torch.from_numpy(p))) / initial
        row = {**cell, "time": time, "rescaled_time": time / -log_scale, "loss": relative, "p": p}
        if kind == "snapshots":
            w_u, w_v = start.weights(y, np.sign(u + v), np.sign(u - v))
            row |= {"u": w_u, "v": w_v, "y": y.copy()}
        elif kind == "times":
            row |= {"p": p.astype(np.float32), "charge": (y / -log_scale).astype(np.float32)}
        else:
            row |= {"stage": predicted["stage"].iloc[number], "charge": y / -log_scale}
        found[kind].append(row)

    losses = loss, loss.on_share(problem.curvature_share or solver.curvature_share)
    bent, curvature = map(Uphill, losses) if uphill else losses
    flow = log_flow(bent, start, end, rtol=solver.rtol, atol=solver.atol, curvature=curvature)
    first, second, third = itertools.tee(flow, 3)
    sampled = with_samples(first, start.y, [time for time, *_ in wanted])
    risen = with_events(second, start, solver.threshold)
    higher = with_events(third, start, grown)
    try:
        for (_, samples), *passed in zip(sampled, risen, higher, strict=True):
            for i, y in samples:
                note(y, *wanted[i])
            for kind, (_, events) in zip(("events", "grown"), passed, strict=True):
                found[kind].extend({**cell, **vars(event)} for event in events)
                if len(found[kind]) > solver.max_events:
                    most = (
                        f"wanted at most max_events, {solver.max_events}, rises and falls of "
                        "products, got more"
                    )
                    raise InputError(
                        f"{task}: seed {seed}, init scale 1e{log10_init_scale:g}: {most}"
                    )
    except StalledError as error:
        if not uphill:  # whose products grow without bound
            raise StalledError(
                f"seed {seed}, init scale 1e{log10_init_scale:g}: {error}"
            ) from error
    tables = {name: pd.DataFrame(rows) for name, rows in found.items()}
    tables |= {kind: event_table(found[kind], **CELL) for kind in ("events", "grown")}
    return tables | {"twins": twins(toy, start, predicted, found["plateaus"], cell)}


def twins(
    toy: Toy,
    start: LogCoordinates,
    predicted: pd.DataFrame,
    plateaus: list[dict[str, Any]],
    cell: dict[str, Any],
) -> pd.DataFrame:
    """How the heads of a common frame share what the first of them learns, and how they must by the
    start alone.
    """
    rows = []
    if (
        toy.frames is not None
        and len(predicted) > 1
        and plateaus
        and bool((toy.frames == toy.frames[:, :, :1]).all())
    ):
        heads = same_entry(toy.frames[0], int(predicted["coordinate"].iloc[1]))
        p = next(row["p"] for row in plateaus if row["stage"] == 1)[heads]
        shares = start.shares(heads, int(predicted["sign"].iloc[1]))
        rows = [
            {**cell, "head": h, "share": p[h] / p.sum(), "predicted": shares[h]}
            for h in range(len(heads))
        ]
    return pd.DataFrame(rows, columns=list(TWIN)).astype(TWIN)


def publish(runs: Path, log10_init_scale: float, toy: Toy, flows: list[Tables]) -> None:
    """Write the flows of all seeds from one scale as one run: diagonal matrices, and y, p and log c
    as they are.
    """
    variant = f"log10_init_scale={log10_init_scale:g}"
    cell = {"variant": variant, "log10_init_scale": log10_init_scale}
    axes = {name: ["seed", "row", "col"] for name in ("W_K", "W_Q", "W_V", "W_O")}
    layout = Layout("gradual_rank", axes, PRODUCTS, cell=cell, seeds=toy.seeds.tolist())
    both = zip(toy.u.numpy(), toy.v.numpy(), strict=True)
    log_c = np.stack(
        [LogCoordinates.of(u, v, log10_init_scale * math.log(10)).log_c for u, v in both]
    )
    with write_run(runs, variant, layout) as writer:
        for k in range(len(flows[0]["snapshots"])):
            rows = [flow["snapshots"].iloc[k] for flow in flows]
            u, v, y, p = (
                torch.from_numpy(np.stack([row[name] for row in rows]))
                for name in ("u", "v", "y", "p")
            )
            told = [
                {name: row[name] for name in ("seed", "time", "rescaled_time", "loss")}
                for row in rows
            ]
            writer.add(
                {**head_matrices(u, v), "y": y, "p": p, "log_c": torch.from_numpy(log_c)}, told
            )


if __name__ == "__main__":
    run(main)
