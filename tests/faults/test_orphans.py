"""A stage ends when the DVC that started it does, at any moment, also while it imports; no orphan
trains on.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from lib.work import signals
from tests.faults.harness import alive, until
from tests.pipeline.project import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows gives an orphan no other parent"
)

# A package in the place of torch that says that the stage imports it, and takes a minute.
SLOW = "import pathlib, time; pathlib.Path(__file__).with_name('importing').touch(); time.sleep(60)"
# In the place of DVC: starts a stage as DVC does, through a shell, says its process, and waits or
# ends.
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen(["/bin/sh", "-c", sys.argv[1]], env={**os.environ, **eval(sys.argv[2])})
print(child.pid, flush=True)
time.sleep(float(sys.argv[3]))
"""
STAGE = f"exec {sys.executable} -m stages.vision.train --section=any --runs=runs"


@pytest.fixture
def importing(tmp_path) -> Path:
    """A file that is there once the stage imports torch."""
    (tmp_path / "torch.py").write_text(SLOW)
    return tmp_path / "importing"


def start(
    importing: Path, shell: str = STAGE, waits: float = 60, **variables: str
) -> tuple[subprocess.Popen, int]:
    """A parent that started a stage, and the stage's process."""
    path = os.pathsep.join([str(importing.parent), str(ROOT)])
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DVC_")}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, shell, repr({"PYTHONPATH": path, **variables}), str(waits)],
        env=inherited,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    return parent, int(parent.stdout.readline())


@contextmanager
def started(importing: Path, *arguments, **variables) -> Iterator[tuple[subprocess.Popen, int]]:
    """The same as `start`; afterwards nothing is left of it."""
    parent, stage = start(importing, *arguments, **variables)
    try:
        yield parent, stage
    finally:
        if alive(stage):
            os.kill(stage, signal.SIGKILL)
        parent.kill()
        parent.communicate()


BESIDE = f"{STAGE.removeprefix('exec ')}; true"  # the shell stays beside its command
WATCHED = """
from lib.work import signals
signals.kill_with_parent = lambda: None
signals.end_with_parent()
import torch
"""


@pytest.mark.parametrize(
    "shell",
    [STAGE, BESIDE, f"exec {sys.executable} -c '{WATCHED}'"],
    ids=["alone", "beside a shell", "where the kernel does not tell, a thread looks"],
)
def test_a_stage_whose_dvc_is_killed_while_it_imports_ends(importing, shell):
    with started(importing, shell, DVC_ROOT="here") as (parent, stage):
        assert until(importing.exists, 60)
        below = psutil.Process(stage).children()
        parent.kill()
        for process in (stage, *(child.pid for child in below)):
            assert until(lambda process=process: not alive(process), 5)


@pytest.mark.parametrize("shell", [f"sleep 1; {STAGE}", f"sleep 1; {BESIDE}"])
def test_a_stage_whose_dvc_is_gone_before_it_begins_does_not_begin(shell, importing):
    with started(importing, shell, 0, DVC_ROOT="here") as (parent, stage):
        parent.wait(10)
        assert until(lambda: not alive(stage), 10)
        assert not importing.exists()


def test_a_stage_that_a_person_started_goes_on_without_its_shell(importing):
    with started(importing) as (parent, stage):
        assert until(importing.exists, 60)
        parent.kill()
        assert not until(lambda: not alive(stage), 1)


@pytest.mark.parametrize(
    ("group", "adopts"), [(7, True), (3, False)], ids=["an init", "DVC in a container"]
)
def test_the_first_process_is_no_parent_unless_it_leads_our_group(group, adopts, monkeypatch):
    monkeypatch.setattr(os, "getpgid", lambda pid: {1: group}[pid])
    monkeypatch.setattr(os, "getpgrp", lambda: 3)
    assert signals._adopts_orphans(1) is adopts
