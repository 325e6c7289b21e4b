"""What the figures of the family share: the colours of runs, lines for theory, and titles."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib.pages.style import BOUND_COLOR, VIRIDIS

Color = tuple[float, float, float, float]

BOUND: dict[str, Any] = {"color": BOUND_COLOR, "ls": "--"}  # the limit that a theorem sets
DASHED: dict[str, Any] = {"color": "black", "ls": "--", "lw": 1.2}  # what is derived
LOG_LOG: dict[str, Any] = {"xscale": "log", "yscale": "log"}
SMALL = 7.5  # the size of a legend's text, in points


def shaded(
    table: pd.DataFrame, column: str, *, ordered: bool = False
) -> Iterator[tuple[Any, pd.DataFrame, Color]]:
    """Every value of a column, with its rows and a colour, as they come or in order.

    Colours begin at blue, as violet is for permuted labels.
    """
    values = list(dict.fromkeys(table[column]))
    if ordered:
        values.sort()
    for i, value in enumerate(values):
        share = i / max(1, len(values) - 1)
        yield value, table[table[column] == value], VIRIDIS(0.25 + 0.67 * share)


def singular_values_in_time(axes: Axes, rows: pd.DataFrame) -> np.ndarray:
    """Draw every singular value through time, the largest last; they are a row for each time."""
    values = np.stack(list(rows["singular_values"]))
    n = values.shape[1]
    for i in reversed(range(n)):
        color = VIRIDIS(0.25 + 0.65 * np.sqrt(i / max(1, n - 1)))
        axes.plot(rows["time"], values[:, i], color=color, lw=1.2)
    return values


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
