"""`make gpu`: what it checks, trains and keeps, how it ends in time, and a rehearsal of all of it
on the CPU.
"""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch
import yaml

from lib.files.files import InputError
from tools import gpu

TRAIN = yaml.safe_load("""
init_scales: [0.25, 0.5, 1]
controls: [permuted_labels]
n_seeds: 1
device: cuda
precision: float32
compile: false
max_hours: 1
model: {d_head: 4, d_mlp: 8, d_model: 8, n_heads: 2, n_layers: 1, patch_size: 4}
augmentation: crop_flip
batch_size: 32
n_steps: 7
warmup_steps: 5
learning_rate: 0.001
snapshot_every: 10
""")
TINY = {
    "data": {"source": "digits", "n_test": 1600, "seed": 0},
    "train": TRAIN,
    "cut": {"init_scales": [0.5, 1]},
}
SHARED = yaml.safe_load("""
cut: {random_seed: 0, rate_step: 0.5}
evaluate: {reference_scale: 0.5, rtol: 0.001}
plot: {head: 1, layer: 1, lines: 4, trained_loss: 0.1}
""")
TWO_SCALES = TINY | {"train": TRAIN | {"init_scales": [0.5, 1]}, "cut": {"init_scales": [0.5]}}

VISION = {"datasets": ["tiny"], "cases": {"a": "b"}, "tiny": TWO_SCALES, **SHARED}


@pytest.fixture
def params(tmp_path):
    """A params file with a tiny data set for a GPU, beside other sections."""
    file = tmp_path / "params.yaml"
    file.write_text(json.dumps({"vision": VISION}))
    return file


@pytest.fixture
def work(tmp_path):
    return gpu.Work(tmp_path, gpu.Clock(10), SHARED)


@pytest.mark.parametrize(("images_per_second", "epochs"), [(50_000, 500), (40_000, 300), (90, 1)])
def test_the_most_epochs_are_chosen_that_the_time_allows(images_per_second, epochs):
    """There are two trainings of 50,000 images, and 1000 seconds."""
    assert gpu.affordable(1000, 2, 50_000, images_per_second) == epochs


def test_the_choice_of_epochs_counts_every_seed_null_and_scale_and_is_kept_for_the_next_call(
    tmp_path, work
):
    section = TINY | {"train": TRAIN | {"n_seeds": 2, "init_scales": [0.5, 1, 0.25]}}
    speed = {"images_per_second": {"compiled": 4000.0, "not compiled": 1.0, "plain loop": 1e9}}
    # of ten minutes 0.6 is for twelve trainings of 3000 images: 40 epochs each, at most
    assert work.epochs(0, section, 3000, speed) == 30
    later = gpu.Work(tmp_path, gpu.Clock(1), SHARED)
    assert later.epochs(0, section, 3000, speed) == 30
    assert later.epochs(7, section, 3000, speed) == 7
    assert later.epochs(0, section, 3000, speed) == 7
    (tmp_path / "published").mkdir()
    with pytest.raises(
        InputError, match=f"EPOCHS: wanted 7, those of the results in {tmp_path}, got 8"
    ):
        later.epochs(8, section, 3000, speed)


def test_the_reference_scale_comes_first_then_smaller_and_smaller_ones(work, monkeypatch):
    monkeypatch.setattr(work, "images", lambda step: {"one": 100, "other": 64}[step.dataset])
    found = list(gpu.steps({"one": TINY, "other": TWO_SCALES}, 40, work))
    scales = [(step.dataset, step.section["train"]["init_scales"]) for step in found]
    first = [("one", [0.5]), ("one", [0.5, 1]), ("one", [0.5, 1, 0.25])]
    assert scales == [*first, ("other", [0.5]), ("other", [0.5, 1])]
    for step in found:
        train = step.section["train"]
        n_steps = {"one": 40 * 3, "other": 40 * 2}[step.dataset]
        chosen = {"init_scales": train["init_scales"], "n_steps": n_steps}
        assert train == TRAIN | chosen | {"snapshot_every": n_steps // 20}
    assert gpu.shaped(TINY, [1], 1, 100)["train"]["warmup_steps"] == 0  # a tenth of three steps
    assert TINY["train"]["n_steps"] == 7


@pytest.mark.parametrize(("published", "done"), [([0.5], False), ([0.5, 1, 2], True)])
def test_a_step_is_done_where_all_its_init_scales_are_published(published, done, work):
    publish(work.folder, TWO_SCALES["train"] | {"init_scales": published})
    assert work._is_published(gpu.Step("tiny", TWO_SCALES)) == done


def test_results_of_other_params_are_refused(work):
    publish(work.folder, TWO_SCALES["train"] | {"n_steps": 8})
    with pytest.raises(
        InputError,
        match=r"wanted results of these params, got some of tiny with train=.*'n_steps': 8",
    ):
        work._is_published(gpu.Step("tiny", TWO_SCALES))


def publish(folder, train):
    """What is published of the data set `tiny`, as far as the next call reads it."""
    params = TWO_SCALES | SHARED | {"train": train, "cut": TWO_SCALES["cut"] | SHARED["cut"]}
    file = folder / "published" / "tiny" / "provenance.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"params": params}))


def test_a_section_is_taken_for_the_device_and_the_folder_of_official_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    section = gpu.given(VISION, "tiny", "cpu", "cifar")
    assert section["data"] == TINY["data"] | {"source_folder": str(tmp_path / "cifar")}
    assert section["train"] == TWO_SCALES["train"] | {"device": "cpu"}
    assert section["cut"] == TWO_SCALES["cut"]
    assert gpu.shared(VISION) == SHARED
    assert gpu.given(VISION, "tiny", "cuda", "") == TWO_SCALES
    with pytest.raises(InputError, match=r"DATASETS: wanted some of \['tiny'\], .*, got 'cases'"):
        gpu.given(VISION, "cases", "cpu", "")


@pytest.mark.parametrize(
    ("patched", "value", "message"),
    [
        ("tools.gpu.PACKAGES", ("absent.part", "torch", "missing"), r"absent\.part missing"),
        ("torch.cuda.is_available", lambda: False, r"device: wanted cuda, got .* sees no GPU"),
    ],
)
def test_what_the_machine_lacks_is_refused_before_any_work(
    params, tmp_path, monkeypatch, patched, value, message
):
    monkeypatch.setattr(patched, value)
    with pytest.raises(InputError, match=message):
        gpu.main(1, tmp_path / "gpu", params, "tiny")
    assert not (tmp_path / "gpu").exists()


def test_a_device_that_multiplies_wrongly_is_refused(monkeypatch):
    product = torch.Tensor.__matmul__
    gpu.check_device("cpu")
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda A, B: product(A, B) + (A.dtype == torch.bfloat16) * 100
    )
    with pytest.raises(InputError, match="cpu: wanted a product of matrices in bfloat16 right to"):
        gpu.check_device("cpu")


def test_stages_run_by_their_commands_in_dvc_yaml():
    """No name of DVC is left in them, and their table of controls is found from any folder."""
    commands = {
        stage: gpu.command_of(stage, "cifar10")
        for stage in ("fetch", "generate", "train", "spectra", "cut", "evaluate", "plot")
    }
    assert not [word for words in commands.values() for word in words if "$" in word]
    assert commands["train"] == [
        "stages.vision.train",
        "--section=vision.cifar10.train",
        f"--controls={gpu.ROOT / 'stages' / 'vision' / 'controls.tsv'}",
        "--images=data/vision/cifar10/images",
        "--runs=data/vision/cifar10/runs",
    ]
    assert gpu.outs_of("generate", "cifar10") == ["data/vision/cifar10/images"]


def test_a_module_that_runs_when_the_minutes_are_over_is_ended(tmp_path):
    (tmp_path / "endless.py").write_text("import time; time.sleep(600)\n")
    work = gpu.Work(tmp_path, gpu.Clock(1 / 60), SHARED)
    begin = time.monotonic()
    for module in ("endless", "absent"):  # nothing is begun after the first
        with pytest.raises(gpu.OutOfTimeError):
            work._run(gpu.Step("tiny", TINY), [module])
    assert time.monotonic() - begin < 60
    assert work.clock.left == 0
    assert 1 <= json.loads((tmp_path / "seconds.json").read_text())["tiny"] < 60


def test_a_stage_that_fails_is_named(work):
    with pytest.raises(InputError, match="absent: wanted a stage that ends well, got the exit c"):
        work._run(gpu.Step("tiny", TINY), ["absent"])


def test_what_is_kept_is_published_again_and_no_note_of_the_folder_is_replaced(tmp_path, work):
    publish(tmp_path, TRAIN)
    for name in ("speed.json", "epochs.json", "params.yaml", "published/tiny/.a.json.7.part"):
        (tmp_path / name).write_text("1")
    work.keep = tmp_path / "keep"
    work.pack()
    there = tmp_path / "there"
    (there / "published/tiny/tables").mkdir(parents=True)
    (there / "published/tiny/tables/half.parquet").write_text("left by a call that was killed")
    (there / "epochs.json").write_text("2")
    gpu.Work(there, gpu.Clock(1), SHARED, tmp_path / "keep")
    assert files(there) == {"speed.json", "epochs.json", "published/tiny/provenance.json"}
    assert (there / "epochs.json").read_text() == "2"


@pytest.mark.parametrize("name", ["params.yaml", "../speed.json", "published/a/tables/b.py"])
def test_an_archive_that_holds_anything_but_results_is_refused(name, tmp_path):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("speed.json"))
        archive.addfile(tarfile.TarInfo(name))
    with pytest.raises(
        InputError, match=f"keep: wanted results of `make gpu`, got '{name}' in results.tar.gz"
    ):
        gpu.unpack(packed.getvalue(), tmp_path, Path("keep"))
    assert files(tmp_path) == set()


@pytest.mark.parametrize("share", [0, 0.8])
def test_an_archive_that_is_not_whole_is_refused(share, tmp_path, work):
    publish(tmp_path, TRAIN)
    work.pack()
    packed = (tmp_path / "results.tar.gz").read_bytes()
    with pytest.raises(InputError, match=r"keep: wanted results.tar.gz as it was written, got: "):
        gpu.unpack(packed[: int(share * len(packed))], tmp_path / "there", Path("keep"))


def test_large_results_are_kept_in_parts_which_take_the_place_of_those_before(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(gpu, "PART", 10)
    for packed in (b"7" * 10, b"0123456789" * 2, b"abcdefghij" * 3 + b"xyz", b"one part"):
        gpu.put(packed, tmp_path)
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        assert len(sizes) == -(-len(packed) // 10)
        assert max(sizes) <= 10
        assert gpu.archive_in(tmp_path) == packed
    assert files(tmp_path) == {"results.tar.gz"}
    with pytest.raises(InputError, match="wanted results of at most 40 bytes, got 41"):
        gpu.put(b"x" * 41, tmp_path)
    assert gpu.archive_in(tmp_path) == b"one part"


@pytest.mark.parametrize("n_written", [0, 3])
def test_a_kill_while_parts_are_written_leaves_the_results_before(n_written, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PART", 10)
    before, after = b"0123456789" * 4, b"abcdefghij" * 4
    gpu.put(before, tmp_path)
    replace = os.replace

    def kill(*paths):
        if len(files(tmp_path)) > 4 + n_written:  # and the part of a file that is being written
            raise KeyboardInterrupt
        replace(*paths)

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        gpu.put(after, tmp_path)
    assert len(files(tmp_path)) == 4 + n_written
    assert gpu.archive_in(tmp_path) == before


def test_parts_that_are_missing_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PART", 10)
    gpu.put(b"0123456789" * 2, tmp_path)
    next(tmp_path.glob("*.1-of-2")).unlink()
    with pytest.raises(InputError, match=r"all parts of results.tar.gz, got \['results.*2-of-2'\]"):
        gpu.archive_in(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_calls_that_are_killed_and_one_that_ends_elsewhere_give_the_tables_of_one(
    params, tmp_path
):
    """The second is told to end in the folder of the first; the third has nothing but what was
    kept.
    """
    keep, half, one = tmp_path / "keep", "tiny: init scale 0.5", "tiny: init scale 1"
    with call(params, tmp_path / "whole", tmp_path / "kept whole") as whole:
        assert half in said(whole, "all is done")
    with call(params, tmp_path / "here", keep) as first:
        assert half in said(first, one)
        first.kill()
    assert files(keep) == {"results.tar.gz"}
    with call(params, tmp_path / "here", keep) as second:
        assert half not in said(second, one)
        second.terminate()
        said(second, "the time is over; the same command goes on where it stopped")
    assert (first.returncode, second.returncode) == (-signal.SIGKILL, 0)
    with call(params, tmp_path / "there", keep) as third:
        assert half not in said(third, "all is done")
    with call(params, tmp_path / "there", keep) as fourth:
        assert "init scale" not in said(fourth, "all is done")

    found = unpacked(keep, tmp_path / "found")
    wanted = unpacked(tmp_path / "kept whole", tmp_path / "wanted")
    assert found.keys() == wanted.keys()
    notes = [
        json.loads(found.pop(name)) for name in ("published/tiny/provenance.json", "speed.json")
    ]
    same = {name for name in found if name.startswith("published")}
    assert {f"published/tiny/{name}" for name in ("figures/nulls.svg", "measures.csv")} < same
    assert [name for name in same if found[name] != wanted[name]] == []
    check_provenance(notes[0])
    check_speed(notes[1])


def call(params, folder, keep):
    """A call of four epochs on the CPU, of which a test reads what it says."""
    given = {"folder": folder, "keep": keep, "params": params, "datasets": "tiny"}
    given |= {"epochs": 4, "device": "cpu"}
    options = [f"--{name}={value}" for name, value in given.items()]
    command = [sys.executable, "-u", "-m", "tools.gpu", "10", *options]
    return subprocess.Popen(command, cwd=gpu.ROOT, stdout=subprocess.PIPE, text=True)


def said(process, line):
    """The lines of a call until one begins so."""
    lines = []
    while not (lines and lines[-1].startswith(line)):
        lines.append(process.stdout.readline())
        assert lines[-1], f"it ended before it said {line}"
    return "".join(lines)


def check_speed(speed):
    rates = speed["images_per_second"]
    assert rates.keys() == {"not compiled", "plain loop"}
    assert speed["over_plain_loop"] == pytest.approx(
        rates["not compiled"] / rates["plain loop"], rel=1e-4
    )
    share = (
        rates["plain loop"] * speed["training_flops_per_image"] / speed["matmul_flops_per_second"]
    )
    assert speed["share_of_matmul_rate"]["plain loop"] == pytest.approx(share, rel=1e-4)


def check_provenance(note):
    train = TRAIN | {
        "device": "cpu",
        "init_scales": [0.5, 1],
        "n_steps": 24,
        "warmup_steps": 2,
        "snapshot_every": 1,
    }
    assert note["params"] == TINY | SHARED | {
        "train": train,
        "cut": TWO_SCALES["cut"] | SHARED["cut"],
    }
    assert note["epochs"] == pytest.approx(4 * 6 * 32 / 197)  # the last images make no batch
    where = {name: note[name] for name in ("device", "commit", "versions")}
    assert note["made"] == [{"init_scale": scale} | where for scale in (0.5, 1)]


def unpacked(keep, folder):
    """The bytes of the results by name."""
    gpu.unpack(gpu.archive_in(keep), folder, keep)
    return {name: (folder / name).read_bytes() for name in files(folder)}


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
