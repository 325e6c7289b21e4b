"""A name that comes from params, a table or a command line never leads out of its folder, and
nothing is lost by it.
"""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from lib.decision_lists.lists import Task
from lib.decision_lists.runs import publish as publish_lists
from lib.decision_lists.shown import run_shown
from lib.files.files import InputError, clear, file_name
from lib.files.params import read_cases
from lib.files.runs import Layout, clear_runs, open_run, write_run
from lib.vision.variants import Variant
from lib.work.cells import Course
from stages.decision_lists import generate
from stages.low_rank_sparse import adapt, train
from tests.pipeline.project import ROOT
from tools import publish

LAYOUT = Layout("toy", {"W": ["row", "col"]})
KEPT = {"victim/file": "precious", "runs/beside": "precious", "file": "precious"}


# None of these may name a folder here; "|" stands between.
HOSTILE = """\
..|../victim|a/..//victim|../../victim|./..|a/../../victim|victim/|a/b|~|~root|-rf|.|{here}/victim|/victim|\
//victim|C:\\victim|..\\victim|file:///victim|| |a b|a
|\0|a\0b|a\x1b[2J|\u2025/victim|\uff0e\uff0e|\u202evictim|a:b|a*|?|$(id)|`id`|a;b|a&b|'a'|"a"|\
.hidden|.git|.dvc|\ud800|é|%2e%2e"""


def hostile_names() -> list[str]:
    names = [*HOSTILE.split("|"), "a|b", "a" * 101, "a/" * 60]
    return [name.replace("{here}", str(Path.cwd())) for name in names]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder with a folder of runs, something beside it, and links out of it."""
    folder = tmp_path / "here"
    for name, content in KEPT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    monkeypatch.chdir(folder)
    return folder


def refused(function, *arguments, match: str = "wanted a name") -> None:
    with pytest.raises(InputError, match=match):
        function(*arguments)


def begin(runs: Path, name: str) -> None:
    with write_run(runs, name, LAYOUT) as run:
        run.add({"W": torch.eye(2)}, [{"step": 0}])


def task(name: str) -> Task:
    return Task(name, "g", 2, 1, False, ((1,), (0,)), (0, 1), (0.5, 0.5), "uniform")


CASES = [
    ("decision_lists/groups", generate.Group, "group"),
    ("low_rank_sparse/configurations", train.Configuration, "name"),
    ("low_rank_sparse/configurations", adapt.Configuration, "name"),
]


def test_no_hostile_name_is_a_name(here):
    for name in hostile_names():
        refused(file_name, name)


@pytest.mark.parametrize(
    "name",
    [
        "init_scale=0.1,labels=permuted",
        "law-000",
        "_",
        "a" * 100,
        *(Variant(scale, "permuted", "muon", 1e9, muon_of="heads").run for scale in (1e-9, 1e9)),
        Variant(0.1, "true", "adamw", 1e-9, 0.1).run,
    ],
)
def test_the_names_that_the_project_uses_are_names(name):
    assert file_name(name) == name


@pytest.mark.parametrize(("table", "schema", "column"), CASES)
def test_a_cell_that_becomes_a_part_of_a_path_is_checked_as_a_name(table, schema, column, here):
    lines = (ROOT / "stages" / f"{table}.tsv").read_text(encoding="utf-8").splitlines()
    header, *_, last = [line.split("\t") for line in lines if not line.startswith("#")]
    for name in hostile_names():
        last[header.index(column)] = json.dumps(name)
        Path("cases").write_text("\t".join(header) + "\n" + "\t".join(last) + "\n")
        refused(
            partial(read_cases, columns=header),
            Path("cases"),
            schema,
            match=f"line 2, column {column}: wanted a",
        )
    Path("cases").unlink()


def test_a_run_of_a_hostile_name_is_neither_written_nor_removes_anything(here):
    for name in hostile_names():
        refused(begin, Path("runs"), name)
        course = Course({}, [({"W": torch.zeros(3, 3)}, [])])
        refused(publish_lists, Path("runs"), task(name), [0], [course])
        refused(run_shown, task(name), Path("runs"), 0, 1)
    assert {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()} == set(KEPT)


def test_results_of_a_hostile_data_set_are_not_published(here, monkeypatch):
    monkeypatch.setattr(publish, "said", lambda *_: "")
    (here / "params.yaml").write_text("vision:\n  ../victim:\n    data: {}\n")
    refused(publish.main, "../victim", "command", 1.0)
    assert (here / "victim" / "file").read_text() == "precious"


@pytest.mark.parametrize("linked", ["runs", "runs/one"])
def test_a_run_is_not_written_through_a_link(linked, here):
    (here / "runs" / "beside").unlink()
    (here / "runs").rmdir()
    (here / linked).parent.mkdir(exist_ok=True)
    (here / linked).symlink_to(here / "victim", target_is_directory=True)
    refused(begin, Path("runs"), "one", match="wanted a folder to write in, got a link to")
    refused(clear_runs, Path("runs"), match="wanted ")
    assert (here / "victim" / "file").read_text() == "precious"


@pytest.mark.parametrize(
    "beside", ["notes.txt", "sub/steps.parquet", "snapshot-0000.safetensors.bak"]
)
def test_a_folder_that_holds_more_than_a_run_is_not_emptied(beside, here):
    begin(Path("own"), "one")
    (here / "own/one" / beside).parent.mkdir(exist_ok=True)
    (here / "own/one" / beside).write_text("precious")
    refused(
        begin, Path("own"), "one", match=f"own/one: wanted an empty folder, .* got own/one/{beside}"
    )
    refused(clear_runs, Path("own"), match=f"got own/one/{beside}")
    assert (here / "own/one" / beside).read_text() == "precious"
    assert (here / "own/one/SHA256SUMS").exists()


def test_a_run_whose_writer_was_killed_is_replaced(here):
    begin(Path("own"), "one")
    (here / "own/one/SHA256SUMS").unlink()
    (here / "own/one/.snapshot-0001.safetensors.4711.part").write_text("half")
    begin(Path("own"), "one")
    assert torch.equal(open_run(Path("own/one")).weights(0)["W"], torch.eye(2))
    assert len(list((here / "own/one").iterdir())) == 3
    clear_runs(Path("own"))
    assert list((here / "own").iterdir()) == []


def test_a_folder_is_cleared_of_what_fits_and_of_nothing_else(here):
    clear(Path("absent"), "*")
    refused(
        clear,
        Path("victim"),
        "*.parquet",
        match="victim: wanted an empty folder, .* got victim/file",
    )
    refused(clear, Path("file"), "*", match="file: wanted a folder to write in, got a file")
    (here / "victim" / "link").symlink_to(here / "runs", target_is_directory=True)
    clear(Path("victim"), "file", "link")
    assert list((here / "victim").iterdir()) == []
    assert (here / "runs" / "beside").exists()
