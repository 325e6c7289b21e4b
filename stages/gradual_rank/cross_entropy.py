"""Follow networks under cross-entropy, with weight decay and without, beside Algorithm 1.

The labels are a teacher's, so that the loss comes as near to zero as one likes. The decay is a
share of the largest with which anything rises.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from lib.files.params import Interval, Positive, Seeds, read_cases, read_params
from lib.gradual_rank.courses import plateau_middles
from lib.gradual_rank.cross_entropy import head_classifier, linear_classifier
from lib.gradual_rank.decay import Decayed, halves_flow, log_halves, products
from lib.gradual_rank.flow import LogScale, Solver, Tolerance
from lib.gradual_rank.greedy import Stage, greedy, stage_row
from lib.gradual_rank.own_losses import OwnLoss
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.cross_entropy import FOLDER
from lib.gradual_rank.tasks import Samples, Size, gaussian_pair
from lib.training.devices import generator, use_threads
from lib.training.stiff_flow import StalledError, along, gradient
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

LATER = (1, 10, 100)  # times the end, at which the size of the products is seen
N_LOOKS = 240  # points of a flow's curves
FITTED = 1e-3  # of the loss at zero: without decay Algorithm 1 is followed no further


@dataclass(frozen=True)
class Followed:
    """The decay, and how flows are followed: so much longer than to Algorithm 1's last stage."""

    share: Annotated[float, Interval("(0, 1)")]
    rest: Positive
    rtol: Tolerance
    atol: Tolerance


@dataclass(frozen=True)
class Case(Seeds):
    """Networks of one kind: their sizes, and the scales of their starts."""

    name: Literal["linear", "head"]
    n_samples: Samples
    d_model: Size
    log10_init_scales: tuple[LogScale, ...]
    seq_len: Size | None = None

    def __post_init__(self) -> None:
        if (self.seq_len is None) != (self.name == "linear"):
            wanted = "wanted one of a head, and none of a linear classifier"
            raise ValueError(f"seq_len: {wanted}, got {self.seq_len} of {self.name}")
        if not self.log10_init_scales:
            raise ValueError("log10_init_scales: wanted at least one, got none")

    @property
    def by_seed(self) -> "list[Case]":
        """The case of every seed alone."""
        return [replace(self, n_seeds=1, first_seed=seed) for seed in self.seeds]

    def loss(self, seed: int) -> OwnLoss:
        """The cross-entropy of a seed's network."""
        if self.seq_len is None:
            return linear_classifier(seed, self.n_samples, self.d_model)
        return head_classifier(seed, self.n_samples, self.seq_len, self.d_model)


def main(section: str, solver: str, cases: Path, followed: OutFolder) -> None:
    """Write `stages`, `plateaus`, `ends` and `courses`."""
    use_threads(1)
    params = read_params(section, Followed)
    common = replace(read_params(solver, Solver), rtol=params.rtol, atol=params.atol)
    jobs: list[Job] = [
        (follow, one, params, common) for case in read_cases(cases, Case) for one in case.by_seed
    ]
    found = spread_cells({"": jobs}, label="gradual_rank.cross_entropy", unit="network")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: Followed, solver: Solver) -> Tables:
    """Algorithm 1 of a network with decay and without, and the flow beside it.

    With decay the flow starts from every scale, without it from the smallest.
    """
    [seed] = case.seeds
    loss = case.loss(seed)
    u, v = (w.numpy() for w in gaussian_pair(loss.size, generator(seed, "start")))
    largest = float(np.abs(gradient(loss, np.zeros(loss.size))).max())
    smallest = min(case.log10_init_scales)
    accuracy: dict[str, Any] = {"rtol": solver.rtol, "atol": solver.atol}
    numbers = {"kick": solver.kick, "stationary": solver.stationary, **accuracy}
    final = np.zeros(loss.size)
    last = 0.0
    tables: list[Tables] = []
    for share in (params.share, 0.0):
        halved = Decayed(loss, share * largest)
        every = greedy(halved, halved.size, lowest=-math.inf, **numbers)
        wanted = itertools.islice(every, solver.max_events)
        stages = pd.DataFrame(rows_until(halved, wanted, 0.0 if share else FITTED))
        if share:
            final, last = stages["p"].iloc[-1], float(stages["time"].iloc[-1])
        cell = {"case": case.name, "seed": seed, "share": share}
        tables.append({"stages": stages.assign(**cell)})
        for scale in sorted(case.log10_init_scales, reverse=True) if share else [smallest]:
            log_scale = scale * LOG10
            end = solver.end((1 + params.rest) * last, log_scale)
            middles = plateau_middles(stages, params.rest, log_scale)
            looks = np.geomspace(stages["time"].iloc[1] * -log_scale / 2, end * LATER[-1], N_LOOKS)
            times = {"plateaus": middles, "ends": end * np.array(LATER), "courses": looks}
            ordered = np.unique(np.concatenate([*times.values()]))
            begin = log_halves(u, v, log_scale)
            steps = list(halves_flow(halved, begin, float(ordered[-1]), **accuracy))
            seen = [products(np.exp(x)) for x in along(steps, ordered)]
            p = {
                name: [seen[i] for i in np.searchsorted(ordered, own)]
                for name, own in times.items()
            }
            sizes = [float(np.abs(one).sum()) for one in p["ends"]]
            row = {"error": np.abs(p["ends"][0] - final).max(), "size": sizes[0]}
            row |= {"size_later": sizes[1], "size_last": sizes[2]}
            here = {
                "plateaus": pd.DataFrame({"stage": stages["stage"], "p": p["plateaus"]}),
                "ends": pd.DataFrame([row]),
            }
            if scale == smallest:
                course = {"rescaled_time": looks / -log_scale, "p": p["courses"]}
                here["courses"] = pd.DataFrame(course)
            scaled = {**cell, "log10_init_scale": scale}
            tables.append({name: table.assign(**scaled) for name, table in here.items()})
    return {name: joined(tables, name) for name in FOLDER}


def rows_until(halved: Decayed, stages: Iterable[Stage], stop_loss: float) -> list[dict[str, Any]]:
    """What the table says of each stage: its products, and the gradient of the loss alone.

    They end with the first whose loss is below a share of that at zero, or before one that comes
    nowhere to rest: without decay there is one.
    """
    kept = ("stage", "time", "next_time", "strictness_products")
    found: list[dict[str, Any]] = []
    try:
        for stage in stages:
            row = stage_row(halved, stage)
            p = products(stage.p)
            found.append(
                {name: row[name] for name in kept} | {"p": p, "g": gradient(halved.loss, p)}
            )
            if row["loss"] < stop_loss:
                break
    except StalledError:
        pass
    return found


if __name__ == "__main__":
    run(main)
