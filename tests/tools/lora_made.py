"""A folder in which the stages of `make lora` run in this process: what processes of their own do
is one slow test.
"""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import lora


@contextmanager
def working_in(kept, at):
    """A copy of a folder to work in."""
    with pytest.MonkeyPatch.context() as patch:
        shutil.copytree(kept, at)
        patch.chdir(at)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        yield at


def run(text="my.txt", base="base", tuned="tuned", out="out", **options):
    """The page."""
    lora.main(Path(base), Path(tuned), Path(out), text, **options)
    return Path(out, "page.html").read_text()
