"""What heads are along their flow until their keys have turned and their values have risen."""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.gradual_rank.limit_flows import LEAST
from lib.gradual_rank.normalized_heads import (
    Each,
    Heads,
    Moment,
    Weights,
    flow,
    norm,
    products,
    singular_values,
)
from lib.matrices.directions import first_time
from lib.matrices.ranks import stable_rank


class Look(NamedTuple):
    """What some heads are at a moment, beside their start."""

    turned: Each  # how far W_KQ is from its start, over the norm that it had there
    angle: Each  # between W_K and its start, in degrees
    sigma: Each  # the largest singular value of W_VO
    stable_rank: Each  # of the update of W_KQ; 0 where there is none
    drift: Each  # the larger relative change of the norms of W_K and W_Q


def look(now: Weights, start: Weights) -> Look:
    """How far keys have turned, values have risen and norms have drifted."""
    W_K, _, _, _ = now.factors
    first_K, _, _, _ = start.factors
    W_KQ = products(start).KQ
    update = products(now).KQ - W_KQ
    inner = (W_K * first_K).sum((-2, -1)) / (norm(W_K) * norm(first_K))
    norms = norm(now.factors[:2]) / norm(start.factors[:2])
    return Look(
        turned=norm(update) / norm(W_KQ),
        angle=np.degrees(np.arccos(np.clip(inner, -1, 1))),
        sigma=singular_values(products(now).VO)[..., 0],
        stable_rank=stable_rank(singular_values(update)),
        drift=np.abs(norms - 1).max(0),
    )


def looks_along(
    heads: Heads, start: Weights, longest: float, turned: float, risen: float, end: float
) -> list[pd.DataFrame]:
    """The looks at every head, one a step, with their `time`.

    A head is followed until its W_KQ has once been `turned` and its W_VO has `risen`, or until the
    end.
    """
    rows: list[list[tuple[float, ...]]] = [[] for _ in start.gain]
    turned_once = np.zeros(len(rows), bool)

    def over(moment: Moment) -> np.ndarray:
        last = [Look._make(rows[head][-1][1:]) for head in moment.heads]
        turned_once[moment.heads] |= np.array([seen.turned for seen in last]) >= turned
        there = np.array([seen.sigma for seen in last]) >= risen
        return (moment.times >= end) | (turned_once[moment.heads] & there)

    for moment in flow(heads, start, longest, over):
        seen = look(moment.weights, start.only(moment.heads))
        for head, *row in zip(moment.heads, moment.times, *seen, strict=True):
            rows[head].append(tuple(row))
    return [pd.DataFrame(own, columns=["time", *Look._fields]) for own in rows]


def events(looks: pd.DataFrame, turned: float, risen: float, small: float) -> dict[str, float]:
    """When a head's keys turn and its values rise, and what it is at these moments.

    Its angle is taken when the singular value of W_VO is `small`.
    """
    times = looks["time"].to_numpy()
    sigma = looks["sigma"].to_numpy()
    turn = first_time(times, looks["turned"].clip(lower=LEAST).to_numpy(), turned)
    rise = first_time(times, sigma, risen)

    def at(time: float, column: str) -> float:
        return float(np.interp(time, times, looks[column])) if time < math.inf else math.nan

    before = looks["time"] <= turn
    return {
        "turn": turn,
        "rise": rise,
        "angle": at(first_time(times, sigma, small), "angle"),
        "drift": float(np.fmax(looks.loc[before, "drift"].max(), at(turn, "drift"))),
        "stable_rank": at(turn, "stable_rank"),
        "rank_at_rise": at(rise, "stable_rank"),
    }
