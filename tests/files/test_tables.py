"""The bytes of a table depend on its content alone, and a broken table is refused."""

import json
import math
import pickle
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from lib.files.files import InputError
from lib.files.tables import (
    pick,
    read_json,
    read_measures,
    read_table,
    significant,
    write_csv,
    write_json,
    write_measures,
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


def test_a_table_can_be_read_by_columns(frame, tmp_path):
    write_table(frame, tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet", ["loss", "step"])
    assert sorted(found.columns) == ["loss", "step"]


def test_a_missing_column_is_named(frame, tmp_path):
    write_table(frame, tmp_path / "t.parquet")
    with pytest.raises(
        InputError,
        match=r"t\.parquet: wanted a table with the columns gain, step, got columns step, ",
    ):
        read_table(tmp_path / "t.parquet", ["gain", "step"])


def test_the_same_content_gives_the_same_bytes(frame, tmp_path):
    write_table(frame, tmp_path / "a.parquet")
    shuffled_index = frame.set_index(np.arange(50) + 7)  # the index is not content
    shuffled_index.attrs["made"] = "today"
    write_table(shuffled_index, tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_no_library_metadata_enters_a_table(frame, tmp_path):
    write_table(frame, tmp_path / "t.parquet")
    assert pq.read_metadata(tmp_path / "t.parquet").metadata is None


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"t\.parquet: wanted a whole Parquet table"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_truncated_table_is_refused(frame, tmp_path, kept):
    path = tmp_path / "t.parquet"
    write_table(frame, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(InputError, match=r"t\.parquet: wanted a whole Parquet table"):
        read_table(path)


@pytest.mark.parametrize("column", range(4))
def test_a_flipped_bit_in_the_data_of_a_column_is_refused(frame, tmp_path, column):
    path = tmp_path / "t.parquet"
    write_table(frame, path)
    chunk = pq.read_metadata(path).row_group(0).column(column)
    end = (chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size
    data = bytearray(path.read_bytes())
    data[end - 1] ^= 1  # the last byte of the data page
    path.write_bytes(data)
    with pytest.raises(InputError, match="CRC"):
        read_table(path)


def test_a_table_with_an_altered_footer_is_read_or_refused_but_never_a_crash(frame, tmp_path):
    path = tmp_path / "t.parquet"
    write_table(frame, path)
    data, refused = path.read_bytes(), 0
    footer = int.from_bytes(data[-8:-4], "little") + 8
    for position in range(len(data) - footer, len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 128
        path.write_bytes(flipped)
        try:
            read_table(path)
        except InputError:
            refused += 1
    assert refused > footer / 2


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


def test_json_without_numbers_for_nan_is_still_json(tmp_path):
    write_json({"loss": math.nan}, tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text()) == {"loss": None}


@pytest.mark.parametrize("content", [None, b"", b'{"a": 1', b"\xff\xfe"])
def test_missing_or_broken_json_is_refused(tmp_path, content):
    path = tmp_path / "m.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"m\.json: wanted a JSON file, got: "):
        read_json(path)


@pytest.fixture
def measured(tmp_path):
    """Writes measures and reads back measures.json and summary.json, beside headlines of none."""

    def measured(**measures):
        write_measures(measures, tmp_path / "metrics" / "any")
        assert sorted(path.name for path in (tmp_path / "metrics" / "any").iterdir()) == [
            "headlines.json",
            "measures.json",
            "summary.json",
        ]
        assert read_json(tmp_path / "metrics" / "any" / "headlines.json") == {}
        return [
            read_json(tmp_path / "metrics" / "any" / f"{name}.json")
            for name in ("measures", "summary")
        ]

    return measured


def test_headlines_are_the_means_of_those_that_were_taken_in_three_digits(tmp_path):
    by_scale = {"1e-4": pd.Series([1.0]), "1e-8": pd.Series([0.98765, 1.0])}
    write_measures(
        {"a": pd.Series([1234.5, 1236.5]), "b": by_scale, "c": pd.Series([1.0])},
        tmp_path,
        headlines=["b", "a", "x"],
    )
    assert list(read_json(tmp_path / "headlines.json").items()) == [("b", 0.994), ("a", 1240.0)]


def test_a_measure_has_a_value_per_case_by_its_name_and_a_mean_and_a_spread(measured):
    seeds = pd.Series([1.0, 2.0, 4.0 + 1e-9], index=pd.Index([4, 2, 7], name="seed"))
    tasks = pd.Series([3, 5], index=["joint-000", "alone"])
    measures, summary = measured(rank=seeds, count=tasks)
    assert measures == {
        "rank": {"cases": ["4", "2", "7"], "values": [1.0, 2.0, 4.0]},
        "count": {"cases": ["joint-000", "alone"], "values": [3.0, 5.0]},
    }
    assert summary == {
        "rank": {"mean": 2.33333, "sd": 1.52753},
        "count": {"mean": 4.0, "sd": 1.41421},
    }


def test_the_setup_stands_beside_the_measures(tmp_path):
    write_measures({"a": pd.Series([1.0])}, tmp_path, {"d": 8, "scale": 1e-8, "law": "zipf"})
    assert read_json(tmp_path / "measures.json")["setup"] == {"d": 8, "scale": 1e-8, "law": "zipf"}
    assert list(read_json(tmp_path / "summary.json")) == ["a"]


def test_the_order_of_measures_of_cases_and_of_scales_is_kept(measured):
    series = pd.Series([1.0, 0.0], index=["b", "a"])
    measures, summary = measured(z=series, a={"1e-4": series, "1e-8": series}, m=series)
    assert list(measures) == list(summary) == ["z", "a", "m"]
    assert list(measures["a"]) == ["1e-4", "1e-8"]
    assert measures["z"]["cases"] == ["b", "a"]


def test_a_measure_by_scale_is_summed_up_at_the_last_of_them(measured):
    scales = {
        "1e-4": pd.Series([1.0, 2.0]),
        "1e-8": pd.Series([5.0, 7.0]),
        "1e-16": pd.Series([4.0, 6.0, 8.0]),
    }
    measures, summary = measured(error=scales)
    assert measures["error"] == {
        "1e-4": {"cases": ["0", "1"], "values": [1.0, 2.0]},
        "1e-8": {"cases": ["0", "1"], "values": [5.0, 7.0]},
        "1e-16": {"cases": ["0", "1", "2"], "values": [4.0, 6.0, 8.0]},
    }
    assert summary == {"error": {"mean": 6.0, "sd": 2.0}}


def test_one_value_has_no_spread_and_what_is_not_finite_is_null_without_a_warning(measured):
    measures, summary = measured(
        one=pd.Series([2.5], index=[3]),
        infinite=pd.Series([1.0, math.inf], index=[0, 1]),
        missing=pd.Series([1.0, math.nan], index=[0, 1]),
        both=pd.Series([math.inf, -math.inf], index=[0, 1]),
        empty=pd.Series([], dtype=float),
    )
    assert measures["one"] == {"cases": ["3"], "values": [2.5]}
    assert [measures[name]["values"] for name in ("infinite", "missing", "both")] == [
        [1.0, None]
    ] * 2 + [[None, None]]
    assert measures["empty"] == {"cases": [], "values": []}
    nothing = {"mean": None, "sd": None}
    assert summary == {"one": {"mean": 2.5, "sd": None}} | dict.fromkeys(
        list(measures)[1:], nothing
    )


def test_truths_and_whole_numbers_are_values_too(measured):
    measures, summary = measured(
        held=pd.Series([True, False]), count=pd.Series([np.int64(3), np.int64(5)])
    )
    assert measures["held"]["values"] == [1.0, 0.0]
    assert summary["count"] == {"mean": 4.0, "sd": 1.41421}


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
    ("found", "got"),
    [
        ([1, 2], r"\[1, 2\]"),
        ({"gain": {"mean": 1.0, "sd": 0.5}}, "'gain'"),
        ({"setup": {"d": 8}, "gain": {"cases": ["0"], "values": 1.0}}, "'gain'"),
        ({"gain": {"1e-4": {"cases": ["0"], "values": [1.0]}, "1e-8": [1.0]}}, "'gain'"),
        (
            {
                "loss": {"cases": ["0"], "values": [None]},
                "gain": {"cases": ["0"], "values": ["much"]},
            },
            "'gain'",
        ),
    ],
    ids=str,
)
def test_a_file_of_no_measures_is_refused(found, got, tmp_path):
    write_json(found, tmp_path / "m.json")
    with pytest.raises(
        InputError, match=rf"m\.json: wanted measures with lists of cases and of values, got {got}$"
    ):
        read_measures(tmp_path / "m.json")


def test_a_setup_that_is_none_is_refused(tmp_path):
    write_json({"setup": 8}, tmp_path / "m.json")
    with pytest.raises(
        InputError, match=r"m\.json: wanted a setup of numbers and texts by name, got 8$"
    ):
        read_measures(tmp_path / "m.json")


def test_what_measures_lack_is_refused_where_it_is_looked_up_in_another_process_too(tmp_path):
    values = pd.Series([1.5])
    write_measures({"gain": values, "loss": {"1e-4": values}}, tmp_path, {"d": 8.0})
    read = read_measures(tmp_path / "measures.json")
    file = re.escape(str(tmp_path / "measures.json"))
    for found in (read, pickle.loads(pickle.dumps(read))):
        with pytest.raises(InputError, match=rf"^{file}: wanted 'slope', got setup, gain, loss$"):
            found["slope"]
        with pytest.raises(InputError, match=rf"^{file}: setup: wanted 'n', got d$"):
            found["setup"]["n"]
        with pytest.raises(InputError, match=rf"^{file}: loss: wanted 'values', got 1e-4$"):
            found["loss"]["values"]
        assert found == {"setup": {"d": 8}, "gain": found["gain"], "loss": {"1e-4": found["gain"]}}
        assert found.get("slope", 0) == 0


def test_measures_are_read_as_they_were_written(tmp_path):
    values = pd.Series([1.5, 2.5], ["0", "1"])
    write_measures({"gain": values, "loss": {"1e-4": values}}, tmp_path, {"d": 8.0})
    of = {"cases": ["0", "1"], "values": [1.5, 2.5]}
    assert read_measures(tmp_path / "measures.json") == {
        "setup": {"d": 8},
        "gain": of,
        "loss": {"1e-4": of},
    }
