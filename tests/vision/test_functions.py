"""Updates in singular directions, numbers at equal loss, and distances of outputs, by value."""

import math

import pytest
import torch

from lib.vision.functions import added, distances, in_random_directions, times_at_loss, updates
from lib.vision.vit import MATRICES
from tests.vision.vit_made import IMAGE_SHAPE, SIZES, logits, model


def side_by_side(W):
    """A matrix of a layer over all heads, head by head."""
    return torch.cat(list(W), 1) if W.ndim == 3 else W


@pytest.mark.parametrize("rank", [1, 3])
def test_directions_of_an_update_are_added_over_all_heads(rank):
    initial, final = model(0), model(1)
    start = final | {name: initial[name] for name in MATRICES}
    cut = added(start, updates(initial, final), slice(rank))
    rest = added(final, updates(initial, final), slice(rank, None), -1.0)
    for name in MATRICES:
        for layer in range(SIZES["n_layers"]):
            begun, ended = (side_by_side(one[name][layer]).double() for one in (initial, final))
            U, sigma, Vh = torch.linalg.svd(ended - begun)
            wanted = begun + sum(sigma[i] * torch.outer(U[:, i], Vh[i]) for i in range(rank))
            for found in (cut, rest):
                torch.testing.assert_close(side_by_side(found[name][layer]).double(), wanted)
    assert all(torch.equal(cut[name], final[name]) for name in final if name not in MATRICES)


def test_a_random_update_has_the_spectrum_and_not_the_directions():
    learned = updates(model(0), model(1))
    for name, (U, sigma, Vh) in in_random_directions(learned, torch.Generator()).items():
        W = U * sigma[..., None, :] @ Vh
        torch.testing.assert_close(torch.linalg.svdvals(W), learned[name].sigma)
        turned = (U.mT @ learned[name].U).abs().diagonal(dim1=-2, dim2=-1)
        assert turned.max() < 0.999


def test_the_number_at_which_a_loss_has_a_level():
    assert times_at_loss(lambda c: 0.1 + c**2, 9.1) == pytest.approx(3, abs=0.01)
    assert math.isnan(times_at_loss(lambda c: 0.1 + c**2, 0.05))  # above it at 0
    assert math.isnan(times_at_loss(lambda c: 1 - 1 / (1 + c), 1.5))  # never up to it


def test_distances_are_those_of_logits_less_their_mean():
    images = torch.randn(30, *IMAGE_SHAPE, generator=torch.Generator().manual_seed(2))
    one, other = model(3), model(4)
    Z, other_Z = (
        logits({k: w.double() for k, w in of.items()}, images.double()) for of in (one, other)
    )
    Z, other_Z = (found - found.mean(1, keepdim=True) for found in (Z, other_Z))
    found = distances(one, other, images)
    assert found["logits"] == pytest.approx(
        ((Z - other_Z).square().sum() / other_Z.square().sum()).sqrt().item(), rel=1e-4
    )
    variation = (Z.softmax(1) - other_Z.softmax(1)).clamp_min(0).sum(1).mean()
    assert found["softmax"] == pytest.approx(variation.item(), rel=1e-4)
    assert found["agreement"] == (Z.argmax(1) == other_Z.argmax(1)).double().mean().item()
    shifted = other | {"head_bias": other["head_bias"] + 5}
    assert distances(shifted, other, images) == pytest.approx(
        {"logits": 0, "softmax": 0, "agreement": 1}, abs=1e-5
    )
