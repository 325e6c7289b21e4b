"""Train small models over grids of parameters, and with other labels; measure each.

A sweep varies one parameter of a configuration's training, at fewer neurons, and may cross it with
another. A labelling says how many label-relevant patterns each class has ("1|1|1": three classes of
one pattern, "2|2": two of two each). Beside trainings with other labellings stand nulls: the same
with permuted labels, and updates in random directions.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from lib.files.params import Positive, Seeds, Steps, read_cases, read_params
from lib.low_rank_sparse.configurations import COLUMNS
from lib.low_rank_sparse.one_layer import Neurons
from lib.low_rank_sparse.patterns import PatternSizes
from lib.low_rank_sparse.sweeps import Problem, Row, Training, problems, read_sweeps
from lib.low_rank_sparse.swept_models import measure_seed
from lib.low_rank_sparse.tables.swept import TRAININGS
from lib.training.devices import use_device
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Configuration:
    """The columns that are read from a configuration of the trainings."""

    name: str
    readout: Literal["tied", "untied"]
    learning_rate: Positive


@dataclass(frozen=True)
class Params(Seeds):
    """What holds for sweeps that name nothing else, and the loss below which a batch is fitted."""

    configuration: str
    n_steps: Steps
    n_neurons: Neurons
    fitted_loss: Positive


def main(
    section: str, data: str, training: str, configurations: Path, sweeps: list[Path], table: OutFile
) -> None:
    params = read_params(section, Params)
    device = read_params(f"{training}.device", str)
    use_device(device)
    base = asdict(read_params(data, PatternSizes, part=True))
    base |= asdict(read_params(training, Training, part=True))
    known = {
        one.name: {"readout": one.readout, "learning_rate": one.learning_rate}
        for one in read_cases(configurations, Configuration, columns=COLUMNS, shared=base)
    }
    asked: list[tuple[Row, tuple]] = []
    for sweep, where in read_sweeps(sweeps, base | asdict(params)):
        for labels, problem in problems(sweep, base, known, where):
            asked.append((labels, (problem, sweep.looks, *sweep.seeds)))
    cells = list(dict.fromkeys(cell for _, cell in asked))  # where sweeps meet, one training serves
    jobs = [(measure, device, params.fitted_loss, *cell) for cell in cells]
    parts = spread_cells({"": jobs}, device=device, label=section, unit="problem")[""]
    found = {cell: part["trainings"] for cell, part in zip(cells, parts, strict=True)}
    tables = [pd.DataFrame([labels] * len(found[cell])).join(found[cell]) for labels, cell in asked]
    TRAININGS.write(pd.concat(tables, ignore_index=True), table)


def measure(
    device: str, fitted_loss: float, problem: Problem, looks: Sequence[str], *seeds: int
) -> Tables:
    """Train one problem from every seed and measure each model, a row per seed."""
    rows = [measure_seed(device, fitted_loss, problem, looks, seed) for seed in seeds]
    return {"trainings": pd.DataFrame(rows)}


if __name__ == "__main__":
    run(main)
