"""Train the head with full matrices by several optimisers, and note in which order and when its directions rise.

On many tokens, where the teacher is the only minimum, and on few tokens or noisy targets, where the path decides.
"""

import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch

from lib.analysis.optimizer_courses import direction_times, first_time, order, plateau_share, separate, slopes
from lib.analysis.ranks import effective_rank, numerical_rank, stable_rank
from lib.data.gaussian_sequences import gaussian_sequences
from lib.dynamics.optimizers import RULES, Weights, annealed, descend
from lib.io.cells import Tables, joined, spread_cells
from lib.io.command import OutFolder, run
from lib.io.compute import available_cores, generator, use_threads
from lib.io.memory import check_memory
from lib.io.params import Count, Fraction, Interval, Name, Positive, Seeds, read_cases, read_params
from lib.io.tables import write_table
from lib.models.attention import PRODUCTS
from lib.models.full_attention import FullHead

WINDOW = (0.05, 0.15)  # of τ, in which the singular values of the factors grow
EARLY, HALF = 0.9, 0.5  # shares of the first loss at which ranks are noted, or at the end
RTOL = 0.01  # of the numerical rank
N_LOOKS = 121  # points of a course that are kept
TABLES = ("runs", "courses", "few", "paths")


@dataclass(frozen=True)
class Optimizer:
    """A line of the table."""

    name: Name
    rule: Literal["slopes", "normalized", "signs", "polar_factors", "adam", "rmsprop", "torch_muon"]
    learning_rate: Positive
    n_steps: Count
    rescaled_end: Annotated[float, Interval("[0, 1e6]")]
    annealed: Fraction

    def rates(self, log10_init_scale: float, longer: int = 1) -> list[float]:
        """The learning rate of every step."""
        waiting = self.rescaled_end * -log10_init_scale * math.log(10) / self.learning_rate
        return annealed(self.learning_rate, longer * (self.n_steps + math.ceil(waiting)), self.annealed)


@dataclass(frozen=True)
class Head:
    """Of the head, what the section of the full matrices says."""

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
    noisy_longer: Count
    n_test: Count


def main(section: str, head: str, optimizers: Path, trained: OutFolder) -> None:
    """Write a row a training, `runs`, its course, `courses`, and `few` and `paths` of those on few tokens."""
    use_threads(1)
    params, sizes = read_params(section, Optimizers), read_params(head, Head, part=True)
    cases = read_cases(optimizers, Optimizer)
    check_memory(section, memory(params, sizes))
    ranks = sorted({sizes.d_model, min(params.teacher_rank, sizes.d_model)}, reverse=True)
    few = [(n, 0.0) for n in params.few_samples] + [(params.noisy_samples, params.noise)]
    cells = product(sorted(params.log10_init_scales), ranks, cases)  # the smallest, which take the most steps, first
    jobs = {
        "many": [(train, params, sizes, case, rank, scale) for scale, rank, case in cells],
        "few": [(train_on_few, params, sizes, case, n, noise) for case in cases for n, noise in few],
    }
    how = {"stage": "gradual_rank_optimizers", "label": section, "unit": "training"}
    found = spread_cells(jobs, n_processes=available_cores(), **how)
    for name in TABLES:
        write_table(joined(found["many"] + found["few"], name), trained / f"{name}.parquet")


def memory(params: Optimizers, sizes: Head) -> int:
    """Bytes: the tokens of all seeds, their attention and its slopes."""
    n, d = max(params.n_samples, params.n_test, params.noisy_samples, *params.few_samples), sizes.d_model
    return 8 * params.n_seeds * n * sizes.seq_len * (12 * d + 3 * sizes.seq_len)


def task(params: Optimizers, sizes: Head, rank: int, n_samples: int, noise: float = 0.0) -> tuple[FullHead, FullHead]:
    """The head on its data and on test data without noise, all seeds side by side; the teacher has that rank.

    The entries of the teacher's factors have a variance for which its norm is the same at every rank.
    """
    d, L = sizes.d_model, sizes.seq_len
    X, X_test = (
        torch.stack([gaussian_sequences(n, L, d, generator(seed, purpose)) for seed in params.seeds])
        for n, purpose in ((n_samples, "tokens"), (params.n_test, "test tokens"))
    )
    W = {name: w[..., :rank] for name, w in drawn(params, sizes, "full teacher").items()}
    W_KQ, W_VO = (W[a] @ W[b].mT / math.sqrt(d * rank) for a, b in PRODUCTS.values())
    heads = FullHead(X, torch.zeros_like(X)), FullHead(X_test, torch.zeros_like(X_test))
    for head in heads:
        head.Y = head.output(W_KQ, W_VO)
    if noise:
        Y = heads[0].Y
        drawn_noise = [torch.randn(Y[0].shape, generator=generator(s, "noise"), dtype=Y.dtype) for s in params.seeds]
        heads[0].Y = Y + noise * Y.std((-3, -2, -1), keepdim=True) * torch.stack(drawn_noise)
    return heads


def drawn(params: Optimizers, sizes: Head, purpose: str) -> Weights:
    """W_K, W_Q, W_V and W_O of N(0, 1) entries, all seeds side by side."""
    d = sizes.d_model
    each = [torch.randn(4, d, d, generator=generator(seed, purpose), dtype=torch.float64) for seed in params.seeds]
    return dict(zip(("W_K", "W_Q", "W_V", "W_O"), torch.stack(each, 1), strict=True))


def spectra(W: Weights, names: tuple[str, ...] = tuple(PRODUCTS)) -> np.ndarray:
    """The singular values of products, or of matrices: [name, seed, rank]."""
    matrices = {name: W[a] @ W[b].mT for name, (a, b) in PRODUCTS.items()} | W
    return torch.linalg.svdvals(torch.stack([matrices[name] for name in names])).numpy()


def train(params: Optimizers, sizes: Head, case: Optimizer, rank: int, log10_scale: float) -> Tables:
    """One optimiser from one scale, all seeds side by side: a row a seed, and the courses."""
    head, _ = task(params, sizes, rank, params.n_samples)
    start = {name: 10**log10_scale * w for name, w in drawn(params, sizes, "full start").items()}
    times, losses, products, factors = [], [], [], []
    for step in descend(head.loss_and_slopes, start, RULES[case.rule](), case.rates(log10_scale)):
        times.append(step.time)
        losses.append(step.loss.numpy())
        products.append(spectra(step.weights))
        if step.time <= 1.1 * WINDOW[1] or len(factors) < 2:
            factors.append(spectra(step.weights, ("W_V", "W_O")))
    t, loss, (KQ, VO), of_factors = np.array(times), np.stack(losses), np.stack(products, 1), np.stack(factors)
    zero = torch.zeros_like(head.X[:, 0, :1].expand(-1, sizes.d_model, -1))
    at_zero = torch.linalg.svdvals(head.loss_and_gradients(zero, zero)[2])[:, 0].tolist()
    cell = {"optimizer": case.name, "teacher_rank": rank, "log10_init_scale": log10_scale}
    runs, courses = [], []
    looks = np.unique(np.linspace(0, len(t) - 1, N_LOOKS).round().astype(int))
    for n, seed in enumerate(params.seeds):
        row = {**cell, "seed": seed, "growth": math.log1p(case.learning_rate * at_zero[n]) / case.learning_rate}
        bars = sizes.threshold, params.significant
        runs.append(row | course(t, loss[:, n], KQ[:, n], VO[:, n], of_factors[:, :, n], *bars))
        courses += [
            {**cell, "seed": seed, "step": k, "time": t[k], "W_KQ": KQ[k, n], "W_VO": VO[k, n]} for k in looks.tolist()
        ]
    return {"runs": pd.DataFrame(runs), "courses": pd.DataFrame(courses)}


def course(
    t: np.ndarray, loss: np.ndarray, KQ: np.ndarray, VO: np.ndarray, factors: np.ndarray, risen: float, counts: float
) -> dict[str, Any]:
    """What the course of one training says."""
    last, begun, ended = direction_times(t, VO, counts)
    last_KQ, _, ended_KQ = direction_times(t, KQ, counts)
    fallen = (np.flatnonzero(loss <= share * loss[0]) for share in (EARLY, HALF))
    early, half = (int(steps[0]) if len(steps) else -1 for steps in fallen)
    growth = np.append([slopes(t[: len(factors)], factors[:, k], len(last), WINDOW) for k in (0, 1)], [])
    on_the_way = stable_rank(np.stack([VO[half], VO[-1], KQ[early], KQ[-1]]))
    names = ("stable_rank_half", "stable_rank_end", "stable_rank_KQ_early", "stable_rank_KQ_end")
    at_the_end = numerical_rank(np.stack([KQ[-1], VO[-1]]), RTOL)
    return {
        "first_rise": first_time(t, VO[:, 0], risen),
        "first_rise_KQ": first_time(t, KQ[:, 0], risen),
        "order": order(last, ended),
        "order_KQ": order(last_KQ, ended_KQ),
        "n_directions": len(last),
        "separate": separate(begun, ended),
        **dict(zip(names, on_the_way.tolist(), strict=True)),
        "slope_least": float(growth.min()) if len(last) else math.nan,
        "slope_most": float(growth.max()) if len(last) else math.nan,
        "plateau": plateau_share(t, loss),
        "loss": float(loss[-1] / loss[0]),
        **dict(zip(("rank_KQ", "rank_VO"), at_the_end.tolist(), strict=True)),
    }


def train_on_few(params: Optimizers, sizes: Head, case: Optimizer, n_samples: int, noise: float) -> Tables:
    """One optimiser where the minimum is not unique, or the targets are noisy: ranks at the end, losses on the path."""
    scale = params.few_log10_init_scale
    head, test = task(params, sizes, min(params.teacher_rank, sizes.d_model), n_samples, noise)
    start = {name: 10**scale * w for name, w in drawn(params, sizes, "full start").items()}
    rates = case.rates(scale, params.noisy_longer if noise else 1)
    looks = set(np.linspace(0, len(rates), N_LOOKS).round().astype(int).tolist())
    rows, weights = [], start
    for step in descend(head.loss_and_slopes, start, RULES[case.rule](), rates):
        if step.number in looks:
            weights = step.weights
            off = test.loss_and_gradients(weights["W_K"] @ weights["W_Q"].mT, weights["W_V"] @ weights["W_O"].mT)[0]
            share = off / test.Y.square().mean((-3, -2, -1))
            rows += [
                {"seed": seed, "step": step.number, "time": step.time, "loss": float(step.loss[n]),
                 "test_loss": float(share[n])}
                for n, seed in enumerate(params.seeds)
            ]  # fmt: skip
    cell = {"optimizer": case.name, "n_samples": n_samples, "noise": noise}
    paths = pd.DataFrame(rows).assign(**cell)
    paths["loss"] = paths["loss"] / paths.groupby("seed")["loss"].transform("first")
    by_seed = paths.groupby("seed")
    few = by_seed.agg(loss=("loss", "last"), best_test_loss=("test_loss", "min"), last_test_loss=("test_loss", "last"))
    KQ, VO = (effective_rank(sigma) for sigma in spectra(weights))
    few = few.assign(effective_rank_KQ=KQ, effective_rank_VO=VO, **cell).reset_index()
    return {"few": few, "paths": paths}


if __name__ == "__main__":
    run(main)
