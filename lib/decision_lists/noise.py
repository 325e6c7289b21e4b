r"""Part 2 with noise in V_0: which first loss it has to leave, and steps of V below its last place.

With $\epsilon = n \log n / 18$, the best at V_0 = cP, and $r = L_0 / \log n$ the interval for T is
not empty if and only if $n \log^2 n\, (r - 1/3)^2 > 72\, m\, r$. At r = 1 that is $n \log^2 n >
162\, m$; what holds for some r holds for all larger ones.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch
from jaxtyping import Float
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss


def least_share(seq_len: int, length: int) -> float:
    r"""The r at which $n \log^2 n\, (r - 1/3)^2 = 72\, m\, r$: L_0 has to be more than r log n.

    The larger root of $r^2 - (2/3 + k)\, r + 1/9$, $k = 72\, m / (n \log^2 n)$.
    """
    b = 2 / 3 + 72 * length / (seq_len * math.log(seq_len) ** 2)
    return (b + math.sqrt(b * b - 4 / 9)) / 2


@dataclass(frozen=True)
class Moved:
    """W and V after some steps, how far V has `moved`, and its next step."""

    number: int
    W: Float[Tensor, "key query"]
    V: Float[Tensor, "label token"]
    moved: Float[Tensor, "label token"]
    step: Float[Tensor, "label token"]


def descent_beside(
    loss: PopulationLoss, start: Float[Tensor, "label token"], step_size: float
) -> Iterator[Moved]:
    """Gradient descent on W from 0 and on V from `start`, the steps of V being summed up apart.

    A large entry of V has no place for a step that is far smaller, and would never move. Here V is
    its start and the sum of its steps, rounded once.
    """
    W = moved = torch.zeros_like(start)
    for number in count():
        V = start + moved
        _, gradients = loss({"W": W, "V": V})
        step = -step_size * gradients["V"]
        yield Moved(number, W, V, moved, step)
        W = W - step_size * gradients["W"]
        moved = moved + step
