"""Judge every claim of claims.yaml by the numbers in git: does it hold, fail, or was it not run?"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any, Literal

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
    expected: str | None = None

    def __post_init__(self) -> None:
        if self.measure.count("#") != 1:
            raise ValueError(f"measure: wanted FILE#NAME, got {self.measure!r}")
        Interval(self.bar).__contains__(0.0)
        if self.expected is not None and not self.expected.startswith("fails, because "):
            raise ValueError(f"expected: wanted 'fails, because ...', got {self.expected!r}")


def main(claims: Path, measures: list[Path], verdicts: Path) -> None:
    found = {str(path): read_json(path) for path in measures}
    listed = load_yaml(claims)
    if not isinstance(listed, dict):
        raise InputError(f"{claims}: wanted claims by name, got {listed!r}")
    judged = {name: judge(parse(entry, Claim, f"{claims}: {name}"), found, name) for name, entry in listed.items()}
    write_json(judged, verdicts)
    for state in ("holds", "fails", "not run"):
        names = [name for name, verdict in judged.items() if verdict["state"] == state]
        print(f"{len(names)} {state}" + (f": {', '.join(names)}" if state != "holds" else ""))
    sys.stdout.flush()


def judge(claim: Claim, found: dict[str, Any], name: str) -> dict[str, Any]:
    """The claim with its verdict: value, spread and interval over the seeds, and whether it meets its bar."""
    file, measure = claim.measure.split("#")
    described = {key: value for key, value in vars(claim).items() if value is not None}
    if file not in found:
        return {**described, "state": "not run"}
    if measure not in found[file]:
        raise InputError(f"{name}: wanted a measure of {sorted(found[file])}, got {measure!r}")
    values = found[file][measure]["values"]
    numbers = [math.nan if value is None else float(value) for value in values]
    summary = median(numbers) if claim.over == "median" else mean(numbers)
    bar = Interval(claim.bar)
    holds = all(value in bar for value in numbers) if claim.over == "every" else summary in bar
    n = len(numbers)
    spread = stdev(numbers) if n > 1 and all(map(math.isfinite, numbers)) else math.nan
    half = student.ppf(0.975, n - 1) * spread / math.sqrt(n) if n > 1 else math.nan
    return {
        **described,
        "value": summary,
        "spread": spread,
        "interval_95": [summary - half, summary + half],
        "min": min(numbers),
        "max": max(numbers),
        "n": n,
        "seeds": found[file][measure]["seeds"],
        "values": numbers,
        "state": "holds" if holds else "fails",
        "holds": holds,
    }


if __name__ == "__main__":
    run(main)
