"""How many steps a training takes whose params say its end as a time, and which of them are kept.

Such a count is a quotient of params, which a slip makes enormous.
"""

import math

import numpy as np

from lib.files.files import InputError

# a training may take as many steps as one whose params say the number itself (`params.Steps`)
MOST_STEPS = 1_000_000


def steps_to(
    time: float, rate: float, names: str, *, more: int = 0, times: int = 1, most: int = MOST_STEPS
) -> int:
    r"""The number of steps up to a time t at a rate $\eta$: `times` ($\lceil t / \eta \rceil$ +
    `more`).

    Raises `InputError` if there are more than `most`; its message begins with the `names` of the
    params that give the count.
    """
    steps = time / rate if rate > 0 else math.inf
    total = times * (more + (math.ceil(steps) if math.isfinite(steps) else steps))
    if not total <= most:
        got = f"{total:.3g}" if total > 1e12 else total
        quotient = f"{time:.6g} in steps of {rate:.6g}"
        raise InputError(
            f"{names}: wanted an end that takes at most {most} steps, got {got} ({quotient})"
        )
    return int(total)


def evenly(n: int, last: int) -> list[int]:
    """`n` evenly spaced steps from 0 to the last, rounded; all steps if there are fewer."""
    return np.unique(np.linspace(0, last, n).round().astype(int)).tolist()
