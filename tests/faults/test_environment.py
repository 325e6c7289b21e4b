"""What make has installed is whole before a command runs: a set-up that was broken off, moved,
copied or changed by hand is mended, or refused in one line.

The set-up here is a tiny one, of packages that are made here, and needs no network.
"""

import ensurepip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.pipeline.project import ROOT
from tools import environment

PYTHON = str(getattr(sys, "_base_executable", sys.executable))
SAYS = "import sys\n\ndef main():\n    print(sys.prefix, '{version}')\n"
PLOTS = "import pathlib, sys\npathlib.Path(sys.argv[1]).write_text('plots')\n"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
COMMAND = """
says: .venv/installed
	$(ACTIVATE) && law

says-more: .venv/docs
	$(ACTIVATE) && more

draws: .venv-report/report
	.venv-report/bin/drawn
"""


def wheel(folder: Path, name: str, version: str) -> str:
    """Make the wheel of a package whose program says where it runs; its line of requirements."""
    file = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    contents = {
        f"{name}.py": SAYS.format(version=version),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    record = "".join(f"{path},,\n" for path in contents) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(file, "w") as opened:
        for path, text in {**contents, f"{info}/RECORD": record}.items():
            opened.writestr(zipfile.ZipInfo(path), text)  # of one time, so that its bytes are
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def fill(folder: Path) -> Path:
    """A project with the Makefile and its set-up, and nothing installed."""
    (folder / "wheels").mkdir(parents=True)
    (folder / "tools").mkdir()
    (folder / "dvc").mkdir()
    (folder / "dvc" / "__main__.py").touch()  # which is told where the page of plots is
    (folder / "Makefile").write_text(MAKEFILE + COMMAND)
    shutil.copy(ROOT / "tools" / "environment.py", folder / "tools")
    (folder / "tools" / "plots.py").write_text(PLOTS)
    (folder / "tools" / "plots.html").touch()
    (folder / "requirements.txt").write_text(wheel(folder / "wheels", "law", "1.0"))
    wheel(folder / "wheels", "law", "2.0")
    (folder / "requirements.docs.txt").write_text(wheel(folder / "wheels", "more", "1.0"))
    (folder / "requirements.report.txt").write_text(wheel(folder / "wheels", "drawn", "1.0"))
    (folder / "requirements.cuda.txt").touch()
    (folder / "requirements.uv.txt").touch()
    pip = f"pip=={ensurepip.version()} --hash=sha256:{64 * '0'}\n"  # it is there already
    (folder / "requirements.pip.txt").write_text(pip)
    return folder


def environ(folder: Path) -> dict[str, str]:
    """An environment without an index, and with nothing of the one in which the tests run."""
    return {
        "PATH": os.pathsep.join([str(Path(PYTHON).parent), os.defpath]),
        "HOME": str(folder),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": (folder / "wheels").as_uri(),
    }


def make(folder: Path, target: str = "says", **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={PYTHON}", target],
        cwd=folder,
        env=environ(folder) | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def works(folder: Path, version: str = "1.0") -> list[str]:
    """Whether a command runs in this folder's own environment; what set-up said before."""
    done = make(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    *said, last = [line for line in done.stdout.splitlines() if not line.startswith(". .venv")]
    assert last == f"{folder}/.venv {version}"
    return said


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A project that is set up; copy it."""
    folder = fill(tmp_path_factory.mktemp("environment") / "whole")
    assert works(folder) == ["setting up .venv: none is here yet"]
    return folder


@pytest.fixture
def project(whole, tmp_path):
    """A project that is set up, in its own place."""
    folder = tmp_path / "project"
    shutil.copytree(whole, folder, symlinks=True)
    works(folder)
    return folder


def test_what_is_whole_is_let_through_at_once_and_nothing_is_said(whole):
    begin = time.monotonic()
    command = [".venv/bin/python", "-I", "tools/environment.py"]
    done = subprocess.run(command, cwd=whole, capture_output=True, text=True, check=True)
    assert time.monotonic() - begin < 1
    assert done.stdout + done.stderr == ""
    assert works(whole) == []


def test_a_copied_folder_runs_what_is_installed_in_it_and_a_moved_one_too(whole, tmp_path):
    copied = tmp_path / "co pied"
    shutil.copytree(whole, copied, symlinks=True)
    assert works(copied) == [f"setting up .venv: it was made in {whole}/.venv"]
    moved = tmp_path / "moved"
    copied.rename(moved)
    assert works(moved) == [f"setting up .venv: it was made in {copied}/.venv"]
    assert works(moved) == works(whole) == []


def test_a_link_to_an_environment_of_another_folder_is_used_as_it_is(whole, tmp_path):
    folder = fill(tmp_path / "linked")
    (folder / ".venv").symlink_to(whole / ".venv")
    (folder / ".dvc" / "tmp").mkdir(parents=True)
    (folder / ".dvc" / "tmp" / "plots.html").touch()
    done = make(folder)
    assert done.stdout.splitlines()[-1] == f"{whole}/.venv 1.0", done.stdout + done.stderr


def test_a_package_that_was_changed_by_hand_is_brought_back(project):
    pip = [".venv/bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "law==2.0"], cwd=project, env=environ(project), check=True)
    assert works(project) == ["setting up .venv: law: wanted 1.0, got 2.0"]
    uninstall = [".venv/bin/python", "-m", "pip", "uninstall", "--quiet", "--yes", "law"]
    subprocess.run(uninstall, cwd=project, env=environ(project), check=True)
    assert works(project) == ["setting up .venv: law: wanted 1.0, got none"]


def test_other_requirements_are_installed_even_where_no_time_tells_that_they_changed(project):
    file = project / "requirements.txt"
    before = file.stat()
    file.write_text(wheel(project / "wheels", "law", "2.0"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    [said] = works(project, "2.0")
    assert said.endswith("changed")


@pytest.mark.parametrize(
    "broken",
    ["python", "pyvenv.cfg", "pip", "record", "mark", "scripts", "all"],
)
def test_a_part_of_an_environment_is_made_whole(broken, project):
    venv = project / ".venv"
    [packages] = venv.glob("lib/python*/site-packages")
    if broken == "python":
        (venv / "bin" / "python").unlink()
        (venv / "bin" / "python").symlink_to("/nowhere/python3")
    elif broken == "pyvenv.cfg":
        (venv / "pyvenv.cfg").unlink()
    elif broken == "pip":  # as after Ctrl-C in the first seconds
        (venv / "installed").unlink()
        shutil.rmtree(packages / "pip")
        [info] = packages.glob("pip-*.dist-info")
        shutil.rmtree(info)
    elif broken == "record":  # as pip leaves a package when it is killed
        (venv / "installed").unlink()
        (packages / "law-1.0.dist-info" / "RECORD").unlink()
        (packages / "law.py").unlink()
    elif broken == "mark":
        (venv / "installed").write_text("{")
    elif broken == "scripts":
        (venv / "installed").unlink()
        shutil.rmtree(venv / "bin")
    else:
        shutil.rmtree(venv)
    assert works(project)
    assert works(project) == []


def test_what_set_up_cannot_mend_is_said_in_one_line(project):
    [packages] = (project / ".venv").glob("lib/python*/site-packages")
    shutil.copytree(packages / "law-1.0.dist-info", packages / "law-3.0.dist-info")
    done = make(project)
    assert done.returncode != 0
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    wanted = "error: law: wanted 1.0, got 1.0 and 3.0, also after set-up: remove .venv and run make"
    assert [line[: len(wanted)] for line in errors] == [wanted]


def test_an_environment_that_somebody_made_before_is_kept(tmp_path):
    folder = fill(tmp_path / "project")
    subprocess.run([PYTHON, "-m", "venv", ".venv"], cwd=folder, check=True)
    [packages] = (folder / ".venv").glob("lib/python*/site-packages")
    (packages / "own.py").touch()
    assert works(folder) == ["setting up .venv: installed was not finished here"]
    assert (packages / "own.py").exists()


def test_an_extra_has_a_mark_of_its_own(project):
    done = make(project, "says-more")
    assert done.returncode == 0, done.stderr
    assert "docs was not finished here" in done.stdout
    assert "setting up" not in make(project, "says-more").stdout
    assert json.loads((project / ".venv" / "docs").read_text())["packages"] == {"more": "1.0"}


def test_what_draws_the_report_is_set_up_apart_and_alone(project, tmp_path):
    fresh = fill(tmp_path / "fresh")
    for folder in (fresh, project):
        before = (project / ".venv" / "installed").read_bytes()
        done = make(folder, "draws")
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout.splitlines()
        assert said[0] == "setting up .venv-report: none is here yet"
        assert said[-1] == f"{folder}/.venv-report 1.0"
        assert "setting up" not in make(folder, "draws").stdout
        mark = json.loads((folder / ".venv-report" / "report").read_text())
        assert mark["packages"] == {"drawn": "1.0"}
        assert (project / ".venv" / "installed").read_bytes() == before
    assert not (fresh / ".venv").exists()
    assert works(project) == []


def test_a_set_up_of_the_report_that_broke_is_mended(tmp_path):
    folder = fill(tmp_path / "project")
    make(folder, "draws")
    [program] = (folder / ".venv-report").glob("lib/*/site-packages/drawn-1.0.dist-info")
    shutil.rmtree(program)
    assert "setting up .venv-report: drawn: wanted 1.0, got none" in make(folder, "draws").stdout


def test_a_package_whose_digest_is_another_is_refused(project):
    file = project / "requirements.docs.txt"
    file.write_text(file.read_text()[:-9] + "00000000\n")
    done = make(project, "says-more")
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert "error: .venv: wanted .venv/bin/python -m pip install" in done.stderr
    assert works(project) == []


def test_braces_in_the_path_are_refused_in_one_line(tmp_path):
    folder = fill(tmp_path / "a{b}")
    done = make(folder)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert len(errors) == 1
    assert "wanted a folder without braces in its path" in errors[0]
    assert not (folder / ".venv").exists()


def test_a_python_that_is_too_old_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(environment, "OLDEST", (3, 99))
    with pytest.raises(environment.SetUpError, match=r"wanted Python 3.99 to .*, got 3\.\d+ \("):
        environment.make_venv()


@pytest.mark.slow
@pytest.mark.timeout(1200)  # ten set-ups, each done twice
@pytest.mark.parametrize("with_signal", [signal.SIGINT, signal.SIGKILL])
def test_a_first_make_that_is_broken_off_at_any_moment_goes_on(with_signal, tmp_path):
    begin = time.monotonic()
    works(fill(tmp_path / "undisturbed"))
    whole = time.monotonic() - begin
    for i in range(10):
        folder = fill(tmp_path / f"project-{i}")
        with subprocess.Popen(
            ["make", f"PYTHON={PYTHON}", "says"],
            cwd=folder,
            env=environ(folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as first:
            time.sleep(whole * (i + 0.5) / 10)
            try:
                os.killpg(first.pid, with_signal)
            except ProcessLookupError:
                continue
        works(folder)
        assert works(folder) == []


@pytest.mark.parametrize(("said", "asked"), [("cpu", True), ("", False), ("cuda", False)])
def test_torch_for_a_cpu_is_asked_of_the_installer_that_knows_where_it_is(said, asked, monkeypatch):
    """pip's index has no such build for Linux; the version is that of requirements.txt."""
    ran = []
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TORCH", said)
    for name in ("make_venv", "torch_of_a_folder"):
        monkeypatch.setattr(environment, name, lambda: None)
    monkeypatch.setattr(environment, "run", lambda *command: ran.append(command))
    monkeypatch.setattr(environment, "installed", dict)
    monkeypatch.setattr(environment, "version_of_venv", environment.version)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: None)
    monkeypatch.setattr(os, "replace", lambda *_: None)
    environment.mend("installed")
    [number] = [number for name, number in environment.pins("requirements.txt") if name == "torch"]
    uv = [command for command in ran if command[0].endswith("uv")]
    assert [command[-3:] for command in uv] == [
        ("--torch-backend", "cpu", f"torch=={number}")
    ] * asked
    assert any(environment.UV in command for command in ran) is asked
