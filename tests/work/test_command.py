"""A program's arguments are what its `main` says; bad input and a full disk end it in one line, a
fault does not.
"""

import errno
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lib.files.files import InputError
from lib.work.command import refuse_shallow_clone, run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def called(monkeypatch):
    """Runs a function as a program with these arguments; what it returns is kept from its call."""

    def called(main, *arguments, environment=False):
        monkeypatch.setattr(sys, "argv", ["program", *arguments])
        run(main, environment=environment)

    return called


def kept(found):
    def main(
        section: str, share: float, runs: Path, tables: list[Path], rounds_of: int = 3, to: str = ""
    ) -> None:
        """Measure 95 % of it."""
        found.append((section, share, runs, tables, rounds_of, to))

    return main


def test_arguments_have_the_types_of_the_signature(called):
    found = []
    called(kept(found), "a.b", "0.5", "data/runs", "one", "two")
    called(kept(found), "a.b", "1e-3", "data/runs", "one", "--rounds-of", "7", "--to", "x y")
    assert found == [
        ("a.b", 0.5, Path("data/runs"), [Path("one"), Path("two")], 3, ""),
        ("a.b", 0.001, Path("data/runs"), [Path("one")], 7, "x y"),
    ]


def test_arguments_may_be_given_by_name_and_then_all_are(called, capsys):
    found = []
    names = ["--tables", "one", "two", "--runs=data/runs", "--section=a.b", "--share=0.5"]
    called(kept(found), *names)
    called(kept(found), *names, "--rounds-of=7")
    tables = [Path("one"), Path("two")]
    assert found == [("a.b", 0.5, Path("data/runs"), tables, n, "") for n in (3, 7)]
    with pytest.raises(SystemExit):
        called(kept(found), *names[3:])
    assert "the following arguments are required: --tables" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        called(kept(found), *names, "another")
    assert "unrecognized arguments: another" in capsys.readouterr().err


def test_a_text_may_name_a_file_of_the_users_own_and_a_path_a_data_set_alone(called, tmp_path):
    def text(text: str) -> None:
        found.append(text)

    def path(path: Path) -> None:
        found.append(path)

    found, own = [], tmp_path / "own.safetensors"
    save_file({"input_ids": torch.zeros(2, 3)}, own)
    called(text, str(own))
    assert found == [str(own)]
    with pytest.raises(SystemExit, match=r"own\.safetensors: wanted a data set with its digest"):
        called(path, str(own))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.b", "0.5", "data/runs"], "the following arguments are required: tables"),
        (["a.b", "half", "data/runs", "one"], "argument share: invalid float value: 'half'"),
        (["a.b", "0.5", "data/runs", "one", "--rounds", "7"], "unrecognized arguments: --rounds 7"),
        (
            ["a.b", "0.5", "data/runs", "one", "--rounds-of", "x"],
            "argument --rounds-of: invalid int value: 'x'",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(called, capsys, arguments, message):
    found = []
    with pytest.raises(SystemExit, match="2"):
        called(kept(found), *arguments)
    assert message in capsys.readouterr().err
    assert found == []


def test_help_says_what_the_function_does(called, capsys):
    with pytest.raises(SystemExit, match="0"):
        called(kept([]), "--help")
    said = capsys.readouterr().out
    assert "Measure 95 % of it." in said
    assert re.search(r"section share runs tables \[tables \.\.\.\]", said)


def test_what_is_not_on_the_command_line_is_taken_from_the_environment_where_that_is_wanted(
    called, monkeypatch
):
    def main(param: str, hours: float, rev: str = "HEAD", to: str = "") -> None:
        found.append((param, hours, rev, to))

    found = []
    for name, value in {"PARAM": "--help", "HOURS": "2.5", "REV": "", "TO": "$(x) 'y'"}.items():
        monkeypatch.setenv(name, value)
    called(main, environment=True)
    called(main, "a", environment=True)
    called(main, "a", "3", "--rev", "b", "--to", "c", environment=True)
    called(main, "a", "3")
    assert found == [
        ("--help", 2.5, "HEAD", "$(x) 'y'"),
        ("a", 2.5, "HEAD", "$(x) 'y'"),
        ("a", 3.0, "b", "c"),
        ("a", 3.0, "HEAD", ""),
    ]


def test_an_empty_variable_is_none_and_the_error_shows_how_it_is_given(called, monkeypatch):
    def main(param: str, rev: str) -> None:
        raise AssertionError

    monkeypatch.setenv("REV", "HEAD")
    monkeypatch.setenv("PARAM", "")
    said = "Something: `make it PARAM=a.b REV=HEAD`, and `more`."
    monkeypatch.setattr(sys.modules[__name__], "__doc__", said)
    with pytest.raises(SystemExit, match=r"^error: wanted PARAM, got none; for example `make it P"):
        called(main, environment=True)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InputError("a.b: wanted one, got two"), "error: a.b: wanted one, got two"),
        (OSError(errno.ENOSPC, "No space left on device"), "wanted room to write, got none"),
    ],
)
def test_bad_input_and_a_full_disk_end_in_one_line(called, error, said):
    def main() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        called(main)
    assert said in str(ended.value)
    assert "\n" not in str(ended.value)


def test_a_fault_is_not_hidden(called):
    def main() -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        called(main)


@pytest.mark.parametrize(
    ("inside", "experiment", "shallow", "refused"),
    [
        ("exps/tmp", True, True, True),
        ("exps/tmp", True, False, False),
        ("", True, True, False),
        ("exps/tmp", False, True, False),
    ],
)
def test_an_experiment_beside_a_shallow_clone_is_refused(
    tmp_path, monkeypatch, inside, experiment, shallow, refused
):
    """DVC saves experiments in the clone itself, or in one that has all its history."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "exps" / "tmp").mkdir(parents=True)
    if shallow:
        (tmp_path / ".git" / "shallow").touch()
    monkeypatch.chdir(tmp_path / inside)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setenv("DVC_EXP_NAME", "one") if experiment else monkeypatch.delenv(
        "DVC_EXP_NAME", raising=False
    )
    if refused:
        with pytest.raises(
            SystemExit, match=f"got the shallow clone {tmp_path}, in .* run `git fetch --unshallow`"
        ):
            refuse_shallow_clone()
    else:
        refuse_shallow_clone()


def test_to_start_a_program_loads_nothing_but_the_standard_library():
    """`stages/__init__.py` does so before all else."""
    script = (
        "import sys; before = {*sys.modules}; import lib.work.command\n"
        "names = {name.partition('.')[0] for name in {*sys.modules} - before}\n"
        "sys.exit(' '.join(names - {*sys.stdlib_module_names, 'lib'}) or 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={}, check=True)


def test_a_stage_looks_for_garbage_while_it_works_alone(tmp_path):
    """It does not while it imports, and it does not look through what was imported."""
    stages = tmp_path / "stages"
    stages.mkdir()
    shutil.copy(ROOT / "stages" / "__init__.py", stages)
    (stages / "toy.py").write_text(
        "import gc\n"
        "from lib.work.command import run\n"
        "print(gc.isenabled())\n"
        "def main():\n"
        "    frozen, left = gc.get_freeze_count(), len(gc.get_objects())\n"
        "    print(gc.isenabled(), frozen > 5000, left < frozen / 5)\n"
        "run(main)\n"
    )
    command = [sys.executable, "-m", "stages.toy"]
    plain = {"PYTHONPATH": str(ROOT)}
    said = subprocess.check_output(command, cwd=tmp_path, env=plain, text=True)
    assert said.splitlines() == ["False", "True True True"]


def test_an_option_such_as_a_project_is_no_data_set(called, tmp_path):
    """Scratch holds safetensors without digests: `tools.unlock` is run in a project that has
    some.
    """

    def main(project: Path = tmp_path) -> None:
        found.append(project)

    found: list[Path] = []
    save_file({"a": torch.zeros(2)}, tmp_path / "done.safetensors")
    called(main)
    called(main, "--project", str(tmp_path))
    assert found == [tmp_path, tmp_path]
