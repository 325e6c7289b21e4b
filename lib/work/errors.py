"""The errors that end a program in one line: bad input, lost workers, an edit, a poor machine."""

import errno
import resource
import sys
from collections.abc import Sequence
from typing import Any

from lib.files.files import InputError

ROOM = "room to write, got none"
PERMISSION = "the permission for it"
FILES = "more open files (`ulimit -n` says how many)"
WANTED = {  # what the machine lacks, by the error that it gave
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EFBIG: ROOM,
    errno.EROFS: "a disk that can be written to",
    errno.EACCES: PERMISSION,
    errno.EPERM: PERMISSION,
    errno.ENOTDIR: "a folder, where a file is",
    errno.EEXIST: "a folder, where a file is",
    errno.EISDIR: "a file, where a folder is",
    errno.ENOLCK: "a disk on which files can be locked",
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
    errno.EAGAIN: "more processes (`ulimit -u` says how many)",
    errno.ENOMEM: "more memory",
    errno.EIO: "a disk without faults",
}


OWN = ("benchmarks", "lib", "published", "stages", "tests", "tools")
WITHOUT_MEMORY = (  # what torch and the loader of libraries say where memory is short
    "can't allocate memory",
    "cannot allocate memory: ",
    "cannot map zero-fill pages",
    "failed to map segment from shared object",
)
TO_LOAD = 1.25  # GiB of address space: what the libraries take, measured, and a fifth more


class StoppedError(RuntimeError):
    """The reason why work has ended, in one line, where neither code nor input is at fault."""


def stop_where_changed(names: Sequence[str]) -> None:
    """Raise `StoppedError` if there are names of files that have changed."""
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise StoppedError(f"{', '.join(names[:3])}{more} changed while this ran: run it again")


def in_one_line(error: Exception) -> str | None:
    """The line that a program prints for an error; None for a fault of ours, which ends with a
    traceback.
    """
    if isinstance(error, InputError | StoppedError):
        return str(error)
    if "gloo/transport" in str(error) or type(error).__name__ == "DistBackendError":
        return "another rank has ended, or did not answer for long"
    said = lacking(error)
    return f"{said}; what is unfinished is removed" if said else None


def lacking(error: BaseException) -> str | None:
    """What this machine lacks, according to an error; None if the error is of another kind."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in WANTED:
        return f"{text}: wanted {WANTED[error.errno]}"
    kind = type(error).__name__  # torch's error has no type of its own on a CPU
    of_memory = isinstance(error, MemoryError) or kind == "OutOfMemoryError"
    if of_memory or any(said in text for said in WITHOUT_MEMORY):
        return f"{text[:300] or kind}: wanted {WANTED[errno.ENOMEM]}"
    return None


def say_in_one_line_what_imports_lack() -> None:
    """Have an import end this process with one line, where memory or a package is what it lacks.

    Under a limit that is too small to load the libraries this process ends at once: where memory
    ends in the middle of a library, that library decides what is said, and some say nothing.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < TO_LOAD * 2**30:
        sys.exit(
            f"error: wanted at least {TO_LOAD} GiB of memory to load the libraries, "
            f"got a limit of {limit / 2**30:.3g} (`ulimit -v`)"
        )

    def say(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        said = lacking(error) or absent(error)
        if said is None:
            sys.__excepthook__(kind, error, trace)
        else:
            print(f"error: {said}", file=sys.stderr)

    sys.excepthook = say


def absent(error: BaseException) -> str | None:
    """Which package an import did not find; None where it is a module of ours, or another error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    package = error.name.partition(".")[0]
    if package in OWN:
        return None
    return (
        f"wanted the package {package}, got none in {sys.prefix}: activate .venv, or let `make` "
        "make it whole"
    )
