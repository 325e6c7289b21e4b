"""Train the one-layer Transformer for every configuration and seed; keep snapshots and losses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch

from lib.files.params import Count, Interval, Positive, Steps, read_cases, read_params
from lib.files.runs import clear_runs
from lib.low_rank_sparse.configurations import Configuration
from lib.low_rank_sparse.one_layer import Error, Neurons, SampleLoss, score
from lib.low_rank_sparse.patterns import permuted, read_patterns, stacked_epochs
from lib.low_rank_sparse.runs import chunks, initial_states, losses_of, write_configuration
from lib.low_rank_sparse.tables.trained import LOSSES
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, until_rest
from lib.work.cells import Course, Saved, joined, spread_cells
from lib.work.command import OutFile, OutFolder, run
from lib.work.progress import advance

Step = Annotated[int, Interval("[0, 1e6]")]


@dataclass(frozen=True)
class Train:
    """The params of all configurations; one may name another learning rate or number of steps."""

    device: Literal["cpu", "cuda"]
    seeds_together: Annotated[int, Interval("[1, 65536]")]
    n_neurons: Neurons
    init_scale: Positive
    value_error: Error
    query_key_error: Error
    batch_size: Count
    learning_rate: Positive
    n_steps: Steps
    snapshot_steps: tuple[Step, ...]  # besides 0 and the last
    fitted_loss: Positive

    def saved_steps(self, configuration: Configuration) -> list[int]:
        """The steps to save: the ones that were asked for, the first and the last."""
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
    data = read_patterns(dataset)
    for seed in {seed for way in ways for seed in way.seeds}:
        data.index(seed)  # which refuses a seed of no data
    clear_runs(runs)
    jobs = {
        way.name: [
            (train_chunk, dataset, params, chunk) for chunk in chunks(way, params.seeds_together)
        ]
        for way in ways
    }
    courses: dict[str, list[Course]] = spread_cells(
        jobs,
        device=params.device,
        label=section,
        unit="step",
        size=lambda dataset, params, way: way.n_steps * way.n_seeds,
    )
    for way in ways:
        write_configuration(runs, way, courses[way.name])
    tables = [course.tables for of_way in courses.values() for course in of_way]
    LOSSES.write(joined(tables, "losses"), losses)


def train_chunk(dataset: Path, params: Train, configuration: Configuration) -> Course:
    """Train some seeds together; give the states at the saved steps, and the loss of each batch.

    Training ends where no later step would move the weights: they are the states of all saved steps
    after that, and the losses of all later batches are zero.
    """
    device = use_device(params.device)
    seeds = configuration.seeds
    data = read_patterns(dataset)
    index = torch.tensor([data.index(seed) for seed in seeds])
    train = data.train[index].to(device)
    test = data.test[index].to(device)
    seq_len, d_model = train.tokens.shape[-2:]
    initial = initial_states(
        configuration,
        seq_len=seq_len,
        d_model=d_model,
        n_neurons=params.n_neurons,
        init_scale=params.init_scale,
        value_error=params.value_error,
        query_key_error=params.query_key_error,
    )
    weights = {name: W.to(device) for name, W in initial.items()}
    readout = weights.pop("readout")
    labels = train.labels
    if configuration.labels == "permuted":
        draws = [generator(seed, "permuted labels") for seed in seeds]
        labels = torch.stack([permuted(of, draw) for of, draw in zip(labels, draws, strict=True)])
    n_steps = configuration.n_steps
    losses = torch.zeros(n_steps, len(seeds), device=device)
    fitted = torch.full((len(seeds),), -1, device=device)
    states: list[Saved] = []

    def save(step: int) -> None:
        columns = {
            "loss": losses[step - 1] if step else torch.full_like(losses[0], torch.nan),
            "fitted_step": fitted,
            **score(weights, readout, test.tokens, test.labels, test.is_relevant),
        }
        rows = [
            {"step": step, "seed": seed} | {name: of[i].item() for name, of in columns.items()}
            for i, seed in enumerate(seeds)
        ]
        tensors = {name: W.cpu() for name, W in weights.items()}
        states.append((tensors | {"readout": readout.cpu()}, rows))

    loss = SampleLoss(readout, train.tokens, labels)
    n_samples = labels.shape[1]
    draws = [generator(seed, "order") for seed in seeds]
    feed = stacked_epochs(n_samples, params.batch_size, n_steps, draws)
    steps = gradient_descent(loss.gradient, weights, configuration.learning_rate, feed)
    saved_steps = params.saved_steps(configuration)
    save(0)
    n_done = 0
    for step in until_rest(steps, loss.at_rest, n_samples // params.batch_size):
        n_done = step.number + 1
        weights = step.after
        losses[step.number] = step.loss
        fitted = torch.where((fitted < 0) & (step.loss < params.fitted_loss), step.number, fitted)
        if n_done in saved_steps:
            save(n_done)
        advance(len(seeds))
    for later in saved_steps:
        if later > n_done:
            save(later)
    advance((n_steps - n_done) * len(seeds))
    return Course({"losses": losses_of(losses, configuration)}, states)


if __name__ == "__main__":
    run(main)
