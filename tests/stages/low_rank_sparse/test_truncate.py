"""The stage truncate: every cut and every direction, against the paper's model in loops and numpy's decomposition."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from low_rank_sparse_runs import CELLS, KEYS, MATRICES, SEEDS, forward, of_seed, write_runs, write_samples
from made import files
from safetensors.numpy import save_file

from lib.io.files import InputError

SECTION = "any.family.truncate"
RANKS, ALONE = [3, 0, 9], [5, 1]  # 9 is beyond the sizes of all matrices


def best(W, rank):
    """The best approximation at a rank: the sum of the leading singular pairs."""
    U, sigma, Vh = np.linalg.svd(W)
    return sum((sigma[i] * np.outer(U[:, i], Vh[i]) for i in range(min(rank, len(sigma)))), np.zeros_like(W))


def cuts(first, last):
    """Every (kind, rank) with its weights."""
    update = {name: last[name] - first[name] for name in MATRICES}
    for rank in RANKS:
        yield ("all", rank), {name: first[name] + best(update[name], rank) for name in MATRICES}
    for rank in ALONE:
        yield ("weights, not updates", rank), {name: best(last[name], rank) for name in MATRICES}
        for kind, names in (("W_Q and W_K", ["W_Q", "W_K"]), ("W_V", ["W_V"]), ("W_O", ["W_O"])):
            yield (kind, rank), {name: first[name] + best(update[name], rank) for name in names}
    third = {name: best(update[name], 4) - best(update[name], 2) for name in MATRICES}
    yield ("pairs 3 and 4", 2), {name: first[name] + third[name] for name in MATRICES}


def scored(weights, samples):
    """What is measured on samples, each by itself."""
    margin, of_all, of_relevant = [], [], []
    for X, y, relevant in samples:
        F, attention = forward(weights, X)
        margin.append(F if y == 0 else -F)
        of_all.append(np.mean([row[relevant].sum() for row in attention]))
        of_relevant.append(np.mean([row[relevant].sum() for row in attention[relevant]]))
    return {
        "hinge": np.mean([max(0, 1 - value) for value in margin]),
        "accuracy": np.mean([value > 0 for value in margin]),
        "margin": np.mean(margin),
        "least_margin": min(margin),
        "attention": np.mean(of_all),
        "attention_of_relevant": np.mean(of_relevant),
    }


def squared_cosines(span, columns):
    """How much of the columns' squares lies in the span of the rows, by least squares."""
    inside = span.T @ np.linalg.lstsq(span.T, columns, rcond=None)[0]
    return (inside**2).sum() / (columns**2).sum()


def directions(mu, first, now):
    """Every (matrix, side, span) with how the update lies to the span."""
    tokens = np.eye(mu.shape[1])
    images = {  # what the sides of an update, a matrix that acts on rows from the right, are compared with
        ("W_Q", "input"): tokens,
        ("W_Q", "output"): first["W_K"],
        ("W_K", "input"): tokens,
        ("W_K", "output"): first["W_Q"],
        ("W_V", "input"): tokens,
        ("W_V", "output"): first["W_V"],
        ("W_O", "input"): first["W_V"],
    }
    spans = {"discriminative": [mu[0], mu[1]], "with mean irrelevant": [mu[0], mu[1], sum(mu[2:]) / len(mu[2:])]}
    for (name, side), image in images.items():
        update = now[name] - first[name]
        U, _, Vh = np.linalg.svd(update)
        left = side == "input" and name != "W_O"  # a neuron's input is along the row of W_O
        for span, vectors in spans.items():
            leading, whole = (U[:, :2], update) if left else (Vh[:2].T, update.T)
            span_of_images = np.array(vectors) @ image
            yield (
                (name, side, span),
                {
                    "alignment": squared_cosines(span_of_images, leading),
                    "energy": squared_cosines(span_of_images, whole),
                },
            )


@pytest.fixture
def made(tmp_path):
    samples = write_samples(tmp_path / "samples")
    return samples, write_runs(tmp_path / "runs", samples)


@pytest.fixture
def truncate(stage, tmp_path):
    def run(device="cpu"):
        params = {SECTION: {"device": device, "ranks": RANKS, "ranks_alone": ALONE}}
        paths = [tmp_path / name for name in ("samples", "runs", "cuts", "directions")]
        stage("low_rank_sparse.truncate", params, SECTION, *paths)
        return [pd.read_parquet(path) for path in paths[2:]]

    return run


def by_cell(table):
    """The rows of a table by run and seed."""
    parts = dict(list(table.groupby(["configuration", "readout", "seed"])))
    assert parts.keys() == KEYS.keys()
    return parts


def test_every_cut_is_scored_on_the_test_samples_and_every_direction_is_numpys(truncate, made, tmp_path):
    samples, written = made
    cut, lines = (by_cell(table) for table in truncate())
    for key, (name, i) in KEYS.items():
        snapshots = [{m: W[i] for m, W in weights.items()} for weights in written[name]]
        test, mu = of_seed(samples, "test", key[2]), samples["patterns"][SEEDS.index(key[2])].astype(float)
        rows = cut[key].drop(columns=["configuration", "readout", "seed"]).set_index(["kind", "rank"])
        wanted = dict(cuts(snapshots[0], snapshots[-1]))
        assert sorted(rows.index) == sorted(wanted)
        for place, weights in wanted.items():
            numbers = scored(snapshots[-1] | weights, test)
            assert rows.loc[place].to_dict() == pytest.approx(numbers, rel=2e-5, abs=2e-6)  # it computes in float32
        rows = lines[key].drop(columns=["configuration", "readout", "seed"])
        rows = rows.set_index(["step", "matrix", "side", "span"])
        wanted = {
            (step, *place): numbers
            for step, now in zip(CELLS[name]["steps"][1:], snapshots[1:], strict=True)
            for place, numbers in directions(mu, snapshots[0], now)
        }
        assert sorted(rows.index) == sorted(wanted)
        for place, numbers in wanted.items():
            assert rows.loc[place].to_dict() == pytest.approx(numbers, rel=1e-9)
    runs = [f"runs/{file}" for file in files(tmp_path / "runs")]
    assert files(tmp_path) == sorted(["cuts", "directions", "params.yaml", *runs, "samples"])


def test_a_run_of_a_seed_without_samples_is_refused(truncate, made, tmp_path):
    save_file(made[0] | {"seeds": np.array([4, 2, 3])}, tmp_path / "samples")
    with pytest.raises(InputError, match=r"seeds: wanted seeds of the data set, \[4, 2, 3\], got 9"):
        truncate()


def test_samples_that_do_not_fit_one_another_are_refused(truncate, made, tmp_path):
    save_file(made[0] | {"test_labels": made[0]["test_labels"][:, 1:]}, tmp_path / "samples")
    with pytest.raises(InputError, match="wanted tokens, labels and patterns that fit one another"):
        truncate()


def test_a_missing_gpu_is_said_before_any_run_is_read(truncate, made, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match="device: wanted cuda"):
        truncate("cuda")
