"""Cuts of made vision transformers: every row is scored anew on matrices that numpy cut, or on a
model cut by loops.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from lib.vision.tables.cut import PRUNE, TRUNCATE
from tests.stages.made import files, generator
from tests.vision.vit_made import (
    ATTENTION,
    CELLS,
    IMAGE_SHAPE,
    N_CLASSES,
    SEEDS,
    make_images,
    operations,
    scored,
    standardised,
    write_runs,
)

SECTION, N_IMAGES, RANDOM_SEED = "vision.any.cut", 31, 6
RANKS = [0, 1, 2, 4, 8, 10]  # powers of two, and that of all matrices over all heads: the width
RATES = [0, 0.45, 0.9]
PARAMS = {
    "init_scales": [7, 3, 0.5, 2],  # 7 was not trained, of 2 there is a control alone
    "n_images": N_IMAGES,
}
SHARED = {"rate_step": 0.45, "random_seed": RANDOM_SEED}
MATRICES = (*ATTENTION, "W_1", "W_2")


@pytest.fixture
def data(tmp_path):
    return make_images(tmp_path / "images", 13, 40, N_CLASSES, IMAGE_SHAPE)


@pytest.fixture
def runs(tmp_path):
    """Three runs; their snapshots, by name."""
    return write_runs(tmp_path / "runs", 3, seed=5)


@pytest.fixture
def cuts(stage, data, runs, tmp_path):
    """Call `cuts(**changes)` runs the stage; it returns the tables of truncations and prunings."""

    def run(device="cpu", rate_step=0.45, **changes):
        params = {key: value for key, value in (PARAMS | changes).items() if value is not None}
        sections = {
            SECTION: params,
            "vision.cut": SHARED | {"rate_step": rate_step},
            "vision.any.train.device": device,
        }
        tables = tmp_path / "truncate", tmp_path / "prune"
        stage("vision.cut", sections, *sections, tmp_path / "images", tmp_path / "runs", *tables)
        return [pd.read_parquet(table) for table in tables]

    return run


def cut(W_0, W, rank):
    """In every layer the initial matrix plus the update's first singular directions, of all heads
    side by side.
    """
    layers = []
    for first, last in zip(W_0.double().numpy(), W.double().numpy(), strict=True):
        heads = len(last) if last.ndim == 3 else 1
        first, last = (
            M.reshape(heads, -1, M.shape[-1]).swapaxes(0, 1).reshape(M.shape[-2], -1)
            for M in (first, last)
        )
        U, sigma, Vt = np.linalg.svd(last - first, full_matrices=False)
        whole = first + sum(
            sigma[k] * np.outer(U[:, k], Vt[k]) for k in range(min(rank, len(sigma)))
        )
        layers.append(np.stack(np.split(whole, heads, 1)).reshape(W.shape[1:]))
    return torch.from_numpy(np.stack(layers))


def ordered(magnitudes, order, source):
    """Places in the order of their removal."""
    if order == "random":
        return torch.randperm(len(magnitudes), generator=source).tolist()
    return sorted(range(len(magnitudes)), key=lambda k: magnitudes[k], reverse=order == "largest")


def without_weights(model, rate, order, source):
    """The model with that share of all weights of its matrices at zero, whichever matrix they are
    of.
    """
    flat = torch.cat([model[name].flatten() for name in MATRICES])
    first = ordered(flat.abs().tolist(), order, source)
    if order == "random":  # the place of each weight in the order is drawn
        first = torch.tensor(first).argsort().tolist()
    flat[first[: round(rate * len(flat))]] = 0
    parts = flat.split([model[name].numel() for name in MATRICES])
    return model | {
        name: part.view_as(model[name]) for name, part in zip(MATRICES, parts, strict=True)
    }


def without_units(model, importance, axes, rate, order, source):
    """The model without that share of units in every layer; `axes` are those of a layer's tensors
    that count units.
    """
    kept = []
    for magnitudes in importance:
        places = ordered(magnitudes, order, source)
        kept.append(torch.tensor(sorted(places[round(rate * len(places)) :]), dtype=torch.int64))
    smaller = {}
    for name, axis in axes.items():
        layers = zip(model[name], kept, strict=True)
        smaller[name] = torch.stack([layer.index_select(axis, places) for layer, places in layers])
    return model | smaller


def without_neurons(model, *arguments):
    importance = []
    for W_1, W_2 in zip(model["W_1"], model["W_2"], strict=True):
        importance.append([float(W_1[:, k].norm() * W_2[k].norm()) for k in range(len(W_2))])
    return without_units(model, importance, {"W_1": 1, "b_1": 0, "W_2": 0}, *arguments)


def without_heads(model, *arguments):
    importance = []
    for W_V, W_O in zip(model["W_V"], model["W_O"], strict=True):
        importance.append([float((W_V[k] @ W_O[k].T).norm()) for k in range(len(W_V))])
    return without_units(model, importance, dict.fromkeys(ATTENTION, 0), *arguments)


def trained(made):
    """Every run that is cut, by name, and every seed: what labels a row, the first model and the
    last.
    """
    for name in ("b", "c"):
        for i, seed in enumerate(SEEDS[name]):
            initial, final = (
                {key: tensor[i] for key, tensor in made[name][k].items()} for k in (0, -1)
            )
            yield {**CELLS[name], "seed": seed}, initial, final


def scores(model, data, n_images):
    images = standardised(data["test_images"][:n_images], data["train_images"])
    loss, accuracy = scored(model, images, data["test_labels"][:n_images])
    return {"test_loss": loss, "test_accuracy": accuracy}


def truncations(data, made, n_images):
    """Every row of the table: the kinds and the ranks."""
    for labels, initial, final in trained(made):
        for kind in ("all", *MATRICES):
            for rank in RANKS:
                truncated = MATRICES if kind == "all" else [kind]
                model = final | {
                    matrix: cut(initial[matrix], final[matrix], rank) for matrix in truncated
                }
                yield {"kind": kind, "rank": rank, **scores(model, data, n_images), **labels}


def units(model, what):
    """How many weights that are not zero, neurons or heads a model has."""
    if what == "weights":
        return sum(int((model[name] != 0).sum()) for name in MATRICES)
    return model["W_2"].shape[1] if what == "neurons" else model["W_O"].shape[1]


def prunings(data, made, n_images):
    """Every row of the table: what is removed, the orders and the rates."""
    removals = {"weights": without_weights, "neurons": without_neurons, "heads": without_heads}
    for labels, _, model in trained(made):
        n_weights = sum(w.numel() for w in model.values())
        for what, remove in removals.items():
            for order in ("smallest", "random", "largest"):
                for rate in RATES:
                    pruned = remove(
                        model, rate, order, generator(RANDOM_SEED, what, labels["seed"])
                    )
                    yield {
                        "what": what,
                        "order": order,
                        "rate": rate,
                        "removed": 1 - units(pruned, what) / units(model, what),
                        **scores(pruned, data, n_images),
                        "parameters": sum(w.numel() for w in pruned.values()) / n_weights,
                        "flops": operations(pruned, IMAGE_SHAPE) / operations(model, IMAGE_SHAPE),
                        **labels,
                    }


@pytest.mark.parametrize(
    ("given", "n_images", "device"),
    [
        (N_IMAGES, N_IMAGES, "cpu"),
        pytest.param(
            None,
            40,
            "cuda",
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
        ),
    ],
)
def test_every_cut_scores_as_a_model_cut_by_numpy_or_loops_does(
    cuts, data, runs, given, n_images, device
):
    """The scores are in single precision; without `n_images` all images are scored."""
    truncate, prune = cuts(device, n_images=given)
    wanted = pd.DataFrame(truncations(data, runs, n_images), columns=TRUNCATE.required)
    pd.testing.assert_frame_equal(truncate, wanted, rtol=1e-5)
    wanted = pd.DataFrame(prunings(data, runs, n_images), columns=PRUNE.required)
    pd.testing.assert_frame_equal(prune, wanted, rtol=1e-5)
    removed = wanted[wanted["rate"] > 0].groupby(["what", "rate"])["test_loss"]
    assert removed.nunique().min() >= 3, "every removal shows"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"init_scales": [7, 2]},
            r"vision.any.cut.init_scales: wanted some of \[0.5, 3.0\].* got \[7.0, 2.0\]",
        ),
        ({"rate_step": 0}, "rate_step: wanted a number in"),
    ],
)
def test_what_cannot_be_cut_is_refused_and_nothing_is_written(cuts, tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        cuts(**changes)
    assert not {"truncate", "prune"} & set(files(tmp_path))
