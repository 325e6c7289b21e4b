"""Threads, the device and random generators, which change the bits of a result; the speed of a
device.
"""

import ctypes
import hashlib
import os
import re
import sys
import time
import warnings
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator
from threadpoolctl import threadpool_limits

from lib.files.files import InputError

if TYPE_CHECKING:  # it takes a second or two to load, and what draws or judges needs none of it
    import torch

# of glibc's malloc.h
M_TRIM_THRESHOLD = -1
M_TOP_PAD = -2
M_MMAP_THRESHOLD = -3
KEPT = 1 << 30


def _named(device: str) -> str:
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise ValueError(f"wanted cpu, cuda, or the number of a GPU as in cuda:1, got {device!r}")
    return device


Device = Annotated[str, AfterValidator(_named)]


def kind_of(device: str) -> str:
    """The kind of a device, `cpu` or `cuda`, without its number."""
    return device.partition(":")[0]


def use_threads(n_threads: int) -> None:
    """Compute with `n_threads` from here on, in BLAS and in torch (if loaded), whatever the
    machine's cores.
    """
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n_threads)
    threadpool_limits(n_threads)


def keep_freed_memory() -> bool:
    """Keep up to `KEPT` bytes of freed memory for later use; where the C library is not glibc, do
    nothing and return False.

    Otherwise glibc gives large blocks back to the system, every use of a new block faults, and a
    training whose temporary tensors have megabytes spends a quarter of its time on page faults.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    options = {M_MMAP_THRESHOLD: KEPT, M_TRIM_THRESHOLD: KEPT, M_TOP_PAD: KEPT >> 4}
    return all(mallopt(option, value) == 1 for option, value in options.items())


def use_device(name: str, deterministic: bool = False) -> "torch.device":
    """The torch device of that name; raises `InputError` where this machine has none.

    `deterministic` makes a GPU give the same bits each time, at a cost: matrix products get a fixed
    workspace, and torch raises an error for an operation that has no such way. A CPU gives the same
    bits anyway.
    """
    import torch

    with warnings.catch_warnings():  # what torch warns of is said here
        warnings.simplefilter("ignore")
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise InputError(f"device: wanted {name}, got {_why_no_gpu()}")
    device = torch.device(name)
    if device.type == "cuda":
        n = torch.cuda.device_count()
        if (device.index or 0) >= n:
            raise InputError(f"device: wanted {name}, got a machine of {n} GPUs")
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
            torch.use_deterministic_algorithms(True)
    return device


def _why_no_gpu() -> str:
    """The reason why torch has no GPU, as far as torch says it."""
    import torch

    if torch.version.cuda is None:
        return "a torch made for the CPU alone, which sees no GPU"
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        found = re.search(r"driver.*too old.*found version (\d+)", str(error), re.DOTALL)
        if found:
            driver = f"{int(found[1]) // 1000}.{int(found[1]) % 1000 // 10}"
            newer = f"older than CUDA {torch.version.cuda}, for which this torch is made"
            return (
                f"a driver for CUDA {driver}, {newer}: install a newer driver, or a torch "
                f"made for CUDA {driver}"
            )
    return "a machine on which torch sees no GPU"


def generator(seed: int, *purpose: str | int) -> "torch.Generator":
    """The random generator of a seed for a named purpose, e.g. `generator(0, "epoch", 3)`."""
    import torch

    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def matmul_rate(device: "torch.device", dtype: "torch.dtype", size: int) -> float:
    """The floating-point operations per second of a square matrix product on this device, as
    measured in a moment.
    """
    import torch

    A, B = torch.randn(2, size, size, device=device).to(dtype)
    times = []
    for _ in range(6):
        begin = time.perf_counter()
        torch.mm(A, B)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return 2 * size**3 / min(times)
