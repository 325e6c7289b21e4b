"""Trainings that go on, that are not made again, and that are refused for what they would cost."""

import math
import os
import shutil
import sys
import time
from collections import namedtuple
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.vision.train_made import (
    IMAGE_SHAPE,
    N_CLASSES,
    ONE,
    ONLY,
    PARAMS,
    SAVED,
    SECTION,
    SHORT,
    assert_repeats,
    files_of,
)
from tests.vision.vit_made import (
    SIZES,
    make_images,
    operations,
    shapes,
)

NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


Usage = namedtuple("Usage", ["total", "used", "free"])


@NEEDS_GPU
def test_a_gpu_gives_the_same_bits_again_where_that_is_asked_also_after_a_break(
    train, updates, hasty, tmp_path
):
    params = ONE | {
        "device": "cuda",
        "deterministic": True,
        "augmentation": "crop_flip",
        "precision": "bfloat16",
    }
    try:
        updates.allowed = 4
        with pytest.raises(KeyboardInterrupt):
            train(params)
        updates.made, updates.allowed = 0, math.inf
        resumed = files_of(train(params))
        assert updates.made == 1
        shutil.rmtree(tmp_path / ".dvc" / "tmp" / "scratch")
        assert files_of(train(params)) == resumed
    finally:
        torch.use_deterministic_algorithms(False)


class Curves:
    """A stand-in for DVCLive, which keeps what each training drew, by its folder."""

    drawn: dict[str, list] = {}  # noqa: RUF012

    def __init__(self, folder, **_):
        self.rows = Curves.drawn[folder] = []
        self.step, self.row = 0, {}

    def log_metric(self, name, value):
        self.row[name] = value

    def next_step(self):
        self.rows.append({"step": self.step, **self.row})

    def end(self):
        self.rows.append("end")


@pytest.fixture
def curves(monkeypatch, tmp_path):
    live = ModuleType("dvclive.live")
    live.Live = Curves
    monkeypatch.setitem(sys.modules, "dvclive", ModuleType("dvclive"))
    monkeypatch.setitem(sys.modules, "dvclive.live", live)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(Curves, "drawn", {})
    return Curves.drawn


def checkpoints(tmp_path):
    return sorted(
        (tmp_path / ".dvc" / "tmp" / "scratch" / "vision").glob("*/checkpoint-*.safetensors")
    )


@pytest.mark.parametrize(
    ("lost", "resumed"),
    [("nothing", 4), ("the newest checkpoint", 3), ("the snapshot at step 3", None)],
)
def test_an_interrupted_training_goes_on_and_ends_as_one_in_one_go(
    train, data, updates, curves, hasty, tmp_path, capsys, lost, resumed
):
    updates.allowed = 4
    with pytest.raises(KeyboardInterrupt):
        train(ONE)
    assert not (tmp_path / "runs").exists()
    assert [int(file.name.split("-")[1]) for file in checkpoints(tmp_path)] == [3, 4]
    [drawn] = curves.values()
    assert [row["step"] for row in drawn[:-1]] == [0, 1, 2, 3]
    curves.clear()
    if lost == "the newest checkpoint":
        checkpoints(tmp_path)[1].write_bytes(b"")
    elif lost != "nothing":
        [snapshot] = tmp_path.glob(".dvc/tmp/scratch/vision/*/snapshot-000000003-*")
        snapshot.unlink()
    capsys.readouterr()
    updates.made, updates.allowed = 0, math.inf
    with (
        pytest.warns(UserWarning, match="cut short or altered")
        if "check" in lost
        else nullcontext()
    ):
        runs = train(ONE)
    assert updates.made == 5 - (resumed or 0)
    assert (f"resumed at step {resumed}: " in capsys.readouterr().err) == (resumed is not None)
    assert checkpoints(tmp_path) == []
    steps = assert_repeats(runs / ONLY, data, ONE, "none", {"init_scale": 1.5})
    assert_drawn(curves, f"{SECTION}/{ONLY}/seed=3", steps)


def assert_drawn(curves, name, steps):
    """The curves of one training, and of no other, are the rows of its run."""
    [(folder, rows)] = curves.items()
    assert folder.endswith(f"/dvclive/workspace/{name}")
    assert rows.pop() == "end"
    pd.testing.assert_frame_equal(
        pd.DataFrame(rows), steps.drop(columns=["snapshot", "seed"]), check_like=True
    )


def test_what_is_trained_is_not_trained_again(train, data, updates, curves):
    train(SHORT | {"n_seeds": 6})
    curves.clear()
    updates.made = 0
    runs = train(SHORT | {"max_hours": 2})
    assert updates.made == 0
    steps = assert_repeats(runs / ONLY, data, SHORT, "none", {"init_scale": 1.5})
    assert_drawn(curves, f"{SECTION}/{ONLY}/seed=3", steps)


def test_a_training_on_other_images_or_params_is_another(train, tmp_path):
    train(SHORT)
    data = make_images(tmp_path / "images", 13, 9, N_CLASSES, IMAGE_SHAPE, seed=1)
    assert_repeats(train(SHORT) / ONLY, data, SHORT, "none", {"init_scale": 1.5})
    params = SHORT | {"learning_rate": 0.02}
    assert_repeats(train(params) / ONLY, data, params, "none", {"init_scale": 1.5})


@pytest.fixture
def machine(monkeypatch):
    """A machine of five cores, of which each does 4e6 operations per second in float32, and twice
    as many in bfloat16.

    Its first product takes longer, as on a true machine.
    """
    made = SimpleNamespace(now=0.0, first=1.0)

    def mm(A, B):
        n, inner = A.shape
        rate = {torch.float32: 4e6, torch.bfloat16: 8e6}[A.dtype]
        made.now += made.first + 2 * n * inner * B.shape[1] / rate
        made.first = 0.0

    monkeypatch.setattr(torch, "mm", mm)
    monkeypatch.setattr(time, "perf_counter", lambda: made.now)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({"threads": 1}, 5 * 4e6),
        ({"threads": 2}, 2 * 4e6),
        ({"threads": 4, "precision": "bfloat16"}, 8e6),
    ],
)
def test_a_training_that_takes_too_long_is_refused_with_its_cost(
    train, machine, capsys, changes, rate
):
    weights = {
        name: torch.zeros(shape) for name, shape in shapes(SIZES, IMAGE_SHAPE, N_CLASSES).items()
    }
    n_trainings = 2 * 4  # seeds and variants
    flops = (
        3 * operations(weights, IMAGE_SHAPE) * 5 * 5 * n_trainings
    )  # three times forward, of each of 5 images
    hours = flops / (0.4 * rate) / 3600
    gigabytes = 3 * n_trainings * len(SAVED) * 4 * sum(w.numel() for w in weights.values()) / 1e9
    with pytest.raises(InputError) as refused:
        train(PARAMS | changes | {"max_hours": 1e-5})
    assert str(refused.value) == f"max_hours: wanted at most 1e-05 h, got about {hours:.3g} h"
    said = (
        f"8 trainings of 5 steps: {flops:.2g} operations, about {hours:.2g} h on this cpu; "
        f"{gigabytes:.2g} GB of snapshots"
    )
    assert said in capsys.readouterr().err


def test_snapshots_that_find_no_room_are_refused(train, monkeypatch, tmp_path):
    shape = shapes(SIZES, IMAGE_SHAPE, N_CLASSES)
    n_bytes = 3 * 8 * len(SAVED) * 4 * sum(math.prod(sizes) for sizes in shape.values())
    asked = []

    def usage(path):
        asked.append(path)
        return Usage(10 * n_bytes, 9 * n_bytes, n_bytes - 1)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(InputError, match=f"snapshots: wanted {n_bytes / 1e9:.3g} GB of disk, got "):
        train(PARAMS)
    assert asked == [tmp_path]
