"""What nobody has used for a month leaves scratch; what is used, is new, or came over the network
stays.
"""

import os
import time

from filelock import FileLock

from lib.work.scratch import Scratch
from tools.scratch import forget

DAY = 86400


def cell(root, stage, age):
    """A cell that was used so many days ago."""
    with Scratch(stage, {"age": age}, root) as scratch:
        (scratch.folder / "table").write_bytes(b"12345")
    lock = scratch.folder.with_suffix(".lock")
    os.utime(lock, (time.time() - age * DAY,) * 2)
    return scratch.folder


def test_only_what_was_not_used_for_so_long_is_removed(tmp_path):
    cells = [("one", 31), ("one", 29), ("downloads", 99)]
    folders = [cell(tmp_path, *one) for one in cells]
    assert forget(tmp_path, 30) == (1, 5)
    assert [folder.exists() for folder in folders] == [False, True, True]
    assert forget(tmp_path, 30) == (0, 0)


def test_a_cell_that_is_read_counts_as_used(tmp_path):
    folder = cell(tmp_path, "one", 31)
    with Scratch("one", {"age": 31}, tmp_path):
        pass
    assert forget(tmp_path, 30) == (0, 0)
    assert folder.exists()


def test_a_cell_that_is_in_use_stays(tmp_path):
    folder = cell(tmp_path, "one", 31)
    lock = folder.with_suffix(".lock")
    with FileLock(lock):
        os.utime(lock, (0, 0))
        assert forget(tmp_path, 30) == (0, 0)
    assert folder.exists()
