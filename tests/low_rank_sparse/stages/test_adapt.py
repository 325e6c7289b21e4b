"""Adapters on made runs are W(0) + B A, with A and B trained by autograd on the hinge loss, in
every row.
"""

import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import generator

SIZES = {"n_train": 11, "n_test": 8, "seq_len": 5, "d_model": 6}
SHAPES = {"W_Q": (6, 4), "W_K": (6, 4), "W_V": (6, 3), "W_O": (9, 3)}
RUN_SEEDS = {"one": [6, 8, 5], "each": [3, 9, 2]}
WAYS = {"one": {"learning_rate": 0.6, "n_steps": 6}, "each": {"learning_rate": 1.5}}
ONE = {"configuration": "one", "ranks": [2, 1], "first_seed": 5}
EACH = {"configuration": "each", "ranks": [5], "n_seeds": 2, "first_seed": 2}
PARAMS = {
    "device": "cpu",
    "batch_size": 3,
    "fitted_loss": 0.97,
    "learning_rate": 0.6,
    "n_steps": 3,
    "n_neurons": "another stage's",
}


@pytest.fixture
def dataset(tmp_path):
    return reference.write_samples(tmp_path / "samples", [8, 5, 2, 3, 6], **SIZES)


@pytest.fixture
def initial(tmp_path):
    """The initial weights of two runs, by their names; what the runs end with is something else."""
    draw = torch.Generator().manual_seed(3)
    starts = {}
    for run, seeds in RUN_SEEDS.items():
        n = len(seeds)
        kind = "tied" if run == "one" else "untied"
        snapshots = []
        for _ in range(2):
            weights = {of: 0.35 * torch.randn(n, *SHAPES[of], generator=draw) for of in SHAPES}
            a = torch.stack([reference.readout(kind, 1, 5, 9, draw) for _ in seeds])
            snapshots.append(weights | {"readout": a})
        reference.write_weights(tmp_path / "runs" / run, {}, seeds, [0, 5], snapshots)
        starts[run] = snapshots[0]
    return starts


@pytest.fixture
def adapt(stage, tmp_path, dataset, initial):
    """Run the stage; its table."""

    def run(*adaptations):
        ways = [{"name": name, "readout": "another stage's", **way} for name, way in WAYS.items()]
        reference.write_cases(tmp_path / "configurations", ways)
        reference.write_cases(tmp_path / "adaptations", adaptations)
        names = ("configurations", "adaptations", "runs")
        paths = {name: tmp_path / name for name in names}
        paths |= {"dataset": tmp_path / "samples", "table": tmp_path / "t"}
        sections = {"adapt": {"n_seeds": 2, "first_seed": 2}, "train": PARAMS}
        stage("low_rank_sparse.adapt", sections, section="adapt", training="train", **paths)
        return pd.read_parquet(tmp_path / "t")

    return run


def expected(dataset, initial, one, rank, seed):
    """The row of an adaptation, a rank and a seed."""
    run = one["configuration"]
    way = PARAMS | WAYS[run]
    W_0 = {name: W[RUN_SEEDS[run].index(seed)].double() for name, W in initial[run].items()}
    a = W_0.pop("readout")
    leaves = {}
    for name, (rows, columns) in SHAPES.items():
        # W_O acts from its columns to its rows; the others act the other way, as tokens are rows.
        n_in, n_out = (columns, rows) if name == "W_O" else (rows, columns)
        A = torch.randn(rank, n_in, generator=generator(seed, "adapter", name)) / rank**0.5
        leaves |= {name + "A": A, name + "B": torch.zeros(n_out, rank)}

    def weights_of(leaves):
        BA = {name: leaves[name + "B"] @ leaves[name + "A"] for name in SHAPES}
        return {name: W_0[name] + (BA[name] if name == "W_O" else BA[name].T) for name in SHAPES}

    order = generator(seed, "order")
    steps = reference.batches(11, way["batch_size"], way["n_steps"], order)
    data = reference.of_seed(dataset, "train", seed)
    states, losses = reference.trained(leaves, weights_of, a, data, steps, way["learning_rate"])
    scores = reference.scores(weights_of(states[-1]), a, reference.of_seed(dataset, "test", seed))
    fitted = reference.fitted_step(losses, way["fitted_loss"])
    return {"configuration": run, "rank": rank, "seed": seed, "fitted_step": fitted, **scores}


def test_every_row_is_that_of_autograd_from_the_initial_weights(adapt, dataset, initial):
    wanted = [
        expected(dataset, initial, one, rank, seed)
        for one in (ONE, EACH)
        for rank in one["ranks"]
        for seed in (one["first_seed"], one["first_seed"] + 1)
    ]
    found = adapt(ONE, EACH)
    pd.testing.assert_frame_equal(found, pd.DataFrame(wanted), rtol=1e-5, atol=1e-6)
    assert set(found["fitted_step"]) == {-1, 0, 2}


@pytest.mark.parametrize(
    ("adaptation", "message"),
    [
        (EACH | {"configuration": "two"}, r"adaptations: wanted a configuration of \['one', 'each"),
        (ONE | {"n_seeds": 3}, r"seeds: wanted seeds of .*one, \[6, 8, 5\], got \[5, 6, 7\]"),
    ],
)
def test_a_table_of_no_adapters_is_refused(adapt, adaptation, message):
    with pytest.raises(InputError, match=message):
        adapt(adaptation)
