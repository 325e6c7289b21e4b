"""What no stage reads is refused: a misspelt column of a table of cases, a misspelt key of a section."""

import shutil
import sys
from importlib import import_module
from itertools import accumulate
from pathlib import Path

import pytest

from lib.work.command import run
from tests.pipeline.project import ROOT, different_stages, params_of, set_params

STAGES = {stage.module: stage for stage in different_stages()}
COMMANDS = {module: stage.cmd.split(" && ")[0].split()[3:] for module, stage in STAGES.items()}
SAID = {  # what a command says of sections and paths, with the name of the option or without
    module: [word.partition("=")[2] if word.startswith("--") else word for word in words]
    for module, words in COMMANDS.items()
}
TABLES = [(module, word) for module in SAID for word in SAID[module] if word[-4:] == ".tsv"]
READERS = {
    section: [module for module in SAID if section in SAID[module]]
    for stage in STAGES.values()
    for section in stage.params
}


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts a stage where the params and all tables of cases are, and nothing else."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for _, table in TABLES:
        (tmp_path / table).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / table, table)

    def start(module):
        monkeypatch.setattr(sys, "argv", [module, *COMMANDS[module]])
        run(import_module(module).main)

    return start


@pytest.mark.parametrize(("module", "table"), TABLES)
def test_every_stage_refuses_a_misspelt_column_of_a_table_that_it_reads(module, table, started):
    lines = Path(table).read_text(encoding="utf-8").splitlines()
    header, *rows = [line for line in lines if line[:1] != "#"]
    _, tab, others = header.partition("\t")
    Path(table).write_text("\n".join([f"misspelt{tab}{others}", *rows]) + "\n")
    with pytest.raises(SystemExit, match=f"^error: {table}: unknown column 'misspelt', wanted "):
        started(module)


def owner(section):
    """The stage of the section's name, or the first that reads it: others may read a part of it."""
    verb = section.rpartition(".")[2]
    return min(READERS[section], key=lambda module: not module.endswith(f".{verb}"))


@pytest.mark.parametrize(
    "section",
    [one for one in READERS if READERS[one] and one.rpartition(".")[0] not in READERS],
)
def test_a_misspelt_key_of_a_section_is_refused(section, started):
    params = params_of(Path())
    *_, found = accumulate(section.split("."), lambda inner, key: inner[key], initial=params)
    if not isinstance(found, dict):
        pytest.skip("a single value")
    found["misspelt"] = 1
    set_params(Path(), params)
    with pytest.raises(SystemExit, match=f"params.yaml: {section}: unknown key 'misspelt'"):
        started(owner(section))
