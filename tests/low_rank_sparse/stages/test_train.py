"""Trainings on made samples are SGD by autograd on the hinge loss, from the same draws: every
snapshot and row.
"""

import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from lib.files.files import InputError
from lib.training import gradient_descent
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import files, generator, read_run

SECTION, N_SEEDS = "family.train", "data.n_seeds"
N_TRAIN, N_TEST, SEQ_LEN, D_MODEL = 13, 9, 6, 8
DATA_SEEDS = [4, 5, 2, 11, 3]
TIED = {
    "name": "one",
    "readout": "tied",
    "learning_rate": 0.5,
    "n_steps": 7,
    "n_seeds": 3,
    "first_seed": 3,
}
UNTIED = {
    "name": "each",
    "readout": "untied",
    "learning_rate": 2,
    "n_steps": 5,
    "n_seeds": 2,
    "first_seed": 2,
}
PARAMS = {
    "device": "cpu",
    "seeds_together": 2,
    "n_neurons": 10,
    "init_scale": 0.4,
    "value_error": 0.3,
    "query_key_error": 0.7,
    "batch_size": 4,
    "learning_rate": 2,
    "n_steps": 7,
    "snapshot_steps": [6, 2, 50],
    "fitted_loss": 0.8,
}
PERMUTED = TIED | {"name": "chance", "labels": "permuted", "n_seeds": 2, "n_steps": 3}
SAVED = {"one": [0, 2, 6, 7], "each": [0, 2, 5], "chance": [0, 2, 3]}
MATRICES = ["W_Q", "W_K", "W_V", "W_O"]


@pytest.fixture
def dataset(tmp_path):
    """Samples of five seeds, in which nothing is equal: two classes, tokens of four patterns, no
    structure.
    """
    draw = torch.Generator().manual_seed(5)
    tensors = {
        "seeds": torch.tensor(DATA_SEEDS),
        "patterns": 0.7 * torch.randn(5, 4, D_MODEL, generator=draw),
    }
    for part, n in (("train", N_TRAIN), ("test", N_TEST)):
        relevant = torch.randint(0, 2, (5, n), generator=draw)
        patterns = torch.randint(0, 4, (5, n, SEQ_LEN), generator=draw)
        patterns[..., 1] = relevant  # a sample has label-relevant tokens
        labels = torch.where(torch.rand(5, n, generator=draw) < 0.8, relevant, 1 - relevant)
        noise = torch.randn(5, n, SEQ_LEN, D_MODEL, generator=draw)
        tokens = torch.stack([tensors["patterns"][i][patterns[i]] for i in range(5)]) + 0.3 * noise
        parts = {"tokens": tokens, "labels": labels, "patterns": patterns, "relevant": relevant}
        tensors |= {f"{part}_{name}": tensor for name, tensor in parts.items()}
    save_file(tensors, tmp_path / "samples")
    return tensors


@pytest.fixture
def train(stage, tmp_path):
    """Run the stage on the made samples."""

    def run(params, *configurations):
        reference.write_cases(tmp_path / "configurations", configurations, params | {"n_seeds": 2})
        paths = [tmp_path / name for name in ("configurations", "samples", "runs", "losses")]
        stage(
            "low_rank_sparse.train",
            {SECTION: params, "data": {"n_seeds": 2}},
            SECTION,
            N_SEEDS,
            *paths,
        )

    return run


def of_seed(dataset, part, seed):
    names = ("tokens", "labels", "patterns", "relevant")
    return {name: dataset[f"{part}_{name}"][DATA_SEEDS.index(seed)] for name in names}


def training(dataset, params, configuration, seed):
    """The weights, the readout and the losses of a training from one seed, after every step."""
    errors = params["value_error"], params["query_key_error"]
    start = reference.start(
        D_MODEL, params["n_neurons"], params["init_scale"], generator(seed, "weights"), *errors
    )
    source = generator(seed, "readout")
    a = reference.readout(configuration["readout"], 1, SEQ_LEN, params["n_neurons"], source)
    steps = reference.batches(
        N_TRAIN, params["batch_size"], configuration["n_steps"], generator(seed, "order")
    )
    data = of_seed(dataset, "train", seed)
    if configuration.get("labels") == "permuted":
        order = torch.randperm(N_TRAIN, generator=generator(seed, "permuted labels")).tolist()
        data |= {"labels": torch.stack([data["labels"][i] for i in order])}
    return a, *reference.trained(start, dict, a, data, steps, configuration["learning_rate"])


def check(dataset, params, configuration, saved, folder, atol=1e-5):
    """A run and its losses are what the trainings from its seeds give; returns its table."""
    layout, snapshots, table = read_run(folder)
    seeds = list(
        range(configuration["first_seed"], configuration["first_seed"] + configuration["n_seeds"])
    )
    trainings = {seed: training(dataset, params, configuration, seed) for seed in seeds}
    rows = []
    assert len(snapshots) == len(saved)
    for number, (step, weights) in enumerate(zip(saved, snapshots, strict=True)):
        assert sorted(weights) == sorted([*MATRICES, "readout"])
        for i, seed in enumerate(seeds):
            a, states, losses = trainings[seed]
            for name, W in states[step].items():
                torch.testing.assert_close(weights[name][i], W.float(), rtol=1e-5, atol=atol)
            torch.testing.assert_close(weights["readout"][i], a)
            row = {
                "snapshot": number,
                "step": step,
                "seed": seed,
                "loss": losses[step - 1] if step else float("nan"),
            }
            row["fitted_step"] = reference.fitted_step(losses[:step], params["fitted_loss"])
            rows.append(row | reference.scores(states[step], a, of_seed(dataset, "test", seed)))
        assert all(len(W) == len(seeds) for W in weights.values())
    pd.testing.assert_frame_equal(
        table, pd.DataFrame(rows), rtol=1e-4, atol=atol
    )  # of float32, after some steps
    assert layout == {
        "family": "low_rank_sparse",
        "matrices": {name: ["seed", "row", "col"] for name in MATRICES},
        "products": {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]},
        "gauge": {},
        "cell": {
            "configuration": configuration["name"],
            "readout": configuration["readout"],
            "labels": configuration.get("labels", "given"),
        },
        "seeds": seeds,
        "format": "transformer dynamics run 1",
    }
    every = pd.read_parquet(folder.parents[1] / "losses")
    every = every[every["configuration"] == configuration["name"]]
    wanted = [(seed, step, loss) for seed in seeds for step, loss in enumerate(trainings[seed][2])]
    wanted = pd.DataFrame(wanted, columns=["seed", "step", "loss"])
    found = every[["seed", "step", "loss"]].sort_values(["seed", "step"], ignore_index=True)
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False, rtol=1e-4, atol=atol)
    return table


def test_every_snapshot_and_row_is_that_of_autograd(train, tmp_path, dataset):
    """Also of a seed that is trained beside another one, or in another configuration."""
    old = tmp_path / "runs" / "older" / "steps.parquet"
    old.parent.mkdir(parents=True)
    old.touch()
    train(PARAMS, TIED, UNTIED, PERMUTED)
    runs = {one["name"]: one for one in (TIED, UNTIED, PERMUTED)}
    tables = [
        check(dataset, PARAMS, runs[name], SAVED[name], tmp_path / "runs" / name) for name in runs
    ]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted(runs)
    # Fitted soon, late, and never within the steps.
    assert set(pd.concat(tables)["fitted_step"]) == {-1, 1, 5, 6}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_trains_alike(train, tmp_path, dataset):
    params = PARAMS | {"device": "cuda"}
    train(params, TIED, UNTIED, PERMUTED)
    for one in (TIED, UNTIED, PERMUTED):
        check(dataset, params, one, SAVED[one["name"]], tmp_path / "runs" / one["name"])


def test_a_training_at_rest_is_what_all_its_steps_would_make_of_it(
    train, tmp_path, dataset, monkeypatch
):
    """It ends early, yet each later snapshot, row and loss is that of autograd over every step."""
    numbers = []
    whole = gradient_descent.gradient_descent
    monkeypatch.setattr(
        "stages.low_rank_sparse.train.gradient_descent",
        lambda *args: (numbers.append(step.number) or step for step in whole(*args)),
    )
    long = TIED | {"n_steps": 120, "n_seeds": 1, "learning_rate": 1}
    params = PARAMS | {"batch_size": 6, "snapshot_steps": [3, 100]}
    train(params, long)
    table = check(dataset, params, long, [0, 3, 100, 120], tmp_path / "runs" / "one", atol=1e-3)
    assert max(numbers) < 90
    assert table["loss"].tolist()[-2:] == [0, 0]
    assert table["least_margin"].nunique() == 3


def test_a_batch_at_the_threshold_is_not_yet_fitted(train, tmp_path, dataset):
    """Neurons that begin at almost nothing give the loss 1, to the last bit."""
    params = PARAMS | {
        "init_scale": 1e-30,
        "fitted_loss": 1,
        "snapshot_steps": [],
        "seeds_together": 7,
    }
    train(params, TIED, UNTIED)
    table = check(dataset, params, TIED, [0, 7], tmp_path / "runs" / "one")
    assert -1 in set(table["fitted_step"])
    assert 0 not in set(table["fitted_step"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_neurons": 1}, r"n_neurons: wanted a number in \[2, 1e6\], got 1"),
        (
            {"snapshot_steps": [2, -1]},
            r"snapshot_steps\[1\]: wanted a number in \[0, 1e6\], got -1",
        ),
        ({"value_error": -0.1}, r"value_error: wanted a number in \[0, 100\], got -0.1"),
        ({"query_key_error": 101}, r"query_key_error: wanted a number in \[0, 100\], got 101"),
        ({"device": "cuda"}, "device: wanted cuda, got .* sees no GPU"),
    ],
)
def test_params_of_no_training_are_refused(train, tmp_path, dataset, monkeypatch, change, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=message):
        train(PARAMS | change, TIED, UNTIED)
    assert files(tmp_path) == ["configurations", "params.yaml", "samples"]


@pytest.mark.parametrize(
    ("configurations", "message"),
    [
        (
            [],
            "configurations: wanted a line of distinct column names and a line for each case, got",
        ),
        (
            [TIED, UNTIED | {"name": "one"}],
            "configurations: line 3: wanted a case of its own, got 'one' again",
        ),
        ([TIED | {"name": "../one"}], "configurations: line 2, column name: wanted a name"),
        (
            [TIED, UNTIED | {"n_seeds": 0}],
            r"line 3, column n_seeds: wanted a number in \[1, 100000\], got 0",
        ),
        ([TIED | {"n_seeds": 4}], r"seeds: wanted seeds of the data set, \[4, 5, .*, got 6"),
        (
            [TIED | {"readout": "other"}],
            "column readout: wanted one of 'tied' or 'untied', got 'other'",
        ),
        ([TIED | {"batch_size": 5}], "unknown column 'batch_size'"),
        (
            [TIED | {"labels": "none"}],
            "column labels: wanted one of 'given' or 'permuted', got 'none'",
        ),
    ],
)
def test_a_table_of_no_configurations_is_refused(train, tmp_path, dataset, configurations, message):
    with pytest.raises(InputError, match=message):
        train(PARAMS, *configurations)
    assert not (tmp_path / "runs").exists()


def test_a_batch_may_be_all_samples_and_be_fitted_at_once(train, tmp_path, dataset):
    params = PARAMS | {"batch_size": N_TRAIN, "fitted_loss": 9}
    train(params, UNTIED)
    table = check(dataset, params, UNTIED, [0, 2, 5], tmp_path / "runs" / "each")
    assert table["fitted_step"].tolist() == [-1, -1, 0, 0, 0, 0]


def test_a_batch_of_more_than_all_samples_is_refused(train, tmp_path, dataset):
    with pytest.raises(InputError, match="batch_size: wanted at most the 13 samples, got 14"):
        train(PARAMS | {"batch_size": N_TRAIN + 1}, TIED, UNTIED)
    assert files(tmp_path) == ["configurations", "params.yaml", "samples"]


def test_a_broken_data_set_is_refused(train, tmp_path):
    (tmp_path / "samples").write_bytes(b"none")
    with pytest.raises(InputError, match="samples: wanted a data set of patterns, got: "):
        train(PARAMS, TIED, UNTIED)
