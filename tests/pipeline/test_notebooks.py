"""The notebooks of docs run to their end, and say what is stored in them. Their kernel and what
runs them are the extra `notebook`.
"""

import json
import re

import pytest

from tests.pipeline.project import ROOT

NOTEBOOKS = sorted((ROOT / "docs").glob("*.ipynb"))
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
PYTHON = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def cells_of(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cell):
    """All that a cell printed, and how many pictures it shows."""
    text = "".join("".join(one["text"]) for one in cell["outputs"] if "text" in one)
    pictures = [one for one in cell["outputs"] if "image/svg+xml" in one.get("data", {})]
    return text, len(pictures)


def without_numbers(text):
    """The words of a text; a number's width moves the blanks beside it."""
    return NUMBER.sub("#", text).split()


@each_notebook
def test_a_notebook_was_run_from_top_to_bottom_and_names_no_machine(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    cells = cells_of(notebook)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(printed(cell)[1] for cell in cells) >= 1
    assert notebook["metadata"] == PYTHON
    assert [cell["metadata"] for cell in notebook["cells"]] == [{}] * len(notebook["cells"])
    outputs = json.dumps([cell["outputs"] for cell in cells])
    assert not re.search(r"/home/|/root/|/tmp/|[A-Z]:\\\\|site-packages|\d\d:\d\d", outputs)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@each_notebook
def test_a_notebook_runs_and_says_what_is_stored_in_it(path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    stored = json.loads(path.read_text(encoding="utf-8"))
    live = nbformat.read(path, as_version=4)
    for cell in cells_of(live):
        cell["outputs"] = []
    where = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(live, timeout=1000, kernel_name="python3", resources=where).execute()
    for was, now in zip(cells_of(stored), cells_of(live), strict=True):
        (said, pictures), (says, drawn) = printed(was), printed(now)
        assert drawn == pictures
        assert without_numbers(says) == without_numbers(said)
        numbers = [[float(one) for one in NUMBER.findall(text)] for text in (says, said)]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.05, abs=0.01)
