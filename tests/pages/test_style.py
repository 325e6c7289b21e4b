"""Figures are written as matplotlib's `savefig` writes them, but for what would differ from run to
run.
"""

import io
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lib.pages.style import _RC, DPI, rendered, rounded, styled


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
        for svg in (wanted.getvalue(), rendered(drawn(layout)))
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


def test_no_figure_stays_open():
    rendered(drawn("none"))
    assert plt.get_fignums() == []
