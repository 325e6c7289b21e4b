r"""How long a small head waits: the roots by which optimisers leave the saddle at zero.

Near zero a head's loss is $L(0) - \langle G, W_V W_O^\top \rangle$ with a fixed G. For a singular
triplet $\sigma, u, v$ of G the vector $w = u^\top W_V + v^\top W_O$ has the slope σw, and $u^\top
W_V W_O^\top v$ comes to $|w|^2 / 4$. Every optimiser here is linear in w there, so that w comes to
be multiplied by a number μ in each step, the root. All is derived in docs/momentum.md.
"""

import math

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

Numbers = Float[np.ndarray, "*shape"] | float
MOST_STEPS = 100_000
SLIGHTLY = 1e-9  # by which log x is above its start where an end is looked for


def root(strength: Numbers, beta: float = 0.0, *, nesterov: bool = False) -> Numbers:
    r"""The larger root μ of torch.optim.SGD, whose step has the `strength` s = ησ.

    With the momentum β it solves $\mu^2 - (1 + \beta + s) \mu + \beta = 0$. With Nesterov's step it
    solves $\mu^2 - (1 + \beta) (1 + s) \mu + \beta (1 + s) = 0$. Without momentum it is 1 + s.
    """
    half, product = _coefficients(strength, beta, nesterov)
    return half + np.sqrt(half**2 - product)


def adam_root(strength: Numbers, beta_1: float) -> Numbers:
    r"""The larger root μ of Adam whose ε is far above its gradients, for s = ησ/ε.

    Adam then is heavy-ball momentum $\beta_1$ whose step has the strength $(1 - \beta_1) s$.
    """
    return root((1 - beta_1) * strength, beta_1)


def lag(strength: Numbers, beta: float, *, nesterov: bool = False) -> Numbers:
    r"""The factor c of $w_t \to c \mu^t w_0$: a momentum that starts from zero builds up first.

    With μ₋ the smaller root, $w_t = A \mu^t + B \mu_-^t$ has $w_0 = A + B$ and $w_1 = (1 + s) w_0$,
    or $(1 + s (1 + \beta)) w_0$ with Nesterov's step, so that $c = (w_1 / w_0 - \mu_-) / (\mu -
    \mu_-)$.
    """
    half, product = _coefficients(strength, beta, nesterov)
    gap = np.sqrt(half**2 - product)
    first = 1 + strength * (1 + beta if nesterov else 1)
    return (first - half + gap) / (2 * gap)


def _coefficients(strength: Numbers, beta: float, nesterov: bool) -> tuple[Numbers, Numbers]:
    """Half the sum of the roots, and their product."""
    if nesterov:
        return (1 + beta) * (1 + strength) / 2, beta * (1 + strength)
    return (1 + beta + strength) / 2, beta * np.ones_like(strength)


def warmed_up(rate: float, warmup: int, n_steps: int) -> list[float]:
    """The rates of steps that rise linearly to `rate` over the first `warmup` steps, then stay."""
    return [rate * min(1.0, (step + 1) / max(1, warmup)) for step in range(n_steps)]


def exponent(joint: Numbers, log10_init_scale: Numbers, threshold: float) -> Numbers:
    r"""By how much log |w| grows until $\sigma_1(W_{VO})$ is at the threshold q.

    It is $\frac12 \log(4 q / \alpha^2 |w|^2)$, where `joint` is $|w|^2$ of the unscaled start.
    """
    return np.log(4 * threshold / joint) / 2 - log10_init_scale * math.log(10)


def step_of(grown: Float[np.ndarray, " step"], wanted: float) -> float:
    """The step at which a sum, of which `grown` are the parts, first reaches what is wanted.

    Within a step it is taken as a straight line; infinite where the sum never comes there.
    """
    if wanted <= 0:
        return 0.0
    sums = np.cumsum(grown)
    place = int(np.searchsorted(sums, wanted))
    if place == len(sums):
        return math.inf
    return place + float((wanted - sums[place]) / grown[place]) + 1


def steps_under_adam(
    sigma: float, ends: tuple[float, float], rate: float, betas: tuple[float, float], eps: float
) -> float:
    r"""The number of Adam's steps that take one number x, whose slope is always σx, from one end to
    the other.

    Below ε it grows by its root. Above, Adam divides by the root mean square of all slopes since
    the start, of which those of the wait were small: the longer the wait, the larger the steps.
    Between two steps log x is taken as a straight line; infinite after `MOST_STEPS`.
    """
    (x, end), (beta_1, beta_2) = ends, betas
    m = v = 0.0
    for step in range(1, MOST_STEPS):
        slope = sigma * x
        m = beta_1 * m + (1 - beta_1) * slope
        v = beta_2 * v + (1 - beta_2) * slope**2
        after = x + rate * m / (1 - beta_1**step) / (math.sqrt(v / (1 - beta_2**step)) + eps)
        if after >= end:
            return step - 1 + math.log(end / x) / math.log(after / x)
        x = after
    return math.inf


def end_under_adam(
    sigma: float, start: float, steps: float, rate: float, betas: tuple[float, float], eps: float
) -> float:
    r"""The value of x after this number of such steps.

    No step is larger than $1 / \sqrt{1 - \beta_2}$ rates, from which an end is bounded.
    """

    def late(log_end: float) -> float:
        ends = (start, math.exp(log_end))
        return steps_under_adam(sigma, ends, rate, betas, eps) - steps

    if steps <= 0:
        return start
    farthest = start + 2 * rate * (steps + 1) / math.sqrt(1 - betas[1])
    return math.exp(brentq(late, math.log(start) + SLIGHTLY, math.log(farthest)))
