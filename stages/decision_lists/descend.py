r"""Gradient descent as the theorems have it: W alone from 0 at V = cP, and W and V together, with
step sizes that are the inverse of the largest curvature along the path, not at its start
(`compliant_descent`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss, Rows, attention_margins, attention_rows
from lib.decision_lists.bounds import (
    DescentBound,
    descent_bound,
    flow_bound,
    rarest_conflict,
    with_noise,
)
from lib.decision_lists.certificates import list_order_margin, logit_margin
from lib.decision_lists.descent import CompliantDescent, compliant_descent, largest_curvature
from lib.decision_lists.lists import COLUMNS, Task, tasks_by_name
from lib.files.files import clear
from lib.files.inputs import read_as
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Interval, Seed, Steps, read_params
from lib.files.tables import read_table, write_table
from lib.training.devices import generator, use_threads
from lib.training.gradient_descent import Step, Weights, gradient_descent
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run

Noise = Literal["none", "uniform", "adversarial"]
FLIPS = 20  # rounds in which the signs of the adversarial noise settle; a few suffice
ROUNDING = 1e-12  # below it, an entry of the gradient has no sign


@dataclass(frozen=True)
class Descend:
    """What V_0 − cP is made of, up to ε/2 an entry, and its seed."""

    noise: tuple[Noise, ...]
    noise_seed: Seed


@dataclass(frozen=True)
class Solver:
    """How step sizes are found (`compliant_descent`), and the most iterations for a curvature in W
    and V.
    """

    spare: Annotated[float, Interval("[0, 1]")]
    tolerance: Annotated[float, Interval("[1e-6, 1]")]
    n_checked: Annotated[int, Interval("[2, 1000]")]
    max_steps: Steps
    max_repeats: Annotated[int, Interval("[1, 100]")]
    lanczos_iterations: Annotated[int, Interval("[2, 200]")]


def main(section: str, solver: str, tasks: Path, tables: OutFolder) -> None:
    use_threads(1)
    params, solve = read_params(section, Descend), read_params(solver, Solver)
    rows = read_table(tasks, COLUMNS).to_dict("records")
    listed = read_as("a table of tasks", lambda _: tasks_by_name(rows), tasks).values()
    check_memory(section, max((memory(task, solve) for task in listed), default=0))
    both = [(task, noise) for task in listed if task.use == "both" for noise in params.noise]
    both.sort(
        key=lambda one: -one[0].n_tokens
    )  # the longest first, so that no process waits for one
    jobs = {
        "both": [(descend_both, task, noise, params.noise_seed, solve) for task, noise in both],
        "alone": [(descend_alone, task, solve) for task in listed if task.use == "alone"],
    }
    # Four numbers of every step of `both`; tables' own, also of each run in scratch. No bound on
    # steps is of use but `max_steps`: the theorem's `latest` needs the step size, which is found on
    # the way, and then is above 1e7 for every run of the committed params, whose longest takes
    # 5003. The memory wanted above is n_tokens² as much.
    of_runs = len(both) * 32 * solve.max_steps + 5000 * sum(map(len, jobs.values()))
    check_disk(tables, COPIES * (of_runs + 20_000), section)
    clear(tables, "*.parquet")
    tables.mkdir(parents=True, exist_ok=True)
    found = spread_cells(jobs, label=section, unit="run")
    for kind, name in (("alone", "alone"), ("both", "both"), ("both", "courses")):
        if found[kind]:
            write_table(joined(found[kind], name), tables / f"{name}.parquet")


def memory(task: Task, solve: Solver) -> int:
    """Bytes: the loss's curvature, with pairs of tokens, and every step, with its weights and
    gradients.
    """
    n_pairs = task.n_tokens**2
    return (
        task.memory * task.n_tokens // 2
        + 16 * solve.lanczos_iterations * n_pairs
        + solve.max_steps * 4 * 8 * n_pairs
    )


def descend(
    loss: PopulationLoss,
    start: Weights,
    names: tuple[str, ...],
    right: Callable[[Weights], bool],
    curvature: Callable[[Weights, float], float],
    solve: Solver,
) -> CompliantDescent:
    def of(step_size: float) -> Iterator[Step]:
        return gradient_descent(loss, start, dict.fromkeys(names, step_size))

    return compliant_descent(
        of,
        start,
        names,
        right,
        curvature,
        spare=solve.spare,
        tolerance=solve.tolerance,
        n_checked=solve.n_checked,
        max_steps=solve.max_steps,
        max_repeats=solve.max_repeats,
    )


def described(task: Task, found: CompliantDescent) -> dict[str, Any]:
    """The task of a descent, and what is to be said of its steps."""
    return {
        "task": task.name,
        "law": task.law,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
        "length": task.longest,
        "step_size": found.step_size,
        "n_steps": found.steps[-1].number,
        "failures": found.n_failures,
        "curvature_growth": found.largest / found.curvatures[0],
        "step_times_curvature": found.step_size * found.largest,
        "on_a_finer_grid": found.step_size * found.on_a_finer_grid,
    }


def descend_alone(task: Task, solve: Solver) -> Tables:
    """Part 1 by gradient descent: the descent lemma gives twice the flow's bound, over the step
    size.
    """
    loss = PopulationLoss(Rows.of(*task.classes), task.labels)
    P_min = rarest_conflict(task.counts, task.chances, task.place, task.lists)
    bound = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest)
    P = task.label_matrix

    def right(weights: Weights) -> bool:
        return bool(attention_margins(weights["W"], loss.rows).min() > 0)

    def curvature(weights: Weights, known: float) -> float:
        return loss.attention_curvature(weights)

    found = descend(
        loss, {"W": torch.zeros_like(P), "V": bound.scale * P}, ("W",), right, curvature, solve
    )
    certified = list_order_margin(
        found.steps[-1].weights["W"], task.lists, task.seq_len, repeats=False
    )
    limits = {"scale": bound.scale, "bound": 2 * bound.time / found.step_size}
    return {"alone": pd.DataFrame([described(task, found) | limits | {"margin": certified}])}


def descend_both(task: Task, noise: Noise, noise_seed: int, solve: Solver) -> Tables:
    """Part 2: W_0 = 0, V_0 within ε/2 of cP, until all is right: what is to be said of the run, and
    its course.
    """
    loss = PopulationLoss(Rows.of(*task.classes), task.labels)
    bound, residual, V_0 = start_of(task, noise, loss, noise_seed)
    P = task.label_matrix
    draw, near = (
        torch.randn(2 * P.numel(), generator=generator(0, "curvature"), dtype=torch.float64),
        None,
    )

    def right(weights: Weights) -> bool:
        return bool(loss.right(weights).all())

    def curvature(weights: Weights, known: float) -> float:
        nonlocal near
        value, near = largest_curvature(
            *loss.hessian(weights), draw, solve.lanczos_iterations, known, near
        )
        return value

    found = descend(loss, {"W": torch.zeros_like(P), "V": V_0}, ("W", "V"), right, curvature, solve)
    last, eta = found.steps[-1], found.step_size
    deviations = [float((s.weights["V"] - bound.scale * P).abs().max()) for s in found.steps]
    largest = max(found.largest, found.on_a_finer_grid)
    row = described(task, found) | {
        "noise": noise,
        "preconditions": bound.met(residual, deviations[0], eta, largest),
        "scale": bound.scale,
        "delta": bound.delta,
        "residual": residual,
        "L_0": bound.L_0,
        "epsilon": bound.epsilon,
        "earliest": bound.earliest / eta,
        "latest": bound.latest / eta,
        "margin": logit_margin(
            last.weights["W"],
            last.weights["V"],
            task.lists,
            task.permutation,
            task.seq_len,
            repeats=False,
        ),
        "start_deviation": deviations[0],
        "deviation": max(deviations),
        "V_moved": float((last.weights["V"] - V_0).abs().max()),
        "largest_attention": max(
            float(attention_rows(s.weights["W"], loss.rows).amax()) for s in found.steps
        )
        * task.seq_len,
    }
    looked = pd.Series(found.curvatures).ffill()  # where there was no look, the last
    course = {
        "step": [step.number for step in found.steps],
        "loss": [float(step.loss) for step in found.steps],
        "wrong": [1 - loss.accuracy(step.weights) for step in found.steps],
        "step_times_curvature": eta * looked,
    }
    return {
        "both": pd.DataFrame([row]),
        "courses": pd.DataFrame(course).assign(task=task.name, noise=noise),
    }


def start_of(
    task: Task, noise: Noise, loss: PopulationLoss, seed: int
) -> tuple[DescentBound, float, Tensor]:
    """The constants, the relative residual of c = 10 n² L_0 / δ + 4 ε n, and V_0.

    ε is that of the start without noise; with noise, L_0 is the loss that is measured, and c its
    fixed point.
    """
    plain = descent_bound(
        min(p for p in task.probability if p > 0), task.n_tokens, task.seq_len, task.longest
    )
    P = task.label_matrix
    offset, W_0 = torch.zeros_like(P), torch.zeros_like(P)
    if noise == "uniform":
        draw = torch.rand(
            P.shape, generator=generator(seed, "noise", task.name), dtype=torch.float64
        )
        offset = plain.epsilon / 2 * (2 * draw - 1)
    elif (
        noise == "adversarial"
    ):  # the steepest ascent of the loss within ε/2 an entry, until no sign changes
        for _ in range(FLIPS):
            _, gradients = loss({"W": W_0, "V": plain.scale * P + offset})
            signs = gradients["V"].sign() * (gradients["V"].abs() > ROUNDING)
            offset, before = plain.epsilon / 2 * signs, offset
            if torch.equal(offset, before):
                break

    def loss_at(scale: float) -> float:
        return float(loss({"W": W_0, "V": scale * P + offset})[0])

    bound, residual = with_noise(plain, loss_at, task.seq_len)
    return bound, residual, bound.scale * P + offset


if __name__ == "__main__":
    run(main)
