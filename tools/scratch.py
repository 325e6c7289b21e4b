"""Remove from scratch what nobody has used for a month: a part of `make repro`.

Downloads stay, and so does whatever is in use.

A cell is used when its lock is taken, which renews the time of the lock's file. That empty file
stays.
"""

import shutil
import time
from pathlib import Path

from filelock import FileLock, Timeout

from lib.work.command import run
from lib.work.scratch import scratch_root

STAYS = "downloads"


def main(days: float = 30) -> None:
    """Say how many cells were removed, and how large they were."""
    n, n_bytes = forget(scratch_root(), days)
    if n:
        print(
            f"{n} cells of scratch ({n_bytes / 1e6:.0f} MB) had not been used for {days:g} days, "
            "and are removed"
        )


def forget(root: Path, days: float) -> tuple[int, int]:
    """Remove the cells that were not used for so many days; return their number and their bytes."""
    n = n_bytes = 0
    for lock in sorted(root.glob("*/*.lock")):
        folder = lock.with_suffix("")
        if lock.parent.name == STAYS or not folder.is_dir():
            continue
        if time.time() - lock.stat().st_mtime < 86400 * days:
            continue
        try:
            with FileLock(lock, timeout=0):
                n += 1
                n_bytes += sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
                shutil.rmtree(folder)
        except Timeout:
            continue
    return n, n_bytes


if __name__ == "__main__":
    run(main)
