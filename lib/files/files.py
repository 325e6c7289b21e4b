"""Files that are whole or absent: atomic writes, digests, names that stay in their folder, and the
error for bad input.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path, PurePath


class InputError(ValueError):
    """What came in is not what was wanted; the message says what, where, and what was got."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, renamed to it on success and removed on failure.

    A reader sees the old file or the whole new one, never a part, whenever the process is killed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files by name into a folder; each is written whole or not at all."""
    for name, content in contents.items():
        with atomic(folder / name) as part:
            part.write_bytes(content)


def sha256(data: bytes | Path) -> str:
    """SHA-256 of bytes or of a file's content, in hexadecimal."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    with data.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_name(text: str) -> str:
    """The text itself, if it can name a file and leads nowhere else; raises `InputError` if not."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,=+-]{0,99}", text):
        wanted = (
            "wanted a name of at most 100 letters, digits and _ . , = + -, the first a "
            "letter, a digit or _"
        )
        raise InputError(f"{wanted}, got {text!r}")
    return text


def clear(folder: Path, *patterns: str) -> None:
    """Remove what an earlier command left in a folder; every file in it must fit one of the
    patterns.

    A pattern such as `*/steps.parquet` starts at the folder and has a part for each level. A file
    that a killed writer left (`atomic`) fits if the file that it was to become would fit. Raises
    `InputError`, and removes nothing, where the folder holds anything else or is itself a link to
    another place.
    """
    if folder.is_symlink() or folder.is_file():
        got = f"a link to {folder.resolve()}" if folder.is_symlink() else "a file"
        raise InputError(f"{folder}: wanted a folder to write in, got {got}")
    inside = sorted(folder.rglob("*"), reverse=True)
    folders = [path for path in inside if path.is_dir() and not path.is_symlink()]
    files = [path for path in inside if path not in folders]
    for path in files:
        if not any(_fits(path.relative_to(folder), pattern) for pattern in patterns):
            raise InputError(
                f"{folder}: wanted an empty folder, or one of {list(patterns)} to write anew, got "
                f"{path}"
            )
    for path in files:  # a killed command may still be ending, and remove what it did not finish
        path.unlink(missing_ok=True)
    for path in folders:
        path.rmdir()


def _fits(path: PurePath, pattern: str) -> bool:
    parts = [*path.parts[:-1], re.sub(r"^\.(.+)\.\d+\.part$", r"\1", path.name)]
    wanted = pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
