"""Follow heads from starts of many sizes until W_KQ rises; say what theory has of these events."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd

from lib.files.params import Interval, Name, Seeds, read_cases, read_params
from lib.gradual_rank.connections import Connection, connection
from lib.gradual_rank.full_heads import FullSizes, gaussian_factors
from lib.gradual_rank.full_trainings import Tokens
from lib.gradual_rank.normalized_heads import Factors, Heads, Moment, flow
from lib.gradual_rank.saddles import (
    Saddles,
    events,
    near_the_first_rise,
    overlap,
    rates,
    singular_values,
    slopes_at,
)
from lib.gradual_rank.step_counts import evenly
from lib.gradual_rank.tables.second_event import FOLDER
from lib.gradual_rank.tasks import Samples, Size
from lib.matrices.directions import first_time
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

N_LOOKS = 121  # points of a course that are kept
MOST_BEFORE = 4  # directions of W_VO that may rise before W_KQ in the limit
LATE = 2.0  # a flow ends at so many times the time that theory has for W_KQ
COLUMNS = ("time", "sigma_keys", "sigma_values", "sigma_values_2")  # of a course
BEGIN = 1e-4  # the size of the first direction at which a flow begins


@dataclass(frozen=True)
class Case:
    """A line of the table: the teacher's rank, and where heads start."""

    name: Name
    teacher_rank: Size
    log10_init_scales: tuple[Annotated[float, Interval("[-100, -2]")], ...]


@dataclass(frozen=True)
class SecondEvent(Seeds):
    """The heads, and how they are followed."""

    n_samples: Samples
    longest: Annotated[float, Interval("(0, 0.1]")]


def main(section: str, head: str, cases: Path, followed: OutFolder) -> None:
    """Write `heads`, `rises` and `courses`."""
    use_threads(1)
    params = read_params(section, SecondEvent)
    sizes = read_params(head, FullSizes, part=True)
    jobs: list[Job] = [(follow, case, params, sizes) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.second_event", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: SecondEvent, sizes: FullSizes) -> Tables:
    """The heads of all seeds by the teachers of one rank, from each of its scales."""
    d = sizes.d_model
    tokens = Tokens(params.seeds, sizes.seq_len, d)
    X, Y = tokens.taught("tokens", params.n_samples, [min(case.teacher_rank, d)])
    heads = Heads(X.numpy(), Y[:, 0].numpy(), normalized=False, stiffness=1.0)
    (W_K, W_V), (W_Q, W_O) = gaussian_factors(d, params.seeds, "full start").numpy()
    factors = np.stack([W_K, W_Q, W_V, W_O])
    saddles = Saddles.of(heads)
    ways = [connection(saddles, n, factors) for n in range(params.n_seeds)]
    limits = in_the_limit(saddles).assign(case=case.name, seed=params.seeds)
    limits["crossing"] = [way.crossing(sizes.threshold) for way in ways]
    rises, courses = risen(case, params, sizes.threshold, saddles, ways, factors, limits)
    return {"heads": limits, "rises": rises, "courses": courses}


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


def risen(
    case: Case,
    params: SecondEvent,
    threshold: float,
    saddles: Saddles,
    ways: list[Connection],
    factors: Factors,
    limits: pd.DataFrame,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """When things rise in every head from every scale, beside what is said of it; and courses."""
    cells = [(s, n) for s in sorted(case.log10_init_scales) for n in range(params.n_seeds)]
    places = np.array([n for _, n in cells])
    scales = np.array([scale for scale, _ in cells])
    own = saddles.heads.only(places)
    start = near_the_first_rise(saddles.G[places], factors[:, places], 10.0**scales, BEGIN)
    said = [ways[n].rises(scale, threshold) for scale, n in cells]
    ends = LATE * np.array([one.keys for one in said])
    pair = slopes_at(own, saddles.optimum(1, 2)[places]).KQ
    waits_at = [saddles.optimum(0, int(rank))[n] for n, rank in enumerate(limits["before"])]
    slope = slopes_at(own, np.stack(waits_at)[places]).KQ
    has_pair = limits["kappa_pair"].to_numpy() > 0
    looks: list[list[tuple[float, ...]]] = [[] for _ in cells]
    overlaps = np.zeros((len(cells), 2))

    def over(moment: Moment) -> np.ndarray:
        last = np.array([looks[cell][-1] for cell in moment.heads])
        return (last[:, 1] >= threshold) | (last[:, 0] >= ends[moment.heads])

    for moment in flow(own, start.weights, params.longest, over):
        W_K, W_Q, W_V, W_O = moment.weights.factors
        W_KQ = W_K @ W_Q.swapaxes(-1, -2)
        keys = singular_values(W_KQ)[:, 0]
        values = singular_values(W_V @ W_O.swapaxes(-1, -2))[:, :2]
        times = start.times[moment.heads] + moment.times
        for cell, *seen in zip(moment.heads, times, keys, *values.T, strict=True):
            looks[cell].append(tuple(seen))
        at = np.flatnonzero(keys >= threshold)
        for column, G in enumerate((slope, pair)):
            overlaps[moment.heads[at], column] = overlap(W_KQ[at], G[moment.heads[at]])
    rows: list[dict[str, Any]] = []
    courses: list[pd.DataFrame] = []
    for n, (scale, place) in enumerate(cells):
        times, keys, values, second = np.array(looks[n]).T
        cell = {"case": case.name, "seed": params.seeds[place], "log10_init_scale": scale}
        rise = first_time(times, keys, threshold)
        row = {
            "first": first_time(times, values, threshold),
            "keys": rise,
            "values": first_time(times, second, threshold),
            "first_said": said[n].first,
            "keys_said": said[n].keys,
            "values_said": said[n].values,
            "overlap": overlaps[n, 0] if rise < math.inf else math.nan,
            "overlap_pair": overlaps[n, 1] * has_pair[place] if rise < math.inf else math.nan,
        }
        if row["values"] > rise:
            row["values"] = math.inf
        rows.append({**cell, **row})
        kept = evenly(N_LOOKS, len(times) - 1)
        columns = dict(zip(COLUMNS, (times, keys, values, second), strict=True))
        courses.append(pd.DataFrame(columns).iloc[kept].assign(**cell))
    return pd.DataFrame(rows), pd.concat(courses)


if __name__ == "__main__":
    run(main)
