"""Follow heads under weight decay, diagonal ones and full matrices, beside Algorithm 1 with decay.

The decay is a share of the largest with which anything rises: of max|g(0)| in a diagonal head, of
σ₁(G(0)) where matrices are full.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch

from lib.files.files import InputError
from lib.files.params import Interval, Seeds, read_cases, read_params
from lib.gradual_rank.decay import (
    Decayed,
    decayed_descent,
    decayed_rise,
    first_rise,
    first_rises,
    halves_flow,
    log_halves,
    rest_error,
    ridge_error,
    spectral_rest,
    whole,
)
from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogScale, Solver
from lib.gradual_rank.full_heads import (
    SharedTokensHead,
    gaussian_factors,
    targets,
)
from lib.gradual_rank.full_heads import first_rise as first_rise_of_matrices
from lib.gradual_rank.greedy import Stage, greedy
from lib.gradual_rank.growth import first_time
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.decay import FOLDER
from lib.gradual_rank.tasks import Samples, Size, gaussian_pair, tokens_of
from lib.training.devices import generator, use_threads
from lib.training.gradient_descent import Step
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
    jobs: list[Job] = [(train, one, REST_SCALE, risen, True) for one in each(rising)]
    jobs += [(train, one, scale, risen, False) for scale in scales for one in each(full)]
    diagonal = cases["diagonal"]
    jobs += [(follow, one, share, common) for share in diagonal.shares for one in each(diagonal)]
    found = spread_cells({"": jobs}, label="gradual_rank.decay", unit="head")[""]
    write_joined(FOLDER, found, decayed)


def each(case: Case) -> list[Case]:
    """The case of every seed alone: who is at its end waits for no other."""
    return [replace(case, n_seeds=1, first_seed=seed) for seed in case.seeds]


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
            "rises": activations(stages, rises / -log_scale),
            "courses": pd.DataFrame({"rescaled_time": looks / -log_scale, "p": path}),
        }
        cell = {"seed": seed, "share": share, "log10_init_scale": log10_scale}
        tables.append({name: table.assign(**cell) for name, table in found.items()})
    rows = pd.DataFrame([stage_of(stage) for stage in stages])
    of_flows = {name: joined(tables, name) for name in ("heads", "rises", "courses")}
    return of_flows | {"stages": rows.assign(seed=seed, share=share)}


def products(q: np.ndarray) -> np.ndarray:
    """The products of halves."""
    return whole(torch.from_numpy(q)).numpy()


def at_rest(halved: Decayed, p: np.ndarray, threshold: float) -> dict[str, float]:
    """The rank of a point, and how far it is from rest; NaN without decay."""
    errors = {"rest_error": math.nan, "ridge_error": math.nan}
    if halved.decay > 0:
        g = gradient(halved.loss, p)
        errors["rest_error"] = rest_error(g, p, halved.decay)
        errors["ridge_error"] = ridge_error(g, p, halved.decay)
    return {"rank": int((np.abs(p) > threshold).sum()), **errors}


def activations(stages: list[Stage], measured: np.ndarray) -> pd.DataFrame:
    """When each half rises in the flow and joins in Algorithm 1, and its largest plateau there."""
    n = len(measured) // 2
    joins = np.full(2 * n, np.inf)
    for stage in reversed(stages[1:]):
        joins[stage.coordinate] = stage.time
    heights = np.max([stage.p for stage in stages], axis=0)
    half = {"coordinate": np.tile(np.arange(n), 2), "sign": np.repeat([1, -1], n)}
    return pd.DataFrame(half | {"measured": measured, "predicted": joins, "height": heights})


def stage_of(stage: Stage) -> dict[str, Any]:
    """A stage of Algorithm 1."""
    return {
        "stage": stage.k,
        "time": stage.time,
        "n_dropped": len(stage.dropped),
        "p": products(stage.p),
    }


def train(case: Case, log10_scale: float, threshold: float, to_rest: bool) -> Tables:
    """Descent of full matrices with each decay from one scale: the first rise, and the end.

    The end is where the first singular value of all that can rise is at the threshold, or rest.
    """
    log_scale = log10_scale * LOG10
    together = (-1, len(case.shares), -1, -1, -1)
    X = tokens_of(case.seeds, *case.sizes)
    d = case.d_model
    head = SharedTokensHead(X, targets(X, case.seeds, [d]).expand(together))
    unscaled = gaussian_factors(d, case.seeds, "full start")[:, :, :, None]
    unscaled = unscaled.expand(-1, -1, *together[:-1])
    zero = torch.zeros_like(unscaled[0, 0])
    initial, _, G = head.loss_and_gradients(zero, zero)
    sigma = torch.linalg.matrix_norm(G, 2)
    decays = torch.tensor(case.shares, dtype=torch.float64) * sigma
    forecast = first_rise_of_matrices(G, unscaled, log_scale, threshold, RATE)
    expected = decayed_rise(forecast, sigma, decays, RATE)
    every = decayed_descent(head, math.exp(log_scale) * unscaled, RATE, decays)
    looks = itertools.islice(every, 0, MOST_STEPS + 1, EVERY)
    if to_rest:
        far = partial(far_from_rest, head, decays, threshold)
        steps = list(until(looks, lambda step: far(step) <= AT_REST))
    else:
        rising = expected < math.inf
        steps = list(until(looks, lambda step: (largest_of(step)[rising] >= threshold).all()))
    times = np.array([step.number * RATE for step in steps])
    courses = torch.stack([largest_of(step) for step in steps]).flatten(1).T.numpy()
    cells = itertools.product(case.seeds, case.shares)
    found = pd.DataFrame(cells, columns=["seed", "share"]).assign(
        log10_init_scale=log10_scale,
        to_rest=to_rest,
        first_rise=[first_time(times, course, threshold) for course in courses],
        expected=expected.flatten().numpy(),
        loss=(steps[-1].loss / initial).flatten().numpy(),
    )
    factors = steps[-1].weights["factors"]
    for k, (name, (on, off)) in enumerate(rests(head, steps[-1], decays, threshold).items()):
        ranks = (torch.linalg.svdvals(factors[0, k] @ factors[1, k].mT) > threshold).sum(-1)
        found[f"rank_{name}"] = ranks.flatten().numpy()
        found[f"on_{name}"] = on.flatten()
        found[f"off_{name}"] = off.flatten()
    return {"full": found}


def rests(
    head: SharedTokensHead, step: Step, decays: torch.Tensor, threshold: float
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """How far what has risen of each product, and what has not, is from rest, as shares of λ."""
    P, Q = step.weights["factors"]
    W = P @ Q.mT
    _, *slopes = head.loss_and_gradients(*W)
    return {
        name: spectral_rest(W[k], slopes[k], decays, threshold)
        for k, name in enumerate(("KQ", "VO"))
    }


def far_from_rest(
    head: SharedTokensHead, decays: torch.Tensor, threshold: float, step: Step
) -> float:
    """How far the heads with a decay are from rest at the most."""
    found = np.array([*rests(head, step, decays, threshold).values()])
    return float(found[..., (decays > 0).numpy()].max())


def until(steps: Iterable[Step], reached: Callable[[Step], Any]) -> Iterator[Step]:
    """Yield steps up to the first that has reached it."""
    for step in steps:
        yield step
        if reached(step):
            return


def largest_of(step: Step) -> torch.Tensor:
    """The largest singular value of W_VO."""
    P, Q = step.weights["factors"][:, 1]
    return torch.linalg.matrix_norm(P @ Q.mT, 2)


if __name__ == "__main__":
    run(main)
