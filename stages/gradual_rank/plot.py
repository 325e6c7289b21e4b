"""Draw the family's figures from tables in git."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from lib.figures.disturbances import assumption_checks, disturbed_paths
from lib.figures.greedy_limit import descents_beside_the_flow, errors_by_scale, ranks_by_budget
from lib.figures.staircase import entries_and_singular_values, entries_by_scale, losses_by_scale, stage_table
from lib.figures.style import rendered, styled
from lib.io.command import run
from lib.io.files import write_files
from lib.io.params import read_params
from lib.io.tables import read_table

NAMES = (
    "descents", "drop", "forecast", "full_weights", "kicks", "paper_activations", "paper_errors", "paper_stages",
    "paper_trajectories", "paths", "returns", "small_activations", "small_errors", "small_ranks", "small_stages",
    "small_trajectories",
)  # fmt: skip


@dataclass(frozen=True)
class Bars:
    """The init scale from which the error is C / log(1 / init_scale), and when what is disturbed has come back."""

    log10_init_scale: float
    returned: float
    near: float


def main(bars: str, metrics: Path, figures: Path) -> None:
    bar = read_params(bars, Bars)
    tables = {name: read_table(metrics / f"{name}.parquet") for name in NAMES}
    cases = [case(tables, problem) for problem in ("paper", "small")]
    _, small, small_stages, _ = cases[1]
    seed = int(small["seed"].iloc[0])
    with styled():
        drawn = {
            "figure-2": entries_and_singular_values(small, small_stages, tables["full_weights"]),
            "figure-6": losses_by_scale(cases),
            "figure-7": entries_by_scale(cases, "W_KQ"),
            "figure-8": entries_by_scale(cases, "W_VO"),
            "figure-9": disturbed_paths(tables["paths"], "random"),
            "figure-10": disturbed_paths(tables["paths"], "rise"),
            "errors": errors_by_scale(
                tables["small_errors"], tables["paper_errors"], cases[1][0], cases[0][0], bar.log10_init_scale
            ),
            "assumptions": assumption_checks(
                tables["small_stages"], tables["returns"], tables["kicks"], bar.returned, bar.near
            ),
            "forecast": ranks_by_budget(tables["small_ranks"], tables["forecast"], seed),
            "descent": descents_beside_the_flow(tables["descents"], tables["small_stages"], tables["drop"]),
        }
        for problem, (name, _, stages, _) in zip(("paper", "small"), cases, strict=True):
            timed = tables[f"{problem}_activations"]
            timed = timed[timed["seed"] == stages["seed"].iloc[0]]
            scale = timed.loc[timed["finite"].notna(), "log10_init_scale"].min()
            drawn[f"stages-{problem}"] = stage_table(name, stages, timed, scale)
    write_files(figures, {f"{name}.svg": rendered(figure) for name, figure in drawn.items()})


def case(tables: dict[str, pd.DataFrame], problem: str) -> tuple[str, pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The name of a problem and, of the seed that is drawn, its trajectories, stages and errors."""
    trajectories = tables[f"{problem}_trajectories"]
    seed = trajectories["seed"].iloc[0]
    stages, errors = (tables[f"{problem}_{name}"] for name in ("stages", "errors"))
    d = len(stages["p"].iloc[0]) // 2
    return f"d = {d}", trajectories, stages[stages["seed"] == seed].sort_values("stage"), errors[errors["seed"] == seed]


if __name__ == "__main__":
    run(main)
