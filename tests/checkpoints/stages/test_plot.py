"""The figures of checkpoints that are drawn from people's own tables."""

import pytest

from lib.files.files import InputError
from lib.pages.style import as_svg
from stages.checkpoints.plot import drawings


def test_every_figure_is_drawn_whose_tables_are_there(evaluated):
    found = drawings(evaluated[1] / "tables")
    assert set(found) == {"heads", "plans", "pruning", "ranks", "rounding"}
    views = {name for name, draw in found.items() if b'<view id="number"' in as_svg(draw)}
    assert views == {"heads", "plans", "pruning", "rounding"}


def test_a_folder_without_tables_is_refused(tmp_path):
    with pytest.raises(InputError, match=r": wanted the tables of a figure, got \[\]"):
        drawings(tmp_path)
