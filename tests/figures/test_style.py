"""Figures are written as matplotlib's `savefig` writes them, but for what would differ from run to run."""

import io

import matplotlib.pyplot as plt
import numpy as np
import pytest

from lib.figures.style import _RC, DPI, rendered, styled


def drawn(layout):
    """Panels with texts, an image with its colours, and a logarithmic axis: their places depend on each other."""
    with styled():
        figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout=layout)
        axes[0].plot([1, 2, 3], [1e-3, 2, 1e4], label=r"$\sigma_1$")
        axes[0].set(yscale="log", ylabel="a long label\nin two lines", title="one")
        axes[0].legend()
        figure.colorbar(axes[1].imshow(np.arange(12).reshape(3, 4)), ax=axes[1], label="values")
        axes[2].fill_between([0, 1], [0, 1], [1, 3], alpha=0.3)
        figure.suptitle("all")
    return figure


@pytest.mark.parametrize("layout", ["constrained", "tight", "none"])
def test_an_svg_is_to_the_byte_what_savefig_writes(layout):
    wanted = io.BytesIO()
    with plt.rc_context(_RC):
        drawn(layout).savefig(wanted, format="svg", dpi=DPI, metadata={"Date": None, "Creator": None})
    assert rendered(drawn(layout)) == wanted.getvalue()


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_equal_figures_give_equal_bytes_and_none_stays_open(kind):
    plt.close("all")
    assert rendered(drawn("constrained"), kind) == rendered(drawn("constrained"), kind)
    assert plt.get_fignums() == []
