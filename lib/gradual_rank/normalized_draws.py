"""The tokens, labels and starts of heads with normalised queries and keys, drawn by seed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from lib.gradual_rank.full_heads import gaussian_factors, targets
from lib.gradual_rank.normalized_heads import Tokens, Weights, unit_tokens
from lib.gradual_rank.tasks import tokens_of
from lib.training.devices import generator


class Drawn(NamedTuple):
    """What some heads are trained on, and their start before it is scaled."""

    X: Tokens
    Y: Tokens
    start: Weights


def drawn(
    seeds: Sequence[int], sizes: tuple[int, int, int], *, permuted: bool, pre_norm: bool
) -> Drawn:
    """The heads of these seeds; the sizes are those of `tokens_of`.

    Tokens and the start have N(0, 1) entries; labels are those of a plain teacher of full rank,
    permuted over sequences where they are to be. With pre-norm tokens are normalised once labels
    are made. The gain is √d, that of RMSNorm on queries and keys with logits over √d.
    """
    n_samples, _, d = sizes
    X = tokens_of(seeds, *sizes)
    Y = targets(X, seeds, [d])[:, 0]
    if permuted:
        orders = [
            torch.randperm(n_samples, generator=generator(seed, "permuted labels"))
            for seed in seeds
        ]
        Y = torch.stack([own[order] for own, order in zip(Y, orders, strict=True)])
    tokens = unit_tokens(X.numpy()) if pre_norm else X.numpy()
    (W_K, W_V), (W_Q, W_O) = gaussian_factors(d, seeds, "full start").numpy()
    start = Weights(np.stack([W_K, W_Q, W_V, W_O]), np.full(len(seeds), math.sqrt(d)))
    return Drawn(tokens, Y.numpy(), start)
