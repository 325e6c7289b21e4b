"""How a stage starts and ends: with its parent, on a typed command line, in one line for bad input
or a poor machine.

`stages/__init__.py` imports this before anything else is imported: what it needs at once must load
at once.
"""

import ctypes
import errno
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from lib.files.files import InputError
from lib.files.sources import changed

OutFile = Annotated[Path, "a file that is written"]
OutFolder = Annotated[Path, "a folder that is written"]

PR_SET_PDEATHSIG = 1  # of Linux's prctl.h
PATIENCE = 3.0  # seconds after Ctrl-C in which a long computation may still tidy up

ROOM, PERMISSION, FILES = (
    "room to write, got none",
    "the permission for it",
    "more open files (`ulimit -n` says how many)",
)
WANTED = {  # of the machine, by the error that it gave
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


class StoppedError(RuntimeError):
    """Why the work has ended, whole in one line: no fault of the code or of what came in, such as a
    lost worker.
    """


def stop_where_changed(names: Sequence[str]) -> None:
    """Raise `StoppedError` where something has changed, as `changed` or `changed_code` say."""
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise StoppedError(f"{', '.join(names[:3])}{more} changed while this ran: run it again")


def run(main: Callable[..., Any], *, environment: bool = False) -> None:
    """Run `main` on the command line's arguments, as its signature types them: a text, a number, a
    path or paths.

    A path that `main` writes is an `OutFile` or an `OutFolder`, also several; every other is read,
    where it is there.

    A parameter with a default is an option, `--name`. With `environment`, what is not given there
    is taken from the variable of its name in capitals, where that is not empty; what is in neither
    ends with one line, which shows the `make` command of the module's docstring.

    Before `main` begins, data sets that are read are verified (`verify`), and what is to be written
    is tried: the place of each path that is written, or that is not there yet. Bad input
    (`InputError`), lost workers (`StoppedError`), what the machine lacks (`WANTED`) and Ctrl-C end
    the process with one line; everything else, a fault of ours, with a traceback.
    """
    import argparse
    import inspect
    import re

    from lib.files.inputs import verify

    if (
        not gc.isenabled()
    ):  # by `stages/__init__.py`, while a stage imported; that is never looked through again
        gc.freeze()
        gc.enable()
    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    parameters = inspect.signature(main, eval_str=True).parameters
    for name, parameter in parameters.items():
        several, kind = get_origin(parameter.annotation) is list, parameter.annotation
        while get_args(kind):  # of list[Path], of an OutFile
            kind = get_args(kind)[0]
        given = (environment and os.environ.get(name.upper())) or None
        if parameter.default is parameter.empty:
            parser.add_argument(
                name,
                type=kind,
                nargs="+" if several else "?" if environment else None,
                default=given,
            )
        else:
            parser.add_argument(
                f"--{name.replace('_', '-')}", type=kind, default=given or parameter.default
            )
    arguments = vars(parser.parse_args())
    wanted = [
        name for name, parameter in parameters.items() if parameter.default is parameter.empty
    ]
    if missing := [name.upper() for name in wanted if arguments[name] is None]:
        example = re.search(r"`make [^`]+`", inspect.getmodule(main).__doc__ or "")
        sys.exit(
            f"error: wanted {' and '.join(missing)}, got none; for example {example and example[0]}"
        )
    try:
        with _interruptible():
            for name, value in arguments.items():
                kind = parameters[name].annotation
                if kind == list[OutFolder]:
                    for path in value:
                        _try_to_write(path, OutFolder)
                    continue
                if isinstance(value, Path) and (kind in (OutFile, OutFolder) or not value.exists()):
                    _try_to_write(value, kind)
                    continue
                if parameters[name].default is not inspect.Parameter.empty:
                    continue  # an option, such as a project, is no data set
                for path in [value] if isinstance(value, Path) else _paths(value):
                    verify(path)
            main(**arguments)
            kinds = [parameter.annotation for parameter in parameters.values()]
            if any(kind in (OutFile, OutFolder, list[OutFolder]) for kind in kinds):
                stop_where_changed(
                    changed()
                )  # DVC would record what is there now as what made the outputs
    except KeyboardInterrupt:
        _end_interrupted()
    except (InputError, StoppedError) as error:
        sys.exit(f"error: {error}")
    except Exception as error:
        if said := lacking(error):
            sys.exit(f"error: {said}; what is unfinished is removed")
        raise


def lacking(error: BaseException) -> str | None:
    """What this machine lacks, as an error says it, on one line; None where the error is of another
    kind.
    """
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in WANTED:
        return f"{text}: wanted {WANTED[error.errno]}"
    kind = type(error).__name__  # torch's has no type of its own on a CPU
    if (
        isinstance(error, MemoryError)
        or kind == "OutOfMemoryError"
        or "can't allocate memory" in text
    ):
        return f"{text[:300] or kind}: wanted {WANTED[errno.ENOMEM]}"
    return None


def _paths(value: Any) -> list[Path]:
    """The files that a list or a text names; a text may be a file beside other things, also one
    that a user has made.

    So a safetensors file that is given as a text need not have the digest of a data set.
    """
    if isinstance(value, str):
        file = Path(value)
        return (
            [file] if os.sep in value and file.suffix != ".safetensors" and file.is_file() else []
        )
    return [path for path in map(Path, value if isinstance(value, list) else []) if path.is_file()]


def _try_to_write(path: Path, kind: Any) -> None:
    """Raise what writing there will raise; nothing is left. Files are replaced as wholes
    (`atomic`), so that their folder alone must be one to write in; in a folder that is there, all
    of its folders.
    """
    if kind == OutFile and path.is_dir():
        raise InputError(f"{path}: wanted a file to write, got a folder")
    if kind == OutFolder and path.exists() and not path.is_dir():
        raise InputError(f"{path}: wanted a folder to write in, got a file")
    first = (
        path
        if path.is_dir()
        else next(place for place in path.absolute().parents if place.exists())
    )
    if not first.is_dir():
        raise InputError(f"{path}: wanted a folder to write in, got the file {first}")
    inside = (
        [one for one in first.rglob("*") if one.is_dir() and not one.is_symlink()]
        if first == path
        else []
    )
    for place in (first, *inside):
        probe = place / f".{path.name[:99]}.{os.getpid()}.part"
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        probe.unlink()


def interrupt_at_once() -> None:
    """Have Ctrl-C end this process without a word, until `run` begins: it imports, and has nothing
    to tidy up.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def _interruptible() -> Iterator[None]:
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
                _end_interrupted()

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


def _end_interrupted() -> None:
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
