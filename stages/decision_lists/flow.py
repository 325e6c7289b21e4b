r"""Follow gradient flow on W from 0 at V = cP: the theorem's runs, the law of the time, the runs whose spectra matter.

The flow is followed in u = cW and $\tau = c^2 t$, whose scale does not depend on c:
$\dot u = -\nabla_W(u / c) / c$.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.analysis.convergence_bounds import flow_bound, rarest_conflict
from lib.data.decision_lists import Task, determining_tokens, label_matrix
from lib.dynamics.stiff_flow import Step, first_crossing, stiff_flow
from lib.io.command import run
from lib.io.compute import available_cores, spread_kinds, use_device, use_threads
from lib.io.files import InputError, clear
from lib.io.params import Count, Interval, Positive, read_params
from lib.io.runs import Layout, clear_runs, write_run
from lib.io.tables import read_table, write_table
from lib.models.list_attention import (
    Rows,
    attention_margins,
    attention_rows,
    choice_gradient,
    exchangeable_loss_gradient,
    loss_gradients,
    row_losses,
)

Vector = np.ndarray
Tolerance = Annotated[float, Interval("[1e-12, 1e-2]")]
Size = Annotated[int, Interval("[1, 1000000]")]
LARGEST_SCALE = 1e12  # above it, attention that differs from uniform by 1/c is lost to rounding


@dataclass(frozen=True)
class Theorem:
    """Runs at the theorem's scale until all is right; some go on to its bound, less accurately (`rtol_after`)."""

    groups: tuple[str, ...]
    to_bound: tuple[str, ...]
    rtol: Tolerance
    rtol_after: Tolerance


@dataclass(frozen=True)
class TimeLaw:
    """Runs at several scales until all is right, beside the limit of large scales."""

    groups: tuple[str, ...]
    scales: tuple[Positive, ...]
    rtol: Tolerance
    longest: Positive
    n_compared: Count


@dataclass(frozen=True)
class Repeats:
    """Runs on sequences with repeats, to which the theorem does not apply: until all is right, or `longest` time."""

    groups: tuple[str, ...]
    scale: Positive
    rtol: Tolerance
    longest: Positive


@dataclass(frozen=True)
class Spectral:
    """Runs whose snapshots are kept, at times evenly spaced in the logarithm."""

    groups: tuple[str, ...]
    scale: Positive
    first_time: Positive
    last_time: Positive
    n_snapshots: Annotated[int, Interval("[2, 1000]")]
    rtol: Tolerance


@dataclass(frozen=True)
class Sizes:
    n_tokens: Size
    seq_len: Size


@dataclass(frozen=True)
class Many:
    """Uniform subsets of many tokens, in the closed form."""

    sizes: tuple[Sizes, ...]
    list_lengths: tuple[Annotated[int, Interval("[1, 12]")], ...]
    rtol: Tolerance


@dataclass(frozen=True)
class Flow:
    device: Literal["cpu"]
    theorem: Theorem
    law: TimeLaw
    repeats: Repeats
    spectral: Spectral
    many: Many


def main(section: str, tasks: Path, tables: Path, runs: Path) -> None:
    use_threads(1)
    params = read_params(section, Flow)
    use_device(params.device)
    listed = [Task.from_row(row) for row in read_table(tasks).to_dict("records")]

    def of(groups: tuple[str, ...]) -> list[Task]:
        missing = set(groups) - {task.group for task in listed}
        if missing:
            raise InputError(f"{section}: wanted groups of {sorted({t.group for t in listed})}, got {sorted(missing)}")
        return [task for task in listed if task.group in groups]

    of_many = [
        (sizes.n_tokens, sizes.seq_len, length)
        for sizes in params.many.sizes
        for length in params.many.list_lengths
        if sizes.seq_len + length <= sizes.n_tokens
    ]
    jobs = {
        "theorem": [(theorem, task, params.theorem) for task in of(params.theorem.groups)],
        "law": [(law, task, params.law) for task in of(params.law.groups)],
        "repeats": [(repeats, task, params.repeats) for task in of(params.repeats.groups)],
        "spectral": [(spectral, task, params.spectral) for task in of(params.spectral.groups)],
        "many": [(many, sizes, params.many) for sizes in of_many],
    }
    clear(tables, "*.parquet")
    clear_runs(runs)
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="run")
    theorems, paths = zip(*found["theorem"], strict=True)
    for name, parts in {**found, "theorem": theorems, "paths": paths}.items():
        if name != "spectral":
            write_table(pd.concat(parts, ignore_index=True), tables / f"{name}.parquet")
    for (_, task, _), snapshots in zip(jobs["spectral"], found["spectral"], strict=True):
        publish(runs, task, params.spectral, snapshots)


class ScaledFlow:
    """The flow of u = cW in tau = c² t, for a task and a scale c; `math.inf` is the limit."""

    def __init__(self, task: Task, scale: float):
        self.task, self.scale, self.L = task, scale, task.n_tokens
        self.rows = Rows.of(task.counts, task.chances, *determining_tokens(task.counts, task.lists))
        self.permutation = torch.tensor(task.permutation)
        self.V = label_matrix(task.permutation) * (1.0 if math.isinf(scale) else scale)

    def matrix(self, x: Vector) -> Tensor:
        return torch.from_numpy(x).view(self.L, self.L)

    def velocity(self, x: Vector) -> Vector:
        if math.isinf(self.scale):
            return -choice_gradient(self.matrix(x), self.rows).flatten().numpy()
        W = self.matrix(x) / self.scale
        return -(loss_gradients(W, self.V, self.rows, self.permutation)[1] / self.scale).flatten().numpy()

    def measured(self, x: Vector) -> dict[str, float]:
        """The loss, the accuracy over the law, and the least margin."""
        losses, margins = row_losses(self.matrix(x) / self.scale, self.V, self.rows, self.permutation), self.margins(x)
        accuracy = self.rows.weight[margins > 0].sum()
        return {"loss": float(self.rows.weight @ losses), "accuracy": float(accuracy), "margin": float(margins.min())}

    def margins(self, x: Vector) -> Tensor:
        """The margin of each row, in u; without repeats the logarithms of the counts are zero, and u alone decides."""
        if not self.task.repeats:
            return attention_margins(self.matrix(x), self.rows)
        return attention_margins(self.matrix(x) / self.scale, self.rows) * self.scale

    def margin(self, x: Vector) -> float:
        return float(self.margins(x).min())

    def largest_attention(self, x: Vector) -> float:
        """max n α over all rows."""
        alpha = attention_rows(self.matrix(x) / self.scale, self.rows)
        return float(alpha.max()) * self.task.seq_len

    def steps(self, end: float, rtol: float, start: Vector | None = None) -> Iterator[Step]:
        begin = np.zeros(self.L * self.L) if start is None else start
        return stiff_flow(self.velocity, None, begin, end, rtol=rtol, atol=rtol)

    def at_once(self) -> bool:
        """Whether all is right at every small time after 0: the first velocity orders every column strictly."""
        return self.margin(self.velocity(np.zeros(self.L * self.L))) > 0 and not self.task.repeats


def theorem(task: Task, params: Theorem) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A run at the theorem's scale: when all is right, and whether it still is at the bound."""
    place = determining_tokens(task.counts, task.lists)[1]
    P_min = rarest_conflict(task.counts, task.chances, place, task.lists)
    bound = flow_bound(P_min, task.n_tokens, task.seq_len, task.longest)
    flow = ScaledFlow(task, bound.scale)
    c2, end = bound.scale**2, bound.time * bound.scale**2
    first, rise, attention, lost = math.nan, -math.inf, 1.0, 0
    path, state, time, right = [], np.zeros(task.n_tokens**2), 0.0, False
    path.append({"time": 0.0, **flow.measured(state)})
    for accurate in (True, False):
        if not accurate and task.group not in params.to_bound:
            break
        rtol = params.rtol if accurate else params.rtol_after
        offset = time
        for step in flow.steps(end - offset, rtol, state):
            state, time = step.state, offset + step.time
            path.append({"time": time / c2, **flow.measured(state)})
            rise = max(rise, path[-1]["loss"] - path[-2]["loss"])
            lost += right and path[-1]["margin"] <= 0
            right = path[-1]["margin"] > 0
            if accurate:
                attention = max(attention, flow.largest_attention(state))
                if right:
                    first = first_crossing(step, flow.margin) / c2
                    break
    row = {
        "task": task.name,
        "group": task.group,
        "n_tokens": task.n_tokens,
        "seq_len": task.seq_len,
        "length": task.longest,
        "law": task.law,
        "P_min": P_min,
        "scale": bound.scale,
        "bound": bound.time,
        "at_once": flow.at_once(),
        "first_time": first,
        "perfect_at_bound": float(right) if task.group in params.to_bound else math.nan,
        "lost": lost,
        "largest_rise": rise,
        "largest_attention": attention,
        "n_steps": len(path),
    }
    return pd.DataFrame([row]), pd.DataFrame(path).assign(task=task.name)


def law(task: Task, params: TimeLaw) -> pd.DataFrame:
    """The rescaled time T c² at every scale, and how far each trajectory is from the limit's."""
    limit = until_right(ScaledFlow(task, math.inf), params.longest, params.rtol)
    if limit is None:
        raise InputError(f"{task.name}: wanted all right by the rescaled time {params.longest:g}, got errors")
    end, steps = limit
    times = np.geomspace(end / 1000, end, params.n_compared)
    wanted = along(steps, times)
    rows = [{"task": task.name, "scale": math.inf, "rescaled_time": end}]
    for scale in params.scales:
        flow = ScaledFlow(task, scale)
        row = {"task": task.name, "scale": scale}
        found = until_right(flow, params.longest, params.rtol)
        got = along(list(flow.steps(end, params.rtol)), times)
        error = np.linalg.norm(got - wanted, axis=1) / np.linalg.norm(wanted, axis=1)
        row["path_error"] = float(error.max())
        if found is not None:
            row["rescaled_time"], steps = found
            state = steps[-1].path(found[0])
            alpha = attention_rows(flow.matrix(state) / scale, flow.rows)
            to_star = alpha.gather(1, flow.rows.star[:, None])[:, 0]
            row["largest_attention"] = flow.largest_attention(state)
            row["attention_to_star"] = float(flow.rows.weight @ to_star)
        rows.append(row)
    return pd.DataFrame(rows)


def until_right(flow: ScaledFlow, longest: float, rtol: float) -> tuple[float, list[Step]] | None:
    """The first rescaled time at which every row is right, with the steps up to it; None if `longest` passes."""
    steps = []
    for step in flow.steps(longest, rtol):
        steps.append(step)
        if flow.margin(step.state) > 0:
            return first_crossing(step, flow.margin), steps
    return None


def along(steps: list[Step], times: Vector) -> Vector:
    """The states at rising times within the steps."""
    ends = np.array([step.time for step in steps])
    return np.stack([steps[int(np.searchsorted(ends, t))].path(t) for t in times])


def repeats(task: Task, params: Repeats) -> pd.DataFrame:
    """A run on sequences with repeats at a given scale."""
    flow = ScaledFlow(task, params.scale)
    found = until_right(flow, params.longest * params.scale**2, params.rtol)
    row = {"task": task.name, "law": task.law, "n_tokens": task.n_tokens, "seq_len": task.seq_len}
    row["first_time"] = math.nan
    if found is not None:
        W = flow.matrix(found[1][-1].path(found[0])) / params.scale
        row |= {"first_time": found[0] / params.scale**2, "largest_W": float(W.abs().max())}
    return pd.DataFrame([row])


def spectral(task: Task, params: Spectral) -> list[tuple[Tensor, dict[str, float]]]:
    """W at times evenly spaced in the logarithm, 0 first, with loss, accuracy and margin there."""
    flow = ScaledFlow(task, params.scale)
    times = np.geomspace(params.first_time, params.last_time, params.n_snapshots)
    c2 = params.scale**2
    states = along(list(flow.steps(times[-1] * c2 * (1 + 1e-9), params.rtol)), times * c2)
    kept = []
    for time, x in zip([0.0, *times], [np.zeros_like(states[0]), *states], strict=True):
        row = flow.measured(x)
        row["margin"] /= flow.scale
        kept.append((flow.matrix(x) / params.scale, {"time": time, **row}))
    return kept


def publish(runs: Path, task: Task, params: Spectral, kept: list[tuple[Tensor, dict[str, float]]]) -> None:
    """Write the run of one task."""
    layout = Layout(
        family="decision_lists",
        matrices={"W": ["seed", "row", "col"]},
        gauge={"W": "column shift"},
        cell={"task": task.name, "group": task.group, "law": task.law, "scale": params.scale},
        seeds=[0],
    )
    with write_run(runs, task.name, layout) as run:
        for W, row in kept:
            run.add({"W": W[None]}, [row])


def many(sizes: tuple[int, int, int], params: Many) -> pd.DataFrame:
    """A run at the theorem's scale on uniform subsets, in the m + 1 values that a column holds."""
    L, n, m = sizes
    # The rarest conflict, in closed form: every F_{a,i,k} is that some 2 or 3 tokens occur and i - 1 others do not.
    chances = []
    for i in range(1, m + 1):
        held = 2 if i == m else 3
        for together in {held, 2}:
            if together <= n <= L - (i - 1):
                chances.append(math.comb(L - (i - 1) - together, n - together) / math.comb(L, n))
    bound = flow_bound(min(chances), L, n, m)
    c = bound.scale
    if c > LARGEST_SCALE:
        raise InputError(f"many: wanted a scale of at most {LARGEST_SCALE:g}, got {c:.3g} at L = {L}, n = {n}, m = {m}")

    def velocity(u: Vector) -> Vector:
        return -exchangeable_loss_gradient(torch.from_numpy(u) / c, L, n, c)[1].numpy() / (c * L)

    def margin(u: Vector) -> float:
        return float(min(u[i] - max([u[0], *u[i + 1 :]]) for i in range(1, m + 1)))

    end, first = bound.time * c**2, math.nan
    for step in stiff_flow(velocity, None, np.zeros(m + 1), end, rtol=params.rtol, atol=params.rtol):
        if margin(step.state) > 0:
            first = first_crossing(step, margin) / c**2
            break
    at_once = margin(velocity(np.zeros(m + 1))) > 0
    row = {"n_tokens": L, "seq_len": n, "length": m, "scale": c, "bound": bound.time, "first_time": first}
    return pd.DataFrame([{**row, "at_once": at_once}])


if __name__ == "__main__":
    run(main)
