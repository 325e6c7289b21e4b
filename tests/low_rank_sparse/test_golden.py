"""One tiny training of the family low_rank_sparse, number by number: a change that moves them is
noticed here first.
"""

import pytest
import torch

from lib.low_rank_sparse.one_layer import (
    MATRICES,
    initial_weights,
    loss_gradient,
    random_readout,
    score,
)
from lib.low_rank_sparse.patterns import PatternTask, draw_samples, epochs, orthonormal_patterns
from lib.training.devices import generator
from lib.training.gradient_descent import gradient_descent


@pytest.fixture(scope="module", params=["tied", "untied"])
def trained(request):
    """Sixteen steps on eight patterns, from seed 0: every fifth loss, the leading singular values,
    the scores.
    """
    task = PatternTask(
        d_model=10, n_patterns=8, seq_len=16, n_relevant=4, n_confusion=1, noise=0.02
    )
    mu = orthonormal_patterns(task, generator(0, "patterns"))
    train, test = (
        draw_samples(task, mu, n, generator(0, part)) for part, n in (("train", 64), ("test", 40))
    )
    weights = initial = initial_weights(10, 30, 0.02, generator(0, "weights"))
    readout = random_readout(request.param, 1, 16, 30, generator(0, "readout"))
    losses = []
    feed = ((train.tokens[i], train.labels[i]) for i in epochs(64, 16, 16, generator(0, "order")))
    for step in gradient_descent(
        lambda w, X, y: loss_gradient(w, readout, X, y), initial, 2.0, feed
    ):
        weights = step.after
        losses.append(float(step.loss))
    sigma = {
        name: torch.linalg.svdvals(weights[name].double() - initial[name].double())[:2]
        for name in MATRICES
    }
    found = score(weights, readout, test.tokens, test.labels, test.is_relevant)
    return (
        request.param,
        losses[::5],
        {name: values.tolist() for name, values in sigma.items()},
        {name: float(value) for name, value in found.items()},
    )


def test_the_losses_are_as_they_were(trained):
    assert trained[1] == pytest.approx(LOSSES[trained[0]], rel=1e-4)


def test_the_singular_values_are_as_they_were(trained):
    for name, values in SINGULAR_VALUES[trained[0]].items():
        assert trained[2][name] == pytest.approx(values, rel=1e-3)


def test_the_scores_are_as_they_were(trained):
    for name, value in SCORES[trained[0]].items():
        assert trained[3][name] == pytest.approx(value, rel=1e-3)


LOSSES = {
    "tied": [0.997315, 0.822578, 0.274195, 0.0],
    "untied": [0.999638, 0.99255, 0.987033, 0.979084],
}
SINGULAR_VALUES = {
    "tied": {
        "W_Q": [0.92965, 0.35866],
        "W_K": [1.1199, 0.15107],
        "W_V": [2.6495, 0.77744],
        "W_O": [3.1464, 1.8013],
    },
    "untied": {
        "W_Q": [0.054537, 0.016452],
        "W_K": [0.054544, 0.016411],
        "W_V": [0.23673, 0.041441],
        "W_O": [0.71078, 0.31252],
    },
}
SCORES = {
    "tied": {
        "hinge": 0.0,
        "accuracy": 1.0,
        "margin": 1.75113,
        "least_margin": 1.31165,
        "attention": 0.416837,
        "attention_of_relevant": 0.740007,
    },
    "untied": {
        "hinge": 0.975984,
        "accuracy": 1.0,
        "margin": 0.0240156,
        "least_margin": 0.00364522,
        "attention": 0.273534,
        "attention_of_relevant": 0.488984,
    },
}
