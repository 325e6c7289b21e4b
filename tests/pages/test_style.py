"""Figures are written as matplotlib's `savefig` writes them, but for what would differ from run to
run.
"""

import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lib.pages.dark import for_dark
from lib.pages.style import _RC, DPI, frame, number_panel, rendered, rounded, styled


def drawn(layout):
    """Panels with texts, an image with its colours, and a logarithmic axis: their places depend on
    each other.
    """
    with styled():
        figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout=layout)
        axes[0].plot([1, 2, 3], [1e-3, 2, 1e4], label=r"$\sigma_1$")
        axes[0].set(yscale="log", ylabel="a long label\nin two lines", title="one")
        axes[0].legend()
        figure.colorbar(axes[1].imshow(np.arange(12).reshape(3, 4)), ax=axes[1], label="values")
        axes[2].fill_between([0, 1], [0, 1], [1, 3], alpha=0.3)
        figure.suptitle("all")
    return figure


@pytest.mark.parametrize("layout", ["constrained", "none"])
def test_an_svg_is_what_savefig_writes_with_its_places_in_hundredths(layout):
    wanted = io.BytesIO()
    with plt.rc_context(_RC):
        drawn(layout).savefig(
            wanted, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None}
        )
    before, after = (
        re.sub(rb"#?p[0-9a-f]{10}", b"clip", svg)
        for svg in (for_dark(wanted.getvalue()), rendered(drawn(layout)))
    )
    number = rb"-?\d+(?:\.\d+)?(?:e-?\d+)?"
    assert (re.sub(number, b"0", after) == re.sub(number, b"0", before)) is True
    before, after = (np.array(re.findall(number, svg), float) for svg in (before, after))
    np.testing.assert_allclose(after, before, rtol=0, atol=0.0061)


def test_the_last_digits_of_a_layout_change_no_byte():
    """The solver of the layout orders its terms by their addresses in memory, which differ from run
    to run.
    """
    steady, moved = drawn("constrained"), drawn("constrained")
    execute = moved.get_layout_engine().execute

    def disturbed(figure):
        execute(figure)
        for axes in figure.axes:
            place = axes.get_position(original=True)
            axes.set_position(place.translated(1e-15, -1e-15), which="original")

    moved.get_layout_engine().execute = disturbed
    assert (rendered(steady) == rendered(moved)) is True


def test_scales_and_short_numbers_stay_and_no_zero_is_negative():
    svg = (
        b'<g transform="translate(1.23456 -0.001) scale(0.015625 -0.015625)"><path d="M 2.5 '
        b'-7.999 L 1e-05 3.10e2"/>'
    )
    assert rounded(svg) == svg.replace(b"1.23456 -0.001", b"1.23 0").replace(b"-7.999", b"-8")


def viewed(svg):
    """The boxes of the views of a drawing, by name."""
    found = re.findall(rb'<view id="([^"]+)" viewBox="([^"]+)"/>', svg)
    return {name.decode(): [float(n) for n in box.split()] for name, box in found}


def test_the_panel_of_the_number_is_named_with_room_for_its_labels():
    """Its box holds the axes, which are three inches of nine, and what stands left of them."""
    figure = drawn("constrained")
    assert viewed(rendered(drawn("constrained"))) == {}
    number_panel(figure.axes[0])
    (name, (left, top, width, height)), *others = viewed(rendered(figure)).items()
    assert (name, others) == ("number", [])
    assert left <= 4
    assert 2 * 72 < left + width < 4 * 72
    assert 0 < top < 30, "the title of all stands above"
    assert height > 150


def test_frames_are_as_large_as_each_other_and_stand_in_their_order():
    with styled():
        figure, panels = plt.subplots(2, 1, figsize=(4, 6))
    for name, axes in zip(("small", "large"), panels, strict=True):
        axes.set(title=name)
        frame(name, axes)
    panels[1].set(ylabel="a label that the other has not")
    boxes = viewed(rendered(figure))
    assert list(boxes) == ["small", "large"]
    assert boxes["small"][::2] == boxes["large"][::2]
    assert boxes["small"][3] == pytest.approx(boxes["large"][3], abs=1)
    assert boxes["small"][1] < boxes["large"][1]


def test_no_figure_stays_open():
    rendered(drawn("none"))
    assert plt.get_fignums() == []
