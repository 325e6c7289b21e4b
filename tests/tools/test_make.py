"""What people give to make is data: it reaches Python as it was typed, and nothing in it is run on
the way.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pipeline.project import PYTHON, ROOT

NAMES = (
    "REV",
    "TO",
    "PARAM",
    "METRIC",
    "DATASET",
    "COMMAND",
    "HOURS",
    "MINUTES",
    "FOLDER",
    "SOURCE",
    "EPOCHS",
)
NAMES += ("BASE", "TUNED", "TEXT", "OUT", "LAB_WORKERS", "LAB_MIXED_CPUS", "MAX_MEMORY", "KEEP")
VALUES = {
    "a single quote": "HEAD'; touch ran; '",
    "a double quote": 'HEAD"; touch ran; "',
    "backticks": "`touch ran`",
    "a command substitution": "$(touch ran)",
    "a function of make": "$(shell touch ran)",
    "more of make": "$(eval x:=$(shell touch ran)) $(error ran) ${HOME} $$ $@",
    "newlines": "one\ntouch ran\n\ttouch ran",
    "a command": """dvc exp run -S 'a=[1,"2"]' --name "x y" && echo `date` $HOME # not a comment""",
    "an option": "--help",
    "spaces and signs": "a  b \\ % ; | & < > * ? ~ é ∞  ",
}
# In the place of python: says the module it was to run and the variables that it was given.
ECHO = """#!{python} -I
import json, os, sys
print("GOT" + json.dumps([sys.argv[1:], {{name: os.environ.get(name) for name in {names}}}]))
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """The Makefile in a folder in which all is set up, and whose python echoes."""
    needed = (
        "requirements.txt",
        "requirements.cuda.txt",
        "requirements.pip.txt",
        "tools/plots.py",
        "tools/plots.html",
    )
    for name in (*needed, ".venv/installed", ".venv/bin/activate"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    os.utime(tmp_path / ".venv" / "installed", (2**32, 2**32))
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


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("target", ["compare", "sweep", "publish", "gpu", "lora"])
def test_a_value_reaches_python_as_it_was_typed(target, value, project):
    given = {name: f"{value}{i}" for i, name in enumerate(NAMES)}
    for how in ([f"{name}={text}" for name, text in given.items()], []):
        command, found = made(project, target, *how, **({} if how else given))
        assert command == ["-m", f"tools.{target}"]
        assert found == given
    assert not (project / "ran").exists()


def test_what_is_not_given_is_empty(project):
    assert made(project, "compare")[1] == dict.fromkeys(NAMES, "")


def said(project: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        ["make", "--no-print-directory", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_help_lists_every_target_with_a_line(project):
    [targets] = re.findall(
        r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = [re.fullmatch(r"make (\S+) +(\S.+)", line) for line in said(project, "help")]
    assert all(listed)
    assert sorted(line[1] for line in listed if line) == sorted(targets.split())


@pytest.mark.parametrize(
    "tool", sorted(path.stem for path in (ROOT / "tools").glob("*.py") if path.stem != "imports")
)
def test_every_program_behind_make_can_be_loaded_with_the_packages_of_the_lock(tool):
    loaded = subprocess.run(
        [PYTHON, "-c", f"import tools.{tool}"], cwd=ROOT, capture_output=True, text=True
    )
    assert loaded.returncode == 0, loaded.stderr


def test_publish_takes_what_make_was_given_from_the_environment():
    given = {**os.environ, "DATASET": "nobody's", "COMMAND": "a command", "HOURS": "soon"}
    command = [PYTHON, "-m", "tools.publish"]
    said = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True)
    assert "argument hours: invalid float value: 'soon'" in said.stderr


@pytest.mark.parametrize(
    ("tool", "wanted"),
    [
        ("publish", ["DATASET", "COMMAND", "HOURS"]),
        ("sweep", ["PARAM", "METRIC"]),
        ("lora", ["BASE", "TUNED", "OUT"]),
        ("gpu", ["MINUTES"]),
    ],
)
def test_without_what_it_needs_a_program_says_in_one_line_how_make_is_called(tool, wanted):
    given = {name: value for name, value in os.environ.items() if name not in NAMES}
    command = [PYTHON, "-m", f"tools.{tool}"]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    [line] = done.stderr.splitlines()
    said, example = line.split("; for example ")
    assert said == f"error: wanted {' and '.join(wanted)}, got none"
    assert example.startswith(f"`make {tool} ")
    assert all(f" {name}=" in example for name in wanted)
