"""Follow sign descent, Adam and gradient descent on the diagonal head; beside them sign flow and
gradient flow.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from itertools import chain
from typing import Annotated

import numpy as np
import pandas as pd
import torch

from lib.files.params import Count, Interval, Positive, Seeds, read_params
from lib.files.tables import write_table
from lib.gradual_rank import optimizers
from lib.gradual_rank.balance import diagonal_shares
from lib.gradual_rank.diagonal_heads import DiagonalHead, diagonal_head
from lib.gradual_rank.flow import LogCoordinates, log_flow, path_to_rest
from lib.gradual_rank.growth import at_times, learned_in_order
from lib.gradual_rank.sign_flow import LONGEST, Event, against_ray, first_ray, sign_flow
from lib.gradual_rank.step_counts import steps_to
from lib.gradual_rank.tasks import gaussian_pair, gaussian_sequences
from lib.training.devices import generator, use_threads
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import OutFolder, run

# sign descent's first rate is the init scale over 20, and grows so that no sign is lost
FIRST = 20
GROWTH = 1.05
SLOPE_STEPS = (
    100,
    200,
)  # ten and twenty times the memory of Adam's m, a tenth and a fifth of that of its v
# the share of the first loss at which coordinates are counted; steps from look to look
EARLY = 0.9
EVERY = 5
# of both flows
RTOL = 1e-5
ATOL = 1e-6
MOST_STEPS = 20_000  # of gradient descent, which ends when a tenth of the loss is gone
N_LOOKS = 101  # points of the paths that are kept
# gradient flow ends where so little of the first loss is left, or at that time
REST = 1e-6
LONG = 1e6
SMALLEST = (
    -32.0
)  # log10 of the init scale from which sign descent and Adam, which do not wait, begin besides


@dataclass(frozen=True)
class Signs(Seeds):
    """Where sign descent starts and ends, in τ, and the rates: of it and of Adam, of Adam's slope,
    and of descent.
    """

    log10_init_scales: tuple[Annotated[float, Interval("[-30, 0)")], ...]
    end: Positive
    learning_rate: Positive
    slope_rate: Positive
    descent_rate: Positive


@dataclass(frozen=True)
class Sizes:
    """Of the head: those of the small one."""

    n_samples: Count
    seq_len: Count
    d_model: Count


@dataclass(frozen=True)
class Learned:  # the |p| from which a product counts as such, of the solver
    threshold: Positive


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
            "seed": [*self.params.seeds],
        }

    def start(self) -> tuple[DiagonalHead, torch.Tensor, torch.Tensor]:
        """The heads on their teachers' targets, and u and v."""
        (n, seq_len, d), seeds, scale = (
            astuple(self.sizes),
            self.params.seeds,
            10**self.log10_init_scale,
        )
        X = torch.stack(
            [gaussian_sequences(n, seq_len, d, generator(seed, "tokens")) for seed in seeds]
        )
        teachers = torch.stack(
            [torch.mul(*gaussian_pair(2 * d, generator(seed, "teacher"))) for seed in seeds]
        )
        u, v = torch.stack(
            [torch.stack(gaussian_pair(2 * d, generator(seed, "start"))) for seed in seeds], 1
        )
        return DiagonalHead(X, diagonal_head(X, teachers)), scale * u, scale * v

    def descent(
        self, loss: DiagonalHead, u: torch.Tensor, v: torch.Tensor
    ) -> Iterator[optimizers.DiagonalStep]:
        """The optimiser's steps from there."""
        rate = self.params.learning_rate
        end = self.params.end
        rule, rates = {
            "sign": (
                "signs",
                optimizers.warmed_up(10**self.log10_init_scale / FIRST, GROWTH, rate, end),
            ),
            "adam": ("adam", optimizers.annealed(rate, round(end / rate), 0.4)),
            "gd": ("slopes", [self.params.descent_rate] * MOST_STEPS),
        }[self.optimizer]
        return optimizers.descend_diagonal(loss.gradient, u, v, optimizers.RULES[rule](), rates)


def main(section: str, problem: str, solver: str, followed: OutFolder) -> None:
    use_threads(1)
    params = read_params(section, Signs)
    sizes = read_params(problem, Sizes, part=True)
    learned = read_params(solver, Learned, part=True).threshold
    rate = min(params.learning_rate, LONGEST)
    steps_to(params.end, rate, f"{section}: end, learning_rate")  # too many steps are refused
    scales = params.log10_init_scales
    largest = max(scales)

    def cells(
        function: Callable[..., Tables], name: str, scales: Iterable[float], each: bool = False
    ) -> list[Job]:
        alone = [replace(params, n_seeds=1, first_seed=seed) for seed in params.seeds]
        return [
            (function, Case(some, sizes, learned, name, scale))
            for scale in scales
            for some in (alone if each else [params])
        ]

    smaller = [scale for scale in scales if scale != largest]
    jobs = [
        *cells(trained, "gd", [largest], each=True),  # who waits, waits for its own
        *cells(rises, "gd", smaller, each=True),
        *cells(roots, "sign", [largest]),
        *cells(changes, "sign", dict.fromkeys((*scales, SMALLEST))),
        *cells(trained, "adam", [largest]),
        *cells(rises, "adam", dict.fromkeys((*smaller, SMALLEST))),
        *cells(adam_slopes, "adam", [largest]),
        *cells(flow, "sign", [largest], each=True),
        *cells(to_rest, "gradient flow", scales, each=True),
    ]
    found = spread_cells({"": jobs}, label=section, unit="descent")[""]
    for name in ("changes", "events", "paths", "slopes", "diagonal", "rises"):
        write_table(joined(found, name), followed / f"{name}.parquet")


def rises(case: Case, descent: Iterable[optimizers.DiagonalStep] | None = None) -> Tables:
    """When a product is learned first, infinite where none is: in the descent, or in one from the
    start.
    """
    descent = case.descent(*case.start()) if descent is None else descent
    return {
        "rises": pd.DataFrame(
            {**case.cells(), "first_rise": optimizers.first_rise(descent, case.learned).numpy()}
        )
    }


def changes(case: Case) -> Tables:
    """Sign descent: when a g first changes its sign, beside the ray's forecast; what is learned.

    From the smallest scale it is followed until a g of every seed has changed its sign, and a
    product is learned.
    """
    loss, u, v = case.start()
    heads = [DiagonalHead(X, Y) for X, Y in zip(loss.X, loss.Y, strict=True)]
    rays = torch.from_numpy(np.stack([first_ray(one)[0] for one in heads]))
    descent = case.descent(loss, u, v)
    smallest = case.log10_init_scale == SMALLEST
    steps = list(optimizers.until_changed(descent, rays) if smallest else descent)
    t, path = optimizers.path_of(steps)
    g = np.stack([step.g.numpy() for step in steps], 1)
    cells = pd.DataFrame({"seed": case.params.seeds}).assign(log10_init_scale=case.log10_init_scale)
    against = [
        against_ray(one, case.params.end, t, *own) for one, *own in zip(heads, path, g, strict=True)
    ]
    found = {"changes": cells.join(pd.DataFrame(against)), **rises(case, chain(steps, descent))}
    if smallest:
        return found
    paths = looked_at(case, t, path, "weights", case.log10_init_scale)
    return found | {"paths": paths, "diagonal": learned_by(case, loss, steps)}


def trained(case: Case) -> Tables:
    """Adam, or gradient descent until a tenth of the loss is gone: the first rise, what is
    learned.
    """
    loss, u, v = case.start()
    descent = case.descent(loss, u, v)
    steps = list(
        optimizers.until_fallen(descent, loss.value, EARLY, EVERY)
        if case.optimizer == "gd"
        else descent
    )
    return {**rises(case, chain(steps, descent)), "diagonal": learned_by(case, loss, steps)}


def roots(case: Case) -> Tables:
    """Sign descent of the signed roots from zero, whose small steps are sign flow's own."""
    loss, u, _ = case.start()
    rate = case.params.learning_rate
    n_steps = round(case.params.end / case.params.learning_rate)
    products = [
        p.numpy()
        for p in optimizers.descend_roots(loss.gradient, torch.zeros_like(u), rate, n_steps)
    ]
    return {"paths": looked_at(case, rate * np.arange(n_steps + 1), np.stack(products, 1), "roots")}


def adam_slopes(case: Case) -> Tables:
    """How fast √|p| grows per τ in early steps of Adam: the medians over the coordinates of both
    products.
    """
    (loss, u, v), rates, found = case.start(), [case.params.slope_rate] * SLOPE_STEPS[1], []
    for beta_2 in (0.999, 0.9):  # Adam's own, and that of m
        descent = optimizers.descend_diagonal(
            loss.gradient, u, v, optimizers.Adam(beta_2=beta_2), rates
        )
        slope = (
            optimizers.root_speed(descent, *SLOPE_STEPS).unflatten(-1, (2, -1)).median(-1).values.T
        )
        columns = {
            "seed": case.params.seeds,
            "beta_2": beta_2,
            "slope_KQ": slope[0],
            "slope_VO": slope[1],
        }
        found.append(pd.DataFrame(columns))
    return {"slopes": pd.concat(found, ignore_index=True)}


def flow(case: Case) -> Tables:
    """Sign flow of one seed: its events, and its products."""
    (seed,), (loss, *_) = case.params.seeds, case.start()
    pieces = list(
        sign_flow(DiagonalHead(loss.X[0], loss.Y[0]), case.params.end, rtol=RTOL, atol=ATOL)
    )
    rows = [(seed, *event) for piece in pieces for event in piece.events]
    times = np.array([piece.time for piece in pieces])
    p = np.stack([piece.p for piece in pieces])
    events = pd.DataFrame(rows, columns=["seed", *Event._fields])
    return {"events": events, "paths": looked_at(case, times, p[None], "flow")}


def to_rest(case: Case) -> Tables:
    """Gradient flow of one seed, the limit of descent in small steps, to its end: what is learned,
    and the order.
    """
    loss, u, v = replace(case, log10_init_scale=0.0).start()
    start = LogCoordinates.of(u[0].numpy(), v[0].numpy(), case.log10_init_scale * math.log(10))
    flow = log_flow(DiagonalHead(loss.X[0], loss.Y[0]), start, LONG, rtol=RTOL, atol=ATOL)
    times, path = path_to_rest(flow, start, loss.value, REST)
    found = learned_in_order(loss.value, times, path[None], EARLY, case.learned)
    return {"diagonal": pd.DataFrame({**case.cells(), **found})}


def learned_by(
    case: Case, loss: DiagonalHead, steps: list[optimizers.DiagonalStep]
) -> pd.DataFrame:
    """What is learned when a tenth of the loss is gone, the order where more is followed, and what
    is conserved.
    """
    t, path = optimizers.path_of(steps)
    found = learned_in_order(
        loss.value, t, path, EARLY, case.learned, every=EVERY, to_the_end=case.optimizer != "gd"
    )
    kept = diagonal_shares((steps[0].u, steps[0].v), (steps[-1].u, steps[-1].v))
    return pd.DataFrame({**case.cells(), **found, **kept})


def looked_at(
    case: Case, t: np.ndarray, p: np.ndarray, method: str, log10_scale: float = -math.inf
) -> pd.DataFrame:
    """Products [seed, time, p] at the looks."""
    looks = np.linspace(0, case.params.end, N_LOOKS)
    by_seed = zip(case.params.seeds, at_times(looks, t, p), strict=True)
    rows = [
        (method, log10_scale, seed, *row)
        for seed, own in by_seed
        for row in zip(looks, own, strict=True)
    ]
    return pd.DataFrame(rows, columns=["method", "log10_init_scale", "seed", "time", "p"])


if __name__ == "__main__":
    run(main)
