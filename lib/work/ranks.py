"""Several processes that compute one training together: ranks, as torchrun starts them.

The environment's `LAB_RANKS` says how many they are, and not params.yaml, as no bit of a result
depends on it. The first rank alone reads and writes files that are kept, and prints.
"""

import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from lib.files.files import InputError
from lib.training.devices import kind_of
from lib.work.errors import StoppedError
from lib.work.ray_workers import WORKERS, cluster
from lib.work.signals import kill_with_parent

RANKS = "LAB_RANKS"
# How long a rank waits for another, which may be scoring, before all end.
LONGEST = timedelta(minutes=10)

Value = TypeVar("Value")


def is_rank() -> bool:
    """Whether torchrun has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def n_ranks() -> int:
    """The number of ranks that compute together; 1 where this process computes alone."""
    return int(os.environ["WORLD_SIZE"]) if is_rank() else 1


def n_ranks_here() -> int:
    """The number of these ranks on this machine."""
    return int(os.environ["LOCAL_WORLD_SIZE"]) if is_rank() else 1


def rank() -> int:
    """The number of this process among the ranks; 0 where it computes alone."""
    return int(os.environ["RANK"]) if is_rank() else 0


def is_first() -> bool:
    """Whether this process is the first rank, or computes alone."""
    return rank() == 0


def launch(n_parts: int, device: str) -> bool:
    """Let as many ranks as `LAB_RANKS` says run this program, and wait for them; return False where
    this process is to compute itself.

    Raises `InputError` for a number that does not divide `n_parts`, for a device that ranks cannot
    share, or for a cluster besides, and `StoppedError` where a rank has ended early; by then all
    have ended.
    """
    n = n_ranks() if is_rank() else _wanted()
    if n == 1:
        return False
    if n_parts % n:
        raise InputError(f"{RANKS}: wanted a divisor of the param parts, {n_parts}, got {n}")
    if device not in ("cpu", "cuda"):
        raise InputError(f"device: wanted cpu or cuda for {n} ranks, got {device}")
    if cluster(os.environ.get(WORKERS, "")):
        raise InputError(f"{RANKS}: wanted no {WORKERS} beside it, got {os.environ[WORKERS]!r}")
    if is_rank():
        return False
    _run(n)
    return True


def _wanted() -> int:
    """The number that `LAB_RANKS` says."""
    said = os.environ.get(RANKS) or "1"
    if not said.isdecimal() or int(said) < 1:
        raise InputError(f"{RANKS}: wanted a number of processes, got {said!r}")
    return int(said)


def _run(n: int) -> None:
    """Run this program as `n` ranks of this machine.

    torchrun's own code runs in this process, so that the ranks end with the stage that DVC started.
    """
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    program = sys.modules["__main__"].__spec__
    if program is None:
        raise InputError(f"{RANKS}: wanted a program that `python -m` runs, got {sys.argv[0]}")
    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # otherwise torchrun sets it, and warns; params may say more
    options = ["--standalone", "--max-restarts=0", f"--nproc-per-node={n}"]
    try:
        run.main([*options, f"--log-dir={os.devnull}", "-m", program.name, *sys.argv[1:]])
    except ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        # torchrun ends the others by SIGTERM
        by_itself = [rank for rank, code in codes.items() if code != -signal.SIGTERM]
        ended = [f"rank {rank} {_end(codes[rank])}" for rank in by_itself or codes]
        said = f"{', '.join(ended)}: all {n} ranks have ended; what is kept stays in scratch"
        raise StoppedError(said) from error
    except SignalException as error:
        if error.sigval == signal.SIGINT:
            raise KeyboardInterrupt from error
        raise StoppedError(f"ended by {error.sigval.name}, and {n} ranks with it") from error


def _end(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def join(device: str) -> None:
    """Meet the other ranks, where there are any; all are here when this returns."""
    if not is_rank():
        return
    import torch
    import torch.distributed as dist

    kill_with_parent()  # torchrun that is killed leaves its ranks alone
    cuda = kind_of(device) == "cuda"
    if cuda:
        torch.cuda.set_device(own_device(device))
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=LONGEST)


def leave() -> None:
    """Leave the other ranks at the end, where there are any."""
    if is_rank():
        import torch.distributed as dist

        dist.destroy_process_group()


def own_device(device: str) -> str:
    """The device of this rank: where there are several GPUs, each rank has its own."""
    return f"cuda:{os.environ['LOCAL_RANK']}" if is_rank() and device == "cuda" else device


def of_first(compute: Callable[[], Value]) -> Value:
    """The value that the first rank computes, in every rank."""
    value = compute() if is_first() else None
    if not is_rank():
        return value  # type: ignore[return-value]
    import torch.distributed as dist

    values: list[Any] = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]
