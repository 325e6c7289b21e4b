"""Follow heads under weight decay, diagonal ones and full matrices, beside Algorithm 1 with decay.

The decay is a share of the largest with which anything rises: of max|g(0)| in a diagonal head, of
σ₁(G(0)) where matrices are full.
"""

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch

from lib.files.files import InputError
from lib.files.params import Interval, Seeds, read_cases, read_params
from lib.gradual_rank.decay import (
    Decayed,
    at_rest,
    first_rise,
    first_rises,
    halves_flow,
    log_halves,
    products,
    rises_beside,
)
from lib.gradual_rank.decayed_matrices import DecayedHeads, Look, Nearness, largest_of, ranks_of
from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogScale, Solver
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.growth import first_time
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.decay import FOLDER
from lib.gradual_rank.tasks import Samples, Size, gaussian_pair, tokens_of
from lib.training.devices import generator, use_threads
from lib.training.stiff_flow import along, gradient
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

REST = 0.25  # a flow is followed so much longer than to the last stage of Algorithm 1
N_LOOKS = 200  # points of a flow's curves
RATE = 0.2  # of descent of full matrices
MOST_STEPS = 64_000
AT_REST = 1e-6  # of λ: matrices that are so near to rest are followed no longer
EVERY = 20  # steps from look to look
REST_EVERY = 100  # where matrices come to rest, which takes thousands of steps
REST_SCALE = -1.0  # log10 of the scale of matrices that come to rest: smaller ones wait too long


@dataclass(frozen=True)
class Case(Seeds):
    """Heads of one kind: their sizes, the decays as shares, and the scales of their starts."""

    name: Literal["diagonal", "full"]
    n_samples: Samples
    seq_len: Size
    d_model: Size
    shares: tuple[Annotated[float, Interval("[0, 10]")], ...]
    log10_init_scales: tuple[LogScale, ...]

    def __post_init__(self) -> None:
        if 0 not in self.shares:
            raise ValueError(f"shares: wanted 0, no decay, among them, got {list(self.shares)}")

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of samples, their length and the width of their tokens."""
        return self.n_samples, self.seq_len, self.d_model

    @property
    def by_seed(self) -> "list[Case]":
        """The case of every seed alone: who is at its end waits for no other."""
        return [replace(self, n_seeds=1, first_seed=seed) for seed in self.seeds]


def main(solver: str, threshold: str, decays: Path, decayed: OutFolder) -> None:
    """Write `stages`, `rises`, `heads`, `courses` and `full`."""
    use_threads(1)
    common = read_params(solver, Solver)
    risen = read_params(threshold, float)
    cases = {case.name: case for case in read_cases(decays, Case)}
    if len(cases) < 2:
        raise InputError(f"{decays}: wanted a line for diagonal and one for full, got {[*cases]}")
    full = cases["full"]
    rising = replace(full, shares=tuple(share for share in full.shares if share < 1))
    scales = sorted(full.log10_init_scales)
    jobs: list[Job] = [(train, one, REST_SCALE, risen, True) for one in rising.by_seed]
    jobs += [(train, one, scale, risen, False) for scale in scales for one in full.by_seed]
    diagonal = cases["diagonal"]
    jobs += [(follow, one, share, common) for share in diagonal.shares for one in diagonal.by_seed]
    found = spread_cells({"": jobs}, label="gradual_rank.decay", unit="head")[""]
    write_joined(FOLDER, found, decayed)


def follow(case: Case, share: float, solver: Solver) -> Tables:
    """Algorithm 1 of a diagonal head with one decay, and the flow from every scale to its rest."""
    [seed] = case.seeds
    [X] = tokens_of(case.seeds, *case.sizes)
    u, v = (w.numpy() for w in gaussian_pair(2 * case.d_model, generator(seed, "start")))
    w_u, w_v = gaussian_pair(2 * case.d_model, generator(seed, "teacher"))
    loss = DiagonalHead(X, diagonal_head(X, w_u * w_v))
    largest = np.abs(gradient(loss, np.zeros(loss.size))).max()
    halved = Decayed(loss, share * largest)
    bent = Decayed(loss.on_share(solver.curvature_share), halved.decay)
    numbers: dict[str, Any] = {"rtol": solver.rtol, "atol": solver.atol, "curvature": bent}
    every = greedy(
        halved,
        halved.size,
        lowest=-math.inf,
        kick=solver.kick,
        stationary=solver.stationary,
        **numbers,
    )
    stages = list(itertools.islice(every, solver.max_events))
    tables: list[Tables] = []
    for log10_scale in case.log10_init_scales:
        log_scale = log10_scale * LOG10
        start = log_halves(u, v, log_scale)
        end = solver.end((1 + REST) * max(stages[-1].time, 1 / largest), log_scale)
        steps = list(halves_flow(halved, start, end, **numbers))
        rises = first_rises(steps, solver.threshold, halved.size)
        looks = np.geomspace(1e-2 * end, end, N_LOOKS)
        path = [products(np.exp(x)) for x in along(steps, looks)]
        expected = first_rise(gradient(halved, np.zeros(halved.size)), start, solver.threshold)
        row = {"first_rise": rises.min(), "expected": expected}
        row |= at_rest(halved, path[-1], solver.threshold)
        row["product_error"] = np.abs(path[-1] - products(stages[-1].p)).max()
        found = {
            "heads": pd.DataFrame([row]),
            "rises": rises_beside(stages, rises / -log_scale),
            "courses": pd.DataFrame({"rescaled_time": looks / -log_scale, "p": path}),
        }
        cell = {"seed": seed, "share": share, "log10_init_scale": log10_scale}
        tables.append({name: table.assign(**cell) for name, table in found.items()})
    rows = [
        {"stage": one.k, "time": one.time, "n_dropped": len(one.dropped), "p": products(one.p)}
        for one in stages
    ]
    of_flows = {name: joined(tables, name) for name in ("heads", "rises", "courses")}
    return of_flows | {"stages": pd.DataFrame(rows).assign(seed=seed, share=share)}


def train(case: Case, log10_scale: float, threshold: float, to_rest: bool) -> Tables:
    """Descent of full matrices with each decay from one scale: the first rise, and the end.

    The end is where the first singular value of all that can rise is at the threshold, or rest:
    each decay's own, and that of the slowest for heads without decay.
    """
    log_scale = log10_scale * LOG10
    heads = DecayedHeads.drawn(case.seeds, case.sizes, case.shares)
    expected = heads.expected_rise(log_scale, threshold, RATE)
    rising = expected < math.inf
    rest = Nearness(threshold, AT_REST) if to_rest else None
    every = REST_EVERY if to_rest else EVERY
    looks: list[Look] = []
    largest: list[torch.Tensor] = []
    for look in heads.looks(math.exp(log_scale), RATE, every, rest):
        looks.append(look)
        largest.append(largest_of(look.factors))
        risen = bool((largest[-1][rising] >= threshold).all())
        if look.number + every > MOST_STEPS or (risen and not to_rest):
            break
    times = np.array([look.number * RATE for look in looks])
    courses = torch.stack(largest).flatten(1).T.numpy()
    cells = itertools.product(case.seeds, case.shares)
    found = pd.DataFrame(cells, columns=["seed", "share"]).assign(
        log10_init_scale=log10_scale,
        to_rest=to_rest,
        first_rise=[first_time(times, course, threshold) for course in courses],
        expected=expected.flatten().numpy(),
        loss=(looks[-1].loss / heads.loss_at_zero).flatten().numpy(),
    )
    W = looks[-1].factors
    ranks = ranks_of(W, threshold)
    for name, (on, off) in heads.rests(W, threshold).items():
        found[f"rank_{name}"] = ranks[name].flatten()
        found[f"on_{name}"] = on.flatten()
        found[f"off_{name}"] = off.flatten()
    return {"full": found}


if __name__ == "__main__":
    run(main)
