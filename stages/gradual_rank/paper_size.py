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
    check_scales,
    epochs,
    gradient_on,
    rise_measures,
    rises_of,
)
from lib.gradual_rank.descent import crossings, descend, while_finite, with_crossings
from lib.gradual_rank.diagonal_heads import DiagonalHead
from lib.gradual_rank.full_heads import (
    FullHead,
    first_rise,
    full_descent,
    gaussian_factors,
    named,
    targets,
)
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.paper_size import FOLDER
from lib.gradual_rank.tables.predictions import EVENTS, STAGES
from lib.gradual_rank.tasks import Samples, read_head
from lib.pages.measures import setup_rows, write_measures
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

    @property
    def setup(self) -> dict[str, Any]:
        """What statements of claims name."""
        scale = f"1e{self.log10_init_scale:g}"
        return {"scale": scale, "batch_size": self.batch_size, "n_steps": self.n_steps}

    def told(self, batches: int) -> dict[str, Any]:
        """What tells one training from others; `batches` is the seed of its batches."""
        scale = self.log10_init_scale
        return {"name": self.name, "batches": batches, "log10_init_scale": scale}

    def cell(self, step: int, batches: int) -> dict[str, Any]:
        """What tells a look of one training from others."""
        time = step * self.learning_rate
        rescaled = time / (-self.log10_init_scale * LOG10)
        return {**self.told(batches), "step": step, "time": time, "rescaled_time": rescaled}


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
    _, n_samples, _, d_model = read_as("a toy task", read_head, task).X.shape
    theory = STAGES.read(stages)
    flow = EVENTS.read(flows)
    if {case.weights for case in cases} != {*levels}:
        raise InputError(f"{descents}: wanted lines for full and for diagonal weights, got {cases}")
    diagonal = [case for case in cases if case.weights == "diagonal"]
    check_scales(descents, {case.name: case.log10_init_scale for case in diagonal}, flow)
    of = {"full": train, "diagonal": follow}
    jobs: list[Job] = [
        (of[case.weights], case, task, levels[case.weights], seed)
        for case in cases
        for seed in case.seeds
    ]
    found = spread_cells({"": jobs}, label="gradual_rank.paper_size", unit="descent")[""]
    spectra, directions, losses, events = (
        joined(found, name) for name in ("spectra", "directions", "losses", "events")
    )
    shown = spectra["batches"] == spectra.groupby("name")["batches"].transform("min")
    activated = beside_flow(events, theory, flow, read_params(significant, float))
    tables = {
        "spectra": spectra[shown],
        "directions": directions,
        "losses": losses,
        "batches": activated,
    }
    measured = [
        *setup_rows({"d_model": d_model, "n_samples": n_samples, "turns": TURNS}),
        *(row for case in cases for row in setup_rows(case.setup, case.name)),
        *rise_measures(directions),
        *batch_measures(activated),
    ]
    write_tables_of(FOLDER, tables, metrics / "tables", small=True)
    write_measures(measured, metrics, HEADLINES)


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
    looks: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []
    for step in islice(descent, 0, case.n_steps + 1, case.look_every):
        cell = case.cell(step.number, batches)
        W = {name: step.weights[a] @ step.weights[b].mT for name, (a, b) in PRODUCTS.items()}
        loss = whole.loss_and_gradients(*W.values())[0] / initial
        losses.append({**cell, "loss": loss.item()})
        for name, product in W.items():
            sigma = torch.linalg.svdvals(product)[0].numpy()
            looks.append({**cell, "matrix": name, "singular_values": sigma})
    spectra = pd.DataFrame(looks)
    log_scale = case.log10_init_scale * LOG10
    forecast = first_rise(G, unscaled, log_scale, threshold, case.learning_rate)
    of_first = {name: time.item() for name, time in forecast.items()}
    return {
        "spectra": spectra,
        "losses": pd.DataFrame(losses),
        "directions": rises_of(spectra, threshold).assign(**case.told(batches), **of_first),
    }


def follow(case: Descent, task: Path, threshold: float, batches: int) -> Tables:
    """Descent of u and v of the diagonal head: when products cross the threshold, and the loss."""
    toy = read_head(task)
    X = toy.X[0]
    Y = toy.Y[0]
    whole = DiagonalHead(X, Y)
    initial = whole.value(torch.zeros_like(toy.u[0]))
    drawn = epochs(len(X), case.batch_size, generator(batches, "batches"))
    u = case.scale * toy.u[0]
    v = case.scale * toy.v[0]
    states = descend(gradient_on(X, Y, drawn), u, v, case.learning_rate, "plain")
    states = islice(while_finite(states, case.name), case.n_steps + 1)
    events: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []
    for state, above, changed in with_crossings(states, threshold):
        cell = case.cell(state.step, batches)
        for _, crossing in crossings(state, above, changed):
            events.append({**cell, "seed": int(toy.seeds[0]), **crossing})
        if state.step % case.look_every == 0:
            losses.append({**cell, "loss": float(whole.value(state.p) / initial)})
    if not events:
        wanted = f"{case.name}: n_steps: wanted steps in which products rise"
        raise InputError(f"{wanted}, got none that do in {case.n_steps}")
    return {"events": pd.DataFrame(events), "losses": pd.DataFrame(losses)}


if __name__ == "__main__":
    run(main)
