"""Ranks that train together: where one of them, or what launched them, is killed, all end, and any
number of ranks goes on to the same bytes.
"""

import json
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.faults.harness import alive, until
from tests.pipeline.project import PYTHON, ROOT, contents, environment
from tests.vision.train_made import IMAGE_SHAPE, N_CLASSES, ONE, SECTION, TABLE
from tests.vision.vit_made import make_images

pytestmark = pytest.mark.slow

PARAMS = ONE | {"n_seeds": 2, "batch_size": 8, "parts": 4, "n_steps": 120, "snapshot_every": 40}
HASTY = str(Path(__file__).parent / "hasty")  # checkpoints come after a quarter of a second
GIVEN = [f"--section={SECTION}", "--controls=controls.tsv", "--images=images", "--runs=runs"]
COMMAND = [PYTHON, "-m", "stages.vision.train", *GIVEN]
CHECKPOINT = ".dvc/tmp/scratch/vision/*/checkpoint-*.safetensors"


def prepare(folder: Path, **changes) -> Path:
    """A folder with all that the stage reads."""
    folder.mkdir()
    make_images(folder / "images", 13, 9, N_CLASSES, IMAGE_SHAPE)
    (folder / "controls.tsv").write_text(TABLE)
    params = {"vision": {"any": {"train": PARAMS | changes}}}
    (folder / "params.yaml").write_text(json.dumps(params))
    return folder


def start(folder: Path, n_ranks: int) -> psutil.Popen:
    """The stage, and what it says in the file `said`."""
    path = os.pathsep.join([HASTY, str(ROOT)])
    variables = environment(folder, PYTHONPATH=path, LAB_RANKS=str(n_ranks))
    with (folder / "said").open("w") as said:
        return psutil.Popen(COMMAND, cwd=folder, env=variables, stdout=said, stderr=said)


def said(folder: Path) -> str:
    return (folder / "said").read_text()


def train(folder: Path, n_ranks: int) -> dict[str, bytes]:
    """Run the stage to its end; the files that it made."""
    assert start(folder, n_ranks).wait() == 0, said(folder)
    return contents(folder, ["runs"])


def processes(folder: Path) -> list[psutil.Process]:
    """All processes that are alive and work there, by their number."""
    found = psutil.process_iter(["pid", "cwd"])
    return [one for one in found if one.info["cwd"] == str(folder) and alive(one.pid)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, bytes]:
    """What one process makes in one go."""
    return train(prepare(tmp_path_factory.mktemp("alone") / "project"), 1)


@pytest.mark.parametrize("n_ranks", [2, 4])
def test_ranks_make_the_bytes_of_one_process(alone, tmp_path, n_ranks):
    project = prepare(tmp_path / "project")
    assert train(project, n_ranks) == alone
    assert said(project).count("2 trainings of 120 steps") == 1


@pytest.mark.parametrize(("victim", "then"), [("rank 0", 4), ("rank 1", 1), ("the launcher", 4)])
def test_where_one_is_killed_all_end_and_another_number_of_ranks_goes_on(
    alone, tmp_path, victim, then
):
    project = prepare(tmp_path / "project")
    launcher = start(project, 2)
    assert until(lambda: list(project.glob(CHECKPOINT)) or launcher.poll(), 120)
    ranks = {rank(process): process for process in launcher.children()}
    assert sorted(ranks) == ["rank 0", "rank 1"], said(project)
    killed = ranks.get(victim, launcher)
    killed.kill()
    assert launcher.wait(60) != 0
    assert until(lambda: not processes(project), 10), processes(project)
    if killed is not launcher:
        assert f"{victim} was ended by SIGKILL" in said(project)
        assert "Traceback" not in said(project)
    assert not (project / "runs").exists()
    assert train(project, then) == alone
    assert len(re.findall("resumed at step [1-9]", said(project))) == 1


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM, and 2 ranks with it")],
)
def test_a_launcher_that_is_told_to_end_ends_its_ranks_and_says_so(tmp_path, number, words):
    project = prepare(tmp_path / "project", n_steps=100_000)
    launcher = start(project, 2)
    assert until(lambda: list(project.glob(CHECKPOINT)) or launcher.poll(), 120)
    launcher.send_signal(number)
    assert launcher.wait(60) != 0
    assert until(lambda: not processes(project), 10), processes(project)
    assert words in said(project)
    assert "Traceback" not in said(project)


def rank(process: psutil.Process) -> str:
    return f"rank {process.environ()['RANK']}"


def test_a_number_of_ranks_that_does_not_divide_the_parts_is_refused_before_the_work(tmp_path):
    project = prepare(tmp_path / "project")
    assert start(project, 3).wait() == 1
    assert said(project) == "error: LAB_RANKS: wanted a divisor of the param parts, 4, got 3\n"
    assert not (project / ".dvc").exists()


def test_ranks_that_cannot_train_say_why_once(tmp_path):
    project = prepare(tmp_path / "project", batch_size=16)
    assert start(project, 2).wait() == 1
    assert said(project).count("error: batch_size: wanted at most 13 images, got 16\n") == 1
    other = "(, rank 1 ended with 1)?"  # which may have ended by itself before it is ended
    wanted = f"error: rank 0 ended with 1{other}: all 2 ranks have ended"
    assert re.search(wanted, said(project))
