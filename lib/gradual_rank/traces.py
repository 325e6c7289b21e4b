r"""Heads that are followed far after their turn: events, directions of their updates, and courses.

Under a weight decay λ of W_K and W_Q a turn is that of $e^{2 \lambda t} W_K W_Q^\top$.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.files.params import Interval, Positive
from lib.gradual_rank.decayed_turns import DecayedHeads
from lib.gradual_rank.limit_flows import LEAST
from lib.gradual_rank.normalized_heads import (
    Each,
    Moment,
    Weights,
    flow,
    norm,
    products,
    singular_values,
)
from lib.matrices.directions import BEGUN, ENDED, first_time
from lib.matrices.ranks import stable_rank

Until = Literal["turn", "rise", "end"]  # what is followed: keys, values and gains, or all
N_LOOKS = 241  # points of a course that are kept
N_SHOWN = 3  # directions of a course


@dataclass(frozen=True)
class Tracing:
    """How flows are followed, and what counts."""

    turned: Positive  # the share of its norm by which W_KQ has moved when it has turned
    risen: Positive  # the singular value of W_VO that has risen
    moved: Positive  # the share of its start by which a gain has moved
    stiffness: Positive
    longest: Annotated[float, Interval("(0, 0.2]")]
    margin: Positive  # of the end

    def ends(self, end: float, init_scales: Each, sigma: Each) -> Each:
        r"""The time $\mathrm{end} \, (\log(1 / \mathrm{init\_scale}) + \mathrm{margin}) / \sigma$
        at which the flow of each head ends at the latest.
        """
        return end * (self.margin - np.log(init_scales)) / sigma


@dataclass(frozen=True)
class Trace:
    """A head along its flow."""

    times: Float[np.ndarray, " time"]
    W_KQ: Float[np.ndarray, "time d d"]  # without its decay, in units of its norm at the start
    W_VO: Float[np.ndarray, "time d d"]
    gain: Float[np.ndarray, " time"]

    @property
    def updates(self) -> dict[str, Float[np.ndarray, "time d"]]:
        """The singular values of the update of each product, by time."""
        return {
            "W_KQ": singular_values(self.W_KQ - self.W_KQ[0]),
            "W_VO": singular_values(self.W_VO - self.W_VO[0]),
        }


def traces(
    heads: DecayedHeads, start: Weights, params: Tracing, ends: Each, until: Until
) -> list[Trace]:
    """Every head along its flow, until its end, or until what is timed has come."""
    first = products(start).KQ
    units = norm(first)
    parts: list[list[tuple[Any, ...]]] = [[] for _ in start.gain]
    turned_once = np.zeros(len(parts), bool)

    def over(moment: Moment) -> np.ndarray:
        own = moment.heads
        done = moment.times >= ends[own]
        if until == "end":
            return done
        W_KQ, W_VO = products(moment.weights)
        undecayed = W_KQ * np.exp(2 * heads.keys[own] * moment.times)[:, None, None]
        turned_once[own] |= norm(undecayed - first[own]) >= params.turned * units[own]
        there = turned_once[own].copy()
        if until == "rise":
            there &= singular_values(W_VO)[:, 0] >= params.risen
        if until == "rise" and heads.learned:
            there &= np.abs(moment.weights.gain / start.gain[own] - 1) >= params.moved
        return done | there

    for moment in flow(heads, start, params.longest, over):
        W_KQ, W_VO = products(moment.weights)
        grown = np.exp(2 * heads.keys[moment.heads] * moment.times)
        relative = W_KQ * (grown / units[moment.heads])[:, None, None]
        columns = (moment.times, relative, W_VO, moment.weights.gain)
        for head, row in zip(moment.heads, zip(*columns, strict=True), strict=True):
            parts[head].append(row)
    return [Trace(*(np.array(column) for column in zip(*own, strict=True))) for own in parts]


def events(path: Trace, params: Tracing) -> dict[str, float]:
    """When a head's keys turn, its values rise and its gain moves, and its rank at the turn."""
    times = path.times
    turn = first_time(times, norm(path.W_KQ - path.W_KQ[0]).clip(LEAST), params.turned)
    gain = np.abs(path.gain / path.gain[0] - 1).clip(LEAST)
    ranks = stable_rank(path.updates["W_KQ"])
    return {
        "turn": turn,
        "rise": first_time(times, singular_values(path.W_VO)[:, 0], params.risen),
        "gain_moved": first_time(times, gain, params.moved),
        "rank_at_turn": float(np.interp(turn, times, ranks)) if turn < math.inf else math.nan,
    }


def end_of_keys(path: Trace, risen: float) -> dict[str, float]:
    """The stable rank of the update of W_KQ at the end, and how much of its way was `left`.

    That is the distance from where it is when values begin to rise (at a tenth of `risen`) to its
    end, over the distance from its start to its end.
    """
    sigma = singular_values(path.W_VO)[:, 0]
    begun = first_time(path.times, sigma, BEGUN * risen)
    before = int(np.searchsorted(path.times, min(begun, path.times[-1])))
    distance = norm(path.W_KQ - path.W_KQ[0]).clip(LEAST)[-1]
    left = norm(path.W_KQ[-1:] - path.W_KQ[before])[0] / distance
    return {"rank_at_end": float(stable_rank(path.updates["W_KQ"])[-1]), "left": float(left)}


def directions(path: Trace) -> pd.DataFrame:
    """When each direction of the updates has begun and ended, and how large it is at last."""
    found: list[pd.DataFrame] = []
    for matrix, sigma in path.updates.items():
        last = sigma[-1]
        rows = {
            "direction": np.arange(1, len(last) + 1),
            "last": last,
            "begun": [first_time(path.times, s.clip(LEAST), BEGUN * s[-1]) for s in sigma.T],
            "ended": [first_time(path.times, s.clip(LEAST), ENDED * s[-1]) for s in sigma.T],
        }
        found.append(pd.DataFrame(rows).assign(matrix=matrix))
    return pd.concat(found)


def course(path: Trace) -> pd.DataFrame:
    """The singular values of both updates, by time, evenly spaced in it."""
    looks = np.linspace(0, path.times[-1], N_LOOKS)
    kept = np.unique(np.searchsorted(path.times, looks))
    columns = {"time": path.times[kept]}
    for name, sigma in path.updates.items():
        shown = min(N_SHOWN, sigma.shape[1])
        columns |= {f"{name}_{i + 1}": sigma[kept, i] for i in range(shown)}
    return pd.DataFrame(columns)
