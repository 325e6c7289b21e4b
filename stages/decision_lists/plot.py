"""Draw the family's figures from tables in git."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
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
from lib.files.tables import read_table
from lib.pages.style import as_svg
from lib.work.command import OutFolder, run
from lib.work.compute import write_figures

THEOREM = "task law n_tokens seq_len length bound first_time"
# The function that draws each figure, and the tables that it takes, with their columns.
FIGURES: dict[str, tuple[Callable[..., Figure], dict[str, str]]] = {
    "bound": (
        courses_with_bound,
        {"paths": "task time loss accuracy", "theorem": f"{THEOREM} scale late_limit"},
    ),
    "ratios": (
        bound_ratios,
        {"theorem": "law bound at_once first_time scale largest_attention"},
    ),
    "late": (late_losses, {"late": "law rescaled_time slope loss_times_time limit"}),
    "lost": (
        perfection_lost,
        {"paths": "task time margin", "theorem": f"{THEOREM} lost lost_time regained_time"},
    ),
    "repeats": (
        sequences_with_repeats,
        {"repeats": "law length seq_len first_time largest_W attention_to_star"},
    ),
    "crossover": (
        scale_crossover,
        {"law": "task law seq_len scale rescaled_time path_error attention_to_star at_once"},
    ),
    "lemmas": (lemma_ratios, {"lemmas": "bin size min lemma cases"}),
    "feasible": (feasible_lengths, {"feasible": "length least_n closed_form"}),
    "descents": (
        descents_on_both,
        {
            "both": "task noise law seq_len length delta n_steps earliest margin",
            "courses": "task noise step loss step_times_curvature",
        },
    ),
    "weights": (weights_in_list_order, {"weights": "query key row place W"}),
    "attention": (attention_before_after, {"attention": "when sequence query key attention star"}),
    "alignment": (
        values_under_uniform_attention,
        {
            "alignment": "task step cosine centred_cosine argmax_right along_P least_rate length "
            "repeats"
        },
    ),
    "spectra": (
        spectra_in_time,
        {
            "spectra": "law task time numerical_rank expected_rank early rtol singular_values",
        },
    ),
    "apart": (
        keys_and_queries,
        {
            "factored": "task of until log10_init_scale n_heads sigma_1 first_rise next_rise "
            "right fewest numerical_rank",
            "staircases": "task log10_init_scale time singular_values",
        },
    ),
    "lengths": (longest_sequences, {"lengths": "time longest task law seq_len"}),
    "pruning": (entries_that_matter, {"trained": "list_entries kept_in_gauge kept_raw"}),
}
OUTCOMES = {  # the figure takes those that are there
    "starts": "start accuracy",
    "controls": "control accuracy",
    "joint": "n_tokens step first_certified_all",
}


def main(tables: Path, figures: OutFolder) -> None:
    write_figures(figures, drawings(tables), as_svg)


def drawings(folder: Path) -> dict[str, Callable[[], Figure]]:
    """A function for each figure whose tables are there, by name; a use not run has no figure."""
    found: dict[str, Callable[[], Figure]] = {
        "diagram": decision_list,
        "outcomes": partial(outcomes, **read_tables(folder, OUTCOMES)),
    }
    for name, (draw, needed) in FIGURES.items():
        tables = read_tables(folder, needed)
        nothing_lost = name == "lost" and not any(tables.get("theorem", {}).get("lost", ()))
        if tables.keys() == needed.keys() and not nothing_lost:
            found[name] = partial(draw, *tables.values())
    return found


def read_tables(folder: Path, wanted: dict[str, str]) -> dict[str, pd.DataFrame]:
    """The wanted tables that are there, by name, with their columns."""
    files = {name: folder / f"{name}.parquet" for name in wanted}
    there = {name: file for name, file in files.items() if file.is_file()}
    return {name: read_table(file, wanted[name].split()) for name, file in there.items()}


if __name__ == "__main__":
    run(main)
