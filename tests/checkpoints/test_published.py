"""What is published of adapters and of rules is measured of the tables beside it."""

import pandas as pd
import pytest

from published.rank_patterns import run as rank_patterns
from published.rank_rules import run as rank_rules
from tests.pipeline.project import ROOT
from tests.stages.made import read_digested


@pytest.mark.parametrize("program", [rank_patterns, rank_rules])
def test_published_measures_are_those_of_the_published_tables(program):
    folder = ROOT / program.OUT
    tables = {path.stem: pd.read_parquet(path) for path in (folder / "tables").iterdir()}
    measured = program.measured(tables["trained"] if program is rank_patterns else tables)
    kept = read_digested(folder / "measures.json")
    del kept["setup"]
    assert measured.keys() == kept.keys()
    for name, values in measured.items():
        wanted = dict(zip(kept[name]["cases"], kept[name]["values"], strict=True))
        assert values.to_dict() == pytest.approx(wanted, rel=1e-4, abs=1e-6), name
