"""Compare optimisers: tables for the figures, and measures for the claims."""

from pathlib import Path

from lib.files.tables import read_tables
from lib.gradual_rank.comparison import (
    diagonal_measures,
    few_measures,
    first_rates,
    flow_distances,
    training_measures,
)
from lib.gradual_rank.measures import write_metrics
from lib.pages.measures import setup_rows
from lib.work.command import OutFolder, run

HEADLINES = {"gd_delay": ("delay", "gd"), "muon_best_over_gd": ("best_over_gd", "muon")}
# The columns by which each table is known.
TRAINED = {
    "runs": "optimizer teacher_rank log10_init_scale seed first_rise order",
    "courses": "optimizer seed step time W_KQ W_VO",
    "few": "seed optimizer n_samples noise",
    "paths": "seed step optimizer n_samples noise",
    "conserved": "optimizer seed",
}
FOLLOWED = {
    "changes": "seed log10_init_scale predicted measured",
    "events": "seed time coordinate kind",
    "paths": "method log10_init_scale seed time p",
    "slopes": "seed beta_2",
    "diagonal": "optimizer seed",
    "rises": "optimizer log10_init_scale seed first_rise",
}


def main(trained: Path, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    runs, courses, few, paths, conserved = read_tables(trained, TRAINED).values()
    of_signs = read_tables(followed, FOLLOWED)
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
    of_seed = descents[descents["seed"] == seed].drop(columns="seed")
    sign_small = descents.loc[descents["method"] == "weights", "log10_init_scale"].min()
    flow = of_seed[of_seed["method"] == "flow"]
    tables = {
        "optimizers": runs,
        "courses": courses[of_one].drop(columns=["seed", "teacher_rank", "W_KQ"]),
        "few": few,
        "conserved": conserved,
        "noisy_paths": paths[paths["noise"] > 0].drop(columns=["n_samples", "noise"]),
        "changes": changes,
        "events": events,
        "flow": flow.drop(columns="log10_init_scale"),
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
    write_metrics(tables, measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
