"""Judge the forecast of LoRA's start by what was followed: tables for the figure, and measures."""

from pathlib import Path

from lib.gradual_rank.adapter_times import adapter_measures, orders, where
from lib.gradual_rank.tables.adapter_start import DRAWN
from lib.gradual_rank.tables.adapter_start import FOLDER as FOLLOWED
from lib.pages.measures import write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "adapter_time_error": ("time_error", "rank 8"),
    "adapter_order": ("order", "rank 16"),
}
SHOWN = -2.0  # log10 of the scale of A whose course is drawn


def main(followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    learned, courses = read_tables_of(FOLLOWED, followed).values()
    ranks = sorted(courses.loc[courses["case"] == "apart", "rank"].unique().tolist())
    shown = where(courses, case="apart", rank=ranks[len(ranks) // 2], log10_init_scale=SHOWN)
    near = orders(where(learned, case="close"))
    tables = {"learned": learned, "course": shown, "orders": near}
    write_tables_of(DRAWN, tables, metrics / "tables", small=True)
    write_measures(adapter_measures(learned), metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
