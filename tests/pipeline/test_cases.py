"""Columns of tables of cases that nobody reads."""

import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

from lib.work.command import run
from tests.pipeline.project import ROOT, different_stages

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
