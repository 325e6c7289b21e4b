"""Follow heads under weight decay, diagonal ones and full matrices, beside Algorithm 1 with decay.

The decay is a share of the largest with which anything rises: of max|g(0)| in a diagonal head, of
σ₁(G(0)) where matrices are full.
"""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch

from lib.files.inputs import read_as
from lib.files.params import Count, Interval, Positive, Seeds, read_params
from lib.files.tables import write_table
from lib.gradual_rank.decay import (
    Decayed,
    balance,
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
from lib.gradual_rank.diagonal_heads import diagonal_network
from lib.gradual_rank.flow import LogScale, Solver
from lib.gradual_rank.full_heads import (
    SharedTokensHead,
    gaussian_factors,
    output,
    products_of_ranks,
)
from lib.gradual_rank.full_heads import first_rise as first_rise_of_matrices
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.growth import first_time
from lib.gradual_rank.tasks import Samples, Size, read_head, tokens_of
from lib.training.devices import use_threads
from lib.training.stiff_flow import along, gradient
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run

Scales = tuple[LogScale, ...]
Shares = tuple[Annotated[float, Interval("[0, 10]")], ...]
TABLES = ("stages", "rises", "heads", "courses", "full")


@dataclass(frozen=True)
class Full:
    """Heads with full matrices, followed until the first singular value of all that can rise is at
    the threshold; from the scale of rest for all steps.
    """

    n_samples: Samples
    seq_len: Size
    d_model: Size
    log10_init_scales: Scales
    rest_log10_init_scale: LogScale
    learning_rate: Positive
    n_steps: Count
    look_every: Count
    threshold: Positive


@dataclass(frozen=True)
class Decay(Seeds):
    """The decays, as shares; the scales of diagonal heads, and by which share of the last stage's
    time they are followed longer.
    """

    shares: Shares
    log10_init_scales: Scales
    rest: Positive
    n_times: Annotated[int, Interval("[2, 10000]")]
    full: Full

    def __post_init__(self) -> None:
        if 0 not in self.shares:
            raise ValueError(f"shares: wanted 0, no decay, among them, got {list(self.shares)}")


def main(section: str, solver: str, task: Path, decayed: OutFolder) -> None:
    """Write `stages`, `rises`, `heads`, `courses` and `full`."""
    use_threads(1)
    params = read_params(section, Decay)
    common = read_params(solver, Solver)
    places = read_as("a toy task", read_head, task).places(params.seeds, section)
    numbers = (params.log10_init_scales, params.rest, params.n_times, common)
    full = params.full
    alike = tuple(params.seeds)
    rising = tuple(share for share in params.shares if share < 1)
    jobs = [(train, full, rising, alike, full.rest_log10_init_scale, True)]
    jobs += [
        (train, full, params.shares, alike, scale, False)
        for scale in sorted(full.log10_init_scales)
    ]
    jobs += [
        (follow, task, *numbers, index, share)
        for share, index in itertools.product(params.shares, places)
    ]
    found = spread_cells({"": jobs}, label=section, unit="head")[""]
    for name in TABLES:
        write_table(joined(found, name), decayed / f"{name}.parquet")


def follow(
    task: Path, scales: Scales, rest: float, n_times: int, solver: Solver, index: int, share: float
) -> Tables:
    """Algorithm 1 of a diagonal head with one decay, and the flow from every scale to its rest."""
    toy = read_head(task)
    loss = diagonal_network(**toy.network(index))
    nothing = torch.zeros(loss.size, dtype=torch.float64)
    largest = float(loss.gradient(nothing).abs().max())
    decay = share * largest
    halved = Decayed(loss, decay)
    numbers = {"rtol": solver.rtol, "atol": solver.atol}
    numbers["curvature"] = Decayed(loss.on_share(solver.curvature_share), decay)
    ends = {"kick": solver.kick, "stationary": solver.stationary, "lowest": -math.inf}
    every = greedy(halved, halved.size, **ends, **numbers)
    stages = list(itertools.islice(every, solver.max_events))
    heights = np.max([stage.p for stage in stages], axis=0)
    cell = {"seed": int(toy.seeds[index]), "share": share}
    half = {
        "coordinate": np.arange(halved.size) % loss.size,
        "sign": np.repeat([1, -1], loss.size),
    }
    joins = np.full(halved.size, np.inf)
    for stage in reversed(stages[1:]):
        joins[stage.coordinate] = stage.time
    last = products(stages[-1].p)
    found: dict[str, list[pd.DataFrame]] = {"heads": [], "rises": [], "courses": []}
    for log10_scale in scales:
        here = cell | {"log10_init_scale": log10_scale}
        log_scale = log10_scale * math.log(10)
        start = log_halves(toy.u[index].numpy(), toy.v[index].numpy(), log_scale)
        end = solver.end((1 + rest) * max(stages[-1].time, 1 / largest), log_scale)
        steps = list(halves_flow(halved, start, end, **numbers))
        rises = first_rises(steps, solver.threshold, halved.size)
        p = products(np.exp(steps[-1].state))
        g = gradient(loss, p)
        row = {
            "first_rise": rises.min(),
            "expected": first_rise(gradient(halved, 0 * start), start, solver.threshold),
            "rank": int((np.abs(p) > solver.threshold).sum()),
            "product_error": np.abs(p - last).max(),
            "rest_error": rest_error(g, p, decay) if decay else math.nan,
            "ridge_error": ridge_error(g, p, decay) if decay else math.nan,
        }
        found["heads"].append(pd.DataFrame([here | row]))
        times = {"measured": rises / -log_scale, "predicted": joins, "height": heights}
        found["rises"].append(pd.DataFrame(half | times).assign(**here))
        looks = np.geomspace(1e-2 * end, end, n_times)
        path = [products(np.exp(x)) for x in along(steps, looks)]
        course = {"rescaled_time": looks / -log_scale, "p": path}
        found["courses"].append(pd.DataFrame(course).assign(**here))
    nothing_learned = float(loss.value(nothing))
    rows = [
        cell
        | {
            "stage": stage.k,
            "time": stage.time,
            "next_time": stage.next_time,
            "n_active": int(stage.support.sum()),
            "n_dropped": len(stage.dropped),
            "loss": float(loss.value(whole(torch.from_numpy(stage.p)))) / nothing_learned,
            "p": products(stage.p),
        }
        for stage in stages
    ]
    return {"stages": pd.DataFrame(rows)} | {name: pd.concat(of) for name, of in found.items()}


def products(q: np.ndarray) -> np.ndarray:
    """The products of halves."""
    return whole(torch.from_numpy(q)).numpy()


def train(
    params: Full, shares: Shares, seeds: tuple[int, ...], log10_scale: float, to_rest: bool
) -> Tables:
    """Descent of full matrices with every decay from one scale: the first rise, and the end."""
    d = params.d_model
    rate = params.learning_rate
    log_scale = log10_scale * math.log(10)
    X = tokens_of(seeds, params.n_samples, params.seq_len, d)
    [teacher] = products_of_ranks(gaussian_factors(d, seeds, "full teacher"), [d])
    together = (-1, len(shares), -1, -1)
    Y = output(X, *teacher)[:, None].expand(-1, len(shares), -1, -1, -1)
    unscaled = gaussian_factors(d, seeds, "full start")[:, :, :, None]
    unscaled = unscaled.expand(-1, -1, *together)
    head = SharedTokensHead(X, Y)
    zero = torch.zeros_like(unscaled[0, 0])
    initial, _, G = head.loss_and_gradients(zero, zero)
    sigma = torch.linalg.matrix_norm(G, 2)
    decays = torch.tensor(shares, dtype=torch.float64) * sigma
    W_V, W_O = unscaled[:, 1]
    forecast = first_rise_of_matrices(G, W_V, W_O, log_scale, params.threshold, rate)
    expected = decayed_rise(forecast, sigma, decays, rate)
    looks: list[float] = []
    largest: list[np.ndarray] = []
    steps = decayed_descent(head, math.exp(log_scale) * unscaled, rate, decays)
    for step in itertools.islice(steps, params.n_steps + 1):
        if step.number % params.look_every == 0:
            P, Q = step.weights["factors"][:, 1]
            looks.append(step.number * rate)
            largest.append(torch.linalg.matrix_norm(P @ Q.mT, 2).numpy())
            risen = largest[-1] >= params.threshold
            if not to_rest and risen[torch.isfinite(expected).numpy()].all():
                break
    factors = step.weights["factors"]
    W_KQ, W_VO = factors[0] @ factors[1].mT
    _, G_KQ, G_VO = head.loss_and_gradients(W_KQ, W_VO)
    courses = np.stack(largest)
    rows = []
    for i, j in np.ndindex(*sigma.shape):
        rises = first_time(np.array(looks), courses[:, i, j], params.threshold)
        row = {"seed": seeds[i], "share": shares[j], "log10_init_scale": log10_scale}
        row |= {"first_rise": rises, "expected": float(expected[i, j]), "to_rest": to_rest}
        row |= {"loss": float(step.loss[i, j] / initial[i, j])}
        rows.append(row)
    found = pd.DataFrame(rows)
    for name, W, G, pair in (
        ("KQ", W_KQ, G_KQ, factors[:, 0]),
        ("VO", W_VO, G_VO, factors[:, 1]),
    ):
        on, off = spectral_rest(W, G, decays, params.threshold)
        ranks = (torch.linalg.svdvals(W) > params.threshold).sum(-1)
        found[f"rank_{name}"] = ranks.flatten().numpy()
        found[f"on_{name}"] = on.flatten()
        found[f"off_{name}"] = off.flatten()
        found[f"balance_{name}"] = balance(pair).flatten()
    return {"full": found}


if __name__ == "__main__":
    run(main)
