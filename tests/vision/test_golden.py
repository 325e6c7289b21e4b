"""One tiny training of the vision family, number by number: a change that moves them is noticed
here first.
"""

import pytest
import torch
from torch.nn.functional import cross_entropy

from lib.matrices.ranks import stable_rank
from lib.matrices.spectra import product_singular_values, update_factors
from lib.training.attention import PRODUCTS
from lib.training.devices import generator
from lib.training.sgd import State, sgd
from lib.vision.digits import digits_file, read_digits
from lib.vision.images import Images, batches, channel_statistics, standardise
from lib.vision.vit import ViT, logits


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Twelve steps of Adam on digits, from seed 0, at init scale 1; the initial weights, the last,
    the losses.
    """
    folder = tmp_path_factory.mktemp("digits")
    (folder / "digits.csv.gz").write_bytes(digits_file().read_bytes())
    images = Images(
        **{name: torch.from_numpy(array) for name, array in read_digits(folder, 360, 0).items()}
    )
    statistics = channel_statistics(images.train_images)
    model = ViT(patch_size=2, d_model=16, n_heads=2, d_head=8, d_mlp=16, n_layers=2)
    initial = model.initial_weights((1, 8, 8), 10, 1.0, "layers", generator(0, "weights"))

    def loss(weights, x, y):
        return cross_entropy(logits(weights, standardise(x, *statistics)), y)

    feed = batches(
        images.train_images,
        images.train_labels,
        32,
        lambda x, _: x,
        lambda p, e: generator(0, p, e),
    )
    states = sgd(
        loss, State(0, initial), feed, 12, optimizer="adam", learning_rate=1e-2, warmup_steps=4
    )
    losses = []
    for state in states:
        losses.append(float(state.loss))
    return initial, {name: w.detach() for name, w in state.weights.items()}, losses


def test_the_losses_are_as_they_were(trained):
    assert trained[2][::4] == pytest.approx(LOSSES, rel=1e-4)


def test_the_stable_ranks_are_as_they_were(trained):
    initial, final, _ = trained
    for name, (a, b) in PRODUCTS.items():
        sigma = product_singular_values(*update_factors(final[a], final[b], initial[a], initial[b]))
        assert stable_rank(sigma.numpy()).flatten().tolist() == pytest.approx(RANKS[name], rel=1e-3)
        assert torch.equal(sigma, sigma.sort(descending=True).values)


LOSSES = [2.59002, 2.27915, 2.29423]
RANKS = {"W_KQ": [1.099, 1.34, 1.7456, 1.2564], "W_VO": [1.9851, 1.3818, 1.0892, 1.6446]}
