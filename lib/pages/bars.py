"""The bars of claims, drawn into the panels that show their numbers."""

import math
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes

from lib.files.params import Interval
from lib.pages.claims import claims_of, read_families
from lib.pages.style import BOUND_COLOR, SHADE

FAR = 1e3  # times the limits of a logarithmic axis: beyond what other panels may stretch it to


@dataclass(frozen=True)
class Bar:
    """What a claim asks of its number: an interval, and which numbers are better.

    Where less or more is better, one end of the interval is what was asked.
    """

    interval: Interval
    better: str  # `less`, `more`, or `near` the middle

    @property
    def ends(self) -> tuple[float, ...]:
        """The finite ends that a number may miss."""
        low, high = self.interval.low, self.interval.high
        wanted = {"less": (high,), "more": (low,), "near": (low, high)}[self.better]
        return tuple(end for end in wanted if math.isfinite(end))

    def words(self, times: str = "") -> str:
        """The bar in words, as a multiple of what is named."""
        low, high = self.interval.low, self.interval.high
        most = "at most" if high in self.interval else "below"
        least = "at least" if low in self.interval else "above"
        said = {
            "less": f"{most} {high:g}",
            "more": f"{least} {low:g}",
            "near": f"{low:g} to {high:g}",
        }[self.better]
        return f"asked: {said}{times}"


def read_bars(claims: Path) -> dict[str, Bar]:
    """The bar of each claim of a family, by the claim's name.

    Raises:
        InputError: The file is no file of claims; says file and line.
    """
    [family] = read_families([claims]).values()
    return {
        name: Bar(Interval(claim.interval), claim.better) for _, name, claim in claims_of(family)
    }


def draw_bar(
    axes: Axes,
    bar: Bar | None,
    *,
    times: float = 1.0,
    label: str | None = None,
    vertical: bool = False,
    across: float = 1.0,
) -> None:
    """Dash the ends of a bar, and shade the numbers that meet it, behind what is drawn already.

    The bar lies across y, or with `vertical` across x; `times` is a number that it is a multiple
    of. The axis reaches to its ends. Only a share of the panel is shaded where the bar goes so far
    `across` it, from its low end. Nothing is drawn without a bar, or where an end has no place.
    """
    ends = [times * end for end in bar.ends] if bar else []
    scale = axes.get_xscale() if vertical else axes.get_yscale()
    if not bar or not ends or not all(map(math.isfinite, ends)):
        return
    if scale == "log" and min(ends) <= 0:
        return
    low, high = sorted(axes.get_xlim() if vertical else axes.get_ylim())
    if scale == "log" and low <= 0:  # of a panel without data
        low, high = min(ends) / 2, max(ends) * 2
    low, high = _reached(low, high, ends, logarithmic=scale == "log")
    look = {"color": BOUND_COLOR, "ls": "--", "lw": 1.2, "zorder": 1.5}
    said = bar.words() if label is None else label
    for number, end in enumerate(ends):
        draw = axes.axvline if vertical else axes.axhline
        draw(end, **look, label=said if number == 0 else None)
    under, over = (low / FAR, high * FAR) if scale == "log" else (low - high, high + high - low)
    met = {"less": (under, ends[0]), "more": (ends[-1], over), "near": (ends[0], ends[-1])}
    span = axes.axvspan if vertical else axes.axhspan
    span(*met[bar.better], 0, across, color=SHADE, lw=0, zorder=0.4)
    turned = axes.xaxis_inverted() if vertical else axes.yaxis_inverted()
    limits = (high, low) if turned else (low, high)
    if vertical:
        axes.set_xlim(*limits)
    else:
        axes.set_ylim(*limits)


def _reached(
    low: float, high: float, ends: list[float], *, logarithmic: bool
) -> tuple[float, float]:
    """The limits of an axis, farther where an end of the bar is outside of them or at an edge."""
    if logarithmic:
        logs = [math.log(end) for end in ends]
        near = _reached(math.log(low), math.log(high), logs, logarithmic=False)
        return math.exp(near[0]), math.exp(near[1])
    room = 0.06 * (max(high, *ends) - min(low, *ends))
    below = [end - room for end in ends if end <= low]
    above = [end + room for end in ends if end >= high]
    return min([low, *below]), max([high, *above])
