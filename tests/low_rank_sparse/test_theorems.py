"""What Li et al. (2024) prove or what follows from their model, on small problems in float64.

The formulas of the paper's theorem 1 and corollary 1 were not available to us: what is tested here
is derived from the model (docs/low_rank_sparse.md) or is the statement that we reconstructed.
"""

import itertools

import pytest
import torch

from lib.low_rank_sparse.energy import leading_energy
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    attention_pattern,
    hinge,
    initial_weights,
    loss_gradient,
    margins,
    neuron_outputs,
    outputs,
    random_readout,
    relevant_attention,
)
from lib.low_rank_sparse.patterns import PatternTask, draw_samples, epochs, orthonormal_patterns
from lib.low_rank_sparse.subspaces import alignment, leading_directions
from lib.matrices.low_rank import truncated_updates
from lib.training.devices import generator
from lib.training.gradient_descent import gradient_descent

D, M, SEQ_LEN = 20, 15, 40


class Trained:
    """A small training of one seed: what it began with, what it learned, its data."""

    def __init__(
        self, seed=0, *, classes=(1, 1), n_outputs=1, n_neurons=60, n_steps=50, rate=1.0, **data
    ):
        self.task = PatternTask(
            **{
                "d_model": D,
                "n_patterns": M,
                "seq_len": SEQ_LEN,
                "n_relevant": 6,
                "n_confusion": 1,
                "noise": 0.0,
            }
            | data,
            patterns_of_classes=classes,
        )
        self.mu = orthonormal_patterns(self.task, generator(seed, "patterns")).double()
        self.mu = torch.linalg.qr(self.mu.T).Q.T  # orthonormal in float64
        train, test = (
            draw_samples(self.task, self.mu, n, generator(seed, part))
            for part, n in (("a", 200), ("b", 60))
        )
        self.X, self.labels = train.tokens, train.labels
        self.test = test
        drawn = initial_weights(D, n_neurons, 0.01, generator(seed, "weights"))
        self.initial = {name: W.double() for name, W in drawn.items()}
        self.readout = random_readout(
            "tied", n_outputs, SEQ_LEN, n_neurons, generator(seed, "readout")
        ).double()
        self.losses = []
        self.final = self.initial
        feed = ((i,) for i in epochs(200, 50, n_steps, generator(seed, "order")))
        for step in gradient_descent(self.slope, self.initial, rate, feed):
            self.final = step.after
            self.losses.append(float(step.loss))

    def slope(self, weights, index):
        return loss_gradient(weights, self.readout, self.X[index], self.labels[index])

    def update(self, name):
        return self.final[name] - self.initial[name]

    def hinge(self, weights):
        return float(
            hinge(
                margins(outputs(weights, self.readout, self.test.tokens), self.test.labels)
            ).mean()
        )

    def cut(self, rank):
        return {
            name: dict(truncated_updates(self.final[name], self.initial[name], [rank]))[rank]
            for name in MATRICES
        }

    def steps_to_fit(self):
        return next(step for step, loss in enumerate(self.losses) if loss < 1e-2)


@pytest.fixture(scope="module")
def trained():
    return Trained()


def test_training_reaches_zero_hinge_loss_on_new_samples(trained):
    assert trained.hinge(trained.initial) == pytest.approx(1, abs=0.02)
    assert trained.hinge(trained.final) < 1e-3


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


def test_the_tail_of_the_keys_update_is_many_nearly_equal_values(trained):
    """M - 3 of them: one a pattern that is irrelevant, less the direction that the softmax does not
    see.
    """
    tail = torch.linalg.svdvals(trained.update("W_K"))[2 : M - 1]
    assert len(tail) == M - 3
    assert tail[-1] > 0.6 * tail[0]


def test_updates_are_of_rank_two_but_for_a_small_tail(trained):
    energy = {
        name: float(leading_energy(torch.linalg.svdvals(trained.update(name)), 2))
        for name in MATRICES
    }
    assert min(energy["W_Q"], energy["W_K"]) > 0.96
    assert min(energy["W_V"], energy["W_O"]) > 0.99


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
    nothing = {name: dict(truncated_updates(W, 0 * W, [0]))[0] for name, W in trained.final.items()}
    assert attention(nothing) == pytest.approx(6 / 40)


def test_the_leading_directions_need_the_mean_irrelevant_pattern_too(trained):
    leading, _ = leading_directions(trained.update("W_K"), 2)
    with_mean = torch.cat([trained.mu[:2], trained.mu[2:].mean(0, keepdim=True)])
    assert alignment(leading, with_mean) > 0.995
    assert 0.85 < alignment(leading, trained.mu[:2]) < 0.97


def test_where_values_do_not_tell_tokens_apart_queries_and_keys_do_not_move(trained):
    """Then c_ls is the same for all keys s, and the softmax's centring leaves nothing of it."""
    value = torch.randn(D, generator=generator(0)).double()
    same = trained.initial | {
        "W_V": torch.outer(trained.mu.sum(0), value)
    }  # x W_V is the value of every token x
    _, slopes = loss_gradient(same, trained.readout, trained.X[:50], trained.labels[:50])
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
    assert Trained(
        n_confusion=0, n_relevant=8, rate=0.5, n_steps=90
    ).steps_to_fit() == pytest.approx(2 * steps, rel=0.2)
    assert Trained(n_confusion=0, n_relevant=4, n_steps=90).steps_to_fit() == pytest.approx(
        2 * steps, rel=0.2
    )


def test_removing_neurons_at_random_scales_the_output_on_average(trained):
    """The mean over all ways to remove one of four groups of neurons is 3/4 of the output: a matter
    of scale.
    """
    each = neuron_outputs(trained.final, trained.readout, trained.test.tokens)[:, 0]
    groups = each.unflatten(1, (4, -1)).sum(-1)
    ways = [groups[:, list(kept)].sum(1) for kept in itertools.combinations(range(4), 3)]
    torch.testing.assert_close(
        torch.stack(ways).mean(0), 0.75 * each.sum(1), rtol=1e-10, atol=1e-12
    )
