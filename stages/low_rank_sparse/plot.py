"""Draw figures 1, 2 and 3 of Li et al. (2024), corollary 1, and ours, from tables in git."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from matplotlib.figure import Figure

from lib.files.files import InputError
from lib.files.params import Interval, read_params
from lib.low_rank_sparse.figures.cuts import (
    adapters_against_cuts,
    attention_through_training,
    cut_frames,
    cuts_of_parts,
    hinge_and_attention_against_rank,
)
from lib.low_rank_sparse.figures.diagram import one_layer
from lib.low_rank_sparse.figures.neurons import corollary, norms_and_pruning
from lib.low_rank_sparse.figures.scaling import power_laws, robustness
from lib.low_rank_sparse.figures.updates import (
    beyond_two,
    rank_follows_patterns,
    singular_values_by_noise,
    singular_values_of_steps,
    spectra_and_nulls,
)
from lib.low_rank_sparse.tables.drawn import DRAWN
from lib.pages.measures import read_measures
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures
from lib.work.schemas import read_tables_of

LABELLED = {
    "classes_tied": "one output per class, tied",
    "classes_untied": "one output per class, untied",
    "grouped": "two classes, one output, tied",
}


@dataclass(frozen=True)
class Shown:
    """The steps of figure 2, at which claims look, too."""

    steps: tuple[Annotated[int, Interval("[1, 1e6]")], ...]


def main(section: str, measures: Path, tables: Path, figures: OutFolder) -> None:
    write_figures(figures, drawings(section, measures, tables), as_svg)


def drawings(section: str, measures: Path, tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    shown = read_params(section, Shown, part=True)
    of = read_tables_of(DRAWN, tables)
    measured = read_measures(measures)
    setup = measured["setup"]
    # The configurations that are judged, each with its null.
    permuted = {
        name.removeprefix("permuted."): str(null)
        for name, null in setup.items()
        if name.startswith("permuted.")
    }
    if not permuted:
        got = ", ".join(setup)
        raise InputError(f"{measures}: wanted numbers such as 'permuted.tied', got {got:.100}")
    names = list(permuted)
    return {
        "diagram": one_layer,
        "figure-1-frames": partial(cut_frames, of["truncate"], of["spectra"], "W_K", names[0]),
        "figure-1": partial(hinge_and_attention_against_rank, of["truncate"], names),
        "figure-2": partial(singular_values_of_steps, of["spectra"], "W_K", shown.steps, names),
        "figure-3": partial(norms_and_pruning, of["neurons"], of["prune"], permuted),
        "corollary-1": partial(corollary, of["prune"], names),
        "attention": partial(
            attention_through_training, of["training"], of["losses"], names, setup["fitted_loss"]
        ),
        "cuts": partial(cuts_of_parts, of["truncate"], of["prune"], names),
        "spectra": partial(spectra_and_nulls, of["spectra"], permuted),
        "energies": partial(beyond_two, of["spectra"], permuted),
        "sweeps": partial(
            power_laws,
            of["sweep"],
            of["samples"],
            measured,
            setup["swept_fitted_loss"],
            setup["generalised_loss"],
        ),
        "robustness": partial(robustness, of["sweep"]),
        "noise": partial(singular_values_by_noise, of["sweep"]),
        "patterns": partial(rank_follows_patterns, of["sweep"], LABELLED),
        "adapters": partial(adapters_against_cuts, of["adapt"], of["truncate"], names),
    }


if __name__ == "__main__":
    run(main)
