"""The loss of the base with an adapter against the adapter's size, as places on a page.

A page draws them itself, in its own colours and at any width. Places run from 0 to 1000, from left
to right and from top to bottom: sizes on a logarithmic scale, losses on a linear one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDE = 1000  # places on a side
ROOM = 70  # places between a side and what is nearest to it
N_TICKS = 4
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between ticks, times a power of ten


@dataclass(frozen=True)
class Point:
    """An adapter: its place, and the ends of its noise, which are one place where it has none."""

    x: int
    y: int
    top: int
    bottom: int
    written: bool


@dataclass(frozen=True)
class Curve:
    """The adapters of a rule, from the smallest."""

    rule: str
    color: str
    points: list[Point]


@dataclass(frozen=True)
class Level:
    """A loss that depends on no size, or a tick of either axis: its place, and what is said."""

    place: int
    text: str


@dataclass(frozen=True)
class SizeChart:
    """The curves of a run, the losses of base, fine-tune and ceiling, and the ticks of the axes."""

    run: str
    curves: list[Curve]
    levels: dict[str, Level]
    sizes: list[Level]
    losses: list[Level]


def size_chart(
    rows: Sequence[Mapping[str, Any]], losses: Mapping[str, Any], colors: Mapping[str, str]
) -> SizeChart | None:
    """The chart of a run from the page's rows and its losses; None where no loss was measured.

    A row has `rule`, `budget`, `parameters`, `chosen`, `loss_on_base`, and `noise`, two standard
    errors of its difference to one uniform rank; losses have `loss_base`, `loss_tuned` and, where
    it was measured, `loss_ceiling`, all in nats. `colors` has a rule for each
    curve, in order.
    """
    known_rows = [row for row in rows if row["loss_on_base"] is not None]
    shown = [row for row in known_rows if math.isfinite(row["loss_on_base"])]
    names = {"base": "loss_base", "tuned": "loss_tuned", "ceiling": "loss_ceiling"}
    known = {of: float(losses[name]) for of, name in names.items() if name in losses}
    known = {of: value for of, value in known.items() if math.isfinite(value)}
    if not shown:
        return None
    ends = [row["loss_on_base"] + sign * noise_of(row) for row in shown for sign in (-1, 1)]
    least = min([*ends, *known.values()])
    most = max([*ends, *known.values()])
    sizes = [math.log(row["parameters"]) for row in shown]

    def x(parameters: float) -> int:
        return placed(math.log(parameters), min(sizes), max(sizes))

    def y(loss: float) -> int:
        return WIDE - placed(loss, least, most)

    def point(row: Mapping[str, Any]) -> Point:
        loss = row["loss_on_base"]
        noise = noise_of(row)
        return Point(x(row["parameters"]), y(loss), y(loss + noise), y(loss - noise), row["chosen"])

    by_size = sorted(shown, key=lambda row: row["parameters"])
    curves = [
        Curve(rule, color, [point(row) for row in by_size if row["rule"] == rule])
        for rule, color in colors.items()
    ]
    uniform = {row["budget"]: row["parameters"] for row in by_size if row["rule"] == "uniform"}
    return SizeChart(
        run=losses["run"],
        curves=[curve for curve in curves if curve.points],
        levels={of: Level(y(value), f"{value:.4g}") for of, value in known.items()},
        sizes=[Level(x(n), f"rank {budget}\n{short(n)}") for budget, n in uniform.items()],
        losses=[Level(y(tick), f"{tick:.4g}") for tick in ticks(least, most)],
    )


def noise_of(row: Mapping[str, Any]) -> float:
    """The noise of a row, and 0 where it has none."""
    noise = float(row["noise"])
    return noise if math.isfinite(noise) else 0.0


def placed(value: float, least: float, most: float) -> int:
    """The place of a value between the least and the most; in the middle where these are equal."""
    share = (value - least) / (most - least) if most > least else 0.5
    return round(ROOM + share * (WIDE - 2 * ROOM))


def ticks(least: float, most: float) -> list[float]:
    """Round numbers from the least to the most, at most `N_TICKS` + 1 of them."""
    if not most > least:
        return [least]
    power = 10.0 ** math.floor(math.log10((most - least) / N_TICKS))
    step = next(s * power for s in (*STEPS, 20.0) if (most - least) / (s * power) <= N_TICKS)
    return [k * step for k in range(math.ceil(least / step), math.floor(most / step) + 1)]


def short(n: float) -> str:
    """A number of parameters in three digits: 12,300 as 12.3 k."""
    for unit, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if n >= unit:
            return f"{n / unit:.3g}{name}"
    return f"{n:.0f}"
