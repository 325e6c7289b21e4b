"""Write what git keeps of the example: small tables, and measures for the claims."""

from pathlib import Path

import pandas as pd

from lib.checkpoints.measures import SLIGHT, head_ranks, measured, middle_rate
from lib.checkpoints.tables.decomposed import EVOLVED, ROUNDING
from lib.checkpoints.tables.drawn import DRAWN
from lib.checkpoints.tables.planned import EXAMPLE
from lib.pages.measures import setup_rows, write_measures
from lib.work.command import OutFolder, run
from lib.work.schemas import Schema, write_tables_of

HEADLINES = {"attributed_less_uniform": ("attributed_less_uniform", "")}


def main(models: list[Path], metrics: OutFolder) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` of the models in these folders."""
    tables = {name: stacked(models, f"plans/{name}", one) for name, one in EXAMPLE.items()}
    tables["rounding"] = stacked(models, "rounding", ROUNDING)
    tables["heads"] = head_ranks(stacked(models, "pretrained", EVOLVED))
    rate = middle_rate(tables["pruning"])
    said = setup_rows({"slight": f"{SLIGHT:g}", "pruning_rate": f"{rate:.0%}"})
    write_tables_of(DRAWN, tables, metrics / "tables", small=True)
    write_measures(said + measured(tables, rate), metrics, HEADLINES)


def stacked(models: list[Path], name: str, schema: Schema) -> pd.DataFrame:
    """The tables of that name of all models, one after another."""
    tables = [schema.read(model / f"{name}.parquet").assign(model=model.name) for model in models]
    return pd.concat(tables, ignore_index=True)


if __name__ == "__main__":
    run(main)
