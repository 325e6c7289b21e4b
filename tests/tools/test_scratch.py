"""What nobody has used for a month leaves scratch; what is used, is new, or came over the network
stays.
"""

import os
import time

import pytest
from filelock import FileLock

from lib.work.scratch import Scratch
from tools import scratch
from tools.scratch import day_of, forget, look

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


@pytest.fixture
def clock(monkeypatch):
    """A clock of scratch that shows a day from today on."""
    begin = time.time()

    def shows(day):
        monkeypatch.setattr(scratch.time, "time", lambda: begin + day * DAY)

    return shows


def after_a_run(root, day, clock):
    clock(day)
    return forget(root, 30, look(root))[0]


def test_a_clock_that_is_wrong_for_an_evening_removes_nothing(tmp_path, clock):
    assert after_a_run(tmp_path, -1, clock) == 0
    folder = cell(tmp_path, "one", 0)
    evening = [0, 1, 2, 3, 40, 40, 41, 41, 4, 5]  # days ahead by mistake, past midnight, then right
    assert [after_a_run(tmp_path, day, clock) for day in evening] == [0] * len(evening)
    assert folder.exists()
    assert [after_a_run(tmp_path, day, clock) for day in (30, 31, 32, 33)] == [0, 0, 1, 0]


def test_a_clock_that_showed_a_day_long_ago_removes_nothing_once_it_is_right(tmp_path, clock):
    assert after_a_run(tmp_path, 0, clock) == 0
    folder = cell(tmp_path, "one", 20_000)
    assert [after_a_run(tmp_path, day, clock) for day in range(1, 9)] == [0] * 8
    assert folder.exists()


def test_what_was_not_used_is_removed_by_who_comes_back_after_a_month_on_the_third_day(
    tmp_path, clock
):
    assert after_a_run(tmp_path, -1, clock) == 0
    cell(tmp_path, "one", 0)
    assert [after_a_run(tmp_path, day, clock) for day in (40, 41, 42)] == [0, 0, 1]


def test_days_that_are_noted_and_cannot_be_read_are_begun_anew(tmp_path):
    for content in ("{", "3", "[1, 2", ""):
        (tmp_path / scratch.LOOKED).write_text(content)
        assert look(tmp_path) == [day_of(time.time())]
