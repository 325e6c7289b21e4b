"""A folder outside of every declared output, in which a stage keeps what it need not compute again.

The folder's name is a digest of all that determines its content, so that stale state can never leak
into another run. The folder is locked while it is used. Its safetensors files have their digest in
their names, so that a file that was cut short or altered is noticed, skipped with a warning, and
made again.
"""

import json
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from lib.files.files import atomic, sha256
from lib.files.inputs import header_of

DIGEST = 24 * "[0-9a-f]"
Tensors = Mapping[
    str, Any
]  # torch's tensors by name; torch is loaded only where they are saved or loaded


def scratch_root() -> Path:
    """The folder of all scratch: DVC's own temporary folder, the same for every experiment."""
    return Path(os.environ.get("DVC_ROOT", ".")) / ".dvc" / "tmp" / "scratch"


class Scratch:
    """A locked, self-verifying folder of scratch; use it in a `with` statement."""

    def __init__(self, name: str, key: Mapping[str, Any], root: Path | None = None):
        digest = sha256(json.dumps(key, sort_keys=True).encode())[:24]
        self.folder = (root or scratch_root()) / name / digest
        self._lock = FileLock(self.folder.with_suffix(".lock"))

    def __enter__(self) -> "Scratch":
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            print(f"waiting: another process works in {self.folder}", file=sys.stderr, flush=True)
            self._lock.acquire()
        os.utime(self._lock.lock_file)  # the time of its last use, at which `tools.scratch` looks
        for part in self.folder.glob(".*.part"):
            part.unlink()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def names(self, prefix: str = "") -> list[str]:
        """The names of the files with that prefix, sorted."""
        found = self.folder.glob(f"{prefix}*.safetensors")
        return sorted(path.name.rsplit("-", 1)[0] for path in found)

    def save(self, name: str, tensors: Tensors, note: Mapping[str, Any]) -> None:
        """Save tensors and a note, which JSON can say, under a name: whole or not at all."""
        from safetensors.torch import save

        whole = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
        data = save(whole, {"note": json.dumps(note, sort_keys=True)})
        self.drop(name)
        with atomic(self.folder / f"{name}-{sha256(data)[:24]}.safetensors") as part:
            part.write_bytes(data)

    def load(self, name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The tensors and the note of a name, or None; with a warning where the file is broken."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        for path in self._files(name):
            data = path.read_bytes()
            if sha256(data)[:24] == path.stem.rsplit("-", 1)[1]:
                try:
                    return load(data), json.loads(header_of(data)[0]["__metadata__"]["note"])
                except (SafetensorError, ValueError, KeyError):
                    pass
            warnings.warn(f"scratch: {path} is cut short or altered; it is skipped", stacklevel=2)
            path.unlink()
        return None

    def drop(self, name: str) -> None:
        """Remove the file of that name, if there is one."""
        for path in self._files(name):
            path.unlink()

    def _files(self, name: str) -> list[Path]:
        return sorted(self.folder.glob(f"{name}-{DIGEST}.safetensors"))
