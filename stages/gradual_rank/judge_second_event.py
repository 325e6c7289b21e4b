"""Judge what rises second in heads with full matrices: tables for the figure, and measures."""

from pathlib import Path

from lib.files.params import read_params
from lib.gradual_rank.measured_events import event_measures, setup_of, shown_courses, waits
from lib.gradual_rank.tables.second_event import DRAWN, FOLDER
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "second_event_added_wait": ("added_wait", "full"),
    "second_event_order_right": ("order_right", "full"),
}


def main(threshold: str, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    heads, rises, courses = read_tables_of(FOLDER, followed).values()
    added = waits(rises, heads)
    tables = {
        "heads": heads,
        "rises": rises,
        "added_waits": added,
        "courses": shown_courses(courses, heads),
    }
    write_tables_of(DRAWN, tables, metrics / "tables", small=True)
    setup = {**setup_of(rises, heads), "risen": read_params(threshold, float)}
    measured = [*setup_rows(setup), *event_measures(rises, heads, added)]
    write_measures(measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
