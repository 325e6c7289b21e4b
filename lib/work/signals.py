"""The end of a process: by Ctrl-C, and with the process that started it."""

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path

PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


def interrupt_at_once() -> None:
    """Let Ctrl-C end this process without a word, while it imports and has nothing to tidy up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupt_by_an_error() -> None:
    """Let Ctrl-C raise `KeyboardInterrupt` again: from here on there is something to tidy up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_interrupted() -> None:
    """End as a shell expects after Ctrl-C, and wait for nobody: workers end with this process."""
    os.write(2, b"\nerror: interrupted; what is unfinished is removed\n")
    os._exit(130)


def end_with_parent() -> None:
    """End this process when the one that started it ends, or at once if that has ended already.

    So no orphan of a killed DVC goes on and writes outputs beside the next run. DVC starts a
    command through a shell, and a shell that does not hand its process over to the command stays
    between the two: then its parent counts, too, and a thread watches it.
    """
    ancestors = _ancestors()
    if any(map(_adopts_orphans, ancestors)):
        os._exit(1)
    kill_with_parent()
    threading.Thread(target=_watch, args=(ancestors,), daemon=True).start()


def kill_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, if the system is Linux."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def end_worker_with_parent() -> None:
    """End this worker when the process that asked for it ends, whether or not it is its parent."""
    threading.Thread(target=_wait_for_parent, daemon=True).start()


def _wait_for_parent() -> None:
    import multiprocessing
    from multiprocessing import connection

    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _ancestors() -> list[int]:
    """The parent, and its own parent if Linux says that the parent is a shell for one command."""
    parent = os.getppid()
    try:
        *_, option, _command, _end = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        status = Path(f"/proc/{parent}/stat").read_text()
    except (OSError, ValueError):
        return [parent]
    name, _, fields = status.partition("(")[2].rpartition(") ")
    is_shell = name.endswith("sh") and option == b"-c"
    return [parent, int(fields.split()[1])] if is_shell else [parent]


def _adopts_orphans(parent: int) -> bool:
    """Whether a process adopts orphans, as init and a user's systemd do, and is no true parent."""
    if parent == 1:  # in a container that may be DVC, which leads the group of its stages
        return os.getpgid(1) != os.getpgrp()
    try:
        return Path(f"/proc/{parent}/comm").read_text() == "systemd\n"
    except OSError:
        return False


def _watch(ancestors: list[int]) -> None:
    while _ancestors() == ancestors:
        time.sleep(0.2)
    os._exit(1)
