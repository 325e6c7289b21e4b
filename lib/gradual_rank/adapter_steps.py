r"""How many steps a small update of an adapter takes, by gradient descent and by Adam.

The adapter, its pace κ and its a are those of `lib/gradual_rank/adapter_start.py`. Here training
has steps: A moves by the learning rate η times its slope, B by λη times its own. While the update
has not changed the gradient, of singular triplet (σ, u, v), descent has
$a_{n+1} = a_n + x \tilde b_n$ and $\tilde b_{n+1} = \tilde b_n + x a_n$ with $x = \eta \kappa
\sigma$, so that the sum and the difference of the two are multiplied by 1 + x and by 1 − x in each
step. Adam moves every entry by about η in each step, whatever the size of its slope. The proofs are
in docs/adapter_start.md.
"""

import numpy as np
from jaxtyping import Float

Numbers = float | Float[np.ndarray, "*n"]
HALVINGS = 60  # of the interval in which a number of steps is looked for


def descended(n: Numbers, x: Numbers, kappa: float, plus: Numbers, minus: Numbers) -> Numbers:
    r"""What n steps of descent add to $u^\top (W - W_0) v$.

    $\frac{\kappa}{4} (\|a + \tilde b\|^2 ((1+x)^{2n} - 1) - \|a - \tilde b\|^2 ((1-x)^{2n} - 1))$,
    where `plus` and `minus` are the two squares at the start. Where B starts at zero both are
    $\|A v\|^2$.
    """
    grown = np.expm1(2 * n * np.log1p(x))
    decayed = np.expm1(2 * n * np.log1p(-np.asarray(x)))
    return kappa / 4 * (plus * grown - minus * decayed)


def descent_steps(
    p: float,
    x: Float[np.ndarray, "*n"],
    kappa: float,
    plus: Float[np.ndarray, "*n"],
    minus: Float[np.ndarray, "*n"],
) -> Float[np.ndarray, "*n"]:
    """After how many steps, and parts of a step, descent has added p, by `descended`.

    Raises:
        ValueError: A share x does not lie between 0 and 1, where descent is no slow flow.
    """
    if not np.all((x > 0) & (x < 1)):
        raise ValueError(f"wanted steps of a share in (0, 1), got {x.min()} to {x.max()}")
    low = np.zeros_like(x)
    high = np.log1p(4 * p / (kappa * plus)) / (2 * np.log1p(x))  # as if minus were zero
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = descended(middle, x, kappa, plus, minus) < p
        low = np.where(below, middle, low)
        high = np.where(below, high, middle)
    return high


def adam_steps(
    p: float,
    G: Float[np.ndarray, "rows cols"],
    A: Float[np.ndarray, "r cols"],
    U: Float[np.ndarray, "rows n"],
    V: Float[np.ndarray, "cols n"],
    *,
    scaling: float,
    rate: float,
) -> Float[np.ndarray, " n"]:
    r"""After how many steps Adam has added p to each direction, from B = 0; infinite for never.

    With $\delta = \eta n$, B is $\delta S_B$ and A is $A(0) + \delta S_A$, where
    $S_B = \operatorname{sign}(G A(0)^\top)$ and $S_A = \operatorname{sign}(S_B^\top G)$, so that
    $p = s (\delta\, u^\top S_B A(0) v + \delta^2\, u^\top S_B S_A v)$: the smallest positive root.
    """
    S_B = np.sign(G @ A.T)
    S_A = np.sign(S_B.T @ G)
    linear = ((U.T @ S_B) * (A @ V).T).sum(1)
    square = ((U.T @ S_B) * (S_A @ V).T).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(linear**2 + 4 * square * p / scaling)
        delta = 2 * p / scaling / (linear + root)  # finite where `square` is zero, too
    return np.where(delta > 0, delta, np.inf) / rate
