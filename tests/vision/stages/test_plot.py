"""The figures of a data set where those in git show nothing of it."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.colors import to_rgba

from lib.files.files import InputError
from lib.pages.style import PERMUTED_COLOR, as_svg
from lib.vision.tables.drawn import DRAWN
from stages.vision.plot import drawings
from tests.stages.made import legend, series, ticks, whole
from tests.vision.plot_made import CELLS, PERMUTED, PLAIN, made

PARAMS = {"layer": 2, "head": 3, "lines": 2, "trained_loss": 5}


@pytest.fixture
def plot(tmp_path, monkeypatch):
    """Call `plot(tables)` is what draws each figure, by its name."""
    monkeypatch.chdir(tmp_path)

    def of(tables, **params):
        Path("params.yaml").write_text(yaml.safe_dump({"plot": PARAMS | params}))
        for name, rows in tables.items():
            whole(rows, DRAWN[name]).to_parquet(f"{name}.parquet")
        return drawings("plot", tmp_path)

    return of


# Every line of each panel: its x, then its y. The last is the bar, 1.2 times that of true labels.
EQUAL_LOSS = [
    "2.1 0.6  11.39 21.39 | 2 0.5  11.35 21.35 | 0.6 1.1  5 6 | 2.35 0.85  31.39 41.39 "
    "| 2.25 0.75  31.35 41.35 | 0.6 1.1  7 8 | 0 1  6.6 6.6",
    "2.1 0.6  14.39 24.39 | 2 0.5  14.35 24.35 | 0.6 1.1  15 16 | 2.35 0.85  34.39 44.39 "
    "| 2.25 0.75  34.35 44.35 | 0.6 1.1  17 18 | 0 1  18.6 18.6",
]
BAR_OF_LABELS = "asked: at least 1.2 times true labels'"


def test_ranks_under_both_labels_are_compared_at_equal_loss(plot):
    panels = plot(made(CELLS, [4.0, 0.1]))["equal-loss"]().axes
    assert [" | ".join(series(axes)) for axes in panels] == EQUAL_LOSS
    assert legend(panels[1]) == ["true labels", "permuted labels", BAR_OF_LABELS]


def test_each_direction_is_a_bar_from_its_begin_to_its_end_the_largest_at_the_top(plot):
    """The least seed is drawn at the reference scale: a panel for each product and labelling."""
    *panels, _ = plot(made(CELLS, [0.1]))["rises"]().axes
    bars = [
        [(bar.get_y() + 0.35, *bar.get_bbox().intervalx) for bar in axes.patches] for axes in panels
    ]
    wanted = [
        [(1, start + 3.7, start + 7.7), (2, start + 2.7, start + 7.7)]
        for start in (0, 10, 100, 110)
    ]
    np.testing.assert_allclose(bars, wanted)
    assert all(axes.yaxis_inverted() for axes in panels)
    labels = ["true labels", "permuted labels"]
    assert [axes.get_title().split(", ")[1] for axes in panels[::2]] == labels
    assert [axes.patches[0].get_facecolor() for axes in panels[2:]] == [to_rgba(PERMUTED_COLOR)] * 2


def test_labels_are_not_compared_where_permuted_ones_are_not_learned(plot):
    tables = made(CELLS, [0.1])
    tables["equal_loss"]["train_loss"] += 0.2  # above 1 as a mean, not in every seed
    assert "equal-loss" not in plot(tables)


def test_without_wanted_scales_the_reference_is_drawn_and_permuted_labels_are_violet(plot):
    draw = plot(made([*PLAIN, (0.5, PERMUTED)], []))
    assert [axes.get_title() for axes in draw["figure-3"]().axes[::2]] == ["init scale 0.5", ""]
    axes = draw["figure-12"]().axes[0]
    violet = [line for line in axes.lines if line.get_color() == PERMUTED_COLOR]
    assert [line.get_linestyle() for line in violet] == ["-", ":"]
    assert series(axes)[3::4] == ["1 9  31.12 41.12", "1 9  34.12 44.12"]
    assert "SGD for Adam" not in ticks(draw["nulls"]().axes[1].xaxis)


def test_permuted_labels_are_in_the_legend_where_only_some_scales_have_them(plot):
    found = legend(plot(made(CELLS, [0.1, 0.5]))["figure-12"]())
    names = [r"$\Delta$ $W_K W_Q^\top$", r"$\Delta$ $W_V W_O^\top$"]
    assert found == [f"{name}{more}" for name in names for more in ("", ", permuted labels")]


def test_every_figure_that_shows_a_number_has_a_panel_of_it(plot):
    draw = plot(made(CELLS, [0.1, 0.5]))
    views = {name for name, figure in draw.items() if b'<view id="number"' in as_svg(figure)}
    assert set(draw) - views == {"figure-1", "learning-curves"}


def test_the_panel_of_the_growth_has_every_seed_under_both_labels_and_the_bar(plot):
    """Three init scales; the permuted labels have the second alone. The bar stands at 1."""
    grown = plot(made(CELLS, [0.1, 0.5]))["figure-12"]().axes[-1]
    heights = [list(line.get_ydata()) for line in grown.lines if len(line.get_xdata())]
    wanted = [[x + 0.002, x + 0.005] for x in (0, 1, 2)]
    wanted += [[1.202, 1.205], [3.002, 3.005], [4.002, 4.005], [5.002, 5.005], [4.202, 4.205]]
    np.testing.assert_allclose([sorted(ys) for ys in heights], [*wanted, [1, 1]])
    assert legend(grown)[-1] == "asked: above 1"


def test_the_share_that_waits_for_the_direction_before_is_that_of_all_heads(plot):
    """The later of two directions waits in the first layer, and does not in the second."""
    tables = made(CELLS, [0.1, 0.5])
    own = tables["directions"]
    later = (own["number"] == 2) & (own["layer"] == 1)
    tables["directions"] = own.assign(
        begun=own["begun"] + 20 * later, ended=own["ended"] + 20 * later
    )
    apart = plot(tables)["rises"]().axes[-1]
    shown = [list(line.get_ydata()) for line in apart.lines if len(line.get_xdata())]
    assert shown == [[0.5, 0.5]] * 9  # three scales and one of permuted labels, twice; the bar


def test_by_how_much_each_scale_has_more_rank_than_the_one_before(plot):
    """The stable ranks are 20, 21 and 22, and 0.35 and 0.37 more (23 to 25 for the other)."""
    grown = plot(made(CELLS, [0.1, 0.5]))["figure-4"]().axes[-2:]
    said = [[text.get_text() for text in axes.texts] for axes in grown]
    assert said == [["× 1.05", "× 1.05"], ["× 1.04", "× 1.04"]]
    assert [axes.get_title().partition("(")[2] for axes in grown] == ["asked: above 1)"] * 2


def test_figures_of_tables_with_holes_are_drawn(plot):
    """One seed, numbers that are none or infinite, and no growth at all."""
    tables = {
        name: rows[rows["seed"] == 2] if "seed" in rows and name != "spectra" else rows
        for name, rows in made(CELLS, [0.1, 0.5]).items()
    }
    tables["growth"] = tables["growth"].assign(growth=np.nan)
    tables["equal_loss"] = tables["equal_loss"].assign(learned=np.nan)
    tables["truncate"] = tables["truncate"].assign(test_accuracy=np.nan)
    tables["prune"] = tables["prune"].assign(test_accuracy=np.nan)
    ranks = tables["ranks"]
    tables["ranks"] = ranks.assign(
        stable_rank=ranks["stable_rank"].where(ranks["init_scale"] != 0.5, np.nan)
    )
    for figure in plot(tables).values():
        assert b"</svg>" in as_svg(figure)
    tables["growth"] = tables["growth"].iloc[:0]
    tables["directions"] = tables["directions"].iloc[:0]
    draw = plot(tables)
    assert all(b"</svg>" in as_svg(draw[name]) for name in ("figure-12", "rises"))


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("layer", 3, r"wanted one of \[1, 2\], those of the tables, got 3"),
        ("head", 2, r"wanted one of \[1, 3\], those of the tables, got 2"),
        ("lines", 4, "wanted at most the 3 singular values of a head, got 4"),
    ],
)
def test_what_the_tables_lack_is_refused_before_anything_is_drawn(plot, key, value, wanted):
    with pytest.raises(InputError, match=rf"^plot\.{key}: {wanted}$"):
        plot(made(CELLS, []), **{key: value})
