"""Train the one-layer Transformer for every configuration and seed; write snapshots and the loss of
each step.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.files.inputs import read_header
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Count, Interval, Name, Positive, Seeds, Steps, read_cases, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.files.tables import write_table
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    SampleLoss,
    initial_weights,
    random_readout,
    score,
    training_memory,
    weight_count,
)
from lib.low_rank_sparse.patterns import PATTERNS, Samples, permuted, read_patterns, stacked_epochs
from lib.training.attention import PRODUCTS
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, until_rest
from lib.work.cells import Course, Saved, joined, spread_cells
from lib.work.command import OutFile, OutFolder, run
from lib.work.progress import advance

Step = Annotated[int, Interval("[0, 1e6]")]
Error = Annotated[float, Interval("[0, 100]")]


@dataclass(frozen=True)
class Configuration(Seeds):
    """One way to train; `readout` is the reading of the paper's a_(l), `permuted` labels those of a
    null.
    """

    name: Name
    readout: Literal["tied", "untied"]
    learning_rate: Positive
    n_steps: Steps
    labels: Literal["given", "permuted"] = "given"


@dataclass(frozen=True)
class Train:
    """`learning_rate` and `n_steps` are those of configurations that name no others."""

    device: Literal["cpu", "cuda"]
    seeds_together: Annotated[int, Interval("[1, 65536]")]
    n_neurons: Annotated[int, Interval("[2, 1e9]")]
    init_scale: Positive
    value_error: Error
    query_key_error: Error
    batch_size: Count
    learning_rate: Positive
    n_steps: Steps
    snapshot_steps: tuple[Step, ...]
    fitted_loss: Positive

    def saved_steps(self, configuration: Configuration) -> list[int]:
        """The steps to save: those asked for, the first and the last."""
        n_steps = configuration.n_steps
        return sorted({0, n_steps, *(step for step in self.snapshot_steps if step < n_steps)})


def main(
    section: str,
    n_seeds: str,
    configurations: Path,
    dataset: Path,
    runs: OutFolder,
    losses: OutFile,
) -> None:
    params = read_params(section, Train)
    shared = {**vars(params), "n_seeds": read_params(n_seeds, int)}
    ways = read_cases(configurations, Configuration, shared=shared)
    use_device(params.device)
    n_saved = sum(way.n_seeds * len(params.saved_steps(way)) for way in ways)
    n_losses = sum(way.n_seeds * way.n_steps for way in ways)
    header = read_header(dataset, *PATTERNS)
    check_memory(section, training_memory(header, params.n_neurons, n_saved, n_losses))
    of_state = 4 * weight_count(header, params.n_neurons)
    check_disk(
        runs, COPIES * (n_saved * (of_state + 2000) + 24 * n_losses + 10_000 * len(ways)), section
    )
    jobs = {
        way.name: [
            (train_chunk, dataset, params, replace(way, first_seed=seeds[0], n_seeds=len(seeds)))
            for i in range(0, len(way.seeds), params.seeds_together)
            if (seeds := way.seeds[i : i + params.seeds_together])
        ]
        for way in ways
    }
    clear_runs(runs)
    parts: dict[str, list[Course]] = spread_cells(
        jobs,
        device=params.device,
        label=section,
        unit="step",
        size=lambda dataset, params, way: way.n_steps * way.n_seeds,
    )
    for configuration in ways:
        publish(runs, configuration, parts[configuration.name])
    write_table(joined([part.tables for of in parts.values() for part in of], "losses"), losses)


def train_chunk(dataset: Path, params: Train, configuration: Configuration) -> Course:
    """Train some seeds together, up to their rest: what comes after, up to the last step, is what
    they rest at.

    Weights and rows at each saved step, and the training loss before each step.
    """
    device, seeds = use_device(params.device), configuration.seeds
    try:
        data = read_patterns(dataset)
        index = torch.tensor([data.index(seed) for seed in seeds])
        train, test = data.train[index].to(device), data.test[index].to(device)
        n_samples = train.labels.shape[1]
        if params.batch_size > n_samples:
            raise ValueError(
                f"batch_size: wanted at most the {n_samples} samples, got {params.batch_size}"
            )
        weights = start(params, configuration, seeds, train)
    except ValueError as error:
        raise InputError(str(error)) from error
    weights = {name: tensor.to(device) for name, tensor in weights.items()}
    readout = weights.pop("readout")
    labels = train.labels
    if configuration.labels == "permuted":
        draws = [generator(seed, "permuted labels") for seed in seeds]
        labels = torch.stack([permuted(of, draw) for of, draw in zip(labels, draws, strict=True)])
    n_steps, saved = configuration.n_steps, params.saved_steps(configuration)
    losses = torch.zeros(n_steps, len(seeds), device=device)  # that of a training at rest
    fitted = torch.full((len(seeds),), -1, device=device)
    states: list[Saved] = []

    def save(step: int) -> None:
        measured = score(weights, readout, test.tokens, test.labels, test.is_relevant)
        loss = losses[step - 1] if step else torch.full_like(losses[0], torch.nan)
        columns = {"loss": loss, "fitted_step": fitted, **measured}
        rows = [
            {
                "step": step,
                "seed": seed,
                **{name: values[i].item() for name, values in columns.items()},
            }
            for i, seed in enumerate(seeds)
        ]
        states.append(
            ({name: W.cpu() for name, W in (weights | {"readout": readout}).items()}, rows)
        )

    def rest(step: int) -> None:
        """Nothing has moved since the last: the weights and what is measured of them are the same,
        the loss is zero.
        """
        kept, rows = states[-1]
        states.append((kept, [row | {"step": step, "loss": 0.0} for row in rows]))

    save(0)

    loss, draws = (
        SampleLoss(readout, train.tokens, labels),
        [generator(seed, "order") for seed in seeds],
    )
    feed = stacked_epochs(n_samples, params.batch_size, n_steps, draws)
    steps, number = gradient_descent(loss.gradient, weights, configuration.learning_rate, feed), 0
    for step in until_rest(steps, loss.at_rest, n_samples // params.batch_size):
        weights, number = step.after, step.number + 1
        losses[step.number] = step.loss
        fitted = torch.where((fitted < 0) & (step.loss < params.fitted_loss), step.number, fitted)
        if number in saved:
            save(number)
        advance(len(seeds))
    for i, later in enumerate(step for step in saved if step > number):
        rest(later) if i else save(later)
    advance((n_steps - number) * len(seeds))
    return Course({"losses": table_of(losses, configuration, seeds)}, states)


def table_of(losses: Tensor, configuration: Configuration, seeds: tuple[int, ...]) -> pd.DataFrame:
    """The training loss of each batch before its step, one row per step and seed."""
    columns = {"configuration": configuration.name, "step": range(len(losses))}
    return pd.concat(
        [
            pd.DataFrame({**columns, "seed": seed, "loss": losses[:, i].cpu().numpy()})
            for i, seed in enumerate(seeds)
        ]
    )


def start(
    params: Train, configuration: Configuration, seeds: tuple[int, ...], train: Samples
) -> dict[str, Tensor]:
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
        | {
            "readout": random_readout(
                configuration.readout, 1, seq_len, params.n_neurons, generator(seed, "readout")
            )
        }
        for seed in seeds
    ]
    return {name: torch.stack([weights[name] for weights in drawn]) for name in drawn[0]}


def publish(runs: Path, configuration: Configuration, parts: list[Course]) -> None:
    """Write all seeds of one configuration as one run."""
    names = {
        "configuration": configuration.name,
        "readout": configuration.readout,
        "labels": configuration.labels,
    }
    layout = Layout(
        family="low_rank_sparse",
        matrices={name: ["seed", *axes] for name, axes in MATRICES.items()},
        products=PRODUCTS,
        cell=names,
        seeds=list(configuration.seeds),
    )
    with write_run(runs, configuration.name, layout) as run:
        for chunks in zip(*(part.states for part in parts), strict=True):
            weights = {name: torch.cat([w[name] for w, _ in chunks]) for name in chunks[0][0]}
            run.add(weights, [row for _, rows in chunks for row in rows])


if __name__ == "__main__":
    run(main)
