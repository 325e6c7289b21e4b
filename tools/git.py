"""The answers of git about a repository."""

import subprocess
from pathlib import Path

from lib.files.files import InputError


def git(*arguments: str, at: Path = Path()) -> bytes:
    """The output of a command of git in a folder; raises `InputError` where it fails."""
    done = subprocess.run(["git", *arguments], cwd=at, capture_output=True, check=False)
    if done.returncode:
        raise InputError(f"git {' '.join(arguments)}: {done.stderr.decode().strip()}")
    return done.stdout


def said(*arguments: str) -> str:
    """The output as a text, of a command in this repository."""
    return git(*arguments).decode().strip()
