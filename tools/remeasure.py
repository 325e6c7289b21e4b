"""Take the measures of a published run anew from its tables in git: `python -m tools.remeasure
cifar10_short`.

Use it when a measure is added or changed: no training is needed. It writes the tables that are
computed from other tables, the measures and their summary, and touches nothing else. The stage
draws the figures: `python -m stages.vision.plot vision.plot published/NAME/tables
published/NAME/figures`.
"""

from pathlib import Path

from lib.files.params import read_params
from lib.files.tables import compact, read_table, write_measures, write_table
from lib.vision.measures import derived, measured
from lib.work.command import run
from stages.vision.evaluate import HEADLINES, Evaluate, Sizes, setup_of

TABLES = ("training", "ranks", "truncate", "prune", "directions")


def main(dataset: str) -> None:
    folder = Path("published") / dataset
    params = read_params("vision.evaluate", Evaluate)
    sizes = read_params(f"vision.{dataset}.train.model", Sizes, part=True)
    tables = {name: read_table(folder / "tables" / f"{name}.parquet") for name in TABLES}
    tables |= {name: compact(table) for name, table in derived(tables).items()}
    for name in tables.keys() - set(TABLES):
        write_table(tables[name], folder / "tables" / f"{name}.parquet")
    found = measured(tables, params.reference_scale)
    write_measures(found, folder, setup_of(params, sizes), HEADLINES)


if __name__ == "__main__":
    run(main)
