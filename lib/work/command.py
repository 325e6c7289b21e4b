"""How a program starts and ends: a typed command line, and one line for what went wrong."""

import argparse
import errno
import gc
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from lib.files.files import InputError
from lib.files.inputs import verify
from lib.files.sources import changed, forget
from lib.work.process import end_interrupted, interruptible

OutFile = Annotated[Path, "a file that is written"]
OutFolder = Annotated[Path, "a folder that is written"]

ROOM = "room to write, got none"
PERMISSION = "the permission for it"
FILES = "more open files (`ulimit -n` says how many)"
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
    """Run `main` on the command line's arguments, as its signature types them: texts, numbers,
    paths.

    A path that `main` writes is an `OutFile` or an `OutFolder`, also several; every other is read,
    where it is there. A parameter with a default is an option, `--name`. With `environment`, what
    is not given there is taken from the variable of its name in capitals.

    Before `main` begins, data sets that are read are verified, and what is to be written is tried.
    Bad input (`InputError`), lost workers (`StoppedError`), what the machine lacks (`WANTED`) and
    Ctrl-C end the process with one line. Everything else, a fault of ours, ends it with a
    traceback.
    """
    if not gc.isenabled():  # by `stages/__init__.py`, while a stage imported
        gc.freeze()
        gc.enable()
    parameters = inspect.signature(main, eval_str=True).parameters
    arguments = _arguments(main, parameters, environment)
    try:
        with interruptible():
            forget()
            for name, value in arguments.items():
                _check(value, parameters[name])
            main(**arguments)
            if any(_is_out(parameter) for parameter in parameters.values()):
                # DVC would record what is there now as what made the outputs.
                stop_where_changed(changed())
    except KeyboardInterrupt:
        end_interrupted()
    except (InputError, StoppedError) as error:
        sys.exit(f"error: {error}")
    except Exception as error:
        said = lacking(error)
        if said:
            sys.exit(f"error: {said}; what is unfinished is removed")
        raise


def _arguments(
    main: Callable[..., Any], parameters: Mapping[str, inspect.Parameter], environment: bool
) -> dict[str, Any]:
    """The arguments of the command line, or of the environment; ends where one is missing.

    The line then shows the `make` command of the module's docstring.
    """
    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    for name, parameter in parameters.items():
        kind = parameter.annotation
        several = get_origin(kind) is list
        while get_args(kind):  # of list[Path], of an OutFile
            kind = get_args(kind)[0]
        given = (environment and os.environ.get(name.upper())) or None
        if _is_option(parameter):
            option = f"--{name.replace('_', '-')}"
            parser.add_argument(option, type=kind, default=given or parameter.default)
        else:
            number = "+" if several else "?" if environment else None
            parser.add_argument(name, type=kind, nargs=number, default=given)
    arguments = vars(parser.parse_args())
    missing = [
        name.upper()
        for name, parameter in parameters.items()
        if arguments[name] is None and not _is_option(parameter)
    ]
    if missing:
        example = re.search(r"`make [^`]+`", inspect.getmodule(main).__doc__ or "")
        shown = f"; for example {example[0]}" if example else ""
        sys.exit(f"error: wanted {' and '.join(missing)}, got none{shown}")
    return arguments


def _check(value: Any, parameter: inspect.Parameter) -> None:
    """Try the place of what is written or is not there yet; verify the files that are read."""
    paths = value if isinstance(value, list) else [value]
    if _is_out(parameter):
        kind = OutFile if parameter.annotation == OutFile else OutFolder
        for path in paths:
            _try_to_write(path, kind)
    elif isinstance(value, Path) and not value.exists():
        _try_to_write(value, parameter.annotation)
    elif not _is_option(parameter):  # an option, such as a project, is no data set
        for path in [value] if isinstance(value, Path) else _paths(value):
            verify(path)


def _is_option(parameter: inspect.Parameter) -> bool:
    return parameter.default is not inspect.Parameter.empty


def _is_out(parameter: inspect.Parameter) -> bool:
    return parameter.annotation in (OutFile, OutFolder, list[OutFolder])


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
