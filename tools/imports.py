"""The names in dvc.yaml of the code that a file imports; `closure` finds the imports."""

import ast
from pathlib import Path

from lib.files.sources import MACHINERY

BY_NAME = {"import_module", "__import__", "run_module", "run_path", "exec", "eval"}


def dep(file: str) -> str | None:
    """The dep in dvc.yaml for a file of code: the file, or `lib/files` for a file of that folder.

    It is None for a file of `lib/work`, which is machinery like DVC itself and changes no byte of a
    result.
    """
    folder = Path(file).parent.as_posix()
    if folder == MACHINERY:
        return None
    return folder if folder == "lib/files" else file


def is_code(path: str) -> bool:
    """Whether a dep of dvc.yaml is code: a Python file, or a folder of such."""
    return path.endswith(".py") or path.startswith("lib/")


def imports_by_name(file: str, root: Path) -> list[int]:
    """The lines of a file on which it imports or runs what its import statements do not name."""
    parsed = ast.parse((root / file).read_text(encoding="utf-8"), file)
    called = [node for node in ast.walk(parsed) if isinstance(node, ast.Call)]
    names = [(node.lineno, _called(node.func)) for node in called]
    return [line for line, name in names if name in BY_NAME]


def _called(called: ast.expr) -> str | None:
    """The name by which something is called; None for a method `eval` or `exec` of an object, such
    as that of a model, which runs no text.
    """
    if isinstance(called, ast.Attribute):
        own = isinstance(called.value, ast.Name) and called.value.id == "builtins"
        return called.attr if own or called.attr not in ("eval", "exec") else None
    return called.id if isinstance(called, ast.Name) else None
