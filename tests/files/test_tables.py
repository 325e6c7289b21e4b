"""The bytes of a table depend on its content alone, and a broken table is refused."""

import json
import math
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from lib.files.files import InputError
from lib.files.tables import (
    compact,
    pick,
    read_json,
    read_table,
    read_tables,
    significant,
    write_csv,
    write_json,
    write_table,
)


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "step": np.arange(50),
            "loss": np.geomspace(1, 1e-12, 50),
            "name": [f"head {i % 3}" for i in range(50)],
            "held": np.arange(50) % 2 == 0,
        }
    )


def test_a_table_comes_back_as_it_was(frame, tmp_path):
    frame.loc[3, "loss"] = math.nan
    write_table(frame, tmp_path / "t.parquet")
    pd.testing.assert_frame_equal(read_table(tmp_path / "t.parquet"), frame)


def test_a_table_is_read_by_columns_and_a_missing_one_is_named(frame, tmp_path):
    write_table(frame, tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", ["loss", "step"])
    assert sorted(found.columns) == ["loss", "step"]
    wanted = r"t\.parquet: wanted a table with the columns gain, step, got columns step, loss, name"
    with pytest.raises(InputError, match=wanted):
        read_table(tmp_path / "t.parquet", ["gain", "step"])


def test_the_tables_of_a_folder_are_known_by_some_columns_and_read_whole(frame, tmp_path):
    for name in ("one", "other", "unread"):
        write_table(frame.assign(of=name), tmp_path / f"{name}.parquet")
    found = read_tables(tmp_path, {"one": "of loss", "other": "of"})
    assert {name: table["of"][0] for name, table in found.items()} == {
        "one": "one",
        "other": "other",
    }
    assert list(found["one"]) == [*frame, "of"]
    with pytest.raises(InputError, match=r"other\.parquet: wanted a table with the columns gain"):
        read_tables(tmp_path, {"one": "of", "other": "gain of"})


def test_the_same_content_gives_the_same_bytes_without_metadata_of_a_library(frame, tmp_path):
    write_table(frame, tmp_path / "a.parquet")
    shuffled_index = frame.set_index(np.arange(50) + 7)  # the index is not content
    shuffled_index.attrs["made"] = "today"
    write_table(shuffled_index, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert pq.read_metadata(tmp_path / "a.parquet").metadata is None


@pytest.mark.parametrize("kept", [None, 0.0, 0.5, 0.999])
def test_a_table_that_is_missing_or_truncated_is_refused(frame, tmp_path, kept):
    path = tmp_path / "t.parquet"
    write_table(frame, path)
    data = path.read_bytes()
    path.unlink() if kept is None else path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(InputError, match=r"t\.parquet: wanted a whole Parquet table"):
        read_table(path)


def test_what_git_keeps_of_a_table_is_compact():
    frame = pd.DataFrame(
        {
            "law": ["a", "b"],
            "loss": [1 / 3, 2.0],
            "n": [3, 4],
            "sigma": [np.array([1 / 3]), np.array([2.0, 1.0])],
            "seeds": [np.array([1, 2]), np.array([3])],
            "right": [np.array([True]), np.array([False])],
        }
    )
    found = compact(frame)
    assert found.dtypes.astype(str).tolist()[:3] == ["category", "float32", "int32"]
    kinds = [found[name].iloc[1].dtype.name for name in ("sigma", "seeds", "right")]
    assert kinds == ["float32", "int32", "bool"]
    double = compact(frame, single_precision=False)
    assert double.dtypes.astype(str).tolist()[:3] == ["category", "float64", "int64"]
    assert double["sigma"].iloc[0].tolist() == [1 / 3]


def test_a_column_keeps_its_width_where_a_number_does_not_fit_in_32_bits(tmp_path):
    frame = pd.DataFrame(
        {
            "seed": [3, 4_000_000_000],
            "least": [-(2**31), 2**31 - 1],
            "below": [-(2**31) - 1, 0],
            "loss": [1e39, 0.5],
            "scale": [1e-64, math.inf],
            "seeds": [np.array([1, 2]), np.array([2**31])],
            "sigma": [np.array([1e39]), np.array([2.0, math.nan])],
        }
    )
    found = compact(frame)
    kinds = [str(found[name].dtype) for name in ("seed", "least", "below", "loss", "scale")]
    assert kinds == ["int64", "int32", "int64", "float64", "float32"]
    assert found["seeds"].iloc[0].dtype == np.int64
    assert found["sigma"].iloc[1].dtype == np.float64
    write_table(found, tmp_path / "t.parquet")
    read = read_table(tmp_path / "t.parquet")
    assert read["seed"].tolist() == [3, 4_000_000_000]
    assert read["seeds"].map(list).tolist() == [[1, 2], [2**31]]


def test_floats_are_rounded_to_six_significant_digits_and_only_floats():
    value = {
        "a": [1.23456789e-20, -0.1 + 1e-9, True, 1234567],
        "b": (math.nan, -math.inf),
        "c": None,
    }
    assert significant(value) == {
        "a": [1.23457e-20, -0.1, True, 1234567],
        "b": [None, None],
        "c": None,
    }
    assert significant(np.float64(2 / 3)) == 0.666667


def test_json_keeps_its_order_and_its_bytes(tmp_path):
    value = {"z": 2 / 3, "a": {"β": [1, 2.0]}}
    write_json(value, tmp_path / "m.json")
    assert (tmp_path / "m.json").read_text(encoding="utf-8") == (
        '{\n  "z": 0.666667,\n  "a": {\n    "β": [\n      1,\n      2.0\n    ]\n  }\n}\n'
    )
    assert read_json(tmp_path / "m.json") == significant(value)


def test_the_cases_with_these_values_are_picked_and_sorted_by_their_name():
    table = pd.DataFrame(
        {
            "seed": [2, 1, 0, 2],
            "law": ["a", "b", "a", "b"],
            "scale": [0.1, 0.1, 0.1, 0.2],
            "loss": [1.0, 2.0, 3.0, 4.0],
        }
    )
    assert pick(table, law="a", scale=0.1)["loss"].to_dict() == {0: 3.0, 2: 1.0}
    assert list(pick(table, law="a").index) == [0, 2]
    assert pick(table, by="law", seed=2)["loss"].to_dict() == {"a": 1.0, "b": 4.0}
    assert pick(table, law="none").empty
    assert list(table["seed"]) == [2, 1, 0, 2]


def test_csv_has_six_digits_and_plain_line_ends(tmp_path):
    write_csv(pd.DataFrame({"step": [1, 2], "loss": [2 / 3, 1e-9]}), tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_bytes() == b"step,loss\n1,0.666667\n2,1e-09\n"


@pytest.mark.parametrize(
    "altered",
    [
        lambda text: text.replace("1.5", "1.6"),
        lambda text: text.replace('"gain"', '"pain"'),
        lambda text: text.replace("1.5,\n    2.5", "2.5,\n    1.5"),
        lambda text: text.replace('"gain"', '"loss": [], "gain"'),
        lambda text: text.replace("sha256_of_the_rest", "sha256_of_the_test"),
    ],
)
def test_json_that_was_altered_is_refused_with_its_file(altered, tmp_path):
    file = tmp_path / "claims.json"
    write_json({"gain": [1.5, 2.5]}, file, digest=True)
    text = file.read_text()
    assert altered(text) != text
    file.write_text(altered(text))
    with pytest.raises(
        InputError, match=rf"^{re.escape(str(file))}: wanted the (content|digest) of"
    ):
        read_json(file, digest=True)
    file.write_text(json.dumps(json.loads(text)))  # of another layout, which is no alteration
    assert read_json(file, digest=True) == {"gain": [1.5, 2.5]}


def test_json_without_a_digest_is_refused_where_one_is_wanted(tmp_path):
    write_json({"gain": 1.5}, tmp_path / "m.json")
    with pytest.raises(
        InputError, match=r"m\.json: wanted the digest of its content, .*, got none$"
    ):
        read_json(tmp_path / "m.json", digest=True)
    assert read_json(tmp_path / "m.json") == {"gain": 1.5}
