"""The data set of patterns is what each seed's own draws give, sample by sample."""

import pytest
import torch
from safetensors.torch import load_file

from lib.files.files import InputError
from tests.low_rank_sparse import low_rank_sparse_made as reference
from tests.stages.made import files, generator

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


def test_every_tensor_is_drawn_from_its_seed(stage, tmp_path, capsys):
    stage("low_rank_sparse.generate", {"s": PARAMS}, section="s", dataset=tmp_path / "samples")
    found = load_file(tmp_path / "samples")
    assert len(found) == 2 + 2 * 4
    assert found["seeds"].tolist() == [6, 7]
    for i, seed in enumerate((6, 7)):
        mu = reference.orthonormal(8, 5, generator(seed, "patterns"))
        torch.testing.assert_close(found["patterns"][i], mu)
        for part, n in (("train", 9), ("test", 6)):
            wanted = reference.samples(PARAMS, [[0], [1]], mu, n, generator(seed, part))
            for name, tensor in wanted.items():
                torch.testing.assert_close(found[f"{part}_{name}"][i], tensor)
    assert capsys.readouterr().out == "2 seeds of 9 training and 6 test samples\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_train": 0}, r"n_train: wanted a number in \[1, 1e6\], got 0"),
        ({"n_patterns": 9}, "n_patterns: wanted more than the 2 .* and at most d_model = 8"),
        ({"n_patterns": 2}, "n_patterns: wanted more than the 2 discriminative patterns"),
        ({"n_confusion": 4}, "n_relevant: wanted more than n_confusion"),
        ({"seq_len": 5}, "n_relevant: .*, and both to fit into 5 tokens, got 4 and 2"),
    ],
)
def test_params_of_no_data_are_refused_before_anything_is_written(stage, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        stage(
            "low_rank_sparse.generate",
            {"s": PARAMS | change},
            section="s",
            dataset=tmp_path / "samples",
        )
    assert files(tmp_path) == ["params.yaml"]
