"""Linear modules of a vision transformer: what a layer gives for x is the module times x."""

import pytest
import torch

from lib.training.attention import project
from lib.vision.linear_modules import LINEAR, as_module, as_stored, linear_modules, with_updates
from lib.vision.vit import ViT

MODEL = ViT(patch_size=2, d_model=6, n_heads=2, d_head=4, d_mlp=5, n_layers=2)


@pytest.fixture
def weights():
    draw = torch.Generator().manual_seed(0)
    return MODEL.initial_weights((1, 4, 4), 3, 1.0, "layers", draw)


def test_every_layer_has_six_modules_with_outputs_first(weights):
    shapes = {name: tuple(W.shape) for name, W in linear_modules(weights).items()}
    of_layer = {"W_Q": (8, 6), "W_K": (8, 6), "W_V": (8, 6), "W_O": (6, 8)}
    of_layer |= {"W_1": (5, 6), "W_2": (6, 5)}
    assert shapes == {f"{i}.{name}": shape for name, shape in of_layer.items() for i in (0, 1)}


def test_a_projection_of_all_heads_is_its_module_times_x(weights):
    x = torch.randn(1, 3, 6)
    by_head = project(x, weights["W_V"][1])
    side_by_side = x @ linear_modules(weights)["1.W_V"].T
    torch.testing.assert_close(by_head.transpose(1, 2).flatten(2), side_by_side)


def test_the_output_of_all_heads_is_its_module_times_what_they_give(weights):
    z = torch.randn(3, 2, 4)  # token, head, entry
    summed = torch.einsum("the,hde->td", z, weights["W_O"][0])
    torch.testing.assert_close(z.flatten(1) @ linear_modules(weights)["0.W_O"].T, summed)


@pytest.mark.parametrize("name", LINEAR)
def test_an_update_is_added_to_its_module_alone(weights, name):
    modules = linear_modules(weights)
    updates = {of: torch.zeros_like(W) for of, W in modules.items()}
    updates[f"1.{name}"] = torch.randn_like(modules[f"1.{name}"])
    after = linear_modules(with_updates(weights, updates))
    for of, W in modules.items():
        torch.testing.assert_close(after[of], W + updates[of])
    W = weights[name][0]
    torch.testing.assert_close(as_stored(name, as_module(name, W), 2), W)
