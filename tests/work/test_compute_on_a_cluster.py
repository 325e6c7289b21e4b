"""On what terms a machine of a cluster works for this one, without any cluster:
test_compute_by_ray.py has one.
"""

import dataclasses
import os
import pickle
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from lib.files.files import InputError
from lib.files.params import load_yaml
from lib.work import progress, ray_workers
from lib.work.errors import StoppedError
from lib.work.machines import machine
from lib.work.ray_workers import differences

ROOT = Path(__file__).parents[2]


@pytest.fixture
def terms(tmp_path, monkeypatch):
    """The terms of a work in a folder of its own, and this process as a worker that has the code
    from it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setenv("LAB_WORKERS", "ray:auto")
    monkeypatch.setattr(
        ray_workers.lib, "__path__", ["/ray/session/runtime_resources/working_dir_files/x/lib"]
    )
    with ray_workers._terms(1) as terms:
        yield terms


def left_in(folder):
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_a_work_leaves_nothing_in_the_shared_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    with pytest.raises(ZeroDivisionError), ray_workers._terms(1) as terms:
        marks = [f".dvc/tmp/{terms.token}.mark", f"root/.dvc/tmp/scratch/ray/{terms.token}/mark"]
        assert left_in(tmp_path) == marks
        assert terms.shared.is_absolute()
        raise ZeroDivisionError
    assert left_in(tmp_path) == []


def test_a_machine_that_fits_works_in_the_folder_of_this_one_and_spreads_nothing_itself(
    terms, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("DVC_ROOT", "another")
    monkeypatch.setenv("DVC_EXP_NAME", "another")
    ray_workers.accept(terms)
    assert Path.cwd() == tmp_path
    assert os.environ["DVC_ROOT"] == str(tmp_path)
    assert {"DVC_EXP_NAME", "LAB_WORKERS"} & set(os.environ) == set()


@pytest.mark.parametrize("which", ["home", "shared"])
@pytest.mark.parametrize("there", ["nothing", "another"])
def test_a_machine_with_another_folder_is_refused(terms, which, there):
    marks = {
        "home": terms.home / ".dvc" / "tmp" / f"{terms.token}.mark",
        "shared": terms.shared / "mark",
    }
    if there == "nothing":
        marks[which].unlink()
    else:
        marks[which].write_text("another")
    folder = terms.home if which == "home" else terms.shared.parent
    with pytest.raises(
        InputError,
        match=f"wanted a file system that all machines share at {folder}, got one without",
    ):
        ray_workers.accept(terms)


def test_a_machine_with_code_of_its_own_is_refused(terms, monkeypatch):
    monkeypatch.setattr(ray_workers.lib, "__path__", ["/home/someone/project/lib"])
    with pytest.raises(
        InputError, match=r"wanted the code that was shipped, .*, got /home/someone/project/lib"
    ):
        ray_workers.accept(terms)


@pytest.mark.parametrize(
    ("point", "other"), [("CPU", "x86_64 Another"), ("vector instructions", "NONE"), ("torch", "1")]
)
def test_a_machine_that_gives_other_bits_is_refused_unless_that_is_allowed(
    terms, point, other, capfd
):
    there = dataclasses.replace(terms, machine={**terms.machine, point: other})
    said = f"{point} {machine()[point]}, not {other}"
    with pytest.raises(InputError) as refused:
        ray_workers.accept(there)
    assert str(refused.value).endswith(
        f"wanted a machine that gives the same bits (or LAB_MIXED_CPUS=1), got {said}"
    )
    ray_workers.accept(dataclasses.replace(there, mixed=True))
    assert said in capfd.readouterr().err


def test_machines_differ_in_what_either_lacks():
    assert differences({"CPU": "a", "torch": "2"}, {"CPU": "a", "torch": "2", "more": "x"}) == ""
    assert (
        differences({"CPU": "a", "torch": "2"}, {"CPU": "b"}) == "CPU b, not a; torch None, not 2"
    )


@pytest.mark.parametrize(
    ("allowed", "mixed"), [(None, False), ("", False), ("0", False), ("1", True)]
)
def test_other_machines_are_allowed_by_the_environment(allowed, mixed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if allowed is not None:
        monkeypatch.setenv("LAB_MIXED_CPUS", allowed)
    with ray_workers._terms(1) as terms:
        assert terms.mixed is mixed


def test_little_travels_in_messages_and_much_in_the_shared_folder(terms):
    little, much = pickle.dumps(b"little"), pickle.dumps(bytes(ray_workers.LARGE))
    assert ray_workers._parcel(terms, "a", little) == little
    parcel = ray_workers._parcel(terms, "b", much)
    assert parcel == terms.shared / "b"
    assert ray_workers._opened(parcel) == bytes(ray_workers.LARGE)
    assert not parcel.exists()


def result_of(terms, function, *arguments):
    return ray_workers._opened(ray_workers._work(terms, 0, pickle.dumps((function, arguments))))


def test_an_error_travels_whole_with_the_traceback_of_the_worker(terms):
    assert result_of(terms, divmod, 7, 2) == ((3, 1), None, 0)
    _, error, _ = result_of(terms, os.stat, "/not/there")
    assert isinstance(error, FileNotFoundError)
    assert error.filename == "/not/there"
    assert "FileNotFoundError: [Errno 2]" in error.__notes__[0]
    assert "/not/there" in str(error)
    assert "Traceback" not in str(error)


class OddError(Exception):
    """One that cannot be made from its own arguments."""

    def __init__(self, a, b):
        super().__init__(a + b)


def test_an_error_that_cannot_travel_is_told_in_words():
    carried = ray_workers._carried(OddError("how ", "odd"))
    assert isinstance(carried, RuntimeError)
    assert "how odd" in str(carried)


def test_what_a_job_has_advanced_is_read_while_it_runs(terms, monkeypatch):
    monkeypatch.setattr(ray_workers, "EVERY", 0.0)
    assert ray_workers._said(terms, 4) == 0
    with ray_workers._reporting(terms, 4) as report:
        progress.advance(2)
        progress.advance(3)
        assert ray_workers._said(terms, 4) == report.n == 5


def test_a_job_that_loses_its_worker_in_every_try_ends_the_work(capfd, monkeypatch):
    class RuntimeEnvSetupError(Exception):
        pass

    monkeypatch.setattr(
        ray_workers, "_no_use", lambda error: isinstance(error, RuntimeEnvSetupError)
    )
    for tried in range(1, ray_workers.TRIES):
        ray_workers._lost(OSError("gone\nmore"), 7, tried, "toy")
    assert (
        capfd.readouterr().err.splitlines()
        == ["toy: job 7 lost its worker, and is tried again: OSError: gone"] * 3
    )
    with pytest.raises(
        StoppedError,
        match="toy: job 7: its worker was lost 4 times, the last time by OSError: gone; mem",
    ):
        ray_workers._lost(OSError("gone"), 7, ray_workers.TRIES, "toy")
    with pytest.raises(
        StoppedError,
        match="toy: job 7: its worker was lost, the last time by RuntimeEnvSetupError: no",
    ):
        ray_workers._lost(RuntimeEnvSetupError(), 7, 1, "toy")


def test_the_script_for_slurm_parses_and_starts_the_pipeline_by_ray():
    file = ROOT / "docs" / "clusters" / "slurm.sh"
    subprocess.run(["bash", "-n", file], check=True)
    script = file.read_text(encoding="utf-8").replace("\\\n", " ")
    assert re.search(r"ray symmetric-run --address .*:6379. .*-- dvc repro", script)
    assert "export LAB_WORKERS=ray:auto" in script


def test_the_file_for_kubernetes_names_the_ray_that_is_installed():
    made = load_yaml(ROOT / "docs" / "clusters" / "kuberay.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["ray"] == [f"ray=={made['spec']['rayVersion']}"]
    groups = (made["spec"]["headGroupSpec"], *made["spec"]["workerGroupSpecs"])
    for group in groups:
        [container] = group["template"]["spec"]["containers"]
        assert container["volumeMounts"] == [{"name": "project", "mountPath": "/project"}]
