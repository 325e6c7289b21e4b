"""Verdicts of claims, and the answers of items that follow from them.

A verdict compares the numbers of a claim with its bar, in every case, and with those of its null in
pairs. An answer follows from the verdicts of an item: its first claim decides. docs/statistics.md
says what the intervals and the comparisons are worth.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.files.params import Interval
from lib.pages.claims import Claim, Item
from lib.pages.statistics import interval, middle

Values = Mapping[str, Any]  # a measure at a scale: `cases`, the name of each, and `values`
Judged = Mapping[str, Any]  # a claim or a case with its numbers and its verdict

OF_PAPER = ("reproduced", "reproduced in part", "not reproduced")
OF_OURS = ("yes", "in part", "no")
NOT_TESTED = "not tested"
DECIDES = {"items": "answer", "claims": "holds"}  # what turns, or not, on other seeds
STOOD = {
    "paper": "from the paper or a theorem",
    "before": "set before the first run",
    "after": "set after the first run",
}


def judged_case(claim: Claim, values: Values, measure: str) -> dict[str, Any]:
    """The numbers of a claim in one case, at one scale, and whether they meet the bar.

    What is independent (`units`) counts once: its values are summed up before an interval is taken.
    """
    names = values["cases"]
    numbers = numbers_of(values["values"])
    bar = Interval(claim.interval)
    summed = middle(numbers, claim.over)
    units = list(_by_unit(claim, names, numbers).values())
    return {
        "measure": measure,
        "value": summed,
        "interval_95": interval(units, claim.over, share=claim.share),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": len(units),
        "holds": all(number in bar for number in (numbers if claim.over == "every" else [summed])),
        "names": names,
        "values": numbers,
    }


def compared(claim: Claim, own: Values, null: Values) -> dict[str, Any]:
    """A claim's numbers beside those of its null, in pairs of one name, or else of one unit.

    `difference` is the middle of the value minus the null. The claim beats its null where its
    numbers are better: with an interval, where all of that is on the better side of 0, below six
    pairs where every pair is.
    """
    mine = dict(zip(own["cases"], numbers_of(own["values"]), strict=True))
    other = dict(zip(null["cases"], numbers_of(null["values"]), strict=True))
    said: dict[str, Any] = {"value": middle(list(other.values()), claim.over)}
    if not mine.keys() & other.keys():
        mine = _by_unit(claim, list(mine), list(mine.values()))
        other = _by_unit(claim, list(other), list(other.values()))
    shared = [name for name in mine if name in other]
    if not shared and len(other) == 1:
        other = dict.fromkeys(mine, next(iter(other.values())))
        shared = list(mine)
    if not shared:
        return said | {"n": 0, "beats": None}
    pairs = [(mine[name], other[name]) for name in shared]
    by_unit = _by_unit(claim, shared, [own - of_null for own, of_null in pairs])
    differences = list(by_unit.values())
    gains = [advantage(claim, own) - advantage(claim, of_null) for own, of_null in pairs]
    of_units = list(_by_unit(claim, shared, gains).values())
    low, _ = interval(of_units, claim.over)
    return said | {
        "difference": middle(differences, claim.over),
        "interval_95": interval(differences, claim.over),
        "n": len(differences),
        "beats": low > 0 if math.isfinite(low) else all(gain > 0 for gain in of_units),
    }


def advantage(claim: Claim, number: float) -> float:
    """How good a number is: itself, its negative, or minus its distance from the bar's middle."""
    if claim.better == "less":
        return -number
    if claim.better == "more":
        return number
    bar = Interval(claim.interval)
    return -abs(number - (bar.low + bar.high) / 2)


def room(claim: Claim, case: Judged) -> float:
    """How far the numbers that decide are from the end of the bar that they may miss."""
    bar = Interval(claim.interval)
    deciding = case["values"] if claim.over == "every" else [case["value"]]
    above = bar.high - max(deciding)
    below = min(deciding) - bar.low
    found = {"less": above, "more": below, "near": min(above, below)}[claim.better]
    return found if math.isfinite(found) else -math.inf


def nearest(claim: Claim, cases: Sequence[Judged]) -> Judged:
    """The case that decides: of those that fail, or else of all, the one with the least room."""
    return min(cases, key=lambda case: (case["holds"], room(claim, case)))


def beaten(cases: Sequence[Judged]) -> dict[str, int] | None:
    """In how many cases the null is beaten, among those that have pairs; None where none has."""
    found = [case["null"]["beats"] for case in cases if "null" in case]
    pairs = [beats for beats in found if beats is not None]
    return {"beaten": sum(pairs), "cases": len(pairs)} if pairs else None


def answer(item: Item, verdicts: Sequence[Judged], limits: Sequence[str]) -> str:
    """The answer of an item whose claims have these verdicts, those that were run in their order.

    The first decides. Limits, and other claims that fail, make an answer one in part.
    """
    words = OF_OURS if item.asks else OF_PAPER
    if not verdicts:
        return NOT_TESTED
    if not verdicts[0]["holds"]:
        return item.otherwise if item.says else words[2]
    return words[1] if limits or not all(one["holds"] for one in verdicts) else words[0]


def unseen_mark(kind: str, name: str, judged: Judged, runs: Mapping[str, Any]) -> dict[str, Any]:
    """What unseen seeds say of a claim or an item: `unseen`, by run, and whether it is `fragile`.

    The `kind` is "items" or "claims", and `runs` have both by name. What turned in any run is
    fragile. Nothing where no run has it.
    """
    decides = DECIDES[kind]
    kept = (decides, "value", "number")
    found = {
        seeds: {key: run[kind][name][key] for key in kept if key in run[kind][name]}
        for seeds, run in runs.items()
        if name in run[kind]
    }
    if not found:
        return {}
    turned = any(one[decides] != judged[decides] for one in found.values())
    return {"unseen": found, "fragile": turned}


def number(judged: Judged) -> str:
    """The number of a verdict in words: its middle, its interval or range, and n."""
    said = short(judged["value"])
    if judged["n"] > 1 or judged["min"] != judged["max"]:
        known = judged["interval_95"]
        ends = known if all(map(math.isfinite, known)) else (judged["min"], judged["max"])
        kind = "95 %: " if ends is known else ""
        said += f" ({kind}{short(ends[0])} to {short(ends[1])}; n = {judged['n']})"
    where = [judged[key] for key in ("case", "scale") if judged.get(key)]
    return f"{said}, {', '.join(where)}" if where else said


def short(value: float | None) -> str:
    """A number in three digits."""
    return "not known" if value is None or math.isnan(value) else f"{value:.3g}"


def numbers_of(values: Sequence[float | None]) -> list[float]:
    """The values as numbers, NaN for one that is missing."""
    return [math.nan if value is None else float(value) for value in values]


def _by_unit(claim: Claim, names: Sequence[str], numbers: Sequence[float]) -> dict[str, float]:
    """One number for what is independent: the middle of those that share a seed, base or task."""
    units: dict[str, list[float]] = {}
    for name, value in zip(names, numbers, strict=True):
        found = re.match(claim.units, name)
        units.setdefault(found[0] if found else name, []).append(value)
    return {unit: middle(of, claim.over) for unit, of in units.items()}
