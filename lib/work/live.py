"""Live curves of a training while it runs, as files that DVC plots; written only where DVCLive is
installed.

They lie in `dvclive/<experiment, or workspace>/` of the project, which git ignores, and nothing is
computed from them. Where DVCLive is missing (it is the extra `live`), or DVC does not run the
stage, nothing is written.
"""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


class Curves:
    """The curves of one training, in a folder of that name; use it in a `with` statement.

    An error in writing them becomes a warning and ends the curves, but not the training.
    """

    def __init__(self, name: str):
        self.name = name
        self._live: Any = None

    def __enter__(self) -> "Curves":
        root = os.environ.get("DVC_ROOT")
        if root:
            folder = Path(root, "dvclive", os.environ.get("DVC_EXP_NAME", "workspace"), self.name)
            with self._warned():
                from dvclive.live import Live

                self._live = Live(str(folder), save_dvc_exp=False, dvcyaml=False)
        return self

    def log(self, row: Mapping[str, float]) -> None:
        """Add a row: a step, and its numbers."""
        if self._live is None:
            return
        with self._warned():
            self._live.step = int(row["step"])
            for name, value in row.items():
                if name != "step":
                    self._live.log_metric(name, value)
            self._live.next_step()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            # trainings that end at the same time remove the same signal to the editor
            with self._warned(), suppress(FileNotFoundError):
                self._live.end()

    @contextmanager
    def _warned(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._live = None
            module = error.name if isinstance(error, ModuleNotFoundError) else None
            if (module or "").split(".")[0] != "dvclive":  # a package that need not be installed
                said = f"no more live curves of {self.name}: {type(error).__name__}: {error}"
                warnings.warn(said, stacklevel=3)
