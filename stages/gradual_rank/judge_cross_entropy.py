"""Judge flows under cross-entropy by Algorithm 1: tables for the figure, and measures."""

from pathlib import Path

from lib.files.params import read_params
from lib.gradual_rank.finite_plateaus import measures_of, supports_of
from lib.gradual_rank.tables.cross_entropy import DRAWN, FOLDER
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "cross_entropy_supports": ("supports", "head"),
    "cross_entropy_growth": ("growth", "head"),
}


def main(significant: str, share: str, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    tables = read_tables_of(FOLDER, followed)
    ends = tables["ends"]
    setup = {
        "n_seeds": ends["seed"].nunique(),
        "smallest": f"1e{ends['log10_init_scale'].min():g}",
        "largest": f"1e{ends['log10_init_scale'].max():g}",
        "share": read_params(share, float),
    }
    least = read_params(significant, float)
    supports = supports_of(tables, least)
    measured = [*setup_rows(setup), *measures_of(tables, supports, least)]
    write_tables_of(DRAWN, {**tables, "supports": supports}, metrics / "tables", small=True)
    write_measures(measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
