"""Judge the waits of momentum, Adam's ε and warm-up: tables for the figure, and measures."""

from pathlib import Path

from lib.files.params import read_params
from lib.gradual_rank.measured_waits import (
    expected_courses,
    root_lines,
    settings,
    wait_measures,
    waits,
)
from lib.gradual_rank.tables.momentum import DRAWN, FOLDER
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import read_tables_of, write_tables_of

HEADLINES = {
    "momentum_wait": ("wait_ratio", "beta_90"),
    "adam_default_steps": ("added_steps", "eps_1e-8"),
}


def main(threshold: str, width: str, followed: Path, metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    rises, courses = read_tables_of(FOLDER, followed).values()
    risen = read_params(threshold, float)
    judged = waits(rises, risen, read_params(width, int))
    tables = {
        "waits": judged,
        "courses": expected_courses(courses, rises),
        "roots": root_lines(judged),
    }
    write_tables_of(DRAWN, tables, metrics / "tables", small=True)
    measured = [*setup_rows(settings(rises)), *wait_measures(judged, risen)]
    write_measures(measured, metrics, HEADLINES)


if __name__ == "__main__":
    run(main)
