"""Compare optimisers: tables for the figures, and measures for the claims."""

from dataclasses import dataclass
from pathlib import Path

from lib.files.params import Count, Positive, read_params
from lib.files.tables import read_table
from lib.gradual_rank.comparison import (
    few_measures,
    flow_distances,
    flow_measures,
    sign_measures,
    training_measures,
)
from lib.gradual_rank.measures import write_metrics
from lib.work.command import OutFolder, run

HEADLINES = ("gd_delay_full", "muon_best_over_gd")
RUN = ["optimizer", "teacher_rank", "log10_init_scale", "seed"]
KEPT = ["square_change_KQ", "square_change_VO", "root_change_KQ", "root_change_VO"]
RUNS = [
    *RUN,
    "growth",
    *KEPT,
    "first_rise",
    "first_rise_KQ",
    "order",
    "order_KQ",
    "n_directions",
    "separate",
    "slope_least",
    "slope_most",
    "plateau",
    "loss",
    "stable_rank_half",
    "stable_rank_end",
    "stable_rank_KQ_early",
    "stable_rank_KQ_end",
    "rank_KQ",
    "rank_VO",
]
COURSES = [*RUN, "step", "time", "W_KQ", "W_VO"]
FEW_CASE = ["optimizer", "n_samples", "noise"]
FEW_RANKS = ["effective_rank_KQ", "effective_rank_VO"]
FEW = ["seed", "loss", "best_test_loss", "last_test_loss", *FEW_RANKS, *FEW_CASE]
PATHS = ["seed", "step", "time", "loss", "test_loss", *FEW_CASE]
CONSERVED = ["optimizer", "seed", "reached", *KEPT]
PREDICTED = ["predicted", "predicted_coordinate", "measured", "measured_coordinate", "ray_error"]
CHANGES = ["seed", "log10_init_scale", *PREDICTED]
EVENTS = ["seed", "time", "coordinate", "kind"]
DESCENTS = ["method", "log10_init_scale", "seed", "time", "p"]
SLOPES = ["seed", "beta_2", "slope_KQ", "slope_VO"]
HEAD = ["optimizer", "log10_init_scale", "seed"]
DIAGONAL = [*HEAD, "rank_early", "order", "order_VO", "lengths_kept", "squares_kept"]
RISES = [*HEAD, "first_rise"]


@dataclass(frozen=True)
class Said:
    """What statements say of the trainings."""

    n_seeds: Count
    n_samples: Count
    teacher_rank: Count
    noisy_samples: Count
    noise: Positive


def main(section: str, trained: Path, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.json` and `summary.json` in metrics."""
    said = read_params(section, Said, part=True)
    runs = read_table(trained / "runs.parquet", RUNS)
    courses = read_table(trained / "courses.parquet", COURSES)
    few = read_table(trained / "few.parquet", FEW)
    paths = read_table(trained / "paths.parquet", PATHS)
    conserved = read_table(trained / "conserved.parquet", CONSERVED)
    changes = read_table(followed / "changes.parquet", CHANGES)
    events = read_table(followed / "events.parquet", EVENTS)
    descents = read_table(followed / "paths.parquet", DESCENTS)
    slopes = read_table(followed / "slopes.parquet", SLOPES)
    diagonal = read_table(followed / "diagonal.parquet", DIAGONAL)
    rises = read_table(followed / "rises.parquet", RISES)

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
    measured = {
        **training_measures(runs),
        **few_measures(few),
        **sign_measures(changes, slopes, diagonal, rises),
        **flow_measures(distances),
    }
    named = {"small": scales[0], "middle": scales[:2][-1], "large": scales[-1]}
    named |= {"sign_small": sign_small, "sign_smallest": changes["log10_init_scale"].min()}
    setup = {name: f"1e{scale:g}" for name, scale in named.items()} | vars(said)
    write_metrics(tables, measured, metrics, setup, HEADLINES)


if __name__ == "__main__":
    run(main)
