"""How a stage starts and ends: with its parent, on a typed command line, in one line for bad input or a full disk.

`stages/__init__.py` imports this before anything else is imported: what it needs at once must load at once.
"""

import ctypes
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lib.io.files import InputError

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


def run(main: Callable[..., Any]) -> None:
    """Run `main` on the command line's arguments, as its signature types them.

    Bad input (`InputError`) and a full disk end the process with one line; everything else, a fault of ours, with a
    traceback.
    """
    import typer

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


def end_with_parent() -> None:
    """End this process when the one that started it ends, at once where it has ended already.

    So no orphan of a killed DVC goes on, and writes outputs beside the next run.
    """
    parent = os.getppid()
    if _adopts_orphans(parent):
        os._exit(1)
    if kill_with_parent():
        if os.getppid() != parent:  # it ended before the kernel was asked
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def kill_with_parent() -> bool:
    """Have the kernel kill this process when its parent ends; False where the system is not Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform.startswith("linux") else None
    return prctl is not None and prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def _adopts_orphans(parent: int) -> bool:
    """Whether that process started nothing here: it is the init, or a user's systemd, to which orphans fall."""
    if parent == 1:
        return os.getpgid(1) != os.getpgrp()  # as the first process of a container, DVC leads the group of its stages
    try:
        return Path(f"/proc/{parent}/comm").read_text() == "systemd\n"
    except OSError:
        return False


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)
