"""The sources by which a module computes, and whether they, or what was read, have changed since.

`stages/__init__.py` imports this module before other code of a stage, and every source counts as it
was at that moment: a source that is found unchanged later is the source that was loaded.
"""

import ast
import hashlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROOMS = ("lib", "published", "stages", "tools")
MACHINERY = "lib/work"  # like DVC itself: it changes no byte of a result

begun: dict[str, str] = {}  # the digest of every source as the program began, by its path
_noted: list[tuple[str, str, Callable[[], Any]]] = []  # what was read: name, digest, how to read it


def imported(file: str, root: Path) -> set[str]:
    """The files of a repository that a file imports, anywhere in it; paths relative to `root`.

    A module's packages are imported with it; their `__init__.py` counts where it is not empty.
    """
    found: set[str] = set()
    for name in _names(file, (root / file).read_text(encoding="utf-8")):
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            path = Path(*parts[:n])
            init = root / path / "__init__.py"
            if init.is_file() and init.read_text(encoding="utf-8").strip():
                found.add(init.relative_to(root).as_posix())
            if (root / path.with_suffix(".py")).is_file():
                found.add(path.with_suffix(".py").as_posix())
    return found - {file}


@cache
def _names(file: str, source: str) -> list[str]:
    """The dotted names of everything that a file imports and that may be a module."""
    package = () if Path(file).is_absolute() else Path(file).parent.parts
    names = [".".join([*package, "_"])]  # the file's own packages
    for node in ast.walk(ast.parse(source, file)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            names += [".".join([*base, alias.name]) for alias in node.names]
    return names


def closure(file: str, root: Path) -> dict[str, str]:
    """Every file of a repository that is imported when `file` is, with the file that imports it."""
    found = {file: ""}
    waiting = [file]
    while waiting:
        importer = waiting.pop()
        for name in sorted(imported(importer, root) - set(found)):
            found[name] = importer
            waiting.append(name)
    return found


def code_of(function: Callable[..., Any]) -> dict[str, str]:
    """The sources by which a function computes, with their digests as this program began.

    They are its module and all that this imports, directly or not, except for the machinery.
    """
    file = getattr(sys.modules[function.__module__], "__file__", None)
    return _code(Path(file)) if file else {}


@cache  # the code that was loaded, even where the file has changed since
def _code(file: Path) -> dict[str, str]:
    name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else str(file)
    code = [one for one in closure(name, ROOT) if Path(one).parent.as_posix() != MACHINERY]
    return {one: begun.setdefault(one, digest_of(ROOT / one)) for one in sorted(code)}


def changed(code: Mapping[str, str]) -> list[str]:
    """The names of the sources that have another digest now."""
    return [name for name, digest in code.items() if digest_of(ROOT / name) != digest]


def noted(name: str, read: Callable[[], Any]) -> Any:
    """The value of `read()`; where it gives another value later, `read_otherwise` has this name."""
    value = read()
    _noted.append((name, _of_value(value), read))
    return value


def forget() -> None:
    """Forget what was noted: another run begins in this process."""
    _noted.clear()


def read_otherwise() -> list[str]:
    """The names of what was noted and would now be read otherwise."""
    return sorted({name for name, digest, read in _noted if _again(read) != digest})


def _again(read: Callable[[], Any]) -> str:
    try:
        return _of_value(read())
    except (OSError, ValueError):
        return "none"  # it is gone, or broken


def _of_value(value: Any) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogatepass")).hexdigest()


def digest_of(file: Path) -> str:
    """The digest of a file's content, which is read anew where the file has changed."""
    try:
        state = file.stat()
        return _digest(file, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except OSError:
        return "none"


@cache
def _digest(file: Path, *_state: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


for _room in ROOMS:
    for _file in (ROOT / _room).rglob("*.py"):
        begun[_file.relative_to(ROOT).as_posix()] = digest_of(_file)
