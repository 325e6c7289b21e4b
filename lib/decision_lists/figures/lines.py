"""What the figures of the family share: the colours of runs, lines for theory, and titles."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib.pages.marks import THEORY, Color, directions
from lib.pages.style import VIRIDIS

DASHED: dict[str, Any] = {**THEORY, "lw": 1.2}  # what is derived
LOG_LOG: dict[str, Any] = {"xscale": "log", "yscale": "log"}
SMALL = 7.5  # the size of a legend's text, in points


def singular_values_in_time(axes: Axes, rows: pd.DataFrame) -> np.ndarray:
    """Draw every singular value through time, the largest last; they are a row for each time."""
    values = np.stack(list(rows["singular_values"]))
    directions(axes, rows["time"], values, root_shade, lw=1.2)
    return values


def root_shade(i: int, n: int) -> Color:
    """The colour of the i-th of n, the first of which are told apart best."""
    return VIRIDIS(0.25 + 0.65 * np.sqrt(i / max(1, n - 1)))


def setting(run: Any) -> str:
    """The law and the sizes of a run, a row of a table."""
    return f"{law_words(run.law)}, L = {run.n_tokens}, n = {run.seq_len}, M = {run.length}"


def law_words(law: str) -> str:
    """A law of the sequences in words; one with weights of its own, or unknown, as it is."""
    name, _, number = law.rpartition(" ")
    said = {
        "zipf": f"Zipf, exponent {number}",
        "log-normal": f"log-normal, σ = {number}",
        "frequent heads": f"heads {number} × as frequent",
        "sparse": f"{number} of the sequences possible",
        "topics": f"{number} topics mixed",
    }
    return said.get(name, "Dirichlet" if law == "dirichlet" else law)


def numbered(names: Sequence[str]) -> list[str]:
    """The names, in which equal ones are told apart by a number."""
    return [
        f"{name} ({names[: k + 1].count(name)})" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]
