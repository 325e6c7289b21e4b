"""What Python files import of this repository, read from their source."""

import ast
from collections.abc import Iterator
from pathlib import Path

BY_NAME = {"import_module", "__import__", "run_module", "run_path", "exec", "eval"}


def imported(file: str, root: Path) -> set[str]:
    """The files of the repository that a file imports, anywhere in it; paths relative to `root`.

    A module's packages are imported with it; their `__init__.py` counts where it is not empty.
    """
    found: set[str] = set()
    for name in _names(file, root):
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            path = Path(*parts[:n])
            init = root / path / "__init__.py"
            if init.is_file() and init.read_text(encoding="utf-8").strip():
                found.add(init.relative_to(root).as_posix())
            if (root / path.with_suffix(".py")).is_file():
                found.add(path.with_suffix(".py").as_posix())
    return found - {file}


def _names(file: str, root: Path) -> Iterator[str]:
    """The dotted names of all that may be modules among what a file imports."""
    package = Path(file).parent.parts
    yield ".".join([*package, "_"])  # the file's own packages
    for node in ast.walk(parsed(file, root)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            base += node.module.split(".") if node.module else []
            yield ".".join(base)
            yield from (".".join([*base, alias.name]) for alias in node.names)


def parsed(file: str, root: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse((root / file).read_text(encoding="utf-8"), file)


def closure(file: str, root: Path) -> dict[str, str]:
    """Every file of the repository that is imported when `file` is, with the file that imports
    it.
    """
    found = {file: ""}
    waiting = [file]
    while waiting:
        importer = waiting.pop()
        for name in sorted(imported(importer, root) - set(found)):
            found[name] = importer
            waiting.append(name)
    return found


def dep(file: str) -> str | None:
    """What dvc.yaml names for a file of code: the file, or `lib/files` for all that is in it.

    None for what is in `lib/work`: it is machinery like DVC itself, and changes no byte of a
    result.
    """
    folder = Path(file).parent.as_posix()
    if folder == "lib/work":
        return None
    return folder if folder == "lib/files" else file


def is_code(path: str) -> bool:
    """Whether a dep of dvc.yaml is code: a Python file, or a folder of such."""
    return path.endswith(".py") or path.startswith("lib/")


def imports_by_name(file: str, root: Path) -> list[int]:
    """The lines of a file on which it imports or runs what its import statements do not name."""
    called = [node for node in ast.walk(parsed(file, root)) if isinstance(node, ast.Call)]
    names = [
        (node.lineno, getattr(node.func, "attr", getattr(node.func, "id", None))) for node in called
    ]
    return [line for line, name in names if name in BY_NAME]
