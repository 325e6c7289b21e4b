"""Every cell of small sweeps is a training by autograd from its seed's draws, measured by numpy:
every row.
"""

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from lib.work.cells import spread_cells
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import files, generator

SECTION, DATA, TRAINING = "family.sweep", "family.data", "family.train"
DRAWN = {
    "n_train": 13,
    "n_test": 12,
    "d_model": 7,
    "n_patterns": 6,
    "seq_len": 9,
    "n_relevant": 4,
    "n_confusion": 1,
    "noise": 0.4,
}
TRAINED = {
    "init_scale": 0.3,
    "value_error": 0.0,
    "query_key_error": 0.0,
    "batch_size": 4,
    "learning_rate": 2.5,
}
PARAMS = {"n_neurons": 8, "fitted_loss": 0.9, "configuration": "slow", "n_seeds": 1, "n_steps": 4}
WAYS = [
    {"name": "slow", "readout": "tied", "learning_rate": 0.8, "n_steps": 9},
    {"name": "fast", "readout": "untied", "learning_rate": 2.5, "n_steps": 9},
]
# In the order of a problem's columns.
BASE = (
    DRAWN
    | TRAINED
    | {
        "labels": "1|1",
        "permuted": False,
        "n_outputs": 1,
        "readout": "tied",
        "n_neurons": 8,
        "learning_rate": 0.8,
    }
)
BASE |= {"n_steps": 9}
SLOW, FAST = (
    {"configuration": "slow", "outputs": "one"},
    {"configuration": "fast", "outputs": "each"},
)
RELEVANT = SLOW | {
    "name": "a",
    "varies": "n_relevant",
    "values": [5, 3],
    "n_seeds": 2,
    "n_steps": 4,
    "n_confusion": 0,
}
NOISE = SLOW | {
    "name": "b",
    "varies": "noise",
    "values": [0.5, 0.2],
    "n_seeds": 1,
    "n_steps": 3,
    "first_seed": 6,
}
STEP_SIZE = SLOW | {
    "name": "c",
    "varies": "learning_rate",
    "values": [1.5],
    "n_seeds": 3,
    "n_steps": 2,
}
NEURONS = SLOW | {
    "name": "d",
    "varies": "n_neurons",
    "values": [5],
    "n_seeds": 1,
    "n_steps": 5,
    "n_confusion": 2,
}
CLASSES = FAST | {
    "name": "e",
    "varies": "labels",
    "labels": ["1|1|1", "1|1"],
    "n_seeds": 2,
    "n_steps": 3,
}
CLASSES |= {"n_neurons": 10}
GROUPED = SLOW | {"name": "f", "varies": "labels", "labels": ["2|1"], "n_seeds": 1, "n_steps": 4}
SAMPLES = SLOW | {
    "name": "g",
    "varies": "n_train",
    "values": [6, 9],
    "crossed": "n_relevant",
    "n_seeds": 1,
}
SAMPLES |= {"crossed_values": [5, 3], "n_steps": 3, "full_batch": True, "spectra": False}
ERRORS = SLOW | {
    "name": "h",
    "varies": "value_error",
    "values": [0.4],
    "crossed": "query_key_error",
    "n_seeds": 1,
}
ERRORS |= {"crossed_values": [0.6], "n_steps": 2}
START = SLOW | {"name": "i", "varies": "init_scale", "values": [0.5], "n_seeds": 1, "n_steps": 2}
BATCH = SLOW | {"name": "j", "varies": "batch_size", "values": [6], "n_seeds": 1, "n_steps": 3}
PERMUTED = CLASSES | {"name": "k", "labels": ["1|1|1"], "permuted": True}
SWEEPS = [
    RELEVANT,
    NOISE,
    STEP_SIZE,
    NEURONS,
    CLASSES,
    GROUPED,
    SAMPLES,
    ERRORS,
    START,
    BATCH,
    PERMUTED,
]
# What each cell is: its columns, what it changes of the base, the patterns of its classes, its
# seeds. By hand.
TWO = [[0], [1]]
UNTIED = {"readout": "untied", "learning_rate": 2.5, "n_neurons": 10, "n_steps": 3}
CELLS = [
    ("a", "n_relevant", 5.0, {"n_relevant": 5, "n_confusion": 0, "n_steps": 4}, TWO, [0, 1]),
    ("a", "n_relevant", 3.0, {"n_relevant": 3, "n_confusion": 0, "n_steps": 4}, TWO, [0, 1]),
    ("b", "noise", 0.5, {"noise": 0.5, "n_steps": 3}, TWO, [6]),
    ("b", "noise", 0.2, {"noise": 0.2, "n_steps": 3}, TWO, [6]),
    ("c", "learning_rate", 1.5, {"learning_rate": 1.5, "n_steps": 2}, TWO, [0, 1, 2]),
    ("d", "n_neurons", 5.0, {"n_neurons": 5, "n_confusion": 2, "n_steps": 5}, TWO, [0]),
    ("e", "labels", 3.0, UNTIED | {"labels": "1|1|1", "n_outputs": 3}, [[0], [1], [2]], [0, 1]),
    ("e", "labels", 2.0, UNTIED | {"n_outputs": 2}, TWO, [0, 1]),
    ("f", "labels", 3.0, {"labels": "2|1", "n_steps": 4}, [[0, 1], [2]], [0]),
    *(
        (
            "g",
            "n_train",
            float(n),
            {"n_train": n, "batch_size": n, "n_relevant": r, "n_steps": 3},
            TWO,
            [0],
        )
        for n in (6, 9)
        for r in (5, 3)
    ),
    ("h", "value_error", 0.4, {"value_error": 0.4, "query_key_error": 0.6, "n_steps": 2}, TWO, [0]),
    ("i", "init_scale", 0.5, {"init_scale": 0.5, "n_steps": 2}, TWO, [0]),
    ("j", "batch_size", 6.0, {"batch_size": 6, "n_steps": 3}, TWO, [0]),
    (
        "k",
        "labels",
        3.0,
        UNTIED | {"labels": "1|1|1", "permuted": True, "n_outputs": 3},
        [[0], [1], [2]],
        [0, 1],
    ),
]


@pytest.fixture
def sweep(stage, tmp_path):
    """Run the stage on a table of sweeps; its table."""

    def run(*sweeps, data=DRAWN, training=TRAINED, **changed):
        reference.write_cases(tmp_path / "configurations", WAYS, training)
        reference.write_cases(tmp_path / "sweeps", sweeps, PARAMS | {"outputs": "one"})
        others = (
            {"n_seeds": 2},
            {"snapshot_steps": [1]},
        )  # what these stages read of their own sections
        params = {SECTION: PARAMS | changed, DATA: data | others[0]}
        params[TRAINING] = {"device": "cpu"} | training | others[1]
        tables = [tmp_path / "sweeps"]
        stage(
            "low_rank_sparse.sweep",
            params,
            SECTION,
            DATA,
            TRAINING,
            tmp_path / "configurations",
            tables,
            tmp_path / "t",
        )
        return pd.read_parquet(tmp_path / "t")

    return run


def training(problem, classes, seed):
    """The readout, the test samples, the weights before and after, and the losses of a training."""
    mu = reference.orthonormal(
        problem["d_model"], problem["n_patterns"], generator(seed, "patterns")
    )
    train, test = (
        reference.samples(problem, classes, mu, problem[f"n_{part}"], generator(seed, part))
        for part in ("train", "test")
    )
    m = problem["n_neurons"]
    errors = problem["value_error"], problem["query_key_error"]
    start = reference.start(
        problem["d_model"], m, problem["init_scale"], generator(seed, "weights"), *errors
    )
    source = generator(seed, "readout")
    a = reference.readout(problem["readout"], problem["n_outputs"], problem["seq_len"], m, source)
    if problem["permuted"]:
        train["labels"] = train["labels"][
            torch.randperm(len(train["labels"]), generator=generator(seed, "permuted labels"))
        ]
    source = generator(seed, "order")
    steps = reference.batches(problem["n_train"], problem["batch_size"], problem["n_steps"], source)
    states, losses = reference.trained(start, dict, a, train, steps, problem["learning_rate"])
    return a, test, states[0], states[-1], losses


def cut(first, last, rank):
    """The weights whose updates are cut to a rank."""
    U, sigma, Vt = np.linalg.svd((last - first).numpy(), full_matrices=False)
    return first + torch.from_numpy(
        sum((sigma[i] * np.outer(U[:, i], Vt[i]) for i in range(min(rank, len(sigma)))), 0 * U @ Vt)
    )


def cuts(a, test, first, last, k):
    """The losses of the model whose updates are cut, or whose attention is as it began."""
    row = {}
    for name, rank in (("rank_2", 2), ("rank_below", k - 1), ("rank_k", k)):
        weights = {matrix: cut(first[matrix], last[matrix], rank) for matrix in last}
        row[f"hinge_at_{name}"] = reference.scores(weights, a, test)["hinge"]
    untrained = {"W_Q": first["W_Q"], "W_K": first["W_K"], "W_V": last["W_V"], "W_O": last["W_O"]}
    return row | {"hinge_without_attention": reference.scores(untrained, a, test)["hinge"]}


def spectra(first, last, k):
    """What the table must say of the updates' singular values; k is the number of label-relevant
    patterns.
    """
    row = {}
    for name in last:
        found = np.linalg.svd((last[name] - first[name]).numpy())[1]
        sigma = np.append(found, np.zeros(9))  # a matrix of few neurons has no more
        row |= {
            f"{name}_energy": sum(sigma[:k] ** 2) / sum(sigma**2),
            f"{name}_energy_2": (sigma[0] ** 2 + sigma[1] ** 2) / sum(sigma**2),
            f"{name}_nuclear_tail": sum(sigma[k:]) / sum(sigma),
            f"{name}_gap": sigma[k] / sigma[k - 1] if sigma[k - 1] else np.nan,
            f"{name}_gap_2": sigma[2] / sigma[1],
            f"{name}_next": sigma[k],
            f"{name}_tail": (sum(sigma[k:] ** 2) / sum(sigma**2)) ** 0.5,
            f"{name}_singular_values": found,
        }
    return row


def nulls(a, test, first, last, k, labels, seed):
    """The model with each update in k random directions, and with Gaussian updates of the same
    norms.
    """
    projected, noise = {}, {}
    for name, W in last.items():
        update = (W - first[name]).numpy()
        source = generator(seed, "random directions", labels, name)
        some = torch.randn(update.shape[1], k, generator=source, dtype=torch.float64).numpy()
        projected[name] = first[name] + torch.from_numpy(update @ some @ np.linalg.pinv(some))
        G = torch.randn(
            W.shape, generator=generator(seed, "gaussian", labels, name), dtype=torch.float64
        ).numpy()
        noise[name] = first[name] + torch.from_numpy(G * np.sqrt((update**2).sum() / (G**2).sum()))
    kept = [f"{name}_{key}" for name in last for key in ("energy", "energy_2", "gap")]
    row = {
        f"gaussian_{key}": value for key, value in spectra(first, noise, k).items() if key in kept
    }
    row["hinge_in_random_directions"] = reference.scores(projected, a, test)["hinge"]
    return row | {"hinge_of_gaussian": reference.scores(noise, a, test)["hinge"]}


def neurons(last):
    """How the norms of the neurons part."""
    norms = sorted(sum(w * w for w in neuron) ** 0.5 for neuron in last["W_O"].tolist())
    n, mean = len(norms), np.mean
    # Otsu's two groups: the split of the sorted norms with the most variance between them.
    small = max(range(1, n), key=lambda s: s * (n - s) * (mean(norms[:s]) - mean(norms[s:])) ** 2)
    return {"small_share": small / n, "large_over_small": mean(norms[small:]) / mean(norms[:small])}


def expected(cells, fitted_loss=0.9, **base):
    rows = []
    for sweep, varies, value, changes, classes, seeds in cells:
        problem = BASE | base | changes
        for seed in seeds:
            a, test, begun, last, losses = training(problem, classes, seed)
            fitted = reference.fitted_step(losses, fitted_loss)
            row = {
                "sweep": sweep,
                "varies": varies,
                "value": value,
                "seed": seed,
                **problem,
                "fitted_step": fitted,
            }
            row |= reference.scores(last, a, test)
            k = sum(len(own) for own in classes)
            if sweep != "g":  # of which the models are scored alone
                row |= spectra(begun, last, k) | (
                    {} if problem["permuted"] else cuts(a, test, begun, last, k)
                )
            if varies == "labels" and not problem["permuted"]:
                row |= nulls(a, test, begun, last, k, problem["labels"], seed)
            rows.append(row | neurons(last))
    return pd.DataFrame(rows)


def check(found, wanted, atol=2e-5):
    """The stage trains in float32: a weight of 1 is known to 1e-7, the least singular values of
    updates to 1e-6.
    """
    sigmas = [column for column in wanted if column.endswith("singular_values")]
    assert set(found) == set(wanted)
    found = found[list(wanted)]
    pd.testing.assert_frame_equal(
        found.drop(columns=sigmas), wanted.drop(columns=sigmas), rtol=1e-4, atol=atol
    )
    for column in sigmas:
        for one, other in zip(found[column].dropna(), wanted[column].dropna(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


def test_every_row_is_what_autograd_and_numpy_say(sweep, tmp_path):
    found, wanted = sweep(*SWEEPS), expected(CELLS)
    assert len(set(wanted["fitted_step"])) > 2
    assert -1 in set(wanted["fitted_step"])
    check(found, wanted)
    assert files(tmp_path) == ["configurations", "params.yaml", "sweeps", "t"]


def test_a_model_of_fewer_neurons_than_patterns_has_singular_values_of_zero(sweep):
    """A hidden layer of two neurons has an update of W_O of rank two at most."""
    few = NEURONS | {"values": [2], "n_steps": 2, "n_confusion": 1}
    wanted = expected([("d", "n_neurons", 2.0, {"n_neurons": 2, "n_steps": 2}, TWO, [0])])
    assert wanted["W_O_next"].tolist() == [0]
    check(sweep(few), wanted)
    three = CLASSES | {"n_neurons": 2, "labels": ["1|1|1"], "n_seeds": 1}
    changes = UNTIED | {"labels": "1|1|1", "n_outputs": 3, "n_neurons": 2}
    wanted = expected([("e", "labels", 3.0, changes, [[0], [1], [2]], [0])])
    check(sweep(three), wanted)
    assert np.isnan(wanted["W_O_gap"].item())


def test_where_sweeps_meet_a_problem_is_trained_once(sweep, monkeypatch):
    counted = []

    def spread(jobs, **how):
        counted.extend(jobs[""])
        return spread_cells(jobs, **how)

    monkeypatch.setattr("stages.low_rank_sparse.sweep.spread_cells", spread)
    noise = NOISE | {"values": [DRAWN["noise"], 0.2]}
    found = sweep(
        noise, noise | {"name": "m", "varies": "n_neurons", "values": [5, PARAMS["n_neurons"]]}
    )
    assert len(counted) == 3
    assert found["sweep"].tolist() == ["b", "b", "m", "m"]
    one, other = (found.iloc[i].drop(["sweep", "varies", "value"]) for i in (0, 3))
    pd.testing.assert_series_equal(one, other, check_names=False, check_exact=True)


def test_a_training_at_rest_is_what_all_its_steps_would_make_of_it(sweep):
    """Two samples are fitted soon, and nothing moves after."""
    few = SAMPLES | {"values": [2], "crossed_values": [5], "n_steps": 150}
    changes = {"n_train": 2, "batch_size": 2, "n_relevant": 5, "n_steps": 150}
    wanted = expected([("g", "n_train", 2.0, changes, TWO, [0])], fitted_loss=1e-9)
    assert 0 < wanted["fitted_step"].item() < 120
    check(sweep(few, fitted_loss=1e-9), wanted, atol=1e-3)


def test_a_batch_at_the_threshold_is_not_yet_fitted(sweep):
    """Neurons that begin at almost nothing give the loss 1, to the last bit of float32; great steps
    move them yet.
    """
    great = STEP_SIZE | {"values": [1e8], "n_steps": 1}
    found = sweep(great, training=TRAINED | {"init_scale": 1e-10}, fitted_loss=1)
    assert found["fitted_step"].tolist() == [-1, -1, -1]


def test_a_matrix_that_does_not_move_has_no_shares_of_its_update(sweep):
    """Steps of 1e-30 change no weight in single precision."""
    found = sweep(STEP_SIZE | {"values": [1e-30]})
    for name in ["W_O"]:  # a zero of the others moves by any step
        assert found[[f"{name}_gap", f"{name}_gap_2", f"{name}_tail"]].isna().all(axis=None)
        assert (found[f"{name}_next"] == 0).all()


def test_a_batch_may_be_all_samples_and_be_fitted_at_once(sweep):
    found = sweep(CLASSES, training=TRAINED | {"batch_size": 13}, fitted_loss=9)
    wanted = expected(CELLS[6:8], 9, batch_size=13)
    assert wanted["fitted_step"].tolist() == [0] * 4
    check(found, wanted)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            RELEVANT | {"values": [5, 3.5]},
            "sweeps: sweep a.n_relevant: wanted a whole number, got 3.5",
        ),
        (
            RELEVANT | {"values": [10]},
            "n_relevant: wanted more than n_confusion, and both to fit into 9",
        ),
        (
            RELEVANT | {"n_confusion": -1},
            r"line 2, column n_confusion: wanted a number in \[0, 16384\], got -1",
        ),
        (
            RELEVANT | {"n_seeds": 0},
            r"line 2, column n_seeds: wanted a number in \[1, 100000\], got 0",
        ),
        (
            NOISE | {"varies": "n_test"},
            "varies: wanted one of .*'n_relevant', 'n_confusion', 'noise',",
        ),
        (NOISE | {"values": ["much"]}, r"line 2, column values\[0\]: wanted a number, got 'much'"),
        (
            NOISE | {"configuration": "third"},
            r"sweep b: wanted a configuration of \['slow', 'fast'\], got 'third'",
        ),
        (CLASSES | {"labels": ["1|x"]}, "labels: wanted numbers of patterns such as .*, got '1.x'"),
        (CLASSES | {"labels": [11]}, r"line 2, column labels\[0\]: wanted a text, got 11"),
        (CLASSES | {"values": [1]}, "values: wanted them, or labels where these vary, got"),
        (NOISE | {"varies": "labels"}, "values: wanted them, or labels where these vary, got"),
        (NOISE | {"values": []}, "values: wanted them, or labels where these vary, got"),
        (
            NOISE | {"crossed": "n_relevant"},
            "crossed: wanted another number with values, got n_relevant",
        ),
        (
            NOISE | {"crossed": "noise", "crossed_values": [1]},
            "crossed: wanted another number with values, got noise",
        ),
        (
            NOISE | {"crossed": "labels", "crossed_values": [1]},
            "crossed: wanted another number with values",
        ),
        (NEURONS | {"values": [1]}, r"n_neurons: wanted a number in \[2, 1e6\], got 1"),
        (
            CLASSES | {"outputs": "one"},
            r"outputs: wanted each, as there are more classes than two, 1\|1\|1, got one",
        ),
        (GROUPED | {"labels": ["3|3"]}, "n_patterns: wanted more than the 6 discriminative"),
    ],
)
def test_a_table_of_no_sweep_is_refused(sweep, tmp_path, case, message):
    with pytest.raises(InputError, match=message):
        sweep(case)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"data": DRAWN | {"n_patterns": 0}},
            r"family.data.n_patterns: wanted a number in \[1, 16384\], got 0",
        ),
        (
            {"training": TRAINED | {"batch_size": 14}},
            "batch_size: wanted at most n_train = 13, got 14",
        ),
        ({"n_neurons": 1}, r"family.sweep.n_neurons: wanted a number in \[2, 1e6\], got 1"),
        ({"training": TRAINED | {"device": "cuda"}}, "device: wanted cuda, got .* sees no GPU"),
    ],
)
def test_params_of_no_sweep_are_refused(sweep, tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=message):
        sweep(RELEVANT, **change)
    assert not (tmp_path / "t").exists()


def test_a_sweep_of_a_name_twice_is_refused(sweep):
    with pytest.raises(InputError, match="sweeps: line 3: wanted a case of its own, got 'b' again"):
        sweep(NOISE, NOISE | {"values": [0.1]})
