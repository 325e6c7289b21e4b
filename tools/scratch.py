"""Remove from scratch what nobody has used for a month: a part of `make repro`.

Downloads stay, and so does whatever is in use.

A cell is used when its lock is taken, which renews the time of the lock's file. That empty file
stays. A clock may be wrong: `make repro` notes the days on which it looked, and removes a cell once
it has found it unused for a month on several of them.
"""

import json
import os
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from lib.files.files import atomic
from lib.work.command import run
from lib.work.scratch import scratch_root

STAYS = "downloads"
LOOKED = "looked.json"  # the days on which `make repro` looked
LOOKS = 3  # on so many days: a clock that is wrong for an evening shows two at most
DAYS = 30.0


def main(days: float = DAYS) -> None:
    """Remove what was not used for this number of days, by the clock as it is."""
    say(*forget(scratch_root(), days), days)


def after_a_run() -> None:
    """Remove what was not used for a month, as `make repro` has found on several days."""
    root = scratch_root()
    say(*forget(root, DAYS, look(root)), DAYS)


def say(n: int, n_bytes: int, days: float) -> None:
    """Say how many cells went, and how large they were."""
    if n:
        print(
            f"{n} cells of scratch ({n_bytes / 1e6:.0f} MB) had not been used for {days:g} days, "
            "and are removed"
        )


def look(root: Path) -> list[str]:
    """Note today in the folder, and return all days that are noted there, except days that are
    still to come.
    """
    file = root / LOOKED
    try:
        noted = [str(day) for day in json.loads(file.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        noted = []
    today = day_of(time.time())
    days = sorted({*(day for day in noted if day < today), today})
    with atomic(file) as part:
        part.write_text(json.dumps(days), encoding="utf-8")
    return days


def day_of(seconds: float) -> str:
    """The day of a time, as 2026-01-31."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def forget(root: Path, days: float, looked: Sequence[str] | None = None) -> tuple[int, int]:
    """Remove the cells that were not used for this number of days; return their number and bytes.

    If the days on which somebody looked are given, a cell stays until it was found unused for so
    long on several of them. One that seems to have been used before the first of them counts as
    used now.
    """
    n = n_bytes = 0
    for lock in sorted(root.glob("*/*.lock")):
        folder = lock.with_suffix("")
        if lock.parent.name == STAYS or not folder.is_dir():
            continue
        if time.time() - lock.stat().st_mtime < 86400 * days:
            continue
        if looked is not None:
            used = lock.stat().st_mtime
            if day_of(used) < looked[0]:
                os.utime(lock)
                continue
            if sum(day >= day_of(used + 86400 * days) for day in looked) < LOOKS:
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
