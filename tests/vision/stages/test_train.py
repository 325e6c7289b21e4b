"""Training of vision transformers, repeated by autograd through a plain model: every snapshot, row
and layout.
"""

import json
import os
import subprocess

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from lib.vision import trainings
from lib.vision.augmentation import RandAugment
from lib.vision.images import Images
from lib.vision.variants import Variant
from lib.vision.vit import ViT
from tests.pipeline.project import PYTHON, ROOT
from tests.stages.made import read_run
from tests.vision.train_made import (
    CONTROLS,
    MORE,
    MORE_TABLE,
    N_CLASSES,
    ONE,
    ONLY,
    PARAMS,
    RANDAUGMENT,
    SAVED,
    SECTION,
    SHORT,
    Unread,
    assert_repeats,
    repeated,
)
from tests.vision.vit_made import (
    SIZES,
    make_images,
)

REFUSED = {
    "decayed": "decayed\t1.5\t\tmuon\t0.5\t\t\n",
    "plain adamw": "plain adamw\t1.5\t\tadamw\t\t\t\n",
}


VARIANTS = {
    "init_scale=2": ("none", {"init_scale": 2}),
    "init_scale=0.5": ("none", {"init_scale": 0.5}),
    **{f"init_scale={v['init_scale']},{control}": (control, v) for control, v in CONTROLS.items()},
}


NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_every_variant_is_trained_from_every_seed_as_autograd_trains_it(train, data, tmp_path):
    (tmp_path / "runs" / "old").mkdir(parents=True)
    runs = train(PARAMS)
    assert sorted(path.name for path in runs.iterdir()) == sorted(VARIANTS)
    for name, (control, variant) in VARIANTS.items():
        steps = assert_repeats(runs / name, data, PARAMS, control, variant)
        assert list(steps["step"].unique()) == SAVED


REPEATED = {
    "images are cropped and mirrored anew in every epoch": {"augmentation": "crop_flip"},
    "RandAugment changes them further": {"augmentation": "crop_flip", "randaugment": RANDAUGMENT},
    "one batch is all images and all steps warm up": {
        "batch_size": 13,
        "n_steps": 2,
        "warmup_steps": 2,
        "snapshot_every": 1,
    },
    "the learning rate falls in cycles": {"warmup_steps": 1, "n_cycles": 2},
    "a batch in parts": {"batch_size": 4, "parts": 4, "augmentation": "crop_flip"},
}


@pytest.mark.parametrize("changes", REPEATED.values(), ids=REPEATED)
def test_a_training_is_that_which_autograd_repeats(train, data, changes):
    params = ONE | changes
    assert_repeats(train(params) / ONLY, data, params, "none", {"init_scale": 1.5})


def test_bfloat16_rounds_the_training_and_the_scores_but_not_the_weights(train, data):
    _, snapshots, steps = read_run(train(ONE | {"precision": "bfloat16"}) / ONLY)
    wanted = list(repeated(data, ONE, 3, 1.5))
    for name, W in wanted[0][0].items():
        torch.testing.assert_close(snapshots[0][name][0], W.float())
    exact = pd.DataFrame([row for _, row in wanted])
    for value, step in (("test_loss", 0), ("train_loss", 1)):
        assert steps[value][step] == pytest.approx(
            exact[value][step], rel=1e-2
        )  # eight bits of a number
        assert steps[value][step] != pytest.approx(exact[value][step], rel=1e-5)


def test_a_gradient_that_is_written_out_trains_as_autograds_does(train):
    params = ONE | {"precision": "bfloat16", "batch_size": 13}
    wanted = read_run(train(params) / ONLY)[2]
    found = read_run(train(params | {"gradient": "written out"}) / ONLY)[2]
    for value in ("train_loss", "test_loss"):
        np.testing.assert_allclose(found[value], wanted[value], rtol=2e-2)
        assert list(found[value][1:]) != list(wanted[value][1:])


@pytest.mark.parametrize("n", [3, 50])
def test_trainings_together_are_those_alone(train, data, updates, n):
    """There are two optimisers, and the one with its own rate takes its own updates."""
    runs = train(PARAMS | {"cells_together": n, "augmentation": "crop_flip"})
    assert updates.made == 5 * {3: 2 + 1 + 1, 50: 3}[n]
    for name, (control, variant) in VARIANTS.items():
        assert_repeats(
            runs / name, data, PARAMS | {"augmentation": "crop_flip"}, control, variant, atol=3e-6
        )


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("name", MORE)
def test_other_optimisers_and_qk_norm_train_as_written_out_alone_and_together(train, data, name, n):
    control, rule = MORE[name]
    params = ONE | {"init_scales": [], "controls": [name], "n_seeds": 2, "cells_together": n}
    run = train(params, MORE_TABLE) / f"{ONLY},{control}"
    assert_repeats(run, data, params, control, {"init_scale": 1.5, **rule}, atol=3e-6)


def test_trainings_of_different_attention_are_not_stacked_as_one(train, data, updates):
    params = ONE | {"controls": ["normalized"], "n_seeds": 2, "cells_together": 4}
    runs = train(params, MORE_TABLE)
    assert updates.made == 2 * params["n_steps"]
    for control, rule in (("none", {}), MORE["normalized"]):
        name = ONLY if control == "none" else f"{ONLY},{control}"
        assert_repeats(runs / name, data, params, control, {"init_scale": 1.5, **rule}, atol=3e-6)


@pytest.mark.parametrize(
    ("name", "got"), [("decayed", "0.5 of muon"), ("plain adamw", "None of adamw")]
)
def test_weight_decay_is_of_adamw_alone(train, name, got):
    table = MORE_TABLE.splitlines(keepends=True)[0] + REFUSED[name]
    with pytest.raises(
        InputError, match=rf"line 2: weight_decay: wanted it of adamw alone, got {got}"
    ):
        train(ONE | {"init_scales": [], "controls": [name]}, table)


@pytest.mark.parametrize(("n", "rule"), [(1, {}), (2, MORE["heads"][1])])
def test_the_loop_neither_reads_a_number_from_its_device_nor_mixes_devices(
    data, monkeypatch, n, rule
):
    """On a device that holds no numbers either is an error: a GPU would wait at the first, and fail
    at the second.

    Four steps are two epochs, so that images are augmented anew as well. (There torch has neither
    autocast nor its fused plain descent.)
    """
    monkeypatch.setattr(trainings, "use_device", lambda *_: torch.device("meta"))
    changes = {"n_steps": 4, "augmentation": "crop_flip", "model": ViT(**SIZES)}
    given = {
        key: value
        for key, value in (PARAMS | changes).items()
        if key in trainings.Recipe.__dataclass_fields__
    }
    recipe = trainings.Recipe(**given, randaugment=RandAugment(**RANDAUGMENT))
    variant = Variant(**{"init_scale": 0.5, "labels": "permuted", **rule})
    cells = {trainings.Training(variant, seed): Unread() for seed in range(n)}
    trainings.train(Images(**data), recipe, cells)
    scores = ["test_accuracy", "test_loss", "train_loss"]
    for kept in cells.values():
        assert kept.saved == [(step, scores) for step in (0, 1, 2, 3, 4)]
        assert kept.written == 4


# A process of its own: the checks of types and shapes, which tests put into every function, cannot
# be compiled.
COMPILED = """
import sys
from pathlib import Path

import torch
from torch._dynamo import config, utils

from stages.vision.train import main

original = torch.compile
torch.compile = lambda loss: original(loss, fullgraph=True)
with config.patch(error_on_recompile=True):
    main(sys.argv[1], *map(Path, sys.argv[2:]))
print("graphs:", utils.counters["stats"]["unique_graphs"])
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_what_is_compiled_in_bfloat16_trains_alike_without_a_break_or_a_second_compilation(
    train, tmp_path, n, device
):
    """The compiler refuses a graph that breaks; a second graph, or one more for other shapes, is an
    error.
    """
    params = ONE | {
        "precision": "bfloat16",
        "n_seeds": n,
        "cells_together": n,
        "augmentation": "crop_flip",
    }
    params["device"] = device
    wanted = read_run(train(params) / ONLY)[2]
    (tmp_path / "params.yaml").write_text(
        json.dumps({"vision": {"any": {"train": params | {"compile": True}}}})
    )
    command = [PYTHON, "-c", COMPILED, SECTION, "controls.tsv", "images", "compiled"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["graphs:", "1"]
    found = read_run(tmp_path / "compiled" / ONLY)[2]
    for value in ("train_loss", "test_loss"):
        np.testing.assert_allclose(found[value], wanted[value], rtol=2e-2)


def test_compile_trains_what_the_compiler_makes_of_the_loss(train, data, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda loss: lambda *arguments: 3 * loss(*arguments))
    params = ONE | {"init_scales": [], "controls": ["faster"], "compile": True}
    steps = read_run(train(params) / f"{ONLY},optimizer=sgd,learning_rate=0.25")[2]
    faster = repeated(data, params, 3, 1.5, optimizer="sgd", learning_rate=0.75)
    wanted = pd.DataFrame([row for _, row in faster])
    np.testing.assert_allclose(steps["train_loss"], 3 * wanted["train_loss"], rtol=1e-5)
    np.testing.assert_allclose(steps["test_loss"], wanted["test_loss"], rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gradient": "written out"},
            "precision: wanted bfloat16 beside gradient: written out, got float32",
        ),
        ({"device": "cuda"}, "device: wanted cuda, got .* sees no GPU"),
        (
            {"device": "gpu"},
            "device: wanted cpu, cuda, or the number of a GPU as in cuda:1, got 'gpu'",
        ),
        ({"batch_size": 14}, "batch_size: wanted at most 13 images, got 14"),
        ({"model": SIZES | {"patch_size": 3}}, "patch_size: wanted a divisor of 8 and 16, got 3"),
        ({"warmup_steps": 6}, "warmup_steps: wanted at most n_steps, got 6"),
        ({"parts": 2}, "parts: wanted a divisor of the 5 samples of a batch, got 2"),
        (
            {"batch_size": 4, "parts": 2, "cells_together": 2},
            "cells_together: wanted 1 beside parts, got 2",
        ),
        (
            {"init_scales": [], "controls": []},
            "init_scales, controls: wanted at least one of them, got none",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_and_runs_stay(
    train, tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (tmp_path / "runs" / "old").mkdir(parents=True)
    with pytest.raises(InputError, match=message):
        train(PARAMS | changes)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["old"]


def test_grey_images_are_trained_on_but_not_changed_by_randaugment(train, tmp_path):
    data = make_images(tmp_path / "images", 13, 9, N_CLASSES, (1, 8, 16))
    assert_repeats(train(SHORT) / ONLY, data, SHORT, "none", {"init_scale": 1.5})
    with pytest.raises(
        InputError, match=r"randaugment: wanted images of 3 channels \(or no randaugment\), got 1"
    ):
        train(SHORT | {"randaugment": RANDAUGMENT})
