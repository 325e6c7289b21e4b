"""A table that stages exchange has the columns and types that its schema says, on both sides."""

import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from lib.work.cells import Course
from lib.work.schemas import (
    read_tables_of,
    read_tables_there,
    schema,
    write_joined,
    write_tables_there,
)

EVENTS = schema("""
A product rises.
seed  integer  the seed of the head
time  number   when
name  text     of the product
p     numbers  every product
""")
ROWS = [
    {"seed": 3, "time": 0.5, "name": "first", "p": np.array([1.0, 2.0]), "unused": 7},
    {"seed": 4, "time": 1.0, "name": "second", "p": np.array([0.0])},
]


def test_what_is_written_has_the_columns_of_the_schema_in_their_order(tmp_path):
    EVENTS.write(pd.DataFrame(ROWS)[["unused", "p", "name", "time", "seed"]], tmp_path / "a")
    found = pd.read_parquet(tmp_path / "a")
    assert list(found) == ["seed", "time", "name", "p"]
    pd.testing.assert_frame_equal(EVENTS.read(tmp_path / "a"), found)


def test_a_table_without_rows_has_its_types(tmp_path):
    EVENTS.write(EVENTS.frame([]), tmp_path / "a")
    found = EVENTS.read(tmp_path / "a")
    assert (len(found), list(found)) == (0, ["seed", "time", "name", "p"])
    assert found.dtypes[["seed", "time"]].tolist() == [np.int64, np.float64]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("time", ["early", "late"], "column time: wanted number .when., got "),
        ("seed", [0.5, 1.5], "column seed: wanted integer .the seed of the head., got double"),
        ("p", [1.0, 2.0], "column p: wanted numbers .every product., got double"),
        ("name", [True, False], "column name: wanted text .of the product., got bool"),
    ],
)
def test_another_type_is_refused_by_writer_and_reader(tmp_path, column, values, said):
    table = pd.DataFrame(ROWS).assign(**{column: values})
    with pytest.raises(InputError, match=f"b.parquet: {said}"):
        EVENTS.write(table, tmp_path / "b.parquet")
    table.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"a.parquet: {said}"):
        EVENTS.read(tmp_path / "a.parquet")


def test_a_table_may_lack_an_optional_column_and_no_other(tmp_path):
    few = EVENTS.also("found  number?  on a text\nright  truth?  of a classifier")
    rows = pd.DataFrame(ROWS)
    for added in ({}, {"right": [True, False]}, {"right": [True, False], "found": [0.5, 1.0]}):
        few.write(rows.assign(**added), tmp_path / "a")
        names = [name for name in ("found", "right") if name in added]
        assert list(few.read(tmp_path / "a")) == ["seed", "time", "name", "p", *names]
    with pytest.raises(InputError, match=r"column found: wanted number .on a text., got "):
        few.write(rows.assign(found="much"), tmp_path / "a")
    few.write(rows.assign(found=1.0), tmp_path / "b")
    wanted = "wanted a table with the columns seed, time, name, p, found, right, got columns"
    with pytest.raises(InputError, match=wanted):
        few.whole().read(tmp_path / "b")
    with pytest.raises(
        InputError, match="wanted a table with the columns seed, time, name, p, got"
    ):
        few.write(rows.drop(columns="p"), tmp_path / "c")


def test_a_column_that_is_not_there_is_named(tmp_path):
    pd.DataFrame(ROWS).drop(columns="time").to_parquet(tmp_path / "a")
    wanted = "wanted a table with the columns seed, time, name, p, got columns seed, name, p"
    with pytest.raises(InputError, match=wanted):
        EVENTS.read(tmp_path / "a")


def test_a_table_of_others_lacks_and_has_columns(tmp_path):
    few = EVENTS.without("name", "p").also("loss  number  at that time")
    assert few.columns.keys() == {"seed", "time", "loss"}
    table = pd.DataFrame(ROWS).assign(loss=[1.0, 0.5])
    few.write(table, tmp_path / "a", small=True)
    assert pd.read_parquet(tmp_path / "a").dtypes.tolist() == [np.int32, np.float32, np.float32]
    assert few.read(tmp_path / "a")["loss"].tolist() == [1.0, 0.5]


def test_some_columns_of_others_stand_in_the_order_in_which_they_are_named(tmp_path):
    EVENTS.only("name seed").write(pd.DataFrame(ROWS), tmp_path / "a")
    assert list(pd.read_parquet(tmp_path / "a")) == ["name", "seed"]


def test_a_folder_has_the_tables_that_are_there(tmp_path):
    EVENTS.write(pd.DataFrame(ROWS), tmp_path / "a.parquet")
    found = read_tables_there({"a": EVENTS, "b": EVENTS}, tmp_path)
    assert {name: list(table["seed"]) for name, table in found.items()} == {"a": [3, 4]}


def test_tables_of_cells_are_joined_in_place_of_a_folders_tables(tmp_path):
    (tmp_path / "old.parquet").write_text("")
    parts = [pd.DataFrame(ROWS[:1]), pd.DataFrame(ROWS[1:])]
    cells = [{"events": parts[0]}, Course({"events": parts[1]}, [])]
    schemas = {"events": EVENTS, "none": EVENTS}
    write_joined(schemas, cells, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"events.parquet", "none.parquet"}
    found = read_tables_of(schemas, tmp_path)
    assert (found["events"]["seed"].tolist(), len(found["none"])) == ([3, 4], 0)


def test_a_table_that_no_cell_has_is_not_written(tmp_path):
    table = pd.DataFrame(ROWS)
    EVENTS.write(table, tmp_path / "old.parquet")
    found = {"one": [{"a": table[:1]}, Course({"a": table[1:]}, [])], "other": []}
    write_tables_there({"a": EVENTS, "b": EVENTS}, found, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]
    assert EVENTS.read(tmp_path / "a.parquet")["seed"].tolist() == [3, 4]


def test_a_column_may_hold_lists_of_lists(tmp_path):
    nested = schema("""
A task.
lists  integerss  the list of each token
""")
    nested.write(pd.DataFrame({"lists": [((1, 0), (1,))]}), tmp_path / "a")
    assert [list(one) for one in nested.read(tmp_path / "a")["lists"][0]] == [[1, 0], [1]]
    with pytest.raises(InputError, match="wanted integerss"):
        nested.write(pd.DataFrame({"lists": [[1, 0]]}), tmp_path / "a")
