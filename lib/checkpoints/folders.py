"""Checkpoints as transformers writes them: config.json, and safetensors in one file or in shards
with an index.

Headers are read at once, tensors one at a time, so that the memory does not depend on the size of
the folder. What is no such checkpoint is refused in one line: pickles, quantised weights, an
adapter in place of a model, a part of a file.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from lib.files.files import InputError, file_name
from lib.files.inputs import Entry, read_header, read_json
from lib.files.memory import available_memory

FLOATS = ("F64", "F32", "F16", "BF16")
QUANTISED = ("I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2")
INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
MOST_LAYERS = 1000  # of a model, where its weights have fewer tensors
CONVERT = "AutoModel....from_pretrained(FOLDER).save_pretrained(OUT)"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was opened; tensors are read one at a time."""

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Entry]

    @property
    def model_type(self) -> str:
        """The architecture's name, as transformers knows it."""
        return str(self.config.get("model_type", ""))

    @property
    def files(self) -> list[Path]:
        """Its weights, and what stands beside them as JSON."""
        return [
            *sorted({entry.file for entry in self.tensors.values()}),
            *sorted(self.folder.glob("*.json")),
        ]

    def load(self, name: str) -> Any:
        """The tensor of that name; raises `InputError`, and names it, where it holds NaN or
        infinity.
        """
        return load_tensor(self.tensors[name].file, name)


@dataclass(frozen=True)
class Snapshot:
    """A checkpoint of a training: the run that it is of, and its step (0 where its name has
    none).
    """

    run: str
    step: int
    checkpoint: Checkpoint


def load_tensor(file: Path, name: str) -> Any:
    """A tensor of a safetensors file; raises `InputError`, and names it, where it holds NaN or
    infinity.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            tensor = opened.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file}: wanted the tensor {name}, got: {error}") from error
    if not torch.isfinite(tensor).all():
        raise InputError(f"{file}: wanted finite weights, got NaN or infinity in {name}")
    return tensor


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint; raises `InputError` where it is missing, broken, quantised, an adapter, or
    made of pickles.
    """
    if not (folder / "config.json").is_file():
        got = (
            "an adapter; merge it into its model first"
            if (folder / "adapter_config.json").is_file()
            else "none"
        )
        raise InputError(f"{folder}: wanted a checkpoint with a config.json, got {got}")
    config = _json(folder / "config.json")
    if "quantization_config" in config:
        method = (config["quantization_config"] or {}).get("quant_method", "unnamed")
        raise InputError(
            f"{folder}: wanted weights in f32, bf16 or f16, got quantised ones ({method}): "
            f"dequantise, {CONVERT}"
        )
    tensors = _indexed(folder) if (folder / INDEX).is_file() else _whole(folder)
    for name, entry in tensors.items():
        if entry.dtype in QUANTISED:
            raise InputError(
                f"{entry.file}: wanted weights in f32, bf16 or f16, got {name} in {entry.dtype}"
            )
    _check_layers(folder, config, len(tensors))
    return Checkpoint(folder, config, tensors)


def open_snapshots(folder: Path) -> list[Snapshot]:
    """The checkpoint that a folder is, or all that stand in it, by run and step.

    A folder such as `large-0/checkpoint-300` is step 300 of the run `large-0`. Raises `InputError`
    where there is none.
    """
    if (folder / "config.json").is_file():
        return [
            Snapshot(folder.resolve().name, _step(folder.resolve().name), open_checkpoint(folder))
        ]
    found = sorted(path.parent for path in folder.glob("**/config.json"))
    if not found:
        raise InputError(f"{folder}: wanted a checkpoint, or a folder of them, got no config.json")
    snapshots = []
    for path in found:
        inside = path.relative_to(folder)
        numbered = re.search(r"\d+$", inside.name) and inside.name.startswith(
            ("step", "checkpoint", "snapshot")
        )
        run = inside.parent if numbered else inside
        name = folder.resolve().name if run == Path() else run.as_posix()
        snapshots.append(
            Snapshot(name, _step(inside.name) if numbered else 0, open_checkpoint(path))
        )
    return sorted(snapshots, key=lambda one: (one.run, one.step))


def check_pair(base: Checkpoint, tuned: Checkpoint) -> dict[str, int]:
    """The rows that base and tuned have in common, of each tensor of real numbers in both.

    Rows that only one of them has are those of words that were added to the vocabulary. Raises
    `InputError` where both are one checkpoint, of two architectures, or have other shapes.
    """
    if base.folder.resolve() == tuned.folder.resolve():
        raise InputError(
            f"{tuned.folder}: wanted a checkpoint tuned from the base, got the base itself"
        )
    if base.model_type != tuned.model_type:
        raise InputError(
            f"{tuned.folder}: wanted the base's model_type {base.model_type!r}, got "
            f"{tuned.model_type!r}"
        )
    rows = {}
    sizes = base.config.get("vocab_size"), tuned.config.get("vocab_size")
    for name in sorted(set(base.tensors) & set(tuned.tensors)):
        one, other = base.tensors[name], tuned.tensors[name]
        if one.dtype not in FLOATS or other.dtype not in FLOATS:
            continue
        grown = (one.shape[:1], other.shape[:1]) == ((sizes[0],), (sizes[1],)) and one.shape[
            1:
        ] == other.shape[1:]
        if one.shape != other.shape and not grown:
            raise InputError(
                f"{tuned.folder}: {name}: wanted the base's shape {list(one.shape)}, got "
                f"{list(other.shape)}"
            )
        rows[name] = min(one.shape[0], other.shape[0]) if one.shape else 1
    if not rows:
        raise InputError(
            f"{tuned.folder}: wanted tensors of the base's names, got none of {len(base.tensors)}"
        )
    return rows


def layer_of(name: str) -> int:
    """The layer that a tensor is of, counted from 1: the first whole number of its name; 0 where it
    has none.
    """
    found = re.search(r"(?:^|\.)(\d+)\.", name)
    return int(found[1]) + 1 if found else 0


def check_memory(checkpoint: Checkpoint, n_copies: int, what: str) -> int:
    """Say what `n_copies` of the weights in float32 take of this machine's memory; return how many
    such jobs fit.

    Raises `InputError` where none does.
    """
    n_bytes = memory_of(checkpoint, n_copies)
    free = available_memory()
    said = f"{n_bytes / 1e9:.2g} GB of memory for each checkpoint"
    print(f"{what}: about {said}, {free / 1e9:.3g} GB are free", file=sys.stderr, flush=True)
    if n_bytes > free:
        raise InputError(f"memory: wanted {said}, got {free / 1e9:.3g} GB that are free")
    return max(1, int(free // max(1, n_bytes)))


def memory_of(checkpoint: Checkpoint, n_copies: int) -> int:
    """The bytes of `n_copies` of the weights in float32."""
    return 4 * n_copies * sum(prod(entry.shape) for entry in checkpoint.tensors.values())


def _check_layers(folder: Path, config: dict[str, Any], n_tensors: int) -> None:
    """Raise `InputError` for a config of more layers than its weights can be of: to make them would
    not end.
    """
    most = max(MOST_LAYERS, n_tensors)
    for key, value in _settings(config):
        if not re.search(r"(layers?|depths?)$", key):
            continue
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and number > most:
                wanted = f"wanted at most {most} layers, for weights of {n_tensors} tensors"
                raise InputError(f"{folder / 'config.json'}: {key}: {wanted}, got {number}")


def _settings(config: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every key of a config with its value, also those of a part of the model (`text_config`)."""
    rest: list[Any] = [config]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            yield from one.items()
            rest += one.values()
        elif isinstance(one, list):
            rest += one


def _step(name: str) -> int:
    found = re.search(r"(?:step|checkpoint|snapshot)[-_]?(\d+)$", name)
    return int(found[1]) if found else 0


def _indexed(folder: Path) -> dict[str, Entry]:
    """The tensors of a sharded checkpoint; what a shard holds beside those that the index gives to
    it is left out.
    """
    placed = _json(folder / INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise InputError(
            f"{folder / INDEX}: wanted a weight_map of tensors and shards, got {placed!r}"
        )
    headers = {}
    for shard in sorted({file_name(str(shard)) for shard in placed.values()}):
        if not (folder / shard).is_file():
            raise InputError(f"{folder}: wanted the shard {shard}, which its index names, got none")
        headers[shard] = read_header(folder / shard)
    for name, shard in placed.items():
        if name not in headers[shard]:
            raise InputError(
                f"{folder / shard}: wanted the tensor {name}, which the index gives to it, got none"
            )
    return {name: headers[shard][name] for name, shard in sorted(placed.items())}


def _whole(folder: Path) -> dict[str, Entry]:
    if (folder / WHOLE).is_file():
        return dict(sorted(read_header(folder / WHOLE).items()))
    pickles: Sequence[Path] = sorted(
        [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    )
    if pickles:
        raise InputError(
            f"{folder}: wanted safetensors, got the pickle {pickles[0].name}: convert it, {CONVERT}"
        )
    raise InputError(
        f"{folder}: wanted {WHOLE} or {INDEX}, got {sorted(path.name for path in folder.iterdir())}"
    )


def _json(file: Path) -> dict[str, Any]:
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file}: wanted a JSON object, got {type(value).__name__}")
    return value
