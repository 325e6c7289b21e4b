"""Measures are a table in text, a value a line, from which claims read what was written."""

import json
import re
from hashlib import sha256

import pandas as pd
import pytest

from lib.files.files import InputError
from lib.pages.measures import Row, parsed, read_measures, rows_of, setup_rows, summary
from lib.pages.measures import write_measures as written

BY_SEED = pd.Series([1 / 3, float("inf")], index=[4, 5])
BY_SCALE = {"1e-2": pd.Series([2.0, 4.0], index=[4, 5]), "1e-8": pd.Series([0.5], index=[5])}
ROWS = [
    *setup_rows({"d_model": 8, "scale": "1e-400", "decay": 0.001}),
    *setup_rows({"d_model": 50}, "paper"),
    *rows_of({"error": BY_SEED, "supports": BY_SCALE}, "small"),
    *rows_of({"kick": pd.Series([True], index=["seed 0, stage 2"])}),
]
LINES = """
measure,case,scale,unit,value
d_model,,,,8
scale,,,,1e-400
decay,,,,0.001
d_model,paper,,,50
error,small,,4,0.333333
error,small,,5,
supports,small,1e-2,4,2.0
supports,small,1e-2,5,4.0
supports,small,1e-8,5,0.5
kick,,,"seed 0, stage 2",1.0
""".lstrip()


def test_a_value_is_a_line_in_six_digits_below_the_digest(tmp_path):
    written(ROWS, tmp_path, {"best": ("supports", "small"), "gone": ("no", "such")})
    first, content = (tmp_path / "measures.csv").read_text().split("\n", 1)
    assert re.fullmatch("# sha256 of the lines below: [0-9a-f]{64}", first)
    assert content == LINES
    assert json.loads((tmp_path / "headlines.json").read_text()) == {"best": 0.5}


def test_what_is_read_is_what_was_written(tmp_path):
    written(ROWS, tmp_path, {})
    found = read_measures(tmp_path / "measures.csv")
    assert found["setup"] == {"d_model": 8, "scale": "1e-400", "decay": 0.001, "d_model.paper": 50}
    assert found["error.small"] == {"cases": ["4", "5"], "values": [0.333333, None]}
    assert list(found["supports.small"]) == ["1e-2", "1e-8"]
    assert found["supports.small"]["1e-2"] == {"cases": ["4", "5"], "values": [2.0, 4.0]}
    assert found["kick"] == {"cases": ["seed 0, stage 2"], "values": [1.0]}
    with pytest.raises(InputError, match=r"measures.csv: wanted 'supports', got "):
        found["supports"]


def test_a_summary_has_mean_and_deviation_at_the_smallest_scale(tmp_path):
    rows = rows_of({"a": pd.Series([1.0, 3.0]), "b": BY_SCALE, "c": BY_SEED})
    written(rows, tmp_path, {})
    found = summary(parsed((tmp_path / "measures.csv").read_text(), "here"))
    assert found["a"] == {"mean": 2.0, "sd": pytest.approx(2**0.5)}
    assert found["b"]["mean"] == 0.5
    assert pd.isna([found["b"]["sd"], *found["c"].values()]).all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("2.0", "3.0"), "wanted the content of its digest, .* the file was altered"),
        (("# sha", "# md"), "wanted a first line '# sha256 of the lines below:', got '# md"),
    ],
)
def test_a_table_that_was_altered_is_refused(tmp_path, change, said):
    written(ROWS, tmp_path, {})
    file = tmp_path / "measures.csv"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(InputError, match=f"measures.csv: {said}"):
        read_measures(file)


def test_another_table_and_none_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"measures.csv: wanted a table of measures, got: "):
        read_measures(tmp_path / "measures.csv")
    written([Row("a", "", "", "0", 1.0)], tmp_path, {})
    text = (tmp_path / "measures.csv").read_text()
    content = text.split("\n", 1)[1].replace("unit", "seed")
    other = f"# sha256 of the lines below: {sha256(content.encode()).hexdigest()}\n{content}"
    wanted = "wanted lines of the columns measure, case, scale, unit, value, got measure, case, sc"
    with pytest.raises(InputError, match=f"here: {wanted}"):
        parsed(other, "here")


def test_what_measures_lack_is_refused_where_it_is_looked_up(tmp_path):
    values = pd.Series([1.5])
    rows = setup_rows({"d": 8}) + rows_of({"gain": values, "loss": {"1e-4": values}})
    written(rows, tmp_path, {})
    found = read_measures(tmp_path / "measures.csv")
    file = re.escape(str(tmp_path / "measures.csv"))
    with pytest.raises(InputError, match=rf"^{file}: wanted 'slope', got setup, gain, loss$"):
        found["slope"]
    with pytest.raises(InputError, match=rf"^{file}: setup: wanted 'n', got d$"):
        found["setup"]["n"]
    with pytest.raises(InputError, match=rf"^{file}: loss: wanted 'values', got 1e-4$"):
        found["loss"]["values"]
    assert found.get("slope", 0) == 0


def test_headlines_are_means_in_three_digits(tmp_path):
    written(rows_of({"a": pd.Series([1234.5, 1236.5])}), tmp_path, {"mean": ("a", "")})
    assert json.loads((tmp_path / "headlines.json").read_text()) == {"mean": 1240.0}
