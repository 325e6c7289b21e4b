"""Trainings of vision transformers, repeated by autograd through a plain model."""

import math

import numpy as np
import pandas as pd
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch.nn.functional import pad

from lib.work.cells import Checkpoints
from tests.stages.made import generator, read_run
from tests.training.test_sgd import by_svd
from tests.vision.vit_made import (
    LAYOUT,
    SIZES,
    cross_entropy,
    logits,
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


MORE = {  # other optimisers and attention, in a table of their own
    "adamw": ("optimizer=adamw,weight_decay=0.5", {"optimizer": "adamw", "weight_decay": 0.5}),
    "muon": ("labels=permuted,optimizer=muon", {"labels": "permuted", "optimizer": "muon"}),
    "heads": ("optimizer=muon,muon_of=heads", {"optimizer": "muon", "muon_of": "heads"}),
    "normalized": ("attention=qk_norm", {"attention": "qk_norm"}),
}


MORE_TABLE = """\
name\tinit_scale\tlabels\toptimizer\tweight_decay\tmuon_of\tattention
adamw\t1.5\t\tadamw\t0.5\t\tplain
muon\t1.5\tpermuted\tmuon\t\tmatrices\t
heads\t1.5\t\tmuon\t\theads\t
normalized\t1.5\t\t\t\t\tqk_norm
"""


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


ONE = PARAMS | {
    "n_seeds": 1,
    "first_seed": 3,
    "init_scales": [1.5],
    "controls": [],
}  # for what does not differ between variants


SHORT = ONE | {"n_steps": 1, "warmup_steps": 0}


ONLY = "init_scale=1.5"


RANDAUGMENT = {"n_operations": 2, "magnitude": 25}


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

    def change(G):
        return 0.2 * max(G.shape) ** 0.5 * torch.from_numpy(by_svd(G.numpy()))

    def of_layer(g):
        if name in ("W_1", "W_2"):
            return change(g)
        if muon_of == "heads":
            return torch.stack([change(head) for head in g])
        return torch.stack(change(torch.cat(list(g), 1)).split(g.shape[-1], 1))

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
    attention="plain",
):
    """A training in float64, as (weights, row) at the saved steps."""
    images, test = data["train_images"], standardised(data["test_images"], data["train_images"])
    y = data["train_labels"]
    if labels == "permuted":
        y = y[torch.randperm(len(y), generator=generator(seed, "permuted labels"))]
    weights, losses = initial(seed, init_scale, scaled, images.shape[1:]), []
    if attention == "qk_norm":
        gains = torch.full(weights["W_Q"].shape[:2], SIZES["d_head"] ** 0.5, dtype=torch.float64)
        weights["gain_QK"] = gains.requires_grad_()
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
            done = params.get("n_cycles", 1) * (step - warmup) / (n_steps - warmup) % 1
            rate *= (1 + math.cos(math.pi * done)) / 2
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


def files_of(runs):
    return {file.relative_to(runs): file.read_bytes() for file in runs.rglob("*") if file.is_file()}


class Unread(Checkpoints):
    """A stand-in for checkpoints, which counts what is saved and reads no number."""

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
