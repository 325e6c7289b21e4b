"""A folder in which the stages of `make lora` run in this process: what processes of their own do
is one slow test.
"""

import importlib
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools import lora


def call(stage, *arguments):
    """A stage in this process."""
    words = [str(one) for one in arguments]
    options = dict(word.removeprefix("--").split("=") for word in words if word.startswith("--"))
    named = {
        name.replace("-", "_"): int(value) if value.isdigit() else value
        for name, value in options.items()
    }
    given = [one for one in arguments if not str(one).startswith("--")]
    importlib.import_module(f"stages.checkpoints.{stage}").main(*given, **named)


@contextmanager
def working_in(kept, at):
    """A copy of a folder to work in."""
    with pytest.MonkeyPatch.context() as patch:
        shutil.copytree(kept, at)
        patch.chdir(at)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        patch.setattr(lora, "call", call)
        yield at


def run(text="my.txt", base="base", tuned="tuned", out="out", **options):
    """The page."""
    lora.main(Path(base), Path(tuned), Path(out), text, **options)
    return Path(out, "page.html").read_text()
