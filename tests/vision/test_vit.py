"""The transformer equals PyTorch's own, block by block, and starts as the library does, times the
init scale.
"""

import math

import pytest
import torch
from torch.func import functional_call
from torch.nn.functional import conv2d, gelu, layer_norm

from lib.files.files import InputError
from lib.files.params import parse
from lib.training.attention import attention
from lib.vision.vit import MATRICES, ViT, logits, patches, training_cost, training_loss

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


def plain_logits(weights, images, patch_size):
    """The same function with every token asking in every block, the last one too."""
    X = embedded(weights, images, patch_size)
    for layer in range(len(weights["W_Q"])):
        w = {
            name: weight[layer]
            for name, weight in weights.items()
            if len(weight) == len(weights["W_Q"])
        }
        N = layer_norm(X, X.shape[-1:], w["norm_1"], w["norm_1_bias"])
        X = X + attention(N, N, *(w[name] for name in ("W_Q", "W_K", "W_V", "W_O")))
        N = layer_norm(X, X.shape[-1:], w["norm_2"], w["norm_2_bias"])
        X = X + gelu(N @ w["W_1"] + w["b_1"]) @ w["W_2"] + w["b_2"]
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


@pytest.mark.parametrize("n_layers", [2, 3])
def test_the_transformer_and_its_gradients_are_those_of_torch(images, n_layers):
    weights = perturbed(
        ViT(patch_size=2, d_model=12, n_heads=3, d_head=4, d_mlp=7, n_layers=n_layers)
    )
    assert_same_function(weights, logits(weights, images), torch_logits(weights, images, 2))


@pytest.mark.parametrize("n_layers", [2, 3])
def test_a_last_block_for_the_class_token_alone_changes_nothing(images, n_layers):
    weights = perturbed(
        ViT(patch_size=4, d_model=6, n_heads=4, d_head=5, d_mlp=7, n_layers=n_layers)
    )
    assert_same_function(weights, logits(weights, images), plain_logits(weights, images, 4))


def test_a_single_block_is_both_the_first_and_the_last(images):
    weights = perturbed(ViT(patch_size=4, d_model=6, n_heads=2, d_head=5, d_mlp=7, n_layers=1))
    layered = {name for name, weight in weights.items() if len(weight) == 1}
    assert layered == {*MATRICES, "b_1", "b_2", "norm_1", "norm_1_bias", "norm_2", "norm_2_bias"}
    assert_same_function(weights, logits(weights, images), plain_logits(weights, images, 4))


def test_every_image_is_classified_for_itself(images):
    weights = perturbed(ViT(patch_size=2, d_model=8, n_heads=2, d_head=3, d_mlp=5, n_layers=2))
    alone = torch.cat([logits(weights, image[None]) for image in images])
    torch.testing.assert_close(logits(weights, images), alone, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("patch_size", [1, 2, 4])
def test_cut_patches_times_a_matrix_are_a_convolution(images, patch_size):
    W = torch.randn(
        3 * patch_size**2, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    kernel = W.T.unflatten(1, (3, patch_size, patch_size))
    wanted = conv2d(images, kernel, stride=patch_size).flatten(2).mT
    torch.testing.assert_close(patches(images, patch_size) @ W, wanted, rtol=1e-12, atol=1e-12)


LAYERS = {"W_Q", "W_K", "W_V", "W_O", "W_1", "b_1", "W_2", "b_2", "head", "head_bias"}
NORMS = {"norm_1", "norm_1_bias", "norm_2", "norm_2_bias", "norm", "norm_bias"}
TOKENS = {"positions", "class_token"}
PATCH = {"patch", "patch_bias"}


@pytest.mark.parametrize(
    ("scaled", "multiplied"),
    [("layers", LAYERS), ("all but patch embedding", LAYERS | NORMS | TOKENS)],
)
def test_the_init_scale_multiplies_what_its_reading_says_and_nothing_else(scaled, multiplied):
    model = ViT(patch_size=2, d_model=8, n_heads=2, d_head=3, d_mlp=5, n_layers=2)
    plain, tripled = initial(model), initial(model, 3.0, scaled)
    assert plain.keys() == tripled.keys() == LAYERS | NORMS | TOKENS | PATCH
    for name, weight in plain.items():
        assert torch.equal(tripled[name], 3 * weight if name in multiplied else weight), name


def test_the_initial_weights_are_those_of_the_library():
    model = ViT(patch_size=4, d_model=64, n_heads=4, d_head=32, d_mlp=96, n_layers=3)
    weights = initial(model)
    fan_in = {"patch": 48, "patch_bias": 48, "W_Q": 64, "W_K": 64, "W_V": 64, "W_O": 128}
    fan_in |= {"W_1": 64, "b_1": 64, "W_2": 96, "b_2": 96, "head": 64, "head_bias": 64}
    for name, inputs in fan_in.items():
        bound = 1 / math.sqrt(inputs)
        assert 0.7 * bound < weights[name].abs().max() <= bound, name
        if weights[name].numel() > 1000:
            assert weights[name].std() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
    for name in ("norm_1", "norm_2", "norm"):
        assert torch.equal(weights[name], torch.ones_like(weights[name]))
        assert torch.equal(weights[f"{name}_bias"], torch.zeros_like(weights[f"{name}_bias"]))
    assert torch.equal(weights["class_token"], torch.zeros(64))
    assert weights["positions"].shape == (3, 64)
    assert weights["positions"].std() == pytest.approx(0.1, rel=0.2)


def test_torch_bounds_its_layers_by_the_root_of_the_inputs():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = torch.nn.Linear(64, 4000)
    for parameter in (layer.weight, layer.bias):
        assert parameter.detach().abs().max() == pytest.approx(1 / 8, rel=1e-3)


def test_a_seed_gives_its_own_weights():
    model = ViT(patch_size=2, d_model=8, n_heads=2, d_head=3, d_mlp=5, n_layers=2)
    one, again, other = (initial(model, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not torch.equal(one["W_Q"], other["W_Q"])


def test_the_declared_axes_are_those_of_the_weights():
    weights = initial(ViT(patch_size=2, d_model=8, n_heads=2, d_head=3, d_mlp=5, n_layers=4))
    sizes = {"layer": 4, "head": 2}
    for name, axes in MATRICES.items():
        assert len(axes) == weights[name].ndim
        assert all(
            weights[name].shape[i] == sizes[axis] for i, axis in enumerate(axes) if axis in sizes
        )


def test_patches_that_do_not_fill_the_image_are_refused():
    model = ViT(patch_size=3, d_model=8, n_heads=2, d_head=3, d_mlp=5, n_layers=1)
    with pytest.raises(ValueError, match="patch_size: wanted a divisor of 8 and 4, got 3"):
        initial(model)


@pytest.mark.parametrize(
    ("name", "size"),
    [("patch_size", 0), ("d_model", -1), ("d_mlp", 16385), ("n_layers", 0), ("n_layers", 257)],
)
def test_a_size_out_of_range_is_refused(name, size):
    sizes = {"patch_size": 2, "d_model": 8, "n_heads": 2, "d_head": 3, "d_mlp": 5, "n_layers": 1}
    with pytest.raises(InputError, match=rf"{name}: wanted a number in \[1, \d+\], got {size}"):
        parse(sizes | {name: size}, ViT, "model")


def test_a_training_step_costs_three_times_a_forward_pass_and_weights_four_bytes_each():
    model, n_patches, d_patch = (
        ViT(patch_size=2, d_model=8, n_heads=1, d_head=3, d_mlp=5, n_layers=1),
        4,
        12,
    )
    products = n_patches * d_patch * 8 + 8 * 10  # the patches, the head
    products += (
        2 * 1 * 8 * 3 + 2 * 5 * 8 * 3
    )  # query and output of the class token, keys and values of all five
    products += 2 * 5 * 3 + 2 * 8 * 5  # attention, the MLP
    n_weights = (
        (d_patch + 1) * 8 + 5 * 8 + 8 + 4 * 8 * 3 + 8 * 5 + 5 + 5 * 8 + 8 + 6 * 8 + 8 * 10 + 10
    )
    assert training_cost(model, (3, 4, 4), 10) == (3 * 2 * products, 4 * n_weights)


def test_the_loss_is_the_mean_cross_entropy_whose_logits_bfloat16_rounds(images):
    weights = initial(
        ViT(patch_size=2, d_model=8, n_heads=2, d_head=3, d_mlp=5, n_layers=2),
        shape=images.shape[1:],
    )
    weights, x = {name: w.float() for name, w in weights.items()}, images.float()
    labels = torch.arange(len(x)) % logits(weights, x).shape[1]
    log_shares = logits(weights, x).double().log_softmax(1)
    wanted = -log_shares[torch.arange(len(x)), labels].mean()
    assert training_loss(weights, x, labels, "float32").item() == pytest.approx(
        wanted.item(), rel=1e-6
    )
    rounded = training_loss(weights, x, labels, "bfloat16")
    assert rounded.dtype == torch.float32
    assert rounded.item() == pytest.approx(wanted.item(), rel=2e-2)
    assert rounded.item() != pytest.approx(wanted.item(), rel=1e-6)
