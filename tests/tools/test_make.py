"""What people give to make is data: it reaches Python as it was typed, and nothing in it is run on
the way.
"""

import importlib
import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.project import PYTHON, ROOT

# A program that is run here may have been imported before.
pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
NAMES = " ".join(re.findall(r"^export (.+)$", MAKEFILE, re.MULTILINE)).split()
HOSTILE = r"""HEAD'; touch ran; '
HEAD"; touch ran; "
`touch ran` $(touch ran) $(shell touch ran)
$(eval x:=$(shell touch ran)) $(error ran) ${HOME} $$ $@
	touch ran
dvc exp run -S 'a=[1,"2"]' --name "x y" && echo `date` $HOME # not a comment
a  b \ % ; | & < > * ? ~ é ∞  """
# In the place of python: says the module it was to run and the variables that it was given.
ECHO = """#!{python} -I
import json, os, sys
if sys.argv[1] != "-m":  # the look at what is installed, which has tests of its own
    sys.exit()
print("GOT" + json.dumps([sys.argv[1:], {{name: os.environ.get(name) for name in {names}}}]))
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """The Makefile in a folder in which all is set up, and whose python echoes."""
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin" / "activate").write_text(f"PATH={tmp_path}/.venv/bin:$PATH\n")
    (tmp_path / ".venv" / "bin" / "python").write_text(ECHO.format(python=PYTHON, names=NAMES))
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    return tmp_path


def made(project: Path, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """How make ran the echoing python."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in (*NAMES, "MAKEFLAGS")
    }
    done = subprocess.run(
        ["make", *arguments],
        cwd=project,
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("GOT")]
    return json.loads(line.removeprefix("GOT"))


@pytest.mark.parametrize("value", [HOSTILE, "--help"])
def test_a_value_reaches_python_as_it_was_typed(value, project):
    given = {name: f"{value}{i}" for i, name in enumerate(NAMES)}
    for how in ([f"{name}={text}" for name, text in given.items()], []):
        command, found = made(project, "compare", *how, **({} if how else given))
        assert command == ["-m", "tools.compare"]
        assert found == given
    assert not (project / "ran").exists()


def test_every_variable_that_a_program_takes_from_the_environment_is_one_of_make():
    programs = [
        path.stem
        for path in (ROOT / "tools").glob("*.py")
        if "run(main, environment=True)" in path.read_text(encoding="utf-8")
    ]
    assert {"unseen", "sweep", "lora"} <= set(programs)
    mains = [importlib.import_module(f"tools.{name}").main for name in programs]
    taken = {name.upper() for main in mains for name in inspect.signature(main).parameters}
    overridden = re.findall(r"^override (\w+) := \$\(value \1\)$", MAKEFILE, re.MULTILINE)
    assert taken <= set(NAMES)
    assert sorted(overridden) == sorted(NAMES)


@pytest.mark.parametrize("target", ["sweep", "publish", "gpu", "lora"])
def test_a_target_runs_the_program_of_its_name(target, project):
    assert made(project, target)[0] == ["-m", f"tools.{target}"]


def test_what_is_not_given_is_empty(project):
    assert made(project, "compare")[1] == dict.fromkeys(NAMES, "")


def test_help_lists_every_target_with_a_line(project):
    [targets] = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    command = ["make", "--no-print-directory", "help"]
    said = subprocess.run(command, cwd=project, capture_output=True, text=True, check=True).stdout
    listed = [re.fullmatch(r"make (\S+) +(\S.+)", line)[1] for line in said.splitlines()]
    assert sorted(listed) == sorted(targets.split())


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [
        ("publish", ["DATASET", "COMMAND", "HOURS"]),
        ("sweep", ["PARAM", "METRIC"]),
        ("lora", ["BASE", "TUNED", "OUT"]),
        ("gpu", ["MINUTES"]),
    ],
)
def test_without_what_it_needs_a_program_says_in_one_line_how_make_is_called(
    monkeypatch, tool, wanted
):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", [tool])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"tools.{tool}", run_name="__main__", alter_sys=True)
    said, example = ended.value.code.split("; for example ")
    assert said == f"error: wanted {' and '.join(wanted)}, got none"
    assert example.startswith(f"`make {tool} ")
    assert all(f" {name}=" in example for name in wanted)
