"""The start and the end of a stage: a typed command line, and one line of error for bad input or a
poor machine.

`stages/__init__.py` imports this module before anything else: what it needs at once must load fast.
"""

import gc
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from lib.files.files import InputError
from lib.files.sources import changed, code_of, forget, read_otherwise
from lib.work.errors import in_one_line, stop_where_changed
from lib.work.signals import end_interrupted, interrupt_by_an_error

if TYPE_CHECKING:
    from inspect import Parameter

OutFile = Annotated[Path, "a file that is written"]
OutFolder = Annotated[Path, "a folder that is written"]
WRITTEN = (OutFile, OutFolder, list[OutFolder])


def run(main: Callable[..., Any], *, environment: bool = False) -> None:
    """Run `main` on the command line's arguments, as its signature types them: a text, a number, a
    path or several paths.

    A path that `main` writes is an `OutFile` or an `OutFolder`, or a list of these; every other
    path is read, if it exists.

    A parameter with a default is an option, `--name`; so are all others where one of them is given
    as such, as the commands of stages do. With `environment`, an argument that is not
    given is taken from the variable of its name in capitals, if that is not empty. Where neither
    has a value, the process ends with one line, which shows the `make` command of the module's
    docstring.

    Before `main` begins, data sets that are read are verified (`verify`), and writing is tried at
    the place of each path that is written or does not exist yet. An error that `in_one_line` knows,
    and Ctrl-C, end the process with one line; any other error is a fault of ours and ends it with a
    traceback.
    """
    import inspect

    if not gc.isenabled():  # turned off by `stages/__init__.py`; imported modules are never garbage
        gc.freeze()
        gc.enable()
    forget()
    parameters = inspect.signature(main, eval_str=True).parameters
    arguments = _parsed(main, parameters, environment)
    interrupt_by_an_error()
    try:
        for name, value in arguments.items():
            _check(value, parameters[name])
        main(**arguments)
        if any(parameter.annotation in WRITTEN for parameter in parameters.values()):
            # DVC would record the code as it is now as the code that made the outputs
            stop_where_changed([*changed(code_of(main)), *read_otherwise()])
    except KeyboardInterrupt:
        end_interrupted()
    except Exception as error:
        said = in_one_line(error)
        if said is None:
            raise
        sys.exit(f"error: {said}")


def _parsed(
    main: Callable[..., Any], parameters: Mapping[str, "Parameter"], environment: bool
) -> dict[str, Any]:
    """The arguments of `main` by name; ends the process where they do not fit."""
    import argparse
    import inspect
    import re

    parser = argparse.ArgumentParser(description=main.__doc__, allow_abbrev=False)
    given_by_name = {word.partition("=")[0] for word in sys.argv[1:]}
    by_name = any(
        _option(name) in given_by_name for name, one in parameters.items() if not _is_option(one)
    )
    for name, parameter in parameters.items():
        several = get_origin(parameter.annotation) is list
        kind = parameter.annotation
        while get_args(kind):  # the type within list[Path], or behind an OutFile
            kind = get_args(kind)[0]
        given = (environment and os.environ.get(name.upper())) or None
        if _is_option(parameter):
            parser.add_argument(_option(name), type=kind, default=given or parameter.default)
        elif by_name:
            n_values = "+" if several else None
            wanted: Any = {"default": given, "required": not environment}
            parser.add_argument(_option(name), type=kind, nargs=n_values, **wanted)
        else:
            n_values = "+" if several else "?" if environment else None
            parser.add_argument(name, type=kind, nargs=n_values, default=given)
    arguments = vars(parser.parse_args())
    required = [name for name, parameter in parameters.items() if not _is_option(parameter)]
    missing = [name.upper() for name in required if arguments[name] is None]
    if missing:
        example = re.search(r"`make [^`]+`", inspect.getmodule(main).__doc__ or "")
        shown = " ".join(example[0].split()) if example else None
        sys.exit(f"error: wanted {' and '.join(missing)}, got none; for example {shown}")
    return arguments


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_option(parameter: "Parameter") -> bool:
    return parameter.default is not parameter.empty


def _check(value: Any, parameter: "Parameter") -> None:
    """Try the places that an argument names, and verify the data sets; an option names none."""
    from lib.files.inputs import verify

    kind = parameter.annotation
    if kind == list[OutFolder]:
        for path in value:
            _try_to_write(path, OutFolder)
    elif isinstance(value, Path) and (kind in WRITTEN or not value.exists()):
        _try_to_write(value, kind)
    elif not _is_option(parameter):
        for path in _files(value):
            verify(path)


def _files(value: Any) -> list[Path]:
    """The files that an argument has a stage read: a path, the files of a list, or the file that a
    text may name.

    A user may have made the file that a text names: a safetensors file needs no digest there.
    """
    if isinstance(value, Path):
        return [value]
    if isinstance(value, list):
        return [path for path in map(Path, value) if path.is_file()]
    file = Path(value) if isinstance(value, str) and os.sep in value else Path()
    return [file] if file.suffix != ".safetensors" and file.is_file() else []


def _try_to_write(path: Path, kind: Any) -> None:
    """Raise the error that writing there would raise, and leave nothing behind.

    Files are replaced as wholes (`atomic`), so that only their folder must be writable; below a
    folder that exists, all of its folders must be.
    """
    if kind == OutFile and path.is_dir():
        raise InputError(f"{path}: wanted a file to write, got a folder")
    if kind == OutFolder and path.exists() and not path.is_dir():
        raise InputError(f"{path}: wanted a folder to write in, got a file")
    first = path if path.is_dir() else next(one for one in path.absolute().parents if one.exists())
    if not first.is_dir():
        raise InputError(f"{path}: wanted a folder to write in, got the file {first}")
    inside = path.rglob("*") if path.is_dir() else ()
    places = [first, *(one for one in inside if one.is_dir() and not one.is_symlink())]
    for place in places:
        probe = place / f".{path.name[:99]}.{os.getpid()}.part"
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        probe.unlink()


def refuse_shallow_clone() -> None:
    """End with one line where DVC runs an experiment in a folder of its own, begun in a shallow
    clone.

    There DVC saves no experiment (`exp run --temp` or `--queue`), and says so nowhere.
    """
    root = os.environ.get("DVC_ROOT", "")
    elsewhere = "DVC_EXP_NAME" in os.environ and not Path(root).samefile(".")
    if elsewhere and Path(root, ".git", "shallow").exists():
        sys.exit(
            "error: wanted a clone with its history for an experiment in a folder of its own, "
            f"got the shallow clone {root}, in which DVC saves none: run `git fetch --unshallow` "
            "first, or leave out --temp"
        )
