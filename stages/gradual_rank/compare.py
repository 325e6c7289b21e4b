"""Compare optimisers: what git keeps of their trainings, tables for the figures and measures for
the claims.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.files.files import clear
from lib.files.params import Count, Positive, read_params
from lib.files.tables import compact, read_table, write_measures, write_table
from lib.gradual_rank.growth import (
    few_measures,
    flow_distances,
    flow_measures,
    sign_measures,
    training_measures,
)
from lib.work.command import OutFolder, run

HEADLINES = ("gd_delay_full", "muon_best_over_gd")
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


@dataclass(frozen=True)
class Said:
    """What statements say of the trainings."""

    n_seeds: Count
    n_samples: Count
    teacher_rank: Count
    noisy_samples: Count
    noise: Positive


def tables_of(folder: Path, columns: dict[str, str]) -> list[pd.DataFrame]:
    """The tables of these names, each of which has these columns."""
    for name, wanted in columns.items():
        read_table(folder / f"{name}.parquet", wanted.split())  # which refuses another table
    return [read_table(folder / f"{name}.parquet") for name in columns]


def main(section: str, trained: Path, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.json` and `summary.json` in metrics."""
    said = read_params(section, Said, part=True)
    runs, courses, few, paths, conserved = tables_of(trained, TRAINED)
    changes, events, descents, slopes, diagonal, rises = tables_of(followed, FOLLOWED)
    small = runs["log10_init_scale"].min()
    large = runs["log10_init_scale"].max()
    full = runs["teacher_rank"].max()
    seed = runs["seed"].min()
    of_one = (
        (courses["seed"] == seed)
        & (courses["teacher_rank"] == full)
        & (courses["log10_init_scale"] == small)
    )
    distances = flow_distances(descents, events)
    sign_small = descents.loc[descents["method"] == "weights", "log10_init_scale"].min()
    shown = descents[(descents["seed"] == seed) & (descents["log10_init_scale"] == sign_small)]
    flow = descents[(descents["seed"] == seed) & (descents["method"] == "flow")]
    tables = {
        "optimizers": runs,
        "courses": courses[of_one].drop(columns=["seed", "teacher_rank", "W_KQ"]),
        "few": few,
        "conserved": conserved,
        "noisy_paths": paths[paths["noise"] > 0].drop(columns=["n_samples", "noise"]),
        "changes": changes,
        "events": events,
        "flow": flow.drop(columns=["log10_init_scale", "seed"]),
        "descent": shown.drop(columns=["seed"]),
        "distances": distances,
        "slopes": slopes,
        "diagonal": diagonal,
        "first_rises": rises,
    }
    measured = (
        training_measures(runs)
        | few_measures(few)
        | sign_measures(changes, slopes, diagonal, rises)
    )
    measured |= flow_measures(distances)
    middle = sorted(runs["log10_init_scale"].unique())[:2][-1]
    scales = {"small": small, "middle": middle, "large": large}
    scales |= {"sign_small": sign_small, "sign_smallest": changes["log10_init_scale"].min()}
    setup: dict[str, float | str] = {name: f"1e{scale:g}" for name, scale in scales.items()}
    small_tables = {name: compact(table) for name, table in tables.items()}
    clear(metrics / "tables", "*.parquet")
    for name, table in small_tables.items():
        write_table(table, metrics / "tables" / f"{name}.parquet")
    write_measures(
        {n: v for n, v in measured.items() if len(v)}, metrics, setup | vars(said), HEADLINES
    )


if __name__ == "__main__":
    run(main)
