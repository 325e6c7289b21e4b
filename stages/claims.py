"""Judge every claim by the numbers in git: does it hold, fail, or was it not run?

A claim whose measure is not in its file was not run: a sweep may leave out cases.
"""

import difflib
import itertools
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import bdtr
from scipy.stats import bootstrap

from lib.files.files import InputError
from lib.files.params import Interval
from lib.files.tables import read_measures, write_json
from lib.pages.claims import Claim, read_claims, wrong_at
from lib.work.command import OutFile, run

LEAST_CASES = 5  # for an interval
UNSAID = ("file", "place", "measures", "nulls")  # of a claim, in its verdict
Measures = Mapping[str, dict[str, Any]]  # by file, or by scale


def main(families: list[Path], verdicts: OutFile) -> None:
    """FAMILIES: for each family its claims (YAML), then the files of their measures (JSON)."""
    claims = read_claims([path for path in families if path.suffix == ".yaml"])
    measures = {str(path): read_measures(path) for path in families if path.suffix != ".yaml"}
    check_measures(claims, measures)
    among = {name: claim.among(measures[claim.measures]) for name, claim in claims.items()}
    judged = {}
    for name, claim in claims.items():
        judged[name] = judge(claim, among[name], measures[claim.measures].get("setup", {}))
        if claim.nulls:
            nulls = {null: compared(claim, among[name], among[null]) for null in claim.nulls}
            judged[name]["nulls"] = nulls
    write_json(judged, verdicts)
    for state in ("holds", "fails"):
        print(f"{sum(verdict['state'] == state for verdict in judged.values())} {state}")
    for name, claim in claims.items():
        if judged[name]["state"] == "not run":
            print(f"not run: {name}, {missing(claim, measures[claim.measures])}")


def missing(claim: Claim, measures: dict[str, Any]) -> str:
    """Which measure of a claim is not there, and what is nearly so called."""
    near = difflib.get_close_matches(name_of(claim), measures, n=3, cutoff=0.8)
    like = f"; nearly so called: {', '.join(near)}" if near else ""
    return f"as {claim.measures} has no {claim.measure}{like}"


def check_measures(claims: dict[str, Claim], measures: Measures) -> None:
    """Raise `InputError` where a claim names a file that is not there, or measures of another."""
    for claim in claims.values():
        if claim.measures not in measures:
            wanted = f"wanted a file that a stage makes, one of {sorted(measures)}"
            place = (claim.place[0], "measures")
            raise wrong_at(claim.file, place, f"{wanted}; got {claim.measures}")
    for file, there in measures.items():
        named = list(dict.fromkeys(name_of(c) for c in claims.values() if c.measures == file))
        if len(named) > 1 and there.keys() - {"setup"} and not there.keys() & set(named):
            wanted = f"{file}: wanted measures such as {named[0]!r}"
            raise InputError(f"{wanted}, got {', '.join(there):.100}")


def name_of(claim: Claim) -> str:
    """The claim's measure, without its scales."""
    return claim.measure.partition("@")[0]


def described(claim: Claim, setup: dict[str, Any]) -> dict[str, Any]:
    """What is said of a claim before it is judged, with the numbers of the setup put in."""

    def number(match: re.Match[str]) -> str:
        if match[1] not in setup:
            raise InputError(
                f"{claim.measures}: setup: wanted {match[1]!r} for a statement, got {sorted(setup)}"
            )
        value = setup[match[1]]
        return f"{value:g}" if isinstance(value, float) else str(value)

    said = {key: value for key, value in vars(claim).items() if value and key not in UNSAID}
    return said | {
        "statement": re.sub(r"{(\w+)}", number, claim.statement),
        "measure": f"{claim.measures}#{claim.measure}",
    }


def judge(claim: Claim, among: Measures, setup: dict[str, Any]) -> dict[str, Any]:
    """The claim with its verdict: value, spread and interval over the cases, and whether it holds.

    A claim on several scales must hold at each; its numbers are those of the scale nearest to
    failing.
    """
    said = described(claim, setup)
    found = {scale: verdict(claim, values) for scale, values in among.items()}
    if not found:
        return {**said, "state": "not run"}
    worst = min(found, key=lambda scale: (found[scale]["holds"], room(claim, found[scale])))
    if worst:
        said |= {"scale": worst, "scales": {scale: one["value"] for scale, one in found.items()}}
    return {**said, **found[worst], "state": "holds" if found[worst]["holds"] else "fails"}


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
    numbers = known_or_nan(values)
    summary = summary_of(claim, values)
    bar = Interval(claim.bar)
    spread = math.nan
    if len(numbers) > 1:
        low, high = np.quantile(numbers, [0.25, 0.75])
        spread = (high - low) / 2 if claim.over == "median" else np.std(numbers, ddof=1)
    judged = numbers if claim.over == "every" else [summary]
    return {
        "value": summary,
        "spread": float(spread),
        "interval_95": interval_95(numbers, claim.over),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": len(numbers),
        "cases": measure["cases"],
        "values": numbers,
        "holds": all(value in bar for value in judged),
    }


def compared(claim: Claim, own: Measures, null: Measures) -> str:
    """Whether a claim's numbers are nearer to its bar than its null's, at each scale of both.

    Where no scale is of both, each of the claim's is compared with each of the null's.
    """
    if not own or not null:
        return "not run"
    shared = [(own[scale], null[scale]) for scale in own if scale in null]
    pairs = shared or itertools.product(own.values(), null.values())
    return "beats" if all(is_nearer(claim, *pair) for pair in pairs) else "does not beat"


def is_nearer(claim: Claim, own: dict[str, Any], null: dict[str, Any]) -> bool:
    """Whether a claim's numbers are nearer to its bar than a null's: case by case, or in summary.

    Cases of both count alone; where there are none, each is compared with each.
    """
    mine = dict(zip(own["cases"], own["values"], strict=True))
    other = dict(zip(null["cases"], null["values"], strict=True))
    shared = [case for case in mine if case in other]
    if shared:
        mine = {case: mine[case] for case in shared}
        other = {case: other[case] for case in shared}
    if claim.over != "every":
        pairs = [(summary_of(claim, mine.values()), summary_of(claim, other.values()))]
    elif shared:
        pairs = zip(mine.values(), other.values(), strict=True)
    else:
        pairs = itertools.product(mine.values(), other.values())
    return all(nearness(claim, one) > nearness(claim, of_null) for one, of_null in pairs)


def summary_of(claim: Claim, values: Iterable[float | None]) -> float:
    """The mean of the values or, of a claim on it, their median; NaN where one is missing."""
    numbers = known_or_nan(values)
    return float(np.median(numbers) if claim.over == "median" else np.mean(numbers))


def known_or_nan(values: Iterable[float | None]) -> list[float]:
    """The values as numbers, NaN for one that is missing."""
    return [math.nan if value is None else float(value) for value in values]


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
    below = number - bar.low
    above = bar.high - number
    if number in bar and bar.low == 0 and bar.high < math.inf:
        return above
    if number in bar and claim.bar.endswith(" 1]"):
        return below
    return min(below, above)


def interval_95(numbers: list[float], over: str) -> list[float]:
    """The 95 % interval of the mean by the bootstrap (BCa), or of the median by ranks.

    NaN where there are too few numbers. Both ends lie among the values, so that a share stays a
    share. As many values as of n throws of a coin may be heads lie below the median. Equal values
    say nothing of what others would be.
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
