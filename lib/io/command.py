"""How a stage starts and ends: a typed command line, plain tracebacks, one line for bad input or a full disk."""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import typer

from lib.io.files import InputError


def run(main: Callable[..., Any]) -> None:
    """Run `main` on the command line's arguments, as its signature types them.

    Bad input (`InputError`) and a full disk end the process with one line; everything else, a fault of ours, with a
    traceback. Under DVC a stage ends when DVC does, so that no orphan writes outputs beside the next run.
    """
    if "DVC_ROOT" in os.environ:
        threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    try:
        app()
    except InputError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        sys.exit(f"error: {error}: wanted room to write, got none; what is unfinished is removed")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
