"""Follow sign descent, Adam and gradient descent on the diagonal head; beside them sign flow and gradient flow."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Annotated

import numpy as np
import pandas as pd
import torch

from lib.analysis.balance import diagonal_shares
from lib.analysis.optimizer_courses import diagonal_orders, learned_early
from lib.data.gaussian_sequences import gaussian_pair, gaussian_sequences
from lib.dynamics.gradient_flow import LogCoordinates, log_flow
from lib.dynamics.optimizers import (
    Adam,
    DiagonalStep,
    annealed,
    descend_diagonal,
    descend_roots,
    first_rise,
    signs,
    slopes,
    until_changed,
    warmed_up,
)
from lib.dynamics.sign_flow import LONGEST, Event, against_ray, first_ray, sign_flow
from lib.dynamics.stiff_flow import along
from lib.io.cells import Tables, joined, spread_cells
from lib.io.command import OutFolder, run
from lib.io.compute import available_cores, generator, use_threads
from lib.io.memory import COPIES, check_disk, check_memory
from lib.io.params import Count, Interval, Positive, Seeds, read_params
from lib.io.step_counts import steps_to
from lib.io.tables import write_table
from lib.models.diagonal_attention import DiagonalHead, diagonal_head

WARM_UP = 20, 1.05  # the first rate is the init scale over 20 and grows by 5 % a step: no coordinate is lost at once
SLOPE_STEPS = 100, 200  # ten and twenty times the memory of Adam's m, a tenth and a fifth of that of its v
EARLY = 0.9  # the share of the first loss at which coordinates are counted
RTOL, ATOL = 1e-5, 1e-6  # of both flows
MOST_STEPS = 20_000  # of gradient descent, which ends when a tenth of the loss is gone
N_LOOKS = 101  # points of the paths that are kept
REST, LONG = 1e-6, 1e6  # gradient flow ends where so little of the first loss is left, or at that time
SMALLEST = -32.0  # log10 of the init scale from which sign descent and Adam, which do not wait, begin besides
TABLES = ("changes", "events", "paths", "slopes", "diagonal", "rises")


@dataclass(frozen=True)
class Signs(Seeds):
    """Where sign descent starts and ends, in τ, and the rates: of it and of Adam, of Adam's slope, and of descent."""

    log10_init_scales: tuple[Annotated[float, Interval("[-30, 0)")], ...]
    end: Positive
    learning_rate: Positive
    slope_rate: Positive
    descent_rate: Positive


@dataclass(frozen=True)
class Sizes:
    """Of the head, those of the small one; `threshold`, of the solver, is the |p| that counts as learned."""

    n_samples: Count
    seq_len: Count
    d_model: Count


@dataclass(frozen=True)
class Learned:
    threshold: Positive


def main(section: str, problem: str, solver: str, followed: OutFolder) -> None:
    use_threads(1)
    params, sizes = read_params(section, Signs), read_params(problem, Sizes, part=True)
    learned = read_params(solver, Learned, part=True).threshold
    tokens, d = sizes.n_samples * sizes.seq_len, sizes.d_model
    scales, further = params.log10_init_scales, dict.fromkeys((*params.log10_init_scales, SMALLEST))
    n_steps = steps_to(params.end, min(params.learning_rate, LONGEST), f"{section}: end, learning_rate")
    check_memory(section, 8 * params.n_seeds * (tokens * (6 * d + 3 * sizes.seq_len) + 8 * n_steps * 2 * d))
    check_disk(followed, COPIES * 8 * params.n_seeds * (2 + len(scales)) * (N_LOOKS * (2 * d + 20) + 5000), section)
    alone = [replace(params, n_seeds=1, first_seed=seed) for seed in params.seeds]  # who waits, waits for its own
    jobs = {
        "waiting": [(trained, one, sizes, learned, "gd") for one in alone]
        + [(rises, one, sizes, learned, "gd", scale) for scale in scales for one in alone],
        "descents": [(roots, params, sizes)]
        + [(changes, params, sizes, learned, scale) for scale in further]
        + [(rises, params, sizes, learned, name, scale) for scale in further for name in ("sign", "adam")]
        + [(trained, params, sizes, learned, "adam")]
        + [(adam_slopes, params, sizes, beta_2) for beta_2 in (0.999, 0.9)],
        "flows": [(flow, one, sizes) for one in alone]
        + [(to_rest, one, sizes, learned, scale) for scale in scales for one in alone],
    }
    found = spread_cells(jobs, stage="gradual_rank_signs", n_processes=available_cores(), label=section, unit="descent")
    for name in TABLES:
        write_table(joined(found["waiting"] + found["descents"] + found["flows"], name), followed / f"{name}.parquet")


def head(sizes: Sizes, seeds: tuple[int, ...]) -> tuple[DiagonalHead, torch.Tensor, torch.Tensor]:
    """The heads of some seeds on their teachers' targets, and the directions of their starts."""
    shape, p = (sizes.n_samples, sizes.seq_len, sizes.d_model), 2 * sizes.d_model
    X = torch.stack([gaussian_sequences(*shape, generator(seed, "tokens")) for seed in seeds])
    teachers = torch.stack([torch.mul(*gaussian_pair(p, generator(seed, "teacher"))) for seed in seeds])
    u, v = torch.stack([torch.stack(gaussian_pair(p, generator(seed, "start"))) for seed in seeds], 1)
    return DiagonalHead(X, diagonal_head(X, teachers)), u, v


def followed(
    params: Signs, loss: DiagonalHead, u: torch.Tensor, v: torch.Tensor, name: str, log10_scale: float
) -> Iterator[DiagonalStep]:
    """One optimiser from that init scale: its rates are constant but for sign descent's first and Adam's last."""
    scale, n_steps = 10**log10_scale, round(params.end / params.learning_rate)
    rule, rates = {
        "sign": (signs, warmed_up(scale / WARM_UP[0], WARM_UP[1], params.learning_rate, params.end)),
        "adam": (Adam(), annealed(params.learning_rate, n_steps, 0.4)),
        "gd": (slopes, [params.descent_rate] * MOST_STEPS),
    }[name]
    return descend_diagonal(loss.gradient, scale * u, scale * v, rule, rates)


def rises(params: Signs, sizes: Sizes, learned: float, name: str, log10_scale: float) -> Tables:
    """When a product is learned first, infinite where none is."""
    loss, u, v = head(sizes, params.seeds)
    risen = first_rise(followed(params, loss, u, v, name, log10_scale), learned)
    cell = {"optimizer": name, "log10_init_scale": log10_scale, "seed": list(params.seeds)}
    return {"rises": pd.DataFrame({**cell, "first_rise": risen.numpy()})}


def changes(params: Signs, sizes: Sizes, learned: float, log10_scale: float) -> Tables:
    """Sign descent from one scale: when a g first changes its sign, beside the ray's forecast; what is learned.

    From the smallest scale it is followed until a g of every seed has changed its sign, and no further.
    """
    loss, u, v = head(sizes, params.seeds)
    heads = [DiagonalHead(X, Y) for X, Y in zip(loss.X, loss.Y, strict=True)]
    descent = followed(params, loss, u, v, "sign", log10_scale)
    if log10_scale == SMALLEST:
        descent = until_changed(descent, torch.from_numpy(np.stack([first_ray(one)[0] for one in heads])))
    steps = list(descent)
    t, path = np.array([step.time for step in steps]), np.stack([(step.u * step.v).numpy() for step in steps], 1)
    found = [
        {"seed": seed, "log10_init_scale": log10_scale}
        | against_ray(heads[n], params.end, t, path[n], np.stack([step.g[n].numpy() for step in steps]))
        for n, seed in enumerate(params.seeds)
    ]
    if log10_scale == SMALLEST:
        return {"changes": pd.DataFrame(found)}
    kept = diagonal_shares((steps[0].u, steps[0].v), (steps[-1].u, steps[-1].v))
    diagonal = pd.DataFrame(
        {"optimizer": "sign", "log10_init_scale": log10_scale, "seed": list(params.seeds),
         "rank_early": learned_early(lambda p: loss.value(torch.from_numpy(p)).numpy(), path[:, ::5], EARLY, learned),
         **diagonal_orders(t, path), **{name: share.numpy() for name, share in kept.items()}}
    )  # fmt: skip
    paths = looked_at(params, t, path, method="weights", log10_init_scale=log10_scale)
    return {"changes": pd.DataFrame(found), "paths": paths, "diagonal": diagonal}


def roots(params: Signs, sizes: Sizes) -> Tables:
    """Sign descent of the signed roots from zero, whose small steps are sign flow's own."""
    loss, u, _ = head(sizes, params.seeds)
    rate, n_steps = params.learning_rate, round(params.end / params.learning_rate)
    products = [p.numpy() for p in descend_roots(loss.gradient, torch.zeros_like(u), rate, n_steps)]
    knots = rate * np.arange(n_steps + 1)
    return {"paths": looked_at(params, knots, np.stack(products, 1), method="roots", log10_init_scale=-np.inf)}


def looked_at(params: Signs, knots: np.ndarray, products: np.ndarray, **cell: object) -> pd.DataFrame:
    """Products [seed, knot, p] at the looks."""
    looks = np.linspace(0, params.end, N_LOOKS)
    return pd.DataFrame(
        [
            {**cell, "seed": seed, "time": time, "p": np.array([np.interp(time, knots, column) for column in own.T])}
            for seed, own in zip(params.seeds, products, strict=True)
            for time in looks.tolist()
        ]
    )


def trained(params: Signs, sizes: Sizes, learned: float, name: str) -> Tables:
    """Adam or gradient descent from the largest scale: what is learned when a tenth of the loss is gone, the order."""
    loss, u, v = head(sizes, params.seeds)
    first, rank = loss.value(torch.zeros_like(u)), np.full(len(u), -1)
    kept, times, scale = [], [], max(params.log10_init_scales)
    end = start = (10**scale * u, 10**scale * v)
    for step in followed(params, loss, u, v, name, scale):
        p, end = step.u * step.v, (step.u, step.v)
        if step.number % 5 == 0:
            kept.append(p.abs().numpy())
            times.append(step.time)
            below = (loss.value(p) <= EARLY * first).numpy()
            rank = np.where(below & (rank < 0), (p.abs() > learned).sum(-1).numpy(), rank)
            if name == "gd" and (rank >= 0).all():
                break
    p, shares = np.stack(kept, 1), diagonal_shares(start, end)
    found = diagonal_orders(np.array(times), p) if name == "adam" else {"order": np.nan, "order_VO": np.nan}
    return {
        "diagonal": pd.DataFrame(
            {"optimizer": name, "log10_init_scale": scale, "seed": list(params.seeds), "rank_early": rank,
             **found, **{name: share.numpy() for name, share in shares.items()}}
        )
    }  # fmt: skip


def adam_slopes(params: Signs, sizes: Sizes, beta_2: float) -> Tables:
    """How fast √|p| grows per τ in early steps of Adam: the medians over the coordinates of both products."""
    loss, u, v = head(sizes, params.seeds)
    rate, scale = params.slope_rate, 10 ** max(params.log10_init_scales)
    descent = descend_diagonal(loss.gradient, scale * u, scale * v, Adam(beta_2=beta_2), [rate] * SLOPE_STEPS[1])
    begin, end = ((s.u * s.v).abs().sqrt() for s in descent if s.number in SLOPE_STEPS)
    slope = ((end - begin) / (rate * (SLOPE_STEPS[1] - SLOPE_STEPS[0]))).unflatten(-1, (2, -1)).median(-1).values
    columns = {"seed": list(params.seeds), "beta_2": beta_2, "slope_KQ": slope[:, 0], "slope_VO": slope[:, 1]}
    return {"slopes": pd.DataFrame(columns)}


def flow(params: Signs, sizes: Sizes) -> Tables:
    """Sign flow of one seed: its events, and its products."""
    (seed,) = params.seeds
    loss, *_ = head(sizes, (seed,))
    pieces = list(sign_flow(DiagonalHead(loss.X[0], loss.Y[0]), params.end, rtol=RTOL, atol=ATOL))
    rows = [(seed, *event) for piece in pieces for event in piece.events]
    events = pd.DataFrame(rows, columns=["seed", *Event._fields])
    q = np.stack([piece.q for piece in pieces])
    times, p = np.array([piece.time for piece in pieces]), (q * np.abs(q))[None]
    path = looked_at(params, times, p, method="flow", log10_init_scale=-np.inf)
    return {"events": events, "paths": path}


def to_rest(params: Signs, sizes: Sizes, learned: float, log10_scale: float) -> Tables:
    """Gradient flow of one seed, the limit of descent in small steps, to its end: what is learned, and the order."""
    loss, u, v = head(sizes, params.seeds)
    one = DiagonalHead(loss.X[0], loss.Y[0])
    start = LogCoordinates.of(u[0].numpy(), v[0].numpy(), log10_scale * math.log(10))

    def value(p: np.ndarray) -> np.ndarray:
        return loss.value(torch.from_numpy(p)).numpy()

    left = REST * value(np.zeros(u.shape))[0]
    flow = log_flow(one, start, LONG, rtol=RTOL, atol=ATOL)
    steps = list(takewhile(lambda step: value(start.products(step.origin)[None])[0] > left, flow))
    times = np.concatenate([np.linspace(step.before, step.time, 5)[1:] for step in steps])
    path = np.stack([start.products(y) for y in along(steps, times)])[None]
    cell = {"optimizer": "gradient flow", "log10_init_scale": log10_scale, "seed": list(params.seeds)}
    found = {"rank_early": learned_early(value, path, EARLY, learned), **diagonal_orders(times, path)}
    return {"diagonal": pd.DataFrame({**cell, **found})}


if __name__ == "__main__":
    run(main)
