r"""Adapters of a trained head: fine-tuning by diagonal pairs $u \odot v$ that begin as LoRA does.

The teacher of an adapter differs from its base in a few coordinates; u is random and v = 0. What it
learns is forecast from its start, measured, and predicted by Algorithm 1, which knows no scale.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import torch

from lib.gradual_rank.diagonal_heads import DiagonalHead, adapted_head
from lib.gradual_rank.flow import LogCoordinates, Solver, log_flow, with_events
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tasks import Toy, gaussian_pair
from lib.training.devices import generator

Rows = list[dict[str, Any]]


def adapter_of(toy: Toy, index: int, n_changed: int) -> DiagonalHead:
    """The loss of the adapter of one seed: its teacher differs from the base in a few places."""
    base = toy.teacher[index]
    seed = int(toy.seeds[index])
    places = torch.randperm(len(base), generator=generator(seed, "changed coordinates"))[:n_changed]
    w_u, w_v = gaussian_pair(len(base), generator(seed, "change"))
    return adapted_head(toy.X[index], base, places, (w_u * w_v)[places])


def adapter_events(loss: DiagonalHead, start: LogCoordinates, end: float, solver: Solver) -> Rows:
    """A row for each event up to the end: those of the `forecast`, then those `measured`."""
    flow = with_events(log_flow(loss, start, end, **solver.on(loss)), start, solver.threshold)
    events = {
        "forecast": solver.predicted(loss, start, end),
        "measured": (event for _, found in flow for event in found),
    }
    return [
        {"source": source, **vars(event)} for source, found in events.items() for event in found
    ]


def limit_events(loss: DiagonalHead, solver: Solver, stop_loss: float) -> Iterator[dict[str, Any]]:
    r"""What joins and what leaves by Algorithm 1, which knows no scale: a row for each.

    Times are in units of $\log(1/\alpha)$; it ends where at most the share `stop_loss` of the first
    loss is left. What leaves has the sign 0.
    """
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    numbers = {"kick": solver.kick, "stationary": solver.stationary, **solver.on(loss)}
    for stage in itertools.islice(greedy(loss, loss.size, **numbers), 2 * loss.size + 1):
        time = stage.time
        if stage.k:
            joins = {"coordinate": stage.coordinate, "sign": stage.sign, "rises": True}
            yield {"time": time, **joins}
        for i in stage.dropped:
            yield {"time": time, "coordinate": i, "sign": 0, "rises": False}
        if float(loss.value(torch.from_numpy(stage.p))) < stop_loss * initial:
            return


def at_scales(limit: pd.DataFrame, ends: Mapping[float, float]) -> pd.DataFrame:
    """The events of Algorithm 1 at init scales, in the flow's own time, up to each scale's end.

    `ends` are by log10 of the scale. At scale 1, whose log is 0, all happen at once.
    """
    tables = []
    for scale, end in ends.items():
        here = limit.assign(log10_init_scale=scale, source="limit", end=end)
        here["time"] = here["time"] * -scale * LOG10 + 0.0  # and no -0 at scale 1
        tables.append(here[here["time"] <= end])
    return pd.concat(tables)
