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
from lib.files.runs import clear_runs
from lib.gradual_rank.full_heads import FullSizes, SharedTokensHead
from lib.gradual_rank.full_trainings import (
    N_LOOKS,
    UNEVEN,
    Tokens,
    Trainings,
    full_course,
    path_ends,
    side_by_side,
    tested,
    uneven_changes,
    write_trainings,
)
from lib.gradual_rank.optimizers import RULES, annealed, descend
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.step_counts import evenly, steps_to
from lib.gradual_rank.tables.optimizers import FOLDER
from lib.gradual_rank.tasks import Samples
from lib.training.devices import use_threads
from lib.training.gradient_descent import Weights
from lib.work.cells import Course, Tables, joined, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_of


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
    sizes = read_params(head, FullSizes, part=True)
    cases = read_cases(optimizers, Optimizer)
    for case in cases:  # none of which may take too many steps
        case.rates(math.log10(UNEVEN[0]))
        case.rates(params.few_log10_init_scale, params.noisy_longer)
    d = sizes.d_model
    scales = sorted(params.log10_init_scales)
    lengths = [(case, scale, len(case.rates(scale))) for case, scale in product(cases, scales)]
    ranks = sorted({d, min(params.teacher_rank, d)}, reverse=True)
    many = side_by_side(lengths, ranks, len(scales))
    few = [(n, 0.0) for n in params.few_samples] + [(params.noisy_samples, params.noise)]
    jobs = {
        "many": [(train, params, sizes, *job) for job in many],
        "few": [
            (train_on_few, params, sizes, case, n, noise) for case in cases for n, noise in few
        ],
        "uneven": [(conserve, params, sizes, case) for case in cases],
    }
    clear_runs(runs)
    found = spread_cells(jobs, label=section, unit="training")
    for (case, trainings), course in zip(many, found["many"], strict=True):
        rate = case.learning_rate
        write_trainings(runs, params.seeds, case.name, rate, trainings, course.states)
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


def train(params: Optimizers, sizes: FullSizes, case: Optimizer, trainings: Trainings) -> Course:
    """One optimiser from several scales and by several teachers, side by side.

    A row of each, its course, and the states.
    """
    tokens = Tokens(params.seeds, sizes.seq_len, sizes.d_model)
    ranks = [rank for _, rank in trainings]
    head = SharedTokensHead(*tokens.taught("tokens", params.n_samples, ranks))
    unscaled = tokens.factors("full start")
    start = torch.stack([10**scale * unscaled for scale, _ in trainings], -3)
    rule = RULES[case.rule]()
    rates = case.rates(trainings[0][0])
    found = full_course(head, params.seeds, start, rule, rates, case.learning_rate)
    runs = []
    courses = []
    for (k, (scale, rank)), (n, seed) in product(enumerate(trainings), enumerate(params.seeds)):
        cell = {
            "optimizer": case.name,
            "teacher_rank": rank,
            "log10_init_scale": scale,
            "seed": seed,
        }
        runs.append({**cell, **found.summary(n, k, sizes.threshold, params.significant)})
        courses += [{**cell, **look} for look in found.spectra(n, k)]
    return Course({"runs": pd.DataFrame(runs), "courses": pd.DataFrame(courses)}, found.states)


def train_on_few(
    params: Optimizers, sizes: FullSizes, case: Optimizer, n_samples: int, noise: float
) -> Tables:
    """One optimiser where the minimum is not unique, or the targets are noisy.

    Ranks at the end, and the losses on the path.
    """
    tokens = Tokens(params.seeds, sizes.seq_len, sizes.d_model)
    scale = params.few_log10_init_scale
    ranks = [min(params.teacher_rank, sizes.d_model)]
    head = SharedTokensHead(*tokens.taught("tokens", n_samples, ranks, noise))
    X, Y = tokens.taught("test tokens", params.n_test, ranks)
    test = SharedTokensHead(X, Y)
    share = 1 / Y.square().mean((-3, -2, -1))
    start = {"factors": 10**scale * tokens.factors("full start").unsqueeze(-3)}
    rates = case.rates(scale, params.noisy_longer if noise else 1)
    steps = descend(head.loss_and_slopes, start, RULES[case.rule](), rates)

    def test_loss(W: Weights) -> Tensor:
        return (test.loss_and_slopes(W)[0] * share)[:, 0]

    looks = evenly(N_LOOKS, len(rates))
    paths, sigma_KQ = tested(steps, looks, params.seeds, test_loss)
    cell = {"optimizer": case.name, "n_samples": n_samples, "noise": noise}
    few = path_ends(paths, sigma_KQ)
    return {"few": few.assign(**cell), "paths": paths.assign(**cell)}


def conserve(params: Optimizers, sizes: FullSizes, case: Optimizer) -> Tables:
    """One optimiser from factors of uneven size: what of their difference is kept."""
    tokens = Tokens(params.seeds, sizes.seq_len, sizes.d_model)
    head = SharedTokensHead(*tokens.taught("tokens", params.n_samples, [sizes.d_model]))
    factors = tokens.factors("full start").unsqueeze(-3)
    rates = case.rates(math.log10(UNEVEN[0]))
    kept, reached = uneven_changes(head, factors, RULES[case.rule](), rates)
    columns = {"optimizer": case.name, "seed": list(params.seeds), "reached": reached[:, 0].numpy()}
    columns |= {name: share[:, 0].numpy() for name, share in kept.items()}
    return {"conserved": pd.DataFrame(columns)}


if __name__ == "__main__":
    run(main)
