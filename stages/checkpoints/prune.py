"""The measured loss when a share of the weights is removed, or of the entries of their updates is taken back.

All linear modules are ranked together. Nothing is measured without TEXT (`-`): the table is then empty.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.analysis.pruning import Order, magnitude_masks
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_device
from lib.io.files import InputError
from lib.io.kept import kept
from lib.io.params import Count, Fraction, Interval, read_params
from lib.io.pretrained import check_memory, check_pair, memory_of, open_checkpoint, open_snapshots
from lib.io.tables import write_table
from lib.models.transformers_models import LinearUpdates, ModelError, matched_by_content, open_model, read_batches

COPIES = 5  # of the weights: the model, both kept, updates, masks
SEED = 0  # of what goes at random
COLUMNS = ["what", "rate", "loss", "run"]
KINDS: dict[str, Order] = {
    "weights, smallest first": "smallest",
    "updates, smallest first": "smallest",
    "updates, at random": "random",
}


@dataclass(frozen=True)
class Prune:
    pruning_rates: tuple[Fraction, ...]
    device: str


@dataclass(frozen=True)
class Measure:
    n_batches: Count  # which plans are made by: not measured on
    n_measured_batches: Count
    batch_size: Count
    seq_len: Annotated[int, Interval("[2, 1e6]")]


def main(section: str, measure: str, base: Path, tuned: Path, text: str, pruning: Path) -> None:
    params, sizes = read_params(section, Prune, part=True), read_params(measure, Measure, part=True)
    use_device(params.device)
    begun = open_checkpoint(base)
    last = {one.run: one.checkpoint for one in open_snapshots(tuned)}
    for checkpoint in last.values():
        check_pair(begun, checkpoint)
    rows = []
    if text != "-":
        n_fit = check_memory(begun, COPIES, "prune")
        where = {"device": params.device, "n_processes": min(available_cores(), n_fit) if params.device == "cpu" else 1}
        where["n_bytes"] = memory_of(begun, COPIES)
        jobs = [(params, sizes, base, checkpoint.folder, text, name) for name, checkpoint in last.items()]
        parts = spread(pruned, jobs, **where, label=f"pruning of {tuned}", unit="checkpoint")
        rows = [row for part in parts for row in part]
    types = {"what": str, "rate": float, "loss": float, "run": str}
    write_table(pd.DataFrame(rows, columns=COLUMNS).astype(types), pruning)


def pruned(
    params: Prune, sizes: Measure, base: Path, tuned: Path, text: str, name: str
) -> list[tuple[str, float, float, str]]:
    """The losses of one tuned checkpoint."""
    begun, ended = open_checkpoint(base), open_checkpoint(tuned)
    try:
        model = open_model(tuned, ended.config)
        places = matched_by_content(model, ((tensor, ended.load(tensor)) for tensor in ended.tensors))
        wanted = Path(text), sizes.seq_len, sizes.batch_size, sizes.n_batches + sizes.n_measured_batches
        batches = read_batches(base, begun.config, *wanted, device=params.device)[sizes.n_batches :]
    except (ModelError, OSError) as error:
        raise InputError(str(error)) from error
    model = model.float().to(params.device)
    linear = LinearUpdates(model, {module: begun.load(place) for module, place in places.items()})
    files = sorted({entry.file for one in (begun, ended) for entry in one.tensors.values()})
    files += [*sorted(base.glob("*.json")), *sorted(tuned.glob("*.json")), Path(text)]
    with kept("checkpoints_prune", files, {"params": asdict(params), "sizes": asdict(sizes)}) as keep:
        measured = partial(linear.mean_loss, batches)
        return [(what, rate, keep(f"{what} {rate}", measured), name) for what, rate in states(params, linear)]


def states(params: Prune, linear: LinearUpdates) -> Iterator[tuple[str, float]]:
    """Set the model to each pruned state; say what is gone, and which share of it."""
    for what, order in KINDS.items():
        of_weights = what.startswith("weights")
        entries = linear.tuned if of_weights else linear.updates
        for rate, masks in magnitude_masks(entries, params.pruning_rates, order, generator(SEED, what)):
            kept = {module: entries[module] * mask for module, mask in masks.items()}
            linear.set(kept if of_weights else {module: linear.base[module] + part for module, part in kept.items()})
            yield what, rate


if __name__ == "__main__":
    run(main)
