"""What `make repro` says: a line per stage that runs, the time that is left, and the claims that
turned.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lib.files.files import InputError
from lib.pages.measures import Row, write_measures
from lib.work.compute import available_cores
from lib.work.machines import PACKAGES
from tests.pipeline.project import PYTHON, ROOT, commit, git
from tools import repro
from tools.repro import Clocks, Progress, Took

SAID = """Stage 'a_generate' didn't change, skipping
Running stage 'a_train@x':
> python -m stages.a.train
what it says
Updating lock file 'dvc.lock'

Running stage 'plot':
> python -m stages.a.plot
Stage 'claims' is cached - skipping run, checking out outputs
To track the changes with git, run:
"""
NAMES = ["a_generate", "a_train@x", "claims", "plot"]
# In the place of `python -m dvc`: says what a run says, and ends as it is told.
DVC = """import os, sys, time
assert sys.argv[1:] == ["repro"], sys.argv
for line in open("said"):
    sys.stdout.write(line)
    sys.stdout.flush()
sys.exit(int(os.environ["ENDS"]))
"""


# The Python of DVC is gone by the time DVC has ended.
STAND_IN = """
popen = r.subprocess.Popen
def started(*a, **k):
    found = popen(*a, **k)
    {}
    return found
r.subprocess.Popen = started
"""


def test_each_stage_that_runs_is_a_line_with_the_time_that_those_ahead_took():
    cores = available_cores()
    last = {"a_train@x": Took(65.0 * cores, 1.0), "plot": Took(5.0 * cores, 0.5)}
    progress = Progress(NAMES, last | {"claims": Took(2.4, 1 / cores)})
    told = [
        progress.read(line, Clocks(now, 1.5 * now))
        for now, line in enumerate(SAID.splitlines(), 100)
    ]
    progress.end(Clocks(200.0, 300.0))
    assert [line for line in told if line] == [
        "stage 2 of 4: a_train@x (at most about 1:17 left)",
        "stage 3 of 4: plot (at most about 0:12 left)",
    ]
    busy = round(1.5 / cores, 3)  # a second of a line is 1.5 CPU seconds
    found = {"a_train@x": Took(7.5, busy), "plot": Took(3.0, busy)}
    assert progress.took == found | {"claims": Took(2.4, 1 / cores)}
    assert (progress.seen, progress.n_run) == (["a_generate", "a_train@x", "plot", "claims"], 2)


def test_nothing_is_said_of_the_time_where_a_stage_never_ran():
    progress = Progress(NAMES, {"plot": Took(10.0, 1.0)})
    begun = Clocks(0.0, 0.0)
    assert progress.read("Running stage 'a_train@x':\n", begun) == "stage 1 of 4: a_train@x"
    assert Progress([], {}).read("Running stage 'new':", begun) == "stage 1 of 1: new"


@pytest.fixture
def project(tmp_path) -> Path:
    """A project whose DVC says what it is given."""
    (tmp_path / "dvc").mkdir()
    (tmp_path / "dvc" / "__init__.py").touch()
    (tmp_path / "dvc" / "__main__.py").write_text(DVC)
    (tmp_path / "said").write_text(SAID)
    (tmp_path / "metrics").mkdir()
    claims = {"a": {"holds": True, "value": 1.0, "figure": "a.svg"}}
    (tmp_path / "metrics" / "claims.json").write_text(json.dumps(claims))
    items = {"a.t": {"answer": "reproduced"}, "a.u": {"answer": "no"}}
    (tmp_path / "metrics" / "items.json").write_text(json.dumps(items))
    (tmp_path / "dvc.lock").write_text(
        "stages:\n" + "".join(f"  {name}: {{cmd: a}}\n" for name in NAMES)
    )
    git("init", "--quiet", at=tmp_path)
    commit(tmp_path, "The project")
    return tmp_path


def made(project: Path, ends: int) -> subprocess.CompletedProcess[str]:
    """Runs the program in the project; the check before it needs the real DVC, and is left out."""
    code = (
        "import tools.unlock; tools.unlock.main = lambda: None; import tools.repro; "
        "tools.repro.main()"
    )
    return subprocess.run(
        [PYTHON, "-c", f"import sys; sys.path[0] = {str(ROOT)!r}; {code}"],
        cwd=project,
        env={**os.environ, "ENDS": str(ends)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_ends_with_the_answers_what_turned_and_where_to_look(project):
    turned = {"a": {"holds": False, "value": 2.0, "figure": "a.svg"}}
    (project / "metrics" / "claims.json").write_text(json.dumps(turned))
    done = made(project, 0)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "stage 2 of 4: a_train@x",
        "stage 3 of 4: plot",
        "4 stages are up to date; 2 of them ran.",
        "2 items: 1 reproduced, 1 no",
        "turned: a: holds (1.0) in the last commit, does not hold (2.0) now: a.svg",
        "Open report.html (or: make report); answers are in metrics/items.json, figures in plots/.",
    ]
    kept = json.loads((project / ".dvc" / "tmp" / "stage_times.json").read_text())
    assert {name: sorted(took) for name, took in kept.items()} == {
        "a_train@x": ["busy", "cpu_s"],
        "plot": ["busy", "cpu_s"],
    }


def test_a_run_that_fails_shows_what_was_said_and_ends_as_it_did(project):
    done = made(project, 3)
    assert done.returncode == 3
    assert done.stdout.endswith(SAID)
    assert "up to date" not in done.stdout


def test_packages_that_compute_and_were_upgraded_are_named_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = repro.versions()
    assert set(here) <= set(PACKAGES)
    assert list(repro.upgraded(here)) == []
    Path("requirements.txt").write_text(f"numpy==0.1 \\\n  --hash=a\nscipy=={here['scipy']} \\\n")
    [said] = repro.upgraded(here)
    assert f"others than before: numpy 0.1 → {here['numpy']}; what DVC has stays" in said
    repro.COMPUTED_WITH.parent.mkdir(parents=True)
    repro.COMPUTED_WITH.write_text(json.dumps(here))
    assert list(repro.upgraded(here)) == []
    [said] = repro.upgraded(here | {"torch": "9.9"})
    assert f"torch {here['torch']} → 9.9;" in said


def test_a_build_of_the_pinned_version_is_no_other_package(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("requirements.txt").write_text("torch==2.13.0 \\\n")
    assert list(repro.upgraded({"torch": "2.13.0+cpu"})) == []
    assert list(repro.upgraded({"torch": "2.13.0"})) == []
    [said] = repro.upgraded({"torch": "2.13.1+cpu"})
    assert "torch 2.13.0 → 2.13.1+cpu;" in said


def test_what_a_run_computed_with_is_kept_for_the_next(project):
    (project / "requirements.txt").write_text("numpy==0.1 \\\n    --hash=sha256:a\n")
    assert made(project, 3).stdout.startswith("packages that compute are others than before: numpy")
    assert made(project, 0).stdout.startswith("packages that compute are others than before: numpy")
    assert made(project, 0).stdout.startswith("stage 2 of 4")


def test_an_environment_that_is_gone_after_a_run_is_said_in_one_line(project):
    gone = "sys.executable += '-gone'"
    begin = f"import sys; sys.path[0] = {str(ROOT)!r}; import tools.repro as r\n"
    end = "r.unlock.main = lambda: None; r.main()"
    command = [PYTHON, "-c", begin + STAND_IN.format(gone) + end]
    done = subprocess.run(
        command, cwd=project, env={**os.environ, "ENDS": "3"}, capture_output=True, text=True
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("error: wanted the Python that began this, ")
    assert line.endswith("the next `make repro` sets it up again")


def test_measures_that_were_altered_are_refused_after_a_run_that_dvc_had_nothing_to_say_of(
    project, monkeypatch
):
    monkeypatch.chdir(project)
    folder = project / "metrics" / "toy"
    write_measures([Row("gain", "", "", "0", 1.0)], folder, {})
    assert list(repro.closing())
    file = folder / "measures.csv"
    file.write_text(file.read_text().replace("1.0", "2.0"))
    with pytest.raises(InputError, match=r"toy/measures.csv: wanted the content of its digest"):
        list(repro.closing())
