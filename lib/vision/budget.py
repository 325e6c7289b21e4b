"""The costs of long trainings, which are said before they begin, and refused where too high."""

import sys
from pathlib import Path

import torch

from lib.files.files import InputError
from lib.files.memory import check_disk
from lib.training.devices import matmul_rate

SHARE_OF_RATE = 0.4  # that a training reaches of a device's rate for matrix products [C]
COPIES = 3  # that a snapshot has on disk: in scratch, in its run, in DVC's cache


def check_budget(
    what: str,
    flops: float,
    n_bytes: float,
    device: torch.device,
    precision: str,
    n_parallel: int,
    *,
    max_hours: float,
    folder: Path,
) -> None:
    """Say what operations and snapshots cost on a device that does `n_parallel` trainings at once.

    The rate is measured here, in this precision. Raises `InputError` above `max_hours`, or where
    the disk of the folder has too little room.
    """
    size = 8192 if device.type == "cuda" else 768
    rate = SHARE_OF_RATE * n_parallel * matmul_rate(device, getattr(torch, precision), size)
    hours = flops / rate / 3600
    gigabytes = COPIES * n_bytes / 1e9
    cost = f"about {hours:.2g} h on this {device.type}; {gigabytes:.2g} GB of snapshots"
    print(f"{what}: {flops:.2g} operations, {cost}", file=sys.stderr, flush=True)
    check_disk(folder, COPIES * n_bytes, "snapshots")
    if hours > max_hours:
        raise InputError(f"max_hours: wanted at most {max_hours:g} h, got about {hours:.3g} h")
