"""`make gpu`: what it checks, what it would train, how it ends in time, and a rehearsal of all of it on the CPU."""

import json
import subprocess
import tarfile
import time
from types import SimpleNamespace

import pandas as pd
import pytest
import torch

from lib.io.base.files import InputError
from tools import gpu

TRAIN = {
    "init_scales": [0.25, 0.5, 1],
    "controls": ["permuted_labels"],
    "n_seeds": 1,
    "device": "cuda",
    "precision": "float32",
    "compile": False,
    "max_hours": 1,
    "model": {"patch_size": 4, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 8, "n_layers": 1},
    "augmentation": "crop_flip",
    "batch_size": 32,
    "n_steps": 7,
    "warmup_steps": 5,
    "learning_rate": 0.001,
    "snapshot_every": 10,
}
TINY = {
    "data": {"source": "digits", "n_test": 1600, "seed": 0},
    "train": TRAIN,
    "cut": {"init_scales": [0.5, 1]},
}
SHARED = {
    "cut": {"rate_step": 0.5, "random_seed": 0},
    "evaluate": {"reference_scale": 0.5, "rtol": 1e-3},
    "plot": {"layer": 1, "head": 1, "lines": 4, "trained_loss": 0.1},
}
TWO_SCALES = TINY | {"train": TRAIN | {"init_scales": [0.5, 1]}}


@pytest.fixture
def params(tmp_path):
    """A params file with a tiny data set for a GPU, beside other sections."""
    file = tmp_path / "params.yaml"
    file.write_text(json.dumps({"vision": {"datasets": ["tiny"], "cases": {"a": "b"}, "tiny": TWO_SCALES, **SHARED}}))
    return file


@pytest.fixture
def work(tmp_path):
    return gpu.Work(tmp_path, gpu.Clock(10), SHARED)


@pytest.mark.parametrize(("images_per_second", "epochs"), [(1e9, 500), (50_000, 500), (40_000, 300), (90, 1), (9, 1)])
def test_the_most_epochs_are_chosen_that_the_time_allows(images_per_second, epochs):
    """Two trainings of 50,000 images in 1000 seconds."""
    assert gpu.affordable(1000, 2, 50_000, images_per_second) == epochs


def test_the_choice_of_epochs_counts_every_seed_null_and_scale_and_is_kept_for_the_next_call(tmp_path, work):
    section = TINY | {"train": TRAIN | {"n_seeds": 2, "init_scales": [0.5, 1, 0.25]}}
    speed = {"images_per_second": {"compiled": 4000.0, "not compiled": 1.0, "plain loop": 1e9}}
    seconds = 0.6 * 600  # of ten minutes
    wanted = max(epochs for epochs in gpu.EPOCHS if epochs <= seconds * 4000 / (3 * 4 * 3000))
    assert work.epochs(0, section, 3000, speed) == wanted == 30
    later = gpu.Work(tmp_path, gpu.Clock(1), SHARED)
    assert later.epochs(0, section, 3000, speed) == wanted
    assert later.epochs(7, section, 3000, speed) == 7
    assert later.epochs(0, section, 3000, speed) == 7


def test_the_reference_scale_comes_first_then_smaller_and_smaller_ones(work, monkeypatch):
    monkeypatch.setattr(work, "images", lambda step: {"one": 100, "other": 64}[step.dataset])
    found = list(gpu.steps({"one": TINY, "other": TWO_SCALES}, 40, work))
    scales = [(step.dataset, step.section["train"]["init_scales"]) for step in found]
    first = [("one", [0.5]), ("one", [0.5, 1]), ("one", [0.5, 1, 0.25])]
    assert scales == [*first, ("other", [0.5]), ("other", [0.5, 1])]
    for step in found:
        train = step.section["train"]
        assert train["n_steps"] == {"one": 40 * 3, "other": 40 * 2}[step.dataset]
        assert train["warmup_steps"] == 5
        assert train["snapshot_every"] == train["n_steps"] // 20
        unchanged = set(TRAIN) - {"init_scales", "n_steps", "snapshot_every"}
        assert {key: train[key] for key in unchanged} == {key: TRAIN[key] for key in unchanged}
    assert gpu.shaped(TINY, [1], 1, 100)["train"]["warmup_steps"] == 0  # a tenth of three steps
    assert TINY["train"]["n_steps"] == 7


def test_a_section_is_taken_for_the_device_and_the_folder_of_official_files(params, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = gpu.given(params, "tiny", "cpu", "cifar")
    assert section["data"] == TINY["data"] | {"source_folder": str(tmp_path / "cifar")}
    assert section["train"] == TWO_SCALES["train"] | {"device": "cpu"}
    assert section["cut"] == TINY["cut"]
    assert gpu.shared(params) == SHARED
    assert gpu.given(params, "tiny", "cuda", "") == TWO_SCALES
    with pytest.raises(InputError, match=r"DATASETS: wanted some of \['tiny'\], .*params.yaml, got 'cases'"):
        gpu.given(params, "cases", "cpu", "")


def test_missing_packages_are_named_before_any_work(params, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PACKAGES", {"torch": "torch", "absent.part": "absent", "missing_too": "missing-too"})
    with pytest.raises(InputError, match="none of: absent missing-too"):
        gpu.main(1, tmp_path / "gpu", params, "tiny")
    assert not (tmp_path / "gpu").exists()


def test_a_machine_without_a_gpu_is_refused_before_any_work(params, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=r"device: wanted cuda, got .* sees no GPU"):
        gpu.main(1, tmp_path / "gpu", params, "tiny")
    assert not (tmp_path / "gpu").exists()


def test_a_device_that_multiplies_wrongly_is_refused(monkeypatch):
    product = torch.Tensor.__matmul__
    gpu.check_device("cpu")
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda A, B: product(A, B) + (A.dtype == torch.bfloat16) * 100)
    with pytest.raises(InputError, match="cpu: wanted a product of matrices in bfloat16 right to 1, got an error of"):
        gpu.check_device("cpu")


def test_a_module_that_runs_when_the_minutes_are_over_is_ended(tmp_path):
    (tmp_path / "endless.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    work = gpu.Work(tmp_path, gpu.Clock(1 / 60), SHARED)
    begin = time.monotonic()
    with pytest.raises(gpu.OutOfTimeError):
        work._run(gpu.Step("tiny", TINY), ["endless"])
    assert time.monotonic() - begin < 60
    assert work.clock.left == 0
    assert 1 <= json.loads((tmp_path / "seconds.json").read_text())["tiny"] < 60
    with pytest.raises(gpu.OutOfTimeError):  # and nothing is begun after that
        work._run(gpu.Step("tiny", TINY), ["absent"])


def test_a_stage_that_fails_is_named(work):
    with pytest.raises(InputError, match="absent: wanted a stage that ends well, got the exit code 1"):
        work._run(gpu.Step("tiny", TINY), ["absent"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_rehearsal_measures_trains_publishes_and_goes_on_where_it_stopped(params, tmp_path, monkeypatch, capfd):
    folder, run, ran = tmp_path / "gpu", subprocess.run, []

    def watched(command, **options):
        if command[:2] != ["git", "rev-parse"] and "-m" in command:
            ran.append(command[command.index("-m") + 1])
            if stop.at == ran[-1]:
                raise subprocess.TimeoutExpired(command, 0)
        return run(command, **options)

    def call():
        ran.clear()
        gpu.main(30, folder, params, "tiny", epochs=4, device="cpu")
        return capfd.readouterr().out

    stop = SimpleNamespace(at="stages.vision.cut")
    monkeypatch.setattr(gpu.subprocess, "run", watched)
    monkeypatch.setattr(gpu, "LONGEST_MEASUREMENT", 0.2)
    assert "30 minutes are over; the same command goes on where it stopped" in call()
    assert "benchmarks.gpu" in ran
    assert names(folder) == {"speed.json"}
    speed = json.loads((folder / "speed.json").read_text())
    rates = speed["images_per_second"]
    assert rates.keys() == {"not compiled", "plain loop"}
    assert speed["over_plain_loop"] == pytest.approx(rates["not compiled"] / rates["plain loop"], rel=1e-4)
    share = rates["plain loop"] * speed["training_flops_per_image"] / speed["matmul_flops_per_second"]
    assert speed["share_of_matmul_rate"]["plain loop"] == pytest.approx(share, rel=1e-4)

    stop.at = None
    assert "all is done" in call()
    assert "benchmarks.gpu" not in ran
    assert ran.count("stages.vision.train") == 2  # the first finds what was trained
    files = names(folder)
    assert {f"published/tiny/{name}" for name in ("measures.json", "summary.json", "provenance.json")} < files
    assert {"published/tiny/tables/ranks.parquet", "published/tiny/figures/nulls.svg"} < files
    provenance = json.loads((folder / "published/tiny/provenance.json").read_text())
    assert provenance["params"] == TINY | SHARED | {
        "train": provenance["params"]["train"],
        "cut": TINY["cut"] | SHARED["cut"],
    }
    assert provenance["params"]["train"]["init_scales"] == [0.5, 1]
    assert provenance["epochs"] == pytest.approx(4 * 6 * 32 / 197)  # the last images make no batch
    training = pd.read_parquet(folder / "published/tiny/tables/training.parquet")
    assert training["step"].max() == 24
    assert len(training.groupby(["init_scale", "control", "seed"], observed=True)) == 4

    assert "all is done" in call()
    assert ran == []


def names(folder):
    """The files of the archive of results."""
    with tarfile.open(folder / "results.tar.gz") as packed:
        return {member.name for member in packed if member.isfile()}
