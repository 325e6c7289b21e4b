"""Descent on batches of epochs, each of which has every sample once, and what claims say of it."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.gradual_rank.activation_times import activations, order_agreement, relative_errors
from lib.gradual_rank.diagonal_heads import DiagonalHead
from lib.gradual_rank.full_heads import FullHead
from lib.gradual_rank.growth import first_time
from lib.gradual_rank.measures import Table
from lib.pages.measures import Row, rows_of

TURNS = 10  # directions of W_VO whose rises are told apart


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


def epochs(n_samples: int, size: int, source: torch.Generator) -> Iterator[Tensor]:
    """The samples of one batch after another; every epoch has each once, in a new order."""
    while True:
        yield from torch.randperm(n_samples, generator=source).split(size)


def gradient_on(X: Tensor, Y: Tensor, batches: Iterator[Tensor]) -> Callable[[Tensor], Tensor]:
    """The negative gradient of a diagonal head, on the next batch of its samples every time."""

    def gradient(p: Tensor) -> Tensor:
        chosen = next(batches)
        return DiagonalHead(X[chosen], Y[chosen]).gradient(p)

    return gradient


def rises_of(spectra: Table, threshold: float) -> Table:
    """When each direction of each product first comes to the threshold; infinite where never."""
    rises = []
    for name, own in spectra.groupby("matrix"):
        times = own["time"].to_numpy()
        courses = np.stack(list(own["singular_values"]))
        for k, course in enumerate(courses.T):
            rise = first_time(times, course, threshold)
            rises.append({"matrix": name, "direction": k, "rise": rise})
    return pd.DataFrame(rises)


def check_scales(file: Path, log10_init_scales: Mapping[str, float], flow: Table) -> None:
    """Raise `InputError`, naming the file, for the scale of a descent that no flow starts from."""
    known = sorted(flow["log10_init_scale"].unique().tolist())
    for name, scale in log10_init_scales.items():
        if scale not in known:
            got = f"{scale:g} ({name})"
            raise InputError(
                f"{file}: log10_init_scale: wanted one of the flows' {known}, got {got}"
            )


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
