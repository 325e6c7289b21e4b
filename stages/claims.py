"""Judge every claim of claims.yaml by the numbers in git: does it hold, fail, or was it not run?"""

import math
import re
import sys
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr
from scipy.stats import bootstrap

from lib.io.command import run
from lib.io.files import InputError
from lib.io.params import Interval, load_yaml, parse
from lib.io.tables import read_json, write_json

LEAST_CASES = 5  # for an interval
SCALES = re.compile(r"(<=|>=|)([^<>=]+)")

Values = dict[str, Any]  # cases and their values, of a measure or of one of its scales


@dataclass(frozen=True)
class Claim:
    """A statement, who says so, and the bar that a measure must meet, at every scale where it is one by scale.

    `measure` is NAME, or NAME@SCALE, NAME@<=SCALE, NAME@>=SCALE for some of the scales. `{name}` in the statement is a
    number of the setup in the measures' file. What a paper says is `drawn` in the figure, as TABLE.COLUMN.
    """

    statement: str
    where: str
    kind: Literal["theorem", "paper's figure", "assumption", "our bar", "control"]
    source: str
    measure: str
    over: Literal["every", "mean", "median"]
    bar: str
    figure: str
    drawn: str | None = None
    nulls: tuple[str, ...] = ()
    expected: str | None = None

    def __post_init__(self) -> None:
        try:
            Interval(self.bar)
        except ValueError as error:
            raise ValueError(f"bar: {error}") from None
        if self.expected is not None and not self.expected.startswith("fails, because "):
            raise ValueError(f"expected: wanted 'fails, because ...', got {self.expected!r}")
        try:
            _ = self.among({})
        except (InvalidOperation, AttributeError):
            raise ValueError(f"measure: wanted NAME or NAME@SCALE, NAME@<=SCALE, got {self.measure!r}") from None

    def among(self, measures: dict[str, Any]) -> dict[str, Values]:
        """The values that are judged: by scale, or under "" of a measure without scales; those that were taken."""
        name, _, wanted = self.measure.partition("@")
        measure = measures.get(name, {})
        by_scale = {"": measure} if "values" in measure else measure
        if wanted:
            side, end = SCALES.fullmatch(wanted).groups()  # pyright: ignore[reportOptionalMemberAccess]
            ends = Decimal(end)
            by_scale = {
                scale: values
                for scale, values in by_scale.items()
                if scale
                and (Decimal(scale) <= ends if side == "<=" else Decimal(scale) >= ends if side else scale == end)
            }
        return {scale: values for scale, values in by_scale.items() if values.get("values")}


@dataclass(frozen=True)
class Group:
    """What claims share: the file of their measures, the folder of their figures, the command that makes both."""

    family: str
    measures: str
    figures: str
    command: str
    claims: dict[str, Claim]

    def described(self, claim: Claim, setup: dict[str, Any]) -> dict[str, Any]:
        """All that is said of a claim before it is judged, but for its nulls; numbers of the setup are put in."""
        said = {key: value for key, value in vars(claim).items() if value is not None and key != "nulls"}

        def number(match: re.Match[str]) -> str:
            if match[1] not in setup:
                raise InputError(f"{self.measures}: setup: wanted {match[1]!r} for a statement, got {sorted(setup)}")
            value = setup[match[1]]
            return f"{value:g}" if isinstance(value, float) else str(value)

        return said | {
            "statement": re.sub(r"{(\w+)}", number, claim.statement),
            "family": self.family,
            "measure": f"{self.measures}#{claim.measure}",
            "figure": f"{self.figures}/{claim.figure}.svg",
            "command": self.command,
        }


def main(claims: Path, measures: list[Path], verdicts: Path) -> None:
    found = {str(path): read_json(path) for path in measures}
    listed = load_yaml(claims)
    if not isinstance(listed, dict):
        raise InputError(f"{claims}: wanted groups of claims by name, got {listed!r}")
    groups = [grouped(claims, name, entry) for name, entry in listed.items()]
    for group in groups:
        if group.measures not in found:
            raise InputError(
                f"{claims}, line {line_of(claims, group.measures)}: wanted a file that a stage makes, one of "
                f"{sorted(found)}; got {group.measures}"
            )
    every = [(name, group, claim) for group in groups for name, claim in group.claims.items()]
    judged = {name: judge(claim, group, found[group.measures]) for name, group, claim in every}
    if len(judged) < len(every):
        raise InputError(f"{claims}: wanted claims of different names, got {len(every)} of {len(judged)} names")
    for name, _, claim in every:
        compare_with_nulls(judged, name, claim)
    write_json(judged, verdicts)
    for state in ("holds", "fails", "not run"):
        names = [name for name, verdict in judged.items() if verdict["state"] == state]
        print(f"{len(names)} {state}" + (f": {', '.join(names)}" if state != "holds" else ""))
    sys.stdout.flush()


def grouped(claims: Path, name: str, entry: Any) -> Group:
    """The group of that name; what is wrong with it is said with the line of the claim."""
    try:
        return parse(entry, Group, f"{claims}: {name}")
    except InputError as error:
        place = re.search(r"\.claims\.(\w+)", str(error))
        line = line_of(claims, f"{place[1]}:" if place else f"{name}:")
        raise InputError(str(error).replace(f"{claims}: ", f"{claims}, line {line}: ", 1)) from error


def line_of(file: Path, text: str) -> int:
    """The number of the first line that begins with a text, or ends with it, apart from spaces."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((n for n, line in enumerate(lines, 1) if line.strip().startswith(text) or line.endswith(text)), 1)


def judge(claim: Claim, group: Group, measures: dict[str, Any]) -> dict[str, Any]:
    """The claim with its verdict: value, spread and interval over the cases, and whether it meets its bar.

    Of several scales, at each of which the claim must hold, the numbers are those of the scale nearest to failing.
    """
    said = group.described(claim, measures.get("setup", {}))
    among = claim.among(measures)
    if not among:
        return {**said, "state": "not run"}
    found = {scale: verdict(claim, group, values) for scale, values in among.items()}
    worst = min(found, key=lambda scale: room(claim, found[scale]))
    at = {"scale": worst, "scales": {scale: one["value"] for scale, one in found.items()}} if worst else {}
    holds = found[worst]["holds"]
    return {**said, **at, **found[worst], "state": "holds" if holds else "fails"}


def verdict(claim: Claim, group: Group, measure: Values) -> dict[str, Any]:
    """The numbers of a claim over the cases of one scale, and whether they meet the bar.

    The spread is the standard deviation or, around a median, half the distance of the quartiles.
    """
    values = measure["values"]
    if len(measure.get("cases", ())) != len(values):
        raise InputError(
            f"{group.measures}: {claim.measure}: wanted a case for each of {len(values)} values, got {measure}"
        )
    numbers = [math.nan if value is None else float(value) for value in values]
    summary = float(np.median(numbers) if claim.over == "median" else np.mean(numbers))
    bar = Interval(claim.bar)
    low, high = np.quantile(numbers, [0.25, 0.75])
    spread = (high - low) / 2 if claim.over == "median" else np.std(numbers, ddof=1) if len(numbers) > 1 else math.nan
    return {
        "value": summary,
        "spread": float(spread) if len(numbers) > 1 else math.nan,
        "interval_95": interval_95(numbers, claim.over),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": len(numbers),
        "cases": measure["cases"],
        "values": numbers,
        "holds": all(value in bar for value in numbers) if claim.over == "every" else summary in bar,
    }


def room(claim: Claim, verdict: dict[str, Any]) -> float:
    """How far the numbers that decide are from the bar's ends, negative where one is beyond.

    Where the bar begins at a 0 or ends at a 1 that is part of it, the other end counts alone.
    """
    if not verdict["holds"] and any(map(math.isnan, verdict["values"])):
        return -math.inf
    bar = Interval(claim.bar)
    deciding = (verdict["min"], verdict["max"]) if claim.over == "every" else (verdict["value"],)
    below, above = min(deciding) - bar.low, bar.high - max(deciding)
    if claim.bar.startswith("[0,") and bar.high < math.inf:
        return above
    return below if claim.bar.endswith(" 1]") else min(below, above)


def interval_95(numbers: list[float], over: str) -> list[float]:
    """The 95 % interval of the mean by the bootstrap (BCa), or of the median by ranks; NaN where there are too few.

    Both lie among the values, so that a share stays a share. As many values as of n throws of a coin may be heads lie
    below the median. Equal values say nothing of what others would be.
    """
    n = len(numbers)
    if n < LEAST_CASES or not np.isfinite(numbers).all() or np.ptp(numbers) == 0:
        return [math.nan, math.nan]
    if over == "median":
        below = bdtr(np.arange(n + 1), n, 0.5)
        ends = [int(np.searchsorted(below, 0.025)) - 1, int(np.searchsorted(below, 0.975))]
        return [float(np.sort(numbers)[end]) if 0 <= end < n else math.nan for end in ends]
    found = bootstrap((numbers,), np.mean, rng=np.random.default_rng(0)).confidence_interval
    return [float(found.low), float(found.high)]


def compare_with_nulls(judged: dict[str, dict[str, Any]], name: str, claim: Claim) -> None:
    """Say of a claim which of its nulls, claims of their own, it beats: those that hold."""
    unknown = sorted(set(claim.nulls) - set(judged))
    if unknown:
        raise InputError(f"{name}: nulls: wanted names of claims, got {unknown}")
    if claim.nulls:
        judged[name]["nulls"] = {null: judged[null]["state"] for null in claim.nulls}


if __name__ == "__main__":
    run(main)
