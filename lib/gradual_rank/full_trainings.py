"""Trainings of the head with full matrices by an optimiser: tasks, courses and what they show.

Trainings from several scales and by several teachers go side by side, on the tokens of each seed.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lib.files.runs import write_run
from lib.gradual_rank.full_heads import SharedTokensHead, gaussian_factors, named, spectra, targets
from lib.gradual_rank.growth import around, changes, slopes, step_of_share, timing
from lib.gradual_rank.optimizers import Rule, Step, descend, descended
from lib.gradual_rank.runs import head_layout
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.step_counts import evenly
from lib.gradual_rank.tasks import tokens_of
from lib.matrices.ranks import effective_rank, stable_rank
from lib.training.devices import generator
from lib.training.stacked import groups

# log10 of the init scale and rank of the teacher of trainings side by side
Trainings = tuple[tuple[float, int], ...]
States = list[tuple[dict[str, Any], list[dict[str, Any]]]]  # matrices by name, and rows of numbers
Optimizer = TypeVar("Optimizer")
WINDOW = (0.05, 0.15)  # of τ, in which the singular values of the factors grow
HALF = 0.5  # the share of the first loss at which a rank is noted
UNEVEN = (0.1, 0.05)  # init scales of P and Q, of which a difference is to be seen
LEFT = 0.1  # the share of the loss to which these are followed
N_LOOKS = 121  # points of a course that are kept
N_SNAPSHOTS = 9  # of the weights


@dataclass(frozen=True)
class Tokens:
    """The seeds of trainings, and the sizes of their sequences."""

    seeds: tuple[int, ...]
    seq_len: int
    d_model: int

    def factors(self, purpose: str) -> Float[Tensor, "side product seed d d"]:
        """The `gaussian_factors` of all seeds."""
        return gaussian_factors(self.d_model, self.seeds, purpose)

    def taught(
        self, purpose: str, n_samples: int, ranks: Sequence[int], noise: float = 0
    ) -> tuple[Float[Tensor, "seed sample token d"], Float[Tensor, "seed teacher sample token d"]]:
        """Tokens, and the targets that teachers of some ranks and one norm give.

        The noise is in standard deviations of the targets.
        """
        X = tokens_of(self.seeds, n_samples, self.seq_len, self.d_model, purpose)
        Y = targets(X, self.seeds, ranks)
        if noise:
            sources = [generator(seed, "noise") for seed in self.seeds]
            each = [torch.randn(X[0].shape, generator=one, dtype=X.dtype) for one in sources]
            Y = Y + noise * Y.std((-3, -2, -1), keepdim=True) * torch.stack(each)[:, None]
        return X, Y


def side_by_side(
    every: Iterable[tuple[Optimizer, float, int]], ranks: Sequence[int], most: int
) -> list[tuple[Optimizer, Trainings]]:
    """Trainings of one optimiser and number of steps, which go side by side; the longest first.

    Each of `every` is an optimiser, log10 of an init scale and the number of steps from there; at
    most so many scales go together, each with teachers of all ranks.
    """
    alike = groups(every, lambda one: (one[0], one[2]), most)
    alike.sort(key=lambda group: -sum(n_steps for _, _, n_steps in group))
    return [
        (group[0][0], tuple(itertools.product([scale for _, scale, _ in group], ranks)))
        for group in alike
    ]


def write_trainings(
    runs: Path,
    seeds: Sequence[int],
    optimizer: str,
    learning_rate: float,
    trainings: Trainings,
    states: States,
) -> None:
    """Write a run of each of the trainings that were computed together.

    Rows of the states have the `time`, in the sum of the rates, and the `loss` of each training.
    """
    for place, (scale, rank) in enumerate(trainings):
        variant = f"optimizer={optimizer},teacher_rank={rank},log10_init_scale={scale:g}"
        layout = head_layout(
            seeds,
            variant,
            optimizer=optimizer,
            teacher_rank=rank,
            log10_init_scale=scale,
            learning_rate=learning_rate,
        )
        waited = -scale * LOG10
        with write_run(runs, variant, layout) as writer:
            for W, rows in states:
                own = [
                    row | {"rescaled_time": row["time"] / waited, "loss": row["loss"][place]}
                    for row in rows
                ]
                writer.add({name: w[:, place] for name, w in W.items()}, own)


@dataclass(frozen=True)
class FullCourse:
    """What is kept of trainings side by side, whose seeds and trainings are axes of every array.

    `times` are those of all steps, `looks` and `grows` the steps at which W_KQ and the factors of
    W_VO are known.
    """

    times: Float[np.ndarray, " step"]
    loss: Float[np.ndarray, "step seed training"]
    W_VO: Float[np.ndarray, "step seed training d"]
    looks: list[int]
    W_KQ: dict[int, Float[np.ndarray, "seed training d"]]
    grows: Int[np.ndarray, " _"]
    factors: Float[np.ndarray, "_ side seed training d"]
    states: States
    kept: dict[str, Float[Tensor, "seed training"]]

    def summary(
        self, seed: int, training: int, threshold: float, significant: float
    ) -> dict[str, float]:
        """What one training shows: what flows keep, `timing`, and the stable ranks of W_VO.

        These are that where half of the loss is left, and that at the end.
        """
        kept = {name: float(one[seed, training]) for name, one in self.kept.items()}
        VO = self.W_VO[:, seed, training]
        growth = slopes(self.times[self.grows], self.factors[:, :, seed, training], WINDOW)
        timed = timing(self.times, VO, growth, threshold, significant)
        half = step_of_share(self.loss[:, seed, training], HALF)
        at_half, at_end = stable_rank(VO[[half, -1]]).tolist()
        return {**kept, **timed, "stable_rank_half": at_half, "stable_rank_end": at_end}

    def spectra(self, seed: int, training: int) -> list[dict[str, Any]]:
        """The singular values of both products of one training, at every look."""
        return [
            {
                "step": i,
                "time": self.times[i],
                "W_KQ": self.W_KQ[i][seed, training],
                "W_VO": self.W_VO[i, seed, training],
            }
            for i in self.looks
        ]


def full_course(
    head: SharedTokensHead,
    seeds: Sequence[int],
    start: Float[Tensor, "side product seed training d d"],
    rule: Rule,
    rates: Sequence[float],
    learning_rate: float,
) -> FullCourse:
    """The descent of trainings side by side, from the factors of their start.

    `learning_rate` is the largest of the rates, at which W_VO leaves zero. The states are those of
    `N_SNAPSHOTS` steps; the loss of their rows is a share of the first, of each training.
    """
    saved = evenly(N_SNAPSHOTS, len(rates))
    looks = evenly(N_LOOKS, len(rates))
    times = np.cumsum([0.0, *rates])
    grows = around(times, WINDOW)
    last = start
    losses: list[np.ndarray] = []
    of_VO: list[np.ndarray] = []
    of_KQ: dict[int, np.ndarray] = {}
    of_factors: list[np.ndarray] = []
    states: States = []
    for step in descend(head.loss_and_slopes, {"factors": start}, rule, rates):
        last = step.weights["factors"]
        losses.append(step.loss.numpy())
        of_VO.append(spectra(last[:, 1:])[0])
        if step.number in looks:
            of_KQ[step.number] = spectra(last[:, :1])[0]
        if step.number in grows:
            of_factors.append(torch.linalg.svdvals(last[:, 1]).numpy())
        if step.number in saved:
            shares = (losses[-1] / losses[0]).tolist()
            rows = [
                {"seed": seed, "step": step.number, "time": step.time, "loss": own}
                for seed, own in zip(seeds, shares, strict=True)
            ]
            states.append((named(last), rows))
    kept = {"growth": head.growth_at_zero(learning_rate), **changes(start, last, ("KQ", "VO"))}
    by_step = (np.stack(losses), np.stack(of_VO), looks, of_KQ, grows, np.stack(of_factors))
    return FullCourse(times, *by_step, states, kept)


def uneven_changes(
    head: SharedTokensHead,
    factors: Float[Tensor, "side product seed training d d"],
    rule: Rule,
    rates: Sequence[float],
) -> tuple[dict[str, Float[Tensor, "seed training"]], Bool[Tensor, "seed training"]]:
    """The `changes` from factors of uneven size, P and Q times `UNEVEN`, until `LEFT` of each loss
    is left; and which losses came there.
    """
    P, Q = factors
    start = torch.stack([UNEVEN[0] * P, UNEVEN[1] * Q])
    steps = descend(head.loss_and_slopes, {"factors": start}, rule, rates)
    end, reached = descended(steps, LEFT)
    return changes(start, end["factors"], ("KQ", "VO")), reached


def tested(
    steps: Iterable[Step],
    looks: Sequence[int],
    seeds: Sequence[int],
    test_loss: Callable[[dict[str, Tensor]], Float[Tensor, " seed"]],
) -> tuple[pd.DataFrame, Float[np.ndarray, "seed d"]]:
    """The losses on the path of one training a seed, and the singular values of W_KQ at the end.

    A row for each look and seed; the `loss` is a share of the seed's first.
    """
    rows = []
    last = torch.empty(0)
    for step in steps:
        if step.number in looks:
            last = step.weights["factors"]
            losses = zip(step.loss[:, 0].tolist(), test_loss(step.weights).tolist(), strict=True)
            for seed, (own, of_test) in zip(seeds, losses, strict=True):
                rows.append((seed, step.number, step.time, own, of_test))
    paths = pd.DataFrame(rows, columns=["seed", "step", "time", "loss", "test_loss"])
    paths["loss"] = paths["loss"] / paths.groupby("seed")["loss"].transform("first")
    return paths, spectra(last)[0, :, 0]


def path_ends(paths: pd.DataFrame, sigma_KQ: Float[np.ndarray, "seed d"]) -> pd.DataFrame:
    """The ends of the paths of `tested`, a row a seed, with the best test loss and the rank of
    W_KQ.
    """
    ends = {
        "loss": ("loss", "last"),
        "best_test_loss": ("test_loss", "min"),
        "last_test_loss": ("test_loss", "last"),
    }
    found = paths.groupby("seed").agg(**ends)
    return found.assign(effective_rank_KQ=effective_rank(sigma_KQ)).reset_index()
