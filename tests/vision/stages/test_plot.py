"""The figures of a data set where those in git show nothing of it."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from matplotlib.colors import to_rgba

from lib.files.files import InputError
from lib.pages.style import PERMUTED_COLOR
from stages.vision.plot import drawings
from tests.stages.made import legend, series, ticks
from tests.vision.plot_made import CELLS, PERMUTED, PLAIN, made

PARAMS = {"layer": 2, "head": 3, "lines": 2, "trained_loss": 5}


@pytest.fixture
def plot(tmp_path, monkeypatch):
    """Call `plot(tables)` is what draws each figure, by its name."""
    monkeypatch.chdir(tmp_path)

    def of(tables, **params):
        Path("params.yaml").write_text(yaml.safe_dump({"plot": PARAMS | params}))
        for name, rows in tables.items():
            rows.to_parquet(f"{name}.parquet")
        return drawings("plot", tmp_path)

    return of


# Every line of each panel: its x, then its y.
EQUAL_LOSS = [
    "2.1 0.6  11.39 21.39 | 2 0.5  11.35 21.35 | 0.6 1.1  5 6 | 2.35 0.85  31.39 41.39 "
    "| 2.25 0.75  31.35 41.35 | 0.6 1.1  7 8",
    "2.1 0.6  14.39 24.39 | 2 0.5  14.35 24.35 | 0.6 1.1  15 16 | 2.35 0.85  34.39 44.39 "
    "| 2.25 0.75  34.35 44.35 | 0.6 1.1  17 18",
]


def test_ranks_under_both_labels_are_compared_at_equal_loss(plot):
    panels = plot(made(CELLS, [4.0, 0.1]))["equal-loss"]().axes
    assert [" | ".join(series(axes)) for axes in panels] == EQUAL_LOSS
    assert legend(panels[0]) == ["true labels", "permuted labels"]


def test_each_direction_is_a_bar_from_its_begin_to_its_end_the_largest_at_the_top(plot):
    """The least seed is drawn at the reference scale: a panel for each product and labelling."""
    panels = plot(made(CELLS, [0.1]))["rises"]().axes
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
    assert [axes.get_title() for axes in draw["figure-3"]().axes] == ["init scale 0.5", ""]
    axes = draw["figure-12"]().axes[0]
    violet = [line for line in axes.lines if line.get_color() == PERMUTED_COLOR]
    assert [line.get_linestyle() for line in violet] == ["-", ":"]
    assert series(axes)[3::4] == ["1 9  31.12 41.12", "1 9  34.12 44.12"]
    assert "SGD for Adam" not in ticks(draw["nulls"]().axes[1].xaxis)


def test_permuted_labels_are_in_the_legend_where_only_some_scales_have_them(plot):
    found = legend(plot(made(CELLS, [0.1, 0.5]))["figure-12"]())
    names = [r"$\Delta$ $W_K W_Q^\top$", r"$\Delta$ $W_V W_O^\top$"]
    assert found == [f"{name}{more}" for name in names for more in ("", ", permuted labels")]


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
