"""Every cell of small sweeps is a training by autograd from its seed's draws, measured by numpy: every row."""

import low_rank_sparse_made as reference
import numpy as np
import pandas as pd
import pytest
import torch
from made import files, generator

from lib.io.files import InputError

SECTION, SEEDS = "family.sweep", [6, 1, 4]
BASE = {
    "n_train": 13,
    "n_test": 12,
    "d_model": 7,
    "n_patterns": 6,
    "seq_len": 9,
    "n_relevant": 4,
    "n_confusion": 1,
    "noise": 0.4,
    "labels": "1|1",
    "n_outputs": 1,
    "readout": "tied",
    "n_neurons": 8,
    "init_scale": 0.3,
    "batch_size": 4,
    "learning_rate": 0.8,
    "n_steps": 9,
}
RELEVANT = {"name": "a", "varies": "n_relevant", "values": [5, 3], "n_seeds": 2, "n_steps": 4, "n_confusion": 0}
NOISE = {"name": "b", "varies": "noise", "values": [0.5, 0.2], "n_seeds": 1, "n_steps": 3}
STEP_SIZE = {"name": "c", "varies": "learning_rate", "values": [1.5], "n_seeds": 3, "n_steps": 2, "n_confusion": None}
NEURONS = {"name": "d", "varies": "n_neurons", "values": [5], "n_seeds": 1, "n_steps": 5, "n_confusion": 2}
LABELLINGS = [
    {"labels": labels, "n_outputs": n, "readout": kind, "learning_rate": rate, "n_seeds": n_seeds, "n_steps": n_steps}
    for labels, n, kind, rate, n_seeds, n_steps in (
        ("1|1|1", 3, "untied", 2.5, 2, 3),
        ("2|1", 1, "untied", 1.5, 1, 4),
        ("1|1", 2, "tied", 1.2, 1, 5),
    )
]
PARAMS = {
    "device": "cpu",
    "seeds": SEEDS,
    "base": BASE,
    "sweeps": [RELEVANT, NOISE, STEP_SIZE, NEURONS],
    "labellings": LABELLINGS,
    "n_neurons_of_labellings": 10,
    "fitted_loss": 0.9,
}
# What each cell is: its columns, what it changes of the base, the patterns of its classes, its seeds. By hand.
TWO = [[0], [1]]
CELLS = [
    ("a", "n_relevant", 5.0, {"n_relevant": 5, "n_confusion": 0, "n_steps": 4}, TWO, [6, 1]),
    ("a", "n_relevant", 3.0, {"n_relevant": 3, "n_confusion": 0, "n_steps": 4}, TWO, [6, 1]),
    ("b", "noise", 0.5, {"noise": 0.5, "n_steps": 3}, TWO, [6]),
    ("b", "noise", 0.2, {"noise": 0.2, "n_steps": 3}, TWO, [6]),
    ("c", "learning_rate", 1.5, {"learning_rate": 1.5, "n_steps": 2}, TWO, [6, 1, 4]),
    ("d", "n_neurons", 5.0, {"n_neurons": 5, "n_confusion": 2, "n_steps": 5}, TWO, [6]),
    (
        "labels",
        "1|1|1 untied an output a class",
        3.0,
        {
            "labels": "1|1|1",
            "n_outputs": 3,
            "readout": "untied",
            "learning_rate": 2.5,
            "n_neurons": 10,
            "n_steps": 3,
        },
        [[0], [1], [2]],
        [6, 1],
    ),
    (
        "labels",
        "2|1 untied one output",
        3.0,
        {"labels": "2|1", "readout": "untied", "learning_rate": 1.5, "n_neurons": 10, "n_steps": 4},
        [[0, 1], [2]],
        [6],
    ),
    (
        "labels",
        "1|1 tied an output a class",
        2.0,
        {"n_outputs": 2, "learning_rate": 1.2, "n_neurons": 10, "n_steps": 5},
        TWO,
        [6],
    ),
]


def training(problem, classes, seed):
    """The readout, the test samples, the weights before and after, and the losses of a training."""
    mu = reference.orthonormal(problem["d_model"], problem["n_patterns"], generator(seed, "patterns"))
    train, test = (
        reference.samples(problem, classes, mu, problem[f"n_{part}"], generator(seed, part))
        for part in ("train", "test")
    )
    m = problem["n_neurons"]
    start = reference.start(problem["d_model"], m, problem["init_scale"], generator(seed, "weights"))
    source = generator(seed, "readout")
    a = reference.readout(problem["readout"], problem["n_outputs"], problem["seq_len"], m, source)
    source = generator(seed, "order")
    steps = reference.batches(problem["n_train"], problem["batch_size"], problem["n_steps"], source)
    states, losses = reference.trained(start, dict, a, train, steps, problem["learning_rate"])
    return a, test, states[0], states[-1], losses


def cut(first, last, rank):
    """The weights whose updates are cut to a rank."""
    U, sigma, Vt = np.linalg.svd((last - first).numpy(), full_matrices=False)
    return first + torch.from_numpy(sum((sigma[i] * np.outer(U[:, i], Vt[i]) for i in range(rank)), 0 * U @ Vt))


def measured(a, test, first, last, k):
    """What the table must say of trained weights; k is the number of label-relevant patterns."""
    row = reference.scores(last, a, test)
    for name, rank in (("rank_2", 2), ("rank_below", k - 1), ("rank_k", k)):
        weights = {matrix: cut(first[matrix], last[matrix], rank) for matrix in last}
        row[f"hinge_at_{name}"] = reference.scores(weights, a, test)["hinge"]
    untrained = {"W_Q": first["W_Q"], "W_K": first["W_K"], "W_V": last["W_V"], "W_O": last["W_O"]}
    row["hinge_without_attention"] = reference.scores(untrained, a, test)["hinge"]
    for name in last:
        sigma = np.linalg.svd((last[name] - first[name]).numpy())[1]
        row |= {
            f"{name}_energy": sum(sigma[:k] ** 2) / sum(sigma**2),
            f"{name}_energy_2": (sigma[0] ** 2 + sigma[1] ** 2) / sum(sigma**2),
            f"{name}_nuclear_tail": sum(sigma[k:]) / sum(sigma),
            f"{name}_gap": sigma[k] / sigma[k - 1],
            f"{name}_gap_2": sigma[2] / sigma[1],
            f"{name}_next": sigma[k],
            f"{name}_tail": (sum(sigma[k:] ** 2) / sum(sigma**2)) ** 0.5,
            f"{name}_singular_values": sigma,
        }
    norms = sorted(sum(w * w for w in neuron) ** 0.5 for neuron in last["W_O"].tolist())
    n, mean = len(norms), np.mean
    # Otsu's two groups: the split of the sorted norms with the most variance between them.
    small = max(range(1, n), key=lambda s: s * (n - s) * (mean(norms[:s]) - mean(norms[s:])) ** 2)
    return row | {"small_share": small / n, "large_over_small": mean(norms[small:]) / mean(norms[:small])}


def expected(params, cells):
    rows = []
    for sweep, varies, value, changes, classes, seeds in cells:
        problem = params["base"] | changes
        for seed in seeds:
            *trained, losses = training(problem, classes, seed)
            fitted = reference.fitted_step(losses, params["fitted_loss"])
            row = {"sweep": sweep, "varies": varies, "value": value, "seed": seed, **problem, "fitted_step": fitted}
            rows.append(row | measured(*trained, sum(len(own) for own in classes)))
    return pd.DataFrame(rows)


def check(found, wanted):
    """The stage trains in float32: a weight of 1 is known to 1e-7, the least singular values of updates to 1e-6."""
    sigmas = [column for column in wanted if column.endswith("singular_values")]
    assert list(found) == list(wanted)
    pd.testing.assert_frame_equal(found.drop(columns=sigmas), wanted.drop(columns=sigmas), rtol=1e-4, atol=2e-5)
    for column in sigmas:
        for one, other in zip(found[column], wanted[column], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


def test_every_row_is_what_autograd_and_numpy_say(stage, tmp_path):
    stage("low_rank_sparse.sweep", {SECTION: PARAMS}, SECTION, tmp_path / "t")
    found, wanted = pd.read_parquet(tmp_path / "t"), expected(PARAMS, CELLS)
    assert set(wanted["fitted_step"]) == {-1, 1, 2, 3}
    check(found, wanted)
    assert files(tmp_path) == ["params.yaml", "t"]


def test_a_batch_at_the_threshold_is_not_yet_fitted(stage, tmp_path):
    """Neurons that begin at almost nothing give the loss 1, to the last bit of float32; great steps move them yet."""
    sweep = STEP_SIZE | {"values": [1e8], "n_steps": 1}
    params = PARAMS | {"base": BASE | {"init_scale": 1e-10}, "sweeps": [sweep], "labellings": [], "fitted_loss": 1}
    stage("low_rank_sparse.sweep", {SECTION: params}, SECTION, tmp_path / "t")
    assert pd.read_parquet(tmp_path / "t")["fitted_step"].tolist() == [-1, -1, -1]


def test_a_matrix_that_does_not_move_has_no_shares_of_its_update(stage, tmp_path):
    """Steps of 1e-30 change no weight in single precision."""
    labelling = LABELLINGS[0] | {"learning_rate": 1e-30}
    params = PARAMS | {"sweeps": [], "labellings": [labelling]}
    stage("low_rank_sparse.sweep", {SECTION: params}, SECTION, tmp_path / "t")
    found = pd.read_parquet(tmp_path / "t")
    for name in ["W_O"]:  # a zero of the others moves by any step
        assert found[[f"{name}_gap", f"{name}_gap_2", f"{name}_tail"]].isna().all(axis=None)
        assert (found[f"{name}_next"] == 0).all()


def test_a_batch_may_be_all_samples_and_be_fitted_at_once(stage, tmp_path):
    params = PARAMS | {"base": BASE | {"batch_size": 13}, "sweeps": [], "labellings": LABELLINGS[:1], "fitted_loss": 9}
    stage("low_rank_sparse.sweep", {SECTION: params}, SECTION, tmp_path / "t")
    wanted = expected(params, CELLS[6:7])
    assert wanted["fitted_step"].tolist() == [0, 0]
    check(pd.read_parquet(tmp_path / "t"), wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": [6, 1]}, "seeds: wanted at least the n_seeds of every sweep, 3, got 2"),
        ({"seeds": [6], "sweeps": []}, "seeds: wanted at least the n_seeds of every sweep, 2, got 1"),
        ({"sweeps": [RELEVANT | {"values": [5, 3.5]}]}, r"values: wanted whole numbers for n_relevant, got .5.0, 3.5"),
        ({"sweeps": [RELEVANT | {"values": [10]}]}, "n_relevant: wanted more than n_confusion, and both to fit into 9"),
        ({"sweeps": [RELEVANT | {"n_confusion": -1}]}, r"n_confusion: wanted a number in \[0, 16384\], got -1"),
        ({"sweeps": [NOISE | {"varies": "n_train"}]}, "varies: wanted one of .'n_relevant', 'n_confusion', 'noise',"),
        ({"base": BASE | {"labels": "1|x"}}, "labels: wanted numbers of patterns such as .*, got '1.x'"),
        ({"base": BASE | {"n_outputs": 3}}, "n_outputs: wanted one for each class of 1.1, or 1 for two, got 3"),
        ({"base": BASE | {"n_patterns": 0}}, r"n_patterns: wanted a number in \[1, 16384\], got 0"),
        ({"base": BASE | {"batch_size": 14}}, "batch_size: wanted at most n_train = 13, got 14"),
        ({"labellings": [LABELLINGS[0] | {"n_outputs": 1}]}, r"n_outputs: wanted one for each .*1\|1\|1.*, got 1"),
        ({"labellings": [LABELLINGS[0] | {"n_outputs": 2}]}, r"n_outputs: wanted one for each .*1\|1\|1.*, got 2"),
        ({"labellings": [LABELLINGS[2] | {"labels": "3|3"}]}, "n_patterns: wanted more than the 6 discriminative"),
        ({"device": "cuda"}, "device: wanted cuda, got a machine on which torch sees no GPU"),
    ],
)
def test_params_of_no_sweep_are_refused(stage, tmp_path, monkeypatch, change, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=message):
        stage("low_rank_sparse.sweep", {SECTION: PARAMS | change}, SECTION, tmp_path / "t")
    assert files(tmp_path) == ["params.yaml"]
