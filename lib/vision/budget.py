"""What a long training will cost is said before it begins; what is too much is refused."""

import sys
from pathlib import Path

import torch

from lib.files.files import InputError
from lib.files.memory import COPIES, check_disk
from lib.training.devices import matmul_rate

SHARE_OF_RATE = 0.4  # of a device's rate for matrix products, which a training reaches [C]


def check_budget(
    what: str,
    flops: float,
    n_bytes: int,
    device: torch.device,
    precision: str,
    n_parallel: int,
    *,
    max_hours: float,
    folder: Path,
) -> None:
    """Say what `flops` operations cost on a device, `n_parallel` side by side, and the snapshots'
    bytes in a folder.

    The rate is measured here, in this precision. Raises `InputError` above `max_hours` or the free
    disk.
    """
    check_disk(folder, COPIES * n_bytes, "snapshots")
    size = 8192 if device.type == "cuda" else 768
    rate = SHARE_OF_RATE * n_parallel * matmul_rate(device, getattr(torch, precision), size)
    hours, gigabytes = flops / rate / 3600, COPIES * n_bytes / 1e9
    cost = (
        f"{flops:.2g} operations, about {hours:.2g} h on this {device.type}; {gigabytes:.2g} "
        "GB of snapshots"
    )
    print(f"{what}: {cost}", file=sys.stderr, flush=True)
    if hours > max_hours:
        raise InputError(f"max_hours: wanted at most {max_hours:g} h, got about {hours:.3g} h")
