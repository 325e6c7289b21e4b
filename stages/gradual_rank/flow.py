"""Follow gradient flow of the diagonal head, for every seed and scale of the start, to its end."""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from lib.files.files import InputError, clear
from lib.files.inputs import read_as
from lib.files.params import Interval, Name, Positive, Seed, read_params
from lib.gradual_rank.courses import course, plateau_middles, twins
from lib.gradual_rank.flow import LogCoordinates, LogScale, Solver, Tolerance
from lib.gradual_rank.own_losses import Named
from lib.gradual_rank.problems import loss_of, named
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.flows import FOLDER
from lib.gradual_rank.tables.predictions import STAGES
from lib.gradual_rank.tasks import Start, Toy, read_problems, read_start
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
    loss: str | None = None
    gradient: str | None = None

    def __post_init__(self) -> None:
        if not self.flow_scales:
            raise ValueError("flow_scales: wanted at least one, got none")
        named(self.loss, self.gradient)

    @property
    def own(self) -> Named | None:
        """The names of its loss where that is one's own."""
        return named(self.loss, self.gradient)


@dataclass(frozen=True)
class Flow:
    """`grown` is the |p| at which a rise that began at the solver's threshold is over."""

    rest: Positive
    grown: Positive
    rtol: Tolerance
    atol: Tolerance


@dataclass(frozen=True)
class Shown:
    """The seed whose curves are kept; a problem without it keeps those of its least seed."""

    figure_seed: Seed


class Kind(NamedTuple):
    """The flows of a problem from one scale: one of each seed."""

    problem: str
    log10_init_scale: float


def main(
    section: str,
    solver: str,
    shown: str,
    usual: str,
    problems: Path,
    tasks: Path,
    predictions: Path,
    losses: Path,
    flows: OutFolder,
) -> None:
    """Write `times`, `plateaus`, `events`, `grown` and `twins` of each problem.

    The curves, `times`, are of the seed that figures show.
    """
    use_threads(1)
    params = read_params(section, Flow)
    figure_seed = read_params(shown, Shown, part=True).figure_seed
    common = replace(read_params(solver, Solver), rtol=params.rtol, atol=params.atol)
    cases = {problem.name: problem for problem in read_problems(problems, Problem, usual)}
    files = {name: tasks / f"{name}.safetensors" for name in cases}
    toys = {name: read_as("a toy task", read_start, file) for name, file in files.items()}

    def jobs_of(name: str, scale: float) -> list[tuple]:
        alone = replace(cases[name], flow_scales=(scale,))  # another scale has no part in its cells
        share = alone.curvature_share or common.curvature_share
        used = replace(common, curvature_share=share)
        read = (files[name], predictions / f"{name}_stages.parquet")
        asked = (alone, params.rest, params.grown, used)
        code = alone.own and losses
        seeds = toys[name].seeds.tolist()
        curved = figure_seed if figure_seed in seeds else min(seeds)
        return [(follow, *read, *asked, i, seed == curved, code) for i, seed in enumerate(seeds)]

    large_first = sorted(cases, key=lambda name: -numbers_of(toys[name]))
    kinds = [Kind(name, scale) for name in large_first for scale in sorted(cases[name].flow_scales)]
    jobs = {kind: jobs_of(*kind) for kind in kinds}
    found = spread_cells(jobs, label=section, unit="flow")
    clear(flows, "*.parquet")
    for name, problem in cases.items():
        here = [found[Kind(name, scale)] for scale in sorted(problem.flow_scales)]
        every = list(itertools.chain(*here))
        for table, schema in FOLDER.items():
            schema.write(joined(every, table), flows / f"{name}_{table}.parquet")


def numbers_of(toy: Start) -> int:
    """How many numbers a seed's tokens have; 0 for a loss of one's own."""
    return toy.X[0].numel() if isinstance(toy, Toy) else 0


def follow(
    task: Path,
    stages: Path,
    problem: Problem,
    rest: float,
    grown: float,
    solver: Solver,
    index: int,
    curves: bool,
    losses: Path | None,
) -> Tables:
    """The flow of a seed from the problem's one scale, to the middle of the last plateau that
    Algorithm 1 predicts; with its curves or without.
    """
    toy = read_start(task)
    seed = int(toy.seeds[index])
    frames = toy.frames if isinstance(toy, Toy) else None
    loss = loss_of(toy, index, losses, problem.own)
    table = STAGES.read(stages)
    predicted = table[table["seed"] == seed].sort_values("stage")
    (log10_init_scale,) = problem.flow_scales
    log_scale = log10_init_scale * LOG10
    start = LogCoordinates.of(toy.u[index].numpy(), toy.v[index].numpy(), log_scale)
    middles = plateau_middles(predicted, rest, log_scale)
    end = max(solver.end(float(predicted["time"].max()), log_scale), float(middles.max()))
    times = np.linspace(0.0, end, problem.n_times if curves else 0)
    looks = {"times": times, "plateaus": middles}
    where = f"seed {seed}, init scale 1e{log10_init_scale:g}"
    try:
        found = course(loss, start, log_scale, end, looks, grown, solver)
    except InputError as error:
        raise InputError(f"{task}: {where}: {error}") from error
    except StalledError as error:
        raise StalledError(f"{where}: {error}") from error
    for row in found["times"]:  # of which there are many
        row |= {name: row[name].astype(np.float32) for name in ("p", "charge")}
    for row in found["plateaus"]:
        row["stage"] = predicted["stage"].iloc[row["look"]]
    learned = next((row["p"] for row in found["plateaus"] if row["stage"] == 1), start.products())
    own_frames = None if frames is None else frames[index]
    found["twins"] = list(twins(own_frames, start, predicted, learned))
    cell = {"seed": seed, "log10_init_scale": log10_init_scale}
    return {
        name: FOLDER[name].frame([{**cell, **row} for row in rows]) for name, rows in found.items()
    }


if __name__ == "__main__":
    run(main)
