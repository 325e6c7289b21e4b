"""Follow sign descent, Adam and gradient descent on the diagonal head, beside their flows."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import chain
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.files.params import Interval, Positive, Seeds, read_params
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
from lib.gradual_rank.sign_flow import LONGEST, against_ray, first_ray, sign_flow
from lib.gradual_rank.step_counts import steps_to
from lib.gradual_rank.tables.signs import EVENTS, FOLDER, PATHS
from lib.gradual_rank.tasks import Samples, Size, gaussian_pair, tokens_of
from lib.training.devices import generator, use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

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
class Signs(Seeds):
    """Where sign descent starts and ends, in τ.

    The rates are those of sign descent and Adam, of Adam's slope, and of gradient descent.
    """

    log10_init_scales: tuple[Annotated[float, Interval("[-30, 0)")], ...]
    end: Positive
    learning_rate: Positive
    slope_rate: Positive
    descent_rate: Positive


@dataclass(frozen=True)
class Sizes:
    """The sizes of the head, which are those of the small problem."""

    n_samples: Samples
    seq_len: Size
    d_model: Size


@dataclass(frozen=True)
class Case:
    """An optimiser, or a flow, of the heads of some seeds, from an init scale."""

    params: Signs
    sizes: Sizes
    learned: float  # the |p| that counts as such
    optimizer: str
    log10_init_scale: float

    def cells(self) -> dict[str, object]:
        """What rows of a table say of each seed."""
        return {
            "optimizer": self.optimizer,
            "log10_init_scale": self.log10_init_scale,
            "seed": list(self.params.seeds),
        }

    def start(self) -> tuple[DiagonalHead, torch.Tensor, torch.Tensor]:
        """The heads on their teachers' targets, and u and v."""
        seeds = self.params.seeds
        X = tokens_of(seeds, *astuple(self.sizes))

        def pairs(purpose: str) -> torch.Tensor:
            size = 2 * self.sizes.d_model
            each = [torch.stack(gaussian_pair(size, generator(s, purpose))) for s in seeds]
            return torch.stack(each, 1)

        u, v = 10**self.log10_init_scale * pairs("start")
        return DiagonalHead(X, diagonal_head(X, pairs("teacher").prod(0))), u, v

    def descent(
        self, loss: DiagonalHead, u: torch.Tensor, v: torch.Tensor
    ) -> Iterator[DiagonalStep]:
        """The optimiser's steps from there."""
        rate = self.params.learning_rate
        end = self.params.end
        if self.optimizer == "sign":
            rule = "signs"
            rates = warmed_up(10**self.log10_init_scale / FIRST, GROWTH, rate, end)
        elif self.optimizer == "adam":
            rule = "adam"
            rates = annealed(rate, round(end / rate), 0.4)
        else:
            rule = "slopes"
            rates = [self.params.descent_rate] * MOST_STEPS
        return descend_diagonal(loss.gradient, u, v, RULES[rule](), rates)


def main(section: str, problem: str, solver: str, followed: OutFolder) -> None:
    """Write `changes`, `events`, `paths`, `slopes`, `diagonal` and `rises`."""
    use_threads(1)
    params = read_params(section, Signs)
    sizes = read_params(problem, Sizes, part=True)
    learned = read_params(f"{solver}.threshold", float)
    shortest = min(params.learning_rate, LONGEST)
    steps_to(params.end, shortest, f"{section}: end, learning_rate")  # not too many
    together = [params]
    each = [replace(params, n_seeds=1, first_seed=seed) for seed in params.seeds]

    def cells(
        function: Callable[[Case], Tables],
        optimizer: str,
        scales: Iterable[float],
        groups: Sequence[Signs] = together,
    ) -> list[Job]:
        cases = [Case(g, sizes, learned, optimizer, scale) for scale in scales for g in groups]
        return [(function, case) for case in cases]

    scales = params.log10_init_scales
    largest = max(scales)
    smaller = [scale for scale in scales if scale != largest]
    jobs = [
        *cells(trained, "gd", [largest], each),  # who waits, waits for its own
        *cells(first_rises, "gd", smaller, each),
        *cells(roots, "sign", [largest]),
        *cells(changes, "sign", dict.fromkeys((*scales, SMALLEST))),
        *cells(trained, "adam", [largest]),
        *cells(first_rises, "adam", dict.fromkeys((*smaller, SMALLEST))),
        *cells(adam_slopes, "adam", [largest]),
        *cells(flow, "sign", [largest], each),
        *cells(to_rest, "gradient flow", scales, each),
    ]
    found = spread_cells({"": jobs}, label=section, unit="descent")[""]
    write_joined(FOLDER, found, followed)


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
        | against_ray(head, case.params.end, t, p, slope)
        for seed, head, p, slope in zip(case.params.seeds, heads, path, g, strict=True)
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
    rate = case.params.learning_rate
    rates = [rate] * round(case.params.end / rate)
    products = [p.numpy() for p in descend_roots(loss.gradient, torch.zeros_like(u), rates)]
    times = rate * np.arange(len(products))
    return {"paths": looked_at(case, times, np.stack(products, 1), "roots")}


def adam_slopes(case: Case) -> Tables:
    """How fast √|p| grows per τ in early steps of Adam: the medians over the coordinates of both
    products.
    """
    loss, u, v = case.start()
    rates = [case.params.slope_rate] * SLOPE_STEPS[1]
    found = []
    for beta_2 in (0.999, 0.9):  # Adam's own, and that of m
        descent = descend_diagonal(loss.gradient, u, v, Adam(beta_2=beta_2), rates)
        speed = root_speed(descent, *SLOPE_STEPS).unflatten(-1, (2, -1))
        of_keys, of_values = speed.median(-1).values.T
        columns = {"slope_KQ": of_keys, "slope_VO": of_values}
        found.append(pd.DataFrame({"seed": case.params.seeds, "beta_2": beta_2, **columns}))
    return {"slopes": pd.concat(found, ignore_index=True)}


def flow(case: Case) -> Tables:
    """Sign flow of one seed: its events, and its products."""
    loss, *_ = case.start()
    [seed] = case.params.seeds
    head = DiagonalHead(loss.X[0], loss.Y[0])
    pieces = list(sign_flow(head, case.params.end, **TOLERANCES))
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
    looks = np.linspace(0, case.params.end, N_LOOKS)
    rows = [
        (method, log10_scale, seed, time, products)
        for seed, own in zip(case.params.seeds, at_times(looks, t, p), strict=True)
        for time, products in zip(looks, own, strict=True)
    ]
    return PATHS.frame(rows)


if __name__ == "__main__":
    run(main)
