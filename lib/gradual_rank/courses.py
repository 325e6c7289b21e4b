"""The course of one flow: looks at it, the middles of its plateaus, and its events."""

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.gradual_rank.diagonal_heads import same_entry
from lib.gradual_rank.flow import Crossings, LogCoordinates, Samples, Solver, log_flow
from lib.gradual_rank.problems import Problem
from lib.training.stiff_flow import Vector

Rows = list[dict[str, Any]]


def plateau_middles(predicted: pd.DataFrame, rest: float, log_scale: float) -> Vector:
    r"""The middle of each plateau that Algorithm 1 predicts, in the flow's own time.

    `predicted` has a row a stage, with its `time` $T_k$ and its `next_time` $T_{k+1}$ over
    $\log(1/\alpha)$, and log_scale is $\log \alpha$; the last plateau is cut at $(1 + 2 \,
    \mathrm{rest})$ times the last $T_k$.
    """
    last = float(predicted["time"].max())
    next_times = predicted["next_time"].clip(upper=(1 + 2 * rest) * last)
    return ((predicted["time"] + next_times) / 2 * -log_scale).to_numpy()


def course(
    loss: Problem,
    start: LogCoordinates,
    log_scale: float,
    end: float,
    looks: Mapping[str, Vector],
    grown: float,
    solver: Solver,
) -> dict[str, Rows]:
    r"""The flow from the start to its end: rows of each kind of looks, of `events` and of `grown`.

    `looks` are times by kind. A row of a look has the number of its time (`look`), the loss as a
    share of the loss at zero, the products p and the charges $y / \log(1/\alpha)$. An event is a
    product's rise to the solver's threshold, or its fall; `grown` has those at another level.
    Raises `InputError` for more events than the solver allows, and `StalledError`.
    """
    every = ((time, kind, i) for kind, times in looks.items() for i, time in enumerate(times))
    wanted = sorted((float(time), kind, i) for time, kind, i in every)
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    found: dict[str, Rows] = {kind: [] for kind in (*looks, "events", "grown")}
    samples = Samples(start.y, [time for time, *_ in wanted])
    risen = Crossings(start, solver.threshold)
    higher = Crossings(start, grown)
    for step in log_flow(loss, start, end, **solver.on(loss)):
        for i, y in samples.seen(step):
            time, kind, number = wanted[i]
            p = start.products(y)
            relative = float(loss.value(torch.from_numpy(p))) / initial
            seen = {"p": p, "loss": relative, "charge": y / -log_scale, "look": number}
            found[kind].append({"time": time, "rescaled_time": time / -log_scale, **seen})
        found["events"] += [vars(event) for event in risen.seen(step)]
        found["grown"] += [vars(event) for event in higher.seen(step)]
        if max(len(found["events"]), len(found["grown"])) > solver.max_events:
            raise InputError(
                f"wanted at most max_events, {solver.max_events}, rises and falls of products, got "
                "more"
            )
    return found


def twins(
    frames: Tensor | None, start: LogCoordinates, predicted: pd.DataFrame, p: Vector
) -> Iterator[dict[str, Any]]:
    """How heads of a common frame share what the first stage learns, and the shares that their
    starts predict.

    `frames` are those of a transformer, [layer, head, d, d], or None; p are the products on the
    plateau of stage 1. Nothing is shared where the frames differ or nothing joins.
    """
    if frames is None or frames.shape[1] < 2 or len(predicted) < 2:
        return
    if bool((frames == frames[:, :1]).all()):
        heads = same_entry(frames, int(predicted["coordinate"].iloc[1]))
        learned = p[heads]
        shares = start.shares(heads, int(predicted["sign"].iloc[1]))
        for head, share in enumerate(learned / learned.sum()):
            yield {"head": head, "share": share, "predicted": shares[head]}
