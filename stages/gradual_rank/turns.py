"""Follow normalised heads far behind their turn, with gains of their own, and under weight decay.

Plain heads from the same starts are the control, with pre-norm and without.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from lib.files.params import Interval, Name, Positive, Seeds, read_cases, read_params
from lib.gradual_rank.decayed_turns import DecayedHeads, earlier_turn
from lib.gradual_rank.normalized_draws import drawn
from lib.gradual_rank.normalized_heads import Each, Heads, Moment, Weights, flow, norm
from lib.gradual_rank.tables.turns import FOLDER
from lib.gradual_rank.tasks import Samples, Size
from lib.matrices.directions import BEGUN, ENDED, first_time
from lib.matrices.ranks import stable_rank
from lib.training.devices import use_threads
from lib.work.cells import Job, Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

LEAST = 1e-300  # in the place of zero, where a logarithm is taken
N_LOOKS = 241  # points of a course that are kept
N_SHOWN = 3  # directions of a course
Decay = Annotated[float, Interval("[0, 10]")]


@dataclass(frozen=True)
class Turns:
    """How flows are followed, and what counts."""

    turned: Positive  # the share of its norm by which W_KQ has moved when it has turned
    risen: Positive  # the singular value of W_VO that has risen
    moved: Positive  # the share of its start by which a gain has moved
    stiffness: Positive
    longest: Annotated[float, Interval("(0, 0.2]")]
    margin: Positive  # of the end


@dataclass(frozen=True)
class Case(Seeds):
    """Heads whose attention is made in one way, what decays in them, and where they start."""

    name: Name
    qk_norm: bool
    gain: Literal["fixed", "learned", "small"]  # small: learned, and scaled as the weights are
    pre_norm: bool
    permuted: bool
    decay_keys: Decay  # over sigma_1(G(0)) of uniform attention
    decay_values: Decay
    until: Literal["turn", "rise", "end"]  # what is followed: keys, values and gains, or all
    end: Positive  # at the latest, over (log(1 / init scale) + margin) / sigma_1(G(0))
    n_samples: Samples
    seq_len: Size
    d_model: Size
    log10_init_scales: tuple[Annotated[float, Interval("[-6, 0)")], ...]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of samples, their length and the width of their tokens."""
        return self.n_samples, self.seq_len, self.d_model


def main(section: str, cases: Path, followed: OutFolder) -> None:
    """Write `heads`, `limits`, `directions` and `courses`."""
    use_threads(1)
    params = read_params(section, Turns)
    jobs: list[Job] = [(follow, case, params) for case in read_cases(cases, Case)]
    found = spread_cells({"": jobs}, label="gradual_rank.turns", unit="case")[""]
    write_joined(FOLDER, found, followed)


def follow(case: Case, params: Turns) -> Tables:
    """The flows of a case from every scale, and what the limit of small weights says of them."""
    X, Y, unscaled = drawn(case.seeds, case.sizes, permuted=case.permuted, pre_norm=case.pre_norm)
    sigma = Heads(X, Y, normalized=False, stiffness=1.0).growth(without_keys(unscaled))
    heads = DecayedHeads(
        X,
        Y,
        case.qk_norm,
        params.stiffness,
        case.gain != "fixed",
        keys=case.decay_keys * sigma,
        values=case.decay_values * sigma,
    )
    scales = sorted(case.log10_init_scales, reverse=True)
    cells = [(scale, seed) for scale in scales for seed in case.seeds]
    places = np.tile(np.arange(case.n_seeds), len(scales))
    sizes = 10.0 ** np.array([scale for scale, _ in cells])
    start = unscaled.only(places)
    gain = start.gain * sizes if case.gain == "small" else start.gain
    start = Weights(sizes[:, None, None] * start.factors, gain)
    ends = case.end * (params.margin - np.log(sizes)) / sigma[places]
    far = case.until == "end"
    rows: list[dict[str, Any]] = []
    directions: list[pd.DataFrame] = []
    courses: list[pd.DataFrame] = []
    paths = followed(heads.only(places), start, params, ends, case.until)
    for (scale, seed), path in zip(cells, paths, strict=True):
        cell = {"case": case.name, "seed": seed, "log10_init_scale": scale}
        rows.append({**cell, **events(path, params, far=far)})
        if far:
            directions += [one.assign(**cell) for one in rising(path)]
            if seed == case.seeds[0]:
                courses.append(course(path).assign(**cell))
    limits = pd.DataFrame({"case": case.name, "seed": case.seeds, "sigma": sigma})
    limits["growth"] = sigma - heads.values
    limits["decay"] = heads.values
    limits[["turn", "turn_undecayed"]] = math.inf
    if case.qk_norm and case.gain != "small":
        limits = limits.assign(**in_the_limit(heads, unscaled, params, scales[-2:]))
    found = {"heads": pd.DataFrame(rows), "limits": limits}
    if far:
        found |= {"directions": pd.concat(directions), "courses": pd.concat(courses)}
    return found


def without_keys(W: Weights) -> Weights:
    """The weights with W_K and W_Q of zero, under which a plain head's attention is uniform."""
    factors = W.factors.copy()
    factors[:2] = 0
    return Weights(factors, W.gain)


@dataclass(frozen=True)
class Trace:
    """A head along its flow."""

    times: np.ndarray
    W_KQ: np.ndarray  # without its decay, in units of its norm at the start
    W_VO: np.ndarray
    gain: np.ndarray

    @property
    def updates(self) -> dict[str, np.ndarray]:
        """The singular values of the update of each product, by time."""
        return {
            "W_KQ": singular_values(self.W_KQ - self.W_KQ[0]),
            "W_VO": singular_values(self.W_VO - self.W_VO[0]),
        }


def followed(
    heads: DecayedHeads, start: Weights, params: Turns, ends: Each, until: str
) -> list[Trace]:
    """Every head along its flow, until its end, or until what is timed has come."""
    first, _ = products(start)
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
        for head, *seen in zip(
            moment.heads, moment.times, relative, W_VO, moment.weights.gain, strict=True
        ):
            parts[head].append(tuple(seen))
    return [Trace(*(np.array(column) for column in zip(*own, strict=True))) for own in parts]


def products(W: Weights) -> tuple[np.ndarray, np.ndarray]:
    """W_KQ and W_VO of every head."""
    W_K, W_Q, W_V, W_O = W.factors
    return W_K @ W_Q.swapaxes(-1, -2), W_V @ W_O.swapaxes(-1, -2)


def singular_values(W: np.ndarray) -> np.ndarray:
    """The singular values of each matrix."""
    return np.linalg.svd(W, compute_uv=False)


def events(path: Trace, params: Turns, *, far: bool) -> dict[str, float]:
    """When a head's keys turn, its values rise and its gain moves, and what it is then."""
    times = path.times
    distance = norm(path.W_KQ - path.W_KQ[0]).clip(LEAST)
    turn = first_time(times, distance, params.turned)
    sigma = singular_values(path.W_VO)[:, 0]
    rise = first_time(times, sigma, params.risen)
    gain = np.abs(path.gain / path.gain[0] - 1).clip(LEAST)
    found = {"turn": turn, "rise": rise, "gain_moved": first_time(times, gain, params.moved)}
    ranks = stable_rank(path.updates["W_KQ"])
    found["rank_at_turn"] = float(np.interp(turn, times, ranks)) if turn < math.inf else math.nan
    if far:
        begun = first_time(times, sigma, BEGUN * params.risen)
        before = int(np.searchsorted(times, min(begun, times[-1])))
        left = norm(path.W_KQ[-1:] - path.W_KQ[before])[0] / distance[-1]
        found |= {"rank_at_end": float(ranks[-1]), "left": float(left)}
    return found


def rising(path: Trace) -> list[pd.DataFrame]:
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
    return found


def course(path: Trace) -> pd.DataFrame:
    """The singular values of both updates, by time, evenly spaced in it."""
    looks = np.linspace(0, path.times[-1], N_LOOKS)
    kept = np.unique(np.searchsorted(path.times, looks))
    columns = {"time": path.times[kept]}
    for name, sigma in path.updates.items():
        shown = min(N_SHOWN, sigma.shape[1])
        columns |= {f"{name}_{i + 1}": sigma[kept, i] for i in range(shown)}
    return pd.DataFrame(columns)


def in_the_limit(
    heads: DecayedHeads, start: Weights, params: Turns, last: list[float]
) -> dict[str, list[float]]:
    """What the limit of small weights says of every head: its turn and how fast its values grow.

    The limit is followed without decay. The rate is the mean of that of W_VO over the time in which
    its first singular value goes from `risen` at one scale to `risen` at the next one, less its
    decay; NaN where the start is beyond that.
    """
    zero = np.zeros(len(start.gain))
    linear = replace(heads, linear=True, learned=False, keys=zero, values=zero)
    begin, end = (params.risen / 10.0 ** (2 * scale) for scale in last)
    first, _ = products(start)
    parts: list[list[tuple[float, ...]]] = [[] for _ in start.gain]
    turned_once = np.zeros(len(parts), bool)

    def over(moment: Moment) -> np.ndarray:
        last = np.array([parts[head][-1] for head in moment.heads])
        turned_once[moment.heads] |= last[:, 1] >= params.turned
        grown = last[:, 2] * np.exp(-2 * heads.values[moment.heads] * last[:, 0])
        return turned_once[moment.heads] & (grown >= end)

    for moment in flow(linear, start, params.longest, over):
        own = moment.heads
        W_KQ, W_VO = products(moment.weights)
        turned = norm(W_KQ - first[own]) / norm(first[own])
        growth = linear.only(own).growth(moment.weights)
        for head, *seen in zip(
            own, moment.times, turned, singular_values(W_VO)[:, 0], norm(W_VO), growth, strict=True
        ):
            parts[head].append(tuple(seen))
    found: dict[str, list[float]] = {"turn": [], "turn_undecayed": [], "growth": []}
    for part, keys, values in zip(parts, heads.keys, heads.values, strict=True):
        times, turned, sigma, pull, growth = np.array(part).T
        turn = first_time(times, turned.clip(LEAST), params.turned)
        found["turn_undecayed"].append(turn)
        found["turn"].append(earlier_turn(times, pull, turn, keys - values))
        sigma = sigma * np.exp(-2 * values * times)
        counted = (sigma >= begin) & (sigma <= end)
        grown = np.trapezoid(growth[counted], times[counted])
        rate = grown / np.ptp(times[counted]) - values if counted.sum() > 1 else math.nan
        found["growth"].append(float(rate))
    return found


if __name__ == "__main__":
    run(main)
