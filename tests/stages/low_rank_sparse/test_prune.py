"""The stage prune: every pruned model, rebuilt and run by itself, and the norms of the neurons counted by hand."""

import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from low_rank_sparse_runs import KEYS, NEURONS, SEEDS, D, L, margins, of_seed, write_runs, write_samples
from made import files, generator
from safetensors.numpy import save_file

from lib.io.files import InputError

SECTION = "any.family.prune"
PARAMS = {
    "device": "cpu",
    "rates": [0, 0.3, 0.5, 1],
    "rates_of_large": [0, 0.35, 0.8],
    "rates_of_weights": [0.7, 0.1],
    "rates_of_values": [0.5, 0.3],
    "group": 3,
    "kept_of_group": 1,
    "n_rescale_samples": 3,
    "random_seed": 11,
}
CELL = ["configuration", "readout", "seed"]


@pytest.fixture
def made(tmp_path):
    samples = write_samples(tmp_path / "samples")
    return samples, write_runs(tmp_path / "runs", samples)


@pytest.fixture
def prune(stage, tmp_path):
    def run(**changed):
        paths = [tmp_path / name for name in ("samples", "runs", "pruned", "neurons")]
        stage("low_rank_sparse.prune", {SECTION: PARAMS | changed}, SECTION, *paths)
        return [pd.read_parquet(path) for path in paths[2:]]

    return run


def otsu(values):
    """How many values are small, and the threshold: the gap that leaves the least squared deviations in two groups."""
    values = sorted(values)
    within = {k: sum(np.var(part) * len(part) for part in (values[:k], values[k:])) for k in range(1, len(values))}
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
    """Every (what, order, rate): the weights then, the neurons that are counted, and the share of W_O that is left."""
    W = weights["W_O"]
    norms = [np.sqrt((row**2).sum()) for row in W]
    rising = sorted(range(NEURONS), key=norms.__getitem__)
    shuffled = torch.randperm(NEURONS, generator=generator(11, "neurons", seed)).tolist()
    for order, units in {"smallest": rising, "random": shuffled, "largest": rising[::-1]}.items():
        for rate in PARAMS["rates"]:
            gone = first(units, rate)
            kept = NEURONS - len(gone)
            yield ("neurons", order, rate), weights | {"W_O": without(W, gone)}, kept, kept / NEURONS
    n_small, _ = otsu(norms)
    large = sorted(rising[n_small:])
    source = generator(11, "large neurons", seed)
    units = [large[i] for i in torch.randperm(len(large), generator=source).tolist()]
    for rate in PARAMS["rates_of_large"]:
        gone = [*rising[:n_small], *first(units, rate)]
        kept = NEURONS - len(gone)
        yield ("large neurons", "random", rate), weights | {"W_O": without(W, gone)}, kept, kept / NEURONS
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
    for rate in PARAMS["rates_of_values"]:
        gone = first(columns, rate)
        yield ("rows of W_V", "smallest", rate), weights | {"W_V": without(weights["W_V"], gone, 1)}, NEURONS, 1


def operations(n_neurons):
    """Of three projections, scores and their mixing, neurons and the readout: two for each multiplication and sum."""
    return 2 * (3 * L * D * D + 2 * L * L * D + L * n_neurons * D + L * n_neurons)


def measured(weights, test, train, dense):
    """What is measured of a model; and the factor on its output that gives it the mean margin of the whole one."""
    margin, on_train = margins(weights, test), margins(weights, train).mean()
    factor = dense / on_train if on_train > 0 else np.nan
    return {
        "hinge": np.mean([max(0, 1 - value) for value in margin]),
        "accuracy": np.mean([value > 0 for value in margin]),
        "margin": sum(margin) / len(margin),
        "least_margin": min(margin),
        "factor": factor,
        "rescaled_hinge": np.mean([max(0, 1 - factor * value) for value in margin]) if on_train > 0 else np.nan,
    }


def counted(before, weights, mu):
    """How the norms of the neurons part, and how the large ones point to the values of their patterns."""
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


def test_every_pruned_model_is_measured_as_if_it_stood_alone_and_every_neuron_counted(prune, made, tmp_path):
    samples, written = made
    without_factor = set()
    pruned_rows, neuron_rows = (dict(list(table.groupby(CELL))) for table in prune())
    assert pruned_rows.keys() == neuron_rows.keys() == KEYS.keys()
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
            expected = pytest.approx(numbers, rel=1e-5, abs=2e-6, nan_ok=True)  # it computes in float32
            assert rows.loc[place].to_dict() == expected
        without_factor |= {rate for (*_, rate), numbers in wanted.items() if np.isnan(numbers["factor"])}
        neurons = neuron_rows[key].drop(columns=CELL)
        assert len(neurons) == 1
        mu = samples["patterns"][SEEDS.index(key[2])]
        numbers = counted(written[name][0]["W_O"][i], weights, mu)
        assert neurons.iloc[0]["norms"].tolist() == pytest.approx(numbers.pop("norms"), rel=1e-6)
        assert neurons.iloc[0].drop("norms").to_dict() == pytest.approx(numbers, rel=1e-6, nan_ok=True)
        assert np.isnan(numbers["cosine"]) == (key[1] == "untied")
    assert 1 in without_factor
    assert min(without_factor) < 1  # else the input would not tell that mean margins below 0 have no factor
    runs = [f"runs/{file}" for file in files(tmp_path / "runs")]
    assert files(tmp_path) == sorted(["neurons", "params.yaml", "pruned", *runs, "samples"])


def test_columns_that_fall_into_no_whole_groups_are_not_pruned_by_groups(prune, made):
    table = prune(group=4, kept_of_group=2, rates=[0], rates_of_large=[0])[0]
    assert set(table["what"]) == {"neurons", "large neurons", "weights", "rows of W_V"}


def test_the_groups_are_named_after_what_stays_of_them(prune, made):
    table = prune(group=2, kept_of_group=2, rates=[0], rates_of_large=[0])[0]
    [row] = table[(table["what"] == "2:2") & (table["seed"] == 9)].to_dict("records")
    whole = table[(table["what"] == "neurons") & (table["order"] == "largest") & (table["seed"] == 9)]
    assert (row["rate"], row["weights"], row["factor"]) == (0, 1, pytest.approx(1))
    assert row["hinge"] == pytest.approx(whole["hinge"].item())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rates": [0.1, 0.2]}, r"rates: wanted 0 and rising rates, got \[0.1, 0.2\]"),
        ({"rates": []}, r"rates: wanted 0 and rising rates, got \[\]"),
        ({"rates_of_large": [0, 0.5, 0.2]}, r"rates_of_large: wanted 0 and rising rates, got \[0.*, 0.5, 0.2\]"),
        ({"kept_of_group": 4}, "kept_of_group: wanted at most the group of 3, got 4"),
    ],
)
def test_params_that_do_not_fit_are_refused(prune, changed, message):
    with pytest.raises(InputError, match=message):
        prune(**changed)


def test_a_run_of_a_seed_without_samples_is_refused(prune, made, tmp_path):
    save_file(made[0] | {"seeds": np.array([4, 2, 3])}, tmp_path / "samples")
    with pytest.raises(InputError, match=r"seeds: wanted seeds of the data set, \[4, 2, 3\], got 9"):
        prune()


def test_a_missing_gpu_is_said_before_any_run_is_read(prune, made, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    shutil.rmtree(tmp_path / "runs")
    with pytest.raises(InputError, match="device: wanted cuda"):
        prune(device="cuda")
