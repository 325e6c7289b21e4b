"""Judge normalised heads after their turn: tables for the figure, and measures."""

from pathlib import Path

from lib.files.params import read_params
from lib.gradual_rank.after_the_turn import lags_of, laws_of, measures_of
from lib.gradual_rank.tables.turns import DRAWN, FOLDER
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "after_the_turn_values_step": ("values_step", "qk_norm"),
    "after_the_turn_keys_step": ("keys_step", "qk_norm"),
}


def main(share: str, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    tables = read_tables_of(FOLDER, followed)
    heads = tables["heads"]
    setup = {
        "n_seeds": heads["seed"].nunique(),
        "smallest": f"1e{heads['log10_init_scale'].min():g}",
        "turned": read_params(share, float),
    }
    lags = lags_of(tables["directions"])
    measured = measures_of(tables, lags)
    drawn = tables | {"lags": lags, "laws": laws_of(measured)}
    write_tables_of(DRAWN, drawn, metrics / "tables", small=True)
    write_measures([*setup_rows(setup), *measured], metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
