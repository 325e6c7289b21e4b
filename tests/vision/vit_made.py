"""A vision transformer written anew, loop by loop, and small sets of images; nothing of lib is in
it.
"""

import math
from itertools import product
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from lib.files.inputs import with_digest
from tests.stages.made import write_run

Weights = dict[str, Tensor]
Sizes = dict[str, int]

ATTENTION = ("W_Q", "W_K", "W_V", "W_O")
HEADED, PLAIN = ["seed", "layer", "head", "row", "col"], ["seed", "layer", "row", "col"]
LAYOUT = {
    "family": "vision",
    "matrices": {**dict.fromkeys(ATTENTION, HEADED), "W_1": PLAIN, "W_2": PLAIN},
    "products": {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]},
}
SIZES = {"patch_size": 4, "d_model": 10, "n_heads": 3, "d_head": 4, "d_mlp": 5, "n_layers": 2}

IMAGE_SHAPE, N_CLASSES = (3, 8, 16), 4


def shapes(
    sizes: Sizes, image_shape: tuple[int, int, int], n_classes: int
) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor, in the order in which the initial ones are drawn."""
    p, d, h, e, m, n = (sizes[name] for name in SIZES)
    channels, height, width = image_shape
    d_patch = channels * p * p
    return {
        "patch": (d_patch, d),
        "patch_bias": (d,),
        "positions": (1 + height // p * (width // p), d),
        "class_token": (d,),
        **dict.fromkeys(ATTENTION, (n, h, d, e)),
        "W_1": (n, d, m),
        "b_1": (n, m),
        "W_2": (n, m, d),
        "b_2": (n, d),
        "norm_1": (n, d),
        "norm_1_bias": (n, d),
        "norm_2": (n, d),
        "norm_2_bias": (n, d),
        "norm": (d,),
        "norm_bias": (d,),
        "head": (d, n_classes),
        "head_bias": (n_classes,),
    }


def model(seed: int, **sizes: int) -> Weights:
    """Weights, none of them zero or one, for `IMAGE_SHAPE` and `N_CLASSES`."""
    draw = torch.Generator().manual_seed(seed)
    wanted = shapes(SIZES | sizes, IMAGE_SHAPE, N_CLASSES).items()
    return {name: torch.randn(shape, generator=draw) / 2 for name, shape in wanted}


def biases(seed: int, n_layers: int) -> Weights:
    """Attention biases beside such weights."""
    draw = torch.Generator().manual_seed(seed)
    per_head = (n_layers, SIZES["n_heads"], SIZES["d_head"])
    wanted = {**dict.fromkeys(("b_Q", "b_K", "b_V"), per_head), "b_O": (n_layers, SIZES["d_model"])}
    return {name: torch.randn(shape, generator=draw) for name, shape in wanted.items()}


def normalised(X: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """Layer normalisation (Ba et al. 2016) over the last axis."""
    centred = X - X.mean(-1, keepdim=True)
    return centred / ((centred**2).mean(-1, keepdim=True) + 1e-5).sqrt() * factor + shift


def logits(weights: Weights, images: Tensor) -> Tensor:
    """Class logits of standardised images [n, channel, height, width], every token carried through
    every block.
    """
    n, channels, height, width = images.shape
    d_patch, d_head = weights["patch"].shape[0], weights["W_Q"].shape[-1]
    p = math.isqrt(d_patch // channels)
    places = product(range(0, height, p), range(0, width, p))
    cut = [images[:, :, i : i + p, j : j + p].reshape(n, d_patch) for i, j in places]
    embedded = [piece @ weights["patch"] + weights["patch_bias"] for piece in cut]
    X = torch.stack([weights["class_token"].expand(n, -1), *embedded], 1) + weights["positions"]
    for i in range(len(weights["W_Q"])):
        w = {
            name: tensor[i]
            for name, tensor in weights.items()
            if name.startswith(("W_", "b_", "norm_1", "norm_2"))
        }
        N = normalised(X, w["norm_1"], w["norm_1_bias"])
        biases = [w.get(name, torch.zeros(len(w["W_Q"]), d_head)) for name in ("b_Q", "b_K", "b_V")]
        gains = weights["gain_QK"][i] if "gain_QK" in weights else [None] * len(w["W_Q"])
        for Q, K, V, O, q, k, v, gain in zip(  # noqa: E741 (the paper's letter)
            *(w[name] for name in ATTENTION), *biases, gains, strict=True
        ):
            queries = N @ Q + q
            keys = N @ K + k
            scores = queries @ keys.transpose(1, 2)
            if gain is None:
                scores = scores / math.sqrt(d_head)
            else:
                lengths = queries.norm(dim=-1)[:, :, None] * keys.norm(dim=-1)[:, None]
                scores = scores * gain / lengths
            X = X + scores.softmax(-1) @ (N @ V + v) @ O.T
        X = X + w.get("b_O", 0)
        N = normalised(X, w["norm_2"], w["norm_2_bias"])
        hidden = N @ w["W_1"] + w["b_1"]
        X = X + hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2 @ w["W_2"] + w["b_2"]
    return (
        normalised(X[:, 0], weights["norm"], weights["norm_bias"]) @ weights["head"]
        + weights["head_bias"]
    )


def cross_entropy(Z: Tensor, labels: Tensor) -> Tensor:
    """The mean over the samples."""
    return (Z.logsumexp(1) - Z[torch.arange(len(labels)), labels]).mean()


def scored(weights: Weights, images: Tensor, labels: Tensor) -> tuple[float, float]:
    """Loss and accuracy in float64."""
    Z = logits({name: w.detach().double() for name, w in weights.items()}, images)
    return cross_entropy(Z, labels).item(), (Z.argmax(1) == labels).double().mean().item()


def operations(weights: Weights, image_shape: tuple[int, int, int]) -> int:
    """Multiplications and additions of the matrix products for one image; in the last block one
    token alone asks.
    """
    n_layers, n_heads, d, e = weights["W_Q"].shape
    n_tokens, m = len(weights["positions"]), weights["W_1"].shape[2]
    products = [(n_tokens - 1, *weights["patch"].shape), (1, *weights["head"].shape)]
    for layer in range(n_layers):
        asking = 1 if layer == n_layers - 1 else n_tokens
        queries_and_outputs, keys_and_values = 2 * [(asking, d, e)], 2 * [(n_tokens, d, e)]
        looks = [(asking, e, n_tokens), (asking, n_tokens, e)]
        products += n_heads * (queries_and_outputs + keys_and_values + looks) + [
            (asking, d, m),
            (asking, m, d),
        ]
    return sum(2 * rows * inner * columns for rows, inner, columns in products)


def make_images(
    path: Path,
    n_train: int,
    n_test: int,
    n_classes: int,
    shape: tuple[int, int, int],
    seed: int = 0,
) -> dict[str, Tensor]:
    """Write a set of images into a folder; test images are brighter, and the channels differ.

    So no mean passes for another. The largest class is found in the test part alone.
    """
    draw = torch.Generator().manual_seed(seed)
    brightest = torch.tensor([90.0, 140.0, 200.0])[: shape[0], None, None]
    train, test = (torch.rand(n, *shape, generator=draw) * brightest for n in (n_train, n_test))
    tensors = {
        "train_images": train.byte(),
        "train_labels": torch.randint(0, n_classes - 1, (n_train,), generator=draw),
        "test_images": (test + 55).byte(),
        "test_labels": torch.randint(0, n_classes, (n_test,), generator=draw),
    }
    tensors["test_labels"][0] = n_classes - 1
    path.mkdir(exist_ok=True)
    (path / "images.safetensors").write_bytes(with_digest(save(tensors)))
    return tensors


def standardised(images: Tensor, train: Tensor) -> Tensor:
    """Images in float64, every channel less its mean over the training images and over its standard
    deviation there.
    """
    channels = []
    for c in range(images.shape[1]):
        pixels = train[:, c].double()
        channels.append((images[:, c].double() - pixels.mean()) / pixels.std(correction=0))
    return torch.stack(channels, 1)


# Three runs, of which the plain ones are cut.
CELLS = {
    "a": {"variant": "a", "init_scale": 2.0, "control": "labels=permuted"},
    "b": {"variant": "b", "init_scale": 0.5, "control": "none"},
    "c": {"variant": "c", "init_scale": 3.0, "control": "none"},
}
SEEDS = {"a": [7], "b": [1], "c": [4, 1]}


def write_runs(folder: Path, n_snapshots: int, seed: int) -> dict[str, list[dict[str, Tensor]]]:
    """Write runs in whose snapshots every tensor changes; the snapshots of each.

    The first neuron of a layer is fed most and feeds least: the smallest by the product, the
    largest by the sum.
    """
    draw = torch.Generator().manual_seed(seed)
    wanted = shapes(SIZES, IMAGE_SHAPE, N_CLASSES).items()
    made = {}
    for name, seeds in SEEDS.items():
        made[name] = [
            {
                tensor: torch.randn(len(seeds), *shape, generator=draw) / 2
                for tensor, shape in wanted
            }
            for _ in range(n_snapshots)
        ]
        for snapshot in made[name]:
            snapshot["W_1"][..., 0] *= 4
            snapshot["W_2"][..., 0, :] /= 10
        steps = [
            {"snapshot": i, "seed": one, "step": 5 * i} for i in range(n_snapshots) for one in seeds
        ]
        write_run(folder / name, {**LAYOUT, "cell": CELLS[name], "seeds": seeds}, made[name], steps)
    return made
