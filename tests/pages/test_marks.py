"""What a table becomes in a panel: the data, colours, lines and labels of what is drawn."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb

from lib.pages.marks import (
    BOUND,
    THEORY,
    directions,
    ranged,
    shade,
    shaded,
    unit_lines,
    unit_points,
    where,
    write_beside,
)
from tests.stages.made import table

RUNS = table("""
case seed step loss
a    0    1    4
a    0    2    2
a    1    1    6
a    1    2    1
b    0    1    8
""")


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


def drawn(axes):
    """The data of every line."""
    return [[tuple(map(float, point)) for point in line.get_xydata()] for line in axes.lines]


def test_rows_are_those_in_which_every_column_has_its_value():
    assert where(RUNS, case="a", step=2)["loss"].tolist() == [2, 1]
    assert where(RUNS, case="c").empty
    assert len(where(RUNS)) == len(RUNS)


def test_theory_is_dashed_and_black_and_a_bound_dashed_in_its_own_colour(axes):
    theory = axes.axhline(1, **THEORY, lw=1)
    bound = axes.axhline(2, **BOUND, lw=1)
    assert [line.get_linestyle() for line in (theory, bound)] == ["--", "--"]
    assert theory.get_color() == "black"
    assert bound.get_color() != "black"


def test_shades_go_from_one_place_of_the_scale_to_another():
    assert shade(0, 3) == plt.get_cmap("viridis")(0.0)
    assert shade(2, 3) == plt.get_cmap("viridis")(0.9)
    assert shade(1, 3, until=0.8, begin=0.2) == plt.get_cmap("viridis")(0.5)
    assert shade(0, 1) == shade(0, 2)


def test_values_are_shaded_as_they_come_or_in_order():
    rows = RUNS.iloc[::-1]
    assert [value for value, *_ in shaded(rows, "case")] == ["b", "a"]
    [(first, of_a, color), (_, _, last)] = shaded(rows, "case", ordered=True)
    assert first == "a"
    assert set(of_a["case"]) == {"a"}
    assert color != last


def test_each_unit_has_a_line_and_all_have_one_entry_in_the_legend(axes):
    look = {"label": "case a", "markers": "os", "color": "black"}
    unit_lines(axes, where(RUNS, case="a"), "step", "loss", **look)
    assert drawn(axes) == [[(1, 4), (2, 2)], [(1, 6), (2, 1)]]
    assert axes.get_legend_handles_labels()[1] == ["case a"]
    assert [line.get_marker() for line in axes.lines] == ["o", "s"]
    assert [line.get_linestyle() for line in axes.lines] == ["-", "-"]


def test_units_are_what_a_column_says(axes):
    unit_lines(axes, RUNS, "step", "loss", by=["case", "seed"])
    assert len(axes.lines) == 3


def test_a_mean_has_a_band_from_the_least_to_the_largest(axes):
    ranged(axes, where(RUNS, case="a"), "step", "loss", color="red", label="loss")
    assert drawn(axes) == [[(1, 5), (2, 1.5)]]
    [band] = axes.collections
    corners = {tuple(map(float, point)) for point in band.get_paths()[0].vertices}
    assert {(1, 4), (1, 6), (2, 1), (2, 2)} <= corners
    assert tuple(band.get_facecolor()[0][:3]) == to_rgb("red")


def test_units_stand_at_the_place_of_their_case_with_a_bar_at_their_middle(axes):
    unit_points(axes, 2, pd.Series([1.0, 2.0, 6.0]), "red", middle=np.mean, width=0.25, mfc="none")
    assert drawn(axes) == [[(2, 1), (2, 2), (2, 6)]]
    [bar] = axes.collections
    assert bar.get_segments()[0].tolist() == [[1.75, 3], [2.25, 3]]
    assert axes.lines[0].get_linestyle() == "None"


def test_units_of_a_row_run_along_x_and_stand_apart(axes):
    unit_points(axes, 1, [3.0, 4.0, 9.0], "red", along="x", spread=0.2, middle=np.median)
    assert drawn(axes) == [[(3, 0.8), (4, 1), (9, 1.2)]]
    assert axes.collections[0].get_segments()[0].tolist() == [[4, 0.7], [4, 1.3]]


def test_one_unit_stands_in_the_middle_and_none_are_not_drawn(axes):
    unit_points(axes, 1, [3.0], "red", spread=0.2)
    unit_points(axes, 2, [], "red", middle=np.mean)
    assert drawn(axes) == [[(1, 3)]]
    assert not axes.collections


def test_the_largest_direction_is_drawn_last_in_the_first_colour(axes):
    values = np.array([[3.0, 1.0], [5.0, 2.0]])
    directions(axes, [0, 1], values, lambda i, n: ["red", "blue"][i], lw=1)
    assert drawn(axes) == [[(0, 1), (1, 2)], [(0, 3), (1, 5)]]
    assert [line.get_color() for line in axes.lines] == ["blue", "red"]


def test_a_text_stands_an_offset_in_points_beside_its_place(axes):
    write_beside(axes, "94 %", (1, 2), (-6, 7), ha="right")
    [text] = axes.texts
    assert (text.get_text(), text.xy, text.xyann, text.get_ha()) == (
        "94 %",
        (1, 2),
        (-6, 7),
        "right",
    )
    assert text.anncoords == "offset points"
