r"""Where a flow comes to rest: Newton's method for g = 0 on the support.

A solver knows its state to $\mathrm{rtol} |x| + \mathrm{atol}$ and no better. Where less is asked
of g than that error leaves, it never comes to rest; Newton's method then goes the last part of the
way. Wherever that part is short, it takes fewer steps, too.
"""

import numpy as np
import torch

from lib.training.stiff_flow import Restrictable, Vector, gradient

TENFOLD = 0.1  # g must shrink by this factor for a Hessian to be used again
MOST_STEPS = 20


def refined(loss: Restrictable, p: Vector, tolerance: float) -> Vector:
    """The products p [p], moved by Newton's method towards g = 0 on their support.

    It ends where |g| is at most the tolerance everywhere on the support. A step is cut so that no
    sign changes, and taken if g shrinks. The Hessian is kept for as long as g shrinks tenfold a
    step.
    """
    support = np.flatnonzero(p)
    if not len(support):
        return p
    here = loss.restricted(torch.from_numpy(support))
    q = p[support]
    g = gradient(here, q)
    H = None
    for _ in range(MOST_STEPS):
        if np.abs(g).max() <= tolerance:
            break
        fresh = H is None
        if H is None:
            H = here.hessian(torch.from_numpy(q), torch.arange(len(q))).numpy()
        try:
            move = np.linalg.solve(H, g)
        except np.linalg.LinAlgError:
            break
        worst = float(np.max(-move / q))
        moved = q + move * min(1.0, 0.9 / worst if worst > 0 else 1.0)
        left = gradient(here, moved)
        shrinks = np.abs(left).max() / np.abs(g).max()
        if shrinks > TENFOLD:
            H = None
        if shrinks < 1:
            q = moved
            g = left
        elif fresh:
            break
    p = p.copy()
    p[support] = q
    return p


def rest_nearby(
    loss: Restrictable, p: Vector, tolerance: float, rtol: float, atol: float, finest: float = 0.0
) -> Vector | None:
    """The point of rest near p [p], refined as far as |g| = `finest`, or None where there is none.

    At it |g| is at most the tolerance on the support, and every log|p| is as it was, to rtol times
    its size plus atol.
    """
    found = refined(loss, p, finest or tolerance)
    support = np.flatnonzero(p)
    if np.abs(gradient(loss, found)[support]).max(initial=0.0) > tolerance:
        return None
    before, after = (np.log(np.abs(q[support])) for q in (p, found))
    near = np.abs(after - before) <= rtol * np.abs(before) + atol
    return found if near.all() else None
