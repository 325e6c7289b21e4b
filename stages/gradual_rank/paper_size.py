"""Descend at the paper's size: full matrices, and the diagonal head on batches beside its flow.

Batches are those of epochs, each of which has every sample once. Where all samples are one batch
this is gradient descent, else the stochastic one of the paper.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

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
from lib.gradual_rank.batches import (
    TURNS,
    FullHeadOnBatches,
    batch_measures,
    beside_flow,
    epochs,
    rise_measures,
    rise_times,
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
from lib.gradual_rank.measures import Table
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.paper_size import FOLDER
from lib.gradual_rank.tables.predictions import EVENTS, STAGES
from lib.gradual_rank.tasks import Samples, read_head
from lib.pages.measures import Row, setup_rows, write_measures
from lib.training.attention import PRODUCTS
from lib.training.devices import generator, use_threads
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_tables_of

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
    theory = STAGES.read(stages)
    flow = EVENTS.read(flows)
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
    write_tables_of(FOLDER, tables, metrics / "tables", small=True)
    write_measures(measured, metrics, HEADLINES)


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
