"""Draw the figures of section 5 and appendix B of Boix-Adserà et al. (2023), from tables in git.

A data set has these figures; the tables of several optimisers have figures of their own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
from matplotlib.figure import Figure

from lib.files.files import InputError
from lib.files.params import Interval, Positive, read_params
from lib.pages.bars import Bar, read_bars
from lib.pages.style import as_svg
from lib.vision.figures.cuts import accuracy_against_pruning, accuracy_against_rank
from lib.vision.figures.ranks import (
    rank_against_init_scale,
    rank_against_loss,
    rank_against_nulls,
    rank_through_training,
    where_learned,
)
from lib.vision.figures.spectra import (
    normalised_spectra,
    rises_of_directions,
    spectra_of_heads,
    spectra_through_training,
)
from lib.vision.figures.training import (
    cuts_and_rates,
    learning_curves,
    ranks_at_loss,
    ranks_of_optimizers,
)
from lib.vision.tables.compared import OF_OPTIMIZERS
from lib.vision.tables.drawn import DRAWN, read_drawn
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures
from lib.work.schemas import read_tables_of

Place = Annotated[int, Interval("[1, 1000]")]
CLAIMS = Path(__file__).with_name("claims.yaml")  # whose bars are drawn


@dataclass(frozen=True)
class Plot:
    layer: Place
    head: Place
    lines: Annotated[int, Interval("[1, 1000]")]
    trained_loss: Positive


def main(section: str, tables: Path, figures: OutFolder) -> None:
    write_figures(figures, drawings(section, tables), as_svg)


def drawings(section: str, tables: Path) -> dict[str, Callable[[], Figure]]:
    """How each figure is drawn; those of several optimisers have tables of their own."""
    params = read_params(section, Plot)
    if (tables / "rates.parquet").exists():
        return of_optimizers(read_tables_of(OF_OPTIMIZERS, tables), read_bars(CLAIMS))
    return of_data_set(read_drawn(DRAWN, tables), params, section, read_bars(CLAIMS))


def of_data_set(
    tables: dict[str, pd.DataFrame], params: Plot, section: str, bars: Mapping[str, Bar]
) -> dict[str, Callable[[], Figure]]:
    """How each figure of a data set is drawn."""
    training = tables["training"]
    ranks = tables["ranks"]
    spectra = tables["spectra"]
    spectra = spectra[spectra["control"] == "none"]
    check_shown(params, spectra, section)
    by_use = tables["scales"].groupby("use")["init_scale"].agg(list)
    [reference] = by_use["reference"]
    scales = by_use.get("growth", [reference])
    place = (params.layer, params.head)
    low = bars["low_rank_at_default_scale"]
    drawn = {
        "figure-1": partial(normalised_spectra, spectra, reference, *place),
        "figure-3": partial(
            spectra_through_training,
            spectra,
            ranks,
            scales,
            *place,
            params.lines,
            bars["rank_of_w_vo_grows_with_init_scale"],
        ),
        "rises": partial(
            rises_of_directions,
            tables["directions"],
            reference,
            *place,
            bars["directions_rise_one_after_another"],
        ),
        "figure-4": partial(
            rank_against_init_scale,
            ranks,
            training,
            params.trained_loss,
            bars["rank_of_w_kq_grows_with_init_scale"],
        ),
        "figure-5-KQ": partial(spectra_of_heads, spectra, ranks, "W_KQ", reference, low),
        "figure-5-VO": partial(spectra_of_heads, spectra, ranks, "W_VO", reference, low),
        "figure-12": partial(
            rank_through_training,
            ranks,
            tables["growth"],
            scales,
            bars["rank_grows_through_training"],
        ),
        "learning-curves": partial(learning_curves, training),
        "nulls": partial(rank_against_nulls, ranks, scales, bars["low_rank_at_every_scale"]),
        "truncation": partial(
            accuracy_against_rank,
            tables["truncate"],
            tables.get("whole_ranks"),
            bars["accuracy_takes_more_than_stable_rank"],
        ),
        "pruning": partial(accuracy_against_pruning, tables["prune"], bars["tenth_can_be_pruned"]),
    }
    compared = where_learned(tables["equal_loss"])
    if len(compared):
        needed = bars["permuted_labels_need_more_rank"]
        drawn["equal-loss"] = partial(rank_against_loss, ranks, training, compared, needed)
    return drawn


def check_shown(params: Plot, spectra: pd.DataFrame, section: str) -> None:
    """Raise `InputError` where the tables lack the layer, the head or the values that are drawn."""
    updates = spectra[spectra["of"] == "update"]
    for key, asked in (("layer", params.layer), ("head", params.head)):
        known = sorted(map(int, updates[key].unique()))
        if asked not in known:
            wanted = f"wanted one of {known}, those of the tables"
            raise InputError(f"{section}.{key}: {wanted}, got {asked}")
    most = updates["singular_values"].map(len).max()
    if params.lines > most:
        wanted = f"wanted at most the {most} singular values of a head"
        raise InputError(f"{section}.lines: {wanted}, got {params.lines}")


def of_optimizers(
    tables: dict[str, pd.DataFrame], bars: Mapping[str, Bar]
) -> dict[str, Callable[[], Figure]]:
    """How each figure of several optimisers is drawn, of one scale at that of the rates' choice."""
    ranks = tables["ranks"]
    asked = bars["muon_rank_is_high"]
    [scale] = tables["rates"]["init_scale"].unique().tolist()
    return {
        "optimizers": partial(ranks_of_optimizers, ranks, scale, asked),
        "optimizers-equal-loss": partial(ranks_at_loss, ranks, tables["trained"], scale, asked),
        "optimizers-truncation": partial(
            cuts_and_rates, tables["truncate"], tables["rates"], scale
        ),
    }


if __name__ == "__main__":
    run(main)
