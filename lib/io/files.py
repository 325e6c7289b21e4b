"""Files that are whole or absent: atomic writes, digests, and the error for bad input."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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


def sha256(data: bytes | Path) -> str:
    """SHA-256 of bytes or of a file's content, in hexadecimal."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    with data.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
