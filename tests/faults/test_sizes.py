"""A length of work that is a slip is refused as the params are read, before any work."""

import math
from dataclasses import replace
from typing import get_type_hints

import pytest

from lib.files.params import Steps, read_params
from stages.checkpoints import train as train_checkpoints
from stages.decision_lists import control
from stages.decision_lists import train as train_lists
from stages.gradual_rank import descend, full_weights, optimizers, paper_size
from stages.low_rank_sparse import adapt, sweep
from stages.low_rank_sparse import train as train_patterns
from tests.pipeline.project import ROOT


@pytest.mark.parametrize(
    "module",
    [adapt, control, optimizers, paper_size, sweep, train_checkpoints, train_lists, train_patterns],
    ids=lambda module: module.__name__,
)
def test_every_number_of_steps_of_one_training_has_a_bound(module):
    schemas = [one for one in vars(module).values() if hasattr(one, "__dataclass_fields__")]
    kinds = [
        kind
        for schema in schemas
        for name, kind in get_type_hints(schema, include_extras=True).items()
        if name.endswith("n_steps") or name == "alignment_steps"
    ]
    assert kinds
    assert {kind == Steps for kind in kinds} == {True}


def slip(most: int, got: float = math.nan) -> str:
    said = f"rescaled_end, learning_rate: wanted an end that takes at most {most} steps"
    return said if math.isnan(got) else f"{said}, got {got} "


@pytest.mark.parametrize(
    "values", [{"rescaled_end": 1e9}, {"learning_rate": 1e-9}, {"learning_rate": 1e-309}]
)
def test_an_example_of_too_many_steps_is_refused(values):
    section = "gradual_rank.descend"
    drop = read_params(section, descend.Descend, ROOT / "params.yaml").drop
    end = -drop.log10_init_scale * math.log(10) * drop.rescaled_end
    assert drop.n_steps == math.ceil(end / drop.learning_rate)
    with pytest.raises(ValueError, match=slip(200_000)):
        replace(drop, **values)


@pytest.mark.parametrize(
    ("values", "got"),
    [
        ({"learning_rate": 1e-3}, math.ceil(50 * 16 * math.log(10) / 1e-3)),
        ({"learning_rate": 1e-309}, math.inf),
        (
            {"rescaled_end": 1e4, "log10_init_scales": (-1.0, -100.0)},
            math.ceil(1e6 * math.log(10) / 0.4),
        ),
    ],
)
def test_full_matrices_are_trained_for_at_most_a_million_steps(values, got):
    """The smallest scale takes the most steps; the section gives no number of steps."""
    section = "gradual_rank.full_weights"
    params = read_params(section, full_weights.FullWeights, ROOT / "params.yaml")
    given = {"rescaled_end": 50.0, "learning_rate": 0.4, "log10_init_scales": (-8.0, -16.0)}
    params = replace(params, **given)
    assert params.n_steps(-16) == math.ceil(50 * 16 * math.log(10) / 0.4)
    with pytest.raises(ValueError, match=slip(1_000_000, got)):
        replace(params, **values)
