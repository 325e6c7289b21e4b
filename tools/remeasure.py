"""Take the measures of a published run anew from its tables in git: `python -m tools.remeasure
cifar10_short`.

Use it when a measure is added or changed: no training is needed. It writes the tables that are
computed from other tables, the measures and their headlines, and touches nothing else. The stage
draws the figures: `python -m stages.vision.plot --section=vision.plot
--tables=published/NAME/tables --figures=published/NAME/figures`.
"""

from pathlib import Path

from lib.files.params import read_params
from lib.files.tables import compact
from lib.pages.measures import setup_rows, write_measures
from lib.vision.measures import derived, measured
from lib.vision.tables.drawn import DERIVED, MEASURED, read_drawn
from lib.work.command import run
from stages.vision.evaluate import HEADLINES, Evaluate, Sizes


def main(dataset: str) -> None:
    folder = Path("published") / dataset
    params = read_params("vision.evaluate", Evaluate)
    sizes = read_params(f"vision.{dataset}.train.model", Sizes, part=True)
    tables = read_drawn(MEASURED, folder / "tables")
    found = derived(tables)
    for name, schema in DERIVED.items():
        tables[name] = compact(found[name])
        schema.write(tables[name], folder / "tables" / f"{name}.parquet")
    rows = measured(tables, params.reference_scale)
    write_measures(setup_rows({"d_model": sizes.d_model}) + rows, folder, HEADLINES)


if __name__ == "__main__":
    run(main)
