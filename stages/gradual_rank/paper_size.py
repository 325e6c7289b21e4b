"""Descend at the paper's size: full matrices, and the diagonal head on batches beside its flow.

Batches are those of epochs, each of which has every sample once. Where all samples are one batch
this is gradient descent, else the stochastic one of the paper.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.files.inputs import read_as
from lib.files.params import (
    Count,
    Interval,
    Name,
    Positive,
    Seeds,
    Steps,
    read_cases,
    read_params,
)
from lib.files.tables import read_table
from lib.gradual_rank.activation_times import (
    activations,
    order_agreement,
    relative_errors,
)
from lib.gradual_rank.descent import descend, while_finite, with_crossings
from lib.gradual_rank.diagonal_heads import DiagonalHead
from lib.gradual_rank.full_heads import (
    FullHead,
    first_rise,
    full_descent,
    gaussian_factors,
    named,
    targets,
)
from lib.gradual_rank.growth import first_time
from lib.gradual_rank.measures import Table, write_metrics
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tasks import Samples, read_head
from lib.pages.measures import Row, rows_of, setup_rows
from lib.training.attention import PRODUCTS
from lib.training.devices import generator, use_threads
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import OutFolder, run

EVENTS = "seed log10_init_scale time coordinate sign rises"
STAGES = "seed stage time coordinate sign p"
TURNS = 10  # directions of W_VO whose rises are told apart
HEADLINES = {
    "full_rises_VO": ("rises_VO", "full"),
    "diagonal_batches_flow_error": ("flow_error", "diagonal_batches"),
}


@dataclass(frozen=True)
class Descent(Seeds):
    """One descent, on the batches of each of its seeds, and how often it is looked at."""

    weights: Literal["full", "diagonal"]
    name: Name
    batch_size: Samples
    log10_init_scale: Annotated[float, Interval("[-100, 0)")]
    learning_rate: Positive
    n_steps: Steps
    look_every: Count

    @property
    def scale(self) -> float:
        """The init scale."""
        return 10**self.log10_init_scale

    def cell(self, step: int, batches: int) -> dict[str, Any]:
        """What tells a look of one training from others."""
        time = step * self.learning_rate
        rescaled = time / (-self.log10_init_scale * LOG10)
        told = {"name": self.name, "batches": batches, "log10_init_scale": self.log10_init_scale}
        return {**told, "step": step, "time": time, "rescaled_time": rescaled}


class FullHeadOnBatches(FullHead):
    """Heads that are asked for their loss on the next batch of their samples every time."""

    def __init__(self, X: Tensor, Y: Tensor, batches: Iterator[Tensor]):
        super().__init__(X, Y)
        self._batches = batches

    def loss_and_gradients(self, W_KQ: Tensor, W_VO: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss and the gradients on the next batch."""
        chosen = next(self._batches)
        head = FullHead(self.X[..., chosen, :, :], self.Y[..., chosen, :, :])
        return head.loss_and_gradients(W_KQ, W_VO)


def main(
    risen: str,
    threshold: str,
    significant: str,
    descents: Path,
    task: Path,
    stages: Path,
    flows: Path,
    metrics: OutFolder,
) -> None:
    """Write `tables`, `measures.csv` and `headlines.json` in metrics."""
    use_threads(1)
    levels = {"full": read_params(risen, float), "diagonal": read_params(threshold, float)}
    cases = read_cases(descents, Descent)
    read_as("a toy task", read_head, task)
    theory = read_table(stages, STAGES.split())
    flow = read_table(flows, EVENTS.split())
    check(descents, cases, flow)
    of = {"full": train, "diagonal": follow}
    jobs: list[Job] = [
        (of[case.weights], case, task, levels[case.weights], seed)
        for case in cases
        for seed in case.seeds
    ]
    found = spread_cells({"": jobs}, label="gradual_rank.paper_size", unit="descent")[""]
    full, diagonal = (
        [tables for tables, (kind, *_) in zip(found, jobs, strict=True) if kind is one]
        for one in (train, follow)
    )
    spectra = joined(full, "spectra")
    shown = spectra["batches"] == spectra.groupby("name")["batches"].transform("min")
    tables = {"spectra": spectra[shown], "directions": joined(full, "directions")}
    tables["losses"] = joined(found, "losses")
    events = joined(diagonal, "events")
    tables["batches"] = beside_flow(events, theory, flow, read_params(significant, float))
    measured = [
        *setup(cases, task),
        *rise_measures(tables["directions"]),
        *batch_measures(tables["batches"]),
    ]
    write_metrics(tables, measured, metrics, HEADLINES)


def check(file: Path, cases: tuple[Descent, ...], flow: Table) -> None:
    """Raise `InputError` for a table without both kinds of weights, or a scale that no flow has."""
    if {case.weights for case in cases} != {"full", "diagonal"}:
        raise InputError(f"{file}: wanted lines for full and for diagonal weights, got {cases}")
    scales = sorted(flow["log10_init_scale"].unique().tolist())
    for case in cases:
        if case.weights == "diagonal" and case.log10_init_scale not in scales:
            got = f"{case.log10_init_scale:g} ({case.name})"
            raise InputError(
                f"{file}: log10_init_scale: wanted one of the flows' {scales}, got {got}"
            )


def epochs(n_samples: int, size: int, source: torch.Generator) -> Iterator[Tensor]:
    """The samples of one batch after another; every epoch has each once, in a new order."""
    while True:
        yield from torch.randperm(n_samples, generator=source).split(size)


def train(case: Descent, task: Path, threshold: float, batches: int) -> Tables:
    """Descent of full matrices: their singular values and the loss at every look, and when each
    direction first comes to the threshold.
    """
    toy = read_head(task)
    X = toy.X[:1]
    seeds = toy.seeds[:1].tolist()
    d = X.shape[-1]
    unscaled = gaussian_factors(d, seeds, "full start")
    whole = FullHead(X, targets(X, seeds, [d])[:, 0])
    initial, _, G = whole.loss_and_gradients(*torch.zeros_like(unscaled[0]))
    drawn = epochs(X.shape[1], case.batch_size, generator(batches, "batches"))
    start = {name: case.scale * W for name, W in named(unscaled).items()}
    head = FullHeadOnBatches(X, whole.Y, drawn)
    descent = full_descent(head, start, case.learning_rate, f"{case.name}: learning_rate")
    spectra: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []
    for step in islice(descent, 0, case.n_steps + 1, case.look_every):
        cell = case.cell(step.number, batches)
        W = {name: step.weights[a] @ step.weights[b].mT for name, (a, b) in PRODUCTS.items()}
        loss = whole.loss_and_gradients(*W.values())[0] / initial
        losses.append({**cell, "loss": loss.item()})
        for name, product in W.items():
            sigma = torch.linalg.svdvals(product)[0].numpy()
            spectra.append({**cell, "matrix": name, "singular_values": sigma})
    log_scale = case.log10_init_scale * LOG10
    forecast = first_rise(G, unscaled, log_scale, threshold, case.learning_rate)
    rows = pd.DataFrame(spectra)
    rises = [
        {**case.cell(0, batches), "matrix": name, "direction": k, "rise": rise}
        for name, own in rows.groupby("matrix")
        for k, rise in enumerate(rise_times(own, threshold))
    ]
    of_first = {name: time.item() for name, time in forecast.items()}
    return {
        "spectra": rows,
        "losses": pd.DataFrame(losses),
        "directions": pd.DataFrame(rises)
        .drop(columns=["step", "time", "rescaled_time"])
        .assign(**of_first),
    }


def rise_times(spectra: Table, threshold: float) -> list[float]:
    """When each singular value first comes to the threshold; infinite where never."""
    times = spectra["time"].to_numpy()
    courses = np.stack(list(spectra["singular_values"]))
    return [first_time(times, course, threshold) for course in courses.T]


def follow(case: Descent, task: Path, threshold: float, batches: int) -> Tables:
    """Descent of u and v of the diagonal head: when products cross the threshold, and the loss."""
    toy = read_head(task)
    X = toy.X[0]
    Y = toy.Y[0]
    whole = DiagonalHead(X, Y)
    initial = whole.value(torch.zeros_like(toy.u[0]))
    drawn = epochs(len(X), case.batch_size, generator(batches, "batches"))

    def gradient(p: Tensor) -> Tensor:
        chosen = next(drawn)
        return DiagonalHead(X[chosen], Y[chosen]).gradient(p)

    u = case.scale * toy.u[0]
    v = case.scale * toy.v[0]
    states = while_finite(descend(gradient, u, v, case.learning_rate, "plain"), case.name)
    events: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []
    for state, above, changed in with_crossings(islice(states, case.n_steps + 1), threshold):
        cell = case.cell(state.step, batches)
        for i in changed.nonzero()[:, 0].tolist():
            crossing = {"coordinate": i, "sign": int(state.p[i].sign()), "rises": bool(above[i])}
            events.append({**cell, "seed": int(toy.seeds[0]), **crossing})
        if state.step % case.look_every == 0:
            losses.append({**cell, "loss": float(whole.value(state.p) / initial)})
    if not events:
        wanted = f"{case.name}: n_steps: wanted steps in which products rise"
        raise InputError(f"{wanted}, got none that do in {case.n_steps}")
    return {"events": pd.DataFrame(events), "losses": pd.DataFrame(losses)}


def beside_flow(events: Table, stages: Table, flow: Table, significant: float) -> Table:
    """Every activation on batches (`measured`), in the `flow` and by Algorithm 1 (`predicted`)."""
    own = stages[stages["seed"].isin(events["seed"])]
    tables = []
    for _, crossed in events.groupby(["name", "batches"]):
        table = activations(own, crossed, flow, significant).rename(columns={"finite": "flow"})
        same = {column: crossed[column].iloc[0] for column in ("name", "batches")}
        tables.append(table.assign(**same))
    return pd.concat(tables, ignore_index=True)


def batch_measures(activated: Table) -> list[Row]:
    """For every descent on batches, by the seed of the batches: median errors of its activation
    times against the flow and against Algorithm 1, and its order against the flow's.
    """

    def errors(own: Table) -> pd.Series:
        measured, flow, limit = (own[c].to_numpy() for c in ("measured", "flow", "predicted"))
        return pd.Series(
            {
                "flow_error": np.median(relative_errors(measured, flow, flow)),
                "limit_error": np.median(relative_errors(measured, limit, limit)),
                "order": order_agreement(measured, flow),
            }
        )

    return by_name(activated, errors)


@np.errstate(all="ignore")  # where nothing rises there are no numbers
def rise_measures(rises: Table) -> list[Row]:
    """For every descent of full matrices, by seed of the batches: how many directions rise, how
    far apart the first of W_VO do, the first beside theory, and all beside the first descent.
    """
    reference = rises[rises["name"] == rises["name"].iloc[0]]
    reference = reference.groupby(["matrix", "direction"])["rise"].first()

    def of_one(own: Table) -> pd.Series:
        times = own.set_index(["matrix", "direction"])["rise"]
        values = times["W_VO"].to_numpy()
        risen = np.sort(values[np.isfinite(values)])[:TURNS]
        least = np.diff(risen).min(initial=np.inf)
        first = own.iloc[:1]
        beside = (times / reference - 1).abs()
        return pd.Series(
            {
                "rises_KQ": np.isfinite(times["W_KQ"]).sum(),
                "rises_VO": np.isfinite(values).sum(),
                "least_gap": least / values[0],
                "first_rise_stepped": float(abs(first["stepped"].iloc[0] / values[0] - 1)),
                "first_rise_limit": float(abs(first["limit"].iloc[0] / values[0] - 1)),
                "descent_error": beside[np.isfinite(reference)].fillna(1.0).median(),
            }
        )

    return by_name(rises, of_one)


def by_name(table: Table, of: Callable[[Table], pd.Series]) -> list[Row]:
    """What `of` makes of every descent, whose name is the case, by the seed of the batches."""
    found: list[Row] = []
    for name, rows in table.groupby("name", sort=False):
        by_seed = pd.DataFrame({seed: of(own) for seed, own in rows.groupby("batches")}).T
        found += rows_of({str(measure): by_seed[measure] for measure in by_seed}, str(name))
    return found


def setup(cases: tuple[Descent, ...], task: Path) -> list[Row]:
    """What statements of claims name."""
    _, n_samples, _, d_model = read_head(task).X.shape
    said = setup_rows({"d_model": d_model, "n_samples": n_samples, "turns": TURNS})
    for case in cases:
        scale = f"1e{case.log10_init_scale:g}"
        own = {"scale": scale, "batch_size": case.batch_size, "n_steps": case.n_steps}
        said += setup_rows(own, case.name)
    return said


if __name__ == "__main__":
    run(main)
