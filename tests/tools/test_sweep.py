"""`make sweep` says and draws a metric of every experiment against a param."""

import json
import math
import os
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from lib.pages.measures import rows_of, write_measures
from tests.pipeline.project import PYTHON
from tools import sweep

FILE = "metrics/any/measures.csv"


MEASURED = {}  # the values in each commit of the measure loss, of the case deep


def state(rev, rate, measured, name=None, width=8):
    """A commit or an experiment as `dvc exp show --json` has it; its measures are in git."""
    MEASURED[rev] = measured
    data = {"params": {"params.yaml": {"data": {"any": {"train": {"rate": rate}, "width": width}}}}}
    return {"rev": rev, "name": name, "data": data}


SHOWN = [
    state("workspace", 7.0, [70.0, 71.0]),
    state("a" * 40, 0.5, [2.75, 3.0, 3.25], "main")
    | {
        "experiments": [
            {"revs": [state("b" * 40, 10.0, [1.0, 1.5, 2.0], "tenth")]},
            {"revs": [state("c" * 40, 0.5, [9.0], "of another sweep")]},
            {"revs": [state("d" * 40, 2.0, [math.nan]), state("e" * 40, 3.0, [2.5], "bare")]},
            {"revs": [state("f" * 40, 4.0, [6.0, 6.0])]},
            {"revs": [{"rev": "0" * 40, "name": "broken"}]},
            {"revs": [state("1" * 40, 6.0, [8.0], "inherited", width=16)]},
            {"revs": [state("2" * 40, 7.0, [2.0], "narrow", width=4)]},
            {"revs": [state("3" * 40, 8.0, [1.0], "narrower", width=4)]},
        ]
    },
    state("b" * 40, 10.0, [1.0, 1.5, 2.0], "tenth") | {"experiments": None},
]
# The rows that come of it, by the param: name, value, mean, low and high end.
ROWS = [
    ("main", 0.5, 3.0, 2.75, 3.25),
    ("bare", 3.0, 2.5, 2.5, 2.5),
    ("fffffff", 4.0, 6.0, 6.0, 6.0),
    ("narrow", 7.0, 2.0, 2.0, 2.0),
    ("narrower", 8.0, 1.0, 1.0, 1.0),
    ("tenth", 10.0, 1.5, 1.0, 2.0),
]


DVC = f"""#!{PYTHON}
import sys
assert sys.argv[1:] == ["exp", "show", "--json"]
print(open("shown.json").read())
"""
GIT = f"""#!{PYTHON}
import sys
assert sys.argv[1] == "show"
rev, _, name = sys.argv[2].partition(":")
if name != "{FILE}":
    sys.exit(128)
print(open(rev).read(), end="")
"""


@pytest.fixture
def dvc(tmp_path, monkeypatch) -> Path:
    """Commands that show these experiments and their measures, in the places of DVC and git."""
    (tmp_path / "shown.json").write_text(json.dumps(SHOWN))
    (tmp_path / "dvc").write_text(DVC)
    for rev, values in MEASURED.items():
        write_measures(rows_of({"loss": pd.Series(values)}, "deep"), tmp_path, {})
        (tmp_path / "measures.csv").rename(tmp_path / rev)
    (tmp_path / "git").write_text(GIT)
    for name in ("dvc", "git"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table_and_rest(capsys):
    """The cells of each row of the table that was printed, and the lines below it."""
    lines = capsys.readouterr().out.splitlines()
    end = next(i for i, line in enumerate(lines) if line.startswith("└"))
    return [line.replace("│", " ").split() for line in lines[:end] if "│" in line], lines[end + 1 :]


@pytest.fixture
def drawn(monkeypatch) -> list:
    """The figures that are rendered, before they are closed."""
    kept = []
    monkeypatch.setattr(sweep, "rendered", lambda figure: kept.append(figure) or b"<svg/>")
    return kept


def test_every_experiment_is_a_row_and_a_point(dvc, drawn, capsys):
    sweep.main("any.train.rate", "any:loss.deep")
    said, below = table_and_rest(capsys)
    assert said == [
        [name, str(value), *(f"{number:g}" for number in numbers)] for name, value, *numbers in ROWS
    ]
    [figure] = drawn
    [axes] = figure.axes
    [bars] = axes.containers
    line, _, [ends] = bars
    np.testing.assert_array_equal(line.get_xydata(), [row[1:3] for row in ROWS])
    segments = [[[value, low], [value, high]] for _, value, _, low, high in ROWS]
    np.testing.assert_allclose(np.array(ends.get_segments()), segments)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("any.train.rate", "loss, deep")
    assert (dvc / "sweep.svg").read_bytes() == b"<svg/>"
    differ = "other params differ too: "
    assert below == [
        f"inherited: {differ}left out, as no other value of any.train.rate was tried with them: "
        "any.width=16",
        f"narrow: {differ}any.width=4",
        f"narrower: {differ}any.width=4",
        "the figure is sweep.svg",
    ]


def test_a_param_that_is_no_number_has_a_place_for_each_value(dvc, drawn):
    (dvc / "shown.json").write_text(
        re.sub(r'"rate": ([0-9.]+)', r'"rate": "k\1"', json.dumps(SHOWN))
    )
    sweep.main("any.train.rate", "any:loss.deep", dvc / "other.svg")
    [axes] = drawn[0].axes
    found = [text.get_text() for text in axes.get_xticklabels()]
    assert found == ["k0.5", "k10.0", "k3.0", "k4.0", "k7.0", "k8.0"]
    np.testing.assert_array_equal(axes.containers[0][0].get_ydata(), [3.0, 1.5, 2.5, 6.0, 2.0, 1.0])
    assert (dvc / "other.svg").exists()


def test_numbers_far_apart_stand_on_a_logarithmic_axis(drawn):
    for low, scale in ((0.49, "log"), (0.5, "linear"), (-1, "linear")):
        figure = sweep.drawn(
            [sweep.Point(name, x, 1, 1, 1, "") for name, x in (("a", low), ("b", 10))], "p", "m"
        )
        assert figure.axes[0].get_xscale() == scale


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("loss", "METRIC: wanted FOLDER:NAME such as .*, got 'loss'"),
        ("any:nothing", f"the param any.train.rate and the metric nothing of {FILE}, got none"),
    ],
)
def test_what_no_experiment_has_is_refused(dvc, metric, message):
    with pytest.raises(InputError, match=message):
        sweep.main("any.train.rate", metric)


def test_a_metric_of_a_table_of_measures_is_read_by_measure_and_case(tmp_path, monkeypatch):
    by_scale = {"1e-2": pd.Series([7.0]), "1e-8": pd.Series([1.0, 3.0])}
    write_measures(rows_of({"error": by_scale}, "small"), tmp_path, {})
    text = (tmp_path / "measures.csv").read_text()
    shown = SimpleNamespace(run=lambda *_, **__: SimpleNamespace(stdout=text))
    monkeypatch.setattr(sweep, "subprocess", shown)
    found = sweep.metric_of("HEAD", "metrics/any/measures.csv", "error.small")
    assert found == pytest.approx((2.0, 2.0 - 2**0.5, 2.0 + 2**0.5))
    assert sweep.metric_of("HEAD", "metrics/any/measures.csv", "error.large") is None
