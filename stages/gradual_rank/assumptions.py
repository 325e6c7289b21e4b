"""Test Assumptions 4.3 and 4.4 on a problem: disturb the flow and starts of stages, and see what
comes back.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from lib.files.inputs import read_as
from lib.files.params import Interval, Positive, Seeds, read_params
from lib.gradual_rank.diagonal_heads import diagonal_network
from lib.gradual_rank.disturbances import (
    DISTURBANCES,
    ELSEWHERE,
    begun_elsewhere,
    disturbed_points,
    error_from_elsewhere,
    gaussians,
    left_of,
    source,
    states_at,
    with_noise,
)
from lib.gradual_rank.flow import Solver
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.disturbed import FOLDER, KICKS, PATHS, RETURNS
from lib.gradual_rank.tables.predictions import STAGES
from lib.gradual_rank.tasks import read_toy
from lib.training.devices import use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined


@dataclass(frozen=True)
class Assumptions(Seeds):
    """Where flows are disturbed and by how much, and how accurately they are followed: what comes
    back is small.
    """

    log10_init_scale: Annotated[float, Interval("[-100, 0)")]
    nonnegligible: Positive
    noise: Positive
    duration: Positive
    n_random: Annotated[int, Interval("[0, 1000]")]
    n_rises: Annotated[int, Interval("[0, 1000]")]
    n_kicks: Annotated[int, Interval("[0, 1000]")]
    n_path_times: Annotated[int, Interval("[2, 10000]")]
    rtol: Annotated[float, Interval("(0, 0.1]")]
    atol: Annotated[float, Interval("(0, 0.1]")]


def main(section: str, solver: str, task: Path, stages: Path, disturbed: OutFolder) -> None:
    """Write `returns`, `paths` and `kicks`."""
    use_threads(1)
    params = read_params(section, Assumptions)
    share = read_params(solver, Solver).curvature_share
    read_as("a toy task", read_toy, task).places(params.seeds, section)
    jobs = [(disturb, task, stages, params, share, seed) for seed in params.seeds]
    found = spread_cells({"seeds": jobs}, label=section, unit="seed")["seeds"]
    write_joined(FOLDER, found, disturbed)


def disturb(
    task: Path, stages: Path, params: Assumptions, curvature_share: float, seed: int
) -> Tables:
    """All disturbances of one seed: what comes back, the paths, and stages that begin elsewhere."""
    toy = read_toy(task)
    place = toy.seeds.tolist().index(seed)
    loss = diagonal_network(**toy.network(place))
    table = STAGES.read(stages)
    predicted = table[table["seed"] == seed].sort_values("stage").reset_index(drop=True)
    course = partial(
        states_at,
        loss=loss,
        rtol=params.rtol,
        atol=params.atol,
        curvature=loss.on_share(curvature_share),
    )
    # Most of a return is over soon: half of the times are within an eighth of the duration.
    times = params.duration * np.linspace(0.0, 1.0, params.n_path_times) ** 3
    log_scale = params.log10_init_scale * LOG10
    joins = predicted["time"].iloc[1:].to_numpy() * -log_scale
    points = disturbed_points(
        course,
        toy.u[place].numpy(),
        toy.v[place].numpy(),
        log_scale,
        joins,
        random=source(seed, "times of disturbances"),
        n_random=params.n_random,
        n_rises=params.n_rises,
        nonnegligible=params.nonnegligible,
    )
    drawn = partial(gaussians, seed, sigma=params.noise, size=toy.size)
    returns: list[dict[str, Any]] = []
    paths: list[dict[str, Any]] = []
    for number, (kind, time, point) in enumerate(points):
        base = course(point.here, times)
        draw = drawn("disturbance", number)
        for noise in DISTURBANCES if kind == "random" else DISTURBANCES[:2]:
            moved, touched = with_noise(point, noise, draw, params.nonnegligible)
            if not touched.any():
                # no weight that is not negligible: nothing is disturbed, and nothing can come back
                continue
            path = course(moved.here, times)
            row = {"seed": seed, "point": number, "kind": kind, "time": time, "noise": noise}
            returns.append({**row, **left_of(moved, path, point, base)})
            coordinates = np.flatnonzero(touched)
            paths.extend(
                {
                    **row,
                    "after": t,
                    "coordinates": coordinates,
                    "p": moved.here.products(a)[touched].astype(np.float32),
                    "p_undisturbed": point.here.products(b)[touched].astype(np.float32),
                }
                for t, a, b in zip(times, path, base, strict=True)
            )
    kicks: list[dict[str, Any]] = []
    for k in begun_elsewhere(len(predicted) - 1, params.n_kicks):
        draw = drawn("kick", k)
        for noise in ELSEWHERE:
            error = error_from_elsewhere(
                course, predicted, k, noise, draw, params.noise, params.duration
            )
            kicks.append({"seed": seed, "stage": k, "noise": noise, "error": error})
    return {
        "returns": RETURNS.frame(returns),
        "paths": PATHS.frame(paths),
        "kicks": KICKS.frame(kicks),
    }


if __name__ == "__main__":
    run(main)
