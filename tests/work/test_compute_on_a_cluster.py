"""On what terms a machine of a cluster works for this one, without any cluster:
test_compute_by_ray.py has one.
"""

import dataclasses
import pickle
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from lib.files.files import InputError
from lib.files.params import load_yaml
from lib.work import progress, ray_workers
from lib.work.machines import machine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def terms(tmp_path, monkeypatch):
    """The terms of a work in a folder of its own, and this process as a worker that has the code
    from it.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(
        ray_workers.lib, "__path__", ["/ray/session/runtime_resources/working_dir_files/x/lib"]
    )
    with ray_workers._terms(1) as terms:
        yield terms


def left_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_work_leaves_nothing_in_the_shared_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "root"))
    with pytest.raises(ZeroDivisionError), ray_workers._terms(1) as terms:
        assert {mark.parent for mark in terms.marks} == {
            tmp_path / ".dvc" / "tmp",
            tmp_path / "root" / ".dvc" / "tmp" / "scratch",
        }
        assert sorted(terms.marks) == left_in(tmp_path)
        raise ZeroDivisionError
    assert left_in(tmp_path) == []


def test_a_machine_that_fits_works_in_the_folder_of_this_one(terms, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ray_workers.accept(terms)
    assert Path.cwd() == tmp_path


@pytest.mark.parametrize("which", [0, 1])
def test_a_machine_with_another_folder_is_refused(terms, which, tmp_path):
    marks = list(terms.marks)
    marks[which] = tmp_path / "of_this_machine" / "mark"
    wanted = f"wanted a file system that all machines share at {tmp_path / 'of_this_machine'}, got"
    with pytest.raises(InputError, match=wanted):
        ray_workers.accept(dataclasses.replace(terms, marks=tuple(marks)))


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
    terms, point, other, capfd, monkeypatch
):
    there = dataclasses.replace(terms, machine={**terms.machine, point: other})
    wanted = re.escape(str({point: other}))
    found = re.escape(str({point: machine()[point]}))
    said = f"wanted {wanted}, .*, got {found}"
    for allowed in ("", "0"):
        monkeypatch.setenv("LAB_MIXED_CPUS", allowed)
        with pytest.raises(InputError, match=f"{said}; LAB_MIXED_CPUS=1 allows it"):
            ray_workers.accept(there)
    monkeypatch.setenv("LAB_MIXED_CPUS", "1")
    ray_workers.accept(there)
    assert re.search(said, capfd.readouterr().err)


def test_what_a_job_advances_comes_with_its_result(terms):
    job = pickle.dumps((progress.advance, (5,)))
    assert pickle.loads(ray_workers._work(terms, job)) == (None, 5)


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
