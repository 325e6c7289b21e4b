"""The figures of a data set: their lines, bands, points and texts, against tables whose numbers say
what they are of.
"""

import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from lib.pages.style import BLUE, PERMUTED_COLOR
from tests.stages.made import files, legend, series, table, ticks
from tests.vision.plot_made import BANDS, CELLS, LINES, OPTIMIZERS, PERMUTED, PLAIN, made

SECTION = "any.plot"
PARAMS = {"layer": 2, "head": 3, "lines": 2, "trained_loss": 5}
KEPT = {}  # the figures of one run of the stage


@pytest.fixture
def plot(stage, drawn, tmp_path):
    """Call `plot(tables)` runs the stage, with other params where they are given; it returns the
    figures by name.
    """

    def run(tables, **params):
        (tmp_path / "metrics").mkdir()
        for name, rows in tables.items():
            numbers = rows.select_dtypes("number").columns.drop("init_scale", errors="ignore")
            small = {c: f"{rows[c].dtype.name[:-2]}32" for c in numbers}
            rows.astype(small).to_parquet(tmp_path / "metrics" / f"{name}.parquet")
        sections = {SECTION: PARAMS | params}
        stage("vision.plot", sections, SECTION, tmp_path / "metrics", tmp_path / "figures")
        names = files(tmp_path / "figures")
        read = [(tmp_path / "figures" / name).read_bytes() for name in names]
        return {
            name.removesuffix(".svg"): drawn[data] for name, data in zip(names, read, strict=True)
        }

    return run


@pytest.fixture
def figures(plot):
    if not KEPT:
        KEPT.update(plot(made(CELLS, [4.0, 0.1])))
    return KEPT


def bands(axes):
    """Of each band, or bar, the least and the largest at every x."""
    found = []
    for drawn in axes.collections:
        corners = np.concatenate([path.vertices for path in drawn.get_paths()])
        at = pd.Series(corners[:, 1]).groupby(corners[:, 0].round(4)).agg(["min", "max"])
        found.append(" ".join(f"{x:g}: {a:.4g} {b:.4g}" for x, a, b in at.itertuples()))
    return found


@pytest.mark.parametrize("name", LINES)
def test_every_line_of_a_figure_is_that_of_its_table(figures, name):
    found = [" | ".join(series(axes)) for axes in figures[name].axes]
    assert found == LINES[name][1:-1].split("\n")


@pytest.mark.parametrize("name", BANDS)
def test_a_band_is_from_the_least_to_the_largest(figures, name):
    assert " | ".join(bands(figures[name].axes[0])) == BANDS[name].strip()


TITLES = {
    "figure-1": "init scale 0.5, layer 2, head 3, seed 7",
    "figure-3": "layer 2, head 3, seed 7; each line one of the 2 largest singular values",
    "figure-4": "one marker per seed; hollow: training loss above 5",
    "figure-5-KQ": "init scale 0.5, seed 7",
}


@pytest.mark.parametrize("name", TITLES)
def test_a_title_says_what_is_shown(figures, name):
    assert figures[name].get_suptitle() == TITLES[name]


LEGENDS = {
    "figure-4": "Gaussian factors of equal norm | permuted labels | first step "
    "| update; band: range over heads",
    "figure-5-KQ": "initial state | update after 9 steps",
    "figure-12": r"$\Delta$ $W_K W_Q^\top$ | $\Delta$ $W_V W_O^\top$",
    "learning-curves": "init scale 0.1 | init scale 0.5 | init scale 4 | permuted labels",
    "truncation": "$W_Q$ alone | $W_1$ alone | all matrices, mean and range",
    "equal-loss": "true labels | permuted labels",
}


@pytest.mark.parametrize("name", LEGENDS)
def test_a_legend_names_what_is_drawn(figures, name):
    figure = figures[name]
    of = figure if figure.legends else figure.axes[0]
    assert " | ".join(legend(of)) == LEGENDS[name]


def test_without_wanted_scales_the_reference_is_drawn_and_permuted_labels_are_violet(plot):
    figures = plot(made([*PLAIN, (0.5, PERMUTED)], []))
    assert [axes.get_title() for axes in figures["figure-3"].axes] == ["init scale 0.5", ""]
    axes = figures["figure-12"].axes[0]
    violet = [line for line in axes.lines if line.get_color() == PERMUTED_COLOR]
    assert [line.get_linestyle() for line in violet] == ["-", ":"]
    assert series(axes)[3::4] == ["1 9  31.12 41.12", "1 9  34.12 44.12"]
    assert "SGD for Adam" not in ticks(figures["nulls"].axes[1].xaxis)


def test_permuted_labels_are_in_the_legend_where_only_some_scales_have_them(plot):
    found = legend(plot(made(CELLS, [0.1, 0.5]))["figure-12"])
    names = [r"$\Delta$ $W_K W_Q^\top$", r"$\Delta$ $W_V W_O^\top$"]
    assert found == [f"{name}{more}" for name in names for more in ("", ", permuted labels")]


def test_labels_are_not_compared_where_permuted_ones_are_not_learned(plot):
    tables = made(CELLS, [0.1])
    tables["equal_loss"]["train_loss"] += 0.2  # above 1 as a mean, not in every seed
    assert "equal-loss" not in plot(tables)


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("layer", 3, r"wanted one of \[1, 2\], those of the tables, got 3"),
        ("head", 2, r"wanted one of \[1, 3\], those of the tables, got 2"),
        ("lines", 4, "wanted at most the 3 singular values of a head, got 4"),
    ],
)
def test_what_the_tables_lack_is_refused_before_anything_is_drawn(
    plot, tmp_path, key, value, wanted
):
    with pytest.raises(InputError, match=rf"^any\.plot\.{key}: {wanted}$"):
        plot(made(CELLS, []), **{key: value})
    assert not (tmp_path / "figures").exists()


def test_several_optimisers_are_drawn_of_the_tables_that_compare_them(plot):
    """Ranks of the first step, the last, and under permuted labels; then against the loss; then
    what is cut or tried, at the init scale of the rates.
    """
    figures = plot({name: table(text) for name, text in OPTIMIZERS.items()})
    assert ticks(figures["optimizers"].axes[2].xaxis) == ["SGD", "own"]
    left = figures["optimizers-truncation"].axes[0]
    assert [line.get_color() for line in left.lines] == [BLUE, "black"]
    assert {name: [series(axes) for axes in figure.axes] for name, figure in figures.items()} == {
        "optimizers": [
            [],
            ["-0.27  1", "0 0  2 3", "1  5", "0.27  4"],
            ["0  7"],
            ["-0.27  8", "1  6"],
        ],
        "optimizers-equal-loss": [
            ["2 1  1 2", "0.5  3", "1.5  4"],
            ["0.25  5"],
            ["2  8"],
            ["0.25  6"],
        ],
        "optimizers-truncation": [
            ["0 4  0.2 0.9", "4  0.8"],
            ["0.1 1  4 2", "1  2", "1  7", "1  7"],
        ],
    }
