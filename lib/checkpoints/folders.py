"""Checkpoints as transformers writes them: config.json, and safetensors, whole or in shards.

Headers are read at once, tensors one at a time, so that the memory does not depend on the size of
the folder. What is no such checkpoint is refused in one line: pickles, quantised weights, an
adapter in place of a model, a part of a file.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from lib.checkpoints.names import places_of
from lib.checkpoints.stored import load_tensor
from lib.checkpoints.update_spectra import update_of
from lib.files.files import InputError, file_name
from lib.files.inputs import Entry, read_header, read_json

FLOATS = ("F64", "F32", "F16", "BF16")
QUANTISED = ("I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2")
INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
FLOAT_WEIGHTS = "wanted weights in f32, bf16 or f16"
TUNED = "wanted a checkpoint tuned from the base"
NUMBER = r"\d{1,9}"  # of a layer or a step, in a name
MOST_LAYERS = 1000  # of a model, where its weights have fewer tensors
PICKLE = re.compile(r"(pytorch_model|model|consolidated|adapter_model).*\.(bin|pt|pth)$")
CONVERT = "AutoModel....from_pretrained(FOLDER).save_pretrained(OUT)"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was opened; tensors are read one at a time.

    A base may have the names, and the architecture, of what was tuned from it (`aligned`): then
    `stored` has the names in its own files.
    """

    folder: Path
    config: dict[str, Any]
    tensors: dict[str, Entry]
    stored: dict[str, str] = field(default_factory=dict)
    tuned: "Checkpoint | None" = None

    @property
    def model_type(self) -> str:
        """The architecture's name, as transformers knows it."""
        return str(self.config.get("model_type", ""))

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return "full fine-tune"

    @property
    def model_folder(self) -> Path:
        """Where the transformers library finds its model."""
        return self.folder

    @property
    def files(self) -> list[Path]:
        """Its weights, and what stands beside them as JSON."""
        return [
            *sorted({entry.file for entry in self.tensors.values()}),
            *sorted(self.folder.glob("*.json")),
        ]

    def load(self, name: str) -> Any:
        """The tensor of that name; raises `InputError` where it holds NaN or infinity."""
        return load_tensor(self.tensors[name].file, self.stored.get(name, name))

    def update(self, name: str, W_0: Any) -> Any:
        """What was added to a matrix W_0 of the base: a matrix, or a product where it is known."""
        return update_of(load_tensor(self.tensors[name].file, self.stored.get(name, name)), W_0)


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open a checkpoint.

    Raises `InputError` where it is missing, broken, quantised, an adapter, or made of pickles.
    """
    if not (folder / "config.json").is_file():
        is_adapter = (folder / "adapter_config.json").is_file()
        got = "an adapter; merge it into its model first" if is_adapter else "none"
        raise InputError(f"{folder}: wanted a checkpoint with a config.json, got {got}")
    config = _json(folder / "config.json")
    quantised = config.get("quantization_config")
    if quantised is not None:
        told = quantised if isinstance(quantised, dict) else {}
        method = told.get("quant_method", "unnamed")
        got = f"got quantised ones ({method}): dequantise, {CONVERT}"
        raise InputError(f"{folder}: {FLOAT_WEIGHTS}, {got}")
    in_shards = (folder / INDEX).is_file() and not (folder / WHOLE).is_file()
    tensors = _indexed(folder) if in_shards else _whole(folder)  # the library's own order
    for name, entry in tensors.items():
        if not name.isprintable():
            wanted = "wanted names of tensors that can be printed"
            raise InputError(f"{entry.file}: {wanted}, got {name!r}")
        if entry.dtype in QUANTISED and not _is_mask(entry):
            raise InputError(f"{entry.file}: {FLOAT_WEIGHTS}, got {name} in {entry.dtype}")
    _check_layers(folder, config, len(tensors))
    return Checkpoint(folder, config, tensors)


def _is_mask(entry: Entry) -> bool:
    """Whether a tensor of whole numbers is a mask of positions, which old checkpoints hold."""
    return entry.dtype in ("I8", "U8") and entry.shape[:-2] == (1, 1)


def aligned(base: Checkpoint, tuned: Checkpoint) -> Checkpoint:
    """The base with the names of what was tuned from it.

    Two names are of one weight where the library loads both into one place of the tuned model; so
    one of the two may lack a prefix, as a backbone does, or have the names of an older library.
    Where transformers does not know the model, and for what it joins, the prefix alone decides.
    """
    if not (set(base.tensors) - set(tuned.tensors) and set(tuned.tensors) - set(base.tensors)):
        return replace(base, tuned=tuned)
    stored = _renamed(base, prefixes(base, tuned), tuned)
    before, after = (
        places_of(tuned.model_folder, tuned.config, of.tensors) for of in (base, tuned)
    )
    begun = {place: name for name, place in before.items()}
    told = {name: begun[place] for name, place in after.items() if place in begun}
    taken = set(told.values())
    stored = {name: place for name, place in stored.items() if place not in taken} | told
    taken = set(stored.values())
    stored |= {name: name for name in base.tensors if name not in {*taken, *stored}}
    tensors = {name: base.tensors[place] for name, place in sorted(stored.items())}
    own = {name: base.stored.get(place, place) for name, place in stored.items()}
    return replace(base, tensors=tensors, stored=own, tuned=tuned)


def prefixes(base: Checkpoint, tuned: Checkpoint) -> tuple[str, str]:
    """The prefix of the base's names that what was tuned lacks, and the one that it has besides.

    Both are empty where the names are the same.
    """
    heads = [{f"{name.split('.')[0]}." for name in of.tensors} for of in (base, tuned)]
    changes = [("", ""), *((old, "") for old in sorted(heads[0]))]
    changes += [("", new) for new in sorted(heads[1])]
    return max(changes, key=lambda change: len(_renamed(base, change, tuned)))


def check_pair(base: Checkpoint, tuned: Checkpoint) -> dict[str, int]:
    """The rows that base and tuned have in common, of each tensor of real numbers in both.

    Rows that only one of them has are those of words that were added to the vocabulary. Raises
    `InputError` where both are one checkpoint, of two architectures, have other shapes, or have no
    matrix in common.
    """
    if base.folder.resolve() == tuned.folder.resolve():
        raise InputError(f"{tuned.folder}: {TUNED}, got the base itself")
    if base.model_type != tuned.model_type:
        wanted = f"wanted the base's model_type {base.model_type!r}"
        raise InputError(f"{tuned.folder}: {wanted}, got {tuned.model_type!r}")
    base = aligned(base, tuned)
    rows = {}
    before, after = _vocabularies(base), _vocabularies(tuned)
    for name in sorted(set(base.tensors) & set(tuned.tensors)):
        one = base.tensors[name]
        other = tuned.tensors[name]
        if one.dtype not in FLOATS or other.dtype not in FLOATS:
            continue
        of_words = {*one.shape[:1]} & before and {*other.shape[:1]} & after
        grown = of_words and one.shape[1:] == other.shape[1:]
        if one.shape != other.shape and not grown:
            wanted = f"wanted the base's shape {list(one.shape)}"
            raise InputError(f"{tuned.folder}: {name}: {wanted}, got {list(other.shape)}")
        rows[name] = min(one.shape[0], other.shape[0]) if one.shape else 1
    if not rows:
        wanted = "wanted tensors of the base's names"
        raise InputError(f"{tuned.folder}: {wanted}, got none of {len(base.tensors)}")
    if not any(n_matrices(name, base.tensors[name].shape) for name in rows):
        wanted = "wanted a matrix, whose update has singular values"
        raise InputError(f"{tuned.folder}: {wanted}, got none among {len(rows)} tensors")
    return rows


def layer_of(name: str) -> int:
    """The layer of a tensor, from 1: the first whole number of its name; 0 where it has none.

    A number of ten digits or more is no layer.
    """
    found = re.search(rf"(?:^|\.)({NUMBER})\.", name)
    return int(found[1]) + 1 if found else 0


def is_expert(name: str) -> bool:
    """Whether a tensor is one of a mixture of experts, by its name."""
    return bool(re.search(r"expert|moe", name)) and not {"gate", "router"} & {*name.split(".")}


def n_matrices(name: str, shape: Sequence[int]) -> int:
    """The number of matrices in a tensor: one for each expert in a tensor of experts.

    An empty tensor holds none.
    """
    if not prod(shape):
        return 0
    if len(shape) == 3:
        return shape[0] if is_expert(name) else 0
    return int(len(shape) == 2)


def hub_name(base: Checkpoint) -> str:
    """The name of a checkpoint on the hub, by the cache that it stands in; else its path as given.

    The config's `_name_or_path` says from what these weights were once made: it may be another
    model, which peft would then load in place of the base.
    """
    cached = re.search(r"/models--([^/]+)/snapshots/", f"{base.folder.resolve()}/")
    return cached[1].replace("--", "/", 1) if cached else str(base.folder)


def adapter_disk(
    base: Checkpoint, budgets: Sequence[int], *, whole: bool, equal: bool = False
) -> int:
    """Roughly how many bytes the adapters of one fine-tune take, one for each budget.

    What an adapter carries `whole` is counted as embeddings and all that is no matrix; a tied head
    as another. Where all ranks are made `equal`, an adapter is taken for three times as large.
    """
    shapes = [entry.shape for entry in base.tensors.values()]
    matrices = [shape for shape in shapes if len(shape) == 2]
    words = _vocabularies(base)
    rest = sum(prod(shape) for shape in shapes if len(shape) != 2 or shape[0] in words)
    ranks = sum(budgets) * (3 if equal else 1)
    return 4 * (ranks * sum(map(sum, matrices)) + 2 * len(budgets) * rest * whole)


def _renamed(base: Checkpoint, change: tuple[str, str], tuned: Checkpoint) -> dict[str, str]:
    """Names of what was tuned, with the base's, where a prefix is put in the place of another."""
    old, new = change
    inside = [name for name in base.tensors if name.startswith(old)]
    moved = {new + name.removeprefix(old): name for name in inside}
    return {name: place for name, place in moved.items() if name in tuned.tensors}


def _check_layers(folder: Path, config: dict[str, Any], n_tensors: int) -> None:
    """Raise `InputError` for more layers than the weights can be of: to make them would not end."""
    most = max(MOST_LAYERS, n_tensors)
    for key, value in _settings(config):
        if not re.search(r"(layers?|depths?)$", key):
            continue
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and number > most:
                wanted = f"wanted at most {most} layers, for weights of {n_tensors} tensors"
                raise InputError(f"{folder / 'config.json'}: {key}: {wanted}, got {number}")


def _vocabularies(checkpoint: Checkpoint) -> set[int]:
    """The sizes of its vocabularies, also of a part of the model that reads text."""
    said = (of for key, of in _settings(checkpoint.config) if key == "vocab_size")
    return {of for of in said if isinstance(of, int)}


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


def _indexed(folder: Path) -> dict[str, Entry]:
    """The tensors of a sharded checkpoint, those that its index gives to a shard."""
    placed = _json(folder / INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        wanted = "wanted a weight_map of tensors and shards"
        raise InputError(f"{folder / INDEX}: {wanted}, got {placed!r}")
    headers = {}
    try:
        shards = sorted({file_name(str(shard)) for shard in placed.values()})
    except InputError as error:
        raise InputError(f"{folder / INDEX}: {error}") from error
    for shard in shards:
        if not (folder / shard).is_file():
            raise InputError(f"{folder}: wanted the shard {shard}, which its index names, got none")
        headers[shard] = read_header(folder / shard)
    for name, shard in placed.items():
        if name not in headers[shard]:
            wanted = f"wanted the tensor {name}, which the index gives to it"
            raise InputError(f"{folder / shard}: {wanted}, got none")
    return {name: headers[shard][name] for name, shard in sorted(placed.items())}


def _whole(folder: Path) -> dict[str, Entry]:
    if (folder / WHOLE).is_file():
        return dict(sorted(read_header(folder / WHOLE).items()))
    names = sorted(path.name for path in folder.iterdir())
    pickles = [name for name in names if PICKLE.match(name)]
    if pickles:
        got = f"got the pickle {pickles[0]}: convert it, {CONVERT}"
        raise InputError(f"{folder}: wanted safetensors, {got}")
    raise InputError(f"{folder}: wanted {WHOLE} or {INDEX}, got {names}")


def _json(file: Path) -> dict[str, Any]:
    value = read_json(file)
    if not isinstance(value, dict):
        raise InputError(f"{file}: wanted a JSON object, got {type(value).__name__}")
    return value
