"""What the paper's model shows in its first epochs: `python -m published.cifar10_paper_model.run`.

Two trainings on CIFAR-10 are begun by the recipe of the paper (depth 6, width 512, 500 epochs) from
init scale 1, on true and on permuted labels, as far as a CPU comes (the module `train`). This
program takes what both have saved, up to the last step that they share, and measures the updates of
all heads: singular values, stable ranks beside those of the initial matrices and of Gaussian
matrices, and losses. Stop the trainings first, or it waits until they have ended.

Tables, figures, measures and where they come from are kept beside this program; `remeasure` writes
measures and figures again from the tables that are kept.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from lib.matrices.stacks import factors_at_start, initial_spectrum, rows_of, update_spectrum
from lib.pages.measures import Row, write_measures
from lib.pages.style import as_svg
from lib.training.attention import PRODUCTS
from lib.training.devices import use_threads
from lib.vision.datasets import dataset_file
from lib.vision.figures.beginning import first_epochs
from lib.vision.figures.ranks import rank_through_training
from lib.vision.figures.spectra import normalised_spectra, spectra_of_heads
from lib.vision.images import read_images
from lib.vision.measures import (
    Taken,
    against_nulls,
    derived,
    finals,
    plain_typed,
    ranks_of,
    rises,
    rows_by_scale,
)
from lib.vision.shown import PLACE
from lib.vision.tables.beginning import OF_BEGINNING
from lib.vision.updates import directions
from lib.vision.vit import MATRICES
from lib.work.cells import Cell, stacked
from lib.work.command import run
from lib.work.compute import write_figures
from lib.work.schemas import read_tables_of, write_tables_of
from published.cifar10_paper_model.train import (
    INIT_SCALE,
    LABELS,
    N_SCORED,
    N_STEPS,
    RECIPE,
    SEED,
    Labels,
    cell_of,
    training,
)
from tools.publish import write_provenance

OUT = Path("published/cifar10_paper_model")
COMMAND = "python -m published.cifar10_paper_model.run"
EPOCHS = 500  # of the paper's recipe
PER_EPOCH = N_STEPS // EPOCHS
SHARE = 1e-3  # of the largest singular value, above which others count
LEADING = 128  # singular values that are kept
PLACED = (3, 1)  # the layer and the head of the figures of a single head
LAYERS = (1, 3, 5)  # of the figures of several heads
HEADS = (1, 2, 3, 4)
HEADLINES = {
    "cifar10_paper_model_test_accuracy": ("test_accuracy", ""),
    "cifar10_paper_model_stable_rank_KQ": ("stable_rank", "W_KQ"),
    "cifar10_paper_model_stable_rank_VO": ("stable_rank", "W_VO"),
}


def main(images: Path = Path("data/vision/cifar10/images")) -> None:
    use_threads(1)
    begun = time.monotonic()
    file = dataset_file(images)
    cells: dict[Labels, Cell] = {labels: cell_of(file, labels) for labels in LABELS}
    steps = steps_of_both(cells)
    scores = []
    spectra = []
    for labels, cell in cells.items():
        variant = training(labels).variant
        told = {"control": variant.control, "init_scale": INIT_SCALE, "variant": variant.run}
        rows, found = measured_of(cell, steps, told)
        scores += rows
        spectra.append(found)
    found = pd.concat(spectra, ignore_index=True)
    tables = {
        "training": pd.DataFrame(scores),
        "ranks": ranks_of(found, SHARE, RECIPE.model.d_model),
        "spectra": shown(found),
        "directions": directions(found),
    }
    write_tables_of(OF_BEGINNING, tables, OUT / "tables", small=True)
    remeasure()
    noted = {"recipe": asdict(RECIPE), "init_scale": INIT_SCALE, "n_scored": N_SCORED}
    noted |= {"steps": steps[-1], "images": read_images(file).n_train}
    begun -= max(seconds_of(cell, steps) for cell in cells.values())
    write_provenance(OUT, COMMAND, begun, noted, [SEED])


def steps_of_both(cells: Mapping[Labels, Cell]) -> list[int]:
    """The steps of which every training has a snapshot, in order."""
    return sorted(set.intersection(*(set(saved(cell)) for cell in cells.values())))


def saved(cell: Cell) -> list[int]:
    """The steps of the snapshots of a training."""
    with cell:
        return [int(name.partition("-")[2]) for name in cell.names("snapshot")]


def seconds_of(cell: Cell, steps: list[int]) -> float:
    """The seconds that passed between the first and the last snapshot, pauses among them."""
    ends = (steps[0], steps[-1])
    [[first], [last]] = [cell.folder.glob(f"snapshot-{step:09d}-*.safetensors") for step in ends]
    return last.stat().st_mtime - first.stat().st_mtime


def measured_of(
    cell: Cell, steps: list[int], told: dict[str, Any]
) -> tuple[list[dict[str, Any]], pd.DataFrame]:
    """The scores of a training, and the singular values of its products and of their updates."""
    scores = []
    spectra = []
    initial = stacked({SEED: cell}, steps[0])[0]
    factors = factors_at_start(initial, PRODUCTS)
    for step in steps:
        weights, rows = stacked({SEED: cell}, step)
        scores += [told | row for row in rows]
        for matrix, (factor, _) in PRODUCTS.items():
            if step == 0:
                of = "initial"
                sigma = initial_spectrum(matrix, weights, PRODUCTS)
            else:
                of = "update"
                sigma = update_spectrum(matrix, weights, initial, factors, PRODUCTS)
            axes = ["seed", *MATRICES[factor]][:-2]
            labels = told | {"matrix": matrix, "of": of, "step": step}
            spectra.append(rows_of(sigma, axes, [SEED], labels))
    return scores, pd.concat(spectra, ignore_index=True)


def shown(spectra: pd.DataFrame) -> pd.DataFrame:
    """The leading singular values that figures show.

    Some heads have those of the start and of the last step, and one has those of every step.
    """
    layer, head = PLACED
    chosen = spectra["layer"].isin(LAYERS) & spectra["head"].isin(HEADS)
    chosen &= spectra["step"].isin([0, spectra["step"].max()])
    chosen |= (spectra["layer"] == layer) & (spectra["head"] == head)
    sigma = spectra[chosen]["singular_values"]
    return spectra[chosen][PLACE].assign(
        n_singular_values=RECIPE.model.d_model,
        singular_values=[values[:LEADING] for values in sigma],
    )


def remeasure() -> None:
    """Write measures and figures from the tables that are kept, without reading weights."""
    write_measures(all_measures(OUT), OUT, HEADLINES)
    write_figures(OUT / "figures", drawings(OUT), as_svg)


def kept(folder: Path) -> dict[str, pd.DataFrame]:
    """The tables that are kept in the folder, and those that are computed from them."""
    tables = read_tables_of(OF_BEGINNING, folder / "tables")
    tables = {name: plain_typed(table) for name, table in tables.items()}
    return tables | derived(tables)


def all_measures(folder: Path) -> list[Row]:
    """The rows of every measure: how many epochs there are, and what is measured of the last."""
    tables = kept(folder)
    training = tables["training"]
    last = (training["step"] == training["step"].max()) & (training["control"] == "none")
    epochs = training[last].set_index(["init_scale", "seed"])["step"] / PER_EPOCH
    taken = [
        Taken("epochs", "", epochs),
        *finals(training),
        *against_nulls(tables),
        *rises(tables["directions"]),
    ]
    return rows_by_scale(taken, INIT_SCALE)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn, from what is kept in the folder."""
    tables = kept(folder)
    ranks = tables["ranks"]
    spectra = tables["spectra"]
    plain = spectra[spectra["control"] == "none"]
    return {
        "first-epochs": partial(first_epochs, ranks, spectra, *PLACED, PER_EPOCH),
        "figure-1": partial(normalised_spectra, plain, INIT_SCALE, *PLACED),
        "figure-5-KQ": partial(spectra_of_heads, plain, ranks, "W_KQ", INIT_SCALE),
        "figure-5-VO": partial(spectra_of_heads, plain, ranks, "W_VO", INIT_SCALE),
        "figure-12": partial(by_layer, ranks, tables["growth"]),
    }


def by_layer(ranks: pd.DataFrame, growth: pd.DataFrame) -> Figure:
    """Stable ranks in every layer; the figure is high enough for the words beside one scale."""
    figure = rank_through_training(ranks, growth, [INIT_SCALE])
    figure.set_figheight(3.9)
    return figure


if __name__ == "__main__":
    run(main)
