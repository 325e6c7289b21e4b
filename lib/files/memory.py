"""Say before long work what it will take of memory and disk, and refuse what is too much."""

import os
import shutil
import sys
from pathlib import Path

from lib.files.files import InputError


def available_memory() -> int:
    """The bytes of memory that are free or can be freed, or all that there are if that is unknown.

    They are bounded by the variable MAX_MEMORY, a number of gigabytes, and by the limit of a
    container.
    """
    bounds = []
    given = os.environ.get("MAX_MEMORY")
    if given:
        try:
            bounds.append(int(1e9 * float(given)))
        except (ValueError, OverflowError) as error:
            raise InputError(f"MAX_MEMORY: wanted a number of gigabytes, got {given!r}") from error
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds.append(
            1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        )
    except (OSError, StopIteration):
        bounds.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    bounds += _limits()
    return max(0, min(bounds))


def check_memory(what: str, n_bytes: float) -> None:
    """Say what will be held in memory at once; raise `InputError` where less is free."""
    free = available_memory()
    if n_bytes > free:
        raise InputError(
            f"{what}: wanted about {n_bytes / 1e9:.3g} GB of memory, got {free / 1e9:.3g} GB free"
        )
    if n_bytes > 1e9:
        print(f"{what}: about {n_bytes / 1e9:.2g} GB of memory", file=sys.stderr, flush=True)


def check_disk(folder: Path, n_bytes: float, what: str) -> None:
    """Raise `InputError` where the disk of a folder, which need not exist yet, has less room."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if n_bytes > free:
        raise InputError(
            f"{what}: wanted {n_bytes / 1e9:.3g} GB of disk, got {free / 1e9:.3g} GB that are "
            f"free in {place}"
        )


def _limits() -> list[int]:
    """The bytes that the limits of this process's address space and of its container leave."""
    found = []
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        if limit != resource.RLIM_INFINITY:
            found.append(limit - pages * resource.getpagesize())
    except (ImportError, OSError, ValueError):
        pass
    try:
        most = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if most.isdecimal():
            found.append(int(most) - used)
    except (OSError, ValueError):
        pass
    return found
