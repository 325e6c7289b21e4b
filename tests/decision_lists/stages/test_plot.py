"""The figures of the decision lists: their lines, points, bars, images and texts, against tables
made by hand.
"""

import math

import numpy as np
import pytest

from lib.decision_lists.figures.lines import shaded
from tests.decision_lists.plot_made import TABLES
from tests.stages.made import files, legend, series, table, ticks

LN10 = math.log(10)
KEPT = {}  # the figures of one run of the stage


def made(name):
    """A table as the stage reads it: rises are in units of log 10."""
    found = table(TABLES[name])
    if name == "theorem":
        lost = found["lost"] > 0
        limit = [50, math.nan, *[5] * 5]
        times = {"lost_time": np.where(lost, 0.3, math.nan)}
        times["regained_time"] = 2 * times["lost_time"]
        found = found.assign(late_limit=limit, **times)
    if name == "factored":
        found = found.rename(columns={"rank": "numerical_rank"})
        found["first_rise"] *= LN10
    return found.assign(rtol=0.125) if name == "spectra" else found


@pytest.fixture
def panels(stage, drawn, tmp_path):
    """Call `panels(name)` is a figure and its panels but for colour bars."""
    if not KEPT:
        (tmp_path / "tables").mkdir()
        for name in TABLES:
            made(name).to_parquet(tmp_path / "tables" / f"{name}.parquet")
        stage("decision_lists.plot", {}, tmp_path / "tables", tmp_path / "figures")
        for name in files(tmp_path / "figures"):
            KEPT[name] = drawn[(tmp_path / "figures" / name).read_bytes()]

    def of(name):
        figure = KEPT[f"{name}.svg"]
        found = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
        return figure, found

    return of


def test_the_figures_of_a_use_that_was_not_run_are_not_drawn(stage, drawn, tmp_path):
    (tmp_path / "tables").mkdir()
    for name in ("joint", "weights", "theorem", "both"):  # without "courses"
        found = made(name).assign(**({"lost": 0} if name == "theorem" else {}))
        found.to_parquet(tmp_path / "tables" / f"{name}.parquet")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "old.svg").write_text("of an earlier run")
    stage("decision_lists.plot", {}, tmp_path / "tables", tmp_path / "figures")
    assert files(tmp_path / "figures") == ["outcomes.svg", "ratios.svg", "weights.svg"]


def test_a_course_is_drawn_with_its_first_time_the_bound_and_the_late_law(panels):
    figure, (loss_b, loss_a, _, right_a) = panels("bound")
    assert loss_b.get_title() == "uniform, L = 7, n = 4, M = 2"
    scales = loss_a.get_xscale(), loss_a.get_yscale(), right_a.get_yscale()
    assert scales == ("log", "log", "linear")
    assert legend(figure) == [
        "population loss",
        "measured: all sequences right",
        "theorem: by this time",
        "derived, late: $|\\hat u|^2 / c^2 t$",
    ]


def test_times_over_the_bound_are_stacked_by_law(panels):
    figure, (axes, _) = panels("ratios")
    bars = [
        [(bar.get_x(), bar.get_width(), bar.get_y()) for bar in container if bar.get_height() == 1]
        for container in axes.containers
    ]
    # The logarithms of 0.015 and 0.1, of 1/6, and of 0.0002 and 0.0025.
    wanted = [[(-2, 0.5, 0), (-1, 0.5, 0)], [(-1, 0.5, 1)], [(-4, 0.5, 0), (-3, 0.5, 0)]]
    assert bars == wanted
    assert legend(figure) == [
        "dirichlet (3 runs)",
        "uniform (1 runs)",
        "zipf (2 runs)",
        "theorem: at most 1",
        "measured median, 0.039",
        "not right by the bound: 1 runs",
    ]
    assert ticks(axes.xaxis) == ["$10^{-4}$", "$10^{-2}$", "$10^{0}$"]


# Of each panel, every line: its x, then its y.
LINES = {
    "bound": """
0.25 0.75  2 1.5 | 0.5 0.5  0 1 | 3 3  0 1
0.01 0.04  1.25 0.75 | 0.02 0.02  0 1 | 8 8  0 1 | 0.04  12.5
0.25 0.75  0.5 1 | 0.5 0.5  0 1 | 3 3  0 1
0.01 0.04  0.25 0.75 | 0.02 0.02  0 1 | 8 8  0 1
""",
    # The median is that of six, one of which takes for ever.
    "ratios": """
0 0  0 1 | -1.412 -1.412  0 1
40 50 60  0.0625 0.5 0.5 | 100  0.25 | 10 30  0.5 0.125
""",
    "late": """
50  0.75 | 100 400  1.5 0.25 | 0 1  1 1
50  -1 | 100 400  -1.5 -0.75 | 0 1  -1 -1
""",
    "lost": """
0.25 0.75  -0.5 0.5 | 0 1  0 0 | 0.3 0.3  0 1 | 0.6 0.6  0 1 | 3 3  0 1
""",
    "repeats": """
16 64  0 1
1.5 2.5  0 1
0.75 0.875  0 1 | 0.2 0.2  0 1
""",
    "crossover": """
5 20 100  260 150 210 | 0 1  200 200 | 5 20 100  100 60 90 | 0 1  80 80
5 20 100  0.9 0.6 0.4 | 5 20 100  0.8 0.5 0.3 | 0 1  0.2 0.2
5 20 100  0.3 0.25 0.05 | 5 20 100  0.25 0.25 0.125 | 20 100  1 0.2
5 20 100  0.3 0.1 0.02 | 5 20 100  0.25 0.05 0.01 | 20 100  0.16 0.032
""",
    "feasible": """
1 3  19 38 | 1 3  19 40
""",
    "descents": """
1 3  2 1 | 3  1 | 1 7  4 3 | 7  3 | 1 10  2.5 0.5 | 10  0.5
1 3  0.5 0.25 | 1 7  0.125 0.75 | 1 10  0.375 0.0625 | 0 1  1 1
0.125 0.25  2 9 | 0.125  6
0.04 0.3  1.22 0.22 | 0.15  0.78 | 1 1  0 1
""",
    "apart": """
0.1 0.01 0.01 0.0001 0.01 0.01  0.5 0.75 0.5 0.75 0.5 0.75 | 0.1  0.125 | 0 1  1 1
1 4  0.375 1 | 1 4  0.5 2 | 9.21 9.21  0 1 | 12 12  0 1
1.84 1.84 3.84  1 2 3 | 2  2 | 4.16  5 | 2.32 2.32 4.32  4 3 6 | 1 2 3 4  1 1 2 3
0.01 0.1  2.606 2.606 | 0.01 0.1  nan 3.474 | 0.01  3.474 | 0.01  4.343
""",
    "lengths": """
1 8  2 5 | 1  4 | 0 1  3 3
""",
    "outcomes": """
0.5  0 | 0.25 0.999  0.8 1.2 | 1 1  1.8 2.2 | 0.75  2
0.125 0.375  -0.2 0.2 | 1  0.8 | 0.875  1.2
30  0 | 20  1 | 40  1
""",
    "alignment": """
1 8  0.1 0.2 | 1 8  0.3 0.4 | 1 8  0.5 0.6 | 0 1  0.125 0.125 | 0 1  0.25 0.25
1 8  0.3 0.6 | 1 8  0.9 0.8 | 1 8  0.2 0.4
1 8  0.45 0.75 | 1 8  0.95 0.85 | 1 8  0.25 0.65
1 8  0.5 0.875 | 1 8  0.125 1 | 1 8  0.625 0.75
""",
    "spectra": """
0.5 8  0.0625 0.375 | 0.5 8  0.125 0.75 | 0.5 8  2 4
2 8  1e-13 1e-12 | 2 8  2.25 5 | 2 8  2.5 6 | 2 8  3 7
1 4  0.5 1.25 | 1 4  8 8.5 | 1 4  9 10
0.5 8  1 2 | 0 1  1 1
2 8  3 4 | 0 1  3 3
1 4  2 3 | 0 1  4 4
""",
    "pruning": """
10 24 16  13 56 30 | 10 24 16  11 23 16 | 8 26  8 26
""",
    "attention": """
0 1  1 0
0 1  1 1
0 1  1 0
0 1  1 1
""",
    "weights": """

0 1  1.5 1.5
""",
}


@pytest.mark.parametrize("name", LINES)
def test_every_line_of_a_figure_is_that_of_its_table(panels, name):
    found = [" | ".join(series(axes)) for axes in panels(name)[1]]
    assert found == LINES[name][1:-1].split("\n")


TEXTS = {  # of the first panel that has a legend, or of the figure
    "lost": "least margin, in u = cW | lost at 0.3 | right again at 0.6 | theorem: right before 3",
    "crossover": "law z: zipf | law b: uniform | limit: Luce's choice model",
    "apart": "W_K and W_Q apart | W itself | limit",
    "lengths": "heads-1: zipf | uniform: uniform | trained at n = 3",
    "lemmas": "Lemma 1: at least 1 | measured least, 0.75",
    "spectra": "measured | heads of lists: 1",
    "pruning": "W as it is | column medians removed | as many as the lists have",
    "alignment": "theorem: at least 1/n − 1/L at step 1 | lists of length 1 | lists of length 3 "
    "| with repeats",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_legend_names_what_is_drawn(panels, name):
    figure, axes = panels(name)
    of = figure if figure.legends else next(one for one in axes if one.get_legend())
    assert " | ".join(legend(of)) == TEXTS[name]


def test_every_value_of_a_column_has_a_colour_of_its_own():
    found = list(shaded(table("length\n3\n1\n2"), "length", ordered=True))
    assert [length for length, _, _ in found] == [1, 2, 3]
    assert len({color for _, _, color in found}) == 3


def test_ratios_of_a_lemma_are_bars_in_twentieths_of_decades(panels):
    wanted = [
        ([-3, 12], [2, 7], 0.75, "9 random cases, least 0.75"),
        ([5, 40], [3, 11], 1.8125, "14 random cases, least 1.8125"),
    ]
    for axes, (bins, sizes, least, title) in zip(panels("lemmas")[1], wanted, strict=True):
        edges = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
        np.testing.assert_allclose(edges, [(10 ** (b / 20), 10 ** ((b + 1) / 20)) for b in bins])
        assert [bar.get_height() for bar in axes.patches] == sizes
        assert [line.get_xdata()[0] for line in axes.lines] == [1, least]
        assert axes.get_title() == title


def test_weights_are_shown_as_they_are_and_in_the_order_of_the_lists(panels):
    _, (plain, in_order) = panels("weights")
    W = [[1.0, -4.0, 2.5], [-0.5, 2.0, -1.5], [3.0, 0.25, 1.5]]
    in_list_order = [[3.0, 2.0, 2.5], [1.0, -4.0, 1.5], [-0.5, 0.25, -1.5]]
    for axes, values in ((plain, W), (in_order, in_list_order)):
        np.testing.assert_array_equal(axes.images[0].get_array(), values)
        assert axes.images[0].get_clim() == (-4, 4)
    assert ticks(in_order.yaxis) == ["$a_{1}$", "$a_{2} = a$", "others"]


def test_attention_is_shown_before_above_and_after_below(panels):
    _, axes = panels("attention")
    assert [one.images[0].get_array().tolist() for one in axes] == [
        [[0.3, 0.2], [0.7, 0.8]],
        [[0.5, 0.4], [0.5, 0.6]],
        [[0.15, 0.75], [0.85, 0.25]],
        [[0.05, 0.1], [0.95, 0.9]],
    ]
    assert {one.images[0].get_clim() for one in axes} == {(0, 1)}
    assert [ticks(one.yaxis) for one in axes[:2]] == [["1", "2"], ["0", "3"]]
