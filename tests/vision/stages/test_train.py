"""Training of vision transformers, repeated by autograd through a plain model: every snapshot, row
and layout.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.nn.functional import pad

from lib.files.files import InputError
from lib.vision.images import Images
from lib.vision.vit import ViT
from lib.work.cells import Checkpoints
from tests.pipeline.project import PYTHON, ROOT
from tests.stages.made import generator, read_run
from tests.vision.vit_made import (
    LAYOUT,
    SIZES,
    cross_entropy,
    logits,
    make_images,
    operations,
    scored,
    shapes,
    standardised,
)

SECTION, IMAGE_SHAPE, N_CLASSES = "vision.any.train", (3, 8, 16), 4
SAVED = [0, 1, 2, 3, 5]  # powers of two below 3, multiples of 3, the last
CONTROLS = {
    "labels=permuted,optimizer=sgd": {"init_scale": 0.5, "labels": "permuted", "optimizer": "sgd"},
    "learning_rate=0.025,scaled=all-but-patch-embedding": {
        "init_scale": 1.5,
        "learning_rate": 0.025,
        "scaled": "all but patch embedding",
    },
}
TABLE = """\
# what is empty is as in the plain training
name\tinit_scale\tlabels\toptimizer\tlearning_rate\tscaled
other reading\t1.5\t\t\t0.025\tall but patch embedding
faster\t1.5\t\tsgd\t0.25\tlayers
permuted\t0.5\tpermuted\tsgd\t\tlayers
plain\t0.5\t\tadam\t\tlayers
everywhere\t\tpermuted\t\t\t
"""
MORE = {  # other optimisers, in a table of their own
    "optimizer=adamw,weight_decay=0.5": {"optimizer": "adamw", "weight_decay": 0.5},
    "labels=permuted,optimizer=muon": {"labels": "permuted", "optimizer": "muon"},
    "optimizer=muon,muon_of=heads": {"optimizer": "muon", "muon_of": "heads"},
}
MORE_TABLE = """\
name\tinit_scale\tlabels\toptimizer\tweight_decay\tmuon_of
adamw\t1.5\t\tadamw\t0.5\t
muon\t1.5\tpermuted\tmuon\t\tmatrices
heads\t1.5\t\tmuon\t\theads
"""
REFUSED = {
    "decayed": "decayed\t1.5\t\tmuon\t0.5\t\n",
    "plain adamw": "plain adamw\t1.5\t\tadamw\t\t\n",
}
PARAMS = {
    "device": "cpu",
    "precision": "float32",
    "compile": False,
    "max_hours": 1,
    "threads": 1,
    "n_seeds": 2,
    "first_seed": 4,
    "init_scales": [2, 0.5],
    "controls": ["permuted", "other reading"],
    "model": SIZES,
    "augmentation": "none",
    "batch_size": 5,
    "n_steps": 5,
    "warmup_steps": 2,
    "learning_rate": 0.01,
    "snapshot_every": 3,
}
VARIANTS = {
    "init_scale=2": ("none", {"init_scale": 2}),
    "init_scale=0.5": ("none", {"init_scale": 0.5}),
    **{f"init_scale={v['init_scale']},{control}": (control, v) for control, v in CONTROLS.items()},
}
ONE = PARAMS | {
    "n_seeds": 1,
    "first_seed": 3,
    "init_scales": [1.5],
    "controls": [],
}  # for what does not differ between variants
SHORT = ONE | {"n_steps": 1, "warmup_steps": 0}
ONLY = "init_scale=1.5"
RANDAUGMENT = {"n_operations": 2, "magnitude": 25}
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """Matrix products with which a stage measures the machine take longer than all of its training
    here.
    """
    monkeypatch.setattr(torch, "mm", lambda A, B: None)


@pytest.fixture
def data(tmp_path):
    """13 images, of which an epoch of two batches leaves out three."""
    return make_images(tmp_path / "images", 13, 9, N_CLASSES, IMAGE_SHAPE)


@pytest.fixture
def train(stage, data, tmp_path):
    """Trains with params; gives the folder of runs."""

    def run(params, table=TABLE):
        (tmp_path / "controls.tsv").write_text(table)
        paths = [tmp_path / name for name in ("controls.tsv", "images", "runs")]
        stage("vision.train", {SECTION: params}, SECTION, *paths)
        return tmp_path / "runs"

    return run


@pytest.fixture
def updates(monkeypatch):
    """How many updates were `made`; more than are `allowed` stop the stage."""
    count, original = SimpleNamespace(made=0, allowed=math.inf), torch.Tensor.backward

    def backward(*arguments, **options):
        if count.made == count.allowed:
            raise KeyboardInterrupt
        count.made += 1
        original(*arguments, **options)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    return count


def initial(seed, scale, scaled, image_shape):
    """The library's uniform initial values, times the init scale where it applies."""
    draw = generator(seed, "weights")
    d, m, inner = SIZES["d_model"], SIZES["d_mlp"], SIZES["n_heads"] * SIZES["d_head"]
    d_patch = image_shape[0] * SIZES["patch_size"] ** 2
    fans_in = {"patch": d_patch, "patch_bias": d_patch, "W_O": inner, "W_2": m, "b_2": m}
    weights = {}
    for name, shape in shapes(SIZES, image_shape, N_CLASSES).items():
        no_layer = name.startswith(("norm", "positions", "class_token"))
        if name == "positions":
            W = 0.1 * torch.randn(shape, generator=draw)
        elif no_layer:
            W = torch.zeros(shape) if name.endswith(("token", "bias")) else torch.ones(shape)
        else:
            W = (2 * torch.rand(shape, generator=draw) - 1) / math.sqrt(fans_in.get(name, d))
        kept = name.startswith("patch") or (no_layer and scaled == "layers")
        weights[name] = (W if kept else scale * W).double().requires_grad_()
    return weights


def orthogonalised(name, G, muon_of):
    """What Muon makes of the mean of a matrix of every layer: whole, or head by head."""

    def by_svd(G):
        U, sigma, Vh = np.linalg.svd(G.numpy(), full_matrices=False)
        sigma = sigma / np.sqrt((sigma**2).sum())
        for _ in range(5):
            sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
        return 0.2 * max(G.shape) ** 0.5 * torch.from_numpy((U * sigma) @ Vh)

    def of_layer(g):
        if name in ("W_1", "W_2"):
            return by_svd(g)
        if muon_of == "heads":
            return torch.stack([by_svd(head) for head in g])
        return torch.stack(by_svd(torch.cat(list(g), 1)).split(g.shape[-1], 1))

    return torch.stack([of_layer(g) for g in G])


def repeated(
    data,
    params,
    seed,
    init_scale,
    labels="true",
    optimizer="adam",
    learning_rate=None,
    scaled="layers",
    weight_decay=0,
    muon_of="matrices",
):
    """A training in float64, as (weights, row) at the saved steps."""
    images, test = data["train_images"], standardised(data["test_images"], data["train_images"])
    y = data["train_labels"]
    if labels == "permuted":
        y = y[torch.randperm(len(y), generator=generator(seed, "permuted labels"))]
    weights, losses = initial(seed, init_scale, scaled, images.shape[1:]), []
    means, squares = dict.fromkeys(weights, 0), dict.fromkeys(weights, 0)
    n_steps, warmup, size = params["n_steps"], params["warmup_steps"], params["batch_size"]
    for step in range(n_steps + 1):
        if step in SAVED:
            loss, accuracy = scored(weights, test, data["test_labels"])
            row = {
                "step": step,
                "train_loss": np.mean(losses or np.nan),
                "test_loss": loss,
                "test_accuracy": accuracy,
            }
            yield {name: w.detach() for name, w in weights.items()}, row
            losses = []
        epoch, batch = divmod(step, len(y) // size)
        chosen = torch.randperm(len(y), generator=generator(seed, "order", epoch))[batch * size :][
            :size
        ]
        x = standardised(augmented(images, params, seed, epoch)[chosen], images)
        loss = cross_entropy(logits(weights, x), y[chosen])
        losses.append(loss.item())
        rate = learning_rate or params["learning_rate"]
        if step < warmup:
            rate *= (step + 1) / warmup
        elif n_steps > warmup:
            rate *= (1 + math.cos(math.pi * (step - warmup) / (n_steps - warmup))) / 2
        gradients = torch.autograd.grad(loss, list(weights.values()))
        for (name, w), change in zip(weights.items(), gradients, strict=True):
            if optimizer == "muon" and name in ("W_Q", "W_K", "W_V", "W_O", "W_1", "W_2"):
                means[name] = 0.95 * means[name] + 0.05 * change
                change = orthogonalised(name, 0.95 * means[name] + 0.05 * change, muon_of)
            elif optimizer != "sgd":
                means[name] = 0.9 * means[name] + 0.1 * change
                squares[name] = 0.999 * squares[name] + 0.001 * change**2
                mean, square = (
                    means[name] / (1 - 0.9 ** (step + 1)),
                    squares[name] / (1 - 0.999 ** (step + 1)),
                )
                change = mean / (square.sqrt() + 1e-8) + weight_decay * w.detach()
            weights[name] = (w - rate * change).detach().requires_grad_()


def augmented(images, params, seed, epoch):
    """The images of an epoch: cropped and mirrored one by one, then changed one by one by
    Pillow.
    """
    height, width = images.shape[2:]
    if params["augmentation"] == "crop_flip":
        padding = width // 8
        n = 2 * padding + 1
        draws = torch.randint(
            0, 2 * n * n, (len(images),), generator=generator(seed, "crop and flip", epoch)
        )
        shifted = []
        for image, number in zip(pad(images, [padding] * 4), draws.tolist(), strict=True):
            down, across, mirrored = number // 2 // n, number // 2 % n, number % 2
            window = image[:, down : down + height, across : across + width]
            shifted.append(window.flip(2) if mirrored else window)
        images = torch.stack(shifted)
    if "randaugment" in params:
        draw = generator(seed, "randaugment", epoch)
        changes = [change for signs in PILLOW for change in signs]
        for _ in range(params["randaugment"]["n_operations"]):
            draws = torch.randint(0, len(changes), (len(images),), generator=draw).tolist()
            pictures = [
                Image.fromarray(pixels)
                for pixels in images.permute(0, 2, 3, 1).contiguous().numpy()
            ]
            changed = [
                np.asarray(changes[k](picture)) for k, picture in zip(draws, pictures, strict=True)
            ]
            images = torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)
    return images


def moved(*matrix):
    return lambda image: image.transform(
        image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST
    )


def blended(enhancer):
    return [lambda image, factor=factor: enhancer(image).enhance(factor) for factor in (1.75, 0.25)]


# torchvision's 14 operations, each with both signs, on 8 × 16 pixels at magnitude 25 of 30. There
# the factors of blends are binary fractions, so that every machine rounds alike.
PILLOW = [
    2 * [lambda image: image],
    [moved(1, x, 0, 0, 1, 0) for x in (0.25, -0.25)],
    [moved(1, 0, 0, x, 1, 0) for x in (0.25, -0.25)],
    [moved(1, 0, x, 0, 1, 0) for x in (6, -6)],
    [moved(1, 0, 0, 0, 1, x) for x in (3, -3)],
    [lambda image, x=x: image.rotate(x, Image.Resampling.NEAREST) for x in (25, -25)],
    blended(ImageEnhance.Brightness),
    blended(ImageEnhance.Color),
    blended(ImageEnhance.Contrast),
    blended(ImageEnhance.Sharpness),
    2 * [lambda image: ImageOps.posterize(image, 5)],
    2 * [lambda image: ImageOps.solarize(image, 42.5)],
    2 * [ImageOps.autocontrast],
    2 * [ImageOps.equalize],
]


def assert_repeats(run, data, params, control, variant, atol=1e-6):
    """Layout, snapshots and rows are those of trainings repeated from the seeds; gives the rows."""
    layout, snapshots, steps = read_run(run)
    cell = {"variant": run.name, "init_scale": variant["init_scale"], "control": control}
    seeds = [params["first_seed"] + i for i in range(params["n_seeds"])]
    described = {"gauge": {}, "cell": cell, "seeds": seeds, "format": "transformer dynamics run 1"}
    assert layout == LAYOUT | described
    trainings = [list(repeated(data, params, seed, **variant)) for seed in seeds]
    assert len(snapshots) == len(trainings[0])
    rows = []
    for number, (found, parts) in enumerate(
        zip(snapshots, zip(*trainings, strict=True), strict=True)
    ):
        rows += [
            {"snapshot": number, "seed": s, **row} for s, (_, row) in zip(seeds, parts, strict=True)
        ]
        for name, wanted in parts[0][0].items():
            wanted = torch.stack([weights[name] for weights, _ in parts]).float()
            # single precision, whose errors Adam carries from step to step
            torch.testing.assert_close(found.pop(name), wanted, rtol=1e-5, atol=atol)
        assert found == {}
    pd.testing.assert_frame_equal(steps, pd.DataFrame(rows), rtol=1e-5, check_like=True)
    return steps


def test_every_variant_is_trained_from_every_seed_as_autograd_trains_it(train, data, tmp_path):
    (tmp_path / "runs" / "old").mkdir(parents=True)
    runs = train(PARAMS)
    assert sorted(path.name for path in runs.iterdir()) == sorted(VARIANTS)
    for name, (control, variant) in VARIANTS.items():
        steps = assert_repeats(runs / name, data, PARAMS, control, variant)
        assert list(steps["step"].unique()) == SAVED


@pytest.mark.parametrize("more", [{}, {"randaugment": RANDAUGMENT}])
def test_images_are_augmented_anew_in_every_epoch(train, data, more):
    params = ONE | {"augmentation": "crop_flip"} | more
    assert_repeats(train(params) / ONLY, data, params, "none", {"init_scale": 1.5})


def test_one_batch_may_be_all_images_and_all_steps_warm_up(train, data):
    params = ONE | {"batch_size": 13, "n_steps": 2, "warmup_steps": 2, "snapshot_every": 1}
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


@pytest.mark.parametrize("n", [3, 50])
def test_trainings_together_are_those_alone(train, data, updates, n):
    """Eight with two optimisers, of which the one with its own rate takes its own updates."""
    runs = train(PARAMS | {"cells_together": n, "augmentation": "crop_flip"})
    assert updates.made == 5 * {3: 2 + 1 + 1, 50: 3}[n]
    for name, (control, variant) in VARIANTS.items():
        assert_repeats(
            runs / name, data, PARAMS | {"augmentation": "crop_flip"}, control, variant, atol=3e-6
        )


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


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("control", MORE)
def test_other_optimisers_train_as_written_out_alone_and_together(train, data, control, n):
    name = {"adamw": "adamw", "muon": "heads" if "heads" in control else "muon"}[
        MORE[control]["optimizer"]
    ]
    params = ONE | {"init_scales": [], "controls": [name], "n_seeds": 2, "cells_together": n}
    runs = train(params, MORE_TABLE)
    assert_repeats(
        runs / f"{ONLY},{control}",
        data,
        params,
        control,
        {"init_scale": 1.5, **MORE[control]},
        atol=3e-6,
    )


@pytest.mark.parametrize("name", ["adamw", "muon", "heads"])
def test_other_optimisers_go_on_where_they_were_interrupted(
    train, updates, hasty, capsys, tmp_path, name
):
    params = ONE | {"init_scales": [], "controls": [name]}
    updates.allowed = 4
    with pytest.raises(KeyboardInterrupt):
        train(params, MORE_TABLE)
    updates.made, updates.allowed = 0, math.inf
    resumed = files_of(train(params, MORE_TABLE))
    assert updates.made == 1
    assert "resumed at step 4: " in capsys.readouterr().err
    shutil.rmtree(tmp_path / ".dvc" / "tmp" / "scratch")
    assert files_of(train(params, MORE_TABLE)) == resumed
    assert updates.made == 1 + 5


def files_of(runs):
    return {file.relative_to(runs): file.read_bytes() for file in runs.rglob("*") if file.is_file()}


@pytest.mark.parametrize(
    ("name", "got"), [("decayed", "0.5 of muon"), ("plain adamw", "None of adamw")]
)
def test_weight_decay_is_of_adamw_alone(train, name, got):
    table = MORE_TABLE.splitlines(keepends=True)[0] + REFUSED[name]
    with pytest.raises(
        InputError, match=rf"line 2: weight_decay: wanted it of adamw alone, got {got}"
    ):
        train(ONE | {"init_scales": [], "controls": [name]}, table)


class Unread(Checkpoints):
    """In place of checkpoints: what is saved is counted, and no number is read."""

    def __init__(self):
        self.saved, self.written = [], 0

    def steps(self):
        return []

    def due(self):
        return True

    def save(self, step, weights, scores):
        assert {tensor.device.type for tensor in [*weights.values(), *scores.values()]} == {"meta"}
        assert all(tensor.shape == () for tensor in scores.values())
        self.saved.append((step, sorted(scores)))

    def checkpoint(self, step, tensors):
        assert {tensor.device.type for tensor in tensors.values()} == {"meta"}
        self.written += 1


@pytest.mark.parametrize(("n", "rule"), [(1, {}), (2, MORE["optimizer=muon,muon_of=heads"])])
def test_the_loop_neither_reads_a_number_from_its_device_nor_mixes_devices(
    data, monkeypatch, n, rule
):
    """On a device that holds no numbers either is an error: a GPU would wait at the first, and fail
    at the second.

    Four steps are two epochs, so that images are augmented anew as well. (There torch has neither
    autocast nor its fused plain descent.)
    """
    from stages.vision import train as stage

    monkeypatch.setattr(stage, "use_device", lambda *_: torch.device("meta"))
    changes = {"n_steps": 4, "augmentation": "crop_flip", "model": ViT(**SIZES)}
    fields = {
        key: value
        for key, value in (PARAMS | changes).items()
        if key in stage.Train.__dataclass_fields__
    }
    params = stage.Train(**fields, randaugment=stage.RandAugment(**RANDAUGMENT))
    variant = stage.Variant(**{"init_scale": 0.5, "labels": "permuted", **rule})
    cells = {stage.Training(variant, seed): Unread() for seed in range(n)}
    stage.train(Images(**data), params, cells)
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


class Curves:
    """In place of DVCLive: what each training drew, by its folder."""

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


@pytest.fixture
def hasty(monkeypatch):
    """A clock of which each look takes a hundred times as long as all before: every checkpoint is
    due.
    """
    now = [1]

    def monotonic():
        now[0] *= 100
        return now[0]

    monkeypatch.setattr(time, "monotonic", monotonic)


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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"device": "cuda"}, "device: wanted cuda, got .* sees no GPU"),
        ({"device": "cuda:1"}, "device: wanted cuda:1, got .* sees no GPU"),
        (
            {"device": "gpu"},
            "device: wanted cpu, cuda, or the number of a GPU as in cuda:1, got 'gpu'",
        ),
        ({"batch_size": 14}, "batch_size: wanted at most 13 images, got 14"),
        ({"model": SIZES | {"patch_size": 3}}, "patch_size: wanted a divisor of 8 and 16, got 3"),
        ({"warmup_steps": 6}, "warmup_steps: wanted at most n_steps, got 6"),
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
