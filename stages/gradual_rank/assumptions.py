"""Test Assumptions 4.3 and 4.4 on a problem: disturb the flow and starts of stages, and see what
comes back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd

from lib.files.inputs import read_as
from lib.files.params import Interval, Positive, Seeds, read_params
from lib.gradual_rank.diagonal_heads import diagonal_network
from lib.gradual_rank.flow import LogCoordinates, Solver, log_flow, with_samples
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.disturbed import FOLDER, KICKS, PATHS, RETURNS
from lib.gradual_rank.tables.predictions import STAGES
from lib.gradual_rank.tasks import read_toy
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

# what is disturbed at a random time: the last is the null of the claim that the products return
DISTURBANCES = ("balanced", "independent", "everywhere")


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


class Point(NamedTuple):
    """A point of the flow: its log coordinates and the signs of u + v and u - v."""

    here: LogCoordinates
    plus: np.ndarray
    minus: np.ndarray

    def weights(self, y: np.ndarray) -> np.ndarray:
        """(u, v) at another y of the same c and signs."""
        return np.concatenate(self.here.weights(y, self.plus, self.minus))


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
    index = toy.seeds.tolist().index(seed)
    loss = diagonal_network(**toy.network(index))
    table = STAGES.read(stages)
    predicted = table[table["seed"] == seed].sort_values("stage").reset_index(drop=True)
    returns: list[dict[str, Any]] = []
    paths: list[dict[str, Any]] = []
    to_rest: Any = {
        "rtol": params.rtol,
        "atol": params.atol,
        "curvature": loss.on_share(curvature_share),
    }

    def flow(
        start: LogCoordinates, times: np.ndarray, active: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """y at rising times, the first of which is 0."""
        followed = log_flow(loss, start, float(times[-1]), active=active, **to_rest)
        return [y for _, found in with_samples(followed, start.y, times.tolist()) for _, y in found]

    # Most of a return is over soon: half of the times are within an eighth of the duration.
    times = params.duration * np.linspace(0.0, 1.0, params.n_path_times) ** 3
    points = along(flow, predicted, params, toy.u[index].numpy(), toy.v[index].numpy(), seed)
    for number, (kind, time, point) in enumerate(points):
        base = flow(point.here, times)
        p_base = [point.here.products(y) for y in base]
        for noise in DISTURBANCES if kind == "random" else DISTURBANCES[:2]:
            moved, touched = move(point, noise, params, seed, number)
            if not touched.any():
                # no weight that is not negligible: nothing is disturbed, and nothing can come back
                continue
            path = flow(moved.here, times)
            p = [moved.here.products(y) for y in path]
            gaps = [float(np.abs(a - b).max()) for a, b in zip(p, p_base, strict=True)]
            far, near = (
                float(np.linalg.norm(moved.weights(path[k]) - point.weights(base[k])))
                for k in (0, -1)
            )
            row = {"seed": seed, "point": number, "kind": kind, "time": time, "noise": noise}
            ratios = {"ratio_products": gaps[-1] / gaps[0], "ratio_weights": near / far}
            returns.append({**row, **ratios})
            coordinates = np.flatnonzero(touched)
            paths.extend(
                {
                    **row,
                    "after": t,
                    "coordinates": coordinates,
                    "p": a[touched].astype(np.float32),
                    "p_undisturbed": b[touched].astype(np.float32),
                }
                for t, a, b in zip(times, p, p_base, strict=True)
            )
    kicks = list(begin_elsewhere(flow, predicted, params, seed))
    return {
        "returns": RETURNS.frame(returns),
        "paths": PATHS.frame(paths),
        "kicks": KICKS.frame(kicks),
    }


def drawn(seed: int, *purpose: int | str) -> np.random.Generator:
    """The source of what is drawn for a purpose of a seed."""
    return np.random.default_rng(generator(seed, *purpose).initial_seed())


def along(
    flow: Any, predicted: pd.DataFrame, params: Assumptions, u: np.ndarray, v: np.ndarray, seed: int
) -> Iterator[tuple[str, float, Point]]:
    """Points of the undisturbed flow: at random times, and where a coordinate's weight stops being
    negligible.
    """
    if len(predicted) < 2:
        return  # nothing ever joins
    log_scale = params.log10_init_scale * LOG10
    start = LogCoordinates.of(u, v, log_scale)
    first, last = (float(predicted["time"].iloc[k]) * -log_scale for k in (1, -1))
    fine = np.linspace(0.0, last, 2000)
    ys = np.stack(flow(start, fine))
    above = np.sqrt(np.abs(np.stack([start.products(y) for y in ys]))) > params.nonnegligible
    rises = [
        int(np.argmax(above[:, i]))
        for i in np.flatnonzero(above.any(0))
        if above[:, i].argmax() > 0
    ]
    random = drawn(seed, "times of disturbances").uniform(first, last, params.n_random)
    chosen = [("random", int(np.searchsorted(fine, t))) for t in random]
    chosen += [("rise", k) for k in sorted(rises)[: params.n_rises]]
    for kind, k in chosen:
        yield (
            kind,
            float(fine[k]),
            Point(LogCoordinates(ys[k], start.log_c), np.sign(u + v), np.sign(u - v)),
        )


def move(
    point: Point, noise: str, params: Assumptions, seed: int, number: int
) -> tuple[Point, np.ndarray]:
    """The point with Gaussian noise on the weights that are not negligible: on u and v, or such
    that u² − v² stays; or, `everywhere`, with noise on u and v of all products.
    """
    here, plus, minus = point
    size = len(here.y)
    u, v = np.split(point.weights(here.y), 2)
    touched = np.maximum(np.abs(u), np.abs(v)) > params.nonnegligible
    if noise == "everywhere":
        touched = np.ones(size, bool)
    draw = drawn(seed, "disturbance", number).normal(0, params.noise, (2, size))
    u, v = u + draw[0] * touched, v + draw[1] * touched
    if noise == "balanced":  # both keep their signs, and c is the same
        y = np.where(touched, np.sign(here.y) * here.level(np.maximum(u**2, 1e-300)), here.y)
        return Point(LogCoordinates(y, here.log_c), plus, minus), touched
    moved = LogCoordinates.of(np.where(touched, u, 2.0), np.where(touched, v, 1.0))
    both = LogCoordinates(
        np.where(touched, moved.y, here.y), np.where(touched, moved.log_c, here.log_c)
    )
    signs = (np.where(touched, np.sign(w), s) for w, s in ((u + v, plus), (u - v, minus)))
    return Point(both, *signs), touched


def begin_elsewhere(
    flow: Any, predicted: pd.DataFrame, params: Assumptions, seed: int
) -> Iterator[dict[str, Any]]:
    """Assumption 4.4: begin stages near the plateau before theirs, and see whether they end at
    their own plateaus.
    """
    times = np.array([0.0, params.duration])
    n_stages = len(predicted) - 1
    for k in sorted(
        {1 + i * n_stages // params.n_kicks for i in range(params.n_kicks)} if n_stages else ()
    ):
        before, after = predicted.iloc[k - 1], predicted.iloc[k]
        i = int(after["coordinate"])
        p = np.array(before["p"])
        active = p != 0
        active[i] = True
        sign = np.sign(p)
        sign[i] = after["sign"]
        root = np.sqrt(np.abs(p))
        draw = drawn(seed, "kick", k).normal(0, params.noise, (2, len(p)))
        newcomer = np.arange(len(p)) == i
        for noise in ("none", "balanced", "independent"):
            u, v = np.abs(root + draw[0]), np.abs(root + draw[1])
            if noise == "none":  # the newcomer alone, as Algorithm 1 begins
                u = np.where(newcomer, params.noise, root)
            if noise != "independent":
                v = u
            u, v = (np.where(active, w, 1.0) for w in (u, v))
            tiny = np.full(len(p), -2000.0)  # log c of a point with u = v, as good as zero
            if noise == "independent":
                start = LogCoordinates.of(u, np.where(active, sign, 0.5) * v)
            else:
                at = LogCoordinates(np.zeros(len(p)), tiny)
                start = LogCoordinates(np.where(active, sign, 0.0) * at.level(u * v), tiny)
            end = np.where(active, start.products(flow(start, times, active)[-1]), 0.0)
            yield {
                "seed": seed,
                "stage": k,
                "noise": noise,
                "error": float(np.abs(end - np.array(after["p"])).max()),
            }


if __name__ == "__main__":
    run(main)
