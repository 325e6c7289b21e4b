"""The nulls of a cut: another update in place of each."""

import torch

from lib.low_rank_sparse.cuts import null_updates
from lib.matrices.low_rank import in_random_directions


def test_nulls_replace_the_update_by_its_part_in_random_directions_and_by_noise_of_its_norm():
    draw = torch.Generator().manual_seed(0)
    W, W_0 = ({"W": torch.randn(7, 5, generator=draw, dtype=torch.float64)} for _ in range(2))
    asked = []

    def source(*names):
        asked.append(names)
        return torch.Generator().manual_seed(len(asked))

    found = null_updates(W, W_0, 2, source)
    assert asked == [("random directions", "W"), ("gaussian", "W")]
    update = W["W"] - W_0["W"]
    projected, noise = (found[null]["W"] - W_0["W"] for null in ("random directions", "gaussian"))
    torch.testing.assert_close(
        projected, in_random_directions(update, 2, torch.Generator().manual_seed(1))
    )
    draw = torch.randn(
        update.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64
    )
    torch.testing.assert_close(noise, draw * update.norm() / draw.norm())
