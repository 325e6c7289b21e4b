"""The spectra of the largest updates are drawn whatever the names of the tensors are."""

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from lib.checkpoints.figures import spectra_of_snapshots
from lib.pages.style import rendered, styled


def spectra(names: dict[str, int]) -> pd.DataFrame:
    """A row for each module, with the layer of its name."""
    shared = {"of": "update", "head": 0, "step": 1, "run": "tuned", "edge": 0.1}
    return pd.DataFrame(
        [
            shared | {"module": name, "layer": layer, "norm": i + 1.0, "singular_values": [3.0, 1]}
            for i, (name, layer) in enumerate(names.items())
        ]
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"a.weight": 0, "b.weight": 0}, ["b", "a"]),  # no name holds a number
        ({"wte.weight": 0, "h.0.weight": 1}, ["h.0"]),
        ({r"h.0.\frac$x^$.weight": 1}, [r"h.0.\frac$x^$"]),
    ],
)
def test_every_name_is_drawn_as_it_stands(names, shown):
    with styled():
        figure = spectra_of_snapshots(spectra(names))
        assert [axes.get_title() for axes in figure.axes if axes.get_title()] == shown
        assert b"<svg" in rendered(figure)
        plt.close(figure)


def test_values_that_may_be_below_the_true_ones_have_a_band_up_to_these():
    table = spectra({"h.0.weight": 1, "h.1.weight": 2})
    table["errors"] = [[], [0.25, 0.5]]
    figure = spectra_of_snapshots(table)
    last, first = figure.axes[:2]
    assert not first.collections
    [band] = last.collections
    drawn = {tuple(corner) for corner in band.get_paths()[0].vertices}
    assert {(1, 3.0), (2, 1.0), (1, 3.25), (2, 1.5)} <= drawn
    plt.close(figure)
