"""What the tests of the stages evaluate and plot share: tables, and what evaluate makes of them."""

import pandas as pd
import pytest

from tests.low_rank_sparse.low_rank_sparse_tables import evaluate, made_tables


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """The made tables, and the folder in which evaluate wrote its metrics and curves."""
    tables = made_tables()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("evaluated"))
        return tables, evaluate(tables)


@pytest.fixture(scope="session")
def kept(evaluated):
    """The tables that are kept for figures."""
    return {path.stem: pd.read_parquet(path) for path in (evaluated[1] / "tables").iterdir()}
