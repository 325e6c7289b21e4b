"""Draw the figures of section 5 and appendix B of Boix-Adserà et al. (2023) for one data set, from tables in git."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from matplotlib.figure import Figure

from lib.figures.low_rank import accuracy_against_pruning, accuracy_against_rank
from lib.figures.ranks import (
    rank_against_init_scale,
    rank_against_nulls,
    rank_through_training,
    readings_of_init_scale,
)
from lib.figures.spectra import normalised_spectra, spectra_of_heads, spectra_through_training
from lib.figures.style import rendered, styled
from lib.figures.training import learning_curves
from lib.io.command import run
from lib.io.files import write_files
from lib.io.params import Interval, read_params
from lib.io.tables import read_table

Place = Annotated[int, Interval("[1, 1000]")]


@dataclass(frozen=True)
class Plot:
    layer: Place
    head: Place
    lines: Annotated[int, Interval("[1, 1000]")]


def main(section: str, tables: Path, figures: Path) -> None:
    with styled():
        drawn = {f"{name}.svg": rendered(draw()) for name, draw in drawings(section, tables).items()}
    write_files(figures, drawn)


def drawings(section: str, tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn."""
    params = read_params(section, Plot)
    names = ("training", "ranks", "spectra", "truncate", "prune")
    training, ranks, spectra, truncate, prune = (read_table(tables / f"{name}.parquet") for name in names)
    plain = {"training": training, "ranks": ranks, "spectra": spectra}
    plain = {name: table[table["control"] == "none"] for name, table in plain.items()}
    compared = read_table(tables / "scales.parquet").groupby("use")["init_scale"].agg(list)
    [reference], scales = compared["reference"], compared.get("growth", compared["reference"])
    place = params.layer, params.head
    drawn = {
        "figure-1": lambda: normalised_spectra(plain["spectra"], reference, *place),
        "figure-3": lambda: spectra_through_training(plain["spectra"], scales, *place, params.lines),
        "figure-4": lambda: rank_against_init_scale(plain["ranks"]),
        "figure-5-KQ": lambda: spectra_of_heads(plain["spectra"], "W_KQ", reference),
        "figure-5-VO": lambda: spectra_of_heads(plain["spectra"], "W_VO", reference),
        "figure-12": lambda: rank_through_training(plain["ranks"], scales),
        "learning-curves": lambda: learning_curves(plain["training"]),
        "nulls": lambda: rank_against_nulls(ranks, reference),
        "truncation": lambda: accuracy_against_rank(truncate),
        "pruning": lambda: accuracy_against_pruning(prune),
    }
    if training["control"].str.startswith("scaled=").any():
        drawn["readings-of-init-scale"] = lambda: readings_of_init_scale(training, ranks)
    return drawn


if __name__ == "__main__":
    run(main)
