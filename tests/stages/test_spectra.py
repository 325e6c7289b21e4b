"""The common stage of spectra: every singular value of every update, against numpy's on the whole
matrices.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch

from tests.stages.made import files, generator, read_run, write_run

NULL_SEED = 0
SEEDS, LAYERS, HEADS, STEPS = [4, 2], 2, 3, [0, 5, 20]
PER_HEAD = ["seed", "layer", "head", "row", "col"]
MATRICES = {"W_K": PER_HEAD, "W_Q": PER_HEAD, "W": ["seed", "row", "col"]}
CELL = {"init_scale": 0.5, "labels": "true"}


def shape(name):
    return (len(SEEDS), 6, 4) if name == "W" else (len(SEEDS), LAYERS, HEADS, 6, 2)


@pytest.fixture
def run(tmp_path):
    """A run of two seeds: a matrix, and a product of two factors in every layer and head, at three
    steps.
    """
    draw = torch.Generator().manual_seed(0)
    weights = [{name: torch.randn(shape(name), generator=draw) for name in MATRICES} for _ in STEPS]
    rows = [
        {"snapshot": i, "seed": seed, "step": step}
        for i, step in enumerate(STEPS)
        for seed in SEEDS
    ]
    layout = {
        "family": "any",
        "matrices": MATRICES,
        "products": {"W_KQ": ["W_K", "W_Q"]},
        "cell": CELL,
        "seeds": SEEDS,
    }
    return write_run(tmp_path / "runs" / "one", layout, weights, rows)


def gaussians(weights):
    """The last weights with each update replaced by a Gaussian of the same norm, matrix by
    matrix.
    """
    null = {}
    for name in MATRICES:
        first, last = (weights[i][name].double() for i in (0, -1))
        noise = torch.randn(
            shape(name), generator=generator(NULL_SEED, "one", name), dtype=torch.float64
        )
        norms = [torch.linalg.matrix_norm(W, keepdim=True) for W in (last - first, noise)]
        null[name] = first + noise * norms[0] / norms[1]
    return null


def expected(weights):
    """Every row that the table must have, by what it is of, with its singular values."""
    updates = [("update", step, state) for step, state in zip(STEPS[1:], weights[1:], strict=True)]
    for of, step, state in [
        ("initial", 0, weights[0]),
        *updates,
        ("gaussian", STEPS[-1], gaussians(weights)),
    ]:
        for matrix, i in itertools.product([*MATRICES, "W_KQ"], range(len(SEEDS))):
            W = whole(state, matrix, i) - (0 if of == "initial" else whole(weights[0], matrix, i))
            places = [()] if matrix == "W" else np.ndindex(LAYERS, HEADS)
            for place in places:
                layer, head = (n + 1 for n in place) if place else (0, 0)
                yield (of, step, matrix, SEEDS[i], layer, head), np.linalg.svd(W[place])[1]


def whole(weights, matrix, i):
    """A matrix or the product of one seed, in every layer and head."""
    if matrix == "W_KQ":
        return np.einsum("lhij,lhkj->lhik", whole(weights, "W_K", i), whole(weights, "W_Q", i))
    return weights[matrix].double().numpy()[i]


def test_every_row_is_what_numpy_says_of_the_whole_matrices(stage, run, tmp_path, monkeypatch):
    monkeypatch.setattr("stages.spectra.TOGETHER", 2)  # of three snapshots
    stage("spectra", {}, run.parent, tmp_path / "s")
    table = pd.read_parquet(tmp_path / "s")
    rows = {(r.of, r.step, r.matrix, r.seed, r.layer, r.head): r for r in table.itertuples()}
    wanted = dict(expected(read_run(run)[1]))
    assert len(table) == len(rows)
    assert rows.keys() == wanted.keys()
    for key, sigma in wanted.items():
        found = rows[key]
        kept = len(found.singular_values)  # of a product, those that its factors leave
        np.testing.assert_allclose(found.singular_values, sigma[:kept], atol=1e-12)
        np.testing.assert_allclose(sigma[kept:], 0, atol=1e-12)
        assert (found.init_scale, found.labels) == (0.5, "true")
    assert {len(s) for s in table[table["matrix"] == "W_KQ"]["singular_values"]} == {2, 4}
    assert set(table) == {*CELL, "matrix", "of", "step", "seed", "layer", "head", "singular_values"}
    assert files(tmp_path) == ["params.yaml", *(f"runs/one/{name}" for name in files(run)), "s"]


@pytest.mark.parametrize(
    ("axes", "seeds"), [([], []), ([], [7]), (["seed"], [7, 9]), (["seed", "layer", "head"], [7])]
)
def test_an_update_is_measured_wherever_it_stands(axes, seeds, stage, tmp_path):
    start, update = (
        torch.diag(torch.tensor([3.0, 2.0, 0.0])),
        torch.diag(torch.tensor([0.0, 0.0, 4.0])),
    )
    stack = [{"seed": len(seeds), "layer": 2, "head": 3}[axis] for axis in axes]
    layout = {"family": "any", "matrices": {"W": [*axes, "row", "col"]}, "seeds": seeds}
    snapshots = [{"W": W.expand(*stack, 3, 3)} for W in (start, start + update)]
    steps = [{"snapshot": i, "time": 2.5 * i} for i in range(2)]  # of a flow: its clock is the time
    write_run(tmp_path / "runs" / "one", layout, snapshots, steps)
    stage("spectra", {}, tmp_path / "runs", tmp_path / "s")
    table = pd.read_parquet(tmp_path / "s")
    rows = table[table["of"] == "update"]
    wanted = [
        (seed, layer, head) for seed in seeds or [0] for layer in (1, 2) for head in (1, 2, 3)
    ]
    places = wanted if "layer" in axes else [(seed, 0, 0) for seed in seeds or [0]]
    assert [tuple(place) for place in rows[["seed", "layer", "head"]].to_numpy()] == places
    assert rows["time"].tolist() == [2.5] * len(places)
    for sigma in rows["singular_values"]:
        assert sigma == pytest.approx([4, 0, 0], abs=1e-12)
