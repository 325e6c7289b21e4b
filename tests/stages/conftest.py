"""How a stage is run by value: its `main`, in a folder of its own, on params that the test gives."""

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from matplotlib.figure import Figure

Run = Callable[..., None]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call `stage(module, params, *arguments)` runs `stages.<module>.main(*arguments)` in `tmp_path`.

    `params` maps dotted sections of params.yaml to their values; there is nothing else in the file. All is computed in
    this process: that workers change no bit is tested elsewhere.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)

    def run(module: str, params: dict[str, Any], *arguments: Any) -> None:
        written: dict[str, Any] = {}
        for section, values in params.items():
            *outer, last = section.split(".")
            inner = written
            for name in outer:
                inner = inner.setdefault(name, {})
            inner[last] = values
        Path("params.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
        importlib.import_module(f"stages.{module}").main(*arguments)

    return run


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, Figure]:
    """The figures that are saved from here on, by the bytes of their files: what was drawn can be read off them.

    A file holds a number alone: to render a figure takes longer than all the rest, and changes nothing that it shows.
    """
    kept: dict[bytes, Figure] = {}

    def save(figure: Figure, file: IO[bytes]) -> None:
        data = f"figure {len(kept)}".encode()
        kept[data] = figure
        file.write(data)

    monkeypatch.setattr("lib.pages.style._write_svg", save)
    return kept
