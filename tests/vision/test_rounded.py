"""The loss in bfloat16 whose gradient is written out, beside autograd in float32."""

import pytest
import torch

from lib.files.files import InputError
from lib.vision.rounded import merged, rounded_loss, value_and_gradient
from lib.vision.vit import ViT, training_loss, with_qk_norm
from tests.vision.vit_made import IMAGE_SHAPE, N_CLASSES, SIZES, model

N_IMAGES = 23  # in parts of 7, 7, 7 and 2


@pytest.fixture
def problem():
    g = torch.Generator().manual_seed(1)
    images = torch.randn(N_IMAGES, *IMAGE_SHAPE, generator=g)
    return model(0, **SIZES), images, torch.randint(0, N_CLASSES, (N_IMAGES,), generator=g)


def autograd(weights, images, labels):
    leaves = {name: W.clone().requires_grad_() for name, W in weights.items()}
    value = training_loss(leaves, images, labels, "float32")
    return value.detach(), torch.autograd.grad(value, list(leaves.values()))


def test_each_gradient_is_autograds_to_the_rounding_of_bfloat16(problem):
    """Rounding errors are 2⁻⁹ each; a term that lacks or is counted twice is of the order of 1."""
    weights, *batch = problem
    value, found = value_and_gradient(weights, *batch, size=7)
    right, wanted = autograd(weights, *batch)
    assert float(value) == pytest.approx(float(right), rel=1e-2)
    for name, g, exact in zip(weights, found, wanted, strict=True):
        assert g.dtype == torch.float32
        assert float((g - exact).norm() / exact.norm()) < 0.05, name


def test_without_rounding_it_is_autograds(problem, monkeypatch):
    """In float32 nothing but the order of the sums differs."""
    weights, *batch = problem
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda X: X)
    _, found = value_and_gradient(weights, *batch, size=7)
    _, wanted = autograd(weights, *batch)
    for name, g, exact in zip(weights, found, wanted, strict=True):
        torch.testing.assert_close(g, exact, rtol=1e-4, atol=1e-6, msg=name)


def test_its_gradient_comes_from_it_as_from_any_value(problem):
    weights, *batch = problem
    leaves = {name: W.clone().requires_grad_() for name, W in weights.items()}
    (3 * rounded_loss(leaves, *batch)).backward()
    _, found = value_and_gradient(weights, *batch)
    for leaf, g in zip(leaves.values(), found, strict=True):
        torch.testing.assert_close(leaf.grad, 3 * g)


def test_models_that_are_not_written_out_are_refused(problem):
    weights, *batch = problem
    with pytest.raises(InputError, match=r"gradient: wanted plain attention .* got gain_QK"):
        rounded_loss(with_qk_norm(weights), *batch)
    biased = ViT(**SIZES, attention_biases=True).initial_weights(
        IMAGE_SHAPE, N_CLASSES, 1.0, "layers", torch.Generator().manual_seed(0)
    )
    with pytest.raises(InputError, match="got b_Q b_K b_V b_O"):
        rounded_loss(biased, *batch)


def test_merged_weights_give_the_products_behind_a_norm(problem):
    r"""$(\hat x \odot g + c) W = \hat x \, (g \odot W) + c W$, for the first head's queries."""
    weights, *_ = problem
    whole = merged(weights)
    x = torch.randn(5, SIZES["d_model"], generator=torch.Generator().manual_seed(2))
    N = x * weights["norm_1"][1] + weights["norm_1_bias"][1]
    d_head = SIZES["d_head"]
    Q = N @ weights["W_Q"][1, 0] * d_head**-0.5
    found = (x @ whole["QKV"][1] + whole["b_QKV"][1])[:, :d_head]
    torch.testing.assert_close(found, Q)
