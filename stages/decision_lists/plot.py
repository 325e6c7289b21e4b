"""Draw the family's figures from tables in git."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lib.figures.convergence import bound_ratios, courses_with_bound, lemma_ratios, outcomes, scale_crossover
from lib.figures.list_attention import (
    attention_before_after,
    entries_that_matter,
    spectra_in_time,
    values_under_uniform_attention,
    weights_in_list_order,
)
from lib.figures.style import rendered, styled
from lib.io.command import run
from lib.io.files import atomic
from lib.io.params import Interval, read_params
from lib.io.tables import read_table


@dataclass(frozen=True)
class Plot:
    """`first_time` begins the axis of the spectra."""

    first_time: Annotated[float, Interval("[0, 1e6]")]


def main(section: str, metrics: Path, figures: Path) -> None:
    params = read_params(section, Plot)
    names = (
        "theorem", "paths", "law", "starts", "controls", "alignment", "lemmas", "weights", "attention", "trained",
        "spectra",
    )  # fmt: skip
    tables = {name: read_table(metrics / f"{name}.parquet") for name in names}
    spectra = tables["spectra"]
    with styled():
        drawn = {
            "bound": courses_with_bound(tables["paths"], tables["theorem"]),
            "ratios": bound_ratios(tables["theorem"]),
            "crossover": scale_crossover(tables["law"]),
            "lemmas": lemma_ratios(tables["lemmas"]),
            "outcomes": outcomes(tables["starts"], tables["controls"]),
            "weights": weights_in_list_order(tables["weights"]),
            "attention": attention_before_after(tables["attention"]),
            "alignment": values_under_uniform_attention(tables["alignment"]),
            "spectra": spectra_in_time(spectra[spectra["time"] >= params.first_time]),
            "pruning": entries_that_matter(tables["trained"]),
        }
    for name, figure in drawn.items():
        with atomic(figures / f"{name}.svg") as part:
            part.write_bytes(rendered(figure))


if __name__ == "__main__":
    run(main)
