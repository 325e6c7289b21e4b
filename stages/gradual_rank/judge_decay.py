"""Judge Algorithm 1 with weight decay by what was followed: tables for the figure, and measures."""

from pathlib import Path

import pandas as pd

from lib.files.params import read_params
from lib.gradual_rank.measures import CELL
from lib.gradual_rank.tables.decay import FOLDER as FOLLOWED
from lib.gradual_rank.tables.drawn import DECAY
from lib.gradual_rank.weight_decay import (
    beside_undecayed,
    joins,
    never,
    rank_measures,
    rest_measures,
    rise_measures,
    time_measures,
)
from lib.pages.measures import rows_of, setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "decay_rise_error": ("rise_error", "diagonal"),
    "decay_time_constant": ("time_constant", ""),
}


def main(significant: str, decayed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    least = read_params(significant, float)
    stages, rises, heads, courses, full = read_tables_of(FOLLOWED, decayed).values()
    heads = beside_undecayed(heads, CELL, "expected", "undecayed")
    rising = beside_undecayed(full[~full["to_rest"]], CELL, "expected", "undecayed")
    resting = full[full["to_rest"]]
    joined = joins(rises, least)
    seed = heads["seed"].min()
    scale = heads["log10_init_scale"].min()
    shares = sorted(share for share in heads["share"].unique() if 0 < share < 1)
    shown = shares[len(shares) // 2]
    of_one = courses["share"].eq(shown) & courses["seed"].eq(seed)
    tables = {
        "heads": heads,
        "full_rises": rising,
        "full_rests": resting,
        "joins": joined[joined["share"].between(0, 1, "neither")],
        "course": courses[of_one & courses["log10_init_scale"].eq(scale)],
        "plateaus": stages,
    }
    measured = [
        *setup_rows({"n_seeds": heads["seed"].nunique(), "most": shares[-1]}),
        *rows_of(rise_measures(heads), "diagonal"),
        *rows_of(rise_measures(rising), "full"),
        *rest_measures(heads, resting),
        *rows_of(time_measures(joined)),
        *rank_measures(heads, resting, shares[-1]),
        *rows_of({"risen_above": never(pd.concat([heads, rising]))}),
    ]
    write_tables_of(DECAY, tables, metrics / "tables", small=True)
    write_measures(measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
