"""A claim's bar in a figure: its words, its place, and what it shades."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lib.files.params import Interval
from lib.pages.bars import Bar, draw_bar, read_bars

CLAIMS = """
figures: plots
command: dvc repro one
runs: {one: measures.json}
items:
  first:
    title: One
    asks: Is it so?
    found: It is.
    figure: drawn
    claims:
      low: {statement: It is low., bar: "every in [0, 0.35)", better: less, measure: value}
      high: {statement: It is high., bar: "median in (1, inf)", better: more, measure: value}
      near: {statement: It is near., bar: "mean in [0.9, 1.1]", better: near, measure: value}
"""


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    axes.plot([0, 1], [2, 4])
    yield axes
    plt.close(figure)


def test_bars_are_read_by_the_names_of_claims_and_said_in_words(tmp_path):
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIMS)
    bars = read_bars(file)
    assert {name: (bar.words(), bar.ends) for name, bar in bars.items()} == {
        "low": ("asked: below 0.35", (0.35,)),
        "high": ("asked: above 1", (1,)),
        "near": ("asked: 0.9 to 1.1", (0.9, 1.1)),
    }
    assert bars["high"].words(" times the first") == "asked: above 1 times the first"


@pytest.mark.parametrize(
    ("interval", "better", "times", "lines", "shaded", "limits"),
    [
        ("[0, 3]", "less", 1, [3], (-0.2, 3), (1.9, 4.1)),
        ("[3, inf)", "more", 1, [3], (3, 6.3), (1.9, 4.1)),
        ("[2.5, 3]", "near", 1, [2.5, 3], (2.5, 3), (1.9, 4.1)),
        ("[3, inf)", "more", 2, [6], (6, 10.5), (1.9, 6.246)),
    ],
)
def test_what_meets_a_bar_is_shaded_to_the_end_of_a_panel_that_reaches_to_it(
    axes, interval, better, times, lines, shaded, limits
):
    draw_bar(axes, Bar(Interval(interval), better), times=times)
    assert [line.get_ydata()[0] for line in axes.lines[1:]] == lines
    [span] = axes.patches
    low, high = span.get_bbox().intervaly
    assert axes.get_ylim() == pytest.approx(limits)
    assert max(low, limits[0]) == pytest.approx(max(shaded[0], limits[0]))
    assert min(high, limits[1]) == pytest.approx(min(shaded[1], limits[1]))


def test_a_bar_stands_on_a_logarithmic_axis_that_is_turned_and_only_where_it_has_a_place(axes):
    axes.set(xscale="log", xlim=(4, 0.5))
    bar = Bar(Interval("(1, inf)"), "more")
    draw_bar(axes, bar, vertical=True, across=0.25)
    assert axes.get_xlim() == (4, 0.5)
    assert axes.patches[0].get_bbox().intervaly.tolist() == [0, 0.25]
    for none in (None, Bar(Interval("(0, inf)"), "more")):
        draw_bar(axes, none, vertical=True)
    draw_bar(axes, bar, times=np.nan)
    assert len(axes.patches) == 1
    assert len(axes.lines) == 2
