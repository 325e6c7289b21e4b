"""`dvc exp run -S` changes one line of params.yaml and loses no comment: the file is what DVC's
writer makes of it.
"""

import difflib
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dvc.utils.hydra import apply_overrides
from dvc.utils.serialize import modify_yaml
from ruamel.yaml import YAML

from lib.files.params import load_yaml
from lib.gradual_rank.tasks import read_problems
from stages.gradual_rank import flow, generate, greedy
from tests.pipeline.project import ROOT
from tests.pipeline.tiny import read_rows


@pytest.fixture
def file(tmp_path) -> Path:
    shutil.copy(ROOT / "params.yaml", tmp_path)
    return tmp_path / "params.yaml"


def values(params: dict[str, Any], *above: str) -> Iterator[tuple[str, Any]]:
    """The dotted name of every value that is no section."""
    for key, value in params.items():
        if isinstance(value, dict):
            yield from values(value, *above, key)
        else:
            yield ".".join([*above, key]), value


def other(value: Any) -> str:
    """Another value of the same kind, as it is written on a command line."""
    if isinstance(value, bool):
        return str(not value).lower()
    return "another" if isinstance(value, str) else repr(type(value)(value + 1))


def changed(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and the lines that came."""
    old, new = before.splitlines(), after.splitlines()
    went, came = [], []
    # autojunk would pass over lines that are frequent, and take others for them
    for tag, i, k, j, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag != "equal":
            went += old[i:k]
            came += new[j:m]
    return went, came


def last_keys(names: Iterable[str]) -> list[str]:
    return [name.split(".")[-1] for name in names]


def comments(text: str) -> list[str]:
    return [line[line.index("#") :] for line in text.splitlines() if "#" in line]


PARAMS = load_yaml(ROOT / "params.yaml")
VALUES = dict(values(PARAMS))
LISTS = {name: value for name, value in VALUES.items() if isinstance(value, list)}
PLAIN = [name for name in VALUES if name not in LISTS]
FIRST = {name.rpartition(".")[0]: name for name in reversed(PLAIN)}.values()


def test_dvc_writes_the_file_as_it_stands(file):
    with modify_yaml(file):
        pass
    assert changed((ROOT / "params.yaml").read_text(), file.read_text()) == ([], [])


def test_an_override_changes_one_line_in_any_section(file):
    """The override is of the first plain key of every section."""
    before = file.read_text()
    apply_overrides(file, [f"{name}={other(VALUES[name])}" for name in FIRST])
    for lines in changed(before, file.read_text()):
        assert [line.strip().split(":")[0] for line in lines] == last_keys(
            sorted(FIRST, key=PLAIN.index)
        )
    assert comments(before) == comments(file.read_text())


def test_an_override_of_a_list_changes_its_items_alone(file):
    """The list becomes its first item, then empty: a comment behind the key would break the file."""
    before = file.read_text()
    apply_overrides(file, [f"{name}=[{first}]" for name, [first, *_] in LISTS.items()])
    went, came = changed(before, file.read_text())
    assert (len(went), came) == (sum(len(value) - 1 for value in LISTS.values()), [])
    shortened = file.read_text()
    apply_overrides(file, [f"{name}=[]" for name in LISTS])
    went, came = changed(shortened, file.read_text())
    assert [line.strip() for line in came] == [f"{key}: []" for key in last_keys(LISTS)]
    assert len(went) == 2 * len(LISTS)
    assert comments(before) == comments(file.read_text())
    assert dict(values(load_yaml(file))) == VALUES | {name: [] for name in LISTS}


@pytest.mark.parametrize(
    "change", ["n_seeds=3", "d_model=5", "flow_scales=[-3]", "forecast_scales=[]", "n_times=9"]
)
def test_an_override_changes_the_problems_that_leave_it_empty(change, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    path = PARAMS["gradual_rank"]["cases"]["problems"]
    key, text = change.split("=")

    def problems() -> list[Any]:
        schemas = (generate.Problem, greedy.Problem, flow.Problem)
        tables = [read_problems(ROOT / path, one, "gradual_rank.problem") for one in schemas]
        return [problem for table in tables for problem in table]

    before = problems()
    apply_overrides(file, [f"gradual_rank.problem.{change}"])
    wanted = YAML(typ="safe").load(text)
    wanted = tuple(wanted) if isinstance(wanted, list) else wanted
    changed = [b for a, b in zip(before, problems(), strict=True) if a != b]
    assert {getattr(one, key) for one in changed} == {wanted}
    empty = {row["name"] for row in read_rows(path) if row.get(key) is None}
    assert {one.name for one in changed} == empty
