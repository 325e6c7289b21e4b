r"""Train beyond the theorems: W and V together from many starts, V under uniform attention, controls, minibatches.

Gradient descent here takes steps of `step_per_token` · n_tokens: a column's gradient is of the order of 1 / n_tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.analysis.certificate import logit_margin
from lib.data.decision_lists import (
    Task,
    determining_tokens,
    label_matrix,
    random_lists,
    random_permutation,
    random_subsets,
)
from lib.dynamics.gradient_descent import Weights, gradient_descent
from lib.dynamics.sgd import State, saved_steps, sgd
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread_kinds, use_device, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Positive, Seed, read_params
from lib.io.runs import Layout, clear_runs, write_run
from lib.io.tables import read_table, write_table
from lib.models.list_attention import (
    PopulationLoss,
    Rows,
    attention_rows,
    logit_margins,
    row_losses,
    sequence_outputs,
)

Size = Annotated[int, Interval("[1, 4096]")]
Scale = Annotated[float, Interval("[0, 1e6]")]


@dataclass(frozen=True)
class Start:
    """W_0 and V_0: Gaussian, zero (scale 0), W in the reverse order of the lists, V a multiple of P or of a wrong P."""

    name: str
    W: Literal["gaussian", "reverse order"]
    W_scale: Scale
    V: Literal["gaussian", "P", "-P", "wrong P"]
    V_scale: Scale


@dataclass(frozen=True)
class Joint:
    groups: tuple[str, ...]
    init_scale: Positive
    seeds: tuple[Seed, ...]
    n_steps: Count


@dataclass(frozen=True)
class Starts:
    groups: tuple[str, ...]
    starts: tuple[Start, ...]
    seeds: tuple[Seed, ...]
    n_steps: Count


@dataclass(frozen=True)
class Alignment:
    groups: tuple[str, ...]
    n_steps: Count


@dataclass(frozen=True)
class Controls:
    """By Adam, on the exact loss: V = `scale` · P and W trained from 0, or V alone."""

    groups: tuple[str, ...]
    scale: Positive
    learning_rate: Positive
    n_steps: Count


@dataclass(frozen=True)
class Minibatch:
    n_tokens: Annotated[int, Interval("[2, 4096]")]
    seq_len: Size
    list_length: Size
    init_scale: Positive
    batch_size: Count
    learning_rate: Positive
    n_steps: Count
    certify_every: Count
    seeds: tuple[Seed, ...]


@dataclass(frozen=True)
class Train:
    device: Literal["cpu"]
    step_per_token: Positive
    every: Count
    joint: Joint
    starts: Starts
    alignment: Alignment
    controls: Controls
    minibatch: Minibatch

    def __post_init__(self) -> None:
        sizes = self.minibatch
        if max(sizes.seq_len, sizes.list_length) > sizes.n_tokens:
            raise ValueError(f"n_tokens: wanted at least seq_len and list_length, got {sizes.n_tokens}")


def main(section: str, tasks: Path, tables: Path, runs: Path) -> None:
    use_threads(1)
    params = read_params(section, Train)
    use_device(params.device)
    listed = [Task.from_row(row) for row in read_table(tasks).to_dict("records")]

    def of(groups: tuple[str, ...]) -> list[Task]:
        missing = set(groups) - {task.group for task in listed}
        if missing:
            raise InputError(f"{section}: wanted groups of {sorted({t.group for t in listed})}, got {sorted(missing)}")
        return [task for task in listed if task.group in groups]

    joint, starts = params.joint, params.starts
    gaussian = Start("small Gaussian", "gaussian", joint.init_scale, "gaussian", joint.init_scale)
    jobs = {
        "joint": [
            (train_both, task, gaussian, seed, joint.n_steps, True, params)
            for task in of(joint.groups)
            for seed in joint.seeds
        ],
        "starts": [
            (train_both, task, start, seed, starts.n_steps, False, params)
            for task in of(starts.groups)
            for start in starts.starts
            for seed in starts.seeds
        ],
        "alignment": [(align, task, params) for task in of(params.alignment.groups)],
        "controls": [(control, task, params) for task in of(params.controls.groups)],
        "minibatch": [(minibatch, seed, params) for seed in params.minibatch.seeds],
    }
    clear(tables, "*.parquet")
    clear_runs(runs)
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="run")
    states = iter([kept for _, kept in found["joint"]])
    for name in ("joint", "starts"):
        found[name] = [course for course, _ in found[name]]
    for name, parts in found.items():
        write_table(pd.concat(parts, ignore_index=True), tables / f"{name}.parquet")
    for task in of(joint.groups):
        publish(runs, task, joint, list(islice(states, len(joint.seeds))))


class Exact(PopulationLoss):
    """The exact population loss of a task, and what is measured of weights."""

    def __init__(self, task: Task):
        rows = Rows.of(task.counts, task.chances, *determining_tokens(task.counts, task.lists))
        super().__init__(rows, torch.tensor(task.permutation))
        self.task, self.P = task, label_matrix(task.permutation)

    def measured(self, weights: Weights) -> dict[str, float]:
        """Accuracy over the law, and how far V is along P: raw, and with the columns of both centred."""
        V, right = weights["V"], self.right(weights)
        alpha = attention_rows(weights["W"], self.rows)
        argmax = (V.argmax(0) == self.permutation).double().mean()
        return {
            "accuracy": float(self.rows.weight[right].sum()) if not bool(right.all()) else 1.0,
            "cosine": cosine(V, self.P),
            "centred_cosine": cosine(V - V.mean(0), self.P - self.P.mean(0)),
            "argmax_right": float(argmax),
            "attention_to_star": float(self.rows.weight @ alpha.gather(1, self.rows.star[:, None])[:, 0]),
        }

    def certified(self, weights: Weights, repeats: bool) -> bool:
        task = self.task
        margin = logit_margin(weights["W"], weights["V"], task.lists, task.permutation, task.seq_len, repeats)
        return margin > 0


def cosine(A: Tensor, B: Tensor) -> float:
    norms = float(A.norm() * B.norm())
    return float((A * B).sum()) / norms if norms else 0.0


def start_weights(task: Task, start: Start, seed: int) -> Weights:
    """W_0 and V_0."""
    L, draw = task.n_tokens, generator(seed, "start", task.name, start.name)
    W = start.W_scale * torch.randn(L, L, generator=draw, dtype=torch.float64)
    if start.W == "reverse order":
        W = torch.zeros(L, L, dtype=torch.float64)
        for a, entries in enumerate(task.lists):
            W[list(entries), a] = -start.W_scale * torch.arange(len(entries), 0, -1).double()
    if start.V == "gaussian":
        return {"W": W, "V": start.V_scale * torch.randn(L, L, generator=draw, dtype=torch.float64)}
    P = label_matrix(task.permutation)
    V = {"P": P, "-P": -P, "wrong P": P.roll(1, 0)}[start.V] * start.V_scale
    jitter = 0.01 * torch.randn(L, L, generator=draw, dtype=torch.float64)  # so that seeds differ
    return {"W": W, "V": V + jitter}


def train_both(
    task: Task, start: Start, seed: int, n_steps: int, whole: bool, params: Train
) -> tuple[pd.DataFrame, list[tuple[Weights, dict[str, float]]]]:
    """Descend on W and V; the course and the saved states. Unless `whole`, it ends when all is right."""
    exact, size = Exact(task), params.step_per_token * task.n_tokens
    saved = set(saved_steps(n_steps, n_steps)) if whole else set()
    rows, states = [], []
    for step in gradient_descent(exact, start_weights(task, start, seed), size):
        row = {"step": step.number, "loss": float(step.loss)}
        if step.number % params.every == 0 or step.number == n_steps:
            row |= exact.measured(step.weights)
            row["certified_sets"] = exact.certified(step.weights, repeats=False)
            row["certified_all"] = exact.certified(step.weights, repeats=True)
            row["gradient"] = float(torch.cat([g.flatten() for g in step.gradients.values()]).norm())
            rows.append(row)
        if step.number in saved:
            states.append((step.weights, {"step": step.number, "loss": float(step.loss)}))
        if step.number == n_steps or (not whole and rows[-1]["accuracy"] == 1.0):
            break
    table = pd.DataFrame(rows).assign(task=task.name, start=start.name, seed=seed, law=task.law)
    return table.assign(n_tokens=task.n_tokens, length=task.longest), states


def align(task: Task, params: Train) -> pd.DataFrame:
    """Descend on V from 0 with W = 0, uniform attention."""
    exact, size = Exact(task), params.step_per_token * task.n_tokens
    zero = torch.zeros(task.n_tokens, task.n_tokens, dtype=torch.float64)
    kept = set(saved_steps(params.alignment.n_steps, params.alignment.n_steps))
    rows = []
    for step in gradient_descent(exact, {"W": zero, "V": zero}, {"V": size}):
        if step.number in kept and step.number:
            rows.append({"step": step.number, "loss": float(step.loss), **exact.measured(step.weights)})
        if step.number == params.alignment.n_steps:
            break
    return pd.DataFrame(rows).assign(task=task.name, law=task.law, length=task.longest, repeats=task.repeats)


def control(task: Task, params: Train) -> pd.DataFrame:
    """What must fail beside what must not: accuracy over all sequences of the law."""
    exact, settings = Exact(task), params.controls
    rows, permutation, lists = exact.rows, exact.permutation, task.lists
    zero = torch.zeros_like(exact.P)
    cP = settings.scale * exact.P
    tokens = torch.nonzero(task.counts)[:, 1].view(-1, task.seq_len)
    star = determining_tokens(task.counts, lists)[0]
    labels = permutation[star.gather(1, tokens)]

    def trained(loss: Callable[[Weights], Tensor], start: Weights) -> Weights:
        states = sgd(
            loss, State(0, start), repeat(()), settings.n_steps,
            optimizer="adam", learning_rate=settings.learning_rate, warmup_steps=0,
        )  # fmt: skip
        last = start
        for state in states:
            last = state.weights
        return {name: weight.detach() for name, weight in last.items()}

    def population(rows: Rows) -> Callable[[Weights], Tensor]:
        return lambda weights: rows.weight @ row_losses(weights["W"], weights.get("V", cP), rows, permutation)

    def literal(attend_over: Literal["keys", "queries"]) -> float:
        def outputs(weights: Weights) -> Tensor:
            return sequence_outputs(tokens, weights["W"], cP, attend_over)

        def loss(weights: Weights) -> Tensor:
            right = outputs(weights).gather(1, labels[:, None])[:, 0]
            return -(task.chances @ right.mean(1))

        out = outputs(trained(loss, {"W": zero}))
        return float(task.chances @ (out.argmax(1) == labels).double().mean(1))

    def accuracy(weights: Weights, rows: Rows = rows) -> float:
        right = (
            exact.right({"V": cP, **weights})
            if rows is exact.rows
            else (logit_margins(weights["W"], cP, rows, permutation) > 0)
        )
        return float(rows.weight[right].sum() / rows.weight.sum())

    W = trained(population(rows), {"W": zero})["W"]
    with_head = rows.only(rows.place == 1)
    from_heads = trained(population(with_head), {"W": zero})
    best = trained(lambda weights: population(rows)({"W": zero, **weights}), {"V": zero})
    found = {
        "trained": accuracy({"W": W}),
        "trained on sequences": literal("keys"),
        "W transposed": accuracy({"W": W.T.contiguous()}),
        "softmax over queries": literal("queries"),
        "only rows whose head is present": accuracy(from_heads),
        "the same, on those rows": accuracy(from_heads, with_head),
        "W = 0 with the best V": accuracy({"W": zero, **best}),
    }
    return pd.DataFrame([{"task": task.name, "control": name, "accuracy": value} for name, value in found.items()])


def minibatch(seed: int, params: Train) -> pd.DataFrame:
    """Stochastic gradient descent on W and V from a small random start, each batch of fresh uniform subsets."""
    settings = params.minibatch
    L, n = settings.n_tokens, settings.seq_len
    draw = generator(seed, "minibatch")
    lists = random_lists(L, settings.list_length, draw)
    permutation = random_permutation(L, draw)
    labels = torch.tensor(permutation)
    start = {name: settings.init_scale * torch.randn(L, L, generator=draw, dtype=torch.float64) for name in ("W", "V")}

    def batches() -> Iterator[tuple[Tensor]]:
        while True:
            yield (random_subsets(L, n, settings.batch_size, draw),)

    def loss(weights: Weights, counts: Tensor) -> Tensor:
        chance = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
        rows = Rows.of(counts, chance, *determining_tokens(counts, lists))
        return rows.weight @ row_losses(weights["W"], weights["V"], rows, labels)

    found = []
    states = sgd(
        loss, State(0, start), batches(), settings.n_steps,
        optimizer="sgd", learning_rate=settings.learning_rate, warmup_steps=0,
    )  # fmt: skip
    for state in states:
        if state.step % settings.certify_every == 0 or state.step == settings.n_steps:
            W, V = (state.weights[name].detach() for name in ("W", "V"))
            row = {"step": state.step, "loss": float(state.loss)}
            for name, repeats in (("certified_sets", False), ("certified_all", True)):
                row[name] = logit_margin(W, V, lists, permutation, n, repeats) > 0
            found.append(row)
    return pd.DataFrame(found).assign(seed=seed)


def publish(runs: Path, task: Task, joint: Joint, courses: list[list[tuple[Weights, dict[str, float]]]]) -> None:
    """Write the runs of one task, stacked over the seeds."""
    layout = Layout(
        family="decision_lists",
        matrices={name: ["seed", "row", "col"] for name in ("W", "V")},
        gauge={"W": "column shift"},
        cell={"task": task.name, "group": task.group, "law": task.law, "init_scale": joint.init_scale},
        seeds=list(joint.seeds),
    )
    with write_run(runs, task.name, layout) as writer:
        for states in zip(*courses, strict=True):
            weights = {name: torch.stack([state[name] for state, _ in states]) for name in ("W", "V")}
            writer.add(weights, [{"seed": s, **row} for s, (_, row) in zip(joint.seeds, states, strict=True)])


if __name__ == "__main__":
    run(main)
