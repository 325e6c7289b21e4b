"""What a plan for a checkpoint holds in memory, on CPU and GPU: said and checked before any work.

Without a text tensors are read one by one. With one the model is held in float32 and, after it, the
model of the base; base, tuned weights and factors are mapped from their files, whose pages the
system drops where it needs them. Of slopes, of cuts and of pruned weights one module's is held at a
time. What allocations leave behind is counted: 2.7 copies in float32 were measured beside a process
that does nothing, of 79 million parameters in float32.
"""

from math import prod

import torch

from lib.checkpoints.folders import FLOATS, Checkpoint
from lib.files.files import InputError
from lib.files.memory import check_memory
from lib.training.devices import kind_of

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
STARTED = 4e8  # bytes of a process with its libraries
MATRICES = 6  # of the largest shape, in float32, that are held while one is worked on
COPIES = 3  # of the model in float32, on the host
ON_GPU = 1.5  # copies there: the model, and what its layers make of a batch


def plan_memory(base: Checkpoint, text: str, *, live: bool = False, n_parameters: int = 0) -> int:
    """About the bytes of memory of the host that a plan takes: what it must have to begin.

    The model is as large as its weights, or has `n_parameters`, those of its config, where these
    are more. `live` where models are opened without a text too, for what an adapter carries whole.
    """
    entries = [entry for entry in base.tensors.values() if entry.dtype in FLOATS]
    n_stored = sum(prod(entry.shape) for entry in entries)
    n_weights = max(n_stored, n_parameters)
    stored = sum(prod(entry.shape) * BYTES[entry.dtype] for entry in entries)
    stored += BYTES["F32"] * (n_weights - n_stored)
    largest = max((prod(entry.shape) for entry in entries), default=0)
    one = STARTED + 4 * MATRICES * largest
    return round(one + (2 * stored * live if text == "-" else 4 * COPIES * n_weights))


def check_plan_memory(
    base: Checkpoint, text: str, device: str, *, live: bool = False, n_parameters: int = 0
) -> int:
    """Say what a plan will hold; raises `InputError` where the host, or the GPU, has less free.

    Gives the bytes on the host.
    """
    n_bytes = plan_memory(base, text, live=live, n_parameters=n_parameters)
    check_memory("plan", n_bytes)
    if kind_of(device) == "cuda" and text != "-":
        wanted = 4 * ON_GPU * sum(prod(entry.shape) for entry in base.tensors.values())
        free = torch.cuda.mem_get_info(device)[0]
        if wanted > free:
            got = f"got {free / 1e9:.3g} GB free"
            raise InputError(f"plan: wanted about {wanted / 1e9:.3g} GB on {device}, {got}")
    return n_bytes
