r"""Where the leading directions of an update lie."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def alignment(
    directions: Float[Tensor, "dim k"], span: Float[Tensor, "n dim"]
) -> Float[Tensor, ""]:
    r"""The mean squared cosine of orthonormal columns with a span of rows: $\|Q^\top U\|_F^2 / k$.

    It is one where the directions lie in the span, and n / dim on average for random directions
    (the rows being independent).
    """
    Q = torch.linalg.qr(span.double().mT).Q
    return (Q.mT @ directions.double()).square().sum() / directions.shape[-1]


def place(
    update: Float[Tensor, "dim col"], spans: Mapping[str, Float[Tensor, "n dim"]]
) -> list[dict[str, Any]]:
    """The `alignment` of an update's two leading directions with several spans, named in `span`."""
    U, _, _ = torch.linalg.svd(update.double(), full_matrices=False)
    leading = U[:, :2]
    return [
        {"span": name, "alignment": alignment(leading, span).item()} for name, span in spans.items()
    ]


def places_of_keys(
    initial: Mapping[str, Tensor], model: Mapping[str, Tensor], mu: Float[Tensor, "pattern dim"]
) -> list[dict[str, Any]]:
    """Where the two leading directions of the update of W_K lie, on its tokens' side.

    The spans are that of the two discriminative patterns, and that with the mean of all others.
    """
    spans = {
        "discriminative": mu[:2],
        "with mean irrelevant": torch.cat([mu[:2], mu[2:].mean(0, keepdim=True)]),
    }
    return place(model["W_K"].cpu().double() - initial["W_K"].cpu().double(), spans)
