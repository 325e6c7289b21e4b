r"""Where the leading directions of an update lie, and how much of it they hold."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def alignment(
    directions: Float[Tensor, "dim k"], span: Float[Tensor, "n dim"]
) -> Float[Tensor, ""]:
    r"""Mean squared cosine of orthonormal columns with a span of rows: $\|Q^\top U\|_F^2 / k$.

    One where the directions lie in the span; n / dim on average for random ones (rows independent).
    """
    Q = torch.linalg.qr(span.double().mT).Q
    return (Q.mT @ directions.double()).square().sum() / directions.shape[-1]


def energy_inside(W: Float[Tensor, "dim col"], span: Float[Tensor, "n dim"]) -> Float[Tensor, ""]:
    r"""The share of $\|W\|_F^2$ whose columns lie in the span of the rows; one for $W = 0$."""
    W = W.double()
    Q = torch.linalg.qr(span.double().mT).Q
    total = W.square().sum()
    inside = (Q.mT @ W).square().sum()
    return torch.where(total > 0, inside / torch.where(total > 0, total, 1.0), 1.0)


def place(
    update: Float[Tensor, "dim col"], spans: Mapping[str, Float[Tensor, "n dim"]]
) -> list[dict[str, Any]]:
    """How an update lies to each of several spans of rows, whose names are in `span`.

    `alignment` is that of its two leading directions, `energy` that of the whole update,
    `dimension` that of the space.
    """
    U, _, _ = torch.linalg.svd(update.double(), full_matrices=False)
    return [
        {
            "span": name,
            "alignment": alignment(U[:, :2], span).item(),
            "dimension": span.shape[1],
            "energy": energy_inside(update, span).item(),
        }
        for name, span in spans.items()
    ]
