"""Single tensors as they are stored, in a safetensors file or in the folder of a LoRA adapter.

An adapter stores the factors A (r × in) and B (out × r) of what it adds to the weight of a module,
s B A, with s = alpha / r, or alpha / sqrt(r) by `use_rslora`; alpha and r are the config's or those
of its patterns. Other parameters (`modules_to_save`, biases) it stores whole.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from lib.checkpoints.update_spectra import Product
from lib.files.files import InputError
from lib.files.inputs import read_header

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
OPENED = 4  # files that stay open
PLAIN = re.compile(r"\^?(?:[\w-]|\\?\.|\\[^\w\s]|\.\*|[|])+\$?")  # a key of a pattern of an adapter
FACTORS = (  # of a linear layer, and of an embedding, whose A is rank × words
    (".lora_A.weight", ".lora_B.weight"),
    (".lora_embedding_A", ".lora_embedding_B"),
)


def load_tensor(place: Path, name: str, *, by_columns: bool = False) -> Any:
    """A tensor of a safetensors file; of an adapter's folder, what it adds where that is a product.

    A product is transposed where its weight is stored `by_columns`, as in × out. Raises
    `InputError` where it holds NaN or infinity.
    """
    if place.is_dir():
        return load_stored(place, name, by_columns=by_columns)
    return read_tensor(place, name)


def read_tensor(file: Path, name: str) -> Any:
    """A tensor of a safetensors file; raises `InputError` where it holds NaN or infinity."""
    try:
        tensor = _opened(file, *_version(file)).get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file}: wanted the tensor {name}, got: {error}") from error
    if not (torch.isfinite(tensor.sum()) or torch.isfinite(tensor).all()):  # the sum is quicker
        raise InputError(f"{file}: wanted finite weights, got NaN or infinity in {name}")
    return tensor


@lru_cache(maxsize=OPENED)
def _opened(file: Path, *_version: int) -> Any:
    """A file that stays open for all its tensors, as its header is read when it is opened."""
    return safe_open(file, framework="pt").__enter__()


def _version(file: Path) -> tuple[int, ...]:
    """What changes when a file is written anew."""
    stat = file.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def stored_names(place: Path) -> list[str]:
    """The tensors of a safetensors file, or those of its model that an adapter changes."""
    if place.is_dir():
        return sorted({*whole_names(place), *factor_names(place)})
    return list(_names(place, *_version(place)))


@lru_cache(maxsize=OPENED)
def _names(file: Path, *_version: int) -> tuple[str, ...]:
    return tuple(read_header(file))


def whole_names(folder: Path) -> dict[str, str]:
    """The parameters that an adapter stores whole, with their names in its file."""
    return _adapter_names(folder, *_version(folder / WEIGHTS))[0]


def factor_names(folder: Path) -> dict[str, tuple[str, str]]:
    """The weights to which an adapter adds a product, with the names of A and B in its file."""
    return _adapter_names(folder, *_version(folder / WEIGHTS))[1]


@lru_cache(maxsize=OPENED)
def _adapter_names(
    folder: Path, *_version: int
) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
    header = read_header(folder / WEIGHTS)
    whole = {
        name.removeprefix(PREFIX).replace(".base_layer.", "."): name
        for name in header
        if ".lora_" not in name
    }
    found = {}
    for one in header:
        for of_A, of_B in FACTORS:
            other = one.removesuffix(of_A) + of_B
            if one.endswith(of_A) and other in header:
                name = f"{one.removeprefix(PREFIX).removesuffix(of_A)}.weight"
                found[name] = (one, other)
    return whole, found


def load_stored(folder: Path, name: str, *, by_columns: bool = False) -> Any:
    """What an adapter has of a parameter: the whole of it, or the product that it adds.

    The product has the shape of the weight as a linear layer stores it (out × in), or that of an
    embedding (words × out); `by_columns` that of in × out.
    """
    file = folder / WEIGHTS
    whole = whole_names(folder).get(name)
    factors = factor_names(folder).get(name)
    if factors is None:
        return read_tensor(file, whole or name)
    config = json.loads((folder / CONFIG).read_bytes())
    A, B = (read_tensor(file, one).double() for one in factors)
    B = scale(config, name.removesuffix(".weight")) * B
    transposed = factors[0].endswith(FACTORS[1][0]) or by_columns
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
        if is_named(module, key):
            return value
    return config[otherwise]


def is_named(module: str, key: str) -> bool:
    """Whether a key of a pattern names a module, as peft matches it: `(.*\\.)?(KEY)$`.

    A key is names with dots, anchors, `.*` and `|`, and no other regular expression (`PLAIN`): so
    the time is that of comparing texts, whatever an adapter brings.
    """
    starts = [0, *(dot.end() for dot in re.finditer(r"\.", module))]
    for one in key.split("|"):
        anchored = one.startswith("^")
        parts = [part.replace("\\", "") for part in one.strip("^$").split(".*")]
        if any(_in_order(module[at:], parts) for at in (starts[:1] if anchored else starts)):
            return True
    return False


def _in_order(text: str, parts: Sequence[str]) -> bool:
    """Whether a text is the parts, in their order, with anything between two of them."""
    first, *inner = parts
    if not inner:
        return text == first
    *inner, last = inner
    if not text.startswith(first) or not text.endswith(last):
        return False
    at = len(first)
    for part in inner:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return at <= len(text) - len(last)
