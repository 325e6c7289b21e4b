"""Train small models over grids of the data's and the training's parameters, and with other labels; measure each.

A sweep varies one parameter of a configuration's training on the data's sizes, at fewer neurons. A labelling says how
many label-relevant patterns each class has ("1|1|1": three classes of one pattern, "2|2": two of two patterns each).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from torch import Tensor

from lib.analysis.energy import leading_energy, nuclear_tail
from lib.analysis.low_rank import truncated_updates
from lib.analysis.sparsity import norm_groups
from lib.analysis.spectra import singular_values
from lib.data.patterns import PatternTask, Samples, draw_samples, epochs, orthonormal_patterns
from lib.dynamics.gradient_descent import gradient_descent
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_device
from lib.io.files import InputError
from lib.io.params import Count, Interval, Positive, Seeds, parse, read_cases, read_params
from lib.io.tables import write_table
from lib.models.one_layer_vit import MATRICES, Weights, initial_weights, loss_gradient, random_readout, score

Size = Annotated[int, Interval("[1, 16384]")]
Tokens = Annotated[int, Interval("[0, 16384]")]
Steps = Annotated[int, Interval("[1, 1e6]")]


@dataclass(frozen=True)
class Data:
    """What is read of the section of the data."""

    n_train: Count
    n_test: Count
    d_model: Size
    n_patterns: Size
    seq_len: Size
    n_relevant: Size
    n_confusion: Tokens
    noise: Annotated[float, Interval("[0, 100]")]


@dataclass(frozen=True)
class Training:
    """What is read of the trainings' section."""

    device: Literal["cpu", "cuda"]
    init_scale: Positive
    batch_size: Count


@dataclass(frozen=True)
class Configuration:
    """What is read of a configuration of the trainings."""

    name: str
    readout: Literal["tied", "untied"]
    learning_rate: Positive


@dataclass(frozen=True)
class Sweep(Seeds):
    """The values of one parameter; what else differs from the training of a configuration."""

    name: str
    varies: Literal["n_relevant", "n_confusion", "noise", "n_patterns", "n_neurons", "learning_rate", "labels"]
    configuration: str
    outputs: Literal["one", "each"]  # one output for two classes, or one for each class
    n_steps: Steps
    values: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    n_confusion: Tokens | None = None
    n_neurons: Count | None = None

    def __post_init__(self) -> None:
        if bool(self.values) == bool(self.labels) or bool(self.labels) != (self.varies == "labels"):
            raise ValueError(f"values: wanted them, or labels where these vary, got {self.values} and {self.labels}")


@dataclass(frozen=True)
class Sweeps:
    n_neurons: Count
    fitted_loss: Positive


@dataclass(frozen=True)
class Problem(Data):
    """Everything about one training but its seed."""

    labels: str
    n_outputs: Size
    readout: Literal["tied", "untied"]
    n_neurons: Count
    init_scale: Positive
    batch_size: Count
    learning_rate: Positive
    n_steps: Steps

    def __post_init__(self) -> None:
        n_classes = len(self.task().patterns_of_classes)
        if self.n_outputs == 1 and n_classes > 2:
            raise ValueError(f"outputs: wanted each, as there are more classes than two, {self.labels}, got one")
        if self.batch_size > self.n_train:
            raise ValueError(f"batch_size: wanted at most n_train = {self.n_train}, got {self.batch_size}")

    def task(self) -> PatternTask:
        """The data's part, `labels` read as numbers of patterns."""
        names = ("d_model", "n_patterns", "seq_len", "n_relevant", "n_confusion", "noise")
        known = {name: getattr(self, name) for name in names}
        return PatternTask(**known, patterns_of_classes=patterns_of_classes(self.labels))


def patterns_of_classes(labels: str) -> tuple[int, ...]:
    """How many label-relevant patterns each class has."""
    try:
        return tuple(int(part) for part in labels.split("|"))
    except ValueError as error:
        raise ValueError(f"labels: wanted numbers of patterns such as 1|1, got {labels!r}") from error


def main(section: str, data: str, training: str, configurations: Path, sweeps: Path, table: Path) -> None:
    params = read_params(section, Sweeps)
    trained = read_params(training, Training, part=True)
    base = asdict(read_params(data, Data, part=True)) | asdict(trained) | {"n_neurons": params.n_neurons}
    del base["device"]
    ways = {one.name: one for one in read_cases(configurations, Configuration, part=True)}
    cells = []
    for sweep in read_cases(sweeps, Sweep):
        where = f"{sweeps}: sweep {sweep.name}"
        if sweep.configuration not in ways:
            raise InputError(f"{where}: wanted a configuration of {list(ways)}, got {sweep.configuration!r}")
        for labels, problem in problems(sweep, base, ways[sweep.configuration], where):
            cells += [(trained.device, params.fitted_loss, labels, problem, seed) for seed in sweep.seeds]
    use_device(trained.device)
    rows = spread(
        measure_cell,
        cells,
        n_processes=1 if trained.device == "cuda" else available_cores(),
        label=section,
        unit="training",
    )
    write_table(pd.DataFrame(list(rows)), table)


def problems(sweep: Sweep, base: dict[str, Any], way: Configuration, where: str) -> Iterator[tuple[dict, Problem]]:
    """The problem of each value of a sweep, with what tells it apart."""
    own = {"labels": "1|1", "readout": way.readout, "learning_rate": way.learning_rate, "n_steps": sweep.n_steps}
    own |= {name: value for name in ("n_confusion", "n_neurons") if (value := getattr(sweep, name)) is not None}
    for value in sweep.labels or [int(value) if value == int(value) else value for value in sweep.values]:
        given = base | own | {sweep.varies: value}
        n_outputs = 1 if sweep.outputs == "one" else str(given["labels"]).count("|") + 1
        problem = parse(given | {"n_outputs": n_outputs}, Problem, where)
        number = problem.task().n_discriminative if sweep.varies == "labels" else value
        yield {"sweep": sweep.name, "varies": sweep.varies, "value": float(number)}, problem


def measure_cell(device_name: str, fitted_loss: float, labels: dict[str, Any], problem: Problem, seed: int) -> dict:
    """Train one problem from one seed; a row of what came of it."""
    device = use_device(device_name)
    task = problem.task()
    mu = orthonormal_patterns(task, generator(seed, "patterns"))
    train = draw_samples(task, mu, problem.n_train, generator(seed, "train")).to(device)
    test = draw_samples(task, mu, problem.n_test, generator(seed, "test")).to(device)
    initial = initial_weights(problem.d_model, problem.n_neurons, problem.init_scale, generator(seed, "weights"))
    initial = {name: W.to(device) for name, W in initial.items()}
    source = generator(seed, "readout")
    readout = random_readout(problem.readout, problem.n_outputs, problem.seq_len, problem.n_neurons, source).to(device)
    feed = epochs(problem.n_train, problem.batch_size, problem.n_steps, generator(seed, "order"))
    final, fitted = initial, -1

    def slope(weights: Weights, index: Tensor) -> tuple[Tensor, Weights]:
        index = index.to(device)
        return loss_gradient(weights, readout, train.tokens[index], train.labels[index])

    for step in gradient_descent(slope, initial, problem.learning_rate, ((i,) for i in feed)):
        final = step.after
        if fitted < 0 and step.loss < fitted_loss:
            fitted = step.number
    row = {**labels, "seed": seed, **asdict(problem), "fitted_step": fitted}
    row |= measured(initial, final, readout, test, task.n_discriminative)
    return row | {"small_share": norm_groups(final["W_O"].norm(dim=1).cpu())["small_share"]}


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
        row |= {
            f"{name}_energy": leading_energy(sigma, k).item(),
            f"{name}_energy_2": leading_energy(sigma, 2).item(),
            f"{name}_nuclear_tail": nuclear_tail(sigma, k).item(),
            f"{name}_gap": (sigma[k] / sigma[k - 1]).item() if sigma[0] else float("nan"),
            f"{name}_gap_2": (sigma[2] / sigma[1]).item() if sigma[0] else float("nan"),
            f"{name}_next": sigma[k].item(),
            f"{name}_tail": (sigma[k:].square().sum().sqrt() / sigma.square().sum().sqrt()).item(),
            f"{name}_singular_values": sigma.numpy(),
        }
    return row


if __name__ == "__main__":
    run(main)
