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
from typing import Any, get_args

from lib.io.files import InputError

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h


class StoppedError(RuntimeError):
    """Why the work has ended, whole in one line: no fault of the code or of what came in, such as a lost worker."""


def run(main: Callable[..., Any], *, environment: bool = False) -> None:
    """Run `main` on the command line's arguments, as its signature types them: a text, a number, a path or paths.

    A parameter with a default is an option, `--name`. With `environment`, what is not given there is taken from the
    variable of its name in capitals, where that is not empty.

    Bad input (`InputError`), lost workers (`StoppedError`) and a full disk end the process with one line; everything
    else, a fault of ours, with a traceback.
    """
    import argparse
    import inspect

    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    for name, parameter in inspect.signature(main, eval_str=True).parameters.items():
        several = get_args(parameter.annotation)  # of list[Path]
        kind = several[0] if several else parameter.annotation
        given = os.environ.get(name.upper()) if environment else None
        if parameter.default is parameter.empty:
            parser.add_argument(name, type=kind, nargs="+" if several else "?" if given else None, default=given)
        else:
            parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=given or parameter.default)
    arguments = vars(parser.parse_args())
    try:
        main(**arguments)
    except (InputError, StoppedError) as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        sys.exit(f"error: {error}: wanted room to write, got none; what is unfinished is removed")


def refuse_shallow_clone() -> None:
    """End with one line where DVC runs an experiment in a folder of its own, begun in a shallow clone.

    DVC saves no experiment there (`exp run --temp` or `--queue`), and says so nowhere.
    """
    root = os.environ.get("DVC_ROOT", "")
    if "DVC_EXP_NAME" in os.environ and not Path(root).samefile(".") and Path(root, ".git", "shallow").exists():
        sys.exit(
            f"error: wanted a clone with its history for an experiment in a folder of its own, got the shallow clone "
            f"{root}, in which DVC saves none: run `git fetch --unshallow` first, or leave out --temp"
        )


def end_with_parent() -> None:
    """End this process when the one that started it ends, at once where it has ended already.

    So no orphan of a killed DVC goes on, and writes outputs beside the next run. DVC starts a command through a shell,
    and one that does not hand its process over to the command stays between the two: then its parent counts too.
    """
    ancestors = _ancestors()
    if any(map(_adopts_orphans, ancestors)):
        os._exit(1)
    killed = kill_with_parent()
    if _ancestors() != ancestors:  # one ended before the kernel was asked
        os._exit(1)
    if not killed or len(ancestors) > 1:
        threading.Thread(target=_watch, args=(ancestors,), daemon=True).start()


def kill_with_parent() -> bool:
    """Have the kernel kill this process when its parent ends; False where the system is not Linux."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform.startswith("linux") else None
    return prctl is not None and prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def _ancestors() -> list[int]:
    """The parent, and its parent too where it is a shell that runs one command (on Linux, which tells what it is)."""
    parent = os.getppid()
    try:
        *_, option, _command, _end = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        name, _, fields = Path(f"/proc/{parent}/stat").read_text().partition("(")[2].rpartition(") ")
    except (OSError, ValueError):
        return [parent]
    return [parent, int(fields.split()[1])] if name.endswith("sh") and option == b"-c" else [parent]


def _adopts_orphans(parent: int) -> bool:
    """Whether that process started nothing here: it is the init, or a user's systemd, to which orphans fall."""
    if parent == 1:
        return os.getpgid(1) != os.getpgrp()  # as the first process of a container, DVC leads the group of its stages
    try:
        return Path(f"/proc/{parent}/comm").read_text() == "systemd\n"
    except OSError:
        return False


def _watch(ancestors: list[int]) -> None:
    while _ancestors() == ancestors:
        time.sleep(0.2)
    os._exit(1)
