"""Grids of panels: their sizes, the ticks below them, and the legends that they share."""

import matplotlib.pyplot as plt
import pytest

from lib.pages.panels import (
    grid,
    numbers_below,
    power,
    powers_below,
    scale_label,
    shared_legend,
    tall_panel,
)
from lib.pages.style import READ_WIDTH, styled


def ticks(axes):
    """Where the ticks of x stand, and what is written at them."""
    return dict(
        zip(axes.get_xticks(), [text.get_text() for text in axes.get_xticklabels()], strict=True)
    )


@pytest.fixture
def figure():
    with styled():
        figure, _ = grid(2, 3, (99, 4))
    yield figure
    plt.close(figure)


def test_a_grid_has_rows_of_panels_and_is_never_wider_than_it_is_read(figure):
    assert figure.get_size_inches().tolist() == [READ_WIDTH, 4]
    assert len(figure.axes) == 6
    with styled():
        narrow, panels = grid(1, 1, (3, 2))
    assert narrow.get_size_inches().tolist() == [3, 2]
    assert panels.shape == (1, 1)


def test_a_tall_panel_takes_the_place_of_the_last_column():
    with styled():
        figure, panels = grid(2, 3, (9, 4))
    tall = tall_panel(figure, panels)
    assert len(figure.axes) == 5
    place = tall.get_subplotspec()
    assert place is not None
    assert (place.rowspan, place.colspan) == (range(0, 2), range(2, 3))


def test_numbers_and_powers_are_named_as_mathematics_writes_them():
    assert power(-8) == "$10^{-8}$"
    assert power(-0.5) == "$10^{-0.5}$"
    assert scale_label(0.10) == "init scale 0.1"


def test_a_logarithmic_axis_has_ticks_at_the_numbers_alone(figure):
    axes = figure.axes[0]
    axes.set(xscale="log", yscale="log")
    numbers_below(axes, [0.5, 1, 20])
    assert ticks(axes) == {0.5: "0.5", 1: "1", 20: "20"}
    assert list(axes.get_xticks(minor=True)) == []
    assert len(axes.get_yticks(minor=True)) > 0
    numbers_below(axes, [1 / 3], ".2g", rotation=60)
    assert ticks(axes) == {1 / 3: "0.33"}
    assert axes.get_xticklabels()[0].get_rotation() == 60


def test_an_axis_of_minus_logarithms_names_the_small_numbers(figure):
    axes = figure.axes[0]
    powers_below(axes, [-4, -1, -4])
    assert ticks(axes) == {1: "$10^{-1}$", 4: "$10^{-4}$"}


def test_one_legend_has_every_name_of_its_panels_once(figure):
    first, second, *_ = figure.axes
    first.plot([1], [1], label="flow")
    first.plot([1], [1], label="theory")
    second.plot([1], [1], label="theory")
    second.plot([1], [1], label="null")
    shared_legend(figure, first, second)
    [below] = figure.legends
    assert [text.get_text() for text in below.get_texts()] == ["flow", "theory", "null"]
    assert below._ncols == 3
    shared_legend(figure, first, loc="outside right upper", fontsize=7)
    assert figure.legends[1]._ncols == 1
