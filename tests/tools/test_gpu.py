"""`make gpu`: what it checks, trains and keeps, how it ends in time, and a rehearsal of all of it on the CPU."""

import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from copy import deepcopy
from pathlib import Path

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


def test_the_choice_of_epochs_counts_every_seed_null_and_scale_and_is_kept(tmp_path, work, monkeypatch):
    section = TINY | {"train": TRAIN | {"n_seeds": 2, "init_scales": [0.5, 1, 0.25]}}
    sections = {"tiny": section, "other": TINY}
    speed = {"images_per_second": {"compiled": 4000.0, "not compiled": 1.0, "plain loop": 1e9}}
    monkeypatch.setattr(gpu.Work, "images", lambda *_: 3000)
    monkeypatch.setattr(gpu.Work, "speed", lambda *_: speed)
    seconds = 0.6 * 600  # of ten minutes
    wanted = max(n for n in gpu.EPOCHS if n <= seconds * 4000 / (3 * 4 * 3000))
    assert work.epochs(0, sections) == wanted == 30
    later = gpu.Work(tmp_path, gpu.Clock(1), SHARED)
    assert later.epochs(0, sections) == wanted
    assert later.epochs(7, sections) == 7
    assert later.epochs(0, sections) == 7


def test_the_reference_scale_comes_first_then_smaller_ones_then_the_next_seed(work, monkeypatch):
    monkeypatch.setattr(work, "images", lambda dataset, _: {"one": 100, "other": 64}[dataset])
    two_seeds = TWO_SCALES | {"train": TWO_SCALES["train"] | {"n_seeds": 2, "first_seed": 3}}
    found = list(gpu.cells({"one": TINY, "other": two_seeds}, 40, work))
    other = [("other", 0.5, 3), ("other", 1, 3), ("other", 0.5, 4), ("other", 1, 4)]
    one = [("one", 0.5, 0), ("one", 1, 0), ("one", 0.25, 0)]
    assert [(cell.dataset, cell.scale, cell.seed) for cell in found] == one + other
    for cell in found:
        train = cell.alone["train"]
        assert (train["init_scales"], train["n_seeds"]) == ([cell.scale], 1)
        assert train["first_seed"] == cell.seed
        assert train["n_steps"] == {"one": 40 * 3, "other": 40 * 2}[cell.dataset]
        assert train["warmup_steps"] == 5
        assert train["snapshot_every"] == train["n_steps"] // 20
        changed = {"init_scales", "n_seeds", "first_seed", "n_steps", "snapshot_every"}
        unchanged = set(TRAIN) - changed
        assert {key: train[key] for key in unchanged} == {key: TRAIN[key] for key in unchanged}
        assert cell.is_cut == (cell.scale in (0.5, 1))
    assert gpu.shaped(TINY, 0.5, 1, 100)["train"]["warmup_steps"] == 0  # a tenth of three steps
    assert TINY["train"]["n_steps"] == 7


def test_a_control_with_an_init_scale_of_its_own_is_trained_once():
    """In the table of controls, other_reading is of init scale 0.1, sgd of 1."""
    section = deepcopy(TINY)
    section["train"] |= {"init_scales": [2, 1], "controls": ["sgd", "permuted_labels", "other_reading"]}
    found = {scale: gpu.Cell("tiny", section, scale, 0).alone["train"]["controls"] for scale in (2, 1)}
    assert found == {2: ["permuted_labels", "other_reading"], 1: ["sgd", "permuted_labels"]}


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


@pytest.mark.parametrize("how", ["minutes", "SIGTERM"])
def test_a_module_that_runs_when_the_time_is_over_is_ended(how, tmp_path):
    """Also a call that is told to end has time to pack what is finished."""
    (tmp_path / "endless.py").write_text("import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(600)\n")
    work = gpu.Work(tmp_path, gpu.Clock(10), SHARED)

    def end():
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        if how == "minutes":
            work.clock.end = time.monotonic()
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: work.clock.stop())
    threading.Thread(target=end).start()
    begin = time.monotonic()
    try:
        with pytest.raises(gpu.OutOfTimeError):
            work._run("tiny", TINY, ["endless"])
    finally:
        signal.signal(signal.SIGTERM, before)
    seconds = time.monotonic() - begin
    assert seconds < 300
    assert work.clock.left == 0
    noted = json.loads((tmp_path / "notes.json").read_text())["seconds"]["tiny"]
    assert noted == pytest.approx(seconds, abs=5)
    with pytest.raises(gpu.OutOfTimeError):  # and nothing is begun after that
        work._run("tiny", TINY, ["absent"])


def test_a_stage_that_fails_is_named(work):
    with pytest.raises(InputError, match="absent: wanted a stage that ends well, got the exit code 1"):
        work._run("tiny", TINY, ["absent"])


def finished(folder, section, cells):
    """A published data set with these init scales and seeds."""
    note = {
        "params": section | {part: SHARED[part] | section.get(part, {}) for part in SHARED},
        "trainings": [{"init_scale": scale, "seed": seed} for scale, seed in cells],
    }
    (folder / "published/tiny/tables").mkdir(parents=True)
    (folder / "published/tiny/provenance.json").write_text(json.dumps(note))
    (folder / "published/tiny/tables/training.parquet").write_text("rows")


def test_what_is_finished_is_not_made_again(work, tmp_path, monkeypatch):
    """A cell is an init scale and a seed; seeds, init scales and hours may be added."""
    (tmp_path / "data/vision/tiny").mkdir(parents=True)
    (tmp_path / "data/vision/tiny/images.safetensors").touch()
    monkeypatch.setattr(work, "_run", lambda *_: pytest.fail("a stage runs"))
    finished(tmp_path, TINY, [(0.5, 0), (1.0, 0), (0.5, 1)])
    now = TINY | {"train": TRAIN | {"n_seeds": 9, "init_scales": [0.5, 1], "max_hours": 3}}
    for scale, seed in [(0.5, 0), (1, 0), (0.5, 1)]:
        work.carry_out(gpu.Cell("tiny", now, scale, seed))
    for scale, seed in [(1, 1), (0.25, 0)]:
        with pytest.raises(pytest.fail.Exception, match="a stage runs"):
            work.carry_out(gpu.Cell("tiny", now, scale, seed))


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("train", {"n_steps": 8}, r"train.n_steps=7\b"),
        ("train", {"controls": []}, "train.controls="),
        ("data", {"seed": 1}, "data.seed=0"),
        ("cut", {"init_scales": [1]}, r"cut.init_scales=\[0.5, 1\]"),
    ],
)
def test_results_of_other_params_are_neither_mixed_with_new_ones_nor_replaced(work, tmp_path, part, change, named):
    finished(tmp_path, TINY, [(0.5, 0)])
    for scale in (0.5, 1):
        cell = gpu.Cell("tiny", TINY | {part: TINY[part] | change}, scale, 0)
        with pytest.raises(InputError, match=f"wanted results of these params, got some of tiny with {named}"):
            work.carry_out(cell)


def archive_of(members):
    """An archive with these contents by name; a text that begins with -> is a link to what follows."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if content.startswith("->"):
                member.type, member.linkname = tarfile.SYMTYPE, content[2:]
                content = ""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return packed.getvalue()


def test_a_call_elsewhere_begins_with_what_was_kept(tmp_path):
    here = gpu.Work(tmp_path / "here", gpu.Clock(1), SHARED, tmp_path / "keep")
    here.notes |= {"epochs": 70, "n_images": {"tiny": 9}}
    finished(tmp_path / "here", TINY, [(0.5, 0)])
    (tmp_path / "here/published/tiny/tables/.ranks.parquet.7.part").write_text("killed")
    (tmp_path / "here/speed.json").write_text("{}")
    (tmp_path / "here/data").mkdir()
    (tmp_path / "here/data/large").touch()
    here.pack()
    assert files(tmp_path / "keep") == ["results.tar.gz"]
    finished(tmp_path / "there", TINY, [(1, 0)])
    gpu.Work(tmp_path / "there", gpu.Clock(1), SHARED).pack()
    there = gpu.Work(tmp_path / "there", gpu.Clock(1), SHARED, tmp_path / "keep")
    assert there.notes == here.notes
    kept = ["provenance.json", "tables/training.parquet"]
    (tmp_path / "there/results.tar.gz").unlink()
    assert files(tmp_path / "there") == ["notes.json", *(f"published/tiny/{n}" for n in kept), "speed.json"]
    assert [one["init_scale"] for one in there._published(gpu.Cell("tiny", TINY, 1, 0))] == [0.5]
    again = gpu.Work(tmp_path / "here", gpu.Clock(1), SHARED, tmp_path / "an empty folder")
    assert again.notes == here.notes


@pytest.mark.parametrize(
    "name",
    ["../notes.json", "/tmp/notes.json", "published/../notes.json", "published/a/tables/b.py", "data.json"],
)
def test_a_member_that_is_no_result_is_refused_and_nothing_is_written(name, tmp_path):
    finished(tmp_path / "gpu", TINY, [])
    before = files(tmp_path)
    packed = archive_of({"notes.json": "{}", name: "{}"})
    with pytest.raises(InputError, match=f"keep: wanted results of `make gpu`, got '{re.escape(name)}'"):
        gpu.unpack(packed, tmp_path / "gpu", Path("keep"))
    with pytest.raises(InputError, match=r"keep: wanted results of `make gpu`, got 'speed.json'"):
        gpu.unpack(archive_of({"speed.json": "->notes.json"}), tmp_path / "gpu", Path("keep"))
    assert files(tmp_path) == before


@pytest.mark.parametrize("cut", [slice(0), slice(40), slice(None, -30), slice(1, None)])
def test_an_archive_that_is_not_whole_is_refused(cut, tmp_path):
    packed = archive_of({"notes.json": "".join(random.Random(0).choices("abc", k=99))})
    with pytest.raises(InputError, match=r"keep: wanted results.tar.gz as it was written, got: "):
        gpu.unpack(packed[cut], tmp_path, Path("keep"))


def test_large_results_are_kept_in_at_most_four_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PART", 10)
    results = [b"7" * 9, b"0123456789" * 2, b"abcdefghij" * 3 + b"xyz", b"one part"]
    for packed in results:
        gpu.put(packed, tmp_path)
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        assert len(sizes) == -(-len(packed) // 10)
        assert max(sizes) <= 10
        assert gpu.archive_in(tmp_path) == packed
    with pytest.raises(InputError, match="wanted results of at most 4e-05 MB, got "):
        gpu.put(b"x" * 41, tmp_path)
    assert gpu.archive_in(tmp_path) == results[-1]


@pytest.mark.parametrize("before", [b"7" * 9, b"0123456789" * 4])
@pytest.mark.parametrize("n_replaced", [0, 1, 3, 4, 5])
def test_a_kill_while_parts_are_written_leaves_results_that_are_whole(tmp_path, monkeypatch, before, n_replaced):
    """Before the end those of the call before, and never more than eight files."""
    monkeypatch.setattr(gpu, "PART", 10)
    after = b"abcdefghij" * 3 + b"klmno"
    gpu.put(before, tmp_path)
    put, left = os.replace, [n_replaced]

    def replace(*paths):
        assert len([*tmp_path.iterdir()]) <= 8
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        put(*paths)

    monkeypatch.setattr(os, "replace", replace)
    if n_replaced < 4:
        with pytest.raises(KeyboardInterrupt):
            gpu.put(after, tmp_path)
        assert gpu.archive_in(tmp_path) == before
    else:
        gpu.put(after, tmp_path)
        assert gpu.archive_in(tmp_path) == after
    left[0] = 9
    gpu.put(after, tmp_path)
    assert gpu.archive_in(tmp_path) == after
    assert len([*tmp_path.iterdir()]) == 4


def test_a_part_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PART", 10)
    gpu.put(b"0123456789" * 2, tmp_path)
    next(tmp_path.glob("*.1-of-2")).unlink()
    with pytest.raises(InputError, match=r"wanted all parts of results.tar.gz, got \['results.*2-of-2'\]"):
        gpu.archive_in(tmp_path)
    assert gpu.archive_in(tmp_path / "absent") is None


def call(params, folder, keep):
    """A call of four epochs on the CPU, of which a test reads what it says."""
    options = ["--params", params, "--datasets", "tiny", "--epochs", "4", "--device", "cpu"]
    command = [sys.executable, "-u", "-m", "tools.gpu", "3", "--folder", folder, "--keep", keep, *options]
    return subprocess.Popen([*map(str, command)], cwd=gpu.ROOT, stdout=subprocess.PIPE, text=True)


def said(process, line):
    """What a call says until it says this."""
    lines = []
    while not (lines and lines[-1].startswith(line)):
        lines.append(process.stdout.readline())
        assert lines[-1], f"it ended before it said {line}"
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_calls_that_are_killed_and_one_that_ends_elsewhere_give_the_tables_of_one(params, tmp_path):
    """The second is told to end in the folder of the first; the third has nothing but what was kept."""
    keep, half, one = tmp_path / "keep", "tiny: init_scale=0.5,seed=0", "tiny: init_scale=1,seed=0"
    with call(params, tmp_path / "whole", tmp_path / "kept whole") as whole:
        assert half in said(whole, "all is done")
    with call(params, tmp_path / "here", keep) as first:
        assert half in said(first, one)
        first.kill()
    assert files(keep) == ["results.tar.gz"]
    with call(params, tmp_path / "here", keep) as second:
        assert half not in said(second, one)
        second.terminate()
        said(second, "the time is over; the same command goes on where it stopped")
    assert (first.returncode, second.returncode) == (-signal.SIGKILL, 0)
    with call(params, tmp_path / "there", keep) as third:
        assert half not in said(third, "all is done")
    with call(params, tmp_path / "at the end", keep) as fourth:
        assert "init_scale" not in said(fourth, "all is done")
    assert not (tmp_path / "at the end/data").exists()

    gpu.unpack(gpu.archive_in(keep), tmp_path / "found", keep)
    gpu.unpack(gpu.archive_in(tmp_path / "kept whole"), tmp_path / "wanted", keep)
    assert files(tmp_path / "found") == files(tmp_path / "wanted")
    same = [name for name in files(tmp_path / "wanted") if name.startswith("published/tiny")]
    assert {f"published/tiny/{name}" for name in ("figures/nulls.svg", "measures.json", "summary.json")} < set(same)
    same.remove("published/tiny/provenance.json")
    for name in same:
        assert (tmp_path / "found" / name).read_bytes() == (tmp_path / "wanted" / name).read_bytes(), name
    check_speed(json.loads((tmp_path / "found/speed.json").read_text()))
    check_provenance(json.loads((tmp_path / "found/published/tiny/provenance.json").read_text()))
    training = pd.read_parquet(tmp_path / "found/published/tiny/tables/training.parquet")
    assert training["step"].max() == 24
    assert len(training.groupby(["init_scale", "control", "seed"], observed=True)) == 4


def check_speed(speed):
    rates = speed["images_per_second"]
    assert rates.keys() == {"not compiled", "plain loop"}
    assert speed["over_plain_loop"] == pytest.approx(rates["not compiled"] / rates["plain loop"], rel=1e-4)
    share = rates["plain loop"] * speed["training_flops_per_image"] / speed["matmul_flops_per_second"]
    assert speed["share_of_matmul_rate"]["plain loop"] == pytest.approx(share, rel=1e-4)


def check_provenance(note):
    train = TRAIN | {"device": "cpu", "init_scales": [0.5, 1], "n_steps": 24, "warmup_steps": 2, "snapshot_every": 1}
    cut = TINY["cut"] | SHARED["cut"]
    assert note["params"] == TINY | SHARED | {"train": train, "cut": cut}
    assert note["epochs"] == pytest.approx(4 * 6 * 32 / 197)  # the last images make no batch
    assert note["seeds"] == [0]
    made = [(one["init_scale"], one["seed"], one["commit"]) for one in note["trainings"]]
    assert made == [(scale, 0, note["commit"]) for scale in (0.5, 1)]


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
