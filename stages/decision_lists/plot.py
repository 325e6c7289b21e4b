"""Draw the family's figures from tables in git."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

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
    many_tokens,
    other_gammas,
    perfection_lost,
    scale_crossover,
    sequences_with_repeats,
)
from lib.decision_lists.figures.descents import (
    descents_alone,
    descents_on_both,
    minibatches,
    outcomes,
)
from lib.decision_lists.figures.proofs import (
    certificates,
    constants_by_hand,
    feasible_lengths,
    gradients_from_samples,
    lemma_ratios,
    lists_represented,
)
from lib.files.files import clear, write_files
from lib.files.tables import read_table
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import spread_by_name

# The tables of each figure; outcomes and lost take what there is.
FIGURES: dict[str, tuple[Callable[..., Figure], tuple[str, ...]]] = {
    "bound": (courses_with_bound, ("paths", "theorem")),
    "ratios": (bound_ratios, ("theorem",)),
    "late": (late_losses, ("late",)),
    "gamma": (other_gammas, ("gamma",)),
    "lost": (perfection_lost, ("paths", "theorem")),
    "many": (many_tokens, ("many",)),
    "repeats": (sequences_with_repeats, ("repeats",)),
    "crossover": (scale_crossover, ("law",)),
    "lemmas": (lemma_ratios, ("lemmas",)),
    "certificates": (certificates, ("certificates",)),
    "represent": (lists_represented, ("represent",)),
    "constants": (constants_by_hand, ("constants",)),
    "feasible": (feasible_lengths, ("feasible",)),
    "samples": (gradients_from_samples, ("monte_carlo",)),
    "descents": (descents_on_both, ("both", "courses")),
    "descents-alone": (descents_alone, ("alone",)),
    "minibatches": (minibatches, ("minibatch",)),
    "weights": (weights_in_list_order, ("weights",)),
    "attention": (attention_before_after, ("attention",)),
    "alignment": (values_under_uniform_attention, ("alignment",)),
    "spectra": (spectra_in_time, ("spectra",)),
    "lengths": (longest_sequences, ("lengths",)),
    "pruning": (entries_that_matter, ("trained",)),
}


def drawings(tables: Path) -> dict[str, Callable[[], Figure]]:
    """What draws each figure whose tables are there, by its name: a use that was not run has
    none.
    """
    read = {file.stem: read_table(file) for file in sorted(tables.glob("*.parquet"))}
    found = {
        name: partial(draw, *(read[table] for table in needed))
        for name, (draw, needed) in FIGURES.items()
        if set(needed) <= set(read)
    }
    if "theorem" in read and not (read["theorem"]["lost"] > 0).any():
        found.pop("lost", None)
    return found | {"outcomes": partial(outcomes, read)}


def main(tables: Path, figures: OutFolder) -> None:
    jobs = {f"{name}.svg": (draw,) for name, draw in drawings(tables).items()}
    drawn = spread_by_name(as_svg, jobs, label="figures", unit="figure")
    clear(figures, "*.svg")
    write_files(figures, drawn)


if __name__ == "__main__":
    run(main)
