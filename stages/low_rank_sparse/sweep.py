"""Train small models over grids of the data's and the training's parameters, and with other labels;
measure each.

A sweep varies one parameter of a configuration's training, at fewer neurons, and may cross it with
another. A labelling says how many label-relevant patterns each class has ("1|1|1": three classes of
one pattern, "2|2": two of two each). Beside trainings with other labellings stand nulls: the same
with permuted labels, updates in random directions, and Gaussian updates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd

from lib.files.files import InputError
from lib.files.memory import COPIES, check_disk
from lib.files.params import Count, Interval, Positive, Seeds, Steps, parse, read_cases, read_params
from lib.files.tables import write_table
from lib.low_rank_sparse.energy import around_each
from lib.low_rank_sparse.grids import CONFIGURATION, grid
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    SampleLoss,
    Weights,
    initial_weights,
    random_readout,
    scores,
)
from lib.low_rank_sparse.patterns import (
    PatternSizes,
    PatternTask,
    Size,
    Tokens,
    draw_patterns,
    epochs,
    patterns_of_classes,
    permuted,
)
from lib.low_rank_sparse.sparsity import norm_groups
from lib.matrices.low_rank import null_updates, truncated_models, update_spectra
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, last_and_fitted, until_rest
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFile, run

Error = Annotated[float, Interval("[0, 100]")]
Neurons = Annotated[int, Interval("[2, 1e9]")]
Row = dict[str, Any]
Scored = Callable[[Weights], dict[str, float]]
NULLS = {"in_random_directions": "random directions", "of_gaussian": "gaussian"}
Varied = Literal[
    "n_relevant",
    "n_confusion",
    "noise",
    "n_patterns",
    "n_train",
    "n_neurons",
    "init_scale",
    "value_error",
    "query_key_error",
    "batch_size",
    "learning_rate",
    "labels",
]


@dataclass(frozen=True)
class Training:
    """What is read of the trainings' section, besides the device."""

    init_scale: Positive
    value_error: Error
    query_key_error: Error
    batch_size: Count
    learning_rate: Positive


@dataclass(frozen=True)
class Configuration:  # what is read of it
    name: str
    readout: Literal["tied", "untied"]
    learning_rate: Positive


@dataclass(frozen=True)
class Sweep(Seeds):
    """The values of one parameter, or of two; what else differs from the training of a
    configuration.
    """

    name: str
    varies: Varied
    configuration: str
    n_steps: Steps
    n_neurons: Neurons
    n_confusion: Tokens
    outputs: Literal["one", "each"] = "one"  # one for two classes, or one for each class
    values: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    crossed: Varied | None = None
    crossed_values: tuple[float, ...] = ()
    full_batch: bool = False  # every batch is all samples
    # the labels of the training samples: a null, whose updates are decomposed and not cut
    permuted: bool = False
    spectra: bool = (
        True  # without, the model is scored and its updates are neither cut nor decomposed
    )

    def __post_init__(self) -> None:
        if bool(self.values) == bool(self.labels) or bool(self.labels) != (self.varies == "labels"):
            raise ValueError(
                f"values: wanted them, or labels where these vary, got {self.values} and "
                f"{self.labels}"
            )
        if bool(self.crossed_values) != (self.crossed is not None) or self.crossed in (
            "labels",
            self.varies,
        ):
            raise ValueError(
                f"crossed: wanted another number with values, got {self.crossed}, "
                f"{self.crossed_values}"
            )

    @property
    def looks(self) -> tuple[str, ...]:
        """How the updates are looked at; a training on permuted labels is a null itself, and cuts
        of it say nothing.
        """
        names = (
            ("spectra",)
            if self.permuted
            else ("cuts", "spectra", *(["nulls"] if self.labels else []))
        )
        return names if self.spectra else ()


@dataclass(frozen=True)
class Sweeps(
    Seeds
):  # shared by the sweeps that name no other; and the loss at which a training counts as fitted
    configuration: str
    n_steps: Steps
    n_neurons: Neurons
    fitted_loss: Positive


@dataclass(frozen=True)
class Problem(Training, PatternSizes):
    """Everything about one training but its seed."""

    labels: str
    permuted: bool
    n_outputs: Size
    readout: Literal["tied", "untied"]
    n_neurons: Neurons
    n_steps: Steps

    def __post_init__(self) -> None:
        if len(self.task().patterns_of_classes) > 2 and self.n_outputs == 1:
            raise ValueError(
                f"outputs: wanted each, as there are more classes than two, {self.labels}, got one"
            )
        if self.batch_size > self.n_train:
            raise ValueError(
                f"batch_size: wanted at most n_train = {self.n_train}, got {self.batch_size}"
            )

    @property
    def memory(self) -> int:
        """Bytes: the samples, their drawing, their attention and values, and the weights with their
        slopes.
        """
        samples = (
            (self.n_train + self.n_test)
            * self.seq_len
            * (20 * self.d_model + 4 * self.seq_len + 40)
        )
        return samples + 4 * self.n_neurons * (
            10 * self.d_model + 3 * self.n_outputs * self.seq_len
        )

    def task(self) -> PatternTask:
        """The data's part, `labels` read as numbers of patterns."""
        return PatternTask(**self.of_task, patterns_of_classes=patterns_of_classes(self.labels))


def main(
    section: str, data: str, training: str, configurations: Path, sweeps: Path, table: OutFile
) -> None:
    params, device = read_params(section, Sweeps), read_params(f"{training}.device", str)
    use_device(device)
    base = asdict(read_params(data, PatternSizes, part=True)) | asdict(
        read_params(training, Training, part=True)
    )
    known = read_cases(configurations, Configuration, columns=CONFIGURATION, shared=base)
    ways = {
        one.name: base | {"readout": one.readout, "learning_rate": one.learning_rate}
        for one in known
    }
    asked = [
        (labels, (problem, sweep.looks, *sweep.seeds))
        for sweep in read_cases(sweeps, Sweep, shared=base | asdict(params))
        for labels, problem in problems(sweep, ways, f"{sweeps}: sweep {sweep.name}")
    ]
    check_disk(table, COPIES * (20_000 + sum(written(*cell) for _, cell in asked)), section)
    cells = list(
        dict.fromkeys(cell for _, cell in asked)
    )  # where sweeps meet, the same problem is trained once
    jobs = [(measure, device, params.fitted_loss, *cell) for cell in cells]
    parts = spread_cells({"": jobs}, device=device, label=section, unit="problem")[""]
    found = {cell: part["trainings"] for cell, part in zip(cells, parts, strict=True)}
    named = [pd.DataFrame([labels] * len(found[cell])).join(found[cell]) for labels, cell in asked]
    write_table(pd.concat(named, ignore_index=True), table)


def problems(sweep: Sweep, ways: dict[str, Row], where: str) -> Iterator[tuple[Row, Problem]]:
    """The problem of each value of a sweep, or of each pair, with what tells it apart; `ways`: the
    configurations'.
    """
    if sweep.configuration not in ways:
        raise InputError(
            f"{where}: wanted a configuration of {list(ways)}, got {sweep.configuration!r}"
        )
    own = {
        name: getattr(sweep, name) for name in ("n_steps", "n_neurons", "n_confusion", "permuted")
    }
    values = {sweep.varies: sweep.labels or sweep.values}
    for chosen in grid(values | ({sweep.crossed: sweep.crossed_values} if sweep.crossed else {})):
        given = ways[sweep.configuration] | {"labels": "1|1"} | own | chosen
        given |= {"batch_size": given["n_train"]} if sweep.full_batch else {}
        n_outputs = 1 if sweep.outputs == "one" else str(given["labels"]).count("|") + 1
        problem = parse(given | {"n_outputs": n_outputs}, Problem, where)
        number = (
            problem.task().n_discriminative if sweep.varies == "labels" else chosen[sweep.varies]
        )
        yield {"sweep": sweep.name, "varies": sweep.varies, "value": float(number)}, problem


def written(problem: Problem, looks: Sequence[str], *seeds: int) -> int:
    """Bytes: some 60 numbers and the singular values of four matrices; a table of as many columns
    in scratch.
    """
    return len(seeds) * (500 + 4 * 8 * problem.d_model * ("spectra" in looks)) + 5000


def measure(
    device: str, fitted_loss: float, problem: Problem, looks: Sequence[str], *seeds: int
) -> Tables:
    """Train one problem from every seed, score the models, and look at their updates: one row per
    seed.
    """
    place, rows = use_device(device), []
    for seed in seeds:
        source = partial(generator, seed)
        _, train, test = draw_patterns(problem.task(), problem.n_train, problem.n_test, source)
        train, test = train.to(place), test.to(place)
        errors = {name: getattr(problem, name) for name in ("value_error", "query_key_error")}
        start = initial_weights(
            problem.d_model, problem.n_neurons, problem.init_scale, source("weights"), **errors
        )
        initial = {name: start[name].to(place) for name in MATRICES}
        shape = problem.n_outputs, problem.seq_len, problem.n_neurons
        readout = random_readout(problem.readout, *shape, source("readout")).to(place)
        feed = epochs(problem.n_train, problem.batch_size, problem.n_steps, source("order"))
        given = (
            permuted(train.labels, source("permuted labels")) if problem.permuted else train.labels
        )
        loss = SampleLoss(readout, train.tokens, given)
        steps = gradient_descent(
            loss.gradient, initial, problem.learning_rate, ((i.to(place),) for i in feed)
        )
        steps = until_rest(steps, loss.at_rest, problem.n_train // problem.batch_size)
        final, fitted = last_and_fitted(steps, initial, fitted_loss)
        scored = partial(
            scores, readout=readout, X=test.tokens, labels=test.labels, is_relevant=test.is_relevant
        )
        row = {"seed": seed, **asdict(problem), "fitted_step": fitted, **scored(final)}
        row |= look(initial, final, problem, looks, seed, scored)
        of = norm_groups(final["W_O"].norm(dim=1).cpu())
        rows.append(
            row
            | {
                "small_share": of["small_share"],
                "large_over_small": of["large_norm"] / of["small_norm"],
            }
        )
    return {"trainings": pd.DataFrame(rows)}


def look(
    initial: Weights,
    final: Weights,
    problem: Problem,
    looks: Sequence[str],
    seed: int,
    scored: Scored,
) -> Row:
    """What the updates are worth: the loss where they are cut, their spectra, and nulls of both.

    Cuts are to ranks around k, the number of label-relevant patterns, and of the attention, whose
    W_Q and W_K are then as they began; nulls those of a cut to rank k.
    """
    k, row = problem.task().n_discriminative, {}
    if "cuts" in looks:
        hinges = {
            rank: scored(cut)["hinge"]
            for rank, cut in truncated_models(final, initial, {2, k - 1, k}).items()
        }
        row |= {
            "hinge_at_rank_2": hinges[2],
            "hinge_at_rank_below": hinges[k - 1],
            "hinge_at_rank_k": hinges[k],
        }
        row["hinge_without_attention"] = scored(
            final | {name: initial[name] for name in ("W_Q", "W_K")}
        )["hinge"]
    if "spectra" in looks:
        row |= around_each(update_spectra(final, initial), k)
    if "nulls" in looks:
        nulls = null_updates(
            final, initial, k, lambda null, name: generator(seed, null, problem.labels, name)
        )
        of_gaussian = around_each(update_spectra(nulls["gaussian"], initial), k)
        kept = [f"{name}_{key}" for name in MATRICES for key in ("energy", "energy_2", "gap")]
        row |= {f"gaussian_{key}": of_gaussian[key] for key in kept}
        row |= {f"hinge_{name}": scored(nulls[null])["hinge"] for name, null in NULLS.items()}
    return row


if __name__ == "__main__":
    run(main)
