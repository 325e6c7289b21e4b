"""Draw the family's figures from tables in git."""

from pathlib import Path

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
from lib.io.files import write_files
from lib.io.tables import read_table

TABLES = (
    "theorem", "paths", "law", "starts", "controls", "alignment", "lemmas", "weights", "attention", "trained",
    "spectra",
)  # fmt: skip


def main(tables: Path, figures: Path) -> None:
    read = {name: read_table(tables / f"{name}.parquet") for name in TABLES}
    with styled():
        drawn = {
            "bound": courses_with_bound(read["paths"], read["theorem"]),
            "ratios": bound_ratios(read["theorem"]),
            "crossover": scale_crossover(read["law"]),
            "lemmas": lemma_ratios(read["lemmas"]),
            "outcomes": outcomes(read["starts"], read["controls"]),
            "weights": weights_in_list_order(read["weights"]),
            "attention": attention_before_after(read["attention"]),
            "alignment": values_under_uniform_attention(read["alignment"]),
            "spectra": spectra_in_time(read["spectra"]),
            "pruning": entries_that_matter(read["trained"]),
        }
    write_files(figures, {f"{name}.svg": rendered(figure) for name, figure in drawn.items()})


if __name__ == "__main__":
    run(main)
