"""Draw the figures of section 5 and appendix B of Boix-Adserà et al. (2023) for one data set, from tables in git."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
from lib.io.files import atomic
from lib.io.params import Interval, Positive, read_params
from lib.io.tables import read_table

Place = Annotated[int, Interval("[1, 1000]")]


@dataclass(frozen=True)
class Plot:
    reference_scale: Positive
    trajectory_scales: tuple[Positive, ...]
    layer: Place
    head: Place
    lines: Annotated[int, Interval("[1, 1000]")]


def main(section: str, metrics: Path, figures: Path) -> None:
    params = read_params(section, Plot)
    names = ("training", "ranks", "spectra", "truncate", "prune")
    training, ranks, spectra, truncate, prune = (read_table(metrics / f"{name}.parquet") for name in names)
    plain = {"training": training, "ranks": ranks, "spectra": spectra}
    plain = {name: table[table["control"] == "none"] for name, table in plain.items()}
    reference, trained = params.reference_scale, plain["training"]["init_scale"]
    scales = [scale for scale in params.trajectory_scales if (trained == scale).any()] or [reference]
    place = params.layer, params.head
    with styled():
        drawn = {
            "figure-1": normalised_spectra(plain["spectra"], reference, *place),
            "figure-3": spectra_through_training(plain["spectra"], scales, *place, params.lines),
            "figure-4": rank_against_init_scale(plain["ranks"]),
            "figure-5-KQ": spectra_of_heads(plain["spectra"], "W_KQ", reference),
            "figure-5-VO": spectra_of_heads(plain["spectra"], "W_VO", reference),
            "figure-12": rank_through_training(plain["ranks"], scales),
            "learning-curves": learning_curves(plain["training"]),
            "nulls": rank_against_nulls(ranks, reference),
            "truncation": accuracy_against_rank(truncate),
            "pruning": accuracy_against_pruning(prune),
        }
        if training["control"].str.startswith("scaled=").any():
            drawn["readings-of-init-scale"] = readings_of_init_scale(training, ranks)
    for name, figure in drawn.items():
        with atomic(figures / f"{name}.svg") as part:
            part.write_bytes(rendered(figure))


if __name__ == "__main__":
    run(main)
