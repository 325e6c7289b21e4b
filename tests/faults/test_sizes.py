"""A length of work that is a slip is refused as the params are read, before any work."""

import math

import pytest
import yaml

from lib.files.files import InputError
from lib.files.params import read_params
from stages.decision_lists import control
from stages.decision_lists import train as train_lists
from stages.gradual_rank import descend, full_weights
from stages.low_rank_sparse import adapt as make_steps

MINIBATCH = {"n_tokens": 64, "seq_len": 8, "list_length": 3, "init_scale": 0.01, "batch_size": 256}
MINIBATCH |= {"learning_rate": 1.0, "n_steps": 2, "certify_every": 1, "n_seeds": 1}
JOINT = {"init_scale": 0.01, "n_steps": 2, "n_seeds": 1}
TRAIN = {"step_per_token": 0.5, "every": 1, "joint": JOINT, "starts": {"n_steps": 2, "n_seeds": 1}}
TRAIN |= {"alignment_steps": 2, "minibatch": MINIBATCH}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (train_lists.Train, TRAIN | {"joint": JOINT | {"n_steps": 10**9}}),
        (train_lists.Train, TRAIN | {"alignment_steps": 10**9}),
        (train_lists.Train, TRAIN | {"minibatch": MINIBATCH | {"n_steps": 10**9}}),
        (control.Control, {"scale": 10.0, "learning_rate": 0.1, "n_steps": 10**9}),
        (make_steps.Configuration, {"name": "a", "learning_rate": 1.0, "n_steps": 10**9}),
    ],
    ids=str,
)
def test_a_billion_steps_of_one_training_are_a_slip(schema, values, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": values}))
    with pytest.raises(
        InputError, match=r"params.yaml: x\..*: wanted a number in \[1, 1e6\], got 1000000000"
    ):
        read_params("x", schema, tmp_path / "params.yaml")


DROP = {"minimum": [1.0, 0.8, -0.2], "flow_log10_init_scales": [-4], "coupling": 0.65, "seed": 0}
DROP |= {"learning_rate": 0.2, "log10_init_scale": -32, "rescaled_end": 77}


@pytest.mark.parametrize(
    "values", [{"rescaled_end": 1e9}, {"learning_rate": 1e-9}, {"learning_rate": 1e-309}]
)
def test_an_example_of_too_many_steps_is_refused(values, tmp_path):
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": DROP}))
    assert read_params("x", descend.Drop, tmp_path / "params.yaml").n_steps == math.ceil(
        32 * math.log(10) * 77 / 0.2
    )
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": DROP | values}))
    with pytest.raises(
        InputError, match="x: rescaled_end, learning_rate: wanted an end that takes at most 200000"
    ):
        read_params("x", descend.Drop, tmp_path / "params.yaml")


FULL = {
    "log10_init_scales": [-8, -16],
    "n_seeds": 1,
    "n_samples": 2,
    "seq_len": 2,
    "d_model": 2,
    "threshold": 0.05,
}
FULL |= {"learning_rate": 0.4, "rescaled_end": 50, "n_snapshots": 2, "look_every": 5}


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ({"rescaled_end": 1e9}, 1e9 * 16 * math.log(10) / 0.4),
        ({"learning_rate": 1e-3}, 50 * 16 * math.log(10) / 1e-3),
        ({"learning_rate": 1e-309}, math.inf),
        ({"rescaled_end": 1e4, "log10_init_scales": [-1, -100]}, 1e6 * math.log(10) / 0.4),
    ],
    ids=str,
)
def test_full_matrices_are_trained_for_at_most_a_million_steps(values, got, tmp_path):
    """Of the smallest scale, which takes the most; the section says no number of steps."""
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": FULL}))
    found = read_params("x", full_weights.FullWeights, tmp_path / "params.yaml")
    assert full_weights.n_steps(found, -16) == math.ceil(50 * 16 * math.log(10) / 0.4)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"x": FULL | values}))
    got = math.ceil(got) if got < math.inf else got
    said = (
        r"x: rescaled_end, learning_rate: wanted an end that takes at most 1000000 steps, "
        rf"got {got} \("
    )
    with pytest.raises(InputError, match=said):
        read_params("x", full_weights.FullWeights, tmp_path / "params.yaml")
