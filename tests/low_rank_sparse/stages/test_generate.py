"""The data set of patterns is what each seed's own draws give, sample by sample."""

import pytest
import torch
from safetensors.torch import load_file

from lib.files.files import InputError
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import files, generator

SECTION = "family.generate"
PARAMS = {
    "n_seeds": 2,
    "first_seed": 6,
    "n_train": 9,
    "n_test": 6,
    "d_model": 8,
    "n_patterns": 5,
    "seq_len": 11,
    "n_relevant": 4,
    "n_confusion": 2,
    "noise": 0.25,
}


def expected(params):
    """Every tensor of the file, the seeds stacked."""
    parts = []
    for seed in (6, 7):
        mu = reference.orthonormal(
            params["d_model"], params["n_patterns"], generator(seed, "patterns")
        )
        of_seed = {"seeds": torch.tensor(seed), "patterns": mu}
        for part in ("train", "test"):
            drawn = reference.samples(
                params, [[0], [1]], mu, params[f"n_{part}"], generator(seed, part)
            )
            of_seed |= {f"{part}_{name}": tensor for name, tensor in drawn.items()}
        parts.append(of_seed)
    return {name: torch.stack([of_seed[name] for of_seed in parts]) for name in parts[0]}


def test_every_tensor_is_drawn_from_its_seed(stage, tmp_path, capsys):
    stage("low_rank_sparse.generate", {SECTION: PARAMS}, SECTION, tmp_path / "data" / "samples")
    found, wanted = load_file(tmp_path / "data" / "samples"), expected(PARAMS)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(
            found[name], tensor, rtol=1e-6, atol=1e-6
        )  # one rounding of float32
    assert found["train_tokens"].shape == (2, 9, 11, 8)
    assert files(tmp_path) == ["data/samples", "params.yaml"]
    assert capsys.readouterr().out == "2 seeds of 9 training and 6 test samples\n"


def test_samples_are_those_of_the_paper(stage, tmp_path):
    """Not by the same draws: what the text says of them."""
    stage(
        "low_rank_sparse.generate", {SECTION: PARAMS | {"noise": 0}}, SECTION, tmp_path / "samples"
    )
    found = load_file(tmp_path / "samples")
    for i, part in ((i, part) for i in range(2) for part in ("train", "test")):
        mu = found["patterns"][i]
        torch.testing.assert_close(mu @ mu.T, torch.eye(5), rtol=0, atol=1e-6)
        torch.testing.assert_close(found[f"{part}_tokens"][i], mu[found[f"{part}_patterns"][i]])
        labels = found[f"{part}_labels"][i].tolist()
        assert abs(labels.count(0) - labels.count(1)) == len(labels) % 2
        assert found[f"{part}_relevant"][i].tolist() == labels
        for label, patterns in zip(labels, found[f"{part}_patterns"][i].tolist(), strict=True):
            assert (patterns.count(label), patterns.count(1 - label)) == (4, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_seeds": 0}, r"n_seeds: wanted a number in \[1, 100000\], got 0"),
        (
            {"n_patterns": 9},
            "n_patterns: wanted more than the 2 discriminative patterns and at most d_model = 8",
        ),
        ({"n_patterns": 2}, "n_patterns: wanted more than the 2 discriminative patterns"),
        ({"n_patterns": 0}, r"n_patterns: wanted a number in \[1, 16384\], got 0"),
        ({"n_confusion": -1}, r"n_confusion: wanted a number in \[0, 16384\], got -1"),
        ({"noise": -0.1}, r"noise: wanted a number in \[0, 100\], got -0.1"),
        ({"n_confusion": 4}, "n_relevant: wanted more than n_confusion"),
        (
            {"seq_len": 5},
            "n_relevant: wanted more than n_confusion, and both to fit into 5 tokens, got 4 and 2",
        ),
    ],
)
def test_params_of_no_data_are_refused_before_anything_is_written(stage, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        stage("low_rank_sparse.generate", {SECTION: PARAMS | change}, SECTION, tmp_path / "samples")
    assert files(tmp_path) == ["params.yaml"]
