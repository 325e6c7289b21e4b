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
from lib.gradual_rank.shared_tokens import (
    SharedTokensHead,
    gaussian_factors,
    memory,
    named,
    products_of_ranks,
    spectra,
)
from torch import Tensor

from lib.files.memory import COPIES, check_disk, check_memory
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
from lib.files.runs import Layout, clear_runs, write_run
from lib.files.tables import write_table
from lib.gradual_rank.balance import changes
from lib.gradual_rank.full_heads import FullHead
from lib.gradual_rank.growth import step_of_share, timing
from lib.gradual_rank.optimizers import RULES, annealed, descend, descended
from lib.gradual_rank.step_counts import evenly, steps_to
from lib.gradual_rank.tasks import gaussian_sequences
from lib.matrices.ranks import effective_rank, ranks_on_the_way
from lib.training.attention import PRODUCTS
from lib.training.devices import generator, use_threads
from lib.training.stacked import groups
from lib.work.cells import Course, Saved, Tables, joined, spread_cells
from lib.work.command import OutFolder, run

Trainings = tuple[
    tuple[float, int], ...
]  # log10 of the init scale and rank of the teacher, side by side
WINDOW = (0.05, 0.15)  # of τ, in which the singular values of the factors grow
EARLY, HALF = 0.9, 0.5  # shares of the first loss at which ranks are noted, or at the end
RTOL = 0.01  # of the numerical rank
UNEVEN, LEFT = (
    (0.1, 0.05),
    0.1,
)  # init scales of P and Q, of which a difference is to be seen; the share of the loss
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
        end = self.rescaled_end * -log10_init_scale * math.log(10)
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
    n_samples: Count
    teacher_rank: Count
    significant: Positive
    few_samples: tuple[Count, ...]
    few_log10_init_scale: Annotated[float, Interval("[-100, 0)")]
    noisy_samples: Count
    noise: Positive
    noisy_longer: Annotated[int, Interval("[1, 1000]")]
    n_test: Count


def main(section: str, head: str, optimizers: Path, runs: OutFolder, trained: OutFolder) -> None:
    """Write the runs on many tokens; a row of each, `runs`, and its course, `courses`; `few`,
    `paths`, `conserved`.
    """
    use_threads(1)
    params, sizes = read_params(section, Optimizers), read_params(head, Head, part=True)
    cases = read_cases(optimizers, Optimizer)
    ends = [*((scale, 1) for scale in (*params.log10_init_scales, math.log10(UNEVEN[0])))]
    ends.append((params.few_log10_init_scale, params.noisy_longer))
    n_steps = max(len(case.rates(*end)) for case, end in product(cases, ends))
    n = max(params.n_samples, params.n_test, params.noisy_samples, *params.few_samples)
    d, together = sizes.d_model, 2 * len(params.log10_init_scales)
    check_memory(section, memory(n, sizes.seq_len, d, params.n_seeds, together, n_steps))
    of_run = (
        4 * N_SNAPSHOTS * d * d + N_LOOKS * (2 * d + 8 * len(params.few_samples)) + 3000
    )  # headers, rows, digests
    check_disk(runs, COPIES * 8 * len(cases) * params.n_seeds * together * of_run, section)
    clear_runs(runs)
    ranks = sorted({sizes.d_model, min(params.teacher_rank, sizes.d_model)}, reverse=True)
    every = product(cases, sorted(params.log10_init_scales))
    alike = groups(
        every, lambda one: (one[0], len(one[0].rates(one[1]))), len(params.log10_init_scales)
    )
    longest = sorted(alike, key=lambda those: -sum(len(case.rates(scale)) for case, scale in those))
    many = [
        (those[0][0], tuple(product([scale for _, scale in those], ranks))) for those in longest
    ]
    few = [(n, 0.0) for n in params.few_samples] + [(params.noisy_samples, params.noise)]
    jobs = {
        "many": [(train, params, sizes, *job) for job in many],
        "few": [
            (train_on_few, params, sizes, case, n, noise) for case in cases for n, noise in few
        ],
        "uneven": [(conserved, params, sizes, case) for case in cases],
    }
    found = spread_cells(jobs, label=section, unit="training")
    for (case, trainings), course in zip(many, found["many"], strict=True):
        save(runs, params, case, trainings, course.states)
    places = [case.name for case in cases].index
    for name in ("runs", "courses"):
        table = joined([course.tables for course in found["many"]], name)
        order = np.lexsort(
            [table["optimizer"].map(places), -table["teacher_rank"], table["log10_init_scale"]]
        )
        write_table(table.iloc[order].reset_index(drop=True), trained / f"{name}.parquet")
    for name, kind in (("few", "few"), ("paths", "few"), ("conserved", "uneven")):
        write_table(joined(found[kind], name), trained / f"{name}.parquet")


def save(
    runs: Path, params: Optimizers, case: Optimizer, trainings: Trainings, states: list[Saved]
) -> None:
    """A run of each of the trainings that were computed together."""
    for place, (scale, rank) in enumerate(trainings):
        variant = f"optimizer={case.name},teacher_rank={rank},log10_init_scale={scale:g}"
        cell = {
            "variant": variant,
            "optimizer": case.name,
            "teacher_rank": rank,
            "log10_init_scale": scale,
        }
        cell |= {"learning_rate": case.learning_rate}
        axes = {name: ["seed", "row", "col"] for pair in PRODUCTS.values() for name in pair}
        layout = Layout("gradual_rank", axes, PRODUCTS, cell=cell, seeds=list(params.seeds))
        with write_run(runs, variant, layout) as writer:
            for W, rows in states:
                waited = -scale * math.log(10)
                own = [
                    row | {"rescaled_time": row["time"] / waited, "loss": row["loss"][place]}
                    for row in rows
                ]
                writer.add({name: w[:, place] for name, w in W.items()}, own)


def taught(
    params: Optimizers, sizes: Head, purpose: str, n: int, ranks: list[int], noise: float = 0
) -> list[Tensor]:
    """Tokens of all seeds, and what teachers of some ranks and one norm make of them; noise in
    deviations of it.
    """
    X = torch.stack(
        [
            gaussian_sequences(n, sizes.seq_len, sizes.d_model, generator(s, purpose))
            for s in params.seeds
        ]
    )
    teachers = products_of_ranks(drawn(params, sizes, "full teacher"), ranks)
    Y = torch.stack([FullHead(X, X).output(W_KQ, W_VO) for W_KQ, W_VO in teachers], 1)
    if noise:
        each = [
            torch.randn(X[0].shape, generator=generator(s, "noise"), dtype=X.dtype)
            for s in params.seeds
        ]
        Y = Y + noise * Y.std((-3, -2, -1), keepdim=True) * torch.stack(each)[:, None]
    return [X, Y]


def drawn(params: Optimizers, sizes: Head, purpose: str) -> Tensor:
    return gaussian_factors(sizes.d_model, [generator(seed, purpose) for seed in params.seeds])[
        "factors"
    ]


def conserved(params: Optimizers, sizes: Head, case: Optimizer) -> Tables:
    """One optimiser from factors of uneven size, till a tenth of the loss is left: what of their
    difference is kept.
    """
    head = SharedTokensHead(*taught(params, sizes, "tokens", params.n_samples, [sizes.d_model]))
    P, Q = drawn(params, sizes, "full start").unsqueeze(-3)
    start = {"factors": torch.stack([UNEVEN[0] * P, UNEVEN[1] * Q])}
    rates = case.rates(math.log10(UNEVEN[0]))
    end, reached = descended(descend(head.loss_and_slopes, start, RULES[case.rule](), rates), LEFT)
    kept = changes(start["factors"], end["factors"], ("KQ", "VO"))
    cell = {"optimizer": case.name, "seed": list(params.seeds), "reached": reached[:, 0].numpy()}
    return {
        "conserved": pd.DataFrame(
            {**cell, **{name: share[:, 0].numpy() for name, share in kept.items()}}
        )
    }


def train(params: Optimizers, sizes: Head, case: Optimizer, trainings: Trainings) -> Course:
    """One optimiser from several scales and by several teachers, side by side: a row of each,
    courses and states.
    """
    head = SharedTokensHead(
        *taught(params, sizes, "tokens", params.n_samples, [rank for _, rank in trainings])
    )
    unscaled, rates = drawn(params, sizes, "full start"), case.rates(trainings[0][0])
    start = torch.stack([10**scale * unscaled for scale, _ in trainings], -3)
    saved, looks = (evenly(n, len(rates)) for n in (N_SNAPSHOTS, N_LOOKS))
    losses, products, of_values, states, last = [], [], [], [], start
    for step in descend(head.loss_and_slopes, {"factors": start}, RULES[case.rule](), rates):
        last = step.weights["factors"]
        losses.append(step.loss.numpy())
        products.append(spectra(step.weights))
        if step.time <= 1.1 * WINDOW[1] or len(of_values) < 2:
            of_values.append(torch.linalg.svdvals(last[:, 1]).numpy())
        if step.number in saved:
            at, shares = {"step": step.number, "time": step.time}, (losses[-1] / losses[0]).tolist()
            rows = [
                {"seed": seed, **at, "loss": own}
                for seed, own in zip(params.seeds, shares, strict=True)
            ]
            states.append((named(step.weights), rows))
    t, loss, both, factors = (
        np.cumsum([0.0, *rates]),
        np.stack(losses),
        np.stack(products),
        np.stack(of_values),
    )
    kept = {"growth": head.growth_at_zero(case.learning_rate), **changes(start, last, ("KQ", "VO"))}
    runs, courses = [], []
    for (k, (scale, rank)), (n, seed) in product(enumerate(trainings), enumerate(params.seeds)):
        cell = {
            "optimizer": case.name,
            "teacher_rank": rank,
            "log10_init_scale": scale,
            "seed": seed,
        }
        KQ, VO, own_loss = both[:, 0, n, k], both[:, 1, n, k], loss[:, n, k]
        timed = timing(
            t, own_loss, KQ, VO, factors[:, :, n, k], sizes.threshold, params.significant, WINDOW
        )
        early, half = (step_of_share(own_loss, share) for share in (EARLY, HALF))
        own = {name: float(one[n, k]) for name, one in kept.items()}
        runs.append({**cell, **own, **timed, **ranks_on_the_way(KQ, VO, early, half, RTOL)})
        courses += [{**cell, "step": i, "time": t[i], "W_KQ": KQ[i], "W_VO": VO[i]} for i in looks]
    return Course({"runs": pd.DataFrame(runs), "courses": pd.DataFrame(courses)}, states)


def train_on_few(
    params: Optimizers, sizes: Head, case: Optimizer, n_samples: int, noise: float
) -> Tables:
    """One optimiser where the minimum is not unique, or the targets are noisy: ranks at the end,
    losses on the path.
    """
    scale, rank = params.few_log10_init_scale, min(params.teacher_rank, sizes.d_model)
    head = SharedTokensHead(*taught(params, sizes, "tokens", n_samples, [rank], noise))
    X, Y = taught(params, sizes, "test tokens", params.n_test, [rank])
    test, share = SharedTokensHead(X, Y), 1 / Y.square().mean((-3, -2, -1))
    start = 10**scale * drawn(params, sizes, "full start").unsqueeze(-3)
    rates = case.rates(scale, params.noisy_longer if noise else 1)
    looks, rows, last = evenly(N_LOOKS, len(rates)), [], {"factors": start}
    for step in descend(head.loss_and_slopes, {"factors": start}, RULES[case.rule](), rates):
        if step.number in looks:
            last, off = step.weights, test.loss_and_slopes(step.weights)[0] * share
            each, at = (
                zip(params.seeds, step.loss[:, 0].tolist(), off[:, 0].tolist(), strict=True),
                step[:2],
            )
            rows += [(seed, *at, one, other) for seed, one, other in each]
    cell = {"optimizer": case.name, "n_samples": n_samples, "noise": noise}
    paths = pd.DataFrame(rows, columns=["seed", "step", "time", "loss", "test_loss"]).assign(**cell)
    paths["loss"] = paths["loss"] / paths.groupby("seed")["loss"].transform("first")
    KQ, VO = effective_rank(spectra(last)[:, :, 0])
    ends = {
        "loss": ("loss", "last"),
        "best_test_loss": ("test_loss", "min"),
        "last_test_loss": ("test_loss", "last"),
    }
    few = (
        paths.groupby("seed").agg(**ends).assign(effective_rank_KQ=KQ, effective_rank_VO=VO, **cell)
    )
    return {"few": few.reset_index(), "paths": paths}


if __name__ == "__main__":
    run(main)
