"""Compare optimisers: tables for the figures, and measures for the claims."""

from pathlib import Path

from lib.gradual_rank.comparison import (
    diagonal_measures,
    few_measures,
    first_rates,
    flow_distances,
    training_measures,
)
from lib.gradual_rank.tables.drawn import OPTIMIZERS
from lib.gradual_rank.tables.optimizers import FOLDER as TRAINED
from lib.gradual_rank.tables.signs import FOLDER as FOLLOWED
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {"gd_delay": ("delay", "gd"), "muon_best_over_gd": ("best_over_gd", "muon")}


def main(trained: Path, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    runs, courses, few, paths, conserved = read_tables_of(TRAINED, trained).values()
    of_signs = read_tables_of(FOLLOWED, followed)
    changes, events, descents, slopes, diagonal, rises = of_signs.values()
    scales = sorted(runs["log10_init_scale"].unique())
    full = runs["teacher_rank"].max()
    seed = runs["seed"].min()
    of_one = (
        (courses["seed"] == seed)
        & (courses["teacher_rank"] == full)
        & (courses["log10_init_scale"] == scales[0])
    )
    distances = flow_distances(descents, events)
    of_seed = descents[descents["seed"] == seed]
    sign_small = descents.loc[descents["method"] == "weights", "log10_init_scale"].min()
    tables = {
        "optimizers": runs,
        "courses": courses[of_one],
        "few": few,
        "conserved": conserved,
        "noisy_paths": paths[paths["noise"] > 0],
        "changes": changes,
        "events": events,
        "flow": of_seed[of_seed["method"] == "flow"],
        "descent": of_seed[of_seed["log10_init_scale"] == sign_small],
        "distances": distances,
        "slopes": slopes,
        "diagonal": diagonal,
        "first_rises": rises,
    }
    measured = [
        *setup_rows({"small": f"1e{scales[0]:g}", "middle": f"1e{scales[:2][-1]:g}"}),
        *training_measures(runs, first_rates(courses)),
        *few_measures(few),
        *diagonal_measures(diagonal),
    ]
    write_tables_of(OPTIMIZERS, tables, metrics / "tables", small=True)
    write_measures(measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
