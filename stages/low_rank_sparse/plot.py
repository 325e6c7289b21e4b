"""Draw figures 1, 2 and 3 of Li et al. (2024), corollary 1, and ours beside them, from tables in git."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lib.figures.cuts import (
    adapters_against_cuts,
    attention_through_training,
    cuts_of_parts,
    hinge_and_attention_against_rank,
)
from lib.figures.neurons import corollary, norms_and_pruning, what_to_prune
from lib.figures.scaling import sweeps
from lib.figures.style import rendered, styled
from lib.figures.updates import directions_of_updates, rank_follows_patterns, singular_values_of_steps
from lib.io.command import run
from lib.io.files import write_files
from lib.io.params import Interval, read_params
from lib.io.tables import read_json, read_table


@dataclass(frozen=True)
class Plot:
    steps: tuple[Annotated[int, Interval("[1, 1e6]")], ...]


def main(section: str, metrics: Path, figures: Path) -> None:
    params = read_params(section, Plot)
    names = ("training", "spectra", "truncate", "directions", "prune", "neurons", "adapt", "sweep")
    tables = {name: read_table(metrics / "tables" / f"{name}.parquet") for name in names}
    measures = read_json(metrics / "measures.json")
    with styled():
        drawn = {
            "figure-1": hinge_and_attention_against_rank(tables["truncate"]),
            "figure-2": singular_values_of_steps(tables["spectra"], "W_K", list(params.steps)),
            "figure-3": norms_and_pruning(tables["neurons"], tables["prune"]),
            "corollary-1": corollary(tables["prune"]),
            "attention": attention_through_training(tables["training"]),
            "cuts": cuts_of_parts(tables["truncate"]),
            "directions": directions_of_updates(tables["directions"], "tied"),
            "sweeps": sweeps(tables["sweep"], measures),
            "patterns": rank_follows_patterns(tables["sweep"], ["W_Q", "W_K", "W_V", "W_O"]),
            "adapters": adapters_against_cuts(tables["adapt"], tables["truncate"]),
            "compression": what_to_prune(tables["prune"]),
        }
    write_files(figures, {f"{name}.svg": rendered(figure) for name, figure in drawn.items()})


if __name__ == "__main__":
    run(main)
