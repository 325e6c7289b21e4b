"""Live curves of a training while it runs, as files that DVC plots; written only where DVCLive is
installed.

They lie in `dvclive/<experiment, or workspace>/` of the project, which git ignores, and nothing is
computed from them. Where DVCLive is missing (it is the extra `live`), or DVC does not run the
stage, nothing is written.
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any


class Curves:
    """The curves of one training, in a folder of that name; use it in a `with` statement.

    What goes wrong with them is a warning, and the end of the curves, not of the training.
    """

    def __init__(self, name: str):
        self.name = name
        self._live: Any = None

    def __enter__(self) -> "Curves":
        root = os.environ.get("DVC_ROOT")
        if root:
            folder = Path(root, "dvclive", os.environ.get("DVC_EXP_NAME", "workspace"), self.name)
            try:
                from dvclive.live import Live

                self._live = Live(str(folder), save_dvc_exp=False, dvcyaml=False)
            except ModuleNotFoundError as error:
                if (error.name or "").split(".")[0] != "dvclive":
                    self._fails(error)
            except Exception as error:
                self._fails(error)
        return self

    def log(self, row: Mapping[str, float]) -> None:
        """Add a row: a step, and the numbers there."""
        if self._live is None:
            return
        try:
            self._live.step = int(row["step"])
            for name, value in row.items():
                if name != "step":
                    self._live.log_metric(name, value)
            self._live.next_step()
        except Exception as error:
            self._fails(error)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            try:
                self._live.end()
            except FileNotFoundError:
                pass  # trainings that end at the same time remove the same signal to the editor
            except Exception as error:
                self._fails(error)

    def _fails(self, error: Exception) -> None:
        warnings.warn(
            f"no more live curves of {self.name}: {type(error).__name__}: {error}", stacklevel=3
        )
        self._live = None
