"""What the models are worth when updates are cut to rank r, and where the updates' leading directions lie.

Cuts: all four updates together (figure 1 of Li et al. 2024), W_Q and W_K or one matrix alone, the singular pairs 3
and 4 in place of 1 and 2, and, as a control of the path, the weights themselves instead of their updates.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.analysis.low_rank import truncated_updates
from lib.analysis.subspaces import alignment, energy_inside, leading_directions
from lib.data.patterns import read_patterns
from lib.io.command import run
from lib.io.compute import available_cores, spread, use_device
from lib.io.files import InputError
from lib.io.params import Interval, read_params
from lib.io.runs import Run, open_run, open_runs
from lib.io.tables import write_table
from lib.models.one_layer_vit import MATRICES, Weights, score

Rank = Annotated[int, Interval("[0, 65536]")]
ALONE = {"W_Q and W_K": ("W_Q", "W_K"), "W_V": ("W_V",), "W_O": ("W_O",)}


@dataclass(frozen=True)
class Truncate:
    device: Literal["cpu", "cuda"]
    ranks: tuple[Rank, ...]
    ranks_alone: tuple[Rank, ...]


def main(section: str, dataset: Path, runs: Path, table: Path, directions: Path) -> None:
    params = read_params(section, Truncate)
    use_device(params.device)
    jobs = [(dataset, opened.folder, params, i) for opened in open_runs(runs) for i in range(len(opened.layout.seeds))]
    tables = spread(
        truncate_seed,
        jobs,
        n_processes=1 if params.device == "cuda" else available_cores(),
        label=section,
        unit="seed",
    )
    cuts, lines = zip(*tables, strict=True)
    write_table(pd.concat(cuts, ignore_index=True), table)
    write_table(pd.concat(lines, ignore_index=True), directions)


def truncate_seed(dataset: Path, folder: Path, params: Truncate, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every cut of one seed of one run, and the directions of its updates."""
    device = use_device(params.device)
    opened = open_run(folder)
    seed = opened.layout.seeds[number]
    try:
        mu, _, test = read_patterns(dataset).of(seed)
    except ValueError as error:
        raise InputError(str(error)) from error
    test = test.to(device)
    initial, final = ({name: W[number].to(device) for name, W in opened.weights(i).items()} for i in (0, -1))
    readout = final["readout"]
    rows = []
    for kind, rank, weights in cuts(initial, final, params):
        measured = score(weights, readout, test.tokens, test.labels, test.is_relevant)
        rows.append({"kind": kind, "rank": rank, **{name: value.item() for name, value in measured.items()}})
    cell = {**opened.layout.cell, "seed": seed}
    return pd.DataFrame(rows).assign(**cell), directions_of(opened, number, mu).assign(**cell)


def cuts(initial: Weights, final: Weights, params: Truncate) -> Iterator[tuple[str, int, Weights]]:
    """What was cut, to which rank, and the weights then."""
    ranks = sorted({*params.ranks, *params.ranks_alone, 2, 4})
    cut = {name: dict(truncated_updates(final[name], initial[name], ranks)) for name in MATRICES}
    whole = {name: dict(truncated_updates(final[name], 0 * final[name], params.ranks_alone)) for name in MATRICES}
    for rank in params.ranks:
        yield "all", rank, {name: cut[name][rank] for name in MATRICES}
    for rank in params.ranks_alone:
        yield "weights, not updates", rank, {name: whole[name][rank] for name in MATRICES}
    for kind, names in ALONE.items():
        for rank in params.ranks_alone:
            yield kind, rank, final | {name: cut[name][rank] for name in names}
    yield "pairs 3 and 4", 2, {name: initial[name] + cut[name][4] - cut[name][2] for name in MATRICES}


def directions_of(opened: Run, number: int, mu: Tensor) -> pd.DataFrame:
    r"""At each snapshot after the first, how the updates lie to the span of the discriminative patterns.

    The inputs of W_Q, W_K and W_V are tokens, which are compared with patterns; their outputs, and the inputs of W_O,
    with images of the patterns: under W_Q(0) for W_K, under W_K(0) for W_Q, under W_V(0) for W_V and W_O.
    `alignment` is of the two leading directions, `energy` of the whole update.
    """
    first = {name: W[number].double() for name, W in opened.weights(0).items()}
    when = opened.steps.groupby("snapshot")["step"].first()
    mu = mu.double()
    spans = {
        "discriminative": mu[:2],
        "with mean irrelevant": torch.cat([mu[:2], mu[2:].mean(0, keepdim=True)]),
    }
    images = {
        ("W_Q", "input"): torch.eye(mu.shape[1]).double(),
        ("W_Q", "output"): first["W_K"],
        ("W_K", "input"): torch.eye(mu.shape[1]).double(),
        ("W_K", "output"): first["W_Q"],
        ("W_V", "input"): torch.eye(mu.shape[1]).double(),
        ("W_V", "output"): first["W_V"],
        ("W_O", "input"): first["W_V"],
    }
    rows = []
    for snapshot in opened.snapshots[1:]:
        weights = opened.weights(snapshot)
        for (name, side), image in images.items():
            update = weights[name][number].double() - first[name]
            if side == "output" or name == "W_O":
                update = update.mT  # its rows are now the side that is looked at
            leading, _ = leading_directions(update, 2)
            for span, vectors in spans.items():
                rows.append(
                    {
                        "step": when[snapshot],
                        "matrix": name,
                        "side": side,
                        "span": span,
                        "alignment": alignment(leading, vectors @ image).item(),
                        "energy": energy_inside(update, vectors @ image).item(),
                    }
                )
    return pd.DataFrame(rows)


if __name__ == "__main__":
    run(main)
