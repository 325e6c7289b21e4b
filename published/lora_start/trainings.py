"""The trainings of `published.lora_start.run`: a row for each direction of a module and size p."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.first_gradients import (
    Factors,
    Gradient,
    factors_of,
    first_gradients,
    first_shares,
    learned,
)
from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.models import open_model
from lib.checkpoints.texts import loss, read_batches
from lib.gradual_rank.adapter_start import pace
from lib.gradual_rank.adapter_steps import adam_steps, descent_steps
from lib.training.devices import generator
from lib.work.cells import Tables
from lib.work.progress import advance

SIZES = (1e-3, 1e-2)  # p, of which each time is measured
N_DIRECTIONS = 3  # of each module
SCALING = 2  # alpha over rank
FALLEN = 0.02  # of the loss at the start: until then the update counts as small
WINDOWS = 8  # of the batch
SEQ_LEN = 64
SHARES = ("module", "size", "step", "out", "in", "random_out", "random_in")


@dataclass(frozen=True)
class Adapter:
    """How an adapter starts and is trained."""

    case: str
    rank: int
    log10_init_scale: float  # of A, over the library's own draw
    ratio: float  # λ, the learning rate of B over that of A
    n_steps: int
    step: float  # by descent ηκσ of the largest σ, by Adam the learning rate η

    @property
    def by_adam(self) -> bool:
        """Whether it is trained by Adam, and not by gradient descent."""
        return self.case == "adam"


def train(model: str, one: Adapter, seed: int, base: Path, text: Path) -> Tables:
    """Train one adapter: when each direction reached each size, and where updates began."""
    begun = open_checkpoint(base.parent)
    live = open_model(base.parent, begun.config)
    [batch] = read_batches(base.parent, begun.config, text, SEQ_LEN, WINDOWS, 1)
    gradients = first_gradients(live, batch, N_DIRECTIONS)
    by_columns = any(map(stored_as_columns, linear_modules(live).values()))
    ranks = dict.fromkeys(gradients, one.rank)
    config = lora_config(ranks, fan_in_fan_out=by_columns, scale=SCALING)
    adapted = with_adapter(live, config, seed)
    factors = factors_of(adapted, gradients)
    return trained(model, lambda: loss(adapted, batch), gradients, factors, one, seed)


def trained(
    model: str,
    value: Callable[[], Tensor],
    gradients: Mapping[str, Gradient],
    factors: Mapping[str, Factors],
    one: Adapter,
    seed: int,
) -> Tables:
    """Train an adapter of a model whose loss is this `value` of the factors as they are.

    The factors come as the library draws them, and begin as the adapter wants it.
    """
    begin(factors, one, seed)
    largest = max(float(gradient.sigma[0]) for gradient in gradients.values())
    rate = one.step if one.by_adam else one.step / (pace(SCALING, one.ratio) * largest)
    said = {name: said_of(gradients[name], of, one, rate) for name, of in factors.items()}
    course, shares, losses = follow(value, gradients, factors, one, rate)
    for name, table in said.items():
        table["measured"] = np.concatenate([first_at(course[name], p) for p in SIZES])
    table = pd.concat([rows.assign(module=name) for name, rows in said.items()], ignore_index=True)
    told = told_of(model, one, seed, rate, losses)
    return {"learned": shuffled(table, one, rate).assign(**told), "shares": shares.assign(**told)}


def told_of(
    model: str, one: Adapter, seed: int, rate: float, losses: Sequence[float]
) -> dict[str, Any]:
    """What every row of a training says, and until which step its update counts as small."""
    fallen = np.array(losses) <= (1 - FALLEN) * losses[0]
    return {
        "model": model,
        "case": one.case,
        "log10_init_scale": one.log10_init_scale,
        "rank": one.rank,
        "ratio": one.ratio,
        "seed": seed,
        "n_steps": one.n_steps,
        "rate": rate,
        "horizon": float(fallen.argmax() if fallen.any() else one.n_steps),
    }


def begin(factors: Mapping[str, Factors], one: Adapter, seed: int) -> None:
    """Scale A as the library has drawn it; where both factors start small, draw B like it."""
    scale = 10.0**one.log10_init_scale
    with torch.no_grad():
        for name, of in factors.items():
            of.A.mul_(scale)
            if one.case == "both":
                drawn = torch.rand(of.B.shape, generator=generator(seed, "B", name))
                of.B.copy_((2 * drawn - 1) * scale / math.sqrt(len(of.B)))


def follow(
    value: Callable[[], Tensor],
    gradients: Mapping[str, Gradient],
    factors: Mapping[str, Factors],
    one: Adapter,
    rate: float,
) -> tuple[dict[str, Float[np.ndarray, "step n"]], pd.DataFrame, list[float]]:
    """What training adds to each direction of each module, step by step, and the losses.

    Between them comes where an update lies in the directions of the gradient, when the first of a
    module reaches a size.
    """
    kind = torch.optim.Adam if one.by_adam else torch.optim.SGD
    optimiser = kind(
        [
            {"params": [of.A for of in factors.values()], "lr": rate},
            {"params": [of.B for of in factors.values()], "lr": rate * one.ratio},
        ]
    )
    begun = {name: learned(of, gradients[name], SCALING) for name, of in factors.items()}
    course = {name: [] for name in factors}
    peak = dict.fromkeys(factors, 0.0)
    shares = []
    losses = []
    for step in range(one.n_steps + 1):
        for name, of in factors.items():
            added = (learned(of, gradients[name], SCALING) - begun[name]).numpy()
            course[name].append(added)
            most = float(added.max())
            for p in SIZES:
                if most >= p > peak[name]:
                    out, into = first_shares(of, gradients[name])
                    rows, cols = gradients[name].G.shape
                    n = len(gradients[name].sigma)
                    drawn = (n / rows, n / cols)
                    shares.append((name, p, step, out, into, *drawn))
            peak[name] = max(peak[name], most)
        optimiser.zero_grad()
        now = value()
        losses.append(float(now.detach()))
        now.backward()
        optimiser.step()
        advance(step > 0)
    whole = {name: np.array(rows) for name, rows in course.items()}
    return whole, pd.DataFrame(shares, columns=[*SHARES]), losses


def said_of(gradient: Gradient, of: Factors, one: Adapter, rate: float) -> pd.DataFrame:
    """What the start says of when a module's directions reach each size, in steps.

    `equal` takes every A v to be as long as the draw makes it in the mean, `two` a B that starts
    as A does, as two small factors do, and `signs` is what Adam's signs say.
    """
    kappa = pace(SCALING, one.ratio)
    A, B = (part.detach().double().numpy() for part in of)
    G, U, sigma, V = (part.numpy() for part in gradient)
    a = A @ V
    b = B.T @ U / math.sqrt(one.ratio)
    x = rate * kappa * sigma
    squares = (a**2).sum(0)
    mean = np.full_like(squares, one.rank * 100.0**one.log10_init_scale / (3 * A.shape[1]))
    ends = {"plus": ((a + b) ** 2).sum(0), "minus": ((a - b) ** 2).sum(0)}
    tables = []
    for p in SIZES:
        steps = partial(descent_steps, p, x, kappa)
        found = {
            "direction": range(len(sigma)),
            "size": p,
            "sigma": sigma,
            "a_squared": squares,
            **ends,
            "forecast": steps(**ends),
            "equal": steps(mean, mean),
            "two": steps(4 * squares, 0 * squares),
            "signs": adam_steps(p, G, A, U, V, scaling=SCALING, rate=rate),
        }
        tables.append(pd.DataFrame(found))
    return pd.concat(tables, ignore_index=True)


def shuffled(table: pd.DataFrame, one: Adapter, rate: float) -> pd.DataFrame:
    """The table with a forecast that has the σ of the same direction of the module before."""
    kappa = pace(SCALING, one.ratio)
    found = []
    for p in SIZES:
        rows = table[table["size"] == p]
        n = rows["direction"].nunique()
        x = rate * kappa * np.roll(rows["sigma"].to_numpy(), n)
        plus, minus = (rows[name].to_numpy() for name in ("plus", "minus"))
        found.append(rows.assign(shuffled=descent_steps(p, x, kappa, plus, minus)))
    return pd.concat(found, ignore_index=True)


def first_at(course: Float[np.ndarray, "step n"], p: float) -> Float[np.ndarray, " n"]:
    """When each column first reaches p, between steps on a line; infinite where it never does."""
    above = course >= p
    n = above.argmax(0)
    columns = np.arange(course.shape[1])
    before = course[np.maximum(n - 1, 0), columns]
    after = course[n, columns]
    with np.errstate(invalid="ignore", divide="ignore"):
        when = n - 1 + (p - before) / (after - before)
    return np.where(above.any(0), when, np.inf)
