"""The list of tables is that of the tables in git, and keeps what it says of data that are not
there.
"""

import pandas as pd

from lib.files.tables import write_table
from lib.work.foreign import LISTED, read_list
from tools.tables import ROOT, listing


def test_the_list_is_that_of_the_tables_in_git():
    before = LISTED.read_text()
    of_git = [line for line in listing(ROOT, before).splitlines() if line.startswith("metrics/")]
    assert of_git == [line for line in before.splitlines() if line.startswith("metrics/")], (
        "run make generated"
    )
    assert len(of_git) > 50


def test_the_list_keeps_data_that_are_not_there_and_forgets_tables_of_git(tmp_path):
    write_table(pd.DataFrame({"seed": [1]}), tmp_path / "data" / "heads" / "b.parquet")
    write_table(
        pd.DataFrame({"seed": [1]}), tmp_path / "data" / "heads" / "runs" / "one" / "steps.parquet"
    )
    write_table(pd.DataFrame({"of": ["x"]}), tmp_path / "metrics" / "c.parquet")
    before = (
        "data/heads/a.parquet none x:lists\ndata/heads/b.parquet none "
        "y:texts\nmetrics/d.parquet rows z:numbers\n"
    )
    found = listing(tmp_path, before)
    assert found.splitlines() == [
        "data/heads/a.parquet none x:lists",
        "data/heads/b.parquet rows seed:numbers",
        "metrics/c.parquet rows of:texts",
    ]
    assert [table.path for table in read_list(found)] == [
        line.split()[0] for line in found.splitlines()
    ]
