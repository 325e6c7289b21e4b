"""LoRA adapters as they were tuned by peft, read as checkpoints tuned from their base.

What is no plain LoRA is refused in one line, by name: another kind of adapter, DoRA, factors that
are no matrices, modules that the base lacks, pickles.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lib.checkpoints.folders import INDEX, WHOLE, Checkpoint, prefixes
from lib.checkpoints.library import unloaded
from lib.checkpoints.linear_modules import stored_as_columns
from lib.checkpoints.names import places_of
from lib.checkpoints.stored import (
    CONFIG,
    PLAIN,
    PREFIX,
    WEIGHTS,
    factor_names,
    load_tensor,
    of_pattern,
    stored_names,
    whole_names,
)
from lib.checkpoints.update_spectra import Product, update_of
from lib.files.files import InputError
from lib.files.inputs import Entry, read_header, read_json

WANTED = "wanted a plain LoRA adapter"
INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")  # all others change the base
PATTERNS = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}
OTHER_KINDS = (  # of LoRA: what is told by these keys of a config, where they say something
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "megatron_config",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "velora_config",
)


@dataclass(frozen=True)
class AdapterCheckpoint(Checkpoint):
    """What an adapter makes of its base: W_0 + s B A in float32, parameters that it stores whole,
    and all others as the base has them.

    Its names are those of the adapter, which are the live model's.
    """

    base: Checkpoint = field(kw_only=True)  # with the adapter's names
    changed: tuple[str, ...] = field(kw_only=True)  # by the adapter, also what is tied
    by_columns: frozenset[str] = field(kw_only=True)  # of these, what is stored as in × out

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return "adapter"

    @property
    def model_folder(self) -> Path:
        """The base's: of that, the live model is made."""
        return self.base.folder

    def load(self, name: str) -> Any:
        """The tensor of that name; raises `InputError` where it holds NaN or infinity."""
        found = self._stored(name)
        return found.added_to(self.base.load(name)) if isinstance(found, Product) else found

    def update(self, name: str, W_0: Any) -> Any:
        """What the adapter adds to a matrix W_0 of the base: a product where it is known."""
        return update_of(self._stored(name), W_0)

    def _stored(self, name: str) -> Any:
        file = self.tensors[name].file
        place = self.stored.get(name, name)
        return load_tensor(file, place, by_columns=name in self.by_columns)


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter and no model."""
    models = any((folder / name).is_file() for name in (INDEX, WHOLE))
    return (folder / CONFIG).is_file() and not models


def open_adapter(base: Checkpoint, folder: Path) -> AdapterCheckpoint:
    """Open an adapter that was tuned on a base; raises `InputError` for what is refused."""
    if not (folder / WEIGHTS).is_file():
        names = sorted(path.name for path in folder.iterdir())
        raise InputError(f"{folder}: wanted {WEIGHTS} beside {CONFIG}, got {names}")
    _check_kind(folder / CONFIG, read_json(folder / CONFIG))
    _check_factors(folder)
    own = {}
    by_columns = stored_by_columns(base, folder)
    for name in stored_names(folder):
        found = load_tensor(folder, name, by_columns=name in by_columns)
        dtype = "F32" if name in factor_names(folder) else _dtype(folder, name)
        own[name] = Entry(folder, tuple(found.shape), dtype)
    begun = _with_names_of(base, Checkpoint(folder, base.config, own))
    lacking = {name for name in own if name not in begun.tensors} - _tied(folder, begun)
    if lacking:
        got = f"got {', '.join(sorted(lacking)[:9])}: merge the adapter into its model first"
        raise InputError(f"{folder}: wanted weights that {base.folder} has, {got}")
    kept = {name: entry for name, entry in own.items() if name in begun.tensors}
    return AdapterCheckpoint(
        folder,
        base.config,
        begun.tensors | kept,
        {name: place for name, place in begun.stored.items() if name not in own},
        base=begun,
        changed=tuple(own),
        by_columns=by_columns,
    )


def stored_by_columns(base: Checkpoint, folder: Path) -> frozenset[str]:
    """The weights that an adapter changes and that the base stores as in × out.

    The class of each layer decides, as peft has it: what a config says of all layers together
    (`fan_in_fan_out`) is asked only where transformers cannot make the model.
    """
    names = factor_names(folder)
    try:
        live = dict(unloaded(base.folder, base.config).named_modules())
    except InputError:
        return frozenset(names if read_json(folder / CONFIG).get("fan_in_fan_out") else ())
    modules = {name: live.get(name.removesuffix(".weight")) for name in names}
    return frozenset(name for name, one in modules.items() if one and stored_as_columns(one))


def _with_names_of(base: Checkpoint, adapter: Checkpoint) -> Checkpoint:
    """The base with the live model's names, which an adapter has, as the library renames those on
    disk; the adapter may be of a model on that backbone, or of the backbone alone.
    """
    live = places_of(base.folder, base.config, base.tensors)
    named = _renamed(base, {name: live.get(name, name) for name in base.tensors})
    old, new = prefixes(named, adapter)
    return _renamed(
        base,
        {
            stored: new + name.removeprefix(old) if name.startswith(old) else name
            for name, stored in named.stored.items()
        },
    )


def _renamed(base: Checkpoint, names: Mapping[str, str]) -> Checkpoint:
    """The base with other names for its tensors."""
    tensors = {name: base.tensors[stored] for stored, name in names.items()}
    return replace(base, tensors=tensors, stored={name: stored for stored, name in names.items()})


def _check_kind(file: Path, config: Any) -> None:
    """Raise `InputError` where a config is of anything but plain LoRA."""
    kind = config.get("peft_type") if isinstance(config, dict) else type(config).__name__
    if kind != "LORA" or not isinstance(config, dict):
        raise InputError(f"{file}: {WANTED}, got peft_type {kind}")
    flags = [key for key in config if key.startswith("use_") and key != "use_rslora"]
    for key in (*flags, *OTHER_KINDS):
        if config.get(key):
            raise InputError(f"{file}: {WANTED}, got {key} {config[key]}")
    if config.get("init_lora_weights", True) not in INITIAL:
        got = f"got init_lora_weights {config['init_lora_weights']}, which changes the base"
        raise InputError(f"{file}: {WANTED}, {got}")
    for key, pattern in PATTERNS.items():
        numbers = config.get(pattern) or {}
        if not isinstance(numbers, dict):
            raise InputError(f"{file}: {pattern}: wanted names and numbers, got {numbers}")
        for one in (config.get(key), *numbers.values()):
            if (
                not isinstance(one, int | float)
                or not math.isfinite(one)
                or (key == "r" and one < 1)
            ):
                raise InputError(f"{file}: {key}: wanted a finite number, got {one}")
        for one in numbers:
            if not PLAIN.fullmatch(one):
                wanted = "wanted names of modules, with anchors, .* and | alone"
                raise InputError(f"{file}: {pattern}: {wanted}, got {one!r}")


def _check_factors(folder: Path) -> None:
    """Raise `InputError` for tensors that plain LoRA does not have, or whose A and B fit neither
    each other nor the rank.
    """
    file = folder / WEIGHTS
    config = read_json(folder / CONFIG)
    header = read_header(file)
    factors = factor_names(folder)
    known = {*whole_names(folder).values(), *(one for pair in factors.values() for one in pair)}
    for name in header:
        if name not in known or not name.startswith(PREFIX) or "token_adapter" in name:
            raise InputError(f"{file}: {WANTED}, got the tensor {name}")
    for name, (A, B) in factors.items():
        rank = of_pattern(config, "rank_pattern", "r", name.removesuffix(".weight"))
        shapes = [list(header[one].shape) for one in (A, B)]
        of_A, of_B = shapes
        if [len(of_A), len(of_B)] != [2, 2] or of_A[0] != rank or of_B[1] != rank:
            wanted = f"wanted matrices A and B of rank {rank}"
            raise InputError(f"{file}: {name}: {wanted}, got shapes {of_A} and {of_B}")


def _dtype(folder: Path, name: str) -> str:
    """The type in which an adapter stores a parameter whole."""
    return read_header(folder / WEIGHTS)[whole_names(folder)[name]].dtype


def _tied(folder: Path, base: Checkpoint) -> set[str]:
    """What an adapter stores whole, the base does not, and equals another parameter there: a head
    that is tied to its embedding.
    """
    whole = whole_names(folder)
    inside = [load_tensor(folder, name) for name in whole if name in base.tensors]
    return {
        name
        for name in whole
        if name not in base.tensors
        and any(load_tensor(folder, name).equal(other) for other in inside)
    }
