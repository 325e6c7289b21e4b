"""Sweeps: grids of the values of one parameter or of two, and the problem at each point."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from lib.files.files import InputError
from lib.files.params import Count, Positive, Seeds, Steps, parse, read_cases
from lib.low_rank_sparse.configurations import named
from lib.low_rank_sparse.one_layer import Error, Neurons
from lib.low_rank_sparse.patterns import (
    PatternSizes,
    PatternTask,
    Size,
    Tokens,
    patterns_of_classes,
)

Row = dict[str, Any]
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
class Sweep(Seeds):
    """The values of one parameter, or of two, and what else differs from a configuration."""

    name: str
    configuration: str
    n_steps: Steps
    n_neurons: Neurons
    n_confusion: Tokens
    varies: Varied = "labels"
    outputs: Literal["one", "each"] = "one"  # one for two classes, or one for each class
    values: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    crossed: Varied | None = None
    crossed_values: tuple[float, ...] = ()
    full_batch: bool = False  # every batch is all samples
    permuted: bool = False  # the labels of the training samples: a null
    spectra: bool = True  # else the updates are neither cut nor decomposed

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
        """How the updates are looked at; the updates of a null are decomposed and not cut."""
        if not self.spectra:
            return ()
        if self.permuted:
            return ("spectra",)
        return ("cuts", "spectra", "nulls") if self.labels else ("cuts", "spectra")

    @property
    def points(self) -> Iterator[Row]:
        """The values of the parameters at each point of the grid; the last varies fastest.

        A whole number is an `int`, as schemas of counts want it, and 3.0 is one: a table of numbers
        has them all as floats.
        """
        values: dict[str, Sequence[Any]] = {self.varies: self.labels or self.values}
        if self.crossed:
            values[self.crossed] = self.crossed_values
        for chosen in product(*values.values()):
            yield dict(zip(values, map(_whole, chosen), strict=True))


@dataclass(frozen=True)
class Training:
    """The params that are read from the trainings' section, besides the device."""

    init_scale: Positive
    value_error: Error
    query_key_error: Error
    batch_size: Count
    learning_rate: Positive


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
        if len(self.labelled.patterns_of_classes) > 2 and self.n_outputs == 1:
            raise ValueError(
                f"outputs: wanted each, as there are more classes than two, {self.labels}, got one"
            )
        if self.batch_size > self.n_train:
            raise ValueError(
                f"batch_size: wanted at most n_train = {self.n_train}, got {self.batch_size}"
            )

    @property
    def labelled(self) -> PatternTask:
        """How its samples are made, with the patterns of its classes."""
        return self.task(patterns_of_classes(self.labels))


def read_sweeps(files: Sequence[Path], shared: Row) -> list[tuple[Sweep, str]]:
    """The sweeps of all tables, each with its table; names are distinct."""
    found: dict[str, tuple[Sweep, str]] = {}
    for file in files:
        for sweep in read_cases(file, Sweep, shared=shared):
            if sweep.name in found:
                raise InputError(f"{file}: wanted a sweep of its own, got {sweep.name!r} again")
            found[sweep.name] = (sweep, str(file))
    return list(found.values())


def problems(
    sweep: Sweep, base: Row, configurations: Mapping[str, Row], where: str
) -> Iterator[tuple[Row, Problem]]:
    """Yield the problem at each point of a sweep, with what tells it apart.

    `base` has the numbers that all problems share, `configurations` the numbers of each one.
    """
    where = f"{where}: sweep {sweep.name}"
    own = {
        "labels": "1|1",
        "n_steps": sweep.n_steps,
        "n_neurons": sweep.n_neurons,
        "n_confusion": sweep.n_confusion,
        "permuted": sweep.permuted,
    }
    of_configuration = named(configurations, sweep.configuration, where)
    for point in sweep.points:
        given = base | of_configuration | own | point
        if sweep.full_batch:
            given["batch_size"] = given["n_train"]
        given["n_outputs"] = 1 if sweep.outputs == "one" else str(given["labels"]).count("|") + 1
        problem = parse(given, Problem, where)
        varies_labels = sweep.varies == "labels"
        value = problem.labelled.n_discriminative if varies_labels else point[sweep.varies]
        yield {"sweep": sweep.name, "varies": sweep.varies, "value": float(value)}, problem


def _whole(value: float | str) -> int | float | str:
    return int(value) if isinstance(value, float) and value.is_integer() else value
