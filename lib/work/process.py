"""This process: it ends with the one that started it, and on Ctrl-C with one line.

`stages/__init__.py` imports this before anything else is imported: what it needs at once must load
at once.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
PATIENCE = 3.0  # seconds after Ctrl-C in which a long computation may still tidy up


def interrupt_at_once() -> None:
    """Have Ctrl-C end this process without a word, until `run` begins: it imports, and has nothing
    to tidy up.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Ctrl-C raise `KeyboardInterrupt`, and end this process where nothing comes of that in a
    while.

    Python raises it when a call into C returns, which may take minutes; a thread waits beside.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def wait() -> None:
        while told := os.read(reader, 1)[0]:  # the number of the signal; zero once `main` has ended
            if told == signal.SIGINT and not ended.wait(PATIENCE):
                end_interrupted()

    ended = threading.Event()
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        ended.set()
        os.write(writer, b"\0")
        waiting.join()
        os.close(writer)
        os.close(reader)


def end_interrupted() -> None:
    """End as a shell expects it of Ctrl-C, and wait for nobody: workers end with this process."""
    os.write(2, b"\nerror: interrupted; what is unfinished is removed\n")
    os._exit(130)


def refuse_shallow_clone() -> None:
    """End with one line where DVC runs an experiment in a folder of its own, begun in a shallow
    clone.

    DVC saves no experiment there (`exp run --temp` or `--queue`), and says so nowhere.
    """
    root = os.environ.get("DVC_ROOT", "")
    if (
        "DVC_EXP_NAME" in os.environ
        and not Path(root).samefile(".")
        and Path(root, ".git", "shallow").exists()
    ):
        sys.exit(
            "error: wanted a clone with its history for an experiment in a folder of its own, "
            "got the shallow clone "
            f"{root}, in which DVC saves none: run `git fetch --unshallow` first, or leave out "
            "--temp"
        )


def end_with_parent() -> None:
    """End this process when the one that started it ends, at once where it has ended already.

    So no orphan of a killed DVC goes on, and writes outputs beside the next run. DVC starts a
    command through a shell, and one that does not hand its process over to the command stays
    between the two: then its parent counts too.
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
    """Have the kernel kill this process when its parent ends; False where the system is not
    Linux.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform.startswith("linux") else None
    return prctl is not None and prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) == 0


def _ancestors() -> list[int]:
    """The parent, and its parent too where it is a shell that runs one command (on Linux, which
    tells what it is).
    """
    parent = os.getppid()
    try:
        *_, option, _command, _end = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        name, _, fields = (
            Path(f"/proc/{parent}/stat").read_text().partition("(")[2].rpartition(") ")
        )
    except (OSError, ValueError):
        return [parent]
    return [parent, int(fields.split()[1])] if name.endswith("sh") and option == b"-c" else [parent]


def _adopts_orphans(parent: int) -> bool:
    """Whether that process started nothing here: it is the init, or a user's systemd, to which
    orphans fall.
    """
    if parent == 1:
        return (
            os.getpgid(1) != os.getpgrp()
        )  # as the first process of a container, DVC leads the group of its stages
    try:
        return Path(f"/proc/{parent}/comm").read_text() == "systemd\n"
    except OSError:
        return False


def _watch(ancestors: list[int]) -> None:
    while _ancestors() == ancestors:
        time.sleep(0.2)
    os._exit(1)
