"""How many samples are needed, against α*: `python -m published.samples.run`.

A share α* of the 40 tokens of a sample is label-relevant, and none or one is a confusion token.
From each seed a model trains at every number of samples of a grid that begins at 2, one of each
class, and goes up by a factor of some √2; all samples are one batch, as in the sweep `samples` of
the pipeline. The number needed is where the test hinge loss, made falling, passes the threshold of
`low_rank_sparse.evaluate`. Nulls have W_Q and W_K as they began.

Tables, a figure, measures and where they come from are kept beside this program; claims and report
read them. It takes a minute and a half of two CPU cores.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.files.params import parse, read_params
from lib.files.tables import compact, read_table, write_table
from lib.low_rank_sparse.figures.samples import samples_against_share
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    SampleLoss,
    initial_weights,
    numbers,
    random_readout,
    score,
)
from lib.low_rank_sparse.patterns import PatternSizes, draw_patterns
from lib.low_rank_sparse.samples import local_exponents, numbers_of_falling_losses
from lib.low_rank_sparse.sweeps import Problem, Training
from lib.pages.bars import read_bars
from lib.pages.measures import read_measures, rows_of, setup_rows, write_measures
from lib.pages.style import as_svg
from lib.training.devices import generator, use_threads
from lib.training.gradient_descent import gradient_descent, last_and_fitted, until_rest
from lib.work.cells import joined, spread_cells
from lib.work.command import run
from lib.work.compute import write_figures
from tools.publish import write_provenance

OUT = Path("published/samples")
CLAIMS = Path(__file__).parents[2] / "stages/low_rank_sparse/claims.yaml"  # whose bar is drawn
COMMAND = "python -m published.samples.run"
HEADLINES = {"whole_exponent_alone": ("whole_exponent", "alone")}
GRID = (2, 4, 6, 8, 12, 16, 22, 32, 46, 64, 90, 128, 180, 256)
# By the number of confusion tokens and of label-relevant tokens, the largest number of samples.
LARGEST = {
    0: {1: 128, 2: 90, 3: 64, 4: 64, 6: 46, 8: 32},
    1: {3: 90, 4: 90, 5: 64, 6: 46, 8: 32, 10: 22},
}
# The same for the nulls, at the ends of what a claim compares.
LARGEST_NULL = {0: {2: 180, 8: 46}, 1: {6: 64, 10: 32}}
NAMES = {0: "alone", 1: "confused"}
OWN = {"labels": "1|1", "permuted": False, "n_outputs": 1, "readout": "tied", "n_neurons": 100}
N_STEPS = 400


def main(n_seeds: int = 8) -> None:
    use_threads(1)
    begun = time.monotonic()
    base = asdict(read_params("low_rank_sparse.generate", PatternSizes, part=True))
    base |= asdict(read_params("low_rank_sparse.train", Training, part=True))
    threshold = read_params("low_rank_sparse.evaluate.generalised_loss", float)
    fitted_loss = read_params("low_rank_sparse.sweep.fitted_loss", float)
    jobs = [
        (of_seed, base | OWN | {"n_steps": N_STEPS}, largest, frozen, fitted_loss, seed)
        for seed in range(n_seeds)
        for frozen, largest in ((False, LARGEST), (True, LARGEST_NULL))
    ]
    found = spread_cells({"": jobs}, label="samples", unit="seed")[""]
    written(compact(joined(found, "trainings")), threshold)  # measured as it is kept
    params = {**base, **OWN, "n_steps": N_STEPS, "generalised_loss": threshold}
    write_provenance(OUT, COMMAND, begun, params, range(n_seeds))


def of_seed(
    base: Mapping[str, Any],
    largest: Mapping[int, Mapping[int, int]],
    frozen: bool,
    fitted_loss: float,
    seed: int,
) -> dict[str, pd.DataFrame]:
    """A row for each number of confusion tokens, of label-relevant tokens and of samples."""
    rows = []
    for n_confusion, by_relevant in largest.items():
        name = NAMES[n_confusion] + "_untrained_attention" * frozen
        for n_relevant, most in by_relevant.items():
            for n_train in (n for n in GRID if n <= most):
                sizes = {"n_relevant": n_relevant, "n_confusion": n_confusion}
                sizes |= {"n_train": n_train, "batch_size": n_train}
                problem = parse({**base, **sizes}, Problem, name)
                scores = trained(problem, frozen, fitted_loss, seed)
                row = {"sweep": name, **sizes, "seq_len": problem.seq_len, "seed": seed}
                rows.append(row | scores)
    return {"trainings": pd.DataFrame(rows).drop(columns="batch_size")}


def trained(problem: Problem, frozen: bool, fitted_loss: float, seed: int) -> dict[str, float]:
    """The scores on new samples of a model that was trained on all samples at once."""
    source = partial(generator, seed)
    _, train, test = draw_patterns(problem.labelled, problem.n_train, problem.n_test, source)
    start = initial_weights(
        problem.d_model, problem.n_neurons, problem.init_scale, source("weights")
    )
    readout = random_readout(
        problem.readout, 1, problem.seq_len, problem.n_neurons, source("readout")
    )
    loss = SampleLoss(readout, train.tokens, train.labels)
    moved = [name for name in MATRICES if not (frozen and name in ("W_Q", "W_K"))]
    rates = dict.fromkeys(moved, problem.learning_rate)
    steps = islice(gradient_descent(loss.gradient, start, rates), problem.n_steps)
    final, fitted = last_and_fitted(until_rest(steps, loss.at_rest, 1), start, fitted_loss)
    scores = score(final, readout, test.tokens, test.labels, test.is_relevant)
    return numbers(scores) | {"fitted_step": fitted}


def written(trainings: pd.DataFrame, threshold: float) -> None:
    """Write tables, measures and the figure."""
    needed = numbers_of_falling_losses(trainings, threshold)
    needed["share"] = needed["n_relevant"] / needed["seq_len"]
    rows = []
    exponents = []
    for name, of in needed.groupby("sweep"):
        by_share = {
            f"{share:g}": one.set_index("seed")["n_needed"] for share, one in of.groupby("share")
        }
        local = local_exponents(of)
        between = {f"{share:.3g}": local.loc[share] for share in local.index}
        rows += rows_of({"needed": by_share, "exponent": between}, str(name))
        exponents.append(local.melt(ignore_index=False, value_name="exponent").assign(sweep=name))
    trained = needed[needed["sweep"].isin(NAMES.values())]
    square = trained.assign(log=np.log(trained["n_needed"] * trained["share"] ** 2))
    largest = square.groupby(["sweep", "share"])["log"].mean().max()
    setup = {"threshold": threshold, "n_seeds": float(trainings["seed"].nunique())}
    setup["largest_times_square"] = float(np.exp(largest))
    for name, whole in whole_exponents(needed).items():
        rows += rows_of({"whole_exponent": whole}, name)
    local = pd.concat(exponents).reset_index()
    for name, table in {"trainings": trainings, "needed": needed, "exponents": local}.items():
        write_table(compact(table), OUT / "tables" / f"{name}.parquet")
    write_measures(setup_rows(setup) + rows, OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, from what is kept in the folder."""
    needed, exponents = (
        read_table(folder / "tables" / f"{name}.parquet") for name in ("needed", "exponents")
    )
    threshold = read_measures(folder / "measures.csv")["setup"]["threshold"]
    asked = read_bars(CLAIMS)["no_faster_than_enough"]
    given = (needed, exponents, threshold, whole_exponents(needed), asked)
    return {"samples": partial(samples_against_share, *given)}


def whole_exponents(needed: pd.DataFrame) -> dict[str, pd.Series]:
    """The exponent from the least to the largest share of the nulls, by sweep and seed."""
    found = {}
    for n_confusion, by_relevant in LARGEST_NULL.items():
        ends = needed[needed["n_relevant"].isin([min(by_relevant), max(by_relevant)])]
        for name in (NAMES[n_confusion], f"{NAMES[n_confusion]}_untrained_attention"):
            found[name] = local_exponents(ends[ends["sweep"] == name]).iloc[0]
    return found


if __name__ == "__main__":
    run(main)
