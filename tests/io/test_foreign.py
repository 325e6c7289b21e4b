"""A stage that fails on a table which is not the one that it reads says so in one line; else its fault is ours."""

import sys
from pathlib import Path

import pandas as pd
import pytest

from lib.io.command import OutFolder, run
from lib.io.foreign import described, foreign_table, read_list
from lib.io.tables import read_table, write_table

GOOD = pd.DataFrame({"seed": [0, 1], "method": ["a", "b"], "p": [[1.0], [2.0, 3.0]], "lost": [True, False]})
OTHER = pd.DataFrame({"x": [1.5], "y": ["z"]})
WANTED = "wanted a table with the columns seed, method, p, lost, got "


@pytest.fixture
def listed(tmp_path):
    """A list that says of `flow` in data/heads and in metrics/heads/tables what they hold."""
    write_table(GOOD, tmp_path / "good.parquet")
    write_table(OTHER.head(0), tmp_path / "other.parquet")
    tables = {"data/heads/flow.parquet": "good", "metrics/heads/tables/flow.parquet": "other"}
    tables |= {"data/lists/flow.parquet": "other", "data/heads/few.parquet": "good"}
    lines = [described(tmp_path / f"{name}.parquet", path).line() for path, name in tables.items()]
    path = tmp_path / "tables.txt"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_a_list_says_again_what_was_described(listed, tmp_path):
    good, other = read_list(listed.read_text())[:2]
    assert listed.read_text().splitlines()[0] == (
        "data/heads/flow.parquet rows seed:numbers method:texts p:lists lost:truths"
    )
    assert good == described(tmp_path / "good.parquet", "data/heads/flow.parquet")
    assert other == described(tmp_path / "other.parquet", "metrics/heads/tables/flow.parquet")
    assert (good.has_rows, other.has_rows) == (True, False)


@pytest.mark.parametrize(
    ("frame", "got"),
    [
        (OTHER, "columns x, y"),
        (GOOD.drop(columns="p"), "columns seed, method, lost"),
        (GOOD.assign(seed=["a", "b"]), "texts in seed, where numbers are wanted"),
        (GOOD.assign(p=1.0), "numbers in p, where lists are wanted"),
        (GOOD.assign(lost=0.5), "numbers in lost, where truths are wanted"),
        (GOOD, None),
        (GOOD.assign(more=1, seed=[0.5, None], method=[None, None]), None),
    ],
    ids=str,
)
def test_a_table_is_that_of_the_list_or_what_is_wrong_with_it_is_said(frame, got, listed, tmp_path):
    file = tmp_path / "data" / "heads" / "flow.parquet"
    write_table(frame, file)
    for given in (file, file.parent, tmp_path / "data"):
        assert foreign_table("heads", [given], listed) == (got and f"{file}: {WANTED}{got}")
    assert foreign_table("vision", [file], listed) is None, "a family that is not listed"
    assert foreign_table("heads", [file], tmp_path / "none") is None


def test_a_table_is_compared_with_those_whose_path_is_most_like_its_own(listed, tmp_path):
    for place in ("metrics/heads/tables", "copies", "lists"):
        write_table(OTHER, tmp_path / place / "flow.parquet")
    assert foreign_table("heads", [tmp_path / "metrics"], listed) is None
    assert foreign_table("heads", [tmp_path / "copies"], listed) is None, "it is as one of two"
    write_table(OTHER.drop(columns="x"), tmp_path / "copies" / "flow.parquet")
    assert str(foreign_table("heads", [tmp_path / "copies"], listed)).endswith("got columns y")
    write_table(OTHER, tmp_path / "data" / "own.parquet")
    assert foreign_table("heads", [tmp_path / "data"], listed) is None, "a name that is not listed"


def test_other_columns_are_said_before_a_lack_of_rows_and_all_that_lack_them_together(listed, tmp_path):
    few, flow = (tmp_path / "data" / "heads" / f"{name}.parquet" for name in ("few", "flow"))
    write_table(GOOD.head(0), few)
    write_table(OTHER, flow)
    assert "flow.parquet: wanted a table with" in str(foreign_table("heads", [few, flow], listed))
    write_table(GOOD, flow)
    assert foreign_table("heads", [few, flow], listed) == f"{few}: wanted tables with rows, got none"
    write_table(GOOD.head(0), flow)
    assert foreign_table("heads", [few, flow], listed) == f"{few}, {flow}: wanted tables with rows, got none"
    write_table(OTHER.head(0), tmp_path / "metrics" / "heads" / "tables" / "flow.parquet")
    assert foreign_table("heads", [tmp_path / "metrics"], listed) is None, "the one of the list has none"


def test_a_program_that_fails_on_another_table_ends_in_one_line_and_on_its_own_fails_with_a_traceback(
    listed, tmp_path, monkeypatch
):
    def main(table: Path, out: OutFolder) -> None:
        found = read_table(table)
        write_table(OTHER, out / "flow.parquet")  # what it writes is not what it was given
        found["seed"] + found["nowhere"]

    family = Path(__file__).parent.name
    monkeypatch.setattr("lib.io.foreign.LISTED", tmp_path / "of_io.txt")
    (tmp_path / "of_io.txt").write_text(listed.read_text().replace("heads", family))
    file = tmp_path / "data" / family / "flow.parquet"
    monkeypatch.setattr(sys, "argv", ["program", str(file), str(tmp_path / "metrics" / family / "tables")])
    write_table(OTHER, file)
    with pytest.raises(SystemExit, match=r"^error: .*flow\.parquet: wanted a table with .*, got columns x, y$"):
        run(main)
    write_table(GOOD, file)
    with pytest.raises(KeyError, match="nowhere"):
        run(main)
