"""The hooks for pre-commit are parsed, run what is in .venv, and need no other repository."""

import shlex
import subprocess
from importlib.util import find_spec
from pathlib import Path

import yaml

from tests.pipeline.project import ROOT

CONFIG = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
HOOKS = [hook for repository in CONFIG["repos"] for hook in repository["hooks"]]


def test_the_hooks_come_from_this_repository_and_run_what_is_installed():
    assert [repository["repo"] for repository in CONFIG["repos"]] == ["local"]
    assert len({hook["id"] for hook in HOOKS}) == len(HOOKS) == 3
    for hook in HOOKS:
        assert hook["language"] == "system"
        program, *arguments = shlex.split(hook["entry"])
        assert Path(program).parent == Path(".venv/bin")
        if Path(program).name == "python":
            assert arguments[0] == "-m"
            assert find_spec(arguments[1])
        else:
            assert Path(program).name in (ROOT / "requirements.txt").read_text(encoding="utf-8")
            command = [Path(program).name, *arguments, "--help"]
            subprocess.run(command, check=True, capture_output=True)
