"""The transformers library, loaded only when a model is wanted, without network and without talk.

It runs no code that a checkpoint brings, and what it cannot open is refused in one line.
"""

import errno
import gc
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from lib.files.files import InputError

SAFE: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
}  # of all that it loads
NO_DECIMALS = [{"__float__": name} for name in ("Infinity", "-Infinity", "NaN")]  # in a config


@contextmanager
def loading() -> Iterator[None]:
    """Modules are loaded here without a search for garbage; they stay, and no later one looks at
    them.

    The search would take a fifth of the time of loading.
    """
    searched = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searched:
            gc.freeze()
            gc.enable()


@contextmanager
def quiet() -> Iterator[None]:
    """No network, no progress bars and no talk of the library."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    transformers = _transformers()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    yield


@cache
def _transformers() -> Any:
    with loading():
        import transformers
    return transformers


@contextmanager
def refusing(wanted: str) -> Iterator[None]:
    """Have the library fail with one line, an `InputError`.

    What the machine lacks stays the error that it is.
    """
    with quiet():
        try:
            yield
        except Exception as error:
            got = " ".join(str(error).split())[:300]
            memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
            memory = memory or "can't allocate memory" in got
            disk = isinstance(error, OSError) and error.errno not in (None, errno.ENOENT)
            if memory or disk or isinstance(error, InputError):
                raise
            if "ignore_mismatched_sizes" in got:
                got = "weights of other shapes than its config says"
            raise InputError(f"{wanted}, got: {got} ({type(error).__name__})") from error


def has_code(config: Any) -> bool:
    """Whether a config brings code of its own, also in the part of a model."""
    return '"auto_map":' in json.dumps(config)


def model_class(folder: Path, config: Mapping[str, Any]) -> Any:
    """The class of a checkpoint's model; raises `InputError` where transformers has none."""
    if has_code(config):
        got = "got one with code of its own (auto_map)"
        raise InputError(f"{folder}: wanted a model of transformers, {got}")
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    with refusing(f"{folder}: wanted an architecture that can be imported, got {name}"):
        import transformers

        found: Any = _found(name) if isinstance(name, str) else None
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if not is_model or found.forward is torch.nn.Module.forward:  # what models are derived from
        wanted = f"wanted an architecture that transformers {transformers.__version__} has"
        raise InputError(f"{folder}: {wanted}, got {names}")
    return found


@cache
def _found(name: str) -> Any:
    """What transformers has by that name, None where it has nothing."""
    with loading():
        return getattr(_transformers(), name, None)


def unloaded(folder: Path, config: Mapping[str, Any]) -> torch.nn.Module:
    """The model of a checkpoint without its weights, on the meta device: names and shapes alone."""
    kind = model_class(folder, config)
    with refusing(f"{folder}: wanted a model that {kind.__name__} can make"):
        made = kind.config_class.from_pretrained(folder, **SAFE)
        with torch.device("meta"):
            return kind(made)


def text_config(config: Mapping[str, Any]) -> Any:
    """The settings of the part of a model that reads text, as the library has them.

    They are those of the whole model where it has no such part, or where the library does not know
    it. Infinity is a number in them too, which the library writes as an object.
    """
    kind = str(config.get("model_type"))
    with refusing(f"wanted a config of {kind} that transformers can read"):
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        if kind is None or kind not in CONFIG_MAPPING:
            return SimpleNamespace(**config)
        decoded = json.loads(json.dumps(dict(config)), object_hook=_number)
        return CONFIG_MAPPING[kind].from_dict(decoded).get_text_config()


def _number(one: dict[str, Any]) -> Any:
    """The number that an object of a config stands for, or the object where it is none."""
    return float(one["__float__"]) if one in NO_DECIMALS else one


def is_causal(config: Mapping[str, Any]) -> bool:
    """Whether the architecture predicts the next token: a language model, also one of images."""
    return not is_masked(config) and _is_one_of(config, "CAUSAL_LM", "IMAGE_TEXT_TO_TEXT")


def is_masked(config: Mapping[str, Any]) -> bool:
    """Whether the architecture predicts tokens that are masked.

    One that the library has for both, such as XLM's, does unless its config says `causal`. Some
    that read images too, such as Vilt's, are in no list of the library's and are called so.
    """
    causal = config.get("causal") and _is_one_of(config, "CAUSAL_LM")
    called = str(config.get("architectures")).endswith("ForMaskedLM']")
    return called or (_is_one_of(config, "MASKED_LM") and not causal)


def _is_one_of(config: Mapping[str, Any], *tasks: str) -> bool:
    """Whether the library has the architecture for one of these tasks, without a decoder apart."""
    from transformers.models.auto import modeling_auto

    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    known = (getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES").values() for task in tasks)
    return not config.get("is_encoder_decoder") and any(name in of for of in known)
