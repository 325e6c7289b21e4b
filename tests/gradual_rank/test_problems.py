"""The table of problems."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from lib.files.files import InputError
from lib.gradual_rank.tasks import read_problems, read_studied


@dataclass(frozen=True)
class Case:
    name: str


def test_a_misspelt_key_of_the_usual_problem_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("usual:\n  n_sample: 3\n")
    with pytest.raises(
        InputError, match=r"params.yaml: usual: unknown key 'n_sample', wanted .*'n_samples'"
    ):
        read_problems(Path("problems.tsv"), Case, "usual")


def test_a_studied_problem_that_is_none_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("studied: small\n")
    with pytest.raises(
        InputError, match=r"^studied: wanted one of the problems \['paper'\], got 'small'"
    ):
        read_studied("studied", ["paper"])
