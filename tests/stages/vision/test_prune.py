"""Pruned weights, neurons and heads of a made vision transformer: every row is scored anew on a model cut by loops."""

import pandas as pd
import pytest
import torch
from made import files, generator
from vit_made import (
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

from lib.io.files import InputError

SECTION, N_IMAGES, RATES, RANDOM_SEED = "vision.any.prune", 29, [0.45, 0, 0.9], 6
PARAMS = {
    "device": "cpu",
    "runs": ["c", "a", "absent"],
    "n_images": N_IMAGES,
    "rates": RATES,
    "random_seed": RANDOM_SEED,
}
MATRICES = (*ATTENTION, "W_1", "W_2")


@pytest.fixture
def data(tmp_path):
    return make_images(tmp_path / "images", 13, 40, N_CLASSES, IMAGE_SHAPE)


@pytest.fixture
def runs(tmp_path):
    """Three runs; their last snapshots, by name."""
    return {name: snapshots[-1] for name, snapshots in write_runs(tmp_path / "runs", 2, seed=8).items()}


def ordered(magnitudes, order, source):
    """Places in the order of their removal."""
    if order == "random":
        return torch.randperm(len(magnitudes), generator=source).tolist()
    return sorted(range(len(magnitudes)), key=lambda k: magnitudes[k], reverse=order == "largest")


def without_weights(model, rate, order, source):
    """The model with that share of all weights of its matrices at zero, whichever matrix they are of."""
    flat = torch.cat([model[name].flatten() for name in MATRICES])
    if order == "random":  # the place of each weight in the order is drawn
        first = sorted(range(len(flat)), key=torch.randperm(len(flat), generator=source).tolist().__getitem__)
    else:
        first = ordered(flat.abs().tolist(), order, source)
    flat[first[: round(rate * len(flat))]] = 0
    parts = flat.split([model[name].numel() for name in MATRICES])
    return model | {name: part.view_as(model[name]) for name, part in zip(MATRICES, parts, strict=True)}


def without_units(model, importance, axes, rate, order, source):
    """The model without that share of units in every layer; `axes` are those of a layer's tensors that count units."""
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


def expected(data, made):
    """Every row of the table: of the chosen runs by name, their seeds, what is removed, the orders and the rates."""
    images = standardised(data["test_images"][:N_IMAGES], data["train_images"])
    labels = data["test_labels"][:N_IMAGES]
    removals = {"weights": without_weights, "neurons": without_neurons, "heads": without_heads}
    for name in ("a", "c"):
        for i, seed in enumerate(SEEDS[name]):
            model = {key: tensor[i] for key, tensor in made[name].items()}
            n_weights = sum(w.numel() for w in model.values())
            for what, remove in removals.items():
                for order in ("smallest", "random", "largest"):
                    for rate in RATES:
                        pruned = remove(model, rate, order, generator(RANDOM_SEED, what, seed))
                        loss, accuracy = scored(pruned, images, labels)
                        yield {
                            "what": what,
                            "order": order,
                            "rate": rate,
                            "test_loss": loss,
                            "test_accuracy": accuracy,
                            "parameters": sum(w.numel() for w in pruned.values()) / n_weights,
                            "flops": operations(pruned, IMAGE_SHAPE) / operations(model, IMAGE_SHAPE),
                            **CELLS[name],
                            "seed": seed,
                        }


def test_every_pruning_scores_as_a_model_cut_by_loops_does(stage, data, runs, tmp_path):
    before = files(tmp_path)
    stage("vision.prune", {SECTION: PARAMS}, SECTION, tmp_path / "images", tmp_path / "runs", tmp_path / "t")
    table, wanted = pd.read_parquet(tmp_path / "t"), pd.DataFrame(expected(data, runs))
    # single precision scores; columns and rows in their order
    pd.testing.assert_frame_equal(table, wanted, rtol=1e-5)
    removed = wanted[wanted["rate"] > 0]
    assert removed.groupby(["what", "rate"])["test_loss"].nunique().min() >= 3  # every removal shows
    assert wanted["test_accuracy"].nunique() > 5
    assert files(tmp_path) == sorted([*before, "params.yaml", "t"])


def test_a_model_without_heads_neither_holds_nor_uses_them(stage, data, runs, tmp_path):
    params = PARAMS | {"runs": ["b"], "n_images": 100, "rates": [1]}
    stage("vision.prune", {SECTION: params}, SECTION, tmp_path / "images", tmp_path / "runs", tmp_path / "t")
    rows = pd.read_parquet(tmp_path / "t").set_index(["what", "order"])
    model = {name: tensor[0] for name, tensor in runs["b"].items()}
    headless = model | {name: torch.zeros_like(model[name]) for name in ATTENTION}
    wanted = scored(headless, standardised(data["test_images"], data["train_images"]), data["test_labels"])
    found = rows.loc[("heads", "largest")]
    assert (found["test_loss"], found["test_accuracy"]) == pytest.approx(wanted, rel=1e-5)
    numbers = {name: tensor.numel() for name, tensor in model.items()}
    gone = sum(numbers[name] for name in ATTENTION)
    assert found["parameters"] == pytest.approx(1 - gone / sum(numbers.values()), rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"runs": ["absent"]}, r"vision.any.prune.runs: wanted some of \['a', 'b', 'c'\].* got \['absent'\]"),
        ({"device": "cuda"}, "device: wanted cuda, got a machine on which torch sees no GPU"),
        ({"rates": [1.5]}, "rates"),
    ],
)
def test_what_cannot_be_pruned_is_refused_and_nothing_is_written(
    stage, data, runs, tmp_path, monkeypatch, changes, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    paths = tmp_path / "images", tmp_path / "runs", tmp_path / "t"
    with pytest.raises(InputError, match=message):
        stage("vision.prune", {SECTION: PARAMS | changes}, SECTION, *paths)
    assert not (tmp_path / "t").exists()
