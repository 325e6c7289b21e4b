"""Train the head with full matrices by several optimisers, and note in which order and when its
directions rise.

On many tokens, where the teacher is the only minimum, and on few tokens or noisy targets, where the
path decides.
"""

import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.files.params import (
    Count,
    Fraction,
    Interval,
    Name,
    Positive,
    Seeds,
    Steps,
    read_cases,
    read_params,
)
from lib.files.runs import clear_runs, write_run
from lib.gradual_rank.full_heads import (
    SharedTokensHead,
    gaussian_factors,
    named,
    spectra,
    targets,
)
from lib.gradual_rank.growth import around, changes, slopes, step_of_share, timing
from lib.gradual_rank.optimizers import RULES, annealed, descend, descended
from lib.gradual_rank.runs import head_layout
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.step_counts import evenly, steps_to
from lib.gradual_rank.tables.optimizers import FOLDER
from lib.gradual_rank.tasks import Samples, tokens_of
from lib.matrices.ranks import effective_rank, stable_rank
from lib.training.devices import generator, use_threads
from lib.training.stacked import groups
from lib.work.cells import Course, Saved, Tables, joined, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_of

# log10 of the init scale and rank of the teacher of trainings side by side
Trainings = tuple[tuple[float, int], ...]
WINDOW = (0.05, 0.15)  # of τ, in which the singular values of the factors grow
HALF = 0.5  # the share of the first loss at which a rank is noted
UNEVEN = (0.1, 0.05)  # init scales of P and Q, of which a difference is to be seen
LEFT = 0.1  # the share of the loss to which these are followed
N_LOOKS = 121  # points of a course that are kept
N_SNAPSHOTS = 9  # of the weights


@dataclass(frozen=True)
class Optimizer:
    """A line of the table."""

    name: Name
    rule: Literal["slopes", "normalized", "signs", "polar_factors", "adam", "rmsprop", "torch_muon"]
    learning_rate: Positive
    n_steps: Steps
    rescaled_end: Annotated[float, Interval("[0, 1e6]")]
    annealed: Fraction

    def rates(self, log10_init_scale: float, longer: int = 1) -> list[float]:
        """The learning rate of every step; raises `InputError` for too many."""
        end = self.rescaled_end * -log10_init_scale * LOG10
        names = f"{self.name}: rescaled_end, learning_rate, n_steps, noisy_longer"
        n_steps = steps_to(end, self.learning_rate, names, more=self.n_steps, times=longer)
        return annealed(self.learning_rate, n_steps, self.annealed)


@dataclass(frozen=True)
class Head:  # what the section of the full matrices says of it
    seq_len: Annotated[int, Interval("[2, 1000]")]
    d_model: Annotated[int, Interval("[2, 1000]")]
    threshold: Positive


@dataclass(frozen=True)
class Optimizers(Seeds):
    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0)")], ...]
    n_samples: Samples
    teacher_rank: Count
    significant: Positive
    few_samples: tuple[Samples, ...]
    few_log10_init_scale: Annotated[float, Interval("[-100, 0)")]
    noisy_samples: Samples
    noise: Positive
    noisy_longer: Annotated[int, Interval("[1, 1000]")]
    n_test: Samples


def main(section: str, head: str, optimizers: Path, runs: OutFolder, trained: OutFolder) -> None:
    """Write the runs on many tokens, and `runs`, `courses`, `few`, `paths` and `conserved`."""
    use_threads(1)
    params = read_params(section, Optimizers)
    sizes = read_params(head, Head, part=True)
    cases = read_cases(optimizers, Optimizer)
    for case in cases:  # none of which may take too many steps
        case.rates(math.log10(UNEVEN[0]))
        case.rates(params.few_log10_init_scale, params.noisy_longer)
    many = alike_trainings(params, sizes, cases)
    few = [(n, 0.0) for n in params.few_samples] + [(params.noisy_samples, params.noise)]
    jobs = {
        "many": [(train, params, sizes, *job) for job in many],
        "few": [
            (train_on_few, params, sizes, case, n, noise) for case in cases for n, noise in few
        ],
        "uneven": [(conserved, params, sizes, case) for case in cases],
    }
    clear_runs(runs)
    found = spread_cells(jobs, label=section, unit="training")
    for (case, trainings), course in zip(many, found["many"], strict=True):
        save(runs, params, case, trainings, course.states)
    places = [case.name for case in cases].index

    def in_order(table: pd.DataFrame) -> pd.DataFrame:
        by = [table["optimizer"].map(places), -table["teacher_rank"], table["log10_init_scale"]]
        return table.iloc[np.lexsort(by)].reset_index(drop=True)

    of_many = [course.tables for course in found["many"]]
    many_and_others = {
        "runs": in_order(joined(of_many, "runs")),
        "courses": in_order(joined(of_many, "courses")),
        "few": joined(found["few"], "few"),
        "paths": joined(found["few"], "paths"),
        "conserved": joined(found["uneven"], "conserved"),
    }
    write_tables_of(FOLDER, many_and_others, trained)


def alike_trainings(
    params: Optimizers, sizes: Head, cases: tuple[Optimizer, ...]
) -> list[tuple[Optimizer, Trainings]]:
    """Trainings of one optimiser and number of steps, which go side by side; the longest first."""
    d = sizes.d_model
    ranks = sorted({d, min(params.teacher_rank, d)}, reverse=True)
    every = [
        (case, scale, len(case.rates(scale)))
        for case in cases
        for scale in sorted(params.log10_init_scales)
    ]
    alike = groups(every, lambda one: (one[0], one[2]), len(params.log10_init_scales))
    alike.sort(key=lambda group: -sum(n_steps for _, _, n_steps in group))
    return [
        (group[0][0], tuple(product([scale for _, scale, _ in group], ranks))) for group in alike
    ]


def save(
    runs: Path, params: Optimizers, case: Optimizer, trainings: Trainings, states: list[Saved]
) -> None:
    """A run of each of the trainings that were computed together."""
    for place, (scale, rank) in enumerate(trainings):
        variant = f"optimizer={case.name},teacher_rank={rank},log10_init_scale={scale:g}"
        layout = head_layout(
            params.seeds,
            variant,
            optimizer=case.name,
            teacher_rank=rank,
            log10_init_scale=scale,
            learning_rate=case.learning_rate,
        )
        waited = -scale * LOG10
        with write_run(runs, variant, layout) as writer:
            for W, rows in states:
                own = [
                    row | {"rescaled_time": row["time"] / waited, "loss": row["loss"][place]}
                    for row in rows
                ]
                writer.add({name: w[:, place] for name, w in W.items()}, own)


def taught(
    params: Optimizers, sizes: Head, purpose: str, n: int, ranks: list[int], noise: float = 0
) -> tuple[Tensor, Tensor]:
    """Tokens of all seeds, and the targets that teachers of some ranks and one norm give.

    The noise is in standard deviations of the targets.
    """
    X = tokens_of(params.seeds, n, sizes.seq_len, sizes.d_model, purpose)
    Y = targets(X, params.seeds, ranks)
    if noise:
        sources = [generator(seed, "noise") for seed in params.seeds]
        each = [torch.randn(X[0].shape, generator=one, dtype=X.dtype) for one in sources]
        Y = Y + noise * Y.std((-3, -2, -1), keepdim=True) * torch.stack(each)[:, None]
    return X, Y


def drawn(params: Optimizers, sizes: Head, purpose: str) -> Tensor:
    """The factors of all seeds."""
    return gaussian_factors(sizes.d_model, params.seeds, purpose)


def conserved(params: Optimizers, sizes: Head, case: Optimizer) -> Tables:
    """One optimiser from factors of uneven size: what of their difference is kept.

    It is followed till a tenth of the loss is left.
    """
    head = SharedTokensHead(*taught(params, sizes, "tokens", params.n_samples, [sizes.d_model]))
    P, Q = drawn(params, sizes, "full start").unsqueeze(-3)
    start = {"factors": torch.stack([UNEVEN[0] * P, UNEVEN[1] * Q])}
    rates = case.rates(math.log10(UNEVEN[0]))
    end, reached = descended(descend(head.loss_and_slopes, start, RULES[case.rule](), rates), LEFT)
    kept = changes(start["factors"], end["factors"], ("KQ", "VO"))
    columns = {"optimizer": case.name, "seed": list(params.seeds), "reached": reached[:, 0].numpy()}
    columns |= {name: share[:, 0].numpy() for name, share in kept.items()}
    return {"conserved": pd.DataFrame(columns)}


def train(params: Optimizers, sizes: Head, case: Optimizer, trainings: Trainings) -> Course:
    """One optimiser from several scales and by several teachers, side by side.

    A row of each, its course, and the states.
    """
    ranks = [rank for _, rank in trainings]
    head = SharedTokensHead(*taught(params, sizes, "tokens", params.n_samples, ranks))
    unscaled = drawn(params, sizes, "full start")
    rates = case.rates(trainings[0][0])
    start = torch.stack([10**scale * unscaled for scale, _ in trainings], -3)
    saved = evenly(N_SNAPSHOTS, len(rates))
    looks = evenly(N_LOOKS, len(rates))
    t = np.cumsum([0.0, *rates])
    beside = around(t, WINDOW)
    last = start
    losses: list[np.ndarray] = []
    of_VO: list[np.ndarray] = []
    of_KQ: dict[int, np.ndarray] = {}
    of_factors: list[np.ndarray] = []
    states: list[Saved] = []
    for step in descend(head.loss_and_slopes, {"factors": start}, RULES[case.rule](), rates):
        last = step.weights["factors"]
        losses.append(step.loss.numpy())
        of_VO.append(spectra(last[:, 1:])[0])
        if step.number in looks:
            of_KQ[step.number] = spectra(last[:, :1])[0]
        if step.number in beside:
            of_factors.append(torch.linalg.svdvals(last[:, 1]).numpy())
        if step.number in saved:
            shares = (losses[-1] / losses[0]).tolist()
            rows = [
                {"seed": seed, "step": step.number, "time": step.time, "loss": own}
                for seed, own in zip(params.seeds, shares, strict=True)
            ]
            states.append((named(last), rows))
    loss = np.stack(losses)
    VO_of_all = np.stack(of_VO)
    factors = np.stack(of_factors)
    kept = {"growth": head.growth_at_zero(case.learning_rate), **changes(start, last, ("KQ", "VO"))}
    runs = []
    courses = []
    for (k, (scale, rank)), (n, seed) in product(enumerate(trainings), enumerate(params.seeds)):
        cell = {
            "optimizer": case.name,
            "teacher_rank": rank,
            "log10_init_scale": scale,
            "seed": seed,
        }
        own = {name: float(one[n, k]) for name, one in kept.items()}
        VO = VO_of_all[:, n, k]
        growth = slopes(t[beside], factors[:, :, n, k], WINDOW)
        timed = timing(t, VO, growth, sizes.threshold, params.significant)
        half, end = stable_rank(VO[[step_of_share(loss[:, n, k], HALF), -1]]).tolist()
        ranks = {"stable_rank_half": half, "stable_rank_end": end}
        runs.append({**cell, **own, **timed, **ranks})
        courses += [
            {**cell, "step": i, "time": t[i], "W_KQ": of_KQ[i][n, k], "W_VO": VO[i]} for i in looks
        ]
    return Course({"runs": pd.DataFrame(runs), "courses": pd.DataFrame(courses)}, states)


def train_on_few(
    params: Optimizers, sizes: Head, case: Optimizer, n_samples: int, noise: float
) -> Tables:
    """One optimiser where the minimum is not unique, or the targets are noisy.

    Ranks at the end, and the losses on the path.
    """
    scale = params.few_log10_init_scale
    rank = min(params.teacher_rank, sizes.d_model)
    head = SharedTokensHead(*taught(params, sizes, "tokens", n_samples, [rank], noise))
    X, Y = taught(params, sizes, "test tokens", params.n_test, [rank])
    test = SharedTokensHead(X, Y)
    share = 1 / Y.square().mean((-3, -2, -1))
    start = {"factors": 10**scale * drawn(params, sizes, "full start").unsqueeze(-3)}
    rates = case.rates(scale, params.noisy_longer if noise else 1)
    looks = evenly(N_LOOKS, len(rates))
    last = start["factors"]
    rows = []
    for step in descend(head.loss_and_slopes, start, RULES[case.rule](), rates):
        if step.number in looks:
            last = step.weights["factors"]
            off = test.loss_and_slopes(step.weights)[0] * share
            losses = zip(step.loss[:, 0].tolist(), off[:, 0].tolist(), strict=True)
            for seed, (own, of_test) in zip(params.seeds, losses, strict=True):
                rows.append((seed, step.number, step.time, own, of_test))
    cell = {"optimizer": case.name, "n_samples": n_samples, "noise": noise}
    paths = pd.DataFrame(rows, columns=["seed", "step", "time", "loss", "test_loss"]).assign(**cell)
    paths["loss"] = paths["loss"] / paths.groupby("seed")["loss"].transform("first")
    ends = {
        "loss": ("loss", "last"),
        "best_test_loss": ("test_loss", "min"),
        "last_test_loss": ("test_loss", "last"),
    }
    KQ = spectra(last)[0, :, 0]
    few = paths.groupby("seed").agg(**ends).assign(effective_rank_KQ=effective_rank(KQ), **cell)
    return {"few": few.reset_index(), "paths": paths}


if __name__ == "__main__":
    run(main)
