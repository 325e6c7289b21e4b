"""Follow heads whose queries and keys are normalised, and plain ones from the same start.

Each is followed by gradient flow from several init scales, and normalised ones once more in the
limit of small weights, in which no scale occurs.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from lib.files.params import Interval, Name, Positive, Seeds, read_cases, read_params
from lib.gradual_rank.normalized_draws import drawn
from lib.gradual_rank.normalized_heads import (
    Heads,
    Look,
    Moment,
    Weights,
    flow,
    look,
)
from lib.gradual_rank.tables.normalized import FOLDER
from lib.gradual_rank.tasks import Samples, Size
from lib.matrices.directions import first_time
from lib.matrices.ranks import stable_rank
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

LEAST = 1e-300  # in the place of zero, where a logarithm is taken


@dataclass(frozen=True)
class Flow:
    """How flows are followed, and what counts."""

    turned: Positive  # the share of its norm by which W_KQ has moved when it has turned
    small: Positive  # the singular value of W_VO at which it is seen how far keys have turned
    stiffness: Positive
    longest: Annotated[float, Interval("(0, 0.1]")]
    end: Positive  # the flow's time


@dataclass(frozen=True)
class Case(Seeds):
    """Heads whose attention is made in one way: their labels, sizes and init scales."""

    name: Name
    qk_norm: bool
    learned_gain: bool
    pre_norm: bool
    permuted: bool
    risen: Positive
    n_samples: Samples
    seq_len: Size
    d_model: Size
    log10_init_scales: tuple[Annotated[float, Interval("[-6, 0)")], ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of samples, their length and the width of their tokens."""
        return self.n_samples, self.seq_len, self.d_model


def main(section: str, cases: Path, followed: OutFolder) -> None:
    """Write `heads`, `limits` and `courses`."""
    use_threads(1)
    params = read_params(section, Flow)
    jobs: list[Job] = [(follow, case, params) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.normalized", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: Flow) -> Tables:
    """The flows of a case from every scale, and in the limit."""
    X, Y, unscaled = drawn(case.seeds, case.sizes, permuted=case.permuted, pre_norm=case.pre_norm)
    heads = Heads(X, Y, case.qk_norm, params.stiffness, case.learned_gain)
    scales = sorted(case.log10_init_scales, reverse=True)
    cells = [(scale, seed) for scale in scales for seed in case.seeds]
    places = np.tile(np.arange(case.n_seeds), len(scales))
    sizes = 10.0 ** np.array([scale for scale, _ in cells])
    start = unscaled.only(places)
    start = Weights(sizes[:, None, None] * start.factors, start.gain)
    rows: list[dict[str, Any]] = []
    courses: list[pd.DataFrame] = []
    followed = histories(heads.only(places), start, params, case.risen)
    W_K, W_Q, _, _ = unscaled.factors
    first = stable_rank(np.linalg.svd(W_K @ W_Q.swapaxes(-1, -2), compute_uv=False))
    for n, ((scale, seed), course) in enumerate(zip(cells, followed, strict=True)):
        cell = {"case": case.name, "seed": seed, "log10_init_scale": scale}
        row = events(course, params, case.risen)
        rows.append({**cell, **row, "rank_at_start": first[places[n]]})
        if seed == case.seeds[0]:
            courses.append(course.assign(**cell))
    smallest = Weights(10.0 ** scales[-1] * unscaled.factors, unscaled.gain)
    limits = pd.DataFrame({"case": case.name, "seed": case.seeds})
    limits["start_growth"] = heads.growth(smallest)
    limits["turn"] = math.inf
    limits["growth"] = limits["start_growth"]
    if case.qk_norm:
        ends = [case.risen / 10.0 ** (2 * scale) for scale in scales[-2:]]
        limits["turn"], limits["growth"] = in_the_limit(heads, unscaled, params, *ends)
    return {"heads": pd.DataFrame(rows), "limits": limits, "courses": pd.concat(courses)}


def histories(heads: Heads, start: Weights, params: Flow, risen: float) -> list[pd.DataFrame]:
    """The looks at every head: one a step, until its keys have turned and its values risen."""
    looks: list[list[tuple[float, ...]]] = [[] for _ in start.gain]

    def over(moment: Moment) -> np.ndarray:
        return np.array(
            [
                looks[head][-1][0] >= params.end
                or (turned_once[head] and looks[head][-1][3] >= risen)
                for head in moment.heads
            ]
        )

    turned_once = np.zeros(len(looks), bool)
    for moment in flow(heads, start, params.longest, over):
        seen = look(moment.weights, start.only(moment.heads))
        turned_once[moment.heads] |= seen.turned >= params.turned
        for head, time, *values in zip(moment.heads, moment.times, *seen, strict=True):
            looks[head].append((time, *values))
    return [pd.DataFrame(own, columns=["time", *Look._fields]) for own in looks]


def events(course: pd.DataFrame, params: Flow, risen: float) -> dict[str, float]:
    """When a head's keys turn and its values rise, and what it is at these moments."""
    times = course["time"].to_numpy()
    sigma = course["sigma"].to_numpy()
    turn = first_time(times, course["turned"].clip(lower=LEAST).to_numpy(), params.turned)
    rise = first_time(times, sigma, risen)
    small = first_time(times, sigma, params.small)

    def at(time: float, column: str) -> float:
        return float(np.interp(time, times, course[column])) if time < math.inf else math.nan

    before = course["time"] <= turn
    return {
        "turn": turn,
        "rise": rise,
        "angle": at(small, "angle"),
        "drift": float(np.fmax(course.loc[before, "drift"].max(), at(turn, "drift"))),
        "stable_rank": at(turn, "stable_rank"),
        "rank_at_rise": at(rise, "stable_rank"),
    }


def in_the_limit(
    heads: Heads, start: Weights, params: Flow, begin: float, end: float
) -> tuple[np.ndarray, np.ndarray]:
    """When keys turn in the limit of small weights, and the rate at which W_VO grows there.

    The rate is the mean over the time in which the first singular value of W_VO goes from `begin`
    to `end`; it is NaN where the start is beyond that. A gain stays where it is: it moves as fast
    as W_VO is large.
    """
    linear = replace(heads, linear=True, learned=False)
    courses: list[list[tuple[float, ...]]] = [[] for _ in start.gain]

    def over(moment: Moment) -> np.ndarray:
        return turned_once[moment.heads] & np.array(
            [courses[head][-1][2] >= end for head in moment.heads]
        )

    turned_once = np.zeros(len(courses), bool)
    for moment in flow(linear, start, params.longest, over):
        seen = look(moment.weights, start.only(moment.heads))
        turned_once[moment.heads] |= seen.turned >= params.turned
        growth = linear.only(moment.heads).growth(moment.weights)
        columns = (moment.heads, moment.times, seen.turned, seen.sigma, growth)
        for head, *values in zip(*columns, strict=True):
            courses[head].append(tuple(values))
    turns: list[float] = []
    rates: list[float] = []
    for course in courses:
        times, turned, sigma, growth = np.array(course).T
        turns.append(first_time(times, turned.clip(LEAST), params.turned))
        counted = (sigma >= begin) & (sigma <= end)
        grown = np.trapezoid(growth[counted], times[counted])
        rates.append(float(grown / np.ptp(times[counted])) if counted.sum() > 1 else math.nan)
    return np.array(turns), np.array(rates)


if __name__ == "__main__":
    run(main)
