"""The layers of a snapshot, by headers alone: the names of their tensors, and their files."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.checkpoints.folders import Checkpoint, aligned, check_pair, layer_of, n_matrices
from lib.checkpoints.heads import attention_tensors
from lib.checkpoints.snapshots import Snapshot


@dataclass(frozen=True)
class Layer:
    """One layer of one snapshot, by the names of its tensors."""

    run: str
    step: int
    number: int
    matrices: list[str]
    heads: dict[str, str]  # by what they are in the architecture's layout
    initial: bool  # whether the products at the base are measured too
    config: Mapping[str, Any]
    n_base: int  # of the files that hold the tensors: so many are the base's, then come the others
    stored: Mapping[str, str]  # the base's own names, where they are others
    by_columns: list[str]  # what an adapter changes and the base stores as in × out
    kept: int  # the most triplets that are kept of a matrix


def layers(
    base: Checkpoint, one: Snapshot, *, initial: bool, kept: int, heads: bool
) -> Iterator[tuple[Layer, list[Path]]]:
    """Every layer of a snapshot, and the files that hold its tensors, by headers alone."""
    base = aligned(base, one.checkpoint)
    names = check_pair(base, one.checkpoint)
    matrices = [name for name in names if n_matrices(name, base.tensors[name].shape)]
    attention = attention_tensors(base.config, names) if heads else {}
    by_layer: dict[int, list[str]] = {}
    for name in matrices:
        by_layer.setdefault(layer_of(name), []).append(name)
    transposed = getattr(one.checkpoint, "by_columns", frozenset())
    for number, inside in sorted(by_layer.items()):
        parts = attention.get(number, {})
        before, after = (
            sorted({of.tensors[name].file for name in (*inside, *parts.values())})
            for of in (base, one.checkpoint)
        )
        layer = Layer(
            one.run,
            one.step,
            number,
            inside,
            parts,
            initial,
            base.config,
            n_base=len(before),
            stored={name: base.stored.get(name, name) for name in (*inside, *parts.values())},
            by_columns=sorted(transposed & {*inside, *parts.values()}),
            kept=kept,
        )
        yield layer, [*before, *after]
