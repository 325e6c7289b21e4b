"""A claim's numbers on a line: each value, their middle, the bar, the null, and unseen seeds.

A line is drawn for each case, all of a claim on one scale, which is logarithmic where the numbers
are positive and far apart. Where a value has to lie between the two ends of a bar, a null that is
far from both stands at the end of the line, so that it does not squeeze them. What is drawn are
places from 0 to 1000 from left to right.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.files.params import Interval
from lib.pages.judging import numbers_of, short

WIDTH = 1000  # places
ROOM = 40  # places between an end of the line and the first number
FAR = 50.0  # the ratio of numbers from which on they stand on a logarithmic scale
BEYOND = 2.0  # lengths of the bar and the values, by which a null may be outside of them
MOST_TICKS = 5
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)  # between ticks, times a power of ten


@dataclass(frozen=True)
class Mark:
    """A number and its place on the line."""

    place: int
    text: str


@dataclass(frozen=True)
class Line:
    """A case: its values, their middle, and the middle of its null."""

    name: str
    decides: bool  # whether it is the case that the claim shows
    holds: bool
    values: list[int]
    middle: Mark | None
    null: Mark | None


@dataclass(frozen=True)
class Drawn:
    """The lines of a claim, the part of each that is the bar, and the ticks below them."""

    lines: list[Line]
    bar: tuple[int, int]
    ticks: list[Mark]
    unseen: dict[str, list[Mark]]  # by the seeds that were added, of the case that decides
    over: str  # what meets the bar: `every` value, their `mean` or their `median`
    logarithmic: bool
    beyond: bool  # whether a null stands at an end of the line, as it is outside of it


def number_lines(claim: Mapping[str, Any]) -> Drawn | None:
    """The lines of a claim that was run; None of one that has no finite number."""
    cases = claim.get("cases", ())
    values = [finite(case["values"]) for case in cases]
    nulls = [finite([case["null"]["value"]] if "null" in case else []) for case in cases]
    unseen = {
        seeds: finite([one.get("value"), one.get("worst")])
        for seeds, one in claim.get("unseen", {}).items()
    }
    over, _, interval = claim["bar"].partition(" in ")
    bar = Interval(interval)
    own = [number for listed in (*values, *unseen.values()) for number in listed]
    beside = [number for listed in nulls for number in listed]
    near = [
        number for number in beside if claim.get("better") != "near" or within(number, own, bar)
    ]
    measured = [*own, *near]
    if not measured:
        return None
    place, ticks, logarithmic = scale([*measured, *ends_near(bar, measured)])

    def mark(number: float) -> Mark:
        return Mark(place(number), short(number))

    return Drawn(
        lines=[
            Line(
                name=name_of(case),
                decides=name_of(case) == name_of(claim),
                holds=case["holds"],
                values=sorted({place(number) for number in listed}),
                middle=next(map(mark, finite([case["value"]])), None),
                null=next(map(mark, of_null), None),
            )
            for case, listed, of_null in zip(cases, values, nulls, strict=True)
        ],
        bar=(
            place(bar.low) if math.isfinite(bar.low) else 0,
            place(bar.high) if math.isfinite(bar.high) else WIDTH,
        ),
        ticks=ticks,
        unseen={seeds: list(map(mark, listed)) for seeds, listed in unseen.items() if listed},
        over=over,
        logarithmic=logarithmic,
        beyond=len(near) < len(beside),
    )


def within(number: float, values: Sequence[float], bar: Interval) -> bool:
    """Whether a number is so near to the values and the bar that it leaves them most of a line."""
    low, high = min([*values, bar.low]), max([*values, bar.high])
    room = BEYOND * (high - low)
    return low - room <= number <= high + room


def name_of(judged: Mapping[str, Any]) -> str:
    """The case and the scale of a claim or of one of its cases."""
    return ", ".join(str(judged[key]) for key in ("case", "scale") if judged.get(key))


def ends_near(bar: Interval, measured: Sequence[float]) -> list[float]:
    """The nearer end of a bar, and the other one if it is not far outside of what was measured (it
    may be there only because a bar has two ends).
    """
    low, high = min(measured), max(measured)
    near = sorted(finite([bar.low, bar.high]), key=lambda end: max(low - end, end - high, 0.0))
    low, high = min([low, *near[:1]]), max([high, *near[:1]])
    length = high - low
    return near[:1] + [end for end in near[1:] if low - length <= end <= high + length]


def scale(numbers: Sequence[float]) -> tuple[Callable[[float], int], list[Mark], bool]:
    """The place of a number on a line that has these, its ticks, and whether it is logarithmic.

    On a logarithmic line, zero has the place at the left end.
    """
    positive = [number for number in numbers if number > 0]
    logarithmic = min(numbers) >= 0 and bool(positive) and max(positive) > FAR * min(positive)
    if logarithmic:
        low = math.log10(min(positive))
        high = math.log10(max(positive))
        zero = min(numbers) == 0
        left = 3 * ROOM if zero else ROOM
        decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
        every = math.ceil(len(decades) / MOST_TICKS) if decades else 1
        ticks = [10.0**decade for decade in decades[::every]]
        ticks = [0.0, *ticks] if zero else ticks
    else:
        low, high = min(numbers), max(numbers)
        left = ROOM
        step = step_of(high - low)
        first = math.ceil(low / step - 1e-9)
        ticks = [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]

    def place(number: float) -> int:
        if logarithmic and number <= 0:
            return 0
        along = math.log10(number) if logarithmic else number
        share = (along - low) / (high - low) if high > low else 0.5
        return min(max(round(left + share * (WIDTH - ROOM - left)), 0), WIDTH)

    return place, [Mark(place(tick), f"{tick:.6g}") for tick in ticks], logarithmic


def step_of(length: float) -> float:
    """The least step of the usual ones by which a line of this length has few ticks."""
    if length <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(length / MOST_TICKS))
    return next(step * power for step in STEPS if length / (step * power) <= MOST_TICKS)


def finite(values: Sequence[float | None]) -> list[float]:
    """The values that are finite numbers."""
    return [number for number in numbers_of(values) if math.isfinite(number)]
