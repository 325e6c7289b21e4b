"""The stage cut: every cut model, rebuilt and run by itself, every direction by numpy, the neurons'
norms by hand.
"""

import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

from lib.files.files import InputError
from tests.low_rank_sparse.low_rank_sparse_runs import (
    CELLS,
    KEYS,
    MATRICES,
    NEURONS,
    SEEDS,
    D,
    L,
    forward,
    margins,
    of_seed,
    write_runs,
    write_samples,
)
from tests.stages.made import files, generator

SECTION, TRAINING = "any.family.cut", "any.trainings"
RANKS, ALONE = [3, 0, 9], [5, 1]  # 9 is beyond the sizes of all matrices
RATES, LARGE_RATES = [0, 0.3, 0.6, 0.9], [0, 0.35, 0.7]
PARAMS = {
    "ranks": RANKS,
    "ranks_alone": ALONE,
    "rates_of_weights": [0.7, 0.1],
    "rate_step": 0.3,
    "large_rate_step": 0.35,
    "values_rate": 0.3,
    "group": 3,
    "kept_of_group": 1,
    "n_rescale_samples": 3,
    "random_seed": 11,
}
OUTS = ["truncate", "directions", "prune", "neurons"]
CELL = ["configuration", "readout", "seed"]


@pytest.fixture
def made(tmp_path):
    samples = write_samples(tmp_path / "samples")
    return samples, write_runs(tmp_path / "runs", samples)


@pytest.fixture
def cut(stage, tmp_path):
    """Run the stage; its four tables, the rows of each by run and seed."""

    def run(device="cpu", **changed):
        params = {
            SECTION: PARAMS | changed,
            TRAINING: {"device": device, "n_neurons": "another stage's"},
        }
        paths = [tmp_path / name for name in ("samples", "runs", *OUTS)]
        stage("low_rank_sparse.cut", params, SECTION, f"{TRAINING}.device", *paths)
        return [pd.read_parquet(path) for path in paths[2:]]

    return run


def by_cell(table):
    """The rows of a table by run and seed."""
    parts = dict(list(table.groupby(CELL)))
    assert parts.keys() == KEYS.keys()
    return parts


def best(W, rank):
    """The best approximation at a rank: the sum of the leading singular pairs."""
    U, sigma, Vh = np.linalg.svd(W)
    return sum(
        (sigma[i] * np.outer(U[:, i], Vh[i]) for i in range(min(rank, len(sigma)))),
        np.zeros_like(W),
    )


def low_rank(first, last, seed):
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
    projected, noise = {}, {}
    for name, W in update.items():
        source = generator(11, "random directions", seed, name)
        two = torch.randn(W.shape[1], 2, generator=source, dtype=torch.float64).numpy()
        projected[name] = first[name] + W @ two @ np.linalg.pinv(two)
        source = generator(11, "gaussian", seed, name)
        G = torch.randn(W.shape, generator=source, dtype=torch.float64).numpy()
        noise[name] = first[name] + G * np.sqrt((W**2).sum() / (G**2).sum())
    yield ("random directions", 2), projected
    yield ("gaussian", min(NEURONS, D)), noise


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
    # what the sides of an update, a matrix that acts on rows from the right, are compared with
    images = {
        ("W_Q", "input"): tokens,
        ("W_Q", "output"): first["W_K"],
        ("W_K", "input"): tokens,
        ("W_K", "output"): first["W_Q"],
        ("W_V", "input"): tokens,
        ("W_V", "output"): first["W_V"],
        ("W_O", "input"): first["W_V"],
    }
    spans = {
        "discriminative": [mu[0], mu[1]],
        "with mean irrelevant": [mu[0], mu[1], sum(mu[2:]) / len(mu[2:])],
    }
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
                    "dimension": mu.shape[1],
                    "energy": squared_cosines(span_of_images, whole),
                },
            )


def otsu(values):
    """How many values are small, and the threshold: the gap that leaves the least squared
    deviations in two groups.
    """
    values = sorted(values)
    within = {
        k: sum(np.var(part) * len(part) for part in (values[:k], values[k:]))
        for k in range(1, len(values))
    }
    k = min(within, key=within.get)
    return k, (values[k - 1] + values[k]) / 2


def first(order, rate):
    """That share of the units, the first in the order, as a whole number of them."""
    return list(order)[: round(rate * len(order))]


def without(W, gone, axis=0):
    """The matrix with some rows or columns zero."""
    left = W.copy()
    (left if axis == 0 else left.T)[gone] = 0
    return left


def pruned(weights, seed):
    """Every (what, order, rate): the weights then, the neurons that are counted, and the share of
    W_O that is left.
    """
    W = weights["W_O"]
    norms = [np.sqrt((row**2).sum()) for row in W]
    rising = sorted(range(NEURONS), key=norms.__getitem__)
    shuffled = torch.randperm(NEURONS, generator=generator(11, "neurons", seed)).tolist()
    for order, units in {"smallest": rising, "random": shuffled, "largest": rising[::-1]}.items():
        for rate in RATES:
            gone = first(units, rate)
            kept = NEURONS - len(gone)
            yield (
                ("neurons", order, rate),
                weights | {"W_O": without(W, gone)},
                kept,
                kept / NEURONS,
            )
    n_small, _ = otsu(norms)
    parts = {"large": sorted(rising[n_small:]), "small": sorted(rising[:n_small])}
    for size, part in parts.items():
        source = generator(11, f"{size} neurons", seed)
        units = [part[i] for i in torch.randperm(len(part), generator=source).tolist()]
        for rate in LARGE_RATES if size == "large" else [*LARGE_RATES, 1.0]:
            gone = [*(parts["small"] if size == "large" else []), *first(units, rate)]
            kept = NEURONS - len(gone)
            yield (
                (f"{size} neurons", "random", rate),
                weights | {"W_O": without(W, gone)},
                kept,
                kept / NEURONS,
            )
    for order, units in {"smallest": rising, "random": shuffled, "largest": rising[::-1]}.items():
        left = weights | {"W_O": without(W, units[:n_small])}
        yield ("as many as small", order, 1.0), left, NEURONS - n_small, 1 - n_small / NEURONS
    entries = sorted(np.ndindex(W.shape), key=lambda place: abs(W[place]))
    for rate in PARAMS["rates_of_weights"]:
        left = W.copy()
        for place in first(entries, rate):
            left[place] = 0
        yield ("weights", "smallest", rate), weights | {"W_O": left}, NEURONS, (left != 0).mean()
    left = W.copy()
    for row, start in itertools.product(left, range(0, D, 3)):
        row[start : start + 3] *= abs(row[start : start + 3]) == max(abs(row[start : start + 3]))
    yield ("1:3", "smallest", 1 - 1 / 3), weights | {"W_O": left}, NEURONS, 1 / 3
    columns = sorted(range(D), key=lambda column: (weights["W_V"][:, column] ** 2).sum())
    gone = first(columns, 0.3)
    yield (
        ("rows of W_V", "smallest", 0.3),
        weights | {"W_V": without(weights["W_V"], gone, 1)},
        NEURONS,
        1,
    )


def operations(n_neurons):
    """Of three projections, scores and their mixing, neurons and the readout: two for each
    multiplication and sum.
    """
    return 2 * (3 * L * D * D + 2 * L * L * D + L * n_neurons * D + L * n_neurons)


def measured(weights, test, train, dense):
    """What is measured of a model; and the factor on its output that gives it the mean margin of
    the whole one.
    """
    margin, on_train = margins(weights, test), margins(weights, train).mean()
    factor = dense / on_train if on_train > 0 else np.nan
    return {
        "hinge": np.mean([max(0, 1 - value) for value in margin]),
        "accuracy": np.mean([value > 0 for value in margin]),
        "margin": sum(margin) / len(margin),
        "least_margin": min(margin),
        "factor": factor,
        "rescaled_hinge": np.mean([max(0, 1 - factor * value) for value in margin])
        if on_train > 0
        else np.nan,
    }


def counted(before, weights, mu):
    """How the norms of the neurons part, and how the large ones point to the values of their
    patterns.
    """
    norms = [np.sqrt((row**2).sum()) for row in weights["W_O"]]
    n_small, threshold = otsu(norms)
    small, large = sorted(norms)[:n_small], sorted(norms)[n_small:]
    cosines = []
    for row, norm, sign in zip(weights["W_O"], norms, weights["readout"][0, 0], strict=True):
        value = weights["W_V"].T @ mu[0 if sign > 0 else 1]
        cosines += [row @ value / norm / np.sqrt(value @ value)] if norm > threshold else []
    z = (np.array(norms) - np.mean(norms)) / np.std(norms)
    return {
        "threshold": threshold,
        "small_share": n_small / NEURONS,
        "small_norm": sum(small) / len(small),
        "large_norm": sum(large) / len(large),
        "initial_norm": np.mean([np.sqrt((row**2).sum()) for row in before]),
        "bimodality": ((z**3).mean() ** 2 + 1) / (z**4).mean(),
        "cosine": np.mean(cosines) if weights["readout"].shape[1] == 1 else np.nan,
        "norms": norms,
    }


def test_every_cut_is_scored_on_the_test_samples_and_every_direction_is_numpys(cut, made, tmp_path):
    samples, written = made
    cuts_found, lines = (by_cell(table) for table in cut()[:2])
    for key, (name, i) in KEYS.items():
        snapshots = [{m: W[i] for m, W in weights.items()} for weights in written[name]]
        test, mu = (
            of_seed(samples, "test", key[2]),
            samples["patterns"][SEEDS.index(key[2])].astype(float),
        )
        rows = cuts_found[key].drop(columns=CELL).set_index(["kind", "rank"])
        wanted = dict(low_rank(snapshots[0], snapshots[-1], key[2]))
        assert sorted(rows.index) == sorted(wanted)
        for place, weights in wanted.items():
            numbers = scored(snapshots[-1] | weights, test)
            assert rows.loc[place].to_dict() == pytest.approx(
                numbers, rel=2e-5, abs=2e-6
            )  # it computes in float32
        rows = lines[key].drop(columns=CELL)
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
    assert files(tmp_path) == sorted([*OUTS, "params.yaml", *runs, "samples"])


def test_every_pruned_model_is_measured_as_if_it_stood_alone_and_every_neuron_counted(cut, made):
    samples, written = made
    without_factor = set()
    pruned_rows, neuron_rows = (by_cell(table) for table in cut()[2:])
    for key, (name, i) in KEYS.items():
        weights = {m: W[i] for m, W in written[name][-1].items()}
        test, train = (of_seed(samples, part, key[2]) for part in ("test", "train"))
        dense = margins(weights, train[:3]).mean()
        wanted = {
            place: {
                **measured(model, test, train[:3], dense),
                "flops": operations(n) / operations(NEURONS),
                "weights": left,
            }
            for place, model, n, left in pruned(weights, key[2])
        }
        rows = pruned_rows[key].drop(columns=CELL).set_index(["what", "order", "rate"])
        assert sorted(rows.index) == sorted(wanted)
        for place, numbers in wanted.items():
            expected = pytest.approx(
                numbers, rel=1e-5, abs=2e-6, nan_ok=True
            )  # it computes in float32
            assert rows.loc[place].to_dict() == expected
        without_factor |= {
            rate for (*_, rate), numbers in wanted.items() if np.isnan(numbers["factor"])
        }
        neurons = neuron_rows[key].drop(columns=CELL)
        assert len(neurons) == 1
        mu = samples["patterns"][SEEDS.index(key[2])]
        numbers = counted(written[name][0]["W_O"][i], weights, mu)
        assert neurons.iloc[0]["norms"].tolist() == pytest.approx(numbers.pop("norms"), rel=1e-6)
        assert neurons.iloc[0].drop("norms").to_dict() == pytest.approx(
            numbers, rel=1e-6, nan_ok=True
        )
        assert np.isnan(numbers["cosine"]) == (key[1] == "untied")
    assert without_factor  # else the input would not tell that mean margins below 0 have no factor


def test_columns_that_fall_into_no_whole_groups_are_not_pruned_by_groups(cut, made):
    table = cut(group=4, kept_of_group=2, rate_step=1, large_rate_step=1)[2]
    of_neurons = {"neurons", "large neurons", "small neurons", "as many as small"}
    assert set(table["what"]) == {*of_neurons, "weights", "rows of W_V"}


def test_the_groups_are_named_after_what_stays_of_them(cut, made):
    table = cut(group=2, kept_of_group=2, rate_step=1, large_rate_step=1)[2]
    [row] = table[(table["what"] == "2:2") & (table["seed"] == 9)].to_dict("records")
    whole = table[
        (table["what"] == "neurons") & (table["order"] == "largest") & (table["seed"] == 9)
    ]
    assert (row["rate"], row["weights"], row["factor"]) == (0, 1, pytest.approx(1))
    assert row["hinge"] == pytest.approx(whole["hinge"].item())


def test_rates_are_decimals_below_one(cut, made):
    table = cut(rate_step=0.1, large_rate_step=0.05)[2]
    wanted = {
        "neurons": [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
        "large neurons": [i / 20 for i in range(20)],
    }
    for what, rates in wanted.items():
        assert sorted(table[table["what"] == what]["rate"].unique()) == rates


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rate_step": 0}, r"rate_step: wanted a number in \[0.001, 1\], got 0"),
        ({"large_rate_step": 1.5}, r"large_rate_step: wanted a number in \[0.001, 1\], got 1.5"),
        (
            {"rates_of_weights": [0.1, 1.1]},
            r"rates_of_weights\[1\]: wanted a number in \[0, 1\], got 1.1",
        ),
        ({"ranks": [-1]}, r"ranks\[0\]: wanted a number in \[0, 65536\], got -1"),
        ({"kept_of_group": 4}, "kept_of_group: wanted at most the group of 3, got 4"),
    ],
)
def test_params_that_do_not_fit_are_refused(cut, changed, message):
    with pytest.raises(InputError, match=message):
        cut(**changed)


def test_a_run_of_a_seed_without_samples_is_refused(cut, made, tmp_path):
    save_file(made[0] | {"seeds": np.array([4, 2, 3])}, tmp_path / "samples")
    with pytest.raises(
        InputError, match=r"seeds: wanted seeds of the data set, \[4, 2, 3\], got 9"
    ):
        cut()


def test_samples_that_do_not_fit_one_another_are_refused(cut, made, tmp_path):
    save_file(made[0] | {"test_labels": made[0]["test_labels"][:, 1:]}, tmp_path / "samples")
    with pytest.raises(InputError, match="wanted tokens, labels and patterns that fit one another"):
        cut()


def test_a_missing_gpu_is_said_before_any_run_is_read(cut, made, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match="device: wanted cuda"):
        cut("cuda")
