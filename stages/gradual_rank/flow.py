"""Follow gradient flow of the diagonal head, for every seed and scale of the start, to its end."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.files.files import InputError, clear
from lib.files.inputs import read_as
from lib.files.params import Interval, Name, Positive, read_params
from lib.gradual_rank.diagonal_heads import diagonal_network, same_entry
from lib.gradual_rank.flow import (
    LogCoordinates,
    LogScale,
    Solver,
    Tolerance,
    log_flow,
    with_events,
    with_samples,
)
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.flows import FOLDER
from lib.gradual_rank.tables.predictions import STAGES
from lib.gradual_rank.tasks import Toy, read_problems, read_toy
from lib.training.devices import use_threads
from lib.training.stiff_flow import StalledError
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run


@dataclass(frozen=True)
class Problem:
    """How a problem is followed; `curvature_share` where it is another than the solver's."""

    name: Name
    flow_scales: tuple[LogScale, ...]
    n_times: Annotated[int, Interval("[2, 100000]")]
    curvature_share: Annotated[float, Interval("(0, 1]")] | None = None

    def __post_init__(self) -> None:
        if not self.flow_scales:
            raise ValueError("flow_scales: wanted at least one, got none")


@dataclass(frozen=True)
class Flow:
    """`grown` is the |p| at which a rise that began at the solver's threshold is over."""

    rest: Positive
    grown: Positive
    rtol: Tolerance
    atol: Tolerance


def main(
    section: str,
    solver: str,
    usual: str,
    problems: Path,
    tasks: Path,
    predictions: Path,
    flows: OutFolder,
) -> None:
    """Write `times`, `plateaus`, `events`, `grown` and `twins` of each problem."""
    use_threads(1)
    params = read_params(section, Flow)
    common = replace(read_params(solver, Solver), rtol=params.rtol, atol=params.atol)
    cases = {problem.name: problem for problem in read_problems(problems, Problem, usual)}
    toys = {name: read_as("a toy task", read_toy, tasks / f"{name}.safetensors") for name in cases}

    def jobs_of(name: str, scale: float) -> list[tuple]:
        alone = replace(cases[name], flow_scales=(scale,))  # another scale has no part in its cells
        share = alone.curvature_share or common.curvature_share
        used = replace(common, curvature_share=share)
        files = (tasks / f"{name}.safetensors", predictions / f"{name}_stages.parquet")
        seeds = range(len(toys[name].seeds))
        return [(follow, *files, alone, params.rest, params.grown, used, index) for index in seeds]

    large_first = sorted(cases, key=lambda name: -toys[name].X[0].numel())
    jobs = {
        f"{name} {scale}": jobs_of(name, scale)
        for name in large_first
        for scale in sorted(cases[name].flow_scales)
    }
    found = spread_cells(jobs, label=section, unit="flow")
    clear(flows, "*.parquet")
    for name, problem in cases.items():
        here = [found[f"{name} {scale}"] for scale in sorted(problem.flow_scales)]
        every = list(itertools.chain(*here))
        for table, schema in FOLDER.items():
            schema.write(joined(every, table), flows / f"{name}_{table}.parquet")


def follow(
    task: Path,
    stages: Path,
    problem: Problem,
    rest: float,
    grown: float,
    solver: Solver,
    index: int,
) -> Tables:
    """The flow of a seed from the problem's one scale, to the middle of the last plateau that
    Algorithm 1 predicts.
    """
    toy = read_toy(task)
    seed = int(toy.seeds[index])
    u = toy.u[index].numpy()
    v = toy.v[index].numpy()
    loss = diagonal_network(**toy.network(index))
    table = STAGES.read(stages)
    predicted = table[table["seed"] == seed].sort_values("stage")
    (log10_init_scale,) = problem.flow_scales
    log_scale = log10_init_scale * LOG10
    start = LogCoordinates.of(u, v, log_scale)
    last = float(predicted["time"].max())
    next_times = predicted["next_time"].clip(upper=(1 + 2 * rest) * last)
    middles = (predicted["time"] + next_times) / 2 * -log_scale
    end = max(solver.end(last, log_scale), float(middles.max()))
    looks = {
        "times": np.linspace(0.0, end, problem.n_times),
        "plateaus": middles.to_numpy(),
    }
    every = (
        (time, kind, i) for kind, times in looks.items() for i, time in enumerate(times.tolist())
    )
    wanted = sorted(every)
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    cell = {"seed": seed, "log10_init_scale": log10_init_scale}
    where = f"seed {seed}, init scale 1e{log10_init_scale:g}"
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*looks, "events", "grown")}

    def row(y: np.ndarray, time: float, kind: str, number: int) -> dict[str, Any]:
        p = start.products(y)
        relative = float(loss.value(torch.from_numpy(p))) / initial
        row = {**cell, "time": time, "rescaled_time": time / -log_scale, "loss": relative, "p": p}
        charge = y / -log_scale
        if kind == "times":
            return row | {"p": p.astype(np.float32), "charge": charge.astype(np.float32)}
        return row | {"stage": predicted["stage"].iloc[number], "charge": charge}

    flow = log_flow(loss, start, end, **solver.on(loss))
    first, second, third = itertools.tee(flow, 3)
    sampled = with_samples(first, start.y, [time for time, *_ in wanted])
    risen = with_events(second, start, solver.threshold)
    higher = with_events(third, start, grown)
    try:
        for (_, samples), (_, events), (_, of_grown) in zip(sampled, risen, higher, strict=True):
            for i, y in samples:
                found[wanted[i][1]].append(row(y, *wanted[i]))
            found["events"] += [{**cell, **vars(event)} for event in events]
            found["grown"] += [{**cell, **vars(event)} for event in of_grown]
            if max(len(found["events"]), len(found["grown"])) > solver.max_events:
                raise InputError(
                    f"{task}: {where}: wanted at most max_events, {solver.max_events}, rises and "
                    "falls of products, got more"
                )
    except StalledError as error:
        raise StalledError(f"{where}: {error}") from error
    shares = twins(toy, start, predicted, found["plateaus"])
    found["twins"] = [{**cell, **shared} for shared in shares]
    return {name: FOLDER[name].frame(rows) for name, rows in found.items()}


def twins(
    toy: Toy, start: LogCoordinates, predicted: pd.DataFrame, plateaus: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """How heads of a common frame share what the first learns, and how they must by the start."""
    if toy.frames is None or toy.frames.shape[2] < 2 or len(predicted) < 2 or not plateaus:
        return
    if bool((toy.frames == toy.frames[:, :, :1]).all()):
        heads = same_entry(toy.frames[0], int(predicted["coordinate"].iloc[1]))
        p = next(row["p"] for row in plateaus if row["stage"] == 1)[heads]
        shares = start.shares(heads, int(predicted["sign"].iloc[1]))
        for head, share in enumerate(p / p.sum()):
            yield {"head": head, "share": share, "predicted": shares[head]}


if __name__ == "__main__":
    run(main)
