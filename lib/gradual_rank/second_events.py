"""What rises in heads with full matrices until W_KQ has: in the limit, as said, and as followed.

docs/second_event.md has what theory says of these events.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.gradual_rank.connections import Connection, Rises
from lib.gradual_rank.normalized_heads import (
    Each,
    Factors,
    Heads,
    Moment,
    flow,
    products,
    singular_values,
)
from lib.gradual_rank.saddles import (
    Saddles,
    Squares,
    Start,
    events,
    near_the_first_rise,
    overlap,
    rates,
    slopes_at,
)
from lib.gradual_rank.step_counts import evenly
from lib.matrices.directions import first_time

N_LOOKS = 121  # points of a course that are kept
MOST_BEFORE = 4  # directions of W_VO that may rise before W_KQ in the limit
LATE = 2.0  # a flow ends at so many times the time that theory has for W_KQ
BEGIN = 1e-4  # the size of the first direction at which a flow begins


class Look(NamedTuple):
    """The singular values of a head at a time of its flow; the columns of a course."""

    time: float
    sigma_keys: float  # the first one of W_KQ
    sigma_values: float  # and of W_VO
    sigma_values_2: float


class Followed(NamedTuple):
    """What is seen of heads, each until W_KQ has risen or is late."""

    looks: list[list[Look]]  # of every head
    # of the leading pair of W_KQ, once risen, with those of two slopes
    overlaps: Float[np.ndarray, "head 2"]


def in_the_limit(saddles: Saddles) -> pd.DataFrame:
    """The rates and times of every head in the limit of small starts."""
    d = saddles.G.shape[-1]
    slopes = [saddles.slopes(rank) for rank in range(min(MOST_BEFORE, d) + 1)]
    first = singular_values(saddles.G)[:, 0]
    KQ = np.stack([rates(one.KQ, first) for one in slopes], 1)
    VO = np.stack([rates(one.VO, first) for one in slopes], 1)
    found = [events(*own) for own in zip(KQ, VO, strict=True)]
    sigma, sigma_2 = VO[:, 0, :2].T
    tau = VO[:, 1, 0]
    pair = slopes_at(saddles.heads, saddles.optimum(1, 2)).KQ
    with np.errstate(divide="ignore"):  # what does not grow never rises
        second = (1 - sigma_2 / sigma) / tau
    columns = {
        "sigma": sigma,
        "sigma_2": sigma_2,
        "kappa": KQ[:, 1, 0],
        "tau": tau,
        "kappa_pair": rates(pair, first)[:, 0],
        "limit_first": 1 / sigma,
        "limit_keys": [own.keys for own in found],
        "limit_values": 1 / sigma + second,
        "before": [len(own.values) for own in found],
    }
    return pd.DataFrame(columns)


def followed(
    heads: Heads,
    start: Start,
    longest: float,
    risen: float,
    ends: Each,
    slopes: tuple[Squares, Squares],
) -> Followed:
    r"""The flow of heads, each until $\sigma_1(W_K W_Q^\top)$ is at `risen`, or to its end."""
    looks: list[list[Look]] = [[] for _ in ends]
    overlaps = np.zeros((len(ends), 2))

    def over(moment: Moment) -> np.ndarray:
        last = [looks[head][-1] for head in moment.heads]
        keys = np.array([look.sigma_keys for look in last])
        times = np.array([look.time for look in last])
        return (keys >= risen) | (times >= ends[moment.heads])

    for moment in flow(heads, start.weights, longest, over):
        W_KQ, W_VO = products(moment.weights)
        keys = singular_values(W_KQ)[:, 0]
        values = singular_values(W_VO)[:, :2]
        times = start.times[moment.heads] + moment.times
        for head, *seen in zip(moment.heads, times, keys, *values.T, strict=True):
            looks[head].append(Look(*seen))
        at = np.flatnonzero(keys >= risen)
        for column, G in enumerate(slopes):
            overlaps[moment.heads[at], column] = overlap(W_KQ[at], G[moment.heads[at]])
    return Followed(looks, overlaps)


def rises_of(looks: Sequence[Look], risen: float, said: Rises) -> dict[str, float]:
    """When things rise in a head that was followed, beside what is said of it."""
    times, keys, values, second = np.array(looks).T
    rise = first_time(times, keys, risen)
    later = first_time(times, second, risen)
    return {
        "first": first_time(times, values, risen),
        "keys": rise,
        "values": math.inf if later > rise else later,
        "first_said": said.first,
        "keys_said": said.keys,
        "values_said": said.values,
    }


def rises_and_courses(
    log10_init_scales: Sequence[float],
    seeds: Sequence[int],
    longest: float,
    risen: float,
    saddles: Saddles,
    ways: Sequence[Connection],
    factors: Factors,
    limits: pd.DataFrame,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """When things rise in the head of every seed from every scale, and the courses of these flows.

    `limits` are those of `in_the_limit`, and `ways` lead from the first saddle of each head to the
    second.
    """
    cells = [(s, n) for s in sorted(log10_init_scales) for n in range(len(seeds))]
    places = np.array([n for _, n in cells])
    scales = np.array([scale for scale, _ in cells])
    own = saddles.heads.only(places)
    start = near_the_first_rise(saddles.G[places], factors[:, places], 10.0**scales, BEGIN)
    said = [ways[n].rises(scale, risen) for scale, n in cells]
    ends = LATE * np.array([one.keys for one in said])
    pair = slopes_at(own, saddles.optimum(1, 2)[places]).KQ
    waits_at = [saddles.optimum(0, int(rank))[n] for n, rank in enumerate(limits["before"])]
    slope = slopes_at(own, np.stack(waits_at)[places]).KQ
    has_pair = limits["kappa_pair"].to_numpy() > 0
    found = followed(own, start, longest, risen, ends, (slope, pair))
    rows = []
    courses = []
    for n, (scale, place) in enumerate(cells):
        cell = {"seed": seeds[place], "log10_init_scale": scale}
        row = rises_of(found.looks[n], risen, said[n])
        at_slope, at_pair = found.overlaps[n] if row["keys"] < math.inf else (math.nan, math.nan)
        overlaps = {"overlap": at_slope, "overlap_pair": at_pair * has_pair[place]}
        rows.append({**cell, **row, **overlaps})
        kept = evenly(N_LOOKS, len(found.looks[n]) - 1)
        courses.append(pd.DataFrame(found.looks[n]).iloc[kept].assign(**cell))
    return pd.DataFrame(rows), pd.concat(courses)
