"""The figures of checkpoints that are drawn from people's own tables, and from none in git."""

import numpy as np
import pytest

from lib.checkpoints import figures
from lib.files.files import InputError
from lib.pages.style import as_svg
from stages.checkpoints.plot import drawings
from tests.checkpoints.checkpoints_tables import rows


def test_every_figure_is_drawn_whose_tables_are_there(evaluated):
    found = drawings(evaluated[1] / "tables")
    assert set(found) == {"heads", "plans", "pruning", "ranks", "rounding"}
    views = {name for name, draw in found.items() if b'<view id="number"' in as_svg(draw)}
    assert views == {"heads", "plans", "pruning", "rounding"}


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(InputError, match=r": wanted the tables of a figure, got \[\]"):
        drawings(tmp_path)


@pytest.mark.parametrize(
    ("steps", "wanted"), [([0], ["tuned"]), ([300], ["step 300"]), ([0, 20], ["step 0", "step 20"])]
)
def test_spectra_are_named_by_their_step_where_they_have_one(steps, wanted):
    sizes = {"layers.0.up.weight": 18, "layers.0.down.weight": 20}
    table = rows(step=steps, module=tuple(sizes)).assign(run="mine", layer=1, head=0, of="update")
    table["norm"] = table["step"] + table["module"].map(sizes)
    table["edge"] = table["step"] + 0.2
    table["singular_values"] = [np.array([1.0, 0.5]) * norm for norm in table["norm"]]
    [axes] = figures.spectra_of_snapshots(table, n_modules=1).axes
    assert axes.get_title() == "layers.0.down"
    *shown, edge = axes.get_lines()
    assert [line.get_label() for line in shown] == wanted
    for line, step in zip(shown, steps, strict=True):
        np.testing.assert_allclose(line.get_ydata(), [step + 20, (step + 20) / 2])
    assert edge.get_ydata()[0] == steps[-1] + 0.2
