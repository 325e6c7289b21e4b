"""Draw the figures of section 5 and appendix B of Boix-Adserà et al. (2023) for one data set, from tables in git."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lib.figures.ranks import rank_against_init_scale, rank_through_training
from lib.figures.spectra import normalised_spectra, spectra_of_heads, spectra_through_training
from lib.figures.style import save, styled
from lib.figures.training import learning_curves
from lib.io.command import run
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
    spectra, ranks, training = (
        table[table["control"] == "none"]
        for table in (read_table(metrics / f"{name}.parquet") for name in ("spectra", "ranks", "training"))
    )
    reference, scales = params.reference_scale, list(params.trajectory_scales)
    place = params.layer, params.head
    with styled():
        drawn = {
            "figure-1": normalised_spectra(spectra, reference, *place),
            "figure-3": spectra_through_training(spectra, scales, *place, params.lines),
            "figure-4": rank_against_init_scale(ranks),
            "figure-5-KQ": spectra_of_heads(spectra, "W_KQ", reference),
            "figure-5-VO": spectra_of_heads(spectra, "W_VO", reference),
            "figure-12": rank_through_training(ranks, scales),
            "learning-curves": learning_curves(training),
        }
    for name, figure in drawn.items():
        save(figure, figures / name)


if __name__ == "__main__":
    run(main)
