"""Judge heads with normalised queries and keys: tables for the figure, and measures."""

from pathlib import Path

from lib.files.params import read_params
from lib.gradual_rank.tables.normalized import FOLDER
from lib.gradual_rank.turning import measures_of
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "normalized_turn_change": ("turn_change", "qk_norm"),
    "normalized_wait_ratio": ("wait_ratio", "qk_norm"),
}


def main(small: str, turned: str, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    tables = read_tables_of(FOLDER, followed)
    heads = tables["heads"]
    setup = {
        "n_seeds": heads["seed"].nunique(),
        "smallest": f"1e{heads['log10_init_scale'].min():g}",
        "small": read_params(small, float),
        "turned": read_params(turned, float),
    }
    write_tables_of(FOLDER, tables, metrics / "tables", small=True)
    measured = [*setup_rows(setup), *measures_of(heads, tables["limits"])]
    write_measures(measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
