"""The transformers library, loaded only when a model is wanted, without network and without talk.

It runs no code that a checkpoint brings, and what it cannot open is refused in one line.
"""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from lib.files.files import InputError

SAFE: dict[str, Any] = {
    "local_files_only": True,
    "trust_remote_code": False,
}  # of all that it loads


@contextmanager
def quiet() -> Iterator[None]:
    """No network, no progress bars and no talk of the library."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    yield


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

        found: Any = getattr(transformers, name, None) if isinstance(name, str) else None
        is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if not is_model or found.forward is torch.nn.Module.forward:  # what models are derived from
        wanted = f"wanted an architecture that transformers {transformers.__version__} has"
        raise InputError(f"{folder}: {wanted}, got {names}")
    return found


def unloaded(folder: Path, config: Mapping[str, Any]) -> torch.nn.Module:
    """The model of a checkpoint without its weights, on the meta device: names and shapes alone."""
    kind = model_class(folder, config)
    with refusing(f"{folder}: wanted a model that {kind.__name__} can make"):
        made = kind.config_class.from_pretrained(folder, **SAFE)
        with torch.device("meta"):
            return kind(made)
