"""Descents of small diagonal heads, beside their flows: what is kept of each as tables.

The heads of all seeds go side by side; sign descent, Adam and gradient descent start from a finite
scale, the descent of signed roots and sign flow from zero.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, path_to_rest
from lib.gradual_rank.growth import at_times, diagonal_shares, learned_in_order
from lib.gradual_rank.optimizers import (
    RULES,
    Adam,
    DiagonalStep,
    annealed,
    descend_diagonal,
    descend_roots,
    first_rise,
    path_of,
    root_speed,
    until_changed,
    until_fallen,
    warmed_up,
)
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.sign_flow import against_ray, first_ray, sign_flow
from lib.gradual_rank.tables.signs import EVENTS, PATHS
from lib.gradual_rank.tasks import HeadSizes, gaussian_pair, tokens_of
from lib.training.devices import generator

Optimizer = Literal["gd", "sign", "adam", "gradient flow"]
Kind = Literal["first rises", "changes", "trained", "roots", "slopes", "sign flow", "to rest"]
Products = Float[torch.Tensor, "seed p"]
Tables = dict[str, pd.DataFrame]
# Sign descent's first rate is the init scale over 20, and grows so that no sign is lost.
FIRST = 20
GROWTH = 1.05
# Ten and twenty times the memory of Adam's m, a tenth and a fifth of that of its v.
SLOPE_STEPS = (100, 200)
EARLY = 0.9  # the share of the first loss at which coordinates are counted
EVERY = 5  # steps from look to look
TOLERANCES: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}  # of both flows
MOST_STEPS = 20_000  # of gradient descent, which ends when a tenth of the loss is gone
N_LOOKS = 101  # points of the paths that are kept
REST = 1e-6  # gradient flow ends where so little of the first loss is left,
LONG = 1e6  # or at that time
# log10 of the init scale from which sign descent and Adam, which do not wait, begin besides
SMALLEST = -32.0


@dataclass(frozen=True)
class Rates:
    """The end of sign descent and of Adam, in τ, and the learning rates.

    `learning_rate` is that of both, `slope_rate` that of Adam's first steps, and `descent_rate`
    that of gradient descent.
    """

    end: float
    learning_rate: float
    slope_rate: float
    descent_rate: float


@dataclass(frozen=True)
class Case:
    """An optimiser, or a flow, of the heads of some seeds, from an init scale."""

    seeds: tuple[int, ...]
    sizes: HeadSizes
    rates: Rates
    learned: float  # the |p| that counts as such
    optimizer: Optimizer
    log10_init_scale: float

    def cells(self) -> dict[str, object]:
        """What rows of a table say of each seed."""
        return {
            "optimizer": self.optimizer,
            "log10_init_scale": self.log10_init_scale,
            "seed": list(self.seeds),
        }

    def start(self) -> tuple[DiagonalHead, Products, Products]:
        """The heads on their teachers' targets, and u and v."""
        sizes = self.sizes
        X = tokens_of(self.seeds, sizes.n_samples, sizes.seq_len, sizes.d_model)

        def pairs(purpose: str) -> Float[torch.Tensor, "side seed p"]:
            size = 2 * sizes.d_model
            each = [torch.stack(gaussian_pair(size, generator(s, purpose))) for s in self.seeds]
            return torch.stack(each, 1)

        u, v = 10**self.log10_init_scale * pairs("start")
        return DiagonalHead(X, diagonal_head(X, pairs("teacher").prod(0))), u, v

    def descent(self, loss: DiagonalHead, u: Products, v: Products) -> Iterator[DiagonalStep]:
        """The optimiser's steps from there."""
        rate = self.rates.learning_rate
        end = self.rates.end
        if self.optimizer == "sign":
            rule = "signs"
            rates = warmed_up(10**self.log10_init_scale / FIRST, GROWTH, rate, end)
        elif self.optimizer == "adam":
            rule = "adam"
            rates = annealed(rate, round(end / rate), 0.4)
        else:
            rule = "slopes"
            rates = [self.rates.descent_rate] * MOST_STEPS
        return descend_diagonal(loss.gradient, u, v, RULES[rule](), rates)


def first_rises(case: Case) -> Tables:
    """When a product is learned first; infinite where none is."""
    return {"rises": rises(case, case.descent(*case.start()))}


def rises(case: Case, descent: Iterable[DiagonalStep]) -> pd.DataFrame:
    """When a product is learned first in a descent."""
    times = first_rise(descent, case.learned).numpy()
    return pd.DataFrame({**case.cells(), "first_rise": times})


def changes(case: Case) -> Tables:
    """Sign descent: when a g first changes its sign, beside the ray's forecast; what is learned.

    From the smallest scale it is followed until a g of every seed has changed its sign, and a
    product is learned.
    """
    loss, u, v = case.start()
    heads = [DiagonalHead(X, Y) for X, Y in zip(loss.X, loss.Y, strict=True)]
    smallest = case.log10_init_scale == SMALLEST
    descent = case.descent(loss, u, v)
    rays = torch.from_numpy(np.stack([first_ray(head) for head in heads]))
    steps = list(until_changed(descent, rays) if smallest else descent)
    t, path = path_of(steps)
    g = np.stack([step.g.numpy() for step in steps], 1)
    rows = [
        {"seed": seed, "log10_init_scale": case.log10_init_scale}
        | against_ray(head, case.rates.end, t, p, slope)
        for seed, head, p, slope in zip(case.seeds, heads, path, g, strict=True)
    ]
    found = {"changes": pd.DataFrame(rows), "rises": rises(case, chain(steps, descent))}
    if not smallest:
        found["paths"] = looked_at(case, t, path, "weights", case.log10_init_scale)
        found["diagonal"] = learned_by(case, loss, steps)
    return found


def trained(case: Case) -> Tables:
    """Adam, or gradient descent until a tenth of the loss is gone: what is learned, and when."""
    loss, u, v = case.start()
    descent = case.descent(loss, u, v)
    waits = case.optimizer == "gd"
    steps = list(until_fallen(descent, loss.value, EARLY, EVERY) if waits else descent)
    first = rises(case, chain(steps, descent))
    return {"rises": first, "diagonal": learned_by(case, loss, steps)}


def roots(case: Case) -> Tables:
    """Sign descent of the signed roots from zero, whose small steps are sign flow's own."""
    loss, u, _ = case.start()
    rate = case.rates.learning_rate
    rates = [rate] * round(case.rates.end / rate)
    products = [p.numpy() for p in descend_roots(loss.gradient, torch.zeros_like(u), rates)]
    times = rate * np.arange(len(products))
    return {"paths": looked_at(case, times, np.stack(products, 1), "roots")}


def adam_slopes(case: Case) -> Tables:
    """How fast √|p| grows per τ in early steps of Adam: the medians over the coordinates of both
    products.
    """
    loss, u, v = case.start()
    rates = [case.rates.slope_rate] * SLOPE_STEPS[1]
    found = []
    for beta_2 in (0.999, 0.9):  # Adam's own, and that of m
        descent = descend_diagonal(loss.gradient, u, v, Adam(beta_2=beta_2), rates)
        speed = root_speed(descent, *SLOPE_STEPS).unflatten(-1, (2, -1))
        of_keys, of_values = speed.median(-1).values.T
        columns = {"slope_KQ": of_keys, "slope_VO": of_values}
        found.append(pd.DataFrame({"seed": case.seeds, "beta_2": beta_2, **columns}))
    return {"slopes": pd.concat(found, ignore_index=True)}


def flow(case: Case) -> Tables:
    """Sign flow of one seed: its events, and its products."""
    loss, *_ = case.start()
    [seed] = case.seeds
    head = DiagonalHead(loss.X[0], loss.Y[0])
    pieces = list(sign_flow(head, case.rates.end, **TOLERANCES))
    rows = [(seed, *event) for piece in pieces for event in piece.events]
    times = np.array([piece.time for piece in pieces])
    p = np.stack([piece.p for piece in pieces])
    events = EVENTS.frame(rows)
    return {"events": events, "paths": looked_at(case, times, p[None], "flow")}


def to_rest(case: Case) -> Tables:
    """Gradient flow of one seed, the limit of descent in small steps: what is learned, in order."""
    loss, u, v = replace(case, log10_init_scale=0.0).start()
    start = LogCoordinates.of(u[0].numpy(), v[0].numpy(), case.log10_init_scale * LOG10)
    flow = log_flow(DiagonalHead(loss.X[0], loss.Y[0]), start, LONG, **TOLERANCES)
    times, path = path_to_rest(flow, start, loss.value, REST)
    found = learned_in_order(loss.value, times, path[None], EARLY, case.learned)
    return {"diagonal": pd.DataFrame({**case.cells(), **found})}


def learned_by(case: Case, loss: DiagonalHead, steps: list[DiagonalStep]) -> pd.DataFrame:
    """What is learned when a tenth of the loss is gone, and what a descent conserves.

    The order as well, of a descent that is followed further.
    """
    t, path = path_of(steps)
    to_the_end = case.optimizer != "gd"
    found = learned_in_order(
        loss.value, t, path, EARLY, case.learned, every=EVERY, to_the_end=to_the_end
    )
    kept = diagonal_shares((steps[0].u, steps[0].v), (steps[-1].u, steps[-1].v))
    return pd.DataFrame({**case.cells(), **found, **kept})


def looked_at(
    case: Case, t: np.ndarray, p: np.ndarray, method: str, log10_scale: float = -math.inf
) -> pd.DataFrame:
    """Products [seed, time, p] at the looks."""
    looks = np.linspace(0, case.rates.end, N_LOOKS)
    rows = [
        (method, log10_scale, seed, time, products)
        for seed, own in zip(case.seeds, at_times(looks, t, p), strict=True)
        for time, products in zip(looks, own, strict=True)
    ]
    return PATHS.frame(rows)


KINDS: dict[Kind, Callable[[Case], Tables]] = {
    "first rises": first_rises,
    "changes": changes,
    "trained": trained,
    "roots": roots,
    "slopes": adam_slopes,
    "sign flow": flow,
    "to rest": to_rest,
}
