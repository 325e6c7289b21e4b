"""Train the one-layer Transformer by SGD for every configuration and seed; write their snapshots."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from lib.data.patterns import Samples, epochs, read_patterns
from lib.dynamics.gradient_descent import gradient_descent
from lib.io.command import run
from lib.io.compute import advance, available_cores, generator, spread, use_device
from lib.io.files import InputError
from lib.io.params import Count, Interval, Name, Positive, Seeds, read_cases, read_params
from lib.io.runs import Layout, clear_runs, write_run
from lib.models.attention import PRODUCTS
from lib.models.one_layer_vit import MATRICES, initial_weights, loss_gradient, random_readout, score

Step = Annotated[int, Interval("[0, 1e6]")]
Error = Annotated[float, Interval("[0, 100]")]


@dataclass(frozen=True)
class Configuration(Seeds):
    """One way to train; `readout` is the reading of the paper's a_(l)."""

    name: Name
    readout: Literal["tied", "untied"]
    learning_rate: Positive
    n_steps: Annotated[int, Interval("[1, 1e6]")]


@dataclass(frozen=True)
class Train:
    device: Literal["cpu", "cuda"]
    seeds_together: Annotated[int, Interval("[1, 65536]")]
    n_neurons: Count
    init_scale: Positive
    value_error: Error
    query_key_error: Error
    batch_size: Count
    snapshot_steps: tuple[Step, ...]
    fitted_loss: Positive

    def saved_steps(self, configuration: Configuration) -> list[int]:
        """The steps to save: those asked for, the first and the last."""
        n_steps = configuration.n_steps
        return sorted({0, n_steps, *(step for step in self.snapshot_steps if step < n_steps)})


Snapshot = tuple[dict[str, Tensor], list[dict[str, Any]]]


def main(section: str, configurations: Path, dataset: Path, runs: Path) -> None:
    params, ways = read_params(section, Train), read_cases(configurations, Configuration)
    use_device(params.device)
    chunks = [
        (configuration, configuration.seeds[i : i + params.seeds_together])
        for configuration in ways
        for i in range(0, len(configuration.seeds), params.seeds_together)
    ]
    clear_runs(runs)
    trained = spread(
        train_chunk,
        [(dataset, params, configuration, seeds) for configuration, seeds in chunks],
        n_processes=1 if params.device == "cuda" else available_cores(),
        total=sum(configuration.n_steps * len(seeds) for configuration, seeds in chunks),
        label=section,
    )
    parts: dict[str, list[list[Snapshot]]] = {}
    for (configuration, _), snapshots in zip(chunks, trained, strict=True):
        parts.setdefault(configuration.name, []).append(snapshots)
    for configuration in ways:
        publish(runs, configuration, parts[configuration.name])


def train_chunk(dataset: Path, params: Train, configuration: Configuration, seeds: tuple[int, ...]) -> list[Snapshot]:
    """Train some seeds together: the weights at the saved steps, and what is measured of them on the test samples."""
    device = use_device(params.device)
    try:
        data = read_patterns(dataset)
        index = torch.tensor([data.index(seed) for seed in seeds])
        train, test = data.train[index].to(device), data.test[index].to(device)
        if params.batch_size > train.labels.shape[1]:
            raise ValueError(f"batch_size: wanted at most the {train.labels.shape[1]} samples, got {params.batch_size}")
        weights = start(params, configuration, seeds, train)
    except ValueError as error:
        raise InputError(str(error)) from error
    weights = {name: tensor.to(device) for name, tensor in weights.items()}
    readout = weights.pop("readout")
    feed = batches(train, params, configuration, seeds)
    saved = params.saved_steps(configuration)
    snapshots: list[Snapshot] = []
    loss, fitted = torch.full((len(seeds),), torch.nan, device=device), torch.full((len(seeds),), -1, device=device)

    def save(step: int) -> None:
        measured = score(weights, readout, test.tokens, test.labels, test.is_relevant)
        columns = {"loss": loss, "fitted_step": fitted, **measured}
        rows = [
            {"step": step, "seed": seed, **{name: values[i].item() for name, values in columns.items()}}
            for i, seed in enumerate(seeds)
        ]
        snapshots.append(({name: W.cpu() for name, W in (weights | {"readout": readout}).items()}, rows))

    save(0)

    def slope(weights: dict[str, Tensor], X: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        return loss_gradient(weights, readout, X, labels)

    for step in gradient_descent(slope, weights, configuration.learning_rate, feed):
        weights, loss = step.after, step.loss
        fitted = torch.where((fitted < 0) & (loss < params.fitted_loss), step.number, fitted)
        if step.number + 1 in saved:
            save(step.number + 1)
        advance(len(seeds))
    return snapshots


def start(params: Train, configuration: Configuration, seeds: tuple[int, ...], train: Samples) -> dict[str, Tensor]:
    """The initial weights and the fixed readout of some seeds, stacked."""
    seq_len, d_model = train.tokens.shape[-2:]
    drawn = [
        initial_weights(
            d_model,
            params.n_neurons,
            params.init_scale,
            generator(seed, "weights"),
            value_error=params.value_error,
            query_key_error=params.query_key_error,
        )
        | {"readout": random_readout(configuration.readout, 1, seq_len, params.n_neurons, generator(seed, "readout"))}
        for seed in seeds
    ]
    return {name: torch.stack([weights[name] for weights in drawn]) for name in drawn[0]}


def batches(
    train: Samples, params: Train, configuration: Configuration, seeds: tuple[int, ...]
) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of some seeds, stacked, each seed in its own order."""
    n_samples = train.labels.shape[1]
    orders = [epochs(n_samples, params.batch_size, configuration.n_steps, generator(seed, "order")) for seed in seeds]
    which = torch.arange(len(seeds), device=train.labels.device)[:, None]
    for chosen in zip(*orders, strict=True):
        index = torch.stack(chosen).to(train.labels.device)
        yield train.tokens[which, index], train.labels[which, index]


def publish(runs: Path, configuration: Configuration, chunks: list[list[Snapshot]]) -> None:
    """Write all seeds of one configuration as one run."""
    layout = Layout(
        family="low_rank_sparse",
        matrices={name: ["seed", *axes] for name, axes in MATRICES.items()},
        products=PRODUCTS,
        cell={"configuration": configuration.name, "readout": configuration.readout},
        seeds=list(configuration.seeds),
    )
    with write_run(runs, configuration.name, layout) as run:
        for parts in zip(*chunks, strict=True):
            weights = {name: torch.cat([w[name] for w, _ in parts]) for name in parts[0][0]}
            run.add(weights, [row for _, rows in parts for row in rows])


if __name__ == "__main__":
    run(main)
