"""Judge every claim of claims.yaml by the numbers in git: does it hold, fail, or was it not run?

A claim whose measure the file of its group has not was not run: a sweep may leave out cases.
"""

import difflib
import itertools
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import bdtr
from scipy.stats import bootstrap

from lib.files.files import InputError
from lib.files.params import Interval
from lib.files.tables import read_measures, write_json
from lib.pages.claims import Claim, line_of, read_claims
from lib.work.command import OutFile, run

LEAST_CASES = 5  # for an interval
SAID = (
    "statement",
    "where",
    "kind",
    "source",
    "measure",
    "over",
    "bar",
    "figure",
    "drawn",
    "headline",
    "expected",
)


def main(claims: Path, measures: list[Path], verdicts: OutFile) -> None:
    found = {str(path): read_measures(path) for path in measures}
    listed = read_claims(claims)
    for claim in listed.values():
        if claim.measures not in found:
            raise InputError(
                f"{claims}, line {line_of(claims, claim.measures)}: wanted a file that a stage "
                "makes, one of "
                f"{sorted(found)}; got {claim.measures}"
            )
    for file, of_file in found.items():
        named = dict.fromkeys(
            claim.measure.partition("@")[0] for claim in listed.values() if claim.measures == file
        )
        if len(named) > 1 and of_file.keys() - {"setup"} and not of_file.keys() & named.keys():
            raise InputError(
                f"{file}: wanted measures such as {next(iter(named))!r}, got "
                f"{', '.join(of_file):.100}"
            )
    judged = {name: judge(claim, found[claim.measures]) for name, claim in listed.items()}
    for name, claim in listed.items():
        if claim.nulls:
            own = claim.among(found[claim.measures])
            nulls = {null: listed[null].among(found[listed[null].measures]) for null in claim.nulls}
            judged[name]["nulls"] = {
                null: compared(claim, own, those) for null, those in nulls.items()
            }
    write_json(judged, verdicts)
    for state in ("holds", "fails"):
        print(f"{sum(verdict['state'] == state for verdict in judged.values())} {state}")
    for name, claim in listed.items():
        if judged[name]["state"] == "not run":
            print(f"not run: {name}, {missing(claim, found[claim.measures])}")


def missing(claim: Claim, measures: dict[str, Any]) -> str:
    """Which measure of a claim is not there, and what is nearly so called."""
    name = claim.measure.partition("@")[0]
    near = difflib.get_close_matches(name, measures, n=3, cutoff=0.8)
    like = f"; nearly so called: {', '.join(near)}" if near else ""
    return f"as {claim.measures} has no {claim.measure}{like}"


def described(claim: Claim, setup: dict[str, Any]) -> dict[str, Any]:
    """All that is said of a claim before it is judged, but for its nulls; numbers of the setup are
    put in.
    """

    def number(match: re.Match[str]) -> str:
        if match[1] not in setup:
            raise InputError(
                f"{claim.measures}: setup: wanted {match[1]!r} for a statement, got {sorted(setup)}"
            )
        value = setup[match[1]]
        return f"{value:g}" if isinstance(value, float) else str(value)

    return {key: value for key in SAID if (value := getattr(claim, key))} | {
        "statement": re.sub(r"{(\w+)}", number, claim.statement),
        "family": claim.family,
        "measure": f"{claim.measures}#{claim.measure}",
        "command": claim.command,
    }


def judge(claim: Claim, measures: dict[str, Any]) -> dict[str, Any]:
    """The claim with its verdict: value, spread and interval over the cases, and whether it meets
    its bar.

    Of several scales, at each of which the claim must hold, the numbers are those of the scale
    nearest to failing.
    """
    said = described(claim, measures.get("setup", {}))
    among = claim.among(measures)
    if not among:
        return {**said, "state": "not run"}
    found = {scale: verdict(claim, values) for scale, values in among.items()}
    worst = min(found, key=lambda scale: (found[scale]["holds"], room(claim, found[scale])))
    at = (
        {"scale": worst, "scales": {scale: one["value"] for scale, one in found.items()}}
        if worst
        else {}
    )
    holds = found[worst]["holds"]
    return {**said, **at, **found[worst], "state": "holds" if holds else "fails"}


def verdict(claim: Claim, measure: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a claim over the cases of one scale, and whether they meet the bar.

    The spread is the standard deviation or, around a median, half the distance of the quartiles.
    """
    values = measure["values"]
    if len(measure.get("cases", ())) != len(values):
        raise InputError(
            f"{claim.measures}: {claim.measure}: wanted a case for each of {len(values)} values, "
            f"got {measure}"
        )
    numbers = [math.nan if value is None else float(value) for value in values]
    summary = summary_of(claim, values)
    bar = Interval(claim.bar)
    low, high = np.quantile(numbers, [0.25, 0.75])
    spread = (
        (high - low) / 2
        if claim.over == "median"
        else np.std(numbers, ddof=1)
        if len(numbers) > 1
        else math.nan
    )
    return {
        "value": summary,
        "spread": float(spread) if len(numbers) > 1 else math.nan,
        "interval_95": interval_95(numbers, claim.over),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": len(numbers),
        "cases": measure["cases"],
        "values": numbers,
        "holds": all(value in bar for value in numbers)
        if claim.over == "every"
        else summary in bar,
    }


def compared(claim: Claim, own: dict[str, dict[str, Any]], null: dict[str, dict[str, Any]]) -> str:
    """Whether the numbers of a claim are nearer to its bar than those of its null, at each scale
    that both have.

    Where no scale is of both, each of the claim's is compared with each of the null's.
    """
    if not own or not null:
        return "not run"
    shared = [(own[scale], null[scale]) for scale in own if scale in null]
    pairs = shared or [(one, other) for one in own.values() for other in null.values()]
    return "beats" if all(is_nearer(claim, one, other) for one, other in pairs) else "does not beat"


def is_nearer(claim: Claim, own: dict[str, Any], null: dict[str, Any]) -> bool:
    """Whether a claim's numbers are nearer to its bar than a null's: case by case, or their mean or
    median.

    Only cases of both count; where there are none, each of the claim's is compared with each of the
    null's.
    """
    mine = dict(zip(own["cases"], own["values"], strict=True))
    other = dict(zip(null["cases"], null["values"], strict=True))
    shared = [case for case in mine if case in other]
    if shared:
        mine = {case: mine[case] for case in shared}
        other = {case: other[case] for case in shared}
    if claim.over != "every":
        return nearness(claim, summary_of(claim, mine.values())) > nearness(
            claim, summary_of(claim, other.values())
        )
    pairs = [(mine[case], other[case]) for case in shared] or itertools.product(
        mine.values(), other.values()
    )
    return all(nearness(claim, one) > nearness(claim, of_null) for one, of_null in pairs)


def summary_of(claim: Claim, values: Iterable[float | None]) -> float:
    """The mean of the values or, of a claim on it, their median; NaN where one is missing."""
    numbers = [math.nan if value is None else float(value) for value in values]
    return float(np.median(numbers) if claim.over == "median" else np.mean(numbers))


def room(claim: Claim, verdict: dict[str, Any]) -> float:
    """How far the numbers that decide are from the bar's ends, negative where one is beyond."""
    deciding = verdict["values"] if claim.over == "every" else [verdict["value"]]
    return min(nearness(claim, number) for number in deciding)


def nearness(claim: Claim, number: float | None) -> float:
    """How far a number is from the ends of the bar, negative where it is beyond.

    Within a bar that begins at 0 the upper end counts alone, and else, where it ends at a 1 that is
    part of it, the lower: an error is never too small, and a share never too large.
    """
    if number is None or math.isnan(number):
        return -math.inf
    bar = Interval(claim.bar)
    below, above = number - bar.low, bar.high - number
    if number in bar and bar.low == 0 and bar.high < math.inf:
        return above
    return below if number in bar and claim.bar.endswith(" 1]") else min(below, above)


def interval_95(numbers: list[float], over: str) -> list[float]:
    """The 95 % interval of the mean by the bootstrap (BCa), or of the median by ranks; NaN where
    there are too few.

    Both lie among the values, so that a share stays a share. As many values as of n throws of a
    coin may be heads lie below the median. Equal values say nothing of what others would be.
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


if __name__ == "__main__":
    run(main)
