"""Test accuracy when each update is cut to rank r, all matrices together and each kind alone.

The update of a matrix is W(T) - W(0), over all heads at once (d_model × heads · d_head), as a LoRA adapter would see
it. What is not a matrix of a block (embedding, norms, biases, head) stays as trained. r = 0 puts the initial matrices
back.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from torch import Tensor

from lib.analysis.low_rank import truncated_updates
from lib.data.images import channel_statistics, read_images, standardise
from lib.io.command import run
from lib.io.compute import advance, available_cores, spread, use_device
from lib.io.params import Count, Interval, read_params
from lib.io.runs import open_chosen, open_run
from lib.io.tables import write_table
from lib.models.attention import merge_heads, split_heads
from lib.models.vit import ATTENTION, MATRICES, score


@dataclass(frozen=True)
class Truncate:
    device: Literal["cpu", "cuda"]
    runs: tuple[str, ...]
    n_images: Count
    ranks: tuple[Annotated[int, Interval("[0, 65536]")], ...]


def main(section: str, dataset: Path, runs: Path, table: Path) -> None:
    params = read_params(section, Truncate)
    use_device(params.device)
    chosen = open_chosen(runs, params.runs, f"{section}.runs")
    jobs = [(dataset, opened.folder, params, i) for opened in chosen for i in range(len(opened.layout.seeds))]
    tables = spread(
        truncate_seed,
        jobs,
        n_processes=1 if params.device == "cuda" else available_cores(),
        total=len(jobs) * (1 + len(MATRICES)) * len(params.ranks),
        label=section,
        unit="model",
    )
    write_table(pd.concat(tables, ignore_index=True), table)


def truncate_seed(dataset: Path, folder: Path, params: Truncate, seed: int) -> pd.DataFrame:
    """Every truncation of one seed of one run."""
    device = use_device(params.device)
    images = read_images(dataset)
    statistics = channel_statistics(images.train_images)
    test = standardise(images.test_images[: params.n_images], *statistics).to(device)
    labels = images.test_labels[: params.n_images].to(device)
    opened = open_run(folder)
    initial, final = ({name: tensor[seed].to(device) for name, tensor in opened.weights(i).items()} for i in (0, -1))
    cut: dict[str, dict[int, Tensor]] = {name: {} for name in MATRICES}
    for name in MATRICES:
        W, W_0 = whole(final[name], name), whole(initial[name], name)
        for rank, truncated in truncated_updates(W, W_0, params.ranks):
            heads = final[name].shape[1] if name in ATTENTION else 0
            cut[name][rank] = split_heads(truncated, heads) if heads else truncated
    rows = []
    for kind in ("all", *MATRICES):
        for rank in params.ranks:
            names = list(MATRICES) if kind == "all" else [kind]
            model = final | {name: cut[name][rank] for name in names}
            loss, accuracy = score(model, test, labels)
            rows.append({"kind": kind, "rank": rank, "test_loss": loss, "test_accuracy": accuracy})
            advance()
    cell = {**opened.layout.cell, "seed": opened.layout.seeds[seed]}
    return pd.DataFrame(rows).assign(**cell)


def whole(W: Tensor, name: str) -> Tensor:
    """The matrix over all heads."""
    return merge_heads(W) if name in ATTENTION else W


if __name__ == "__main__":
    run(main)
