"""Adapters on made runs are W(0) + B A, with A and B trained by autograd on the hinge loss: every
row.
"""

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from lib.files.files import InputError
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import files, generator, write_run

SECTION, TRAINING = "family.adapt", "family.train"
N_TRAIN, N_TEST, SEQ_LEN, D_MODEL, D_HEAD, D_VALUE, N_NEURONS = 11, 8, 5, 6, 4, 3, 9
DATA_SEEDS, RUN_SEEDS = [8, 5, 2, 3, 6], {"one": [6, 8, 5], "each": [3, 9, 2]}
SHAPES = {
    "W_Q": (D_MODEL, D_HEAD),
    "W_K": (D_MODEL, D_HEAD),
    "W_V": (D_MODEL, D_VALUE),
    "W_O": (N_NEURONS, D_VALUE),
}
WAYS = {"one": {"learning_rate": 0.6, "n_steps": 6}, "each": {"learning_rate": 1.5, "n_steps": 3}}
ONE = {"configuration": "one", "ranks": [2, 1], "n_seeds": 2, "first_seed": 5}
EACH = {"configuration": "each", "ranks": [5], "n_seeds": 2, "first_seed": 2}
PARAMS = {"device": "cpu", "batch_size": 3, "fitted_loss": 0.97, "n_neurons": "another stage's"}
PARAMS |= {"learning_rate": 0.6, "n_steps": 3}


@pytest.fixture
def dataset(tmp_path):
    """Samples of four seeds, in which nothing is equal: two classes, tokens of four patterns, no
    structure.
    """
    draw = torch.Generator().manual_seed(2)
    tensors = {
        "seeds": torch.tensor(DATA_SEEDS),
        "patterns": torch.randn(5, 4, D_MODEL, generator=draw),
    }
    for part, n in (("train", N_TRAIN), ("test", N_TEST)):
        relevant = torch.randint(0, 2, (5, n), generator=draw)
        patterns = torch.randint(0, 4, (5, n, SEQ_LEN), generator=draw)
        patterns[..., 2] = relevant  # a sample has label-relevant tokens
        labels = torch.where(torch.rand(5, n, generator=draw) < 0.8, relevant, 1 - relevant)
        noise = torch.randn(5, n, SEQ_LEN, D_MODEL, generator=draw)
        tokens = torch.stack([tensors["patterns"][i][patterns[i]] for i in range(5)]) + 0.3 * noise
        parts = {"tokens": tokens, "labels": labels, "patterns": patterns, "relevant": relevant}
        tensors |= {f"{part}_{name}": tensor for name, tensor in parts.items()}
    save_file(tensors, tmp_path / "samples")
    return tensors


@pytest.fixture
def initial(tmp_path):
    """The initial weights of two runs, by their names; what the runs end with is something else."""
    draw = torch.Generator().manual_seed(3)
    starts = {}
    for run, seeds in RUN_SEEDS.items():
        n_positions = {"one": 1, "each": SEQ_LEN}[run]
        snapshots = []
        for _ in range(2):
            weights = {
                name: 0.35 * torch.randn(len(seeds), *shape, generator=draw)
                for name, shape in SHAPES.items()
            }
            signs = torch.randint(0, 2, (len(seeds), 1, n_positions, N_NEURONS), generator=draw)
            snapshots.append(weights | {"readout": (2.0 * signs - 1) / N_NEURONS**0.5})
        write(tmp_path / "runs", run, *snapshots)
        starts[run] = snapshots[0]
    return starts


def write(runs, name, *snapshots):
    rows = [
        {"snapshot": i, "step": 5 * i, "seed": seed}
        for i in range(len(snapshots))
        for seed in RUN_SEEDS[name]
    ]
    matrices = {name: ["seed", "row", "col"] for name in SHAPES}
    layout = {"family": "low_rank_sparse", "matrices": matrices, "seeds": RUN_SEEDS[name]}
    write_run(runs / name, layout, snapshots, rows)


def of_seed(dataset, part, seed):
    names = ("tokens", "labels", "patterns", "relevant")
    return {name: dataset[f"{part}_{name}"][DATA_SEEDS.index(seed)] for name in names}


@pytest.fixture
def adapt(stage, tmp_path):
    """Run the stage; its table."""

    def run(params, *adaptations, runs="runs", **changed):
        ways = [
            {"name": name, "readout": "another stage's", **way}
            for name, way in (WAYS | changed).items()
        ]
        reference.write_cases(tmp_path / "configurations", ways, params)
        reference.write_cases(
            tmp_path / "adaptations", adaptations, {"n_seeds": 2, "first_seed": 2}
        )
        paths = [
            tmp_path / name for name in ("configurations", "adaptations", "samples", runs, "t")
        ]
        sections = {SECTION: {"n_seeds": 2, "first_seed": 2}, TRAINING: params}
        stage("low_rank_sparse.adapt", sections, SECTION, TRAINING, *paths)
        return pd.read_parquet(tmp_path / "t")

    return run


def expected(dataset, initial, params, *adaptations):
    """The table: a row for each adaptation, rank and seed."""
    rows = []
    for one in adaptations:
        seeds = range(one["first_seed"], one["first_seed"] + one["n_seeds"])
        for rank, seed in ((rank, seed) for rank in one["ranks"] for seed in seeds):
            run = one["configuration"]
            W_0 = {name: W[RUN_SEEDS[run].index(seed)].double() for name, W in initial[run].items()}
            a = W_0.pop("readout")
            leaves = {}
            for name, (rows_of, columns) in SHAPES.items():
                # W_O acts from its columns to its rows, the others, tokens being rows, the other
                # way round.
                n_in, n_out = (columns, rows_of) if name == "W_O" else (rows_of, columns)
                A = torch.randn(rank, n_in, generator=generator(seed, "adapter", name)) / rank**0.5
                leaves |= {name + "A": A, name + "B": torch.zeros(n_out, rank)}

            def weights_of(leaves, W_0=W_0):
                BA = {name: leaves[name + "B"] @ leaves[name + "A"] for name in SHAPES}
                return {
                    name: W_0[name] + (BA[name] if name == "W_O" else BA[name].T) for name in SHAPES
                }

            steps = reference.batches(
                N_TRAIN, params["batch_size"], WAYS[run]["n_steps"], generator(seed, "order")
            )
            data = of_seed(dataset, "train", seed), steps, WAYS[run]["learning_rate"]
            states, losses = reference.trained(leaves, weights_of, a, *data)
            row = {"configuration": run, "rank": rank, "seed": seed}
            row["fitted_step"] = reference.fitted_step(losses, params["fitted_loss"])
            rows.append(
                row | reference.scores(weights_of(states[-1]), a, of_seed(dataset, "test", seed))
            )
    return pd.DataFrame(rows)


def test_every_row_is_that_of_autograd_from_the_initial_weights(adapt, tmp_path, dataset, initial):
    before = files(tmp_path)
    found, wanted = adapt(PARAMS, ONE, EACH), expected(dataset, initial, PARAMS, ONE, EACH)
    assert set(wanted["fitted_step"]) == {-1, 0, 3}
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-5, atol=1e-6)
    assert files(tmp_path) == sorted([*before, "adaptations", "configurations", "params.yaml", "t"])


def test_a_batch_at_the_threshold_is_not_yet_fitted(adapt, tmp_path, dataset, initial):
    """Where all neurons are zero, the loss is 1 to the last bit, and nothing moves."""
    write(
        tmp_path / "zero", "one", {name: W * (name != "W_O") for name, W in initial["one"].items()}
    )
    table = adapt(PARAMS | {"fitted_loss": 1}, ONE, runs="zero")
    assert table["fitted_step"].tolist() == [-1] * 4
    assert table["hinge"].tolist() == [1] * 4


def test_a_batch_may_be_all_samples_and_be_fitted_at_once(adapt, dataset, initial):
    params = PARAMS | {"batch_size": N_TRAIN, "fitted_loss": 9}
    found, wanted = adapt(params, EACH), expected(dataset, initial, params, EACH)
    assert wanted["fitted_step"].tolist() == [0, 0]
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": N_TRAIN + 1}, "batch_size: wanted at most the 11 samples, got 12"),
        ({"batch_size": 0}, r"family.train.batch_size: wanted a number in \[1, 1e9\], got 0"),
        ({"device": "cuda"}, "device: wanted cuda, got .* sees no GPU"),
    ],
)
def test_params_of_no_adapters_are_refused(
    adapt, tmp_path, dataset, initial, monkeypatch, change, message
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=message):
        adapt(PARAMS | change, ONE, EACH)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("adaptation", "message"),
    [
        (
            EACH | {"configuration": "../one"},
            r"adaptations: wanted a configuration of \['one', 'each'\], got '../one'",
        ),
        (ONE | {"n_seeds": 3}, r"seeds: wanted seeds of .*one, \[6, 8, 5\], got 7"),
        (
            EACH | {"n_seeds": 1, "first_seed": 9},
            r"seeds: wanted seeds of the data set, \[8, 5, 2, 3, 6\], got 9",
        ),
        (
            ONE | {"ranks": [0]},
            r"adaptations: line 2, column ranks\[0\]: wanted a number in \[1, 16384\], got 0",
        ),
        (ONE | {"n_steps": 3}, "adaptations: unknown column 'n_steps'"),
    ],
)
def test_a_table_of_no_adapters_is_refused(adapt, tmp_path, dataset, initial, adaptation, message):
    with pytest.raises(InputError, match=message):
        adapt(PARAMS, adaptation)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"two": WAYS["one"]}, "two: wanted a run"),
        ({"../two": WAYS["one"]}, "configurations: line 4, column name: wanted a name"),
        (
            {"one": WAYS["one"] | {"n_steps": 0}},
            "configurations: line 2, column n_steps: wanted a number",
        ),
    ],
)
def test_a_configuration_that_was_not_trained_is_refused(
    adapt, tmp_path, dataset, initial, changed, message
):
    with pytest.raises(InputError, match=message):
        adapt(PARAMS, ONE | {"configuration": "two" if "two" in changed else "one"}, **changed)


def test_a_broken_data_set_is_refused(adapt, tmp_path, initial):
    (tmp_path / "samples").write_bytes(b"none")
    with pytest.raises(InputError, match="samples: wanted a data set of patterns"):
        adapt(PARAMS, ONE)
