"""The transformer is the one that is written out, token by token and head by head."""

import torch

from lib.vision.vit import ViT, logits, remove_heads, training_loss, with_qk_norm
from tests.vision import vit_made


def test_logits_are_those_of_the_plain_model():
    weights = vit_made.model(0, n_layers=3) | vit_made.biases(1, n_layers=3)
    weights = {name: w.double() for name, w in weights.items()}
    images = torch.randn(6, *vit_made.IMAGE_SHAPE, dtype=torch.float64)
    found, wanted = (of(weights, images) for of in (logits, vit_made.logits))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def initial(attention_biases):
    draw = torch.Generator().manual_seed(3)
    model = ViT(**vit_made.SIZES, attention_biases=attention_biases)
    return model.initial_weights(vit_made.IMAGE_SHAPE, 4, 0.5, "layers", draw)


def test_attention_biases_are_drawn_behind_all_else_and_scaled_as_their_layer():
    plain, biased = initial(attention_biases=False), initial(attention_biases=True)
    added = {name: biased.pop(name) for name in ("b_Q", "b_K", "b_V", "b_O")}
    assert all(torch.equal(biased[name], w) for name, w in plain.items())
    d, h, e, n = (vit_made.SIZES[k] for k in ("d_model", "n_heads", "d_head", "n_layers"))
    for name, b in added.items():
        bound = 0.5 / (h * e if name == "b_O" else d) ** 0.5
        assert tuple(b.shape) == ((n, d) if name == "b_O" else (n, h, e))
        assert 0.7 * bound < b.abs().max() <= bound


def test_a_removed_head_takes_its_biases_with_it():
    weights = vit_made.model(0) | vit_made.biases(1, n_layers=2)
    kept = torch.tensor([[0, 2], [1, 2]])
    smaller = remove_heads(weights, kept)
    silent = {name: w.clone() for name, w in weights.items()}
    for layer, gone in enumerate((1, 0)):
        silent["W_O"][layer, gone] = 0
    images = torch.randn(2, *vit_made.IMAGE_SHAPE)
    torch.testing.assert_close(logits(smaller, images), logits(silent, images))
    assert tuple(smaller["b_Q"].shape) == (2, 2, vit_made.SIZES["d_head"])


def with_gains(seed):
    """Weights in float64, also with biases, and gains that differ by layer and head."""
    weights = with_qk_norm(vit_made.model(seed) | vit_made.biases(seed + 1, n_layers=2))
    factors = 0.5 + torch.rand(2, 3, generator=torch.Generator().manual_seed(seed + 2))
    weights["gain_QK"] = weights["gain_QK"] * factors
    return {name: w.double() for name, w in weights.items()}


def test_with_qk_norm_scores_are_cosines_times_a_gain():
    weights = with_gains(4)
    images = torch.randn(5, *vit_made.IMAGE_SHAPE, dtype=torch.float64)
    found, wanted = (of(weights, images) for of in (logits, vit_made.logits))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    gains = with_qk_norm(vit_made.model(4))["gain_QK"]
    torch.testing.assert_close(gains, torch.full((2, 3), vit_made.SIZES["d_head"] ** 0.5))


def test_with_qk_norm_the_loss_keeps_its_value_as_keys_and_queries_are_scaled():
    """So its gradient in each head's W_Q and W_K is orthogonal to them (Euler)."""
    weights = with_gains(7) | {"b_Q": torch.zeros(2, 3, 4), "b_K": torch.zeros(2, 3, 4)}
    weights = {name: w.double().requires_grad_() for name, w in weights.items()}
    images = torch.randn(5, *vit_made.IMAGE_SHAPE, dtype=torch.float64)
    scaled = weights | {"W_Q": weights["W_Q"] * 7, "W_K": weights["W_K"] / 3}
    torch.testing.assert_close(logits(scaled, images), logits(weights, images))
    loss = training_loss(weights, images, torch.arange(5) % 4, "float32")
    loss.backward()
    for name in ("W_Q", "W_K"):
        W = weights[name]
        gradient = weights[name].grad
        along = (W * gradient).sum((-2, -1)).abs()
        assert (along < 1e-12 * W.norm(dim=(-2, -1)) * gradient.norm(dim=(-2, -1))).all()
    along = (weights["W_V"] * weights["W_V"].grad).sum((-2, -1)).abs()
    assert (along > 1e-4).all()  # no such law for values


def test_a_removed_head_takes_its_gain_with_it():
    weights = with_gains(8)
    kept = torch.tensor([[0, 2], [1, 2]])
    silent = {name: w.clone() for name, w in weights.items()}
    for layer, gone in enumerate((1, 0)):
        silent["W_O"][layer, gone] = 0
    images = torch.randn(2, *vit_made.IMAGE_SHAPE, dtype=torch.float64)
    torch.testing.assert_close(logits(remove_heads(weights, kept), images), logits(silent, images))
