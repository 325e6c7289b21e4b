"""Blocks of samples change nothing, and weights rest where the gradient is zero."""

import pytest
import torch

from lib.low_rank_sparse import one_layer as one_layer_vit
from lib.low_rank_sparse.one_layer import (
    SPARE,
    SampleLoss,
    loss_gradient,
    margins,
    neuron_margins,
    outputs,
    random_readout,
)

D, N_NEURONS, SEQ_LEN, N_SAMPLES = 6, 10, 7, 9


def problem(kind, n_outputs):
    """Weights in general position, a readout, tokens and labels, in float64."""
    g = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    weights = {"W_Q": draw(D, 5), "W_K": draw(D, 5), "W_V": draw(D, 4), "W_O": draw(N_NEURONS, 4)}
    readout = random_readout(kind, n_outputs, SEQ_LEN, N_NEURONS, g).double()
    labels = torch.randint(0, max(2, n_outputs), (N_SAMPLES,), generator=g)
    return weights, readout, draw(N_SAMPLES, SEQ_LEN, D), labels


@pytest.mark.parametrize(("kind", "n_outputs"), [("tied", 1), ("untied", 3)])
def test_samples_that_do_not_fit_into_a_block_change_nothing(monkeypatch, kind, n_outputs):
    weights, readout, X, labels = problem(kind, n_outputs)

    def everything():
        loss, gradient = loss_gradient(weights, readout, X, labels)
        return [
            loss,
            *gradient.values(),
            outputs(weights, readout, X),
            neuron_margins(weights, readout[:1], X, labels),
        ]

    at_once = everything()
    monkeypatch.setattr(one_layer_vit, "BLOCK", 4 * SEQ_LEN * N_NEURONS)
    for found, wanted in zip(everything(), at_once, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


def test_weights_rest_where_every_sample_has_a_margin_of_one_and_a_little():
    """There is one output and one neuron per sign, so that its scale is the margin's."""
    weights, readout, X, _ = problem("tied", 1)
    labels = (outputs(weights, readout, X)[:, 0] < 0).long()
    least = float(margins(outputs(weights, readout, X), labels).min())
    for spare, rests in ((2 * SPARE, True), (0.5 * SPARE, False), (-0.1, False)):
        scaled = weights | {"W_O": weights["W_O"] * (1 + spare) / least}
        assert SampleLoss(readout, X, labels).at_rest(scaled) is rests
