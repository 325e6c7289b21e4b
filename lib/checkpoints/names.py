"""The names of weights: on disk, and in the live model that peft knows.

Names decide, by the library's own renaming (its table of conversions, and the prefix of a backbone
that it adds or takes away), and never content: layers may be equal, and a model may be read in
another type than that of its files.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from lib.checkpoints.library import unloaded
from lib.checkpoints.linear_modules import linear_modules
from lib.files.files import InputError


def linear_tensors(model: torch.nn.Module, shapes: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """For each linear module, the one tensor on disk that the library loads into its weight.

    The model may be on the meta device. Raises `InputError`, naming the module, where a weight is
    made of several tensors or of a part of one, has another shape, or none by its name.
    """
    placed = stored_places(model, shapes)
    found = {}
    for name, module in linear_modules(model).items():
        stored = placed.get(f"{name}.weight", [])
        weight: Any = module.weight
        if len(stored) != 1 or list(shapes[stored[0]]) != list(weight.shape):
            wanted = "wanted one tensor of its shape that the library loads into this module alone"
            raise InputError(f"{name}: {wanted}, got {stored}")
        found[name] = stored[0]
    return found


def tied_names(model: torch.nn.Module) -> dict[str, list[str]]:
    """For each parameter of a live model, the names of others that are the same parameter."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return {name: [o for o in alike if o != name] for alike in names.values() for name in alike}


def stored_places(model: torch.nn.Module, names: Iterable[str]) -> dict[str, list[str]]:
    """For each entry of a live model, the tensors on disk that the library loads into it alone.

    The names are the library's own renaming. A tensor that it splits or joins with others is left
    out.
    """
    from transformers import conversion_mapping, core_model_loading

    whole: Any = model
    renamings, converters = [], []
    for change in conversion_mapping.get_model_conversion_mapping(whole):
        converts = isinstance(change, core_model_loading.WeightConverter)
        (converters if converts else renamings).append(change)
    wanted = whole.state_dict()
    prefixed = (whole.base_model_prefix, wanted)
    placed: dict[str, list[str]] = {}
    for name in names:
        place, converted = core_model_loading.rename_source_key(
            name, renamings, converters, *prefixed
        )
        if place not in wanted and name in wanted:  # the library then renames nothing
            place, converted = core_model_loading.rename_source_key(name, [], [], *prefixed)
        if converted is None and place in wanted:
            placed.setdefault(place, []).append(name)
    return placed


def places_of(folder: Path, config: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, str]:
    """The entry of the live model of a folder into which the library loads each tensor, by names.

    A tensor that is split or joined with others is left out, and so is one of two for one entry.
    Nothing is found where transformers cannot make the model.
    """
    return _places(folder, json.dumps(dict(config), sort_keys=True), tuple(names))


@lru_cache(maxsize=8)
def _places(folder: Path, config: str, names: tuple[str, ...]) -> Mapping[str, str]:
    try:
        placed = stored_places(unloaded(folder, json.loads(config)), names)
    except InputError:
        return {}
    return {stored[0]: place for place, stored in placed.items() if len(stored) == 1}
