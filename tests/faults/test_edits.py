"""Code, params or cases that are edited while a stage runs: it records nothing, and no cell has the
wrong key.
"""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.pipeline.project import environment

ROOT = Path(__file__).parents[2]
STAGE = """
import os
import time
from pathlib import Path
os.sched_getaffinity = lambda _: {0}

def reach(place):
    if place == Path("gate").read_text():
        Path("gate").write_text("reached")
        while not Path("open").exists():
            time.sleep(0.01)

reach("before an import")
from lib.number import NUMBER
from dataclasses import dataclass
import pandas as pd
from lib.work.command import OutFolder, run
from lib.files.params import read_cases, read_params
from lib.files.tables import write_table
from lib.work.cells import joined, spread_cells

@dataclass(frozen=True)
class Case:
    name: str
    share: float

def cell(factor, share):
    with Path("calls").open("a") as calls:
        calls.write("cell\\n")
    from lib.late import TERM
    reach("in a cell")
    return {"numbers": pd.DataFrame({"number": [NUMBER * factor * share + TERM]})}

def main(section: str, cases: Path, tables: OutFolder):
    factor = read_params(section, float)
    jobs = {"": [(cell, factor, case.share) for case in read_cases(cases, Case)]}
    cells = spread_cells(jobs, label="toy", unit="cell")[""]
    write_table(joined(cells, "numbers"), tables / "numbers.parquet")
    reach("at the end")

if __name__ == "__main__":
    run(main)
"""
FILES = {
    "lib/number.py": "NUMBER = 1.0\n",
    "lib/late.py": "TERM = 0.0\n",
    "stages/toy.py": STAGE,
    "params.yaml": "factor: 3.0\nunread: 1\n",
    "cases.tsv": "name\tshare\none\t1.0\ntwo\t0.5\n",
    "gate": "",
}


@pytest.fixture
def project(tmp_path) -> Path:
    shutil.copytree(ROOT / "lib", tmp_path / "lib", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "stages").mkdir()
    shutil.copy(ROOT / "stages" / "__init__.py", tmp_path / "stages")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def started(project: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stages.toy", "factor", "cases.tsv", "tables"],
        cwd=project,
        env=environment(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def numbers(project: Path) -> list[float]:
    """What the next run gives."""
    with started(project) as stage:
        said = stage.communicate()[1]
    assert stage.returncode == 0, said
    return pd.read_parquet(project / "tables" / "numbers.parquet")["number"].tolist()


def edited_at(project: Path, place: str, edits: dict[str, str]) -> tuple[int, str]:
    """The exit code of a run that is halted at a place while files are edited, and its last
    line.
    """
    (project / "gate").write_text(place)
    with started(project) as stage:
        while (project / "gate").read_text() != "reached":
            assert stage.poll() is None, stage.communicate()[1]
            time.sleep(0.01)
        for name, text in edits.items():
            (project / name).write_text(text)
        (project / "open").touch()
        said = stage.communicate()[1]
    assert "Traceback" not in said
    return stage.returncode, said.splitlines()[-1]


def n_calls(project: Path) -> int:
    return len((project / "calls").read_text().split())


@pytest.mark.parametrize("place", ["before an import", "in a cell", "at the end"])
def test_code_that_is_edited_while_a_stage_runs_ends_it_and_the_next_run_is_of_the_edit(
    project, place
):
    code, said = edited_at(project, place, {"lib/number.py": "NUMBER = 10.0\n"})
    assert said == "error: lib/number.py changed while this ran: run it again"
    assert code == 1
    assert numbers(project) == [30.0, 15.0]
    (project / "lib" / "number.py").write_text(FILES["lib/number.py"])
    before = n_calls(project)
    assert numbers(project) == [3.0, 1.5]
    finished = place == "at the end"  # those cells of the old code have kept their key
    assert n_calls(project) - before == (0 if finished else 2)


def test_params_and_cases_that_are_edited_after_they_were_read_end_a_stage(project):
    edits = {"params.yaml": "factor: 30.0\nunread: 1\n", "cases.tsv": "name\tshare\none\t10.0\n"}
    code, said = edited_at(project, "at the end", edits)
    assert said == "error: cases.tsv, factor of params.yaml changed while this ran: run it again"
    assert code == 1
    assert numbers(project) == [300.0]


def test_what_a_stage_has_not_read_may_be_edited_and_what_it_has_may_be_saved_again(project):
    (project / "lib" / "other.py").write_text("OTHER = 1\n")
    same = {name: FILES[name] for name in ("lib/number.py", "cases.tsv")}
    edits = {"params.yaml": "factor: 3.0\nunread: 2\n", "lib/other.py": "OTHER = 2\n", **same}
    code, said = edited_at(project, "at the end", edits)
    assert code == 0, said


# An edit, the numbers that the next run gives, and how many cells it computes for them.
EDITS = [
    ("lib/number.py", "NUMBER = 10.0\n", [30.0, 15.0], 2),
    ("lib/late.py", "TERM = 1.0\n", [4.0, 2.5], 2),
    ("cases.tsv", "name\tshare\none\t1.0\ntwo\t0.25\n", [3.0, 0.75], 1),
    ("params.yaml", "factor: 30.0\n", [30.0, 15.0], 2),
    ("lib/elsewhere.py", "ELSE = 1\n", [3.0, 1.5], 0),
    ("lib/work/more.py", "MORE = 1\n", [3.0, 1.5], 0),
]


def test_what_was_edited_is_computed_again_and_nothing_else(project):
    """What a cell imports late counts, too; of a table of cases only changed lines run again."""
    assert numbers(project) == [3.0, 1.5]
    for name, text, wanted, calls in EDITS:
        before = n_calls(project)
        (project / name).write_text(text)
        assert numbers(project) == wanted, name
        assert n_calls(project) - before == calls, name
        (project / name).write_text(FILES.get(name, ""))
