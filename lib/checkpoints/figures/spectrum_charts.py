"""Leading singular values of the largest updates, as places on a page.

A page draws them itself, as it does `size_charts`: numbers run from left to right, and values
upwards on a logarithmic scale.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.checkpoints.figures.size_charts import WIDE, Level, placed

N_MODULES = 4  # that are drawn: those whose update has the largest norm
N_VALUES = 32  # of each
N_TICKS = 5


@dataclass(frozen=True)
class Spectrum:
    """The values of one snapshot, and what each may be at most, where not all values are known."""

    name: str
    shade: int  # from 0 to 100: the last snapshot has the most
    values: list[tuple[int, int]]
    most: list[tuple[int, int]]


@dataclass(frozen=True)
class SpectrumChart:
    """The spectra of a matrix, one for each snapshot, the place of the last one's edge of rounding,
    and the ticks of the axes.
    """

    module: str
    spectra: list[Spectrum]
    edge: int | None
    numbers: list[Level]
    sizes: list[Level]


def spectrum_charts(table: pd.DataFrame) -> list[SpectrumChart]:
    """The charts of one run: those of its largest updates in layers, or of all where none is in a
    layer.
    """
    rows = table[(table["of"] == "update") & (table["head"] == 0)]
    if (rows["layer"] > 0).any():  # names need not hold a number
        rows = rows[rows["layer"] > 0]
    last = rows[rows["step"] == rows["step"].max()].nlargest(N_MODULES, "norm")
    return [_chart(rows[rows["module"] == module].sort_values("step")) for module in last["module"]]


def _chart(rows: pd.DataFrame) -> SpectrumChart:
    """The chart of one matrix, with a row for each snapshot."""
    values = [np.asarray(row)[:N_VALUES] for row in rows["singular_values"]]
    errors = [np.asarray(row)[:N_VALUES] for row in rows.get("errors", [()] * len(rows))]
    most = [sigma + above for sigma, above in zip(values, errors, strict=True) if len(above)]
    edge = float(rows["edge"].iloc[-1])
    ends = [math.log10(x) for x in np.concatenate([*values, *most, [edge]]) if x > 0]
    least = min(ends, default=0.0)
    largest = max(ends, default=0.0)
    n_values = max(map(len, values))

    def x(number: int) -> int:
        return placed(number, 1, n_values)

    def y(value: float) -> int:
        return WIDE - placed(math.log10(value), least, largest)

    def points(sigma: Sequence[float] | np.ndarray) -> list[tuple[int, int]]:
        return [(x(number), y(value)) for number, value in enumerate(sigma, 1) if value > 0]

    spectra = []
    for i, (step, sigma, above) in enumerate(zip(rows["step"], values, errors, strict=True), 1):
        name = f"step {step}" if len(rows) > 1 or step else "tuned"  # a folder without a step
        shade = round(100 * i / len(rows))
        upper = points(sigma + above) if len(above) else []
        spectra.append(Spectrum(name, shade, points(sigma), upper))
    return SpectrumChart(
        module=str(rows["module"].iloc[-1]).removesuffix(".weight"),
        spectra=spectra,
        edge=y(edge) if edge > 0 else None,  # what an adapter adds has none
        numbers=[Level(x(n), str(n)) for n in sorted({1, *range(8, n_values + 1, 8)})],
        sizes=[Level(y(tick), f"{tick:.2g}") for tick in _ticks(least, largest)],
    )


def _ticks(least: float, largest: float) -> list[float]:
    """Round numbers between two logarithms: powers of ten, or also their halves and fifths."""
    powers = range(math.floor(least), math.ceil(largest) + 1)
    for times in ((1,), (1, 3), (1, 2, 5)):
        found = [t * 10.0**power for power in powers for t in times]
        found = [tick for tick in found if least <= math.log10(tick) <= largest]
        if len(found) > 2:
            break
    return found[:: -(-len(found) // N_TICKS) or 1]
