"""Every cell of small sweeps is a training by autograd from its seed's draws, measured by numpy."""

import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from lib.work.cells import spread_cells
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import generator

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
    {"name": "fast", "readout": "untied", "n_steps": 9},
]
BASE = DRAWN | TRAINED | {"labels": "1|1", "permuted": False, "n_outputs": 1, "readout": "tied"}
BASE |= {"n_neurons": 8, "learning_rate": 0.8, "n_steps": 4}
EACH = {"configuration": "fast", "outputs": "each", "varies": "labels", "n_neurons": 10}
UNTIED = {"readout": "untied", "learning_rate": 2.5, "n_neurons": 10}
TWO, THREE = [[0], [1]], [[0], [1], [2]]
# Each sweep, and what its cells are, by hand: the value that varies, what changes in the base, and
# the patterns of the classes.
RELEVANT = {"name": "a", "varies": "n_relevant", "values": [5, 3], "n_seeds": 2, "n_confusion": 0}
SIZES = {"name": "b", "varies": "noise", "values": [0.2], "first_seed": 6, "n_steps": 3}
CLASSES = EACH | {"name": "c", "labels": ["1|1|1", "1|1"], "n_seeds": 2, "n_steps": 3}
GROUPED = {"name": "d", "varies": "labels", "labels": ["2|1"], "n_neurons": 2}
SAMPLES = {
    "name": "e",
    "varies": "n_train",
    "values": [6, 9],
    "crossed": "n_relevant",
    "crossed_values": [5, 3],
    "full_batch": True,
    "spectra": False,
}
ERRORS = {"name": "f", "varies": "value_error", "values": [0.4], "n_steps": 2}
ERRORS |= {"crossed": "query_key_error", "crossed_values": [0.6]}
PERMUTED = EACH | {"name": "g", "labels": ["1|1|1"], "permuted": True}
SWEEPS = [
    (RELEVANT, [(n, {"n_relevant": n, "n_confusion": 0}, TWO) for n in (5, 3)]),
    (SIZES, [(0.2, {"noise": 0.2, "n_steps": 3}, TWO)]),
    (
        CLASSES,
        [
            (3, UNTIED | {"labels": "1|1|1", "n_outputs": 3, "n_steps": 3}, THREE),
            (2, UNTIED | {"n_outputs": 2, "n_steps": 3}, TWO),
        ],
    ),
    (GROUPED, [(3, {"labels": "2|1", "n_neurons": 2}, [[0, 1], [2]])]),
    (
        SAMPLES,
        [
            (n, {"n_train": n, "batch_size": n, "n_relevant": r}, TWO)
            for n in (6, 9)
            for r in (5, 3)
        ],
    ),
    (ERRORS, [(0.4, {"value_error": 0.4, "query_key_error": 0.6, "n_steps": 2}, TWO)]),
    (PERMUTED, [(3, UNTIED | {"labels": "1|1|1", "permuted": True, "n_outputs": 3}, THREE)]),
]


@pytest.fixture
def sweep(stage, tmp_path):
    """Run the stage on a table of sweeps; its table."""

    def run(*sweeps):
        reference.write_cases(tmp_path / "configurations", WAYS)
        reference.write_cases(tmp_path / "sweeps", sweeps)
        params = {
            "sweep": PARAMS,
            "data": DRAWN | {"n_seeds": 2},  # what these stages read of their own sections
            "train": {"device": "cpu", "snapshot_steps": [1]} | TRAINED,
        }
        sections = {"section": "sweep", "data": "data", "training": "train"}
        read = {"configurations": tmp_path / "configurations", "sweeps": [tmp_path / "sweeps"]}
        stage("low_rank_sparse.sweep", params, **sections, **read, table=tmp_path / "t")
        return pd.read_parquet(tmp_path / "t")

    return run


def training(problem, classes, seed):
    """The readout, the test samples, the weights before and after, and the losses of a training."""
    sizes = problem["d_model"], problem["n_patterns"]
    mu = reference.orthonormal(*sizes, generator(seed, "patterns"))
    train, test = (
        reference.samples(problem, classes, mu, problem[f"n_{part}"], generator(seed, part))
        for part in ("train", "test")
    )
    a, states, losses = reference.training(problem, train, seed)
    return a, test, states[0], states[-1], losses


def spectra(first, last, k):
    """What the table must say of the updates' singular values."""
    row = {}
    for name in last:
        found = np.linalg.svd((last[name] - first[name]).numpy())[1]
        sigma = np.append(found, np.zeros(9))  # a matrix of few neurons has no more
        energy = sigma**2 / sum(sigma**2)
        row |= {
            f"{name}_energy": sum(energy[:k]),
            f"{name}_energy_2": energy[0] + energy[1],
            f"{name}_gap": sigma[k] / sigma[k - 1] if sigma[k - 1] else np.nan,
            f"{name}_gap_2": sigma[2] / sigma[1],
            f"{name}_next": sigma[k],
            f"{name}_singular_values": found,
        }
    return row


def cuts(hinge, first, last, k):
    """The losses of the model whose updates are cut."""
    row = {}
    for name, rank in (("rank_2", 2), ("rank_below", k - 1), ("rank_k", k)):
        cut = {of: W + reference.best(last[of] - W, rank) for of, W in first.items()}
        row[f"hinge_at_{name}"] = hinge(cut)
    return row


def null(hinge, first, last, k, labels, seed):
    """The loss with each update in k random directions."""
    projected, _ = reference.nulls(
        first, last, k, lambda null, name: generator(seed, null, labels, name)
    )
    return {"hinge_in_random_directions": hinge(projected)}


def neurons(last):
    """How the norms of the neurons part: Otsu's split has the most variance between its groups."""
    norms = np.sort(last["W_O"].norm(dim=1).numpy())
    n = len(norms)
    gap = [s * (n - s) * (norms[:s].mean() - norms[s:].mean()) ** 2 for s in range(1, n)]
    small = 1 + int(np.argmax(gap))
    ratio = norms[small:].mean() / norms[:small].mean()
    return {"small_share": small / n, "large_over_small": ratio}


def expected(sweeps):
    rows = []
    for sweep, cells in sweeps:
        first = sweep.get("first_seed", 0)
        seeds = range(first, first + sweep.get("n_seeds", 1))
        cell_seeds = [(*cell, seed) for cell in cells for seed in seeds]
        for value, changes, classes, seed in cell_seeds:
            problem = BASE | changes
            a, test, begun, last, losses = training(problem, classes, seed)

            def hinge(weights, a=a, test=test):
                return reference.scores(weights, a, test)["hinge"]

            row = {"sweep": sweep["name"], "varies": sweep["varies"], "value": float(value)}
            row |= problem | {"seed": seed} | reference.scores(last, a, test)
            row["fitted_step"] = reference.fitted_step(losses, 0.9)
            k = sum(map(len, classes))
            if "spectra" not in sweep:  # else the models are scored alone
                row |= spectra(begun, last, k)
                if "labels" in sweep and not problem["permuted"]:
                    row |= cuts(hinge, begun, last, k)
                    row |= null(hinge, begun, last, k, problem["labels"], seed)
            rows.append(row | neurons(last))
    return pd.DataFrame(rows)


def check(found, wanted):
    """The stage trains in float32: a weight of 1 is known to 1e-7, the least singular values of
    updates to 1e-6.
    """
    sigmas = [column for column in wanted if column.endswith("singular_values")]
    assert set(found) == set(wanted)
    numbers = wanted.drop(columns=sigmas)
    pd.testing.assert_frame_equal(found[list(numbers)], numbers, rtol=1e-4, atol=2e-5)
    for column in sigmas:
        for one, other in zip(found[column].dropna(), wanted[column].dropna(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)


def test_every_row_is_what_autograd_and_numpy_say(sweep):
    found = sweep(*(one for one, _ in SWEEPS))
    wanted = expected(SWEEPS)
    assert len(set(wanted["fitted_step"])) > 2
    assert -1 in set(wanted["fitted_step"])
    check(found, wanted)


def test_where_sweeps_meet_a_problem_is_trained_once(sweep, monkeypatch):
    counted = []

    def spread(jobs, **how):
        counted.extend(jobs[""])
        return spread_cells(jobs, **how)

    monkeypatch.setattr("stages.low_rank_sparse.sweep.spread_cells", spread)
    noise = SIZES | {"values": [0.4, 0.2]}
    found = sweep(noise, noise | {"name": "m", "varies": "n_neurons", "values": [5, 8]})
    assert len(counted) == 3
    assert found["sweep"].tolist() == ["b", "b", "m", "m"]
    one, other = (found.iloc[i].drop(["sweep", "varies", "value"]) for i in (0, 3))
    pd.testing.assert_series_equal(one, other, check_names=False, check_exact=True)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (RELEVANT | {"values": [3.5]}, "sweep a.n_relevant: wanted a whole number, got 3.5"),
        (RELEVANT | {"values": [10]}, "n_relevant: wanted more than n_confusion, and both to fit"),
        (SIZES | {"varies": "n_test"}, "varies: wanted one of .*'n_relevant', 'n_confusion'"),
        (SIZES | {"configuration": "third"}, r"sweep b: wanted a configuration of \['slow', 'fast"),
        (CLASSES | {"values": [1]}, "values: wanted them, or labels where these vary, got"),
        (SIZES | {"varies": "labels"}, "values: wanted them, or labels where these vary, got"),
        (SIZES | {"values": []}, "values: wanted them, or labels where these vary, got"),
        (
            SIZES | {"crossed": "n_relevant"},
            "crossed: wanted another number with values",
        ),
        (SIZES | {"crossed": "noise", "crossed_values": [1]}, "crossed: wanted another number"),
        (SIZES | {"crossed": "labels", "crossed_values": [1]}, "crossed: wanted another number"),
        (CLASSES | {"outputs": "one"}, "outputs: wanted each, as there are more classes than"),
        (GROUPED | {"labels": ["3|3"]}, "n_patterns: wanted more than the 6 discriminative"),
        (GROUPED | {"labels": ["2|0"]}, "two classes or more with a pattern each"),
        (GROUPED | {"labels": ["2-1"]}, r"labels: wanted numbers of patterns such as 1\|1, got"),
        (
            SIZES | {"varies": "batch_size", "values": [14]},
            "batch_size: wanted at most n_train = 13",
        ),
    ],
)
def test_a_table_of_no_sweep_is_refused(sweep, tmp_path, case, message):
    with pytest.raises(InputError, match=message):
        sweep(case)
    assert not (tmp_path / "t").exists()
