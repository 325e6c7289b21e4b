"""Judge every claim of claims.yaml by the numbers in git: does it hold, fail, or was it not run?"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr, stdtrit

from lib.io.command import run
from lib.io.files import InputError
from lib.io.params import Interval, load_yaml, parse
from lib.io.tables import read_json, write_json


@dataclass(frozen=True)
class Claim:
    """A statement, who says so, and the bar that a measure must meet: NAME, or NAME@SCALE of one by init scale."""

    statement: str
    where: str
    kind: Literal["theorem", "paper's figure", "our bar", "control"]
    source: str
    measure: str
    over: Literal["every", "mean", "median"]
    bar: str
    figure: str
    nulls: tuple[str, ...] = ()
    expected: str | None = None

    def __post_init__(self) -> None:
        try:
            _ = 0.0 in Interval(self.bar)
        except ValueError:
            raise ValueError(f"bar: wanted an interval such as '[1, 2)', got {self.bar!r}") from None
        if self.expected is not None and not self.expected.startswith("fails, because "):
            raise ValueError(f"expected: wanted 'fails, because ...', got {self.expected!r}")


@dataclass(frozen=True)
class Group:
    """What claims share: the file of their measures, the folder of their figures, the command that makes both."""

    family: str
    measures: str
    figures: str
    command: str
    claims: dict[str, Claim]

    def described(self, claim: Claim) -> dict[str, Any]:
        """All that is said of a claim before it is judged, but for its nulls."""
        said = {key: value for key, value in vars(claim).items() if value is not None and key != "nulls"}
        figure = f"{self.figures}/{claim.figure}.svg"
        measure = f"{self.measures}#{claim.measure}"
        return said | {"family": self.family, "measure": measure, "figure": figure, "command": self.command}


def main(claims: Path, measures: list[Path], verdicts: Path) -> None:
    found = {str(path): read_json(path) for path in measures}
    listed = load_yaml(claims)
    if not isinstance(listed, dict):
        raise InputError(f"{claims}: wanted groups of claims by name, got {listed!r}")
    groups = [parse(entry, Group, f"{claims}: {name}") for name, entry in listed.items()]
    every = [(name, group, claim) for group in groups for name, claim in group.claims.items()]
    judged = {name: judge(claim, group, found.get(group.measures, {})) for name, group, claim in every}
    if len(judged) < len(every):
        raise InputError(f"{claims}: wanted claims of different names, got {len(every)} of {len(judged)} names")
    for name, _, claim in every:
        compare_with_nulls(judged, name, claim)
    write_json(judged, verdicts)
    for state in ("holds", "fails", "not run"):
        names = [name for name, verdict in judged.items() if verdict["state"] == state]
        print(f"{len(names)} {state}" + (f": {', '.join(names)}" if state != "holds" else ""))
    sys.stdout.flush()


def judge(claim: Claim, group: Group, measures: dict[str, Any]) -> dict[str, Any]:
    """The claim with its verdict: value, spread and interval over the cases, and whether it meets its bar."""
    name, _, scale = claim.measure.partition("@")
    measure = measures.get(name, {})
    measure = measure.get(scale, {}) if scale else measure
    values = measure.get("values")
    if not values:
        return {**group.described(claim), "state": "not run"}
    if len(measure.get("cases", ())) != len(values):
        raise InputError(f"{group.measures}: {name}: wanted a case for each of {len(values)} values, got {measure}")
    numbers = [math.nan if value is None else float(value) for value in values]
    summary = float(np.median(numbers) if claim.over == "median" else np.mean(numbers))
    bar = Interval(claim.bar)
    holds = all(value in bar for value in numbers) if claim.over == "every" else summary in bar
    n = len(numbers)
    spread = float(np.std(numbers, ddof=1)) if n > 1 else math.nan
    return {
        **group.described(claim),
        "value": summary,
        "spread": spread,
        "interval_95": interval_95(numbers, claim.over),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": n,
        "cases": measure["cases"],
        "values": numbers,
        "state": "holds" if holds else "fails",
        "holds": holds,
    }


def interval_95(numbers: list[float], over: str) -> list[float]:
    """The 95 % interval of the mean by Student's t, or of the median by ranks; NaN where there are too few.

    As many values as of n throws of a coin may be heads lie below the median.
    """
    n = len(numbers)
    if over == "median":
        below = bdtr(np.arange(n + 1), n, 0.5)
        ends = [int(np.searchsorted(below, 0.025)) - 1, int(np.searchsorted(below, 0.975))]
        return [float(np.sort(numbers)[end]) if 0 <= end < n else math.nan for end in ends]
    half = stdtrit(n - 1, 0.975) * np.std(numbers, ddof=1) / math.sqrt(n) if n > 1 else math.nan
    return [float(np.mean(numbers) - half), float(np.mean(numbers) + half)]


def compare_with_nulls(judged: dict[str, dict[str, Any]], name: str, claim: Claim) -> None:
    """Say of a claim which of its nulls, claims of their own, it beats: those that hold."""
    unknown = sorted(set(claim.nulls) - set(judged))
    if unknown:
        raise InputError(f"{name}: nulls: wanted names of claims, got {unknown}")
    if claim.nulls:
        judged[name]["nulls"] = {null: judged[null]["state"] for null in claim.nulls}


if __name__ == "__main__":
    run(main)
