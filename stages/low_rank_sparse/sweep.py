"""Train small models over grids of the data's and the training's parameters, and with other labels; measure each.

A sweep varies one parameter of the base problem. A labelling says how many label-relevant patterns each class has
("1|1|1": three classes of one pattern, with an output each; "2|2" with one output: two classes of two patterns each).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from torch import Tensor

from lib.analysis.low_rank import truncated_updates
from lib.analysis.sparsity import otsu_threshold
from lib.analysis.spectra import singular_values
from lib.analysis.subspaces import leading_energy, nuclear_tail
from lib.data.patterns import PatternTask, Samples, draw_samples, epochs, orthonormal_patterns
from lib.dynamics.gradient_descent import gradient_descent
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_device
from lib.io.params import Count, Interval, Positive, Seed, read_params
from lib.io.tables import write_table
from lib.models.one_layer_vit import (
    MATRICES,
    Readout,
    Weights,
    initial_weights,
    loss_gradient,
    random_readout,
    score,
)

Size = Annotated[int, Interval("[1, 16384]")]
Tokens = Annotated[int, Interval("[0, 16384]")]
Varied = Literal["n_relevant", "n_confusion", "noise", "n_patterns", "n_neurons", "learning_rate"]


@dataclass(frozen=True)
class Problem:
    """Everything about one training but its seed."""

    n_train: Count
    n_test: Count
    d_model: Size
    n_patterns: Size
    seq_len: Size
    n_relevant: Size
    n_confusion: Tokens
    noise: Annotated[float, Interval("[0, 100]")]
    labels: str
    n_outputs: Size
    readout: Literal["tied", "untied"]
    n_neurons: Count
    init_scale: Positive
    batch_size: Count
    learning_rate: Positive
    n_steps: Annotated[int, Interval("[1, 1e6]")]

    def check(self) -> None:
        """Raise `ValueError` where there is no such problem."""
        task = self.task()
        if self.n_outputs not in (1, len(task.patterns_of_classes)) or (
            self.n_outputs == 1 and len(task.patterns_of_classes) > 2
        ):
            raise ValueError(
                f"n_outputs: wanted one for each class of {self.labels}, or 1 for two, got {self.n_outputs}"
            )
        if self.batch_size > self.n_train:
            raise ValueError(f"batch_size: wanted at most n_train = {self.n_train}, got {self.batch_size}")

    def task(self) -> PatternTask:
        """The data's part, `labels` read as numbers of patterns."""
        try:
            classes = tuple(int(part) for part in self.labels.split("|"))
        except ValueError as error:
            raise ValueError(f"labels: wanted numbers of patterns such as 1|1, got {self.labels!r}") from error
        names = ("d_model", "n_patterns", "seq_len", "n_relevant", "n_confusion", "noise")
        return PatternTask(**{name: getattr(self, name) for name in names}, patterns_of_classes=classes)


@dataclass(frozen=True)
class Sweep:
    """The values of one parameter; what else differs from the base problem."""

    name: str
    varies: Varied
    values: tuple[float, ...]
    n_seeds: Count
    n_steps: Annotated[int, Interval("[1, 1e6]")]
    n_confusion: Tokens | None = None

    def problems(self, base: Problem) -> list[tuple[dict[str, Any], Problem]]:
        """The problem of each value, with what tells it apart."""
        changed = replace(base, n_steps=self.n_steps)
        if self.n_confusion is not None:
            changed = replace(changed, n_confusion=self.n_confusion)
        whole = isinstance(getattr(base, self.varies), int)
        if whole and any(value != int(value) for value in self.values):
            raise ValueError(f"values: wanted whole numbers for {self.varies}, got {self.values}")
        return [
            ({"sweep": self.name, "varies": self.varies, "value": float(value)},
             replace(changed, **{self.varies: int(value) if whole else value}))
            for value in self.values
        ]  # fmt: skip


@dataclass(frozen=True)
class Labelling:
    """Another labelling; what else differs from the base problem."""

    labels: str
    n_outputs: Size
    readout: Literal["tied", "untied"]
    learning_rate: Positive
    n_seeds: Count
    n_steps: Annotated[int, Interval("[1, 1e6]")]

    def problem(self, base: Problem, n_neurons: int) -> tuple[dict[str, Any], Problem]:
        """The problem, with what tells it apart."""
        own = {key: value for key, value in asdict(self).items() if key != "n_seeds"}
        changed = replace(base, n_neurons=n_neurons, **own)
        name = f"{self.labels} {self.readout} {'one output' if self.n_outputs == 1 else 'an output a class'}"
        return {"sweep": "labels", "varies": name, "value": float(changed.task().n_discriminative)}, changed


@dataclass(frozen=True)
class Sweeps:
    device: Literal["cpu", "cuda"]
    seeds: tuple[Seed, ...]
    base: Problem
    sweeps: tuple[Sweep, ...]
    labellings: tuple[Labelling, ...]
    n_neurons_of_labellings: Count
    fitted_loss: Positive

    def __post_init__(self) -> None:
        most = max((item.n_seeds for item in (*self.sweeps, *self.labellings)), default=0)
        if most > len(self.seeds):
            raise ValueError(f"seeds: wanted at least the n_seeds of every sweep, {most}, got {len(self.seeds)}")
        for _, problem, _ in self.cells():
            problem.check()

    def cells(self) -> Iterator[tuple[dict[str, Any], Problem, int]]:
        """Every training: what it is, its problem, its seed."""
        for sweep in self.sweeps:
            for labels, problem in sweep.problems(self.base):
                for seed in self.seeds[: sweep.n_seeds]:
                    yield labels, problem, seed
        for labelling in self.labellings:
            labels, problem = labelling.problem(self.base, self.n_neurons_of_labellings)
            for seed in self.seeds[: labelling.n_seeds]:
                yield labels, problem, seed


def main(section: str, table: Path) -> None:
    params = read_params(section, Sweeps)
    use_device(params.device)
    cells = list(params.cells())
    rows = spread(
        measure_cell,
        [(params, *cell) for cell in cells],
        n_processes=1 if params.device == "cuda" else available_cores(),
        label=section,
        unit="training",
    )
    write_table(pd.DataFrame(list(rows)), table)


def measure_cell(params: Sweeps, labels: dict[str, Any], problem: Problem, seed: int) -> dict[str, Any]:
    """Train one problem from one seed; a row of what came of it."""
    device = use_device(params.device)
    task = problem.task()
    mu = orthonormal_patterns(task, generator(seed, "patterns"))
    train = draw_samples(task, mu, problem.n_train, generator(seed, "train")).to(device)
    test = draw_samples(task, mu, problem.n_test, generator(seed, "test")).to(device)
    initial = initial_weights(problem.d_model, problem.n_neurons, problem.init_scale, generator(seed, "weights"))
    initial = {name: W.to(device) for name, W in initial.items()}
    kind: Readout = problem.readout
    source = generator(seed, "readout")
    readout = random_readout(kind, problem.n_outputs, problem.seq_len, problem.n_neurons, source).to(device)
    feed = epochs(problem.n_train, problem.batch_size, problem.n_steps, generator(seed, "order"))
    final, fitted = initial, -1

    def slope(weights: Weights, index: Tensor) -> tuple[Tensor, Weights]:
        index = index.to(device)
        return loss_gradient(weights, readout, train.tokens[index], train.labels[index])

    for step in gradient_descent(slope, initial, problem.learning_rate, ((i,) for i in feed)):
        final = step.after
        if fitted < 0 and step.loss < params.fitted_loss:
            fitted = step.number
    row = {**labels, "seed": seed, **asdict(problem), "fitted_step": fitted}
    return row | measured(initial, final, readout, test, task.n_discriminative) | neurons(final)


def measured(initial: Weights, final: Weights, readout: Tensor, test: Samples, k: int) -> dict[str, Any]:
    """The model on test samples, also with updates cut to ranks around k, and the spectra of its updates.

    k is the number of label-relevant patterns: `energy` is e_k, `gap` σ_{k+1} / σ_k, `next` σ_{k+1}.
    """

    def scored(weights: Weights) -> dict[str, float]:
        found = score(weights, readout, test.tokens, test.labels, test.is_relevant)
        return {name: value.item() for name, value in found.items()}

    row: dict[str, Any] = scored(final)
    ranks = {"rank_2": 2, "rank_below": k - 1, "rank_k": k}
    cut = {name: dict(truncated_updates(final[name], initial[name], sorted(set(ranks.values())))) for name in MATRICES}
    hinges = {r: scored({name: cut[name][r] for name in MATRICES})["hinge"] for r in set(ranks.values())}
    row |= {f"hinge_at_{key}": hinges[rank] for key, rank in ranks.items()}
    row["hinge_without_attention"] = scored(final | {name: initial[name] for name in ("W_Q", "W_K")})["hinge"]
    for name in MATRICES:
        sigma = singular_values(final[name].cpu().double() - initial[name].cpu().double())
        largest = sigma[0].item()
        row |= {
            f"{name}_energy": leading_energy(sigma, k).item(),
            f"{name}_energy_2": leading_energy(sigma, 2).item(),
            f"{name}_nuclear_tail": nuclear_tail(sigma, k).item(),
            f"{name}_gap": (sigma[k] / sigma[k - 1]).item() if largest else float("nan"),
            f"{name}_gap_2": (sigma[2] / sigma[1]).item() if largest else float("nan"),
            f"{name}_next": sigma[k].item(),
            f"{name}_tail": (sigma[k:].square().sum().sqrt() / sigma.square().sum().sqrt()).item(),
            f"{name}_singular_values": sigma.numpy(),
        }
    return row


def neurons(final: Weights) -> dict[str, float]:
    """How the norms of the neurons part."""
    norms = final["W_O"].norm(dim=1).cpu()
    large = norms > otsu_threshold(norms)
    return {
        "small_share": 1 - large.double().mean().item(),
        "large_over_small": (norms[large].mean() / norms[~large].mean()).item(),
    }


if __name__ == "__main__":
    run(main)
