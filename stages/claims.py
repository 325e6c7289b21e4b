"""Judge every claim of claims.yaml by the numbers in git: does it hold, fail, or was it not run?"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import quantile_test
from scipy.stats import t as student

from lib.io.command import run
from lib.io.files import InputError
from lib.io.params import Interval, load_yaml, parse
from lib.io.tables import read_json, write_json


@dataclass(frozen=True)
class Claim:
    statement: str
    where: str
    family: str
    kind: Literal["theorem", "paper's figure", "our bar", "control"]
    source: str
    measure: str
    over: Literal["every", "mean", "median"]
    bar: str
    figure: str
    command: str
    nulls: tuple[str, ...] = ()
    expected: str | None = None

    def __post_init__(self) -> None:
        if self.measure.count("#") != 1:
            raise ValueError(f"measure: wanted FILE#NAME, got {self.measure!r}")
        try:
            _ = 0.0 in Interval(self.bar)
        except ValueError:
            raise ValueError(f"bar: wanted an interval such as '[1, 2)', got {self.bar!r}") from None
        if self.expected is not None and not self.expected.startswith("fails, because "):
            raise ValueError(f"expected: wanted 'fails, because ...', got {self.expected!r}")


def main(claims: Path, measures: list[Path], verdicts: Path) -> None:
    found = {str(path): read_json(path) for path in measures}
    listed = load_yaml(claims)
    if not isinstance(listed, dict):
        raise InputError(f"{claims}: wanted claims by name, got {listed!r}")
    parsed = {name: parse(entry, Claim, f"{claims}: {name}") for name, entry in listed.items()}
    judged = {name: judge(claim, found) for name, claim in parsed.items()}
    for name, claim in parsed.items():
        compare_with_nulls(judged, name, claim)
    write_json(judged, verdicts)
    for state in ("holds", "fails", "not run"):
        names = [name for name, verdict in judged.items() if verdict["state"] == state]
        print(f"{len(names)} {state}" + (f": {', '.join(names)}" if state != "holds" else ""))
    sys.stdout.flush()


def judge(claim: Claim, found: dict[str, Any]) -> dict[str, Any]:
    """The claim with its verdict: value, spread and interval over the seeds, and whether it meets its bar."""
    file, measure = claim.measure.split("#")
    described = {key: value for key, value in vars(claim).items() if value is not None and key != "nulls"}
    values = found.get(file, {}).get(measure, {}).get("values")
    if not values:
        return {**described, "state": "not run"}
    numbers = [math.nan if value is None else float(value) for value in values]
    summary = float(np.median(numbers) if claim.over == "median" else np.mean(numbers))
    bar = Interval(claim.bar)
    holds = all(value in bar for value in numbers) if claim.over == "every" else summary in bar
    n = len(numbers)
    spread = float(np.std(numbers, ddof=1)) if n > 1 else math.nan
    return {
        **described,
        "value": summary,
        "spread": spread,
        "interval_95": interval_95(numbers, claim.over),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": n,
        "seeds": found[file][measure]["seeds"],
        "values": numbers,
        "state": "holds" if holds else "fails",
        "holds": holds,
    }


def interval_95(numbers: list[float], over: str) -> list[float]:
    """The 95 % interval of the mean by Student's t, or of the median by ranks; NaN where there are too few."""
    n = len(numbers)
    if over == "median":
        found: Any = quantile_test(numbers, p=0.5)
        return [float(end) for end in found.confidence_interval(0.95)]
    half = student.ppf(0.975, n - 1) * np.std(numbers, ddof=1) / math.sqrt(n) if n > 1 else math.nan
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
