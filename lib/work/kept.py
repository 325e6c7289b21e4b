"""Values that are kept: what an interrupted stage has computed one by one, an equal call goes on
from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from lib.files.files import sha256
from lib.work.machines import machine
from lib.work.progress import advance
from lib.work.scratch import Scratch, code_digest


class Keep(Protocol):
    """Gives the value of a key, which it computes where no earlier call has; a value is what JSON
    can say.

    Each is a unit of the progress bar.
    """

    def __call__(self, key: str, compute: Callable[[], Any]) -> Any: ...  # noqa: D102


@contextmanager
def kept(
    stage: str, files: Sequence[Path], arguments: Mapping[str, Any], device: str = "cpu"
) -> Iterator[Keep]:
    """Values in a cell of scratch, for as long as all of its key stays the same.

    That is the arguments, the content of the files, the code, the packages that compute, and the
    kind of machine: its CPU, or its GPU where that is the device.
    """
    key = {"code": code_digest(), "machine": machine(device), **arguments}
    with Scratch(stage, {**key, "files": [sha256(file) for file in files]}) as scratch:

        def keep(key: str, compute: Callable[[], Any]) -> Any:
            name = sha256(key.encode())[:24]
            found = scratch.load(name)
            value = found[1]["value"] if found is not None else compute()
            if found is None:
                scratch.save(name, {}, {"value": value})
            advance()
            return value

        yield keep
