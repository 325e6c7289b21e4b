r"""Lemma 4.1 of Boix-Adserà et al. (2023), tested on the weights themselves.

Everywhere else the flow is followed in coordinates that have $u^2 - v^2$ built in as a constant.
Here u and v are integrated as they are (equation 4) by a general method, which knows nothing of it:

    du/dt = v g(p),   dv/dt = u g(p) - decay v,   p = u v.

Without decay $u_i^2 - v_i^2$ stays, so that what it drifts by is the integrator's error and falls
with its tolerance. With decay of v alone, it drifts in the flow itself.
"""

import numpy as np
from scipy.integrate import solve_ivp

from lib.training.stiff_flow import Loss, StalledError, Vector, gradient


def drift_along(
    loss: Loss, u: Vector, v: Vector, end: float, rtol: float, decay: float = 0.0
) -> tuple[float, float]:
    r"""The drift of u² − v² from time 0 to `end`, and the growth of u² + v², for u, v [p].

    Both are shares of the largest $u_i^2 + v_i^2$ at the start: the largest change of an entry of
    $u^2 - v^2$, and the largest $u_i^2 + v_i^2$ at the end. The integrator is scipy's DOP853, with
    the relative tolerance `rtol`, and that share of the largest weight at the start as the absolute
    one. Raises `StalledError` where it gives up.
    """

    def velocity(_: float, weights: Vector) -> Vector:
        left, right = np.split(weights, 2)
        g = gradient(loss, left * right)
        return np.concatenate([right * g, left * g - decay * right])

    start = np.concatenate([u, v])
    atol = rtol * float(np.abs(start).max())
    found = solve_ivp(velocity, (0.0, end), start, method="DOP853", rtol=rtol, atol=atol)
    if not found.success:
        raise StalledError(f"u, v stopped at time {found.t[-1]:g} of {end:g}: {found.message}")
    last_u, last_v = np.split(found.y[:, -1], 2)
    size = float((u**2 + v**2).max())
    drift = np.abs((last_u**2 - last_v**2) - (u**2 - v**2)).max()
    return float(drift) / size, float((last_u**2 + last_v**2).max()) / size
