"""A stage that fails on a table which is not the one that it reads says so in one line; else its
fault is ours.
"""

import sys
from pathlib import Path

import pandas as pd
import pytest

from lib.files.tables import read_table, write_table
from lib.work.command import OutFolder, run
from lib.work.foreign import described, foreign_table, read_list

GOOD = pd.DataFrame(
    {"seed": [0, 1], "method": ["a", "b"], "p": [[1.0], [2.0, 3.0]], "lost": [True, False]}
)
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


def test_a_table_of_a_case_of_ones_own_is_compared_with_those_of_other_cases_in_its_folder(
    tmp_path,
):
    """Its name is that of the case, which may have more parts, and an ending."""
    list_of = tmp_path / "tables.txt"
    list_of.write_text(
        "data/heads/flows/small_events.parquet none x:numbers\ndata/heads/flows/events.parquet "
        "rows other:texts\n"
        "data/heads/flows/small_times.parquet rows "
        "z:numbers\ndata/heads/forecasts/small_events.parquet rows y:texts\n"
    )
    for folder, wanted in (("flows", "x"), ("forecasts", "y")):
        file = tmp_path / "data" / "heads" / folder / "my_own_events.parquet"
        write_table(GOOD, file)
        said = (
            f"{file}: wanted a table with the columns {wanted}, got columns seed, method, p, lost"
        )
        assert foreign_table("heads", [file], list_of) == said
        write_table(OTHER, file)
        assert foreign_table("heads", [file], list_of) is None
    for other in (
        "flows/own_ends.parquet",
        "elsewhere/own_events.parquet",
        "flows/ownevents.parquet",
    ):
        write_table(GOOD, tmp_path / "data" / "heads" / other)
        assert foreign_table("heads", [tmp_path / "data" / "heads" / other], list_of) is None, other


def test_of_tables_that_are_handed_on_those_with_rows_are_looked_at_and_no_other(listed, tmp_path):
    few, flow = (tmp_path / "data" / "heads" / f"{name}.parquet" for name in ("few", "flow"))
    for file in (few, flow):
        write_table(OTHER, file)
    said = f"{few}: {WANTED}columns x, y"
    assert foreign_table("heads", [tmp_path / "data"], listed, handed_on=["few", "more"]) == said
    write_table(OTHER.head(0), few)
    assert foreign_table("heads", [tmp_path / "data"], listed, handed_on=["few", "more"]) is None
    write_table(GOOD, few)
    assert foreign_table("heads", [tmp_path / "data"], listed, handed_on=["few", "more"]) is None


def test_other_columns_are_said_before_a_lack_of_rows_and_all_that_lack_them_together(
    listed, tmp_path
):
    few, flow = (tmp_path / "data" / "heads" / f"{name}.parquet" for name in ("few", "flow"))
    write_table(GOOD.head(0), few)
    write_table(OTHER, flow)
    assert "flow.parquet: wanted a table with" in str(foreign_table("heads", [few, flow], listed))
    write_table(GOOD, flow)
    assert (
        foreign_table("heads", [few, flow], listed) == f"{few}: wanted tables with rows, got none"
    )
    write_table(GOOD.head(0), flow)
    assert (
        foreign_table("heads", [few, flow], listed)
        == f"{few}, {flow}: wanted tables with rows, got none"
    )
    write_table(OTHER.head(0), tmp_path / "metrics" / "heads" / "tables" / "flow.parquet")
    assert foreign_table("heads", [tmp_path / "metrics"], listed) is None, (
        "the one of the list has none"
    )


def test_a_program_ends_in_one_line_on_another_table_and_with_a_traceback_on_its_own(
    listed, tmp_path, monkeypatch
):
    def main(table: Path, out: OutFolder) -> None:
        found = read_table(table)
        write_table(OTHER, out / "flow.parquet")  # what it writes is not what it was given
        found["seed"] + found["nowhere"]

    family = Path(__file__).parent.name
    monkeypatch.setattr("lib.work.foreign.LISTED", tmp_path / "of_io.txt")
    (tmp_path / "of_io.txt").write_text(listed.read_text().replace("heads", family))
    file = tmp_path / "data" / family / "flow.parquet"
    monkeypatch.setattr(
        sys, "argv", ["program", str(file), str(tmp_path / "metrics" / family / "tables")]
    )
    write_table(OTHER, file)
    with pytest.raises(
        SystemExit, match=r"^error: .*flow\.parquet: wanted a table with .*, got columns x, y$"
    ):
        run(main)
    write_table(GOOD, file)
    with pytest.raises(KeyError, match="nowhere"):
        run(main)


def test_another_table_in_place_of_one_that_is_handed_on_is_refused_before_the_work(
    listed, tmp_path, monkeypatch
):
    begun = []

    def main(table: Path) -> None:
        begun.append(table)

    family = Path(__file__).parent.name
    monkeypatch.setattr("lib.work.foreign.LISTED", tmp_path / "of_io.txt")
    (tmp_path / "of_io.txt").write_text(listed.read_text().replace("heads", family))
    file = tmp_path / "data" / family / "flow.parquet"
    monkeypatch.setattr(sys, "argv", ["program", str(file)])
    write_table(OTHER, file)
    run(main)
    run(main, handed_on=["few"])
    assert len(begun) == 2
    with pytest.raises(
        SystemExit,
        match=r"^error: .*flow\.parquet: wanted .*, got columns x, y \(after a change of ",
    ):
        run(main, handed_on=["few", "flow"])
    assert len(begun) == 2
    write_table(GOOD, file)
    run(main, handed_on=["few", "flow"])
    assert len(begun) == 3
