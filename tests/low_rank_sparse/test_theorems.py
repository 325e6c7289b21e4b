"""What Li et al. (2024) prove or what follows from their model, on small problems in float64.

The formulas of the paper's theorem 1 and corollary 1 were not available to us: what is tested here
is derived from the model (docs/low_rank_sparse.md) or is the statement that we reconstructed.
"""

import pytest
import torch

from lib.low_rank_sparse.energy import leading_energy
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    SampleLoss,
    attention_pattern,
    hinge,
    initial_weights,
    loss_gradient,
    margins,
    outputs,
    random_readout,
    relevant_attention,
)
from lib.low_rank_sparse.patterns import PatternTask, draw_samples, epochs, orthonormal_patterns
from lib.low_rank_sparse.subspaces import alignment, leading_directions
from lib.matrices.low_rank import truncated_models
from lib.training.devices import generator
from lib.training.gradient_descent import gradient_descent

D, M, SEQ_LEN = 20, 15, 40


SIZES = {
    "d_model": D,
    "n_patterns": M,
    "seq_len": SEQ_LEN,
    "n_relevant": 6,
    "n_confusion": 1,
    "noise": 0.0,
}


class Trained:
    """A small training from seed 0: what it began with, what it learned, its data."""

    def __init__(self, *, classes=(1, 1), n_outputs=1, n_neurons=60, n_steps=50, rate=1.0, **data):
        task = PatternTask(**SIZES | data, patterns_of_classes=classes)
        mu = orthonormal_patterns(task, generator(0, "patterns")).double()
        self.mu = torch.linalg.qr(mu.T).Q.T  # orthonormal in float64
        self.train = draw_samples(task, self.mu, 200, generator(0, "a"))
        self.test = draw_samples(task, self.mu, 60, generator(0, "b"))
        drawn = initial_weights(D, n_neurons, 0.01, generator(0, "weights"))
        self.initial = {name: W.double() for name, W in drawn.items()}
        shape = n_outputs, SEQ_LEN, n_neurons
        self.readout = random_readout("tied", *shape, generator(0, "readout")).double()
        self.losses = []
        feed = ((i,) for i in epochs(200, 50, n_steps, generator(0, "order")))
        loss = SampleLoss(self.readout, self.train.tokens, self.train.labels)
        for step in gradient_descent(loss.gradient, self.initial, rate, feed):
            self.final = step.after
            self.losses.append(float(step.loss))

    def update(self, name):
        return self.final[name] - self.initial[name]

    def hinge(self, weights):
        F = outputs(weights, self.readout, self.test.tokens)
        return float(hinge(margins(F, self.test.labels)).mean())

    def cut(self, rank):
        return truncated_models(self.final, self.initial, [rank])[rank]

    def steps_to_fit(self):
        return next(step for step, loss in enumerate(self.losses) if loss < 1e-2)


@pytest.fixture(scope="module")
def trained():
    return Trained()


def test_the_sum_of_the_patterns_is_never_learned_by_the_keys(trained):
    """The softmax does not see a shift of all keys: without noise, (Σ_j μ_j) ΔW_K = 0 at every
    step.
    """
    update = trained.update("W_K")
    assert (trained.mu.sum(0) @ update).abs().max() < 1e-12
    assert (trained.mu[0] @ update).abs().max() > 0.1


def test_the_numerical_rank_of_the_keys_update_is_the_number_of_patterns_less_one(trained):
    sigma = torch.linalg.svdvals(trained.update("W_K"))
    assert int((sigma > 1e-3 * sigma[0]).sum()) == M - 1
    assert sigma[M - 1] < 1e-12 * sigma[0] + 1e-14


def test_rank_two_is_enough_and_rank_one_is_not(trained):
    assert trained.hinge(trained.cut(2)) <= trained.hinge(trained.final) + 0.005
    assert trained.hinge(trained.cut(1)) > 0.1
    assert trained.hinge(trained.cut(0)) == pytest.approx(1, abs=0.02)


def test_cutting_the_update_to_nothing_gives_the_initial_attention_back(trained):
    """Had the weights been cut in place of their updates, attention would be uniform: 6 of 40."""

    def attention(weights):
        pattern = attention_pattern(weights, trained.test.tokens)
        return float(relevant_attention(pattern, trained.test.is_relevant)[0])

    assert attention(trained.cut(0)) == attention(trained.initial)
    assert attention(trained.initial) > 0.155
    nothing = {name: 0 * W for name, W in trained.final.items()}
    assert attention(nothing) == pytest.approx(6 / 40)


def test_the_leading_directions_need_the_mean_irrelevant_pattern_too(trained):
    leading, _ = leading_directions(trained.update("W_K"), 2)
    with_mean = torch.cat([trained.mu[:2], trained.mu[2:].mean(0, keepdim=True)])
    assert alignment(leading, with_mean) > 0.995
    assert 0.85 < alignment(leading, trained.mu[:2]) < 0.97


def test_where_values_do_not_tell_tokens_apart_queries_and_keys_do_not_move(trained):
    """Then c_ls is the same for all keys s, and the softmax's centring leaves nothing of it."""
    value = torch.randn(D, generator=generator(0)).double()
    # x W_V is the value of every token x
    same = trained.initial | {"W_V": torch.outer(trained.mu.sum(0), value)}
    some = trained.train[:50]
    _, slopes = loss_gradient(same, trained.readout, some.tokens, some.labels)
    assert slopes["W_Q"].abs().max() < 1e-12
    assert slopes["W_K"].abs().max() < 1e-12
    assert slopes["W_O"].abs().max() > 1e-6


def test_the_rank_follows_the_number_of_classes():
    three = Trained(classes=(1, 1, 1), n_outputs=3, n_neurons=100, n_steps=90)
    assert three.hinge(three.cut(3)) < 0.005
    assert three.hinge(three.cut(2)) > 0.1
    for name in MATRICES:
        assert leading_energy(torch.linalg.svdvals(three.update(name)), 3) > 0.95


def test_steps_to_fit_fall_as_the_inverse_of_step_size_and_of_relevant_tokens():
    """T = Θ(1 / (η α*)): halving either doubles the steps, to within a fifth."""
    steps = Trained(n_confusion=0, n_relevant=8).steps_to_fit()
    for halved in ({"n_relevant": 8, "rate": 0.5}, {"n_relevant": 4}):
        found = Trained(n_confusion=0, n_steps=90, **halved).steps_to_fit()
        assert found == pytest.approx(2 * steps, rel=0.2)
