"""Draw the figures of section 5 and appendix B of Boix-Adserà et al. (2023) for one data set, from
tables in git.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
from matplotlib.figure import Figure

from lib.files.files import InputError, write_files
from lib.files.params import Interval, Positive, read_params
from lib.files.tables import read_table
from lib.pages.style import as_svg
from lib.vision.figures.cuts import accuracy_against_pruning, accuracy_against_rank
from lib.vision.figures.ranks import (
    growth_against_null,
    rank_against_init_scale,
    rank_against_loss,
    rank_against_nulls,
    rank_through_training,
    readings_of_init_scale,
)
from lib.vision.figures.spectra import (
    normalised_spectra,
    spectra_of_heads,
    spectra_through_training,
)
from lib.vision.figures.training import (
    cuts_and_rates,
    learning_curves,
    ranks_at_loss,
    ranks_of_optimizers,
)
from lib.work.command import OutFolder, run
from lib.work.compute import spread_by_name

Place = Annotated[int, Interval("[1, 1000]")]


@dataclass(frozen=True)
class Plot:
    layer: Place
    head: Place
    lines: Annotated[int, Interval("[1, 1000]")]
    trained_loss: Positive


def main(section: str, tables: Path, figures: OutFolder) -> None:
    jobs = {f"{name}.svg": (draw,) for name, draw in drawings(section, tables).items()}
    drawn = spread_by_name(as_svg, jobs, label="figures", unit="figure")
    write_files(figures, drawn)


def drawings(section: str, tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn; those of published/digits_optimizers of its own tables."""
    params = read_params(section, Plot)
    if (tables / "rates.parquet").exists():
        return of_optimizers(tables)
    names = ("training", "ranks", "spectra", "truncate", "prune", "growth", "equal_loss")
    found = {name: read_table(tables / f"{name}.parquet") for name in names}
    training, ranks = found["training"], found["ranks"]
    plain = {
        name: table[table["control"] == "none"]
        for name, table in found.items()
        if "control" in table
    }
    compared = read_table(tables / "scales.parquet").groupby("use")["init_scale"].agg(list)
    [reference], scales = compared["reference"], compared.get("growth", compared["reference"])
    check_shown(params, plain["spectra"], section)
    place = params.layer, params.head
    drawn = {
        "figure-1": partial(normalised_spectra, plain["spectra"], reference, *place),
        "figure-3": partial(
            spectra_through_training, plain["spectra"], scales, *place, params.lines
        ),
        "figure-4": partial(rank_against_init_scale, ranks, training, params.trained_loss),
        "figure-5-KQ": partial(spectra_of_heads, plain["spectra"], "W_KQ", reference),
        "figure-5-VO": partial(spectra_of_heads, plain["spectra"], "W_VO", reference),
        "figure-12": partial(rank_through_training, ranks, scales),
        "growth": partial(growth_against_null, found["growth"]),
        "learning-curves": partial(learning_curves, training),
        "nulls": partial(rank_against_nulls, ranks, scales),
        "truncation": partial(accuracy_against_rank, found["truncate"]),
        "pruning": partial(accuracy_against_pruning, found["prune"]),
    }
    if len(found["equal_loss"]):
        drawn["equal-loss"] = partial(rank_against_loss, ranks, training, found["equal_loss"])
    if training["control"].str.startswith("scaled=").any():
        drawn["readings-of-init-scale"] = partial(readings_of_init_scale, training, ranks)
    return drawn


def check_shown(params: Plot, spectra: pd.DataFrame, section: str) -> None:
    """Raise `InputError` where the tables lack the layer or the head that is drawn, or so many
    singular values.
    """
    updates = spectra[spectra["of"] == "update"]
    for key, asked in (("layer", params.layer), ("head", params.head)):
        known = sorted(map(int, updates[key].unique()))
        if asked not in known:
            raise InputError(
                f"{section}.{key}: wanted one of {known}, those of the tables, got {asked}"
            )
    most = updates["singular_values"].map(len).max()
    if params.lines > most:
        raise InputError(
            f"{section}.lines: wanted at most the {most} singular values of a head, got "
            f"{params.lines}"
        )


def of_optimizers(tables: Path) -> dict[str, Callable[[], Figure]]:
    """How the figures of several optimisers are drawn; those of one init scale at that of the
    rates' choice.
    """
    trained, ranks, truncate, rates = (
        read_table(tables / f"{name}.parquet") for name in ("trained", "ranks", "truncate", "rates")
    )
    [scale] = rates["init_scale"].unique()
    return {
        "optimizers": partial(ranks_of_optimizers, ranks),
        "optimizers-equal-loss": partial(ranks_at_loss, ranks, trained, scale),
        "optimizers-truncation": partial(cuts_and_rates, truncate, rates, scale),
    }


if __name__ == "__main__":
    run(main)
