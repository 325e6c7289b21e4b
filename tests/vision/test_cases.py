"""Cases of a table by the names that params give, the name of what differs in one, and columns that
nobody reads.
"""

import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
from project import ROOT, different_stages

from lib.files.files import InputError
from lib.vision.cases import chosen_cases, differences, read_problems
from lib.work.command import run


@dataclass(frozen=True)
class Case:
    name: str
    rate: float = 0.5
    kind: str = "plain"
    n: int = 1


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "cases.tsv"
    file.write_text("name\trate\tkind\nslow\t0.25\t\nother\t\tall but one\nas usual\t0.5\tplain\n")
    return file


def test_cases_come_in_the_order_of_their_names_in_the_params(table):
    assert chosen_cases(table, Case, ("other", "slow"), "key") == [
        Case("other", kind="all but one"),
        Case("slow", 0.25),
    ]
    assert chosen_cases(table, Case, (), "key") == []


def test_a_name_that_no_case_has_is_refused_with_those_that_there_are(table):
    with pytest.raises(
        InputError,
        match=r"key: wanted some of \['slow', 'other', 'as usual'\], .*cases.tsv; got \('a',\)",
    ):
        chosen_cases(table, Case, ("a",), "key")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case("x"), "none"),
        (Case("x", rate=0.30000000000000004), "rate=0.3"),
        (Case("x", 2.0, "all but one", 7), "rate=2,kind=all-but-one,n=7"),
    ],
)
def test_what_differs_is_named_by_its_field_and_value(case, said):
    assert differences(case, Case("x")) == said


COMMANDS = {stage.module: stage.cmd.split()[3:] for stage in different_stages()}
READ = [
    (module, word) for module, words in COMMANDS.items() for word in words if word.endswith(".tsv")
]


@pytest.mark.parametrize(("module", "misspelt"), READ)
def test_every_stage_refuses_a_misspelt_column_of_a_table_that_it_reads(
    module, misspelt, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for name in {table for _, table in READ}:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        lines = [
            line
            for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
            if line[:1] != "#"
        ]
        header, *rows = [line.split("\t", 1) for line in lines]
        first = "misspelt" if name == misspelt else header[0]
        Path(name).write_text(
            "".join("\t".join(row) + "\n" for row in [[first, *header[1:]], *rows])
        )
    monkeypatch.setattr(sys, "argv", [module, *COMMANDS[module]])
    with pytest.raises(SystemExit, match=f"^error: {misspelt}: unknown column 'misspelt', wanted "):
        run(import_module(module).main)


def test_a_misspelt_key_of_the_usual_problem_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("usual:\n  n_sample: 3\n")
    with pytest.raises(
        InputError, match=r"params.yaml: usual: unknown key 'n_sample', wanted .*'n_samples'"
    ):
        read_problems(Path("problems.tsv"), Case, "usual")
