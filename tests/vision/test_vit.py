"""The transformer equals PyTorch's own, block by block, and starts as the library does, times the
init scale.
"""

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import conv2d, layer_norm

from lib.vision.vit import ViT, logits

SHAPE = (3, 8, 4)  # channels, height, width


def initial(model, init_scale=1.0, scaled="layers", shape=SHAPE, seed=0):
    return model.initial_weights(shape, 5, init_scale, scaled, torch.Generator().manual_seed(seed))


def perturbed(model):
    """Weights in float64 in which nothing is zero or one, so that every tensor matters."""
    g = torch.Generator().manual_seed(1)
    return {
        name: (
            w.double() + 0.3 * torch.randn(w.shape, generator=g, dtype=torch.float64)
        ).requires_grad_()
        for name, w in initial(model).items()
    }


@pytest.fixture
def images():
    return torch.randn(6, *SHAPE, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def embedded(weights, images, patch_size):
    """Patches through a convolution, after the class token, plus positions."""
    kernel = weights["patch"].T.unflatten(1, (images.shape[1], patch_size, patch_size))
    X = conv2d(images, kernel, weights["patch_bias"], stride=patch_size).flatten(2).mT
    return torch.cat([weights["class_token"].expand(len(X), 1, -1), X], 1) + weights["positions"]


def read_out(weights, X):
    X = layer_norm(X[:, 0], X.shape[-1:], weights["norm"], weights["norm_bias"])
    return X @ weights["head"] + weights["head_bias"]


def torch_logits(weights, images, patch_size):
    """The same function through `torch.nn.TransformerEncoderLayer`, on every token of every
    block.
    """
    n_layers, n_heads, d_model, d_head = weights["W_Q"].shape
    assert n_heads * d_head == d_model
    encoder = torch.nn.TransformerEncoderLayer(
        d_model,
        n_heads,
        weights["W_1"].shape[2],
        dropout=0.0,
        activation="gelu",
        norm_first=True,
        batch_first=True,
        dtype=torch.float64,
    )

    def fused(W):  # [head, d_model, d_head] to [out, in]
        return W.transpose(1, 2).flatten(0, 1)

    X = embedded(weights, images, patch_size)
    for layer in range(n_layers):
        w = {name: weight[layer] for name, weight in weights.items() if len(weight) == n_layers}
        parameters = {
            "self_attn.in_proj_weight": torch.cat(
                [fused(w["W_Q"]), fused(w["W_K"]), fused(w["W_V"])]
            ),
            "self_attn.in_proj_bias": torch.zeros(3 * d_model, dtype=torch.float64),
            "self_attn.out_proj.weight": fused(w["W_O"]).T,
            "self_attn.out_proj.bias": torch.zeros(d_model, dtype=torch.float64),
            "linear1.weight": w["W_1"].T,
            "linear1.bias": w["b_1"],
            "linear2.weight": w["W_2"].T,
            "linear2.bias": w["b_2"],
            "norm1.weight": w["norm_1"],
            "norm1.bias": w["norm_1_bias"],
            "norm2.weight": w["norm_2"],
            "norm2.bias": w["norm_2_bias"],
        }
        assert parameters.keys() == dict(encoder.named_parameters()).keys()
        X = functional_call(encoder, parameters, (X,))
    return read_out(weights, X)


def assert_same_function(weights, found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    direction = torch.randn(
        found.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )
    for name in weights:
        one, other = (
            torch.autograd.grad((z * direction).sum(), weights[name], retain_graph=True)[0]
            for z in (found, wanted)
        )
        assert one.abs().max() > 1e-6, name
        torch.testing.assert_close(
            one, other, rtol=1e-12, atol=1e-12 * float(other.abs().max()), msg=name
        )


@pytest.mark.parametrize("n_layers", [1, 3])
def test_the_transformer_and_its_gradients_are_those_of_torch(images, n_layers):
    weights = perturbed(
        ViT(patch_size=2, d_model=12, n_heads=3, d_head=4, d_mlp=7, n_layers=n_layers)
    )
    assert_same_function(weights, logits(weights, images), torch_logits(weights, images, 2))
