"""Gradient descent beside the flow: the toy head in three arithmetics, and an example where the
plain one is lost.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch

from lib.files.files import InputError
from lib.files.inputs import read_as
from lib.files.params import Interval, Positive, Seed, Seeds, read_cases, read_params
from lib.files.tables import read_table, write_table
from lib.gradual_rank.descent import Form, State, descend, drift, lost, with_crossings
from lib.gradual_rank.diagonal_heads import DiagonalHead, Quadratic
from lib.gradual_rank.flow import LogCoordinates, Solver, log_flow, staged_flow, with_events
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.step_counts import steps_to
from lib.gradual_rank.tasks import gaussian_pair, read_toy
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run

LogScale = Annotated[float, Interval("[-1000, 0)")]
RepresentableScale = Annotated[float, Interval("[-100, 0)")]
REST = 1e-6  # of the example: where its coordinates start, and when a stage is at rest
TOLERANCES: Any = {"rtol": 1e-6, "atol": 1e-4}  # of the example, which costs little
MAX_STEPS = 200_000
DROP = ["method", "log10_init_scale", "coordinate", "sign", "rescaled_time", "lost"]


@dataclass(frozen=True)
class Variant:
    form: Literal["plain", "factors", "exponential"]
    share_of_limit: Annotated[float, Interval("(0, 2]")]


@dataclass(frozen=True)
class Drop:
    coupling: Annotated[float, Interval("(0, 0.7]")]
    minimum: tuple[float, ...]
    seed: Seed
    learning_rate: Positive
    log10_init_scale: RepresentableScale
    flow_log10_init_scales: tuple[LogScale, ...]
    rescaled_end: Positive

    def __post_init__(self) -> None:
        if len(self.minimum) != 3:
            raise ValueError(f"minimum: wanted three coordinates, got {self.minimum}")
        _ = self.n_steps

    @property
    def n_steps(self) -> int:
        """Of the descents."""
        end = -self.log10_init_scale * math.log(10) * self.rescaled_end
        return steps_to(end, self.learning_rate, "rescaled_end, learning_rate", most=MAX_STEPS)


@dataclass(frozen=True)
class Descend(Seeds):
    log10_init_scale: RepresentableScale
    drop: Drop


def main(
    section: str, solver: str, variants: Path, task: Path, stages: Path, descents: OutFolder
) -> None:
    """Write `events` and `ends` of the descents, and the `drop` example."""
    use_threads(1)
    params = read_params(section, Descend)
    followed = read_params(solver, Solver)
    cases = read_cases(variants, Variant)
    toy = read_as("a toy task", read_toy, task)
    unknown = set(params.seeds) - set(toy.seeds.tolist())
    if unknown:
        raise InputError(f"{section}: wanted seeds of {task}, got {sorted(unknown)}")
    for variant in cases:
        rates_and_steps(stages, params, followed, variant)
    forms = [("plain", "float64"), ("plain", "float32"), ("factors", "float64")]
    jobs = {
        "heads": [(follow, task, stages, params, followed, variant) for variant in cases],
        "drop": [
            (predict_example, params.drop, followed.threshold),
            *((descend_example, params.drop, followed.threshold, *form) for form in forms),
        ],
    }
    found = spread_cells(jobs, label=section, unit="descent")
    for kind, name in (("heads", "events"), ("heads", "ends"), ("drop", "drop")):
        write_table(joined(found[kind], name), descents / f"{name}.parquet")


def follow(task: Path, stages: Path, params: Descend, solver: Solver, variant: Variant) -> Tables:
    """One form of descent of all seeds side by side: when products cross the threshold, and how
    each ends.
    """
    toy = read_toy(task)
    if toy.frames is not None:
        raise InputError(f"{task}: wanted a problem of one head to descend on, got a transformer")
    places = [toy.seeds.tolist().index(seed) for seed in params.seeds]
    loss = DiagonalHead(toy.X[places], toy.Y[places])
    log_scale = params.log10_init_scale * math.log(10)
    rates, n_steps = rates_and_steps(stages, params, solver, variant)
    u, v = (math.exp(log_scale) * w[places] for w in (toy.u, toy.v))
    cell = {
        "form": variant.form,
        "share_of_limit": variant.share_of_limit,
        "log10_init_scale": params.log10_init_scale,
    }
    states = descend(loss.gradient, u, v, torch.from_numpy(rates)[:, None], variant.form)
    states = while_finite(states, f"share_of_limit, {variant.form}")
    events: list[dict[str, Any]] = []
    rows: dict[int, dict[str, Any]] = {}
    first_lost = [math.inf] * len(places)
    for state, above, changed in with_crossings(states, solver.threshold):
        for row, i in changed.nonzero().tolist():
            if state.step <= n_steps[row]:
                sign = int(torch.sign(state.p[row, i]))
                rises = bool(above[row, i])
                when = {"seed": params.seeds[row], "time": state.step * rates[row]}
                events.append({**cell, **when, "coordinate": i, "sign": sign, "rises": rises})
        if variant.form == "plain" and state.step % 20 == 0:
            for row in lost(state).any(-1).nonzero()[:, 0].tolist():
                first_lost[row] = min(first_lost[row], state.step * rates[row])
        for row in np.flatnonzero(n_steps == state.step).tolist():
            rows[row] = {
                **cell,
                "seed": params.seeds[row],
                "steps": state.step,
                "learning_rate": rates[row],
                "loss": float(
                    loss.value(state.p)[row] / loss.value(torch.zeros_like(state.p))[row]
                ),
                "drift": float(drift(state, variant.form, u, v)[row]),
                "lost_at": first_lost[row],
            }
        if len(rows) == len(places):
            break
    return {
        "events": pd.DataFrame(events),
        "ends": pd.DataFrame([rows[row] for row in sorted(rows)]),
    }


def rates_and_steps(
    stages: Path, params: Descend, solver: Solver, variant: Variant
) -> tuple[np.ndarray, np.ndarray]:
    """Of every seed, the learning rate, and the steps to the end of its last stage."""
    by_seed = read_table(stages, ["seed", "time", "learning_rate_limit"]).groupby("seed")
    seeds = list(params.seeds)
    limits = by_seed["learning_rate_limit"].min().loc[seeds].to_numpy()
    if not np.isfinite(limits).all():
        raise InputError(
            f"{stages}: wanted seeds that have a stage with a limit of the learning rate, got "
            f"{limits}"
        )
    rates = variant.share_of_limit * limits
    share = f"share_of_limit {variant.share_of_limit:g}"
    ends = [
        solver.end(last, params.log10_init_scale * math.log(10))
        for last in by_seed["time"].max().loc[seeds]
    ]
    n_steps = [
        steps_to(end, rate, share, most=MAX_STEPS)
        for end, rate in zip(ends, rates.tolist(), strict=True)
    ]
    return rates, np.array(n_steps)


def while_finite(states: Iterator[State], what: str) -> Iterator[State]:
    """The states; raises `InputError` at one that overflows."""
    for state in states:
        if not bool(state.p.isfinite().all()):
            raise InputError(
                f"{what}: wanted a learning rate at which descent stays finite, got overflow at "
                f"step {state.step}"
            )
        yield state


def example(params: Drop) -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """The quadratic in three coordinates whose third joins, leaves and joins again with the other
    sign; its start.
    """
    H = torch.eye(3, dtype=torch.float64)
    H[2, :2] = H[:2, 2] = params.coupling
    u, v = gaussian_pair(3, generator(params.seed, "start of the example"))
    return Quadratic(H, torch.tensor(params.minimum, dtype=torch.float64)), u.numpy(), v.numpy()


def predict_example(drop: Drop, threshold: float) -> Tables:
    """The example's activations by Algorithm 1, by its finite-scale form, and by the flow in log
    coordinates.
    """
    loss, u, v = example(drop)
    rows = [
        {
            "method": "Algorithm 1",
            "log10_init_scale": -math.inf,
            "coordinate": stage.coordinate,
            "sign": stage.sign,
            "rescaled_time": stage.time,
            "lost": False,
        }
        for stage in greedy(loss, 3, kick=REST, stationary=REST, **TOLERANCES)
        if stage.k
    ]
    for scale in drop.flow_log10_init_scales:
        log_scale = scale * math.log(10)
        start = LogCoordinates.of(u, v, log_scale)
        end = -log_scale * drop.rescaled_end
        events = staged_flow(
            loss, start, end, threshold=threshold, stationary=REST, max_events=100, **TOLERANCES
        )
        found = [
            ("finite-scale Algorithm 1", e.coordinate, e.sign, e.time) for e in events if e.rises
        ]
        flow = log_flow(loss, start, end, **TOLERANCES)
        measured = [event for _, events in with_events(flow, start, threshold) for event in events]
        found += [
            ("flow in log coordinates", e.coordinate, e.sign, e.time) for e in measured if e.rises
        ]
        rows += [
            {
                "method": method,
                "log10_init_scale": scale,
                "coordinate": i,
                "sign": sign,
                "rescaled_time": time / -log_scale,
                "lost": False,
            }
            for method, i, sign, time in found
        ]
    return {"drop": pd.DataFrame(rows, columns=DROP)}


def descend_example(drop: Drop, threshold: float, form: Form, precision: str) -> Tables:
    """The example's activations by gradient descent in one arithmetic; a row more says when it was
    lost, if it was.
    """
    loss, u, v = example(drop)
    dtype = {"float64": torch.float64, "float32": torch.float32}[precision]
    loss.H, loss.minimum = loss.H.to(dtype), loss.minimum.to(dtype)
    scale = drop.log10_init_scale
    log_scale = drop.log10_init_scale * math.log(10)
    first, second = (torch.from_numpy(math.exp(log_scale) * w).to(dtype) for w in (u, v))
    if not (first.abs().min() > 0 and second.abs().min() > 0):
        raise InputError(
            f"log10_init_scale: wanted a start that {precision} can write, got 1e{scale:g}"
        )
    rows = []
    first_lost = math.inf
    cell = {"method": f"{form} gradient descent, {precision}", "log10_init_scale": scale}
    states = descend(loss.gradient, first, second, drop.learning_rate, form)
    states = while_finite(states, f"drop.learning_rate, {form}, {precision}")
    for state, above, changed in with_crossings(states, threshold):
        rescaled = state.step * drop.learning_rate / -log_scale
        for i in (above & changed).nonzero()[:, 0].tolist():
            sign = int(torch.sign(state.p[i]))
            rows.append(
                {**cell, "coordinate": i, "sign": sign, "rescaled_time": rescaled, "lost": False}
            )
        if form == "plain" and state.step % 100 == 0 and not math.isfinite(first_lost):
            for i in lost(state).nonzero()[:, 0].tolist():
                first_lost = rescaled
                rows.append(
                    {**cell, "coordinate": i, "sign": 0, "rescaled_time": rescaled, "lost": True}
                )
        if state.step >= drop.n_steps:
            break
    return {"drop": pd.DataFrame(rows, columns=DROP)}


if __name__ == "__main__":
    run(main)
