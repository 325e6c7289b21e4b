r"""Gradient descent as the theorems have it: W alone from 0 at V = cP, and W and V together, with step sizes that are
the inverse of the largest curvature along the path, not at its start (`compliant_descent`). Beside it what must fail
and what must not, by Adam on the exact loss at V = cP: W transposed, trained on some rows, V alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.analysis.certificate import list_order_margin, logit_margin
from lib.analysis.convergence_bounds import DescentBound, descent_bound, flow_bound, rarest_conflict, with_noise
from lib.analysis.curvature import largest_curvature
from lib.data.decision_lists import Task, tasks_by_name
from lib.dynamics.gradient_descent import CompliantDescent, Weights, compliant_descent
from lib.dynamics.sgd import State, sgd
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread_kinds, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Positive, Seed, read_params
from lib.io.tables import read_table, write_table
from lib.models.list_attention import PopulationLoss, Rows, SequenceLoss, attention_margins, attention_rows

Noise = Literal["none", "uniform", "adversarial"]


@dataclass(frozen=True)
class Descend:
    """The tasks whose attention descends alone, by name; what V_0 − cP is made of, up to ε/2 an entry, and its seed."""

    attention_alone: tuple[str, ...]
    noise: tuple[Noise, ...]
    noise_seed: Seed


@dataclass(frozen=True)
class Control:
    """By Adam, on the exact loss: V = `scale` · P and W trained from 0, or V alone."""

    scale: Positive
    learning_rate: Positive
    n_steps: Count


@dataclass(frozen=True)
class Solver:
    """How step sizes are found (`compliant_descent`), and the iterations that find the largest curvature in W and V."""

    spare: Annotated[float, Interval("[0, 1]")]
    n_samples: Annotated[int, Interval("[2, 100]")]
    max_steps: Count
    max_repeats: Annotated[int, Interval("[1, 100]")]
    lanczos_iterations: Annotated[int, Interval("[2, 200]")]


def main(section: str, controls: str, solver: str, tasks: Path, tables: Path) -> None:
    use_threads(1)
    params, solve = read_params(section, Descend), read_params(solver, Solver)
    of_controls = read_params(controls, Control)
    listed = tasks_by_name(read_table(tasks).to_dict("records"))
    for name in params.attention_alone:
        if name not in listed:
            raise InputError(f"{section}.attention_alone: wanted tasks of {tasks}, got {name!r}")
    both = [task for task in listed.values() if task.use == "both"]
    jobs = {
        "alone": [(descend_alone, listed[name], solve) for name in params.attention_alone],
        "both": [(descend_both, task, noise, params.noise_seed, solve) for task in both for noise in params.noise],
        "controls": [(control, task, of_controls) for task in listed.values() if task.use == "controls"],
    }
    clear(tables, "*.parquet")
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="run")
    found["controls"] = [row for rows in found["controls"] for row in rows]
    for name, rows in found.items():
        write_table(pd.DataFrame(rows), tables / f"{name}.parquet")


def descend(
    loss: PopulationLoss,
    start: Weights,
    names: tuple[str, ...],
    right: Callable[[Weights], bool],
    curvature: Callable[[Weights], float],
    solve: Solver,
) -> CompliantDescent:
    return compliant_descent(
        loss, start, names, right, curvature,
        spare=solve.spare, n_samples=solve.n_samples, max_steps=solve.max_steps, max_repeats=solve.max_repeats,
    )  # fmt: skip


def descend_alone(task: Task, solve: Solver) -> dict[str, object]:
    """Part 1 by gradient descent: the descent lemma gives twice the flow's bound, over the step size."""
    loss = PopulationLoss(Rows.of(*task.classes), task.labels)
    P_min = rarest_conflict(task.counts, task.chances, task.place, task.lists)
    bound = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest)
    P = task.label_matrix

    def right(weights: Weights) -> bool:
        return bool(attention_margins(weights["W"], loss.rows).min() > 0)

    start = {"W": torch.zeros_like(P), "V": bound.scale * P}
    found = descend(loss, start, ("W",), right, loss.attention_curvature, solve)
    last = found.steps[-1]
    certified = list_order_margin(last.weights["W"], task.lists, task.seq_len, repeats=False)
    return {
        "task": task.name,
        "law": task.law,
        "scale": bound.scale,
        "step_size": found.step_size,
        "n_steps": last.number,
        "bound": 2 * bound.time / found.step_size,
        "margin": certified,
        "failures": found.n_failures,
        "curvature_growth": found.largest / found.initial,
    }


def descend_both(task: Task, noise: Noise, noise_seed: int, solve: Solver) -> dict[str, object]:
    """Part 2: W_0 = 0, V_0 within ε/2 of cP, until all is right."""
    loss = PopulationLoss(Rows.of(*task.classes), task.labels)
    bound, residual, V_0 = start_of(task, noise, loss, noise_seed)
    P = task.label_matrix
    draw = torch.randn(2 * P.numel(), generator=generator(0, "curvature"), dtype=torch.float64)

    def right(weights: Weights) -> bool:
        return bool(loss.right(weights).all())

    def curvature(weights: Weights) -> float:
        return largest_curvature(*loss.hessian(weights), draw, solve.lanczos_iterations)

    found = descend(loss, {"W": torch.zeros_like(P), "V": V_0}, ("W", "V"), right, curvature, solve)
    last = found.steps[-1]
    alpha = torch.stack([attention_rows(s.weights["W"], loss.rows).amax() for s in found.steps])
    margin = logit_margin(last.weights["W"], last.weights["V"], task.lists, task.permutation, task.seq_len, False)
    return {
        "task": task.name,
        "law": task.law,
        "noise": noise,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
        "length": task.longest,
        "preconditions": bound.met,
        "scale": bound.scale,
        "residual": residual,
        "L_0": bound.L_0,
        "epsilon": bound.epsilon,
        "step_size": found.step_size,
        "n_steps": last.number,
        "earliest": bound.earliest / found.step_size,
        "latest": bound.latest / found.step_size,
        "margin": margin,
        "failures": found.n_failures,
        "curvature_growth": found.largest / found.initial,
        "start_deviation": float((V_0 - bound.scale * P).abs().max()),
        "deviation": max(float((s.weights["V"] - bound.scale * P).abs().max()) for s in found.steps),
        "V_moved": float((last.weights["V"] - V_0).abs().max()),
        "largest_attention": float(alpha.max()) * task.seq_len,
    }


def start_of(task: Task, noise: Noise, loss: PopulationLoss, seed: int) -> tuple[DescentBound, float, Tensor]:
    """The constants, the relative residual of c = 10 n² L_0 / δ + 4 ε n, and V_0.

    ε is that of the start without noise; with noise, L_0 is the loss that is measured, and c its fixed point.
    """
    plain = descent_bound(min(task.probability), task.n_tokens, task.seq_len, task.longest)
    P = task.label_matrix
    offset, W_0 = torch.zeros_like(P), torch.zeros_like(P)
    if noise == "uniform":
        draw = torch.rand(P.shape, generator=generator(seed, "noise", task.name), dtype=torch.float64)
        offset = plain.epsilon / 2 * (2 * draw - 1)
    elif noise == "adversarial":  # all on one wrong label of each token
        offset = plain.epsilon / 2 * P.roll(1, 0)

    def loss_at(scale: float) -> float:
        return float(loss({"W": W_0, "V": scale * P + offset})[0])

    bound, residual = with_noise(plain, loss_at, task.seq_len)
    return bound, residual, bound.scale * P + offset


def control(task: Task, params: Control) -> list[dict[str, object]]:
    """Accuracy over all sequences of the law."""
    exact = PopulationLoss(Rows.of(*task.classes), task.labels)
    with_head = PopulationLoss(exact.rows.only(exact.rows.place == 1), task.labels)
    sequences = (task.counts, task.chances, task.star, task.labels)
    over_keys, over_queries = SequenceLoss(*sequences, "keys"), SequenceLoss(*sequences, "queries")
    zero = torch.zeros_like(task.label_matrix)
    fixed = {"W": zero, "V": params.scale * task.label_matrix}

    def trained(loss: PopulationLoss | SequenceLoss, name: str = "W") -> Weights:
        *_, last = sgd(
            lambda weights: loss.value(fixed | weights), State(0, {name: zero}), repeat(()), params.n_steps,
            optimizer="adam", learning_rate=params.learning_rate, warmup_steps=0,
        )  # fmt: skip
        return fixed | {name: last.weights[name].detach()}

    weights, from_heads = trained(exact), trained(with_head)
    found = {
        "trained": exact.accuracy(weights),
        "trained on sequences": over_keys.accuracy(trained(over_keys)),
        "W transposed": exact.accuracy(weights | {"W": weights["W"].T.contiguous()}),
        "softmax over queries": over_queries.accuracy(trained(over_queries)),
        "only rows whose head is present": exact.accuracy(from_heads),
        "the same, on those rows": with_head.accuracy(from_heads),
        "W = 0 with the best V": exact.accuracy(trained(exact, "V")),
    }
    return [{"task": task.name, "control": name, "accuracy": value} for name, value in found.items()]


if __name__ == "__main__":
    run(main)
