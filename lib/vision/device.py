"""The device of a training: `cpu`, `cuda`, or one GPU of several, `cuda:1`; and computing the same bits again on it."""

import os
import re
from typing import Annotated

import torch
from pydantic import AfterValidator

from lib.files.files import InputError
from lib.work import compute


def _named(device: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise ValueError(f"wanted cpu, cuda, or the number of a GPU as in cuda:1, got {device!r}")
    return device


Device = Annotated[str, AfterValidator(_named)]


def kind_of(device: str) -> str:
    """`cpu` or `cuda`, whichever of several."""
    return device.partition(":")[0]


def use_device(name: str, deterministic: bool = False) -> torch.device:
    """The torch device of that name; raises `InputError` where this machine has none.

    `deterministic` makes a GPU give the same bits each time, at its cost: a fixed workspace for matrix products, and an
    error from torch for what has no such way. A CPU does so anyway.
    """
    device = compute.use_device(name)
    if device.type == "cuda":
        n = torch.cuda.device_count()
        if (device.index or 0) >= n:
            raise InputError(f"device: wanted {name}, got a machine of {n} GPUs")
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
    return device
