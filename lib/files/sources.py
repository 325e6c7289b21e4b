"""Whether the code that a program has loaded, or what it has read, was changed while it ran.

`stages/__init__.py` imports this before other code of a stage: every source counts as it was then.
What is loaded after that, and is found as it was then, is what was loaded.
"""

import hashlib
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROOMS = ("lib", "stages", "tools")

begun: dict[str, str] = {}  # the digest of every source as the program began, by its path
_noted: list[tuple[str, str, Callable[[], Any]]] = []  # what was read: name, digest, how to read it


def loaded() -> dict[str, str]:
    """The digest of every source of the repository that is loaded, as it was when the program
    began.
    """
    names = [name for name in list(sys.modules) if name.partition(".")[0] in (*ROOMS, "__main__")]
    files = [getattr(sys.modules[name], "__file__", None) for name in names]
    paths = {Path(file) for file in files if file}
    return as_begun(
        path.relative_to(ROOT).as_posix() for path in paths if path.is_relative_to(ROOT)
    )


def as_begun(names: Iterable[str]) -> dict[str, str]:
    """The digests of sources as they were when the program began, by their paths."""
    return {name: begun.setdefault(name, _now(name)) for name in sorted(names)}


def changed_code() -> list[str]:
    """The sources that are loaded, and are not what they were when the program began."""
    return [name for name, digest in loaded().items() if _now(name) != digest]


def changed() -> list[str]:
    """What is not what it was: sources that are loaded, and what was noted as it was read."""
    read = {name for name, digest, again in _noted if _again(again) != digest}
    return changed_code() + sorted(read)


def forget() -> None:
    """Begin anew: what this process has read until now is no longer looked at."""
    _noted.clear()


def noted(name: str, read: Callable[[], Any]) -> Any:
    """What `read()` gives; `changed` calls it again, and says this name where it gives something
    else.
    """
    value = read()
    _noted.append((name, _of_value(value), read))
    return value


def _again(read: Callable[[], Any]) -> str:
    try:
        return _of_value(read())
    except (OSError, ValueError):
        return "none"  # it is gone, or broken


def _of_value(value: Any) -> str:
    return hashlib.sha256(repr(value).encode(errors="surrogatepass")).hexdigest()


def _now(name: str) -> str:
    file = ROOT / name
    try:
        state = file.stat()
        return _digest(file, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    except OSError:
        return "none"


@cache
def _digest(file: Path, *_state: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


for _room in ROOMS:
    for _file in (ROOT / _room).rglob("*.py"):
        _name = _file.relative_to(ROOT).as_posix()
        begun[_name] = _now(_name)
