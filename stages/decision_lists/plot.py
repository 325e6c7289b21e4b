"""Draw the family's figures from tables in git."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lib.decision_lists.figures.apart import keys_and_queries
from lib.decision_lists.figures.attention import (
    attention_before_after,
    entries_that_matter,
    longest_sequences,
    spectra_in_time,
    values_under_uniform_attention,
    weights_in_list_order,
)
from lib.decision_lists.figures.convergence import (
    bound_ratios,
    courses_with_bound,
    late_losses,
    perfection_lost,
    scale_crossover,
    sequences_with_repeats,
)
from lib.decision_lists.figures.descents import (
    descents_on_both,
    outcomes,
)
from lib.decision_lists.figures.diagram import decision_list
from lib.decision_lists.figures.proofs import (
    feasible_lengths,
    lemma_ratios,
)
from lib.decision_lists.tables.drawn import DRAWN
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures
from lib.work.schemas import read_tables_there

# The function that draws each figure, and the tables that it takes.
FIGURES: dict[str, tuple[Callable[..., Figure], list[str]]] = {
    "bound": (courses_with_bound, ["paths", "theorem"]),
    "ratios": (bound_ratios, ["theorem"]),
    "late": (late_losses, ["late"]),
    "lost": (perfection_lost, ["paths", "theorem"]),
    "repeats": (sequences_with_repeats, ["repeats"]),
    "crossover": (scale_crossover, ["law"]),
    "lemmas": (lemma_ratios, ["lemmas"]),
    "feasible": (feasible_lengths, ["feasible"]),
    "descents": (descents_on_both, ["both", "courses"]),
    "weights": (weights_in_list_order, ["weights"]),
    "attention": (attention_before_after, ["attention"]),
    "alignment": (values_under_uniform_attention, ["alignment"]),
    "spectra": (spectra_in_time, ["spectra"]),
    "apart": (keys_and_queries, ["factored", "staircases"]),
    "lengths": (longest_sequences, ["lengths"]),
    "pruning": (entries_that_matter, ["trained"]),
}
OUTCOMES = ["starts", "controls", "joint"]  # the figure takes those that are there


def main(tables: Path, figures: OutFolder) -> None:
    write_figures(figures, drawings(tables), as_svg)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """A function for each figure whose tables are there, by name; a use not run has no figure."""
    tables = read_tables_there(DRAWN, folder)
    found: dict[str, Callable[[], Figure]] = {
        "diagram": decision_list,
        "outcomes": partial(
            outcomes, **{name: tables[name] for name in OUTCOMES if name in tables}
        ),
    }
    for name, (draw, needed) in FIGURES.items():
        nothing_lost = name == "lost" and not any(tables.get("theorem", {}).get("lost", ()))
        if tables.keys() >= {*needed} and not nothing_lost:
            found[name] = partial(draw, *(tables[one] for one in needed))
    return found


if __name__ == "__main__":
    run(main)
