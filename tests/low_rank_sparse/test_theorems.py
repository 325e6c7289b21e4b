"""What Li et al. (2024) prove or what follows from their model, on small problems in float64.

The formulas of the paper's theorem 1 and corollary 1 were not at hand: what is tested here
is derived from the model (docs/low_rank_sparse.md) or is the statement that we reconstructed.
"""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from lib.low_rank_sparse.one_layer import (
    SampleLoss,
    initial_weights,
    loss_gradient,
    random_readout,
)
from lib.low_rank_sparse.patterns import (
    PatternTask,
    Samples,
    draw_samples,
    epochs,
    orthonormal_patterns,
)
from lib.training.devices import generator
from lib.training.gradient_descent import gradient_descent

D, M, SEQ_LEN = 20, 15, 40


class Trained(NamedTuple):
    """What a small training began with, what it learned, and its data."""

    mu: Tensor
    samples: Samples
    readout: Tensor
    initial: dict[str, Tensor]
    final: dict[str, Tensor]


@pytest.fixture(scope="module")
def trained():
    task = PatternTask(D, M, SEQ_LEN, n_relevant=6, n_confusion=1, noise=0.0)
    mu = orthonormal_patterns(task, generator(0, "patterns")).double()
    mu = torch.linalg.qr(mu.T).Q.T  # orthonormal in float64
    samples = draw_samples(task, mu, 200, generator(0, "samples"))
    drawn = initial_weights(D, 60, 0.01, generator(0, "weights"))
    initial = {name: W.double() for name, W in drawn.items()}
    readout = random_readout("tied", 1, SEQ_LEN, 60, generator(0, "readout")).double()
    loss = SampleLoss(readout, samples.tokens, samples.labels)
    feed = ((i,) for i in epochs(200, 50, 50, generator(0, "order")))
    *_, last = gradient_descent(loss.gradient, initial, 1.0, feed)
    return Trained(mu, samples, readout, initial, last.after)


def test_the_sum_of_the_patterns_is_never_learned_by_the_keys(trained):
    """The softmax does not see a shift of all keys: without noise, (Σ_j μ_j) ΔW_K = 0 at every
    step.
    """
    update = trained.final["W_K"] - trained.initial["W_K"]
    assert (trained.mu.sum(0) @ update).abs().max() < 1e-12
    assert (trained.mu[0] @ update).abs().max() > 0.1


def test_where_values_do_not_tell_tokens_apart_queries_and_keys_do_not_move(trained):
    """Then c_ls is the same for all keys s, and the softmax's centring leaves nothing of it."""
    value = torch.randn(D, generator=generator(0)).double()
    # x W_V is the value of every token x
    same = trained.initial | {"W_V": torch.outer(trained.mu.sum(0), value)}
    some = trained.samples[:50]
    _, slopes = loss_gradient(same, trained.readout, some.tokens, some.labels)
    assert slopes["W_Q"].abs().max() < 1e-12
    assert slopes["W_K"].abs().max() < 1e-12
    assert slopes["W_O"].abs().max() > 1e-6
