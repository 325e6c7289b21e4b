"""Where and why a flow from a finite scale departs from Algorithm 1.

Tables of stages, plateaus and events are those that the dynamics give.
"""

import numpy as np
import pandas as pd

from lib.gradual_rank.measures import CELL, Table, apart, beside_theory
from lib.gradual_rank.scales import LOG10

Rise = tuple[int, int]  # a coordinate and the sign with which it rises


def rises(events: Table) -> list[Rise]:
    """What rises for the first time, in order."""
    risen = events[events["rises"].astype(bool)].sort_values("time", kind="stable")
    first = risen.drop_duplicates("coordinate")
    return [(int(i), int(s)) for i, s in zip(first["coordinate"], first["sign"], strict=True)]


def joins(stages: Table) -> list[Rise]:
    """What joins the support for the first time by the stages of one seed, in order."""
    later = stages[stages["stage"] > 0].sort_values("stage")
    return rises(later.assign(rises=True))


def in_common(one: list[Rise], other: list[Rise]) -> int:
    """How many rises two orders begin with in common."""
    same = [a == b for a, b in zip(one, other, strict=False)]
    return same.index(False) if False in same else len(same)


def off_plateaus(stages: Table, plateaus: Table) -> Table:
    r"""How far the flow is from Algorithm 1's products in the middle of every plateau.

    `error` is the largest difference of a product. `relaxations` is how long the plateau lasts over
    the time in which its slowest direction relaxes: with $p = s e^x$ the flow on the support,
    $\dot x = 2 s g$, is $\dot x = -2 s H s |p| x$ near rest, with the rates $2 \lambda(|p|^{1/2} H
    |p|^{1/2})$, whose least is `strictness_weights`. One row per seed, scale and stage but the
    start.
    """
    both = beside_theory(plateaus, stages, ["p", "next_time", "strictness_weights"])
    wait = (both["next_time"] - both["begin"]) * -both["log10_init_scale"] * LOG10
    return both[[*CELL, "stage"]].assign(
        error=apart(both["p"], both["p_theory"]),
        relaxations=wait * both["strictness_weights"],
    )


def agrees_from(errors: pd.Series, near: float) -> float:
    """The largest scale from which on the errors, by log10 of the scale, are at most `near`.

    NaN where the smallest scale's is larger.
    """
    within = errors.sort_index() <= near
    held = within.cummin()
    return float(held[held].index.max())


def difference(stages: Table, plateaus: Table, stage: int, significant: float) -> tuple[str, str]:
    """How the flow of one seed and scale differs from Algorithm 1 in the middle of a plateau.

    It is `late` if the same products are significant, `not gone` if others are that had joined, and
    `another` if one is that had never joined by then. The second string says which products are
    there besides (+), and which are missing (-).
    """
    theory = stages.set_index("stage")
    p = plateaus.set_index("stage")["p"][stage]
    here = set(np.flatnonzero(np.abs(p) > significant).tolist())
    wanted = set(np.flatnonzero(np.abs(theory["p"][stage]) > significant).tolist())
    joined = {i for k in range(stage + 1) for i in np.flatnonzero(theory["support"][k]).tolist()}
    more = here - wanted
    fewer = wanted - here
    which = " ".join([f"+{i}" for i in sorted(more)] + [f"-{i}" for i in sorted(fewer)])
    if more - joined:
        return "another", which
    return ("not gone" if more else "late"), which
