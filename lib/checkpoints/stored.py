"""Single tensors as they are stored, in a safetensors file or in the folder of a LoRA adapter.

An adapter stores the factors A (r × in) and B (out × r) of what it adds to the weight of a module,
s B A, with s = alpha / r, or alpha / sqrt(r) by `use_rslora`; alpha and r are the config's or those
of its patterns. Other parameters (`modules_to_save`, biases) it stores whole.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from lib.checkpoints.update_spectra import Product
from lib.files.files import InputError
from lib.files.inputs import read_header

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
FACTORS = (  # of a linear layer, and of an embedding, whose A is rank × words
    (".lora_A.weight", ".lora_B.weight"),
    (".lora_embedding_A", ".lora_embedding_B"),
)


def load_tensor(place: Path, name: str) -> Any:
    """A tensor of a safetensors file; of an adapter's folder, what it adds where that is a product.

    Raises `InputError` where it holds NaN or infinity.
    """
    return load_stored(place, name) if place.is_dir() else read_tensor(place, name)


def read_tensor(file: Path, name: str) -> Any:
    """A tensor of a safetensors file; raises `InputError` where it holds NaN or infinity."""
    try:
        with safe_open(file, framework="pt") as opened:
            tensor = opened.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file}: wanted the tensor {name}, got: {error}") from error
    if not torch.isfinite(tensor).all():
        raise InputError(f"{file}: wanted finite weights, got NaN or infinity in {name}")
    return tensor


def stored_names(place: Path) -> list[str]:
    """The tensors of a safetensors file, or those of its model that an adapter changes."""
    if place.is_dir():
        return sorted({*whole_names(place), *factor_names(place)})
    return list(read_header(place))


def whole_names(folder: Path) -> dict[str, str]:
    """The parameters that an adapter stores whole, with their names in its file."""
    return {
        name.removeprefix(PREFIX).replace(".base_layer.", "."): name
        for name in read_header(folder / WEIGHTS)
        if ".lora_" not in name
    }


def factor_names(folder: Path) -> dict[str, tuple[str, str]]:
    """The weights to which an adapter adds a product, with the names of A and B in its file."""
    header = read_header(folder / WEIGHTS)
    found = {}
    for one in header:
        for of_A, of_B in FACTORS:
            other = one.removesuffix(of_A) + of_B
            if one.endswith(of_A) and other in header:
                name = f"{one.removeprefix(PREFIX).removesuffix(of_A)}.weight"
                found[name] = (one, other)
    return found


def load_stored(folder: Path, name: str) -> Any:
    """What an adapter has of a parameter: the whole of it, or the product that it adds.

    The product has the shape of the weight as a linear layer stores it (out × in), or that of an
    embedding (words × out); with `fan_in_fan_out` that of in × out.
    """
    file = folder / WEIGHTS
    whole = whole_names(folder).get(name)
    factors = factor_names(folder).get(name)
    if factors is None:
        return read_tensor(file, whole or name)
    config = json.loads((folder / CONFIG).read_bytes())
    A, B = (read_tensor(file, one).double() for one in factors)
    B = scale(config, name.removesuffix(".weight")) * B
    transposed = factors[0].endswith(FACTORS[1][0]) or bool(config.get("fan_in_fan_out"))
    product = Product(A.mT, B.mT) if transposed else Product(B, A)
    return product.added_to(read_tensor(file, whole)) if whole else product


def scale(config: Mapping[str, Any], module: str) -> float:
    """What peft multiplies B A of a module by."""
    rank = of_pattern(config, "rank_pattern", "r", module)
    alpha = of_pattern(config, "alpha_pattern", "lora_alpha", module)
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


def of_pattern(config: Mapping[str, Any], pattern: str, otherwise: str, module: str) -> Any:
    """The value of the first key of a pattern that fits the end of a module's name."""
    for key, value in (config.get(pattern) or {}).items():
        if re.match(rf"(.*\.)?({key})$", module):
            return value
    return config[otherwise]
