"""The transformer is the one that is written out, token by token and head by head."""

import torch

from lib.vision.vit import logits
from tests.vision import vit_made


def test_logits_are_those_of_the_plain_model():
    weights = {name: w.double() for name, w in vit_made.model(0, n_layers=3).items()}
    images = torch.randn(6, *vit_made.IMAGE_SHAPE, dtype=torch.float64)
    found, wanted = (of(weights, images) for of in (logits, vit_made.logits))
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
