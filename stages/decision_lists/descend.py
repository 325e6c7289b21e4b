r"""Gradient descent as the theorems have it: W alone from 0 at V = cP, and W and V together, with step sizes that are
the inverse of the largest curvature along the path, not at its start.

The path depends on the step size: where the curvature found along it exceeds 1 / step size, the descent is repeated
with the inverse of what was found, until it does not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.analysis.certificate import list_order_margin, logit_margin
from lib.analysis.convergence_bounds import DescentBound, descent_bound, flow_bound, rarest_conflict, with_loss
from lib.analysis.curvature import largest_eigenvalue
from lib.data.decision_lists import Task, determining_tokens, label_matrix
from lib.dynamics.gradient_descent import Step, Weights, gradient_descent
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread_kinds, use_device, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Seed, read_params
from lib.io.tables import read_table, write_table
from lib.models.list_attention import (
    PopulationLoss,
    Rows,
    attention_curvature,
    attention_margins,
    attention_rows,
    hessian_product,
    loss_gradients,
)

Noise = Literal["none", "uniform", "adversarial"]


@dataclass(frozen=True)
class Descend:
    """`noise` is what V_0 − cP is made of, up to ε/2 an entry; `samples` of the curvature are taken in each segment.

    A step size is the inverse of the largest curvature found, times 1 + `spare`: curvature creeps up along a path whose
    step shrinks, and without something to spare nearly every descent is repeated twenty times.
    """

    device: Literal["cpu"]
    attention_alone: tuple[str, ...]
    both: tuple[str, ...]
    noise: tuple[Noise, ...]
    noise_seed: Seed
    spare: Annotated[float, Interval("[0, 1]")]
    samples: Annotated[int, Interval("[2, 100]")]
    lanczos_iterations: Annotated[int, Interval("[2, 200]")]
    max_steps: Count
    max_repeats: Annotated[int, Interval("[1, 100]")]


def main(section: str, tasks: Path, tables: Path) -> None:
    use_threads(1)
    params = read_params(section, Descend)
    use_device(params.device)
    listed = {str(row["name"]): Task.from_row(row) for row in read_table(tasks).to_dict("records")}
    groups = {task.group for task in listed.values()}
    for name in (*params.attention_alone, *params.both):
        if name not in listed and name not in groups:
            raise InputError(f"{section}: wanted a task or group of {tasks}, got {name!r}")
    both = [task for task in listed.values() if {task.group, task.name} & set(params.both)]
    jobs = {
        "attention_alone": [(descend_alone, listed[name], params) for name in params.attention_alone],
        "both": [(descend_both, task, noise, params) for task in both for noise in params.noise],
    }
    clear(tables, "*.parquet")
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="run")
    for name, rows in found.items():
        write_table(pd.DataFrame(rows), tables / f"{name}.parquet")


class Loss(PopulationLoss):
    """The population loss of a task with its curvatures."""

    def __init__(self, task: Task):
        rows = Rows.of(task.counts, task.chances, *determining_tokens(task.counts, task.lists))
        super().__init__(rows, torch.tensor(task.permutation))

    def attention_curvature(self, weights: Weights) -> float:
        """The largest eigenvalue of the Hessian in W, from all its blocks."""
        blocks = attention_curvature(weights["W"], weights["V"], self.rows, self.permutation)
        return float(torch.linalg.eigvalsh(blocks)[:, -1].max())

    def curvature(self, weights: Weights, n_iterations: int) -> float:
        """The largest eigenvalue of the Hessian in W and V together.

        From the direction of the gradient, which alone may lie in a space that misses it, and as much of a random one.
        """
        W, V = weights["W"], weights["V"]

        product = hessian_product(W, V, self.rows, self.permutation)

        def apply(direction: Tensor) -> Tensor:
            in_W, in_V = product(direction[: W.numel()].view_as(W), direction[W.numel() :].view_as(V))
            return torch.cat([in_W.flatten(), in_V.flatten()])

        gradients = loss_gradients(W, V, self.rows, self.permutation)[1:]
        start = torch.cat([gradient.flatten() for gradient in gradients])
        random = torch.randn(start.shape, generator=generator(0, "curvature"), dtype=torch.float64)
        start = start / start.norm() + random / random.norm()
        return largest_eigenvalue(apply, start, n_iterations)


@dataclass(frozen=True)
class Descent:
    """A descent whose step size is at most the inverse of the largest curvature that was found along it."""

    step_size: float
    steps: list[Step]
    largest: float  # curvature along the path
    initial: float  # curvature at its start
    n_failures: int  # of the descent lemma, beyond rounding


def compliant(
    loss: Loss,
    start: Weights,
    names: tuple[str, ...],
    right: Callable[[Weights], bool],
    curvature: Callable[[Weights], float],
    params: Descend,
) -> Descent:
    """Descend until all is `right`, with a step size that the curvature along the whole path allows."""
    initial = curvature(start)
    largest = initial
    for _ in range(params.max_repeats):
        step_size, steps = 1 / ((1 + params.spare) * largest), []
        for step in gradient_descent(loss, start, dict.fromkeys(names, step_size)):
            if steps:
                before = steps[-1].weights
                for share in torch.linspace(0, 1, params.samples + 1).square().tolist()[1:]:
                    between = {name: torch.lerp(before[name], step.weights[name], share) for name in names}
                    largest = max(largest, curvature(before | between))
            steps.append(step)
            if right(step.weights) or step.number >= params.max_steps or largest * step_size > 1:
                break
        if largest * step_size <= 1:
            return Descent(step_size, steps, largest, initial, failures(steps, names, step_size))
    raise ArithmeticError(f"wanted a step size that fits the curvature, got none in {params.max_repeats} descents")


def failures(steps: list[Step], names: tuple[str, ...], step_size: float) -> int:
    """At how many steps the loss is above what the descent lemma allows, L − step_size |∇L|² / 2, beyond rounding."""
    found = 0
    for a, b in pairwise(steps):
        square = sum(float(a.gradients[name].square().sum()) for name in names)
        found += float(b.loss) > float(a.loss) - step_size / 2 * square + 1e-13
    return found


def descend_alone(task: Task, params: Descend) -> dict[str, object]:
    """Part 1 by gradient descent: the descent lemma gives twice the flow's bound, over the step size."""
    loss = Loss(task)
    place = determining_tokens(task.counts, task.lists)[1]
    P_min = rarest_conflict(task.counts, task.chances, place, task.lists)
    bound = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest)
    start = {
        "W": torch.zeros(task.n_tokens, task.n_tokens, dtype=torch.float64),
        "V": bound.scale * label_matrix(task.permutation),
    }
    found = compliant(
        loss,
        start,
        ("W",),
        lambda weights: bool(attention_margins(weights["W"], loss.rows).min() > 0),
        loss.attention_curvature,
        params,
    )
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


def descend_both(task: Task, noise: Noise, params: Descend) -> dict[str, object]:
    """Part 2: W_0 = 0, V_0 within ε/2 of cP, until all is right."""
    loss = Loss(task)
    bound, residual, V_0 = start_of(task, noise, loss, params.noise_seed)
    P = label_matrix(task.permutation)
    start = {"W": torch.zeros_like(P), "V": V_0}
    found = compliant(
        loss,
        start,
        ("W", "V"),
        lambda weights: bool(loss.right(weights).all()),
        lambda weights: loss.curvature(weights, params.lanczos_iterations),
        params,
    )
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


def start_of(task: Task, noise: Noise, loss: Loss, seed: int) -> tuple[DescentBound, float, Tensor]:
    """The constants, the relative residual of c = 10 n² L_0 / δ + 4 ε n, and V_0.

    ε is that of the start without noise; with noise, L_0 is the loss that is measured, and c its fixed point.
    """
    delta, n = min(task.probability), task.seq_len
    plain = descent_bound(delta, task.n_tokens, n, task.longest)
    P = label_matrix(task.permutation)
    offset = torch.zeros_like(P)
    if noise == "uniform":
        draw = torch.rand(P.shape, generator=generator(seed, "noise", task.name), dtype=torch.float64)
        offset = plain.epsilon / 2 * (2 * draw - 1)
    elif noise == "adversarial":  # all on one wrong label of each token
        offset = plain.epsilon / 2 * P.roll(1, 0)
    bound = plain
    W_0 = torch.zeros_like(P)
    for _ in range(60):
        measured = float(loss({"W": W_0, "V": bound.scale * P + offset})[0])
        bound = with_loss(bound, measured, n)
    measured = float(loss({"W": W_0, "V": bound.scale * P + offset})[0])
    residual = abs(with_loss(bound, measured, n).scale / bound.scale - 1)
    return bound, residual, bound.scale * P + offset


if __name__ == "__main__":
    run(main)
