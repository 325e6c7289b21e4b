r"""Cross-entropy of labels that a network can fit, as a loss of the products.

Two networks have it: a linear one, whose answer to a point x is the sign of $\langle x, p \rangle$
with $p = u \odot v$, and the diagonal attention head of equation (1) of Boix-Adserà et al. (2023),
whose output at a token is a logit for each class. A teacher of the same kind gives the labels, so
that the loss comes as near to 0 as one likes, and is 0 nowhere (docs/cross_entropy.md).
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot, softplus

from lib.gradual_rank.diagonal_heads import diagonal_head
from lib.gradual_rank.own_losses import OwnLoss
from lib.gradual_rank.tasks import gaussian_pair, tokens_of
from lib.training.devices import generator


def signed_points(seed: int, n_samples: int, d_model: int) -> Float[Tensor, "sample d_model"]:
    r"""Points times their labels ±1, which a linear teacher with Gaussian weights gives.

    The points are Gaussian, with features that are correlated by a random matrix, $x = (1 + M)^\top
    z$, where z and $\sqrt d M$ have independent N(0, 1) entries.
    """
    [[Z]] = tokens_of([seed], 1, n_samples, d_model, "points")
    draw = generator(seed, "correlations")
    M = torch.randn(d_model, d_model, generator=draw, dtype=torch.float64) / d_model**0.5
    X = Z + Z @ M
    w_u, w_v = gaussian_pair(d_model, generator(seed, "teacher"))
    return X * torch.sign(X @ (w_u * w_v))[:, None]


def linear_classifier(seed: int, n_samples: int, d_model: int) -> OwnLoss:
    r"""The mean of $\log(1 + e^{-\langle z, p \rangle})$ over signed points z."""
    Z = signed_points(seed, n_samples, d_model)

    def value(p: Float[Tensor, " p"]) -> Float[Tensor, ""]:
        return softplus(-(Z @ p)).mean()

    def slope(p: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        return -(torch.sigmoid(-(Z @ p)) @ Z) / len(Z)

    return OwnLoss(value, d_model, f"seed {seed}", slope)


def head_classifier(seed: int, n_samples: int, seq_len: int, d_model: int) -> OwnLoss:
    r"""The mean cross-entropy over tokens of a diagonal head, of which a class is a column.

    The label of a token is the column in which the teacher's output is largest. With the attention
    A, $Z = A X$ and G the gradient in the output, $\partial L / \partial b = \sum G \odot Z$ over
    tokens; with $B = (G b) X^\top$ and $D = A \odot (B - (A \odot B) 1 1^\top)$, the gradient
    in the logits of attention, $\partial L / \partial a = \sum (D X) \odot X$.
    """
    [X] = tokens_of([seed], n_samples, seq_len, d_model)
    w_u, w_v = gaussian_pair(2 * d_model, generator(seed, "teacher"))
    labels = diagonal_head(X, w_u * w_v).argmax(-1)
    wanted = one_hot(labels, d_model).double()

    def value(p: Float[Tensor, " p"]) -> Float[Tensor, ""]:
        return cross_entropy(diagonal_head(X, p).flatten(0, -2), labels.flatten())

    def slope(p: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        a, b = p.chunk(2)
        A = torch.softmax((X * a) @ X.mT, -1)
        Z = A @ X
        G = (torch.softmax(Z * b, -1) - wanted) / labels.numel()
        B = (G * b) @ X.mT
        D = A * (B - (A * B).sum(-1, keepdim=True))
        return torch.cat([((D @ X) * X).sum((0, 1)), (G * Z).sum((0, 1))])

    return OwnLoss(value, 2 * d_model, f"seed {seed}", slope)
