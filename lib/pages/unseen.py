"""What runs on seeds that set no bar say of items and claims, in words, beside what was found here.

The bar stands beside the numbers, and where every value has to meet it, so does the worst one. A
claim is compared in one case, here and in a run: the one that turned, or else, of those that such a
run repeats, the one that is nearest to the bar here. A run that has no such case, or fails in
another one, shows its own, with its name.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.files.inputs import read_json
from lib.files.params import Interval
from lib.pages.claims import VERDICTS
from lib.pages.judging import STOOD, short

Judged = Mapping[str, Any]  # an item, a claim or a case, with its numbers and its verdict
Named = Mapping[str, Judged]
Runs = Mapping[str, Named]  # the claims of each run, by what was added to its seeds

NOT_REPEATED = "not repeated: a published run"
NOT_RUN = "not run"
MOST_DIGITS = 9  # of a number that is rounded to its bar
ASIDE = re.compile(r" \((?:[^()]|\([^()]*\))*\)")  # what stands in parentheses behind a space
STOP = re.compile(r";|\.(?= [A-Z]|$)")


def read_runs(published: Path) -> dict[str, dict[str, Any]]:
    """The claims of each run on unseen seeds in a folder of published runs, by its seeds."""
    files = sorted(published.glob("unseen/*/claims.json"), key=lambda file: int(file.parent.name))
    return {file.parent.name: read_json(file) for file in files}


def bar_in_words(claim: Judged) -> str:
    """The bar of a claim: what has to meet it, and the end of it that may be missed."""
    bar = Interval(claim["interval"])
    what = {"every": "every value", "mean": "mean", "median": "median"}[claim["over"]]
    least = f"at least {bar.low:.3g}" if bar.text[0] == "[" else f"more than {bar.low:.3g}"
    most = f"at most {bar.high:.3g}" if bar.text[-1] == "]" else f"less than {bar.high:.3g}"
    if bar.low == bar.high:
        return f"{what} {bar.low:.3g}"
    if claim["better"] == "near":
        return f"{what} {bar.low:.3g} to {bar.high:.3g}"
    wanted = {"less": most, "more": least}[claim["better"]]
    end = {"less": bar.high, "more": bar.low}[claim["better"]]
    return f"{what} {wanted}" if math.isfinite(end) else f"{what} in {bar.text}"


def set_when(item: Judged, claims: Named) -> str:
    """Whose bar an item's first claim has, when it was set, and whether the bars of its other
    claims differ (checks aside); empty without claims.
    """
    said = item.get("stood", "")
    if said.startswith("a check"):
        return "a check, which no run could have failed"
    tested = [claims[name] for name in item["claims"] if not claims[name].get("check")]
    differ = len({claim["stood"] for claim in tested}) > 1
    whose = f"ours, {said}" if said.startswith("set") else said
    return f"{whose} (the main claim's; others differ)" if differ else whose


def threshold(claim: Judged) -> str:
    """Whose the threshold of a claim is, and when it was set."""
    said: str = STOOD.get(claim["stood"]) or claim["stood"]
    return f"threshold: ours, {said}" if said.startswith("set") else f"threshold: {said}"


def worst(claim: Judged, one: Judged) -> float | None:
    """The value of a claim or of a case of it that is nearest to the bar, or farthest beyond it."""
    low, high = one.get("min"), one.get("max")
    if low is None or high is None:
        return None
    bar = Interval(claim["interval"])
    by_end = {"less": high, "more": low, "near": high if bar.high - high < low - bar.low else low}
    return by_end[claim["better"]]


def with_worst(claim: Judged, name: str, runs: Runs) -> Judged:
    """The claim in which every run on unseen seeds has its worst value too, where that decides."""
    if claim.get("over") != "every" or "unseen" not in claim:
        return claim
    unseen = {
        seeds: one | {"worst": worst(claim, runs.get(seeds, {}).get(name, {}))}
        for seeds, one in claim["unseen"].items()
    }
    return {**claim, "unseen": unseen}


def numbers(claim: Judged, one: Judged) -> str:
    """The numbers of a case that the bar is about: their mean or median, and the worst value."""
    if one.get("value") is None:
        return "no number"
    middle = beside_bar(claim, one["value"])
    if one.get("min") == one.get("max"):
        return middle
    said = f"{'mean' if claim['over'] == 'mean' else 'median'} {middle}"
    decides = claim["over"] == "every"
    return f"{said}, worst {beside_bar(claim, worst(claim, one))}" if decides else said


def beside_bar(claim: Judged, number: float | None) -> str:
    """A number in three digits, or in as many as tell it from an end of the bar."""
    if number is None or math.isnan(number):
        return short(number)
    bar = Interval(claim["interval"])
    for digits in range(3, MOST_DIGITS):
        said = f"{number:.{digits}g}"
        if number in (bar.low, bar.high) or float(said) not in (bar.low, bar.high):
            return said
    return f"{number:.{MOST_DIGITS}g}"


@dataclass(frozen=True)
class Compared:
    """The bar of a claim, its numbers here, and those of each run on unseen seeds, in words."""

    bar: str
    here: str
    there: dict[str, str]

    def __str__(self) -> str:
        runs = "".join(f"; on seeds +{seeds}: {said}" for seeds, said in self.there.items())
        return f"bar: {self.bar}; here: {self.here}{runs}"


def comparison(claim: Judged, name: str, runs: Runs) -> Compared:
    """The bar of a claim, its numbers here, and those of every run, each with its case."""
    there = {seeds: run[name] for seeds, run in runs.items() if name in run}
    failing = [one for one in there.values() if one["holds"] != claim["holds"]]
    turned = next((one for one in failing if not one["holds"]), claim.get("tried", claim))
    here = _same_case(claim, turned) or claim
    said = {}
    for seeds, one in there.items():
        same = _same_case(one, here)
        alike = same is not None and same.get("holds", one["holds"]) == one["holds"]
        said[seeds] = numbers(claim, same) if same and alike else _with_case(claim, one)
    return Compared(bar_in_words(claim), _with_case(claim, here), said)


def of_claim(claim: Judged, name: str, runs: Runs) -> str:
    """What unseen seeds say of a claim: the same verdict or another, with all numbers."""
    if not claim.get("repeated"):
        return NOT_REPEATED
    if "unseen" not in claim:
        return NOT_RUN
    said = str(comparison(claim, name, runs))
    if not claim["fragile"]:
        return f"the same ({said})"
    other = [
        f"{VERDICTS[one['holds']]} on seeds +{seeds}"
        for seeds, one in claim["unseen"].items()
        if one["holds"] != claim["holds"]
    ]
    return f"fragile: {', '.join(other)} ({said})"


def of_item(item: Judged, claims: Named) -> str:
    """Whether unseen seeds give the same answer, and which other one, without numbers."""
    if not item.get("repeated"):
        turned = any(claims[name].get("fragile") for name in item["claims"])
        return f"{NOT_REPEATED}; but another of its claims turned" if turned else NOT_REPEATED
    if "unseen" not in item:
        return NOT_RUN
    if not item["fragile"]:
        return "the same"
    return f"fragile: the answer is {', '.join(_other_answers(item))}"


def of_item_with_numbers(item: Judged, claims: Named, runs: Runs) -> str:
    """What unseen seeds say of an item, with the numbers of the claims that turned, or else of the
    claim that decides.
    """
    said = of_item(item, claims)
    if not item.get("repeated") or said == NOT_RUN or not runs:
        return said
    compared = comparisons(item, claims, runs)
    return f"{said} ({'; '.join(map(str, compared.values()))})" if compared else said


def comparisons(item: Judged, claims: Named, runs: Runs) -> dict[str, Compared]:
    """The numbers of the claims of an item that turned, or else of the claim that decides, by the
    names of the claims.
    """
    there = [name for name in item["claims"] if any(name in run for run in runs.values())]
    turned = [name for name in there if item.get("fragile") and claims[name].get("fragile")]
    return {name: comparison(claims[name], name, runs) for name in turned or there[:1]}


@dataclass(frozen=True)
class Failure:
    """A claim of an item that fails here or on unseen seeds.

    `brief` is what it says, and empty for the claim that decides, of which a row says it already.
    """

    claim: str
    where: str
    by: str  # how much, with the case
    brief: str


def failures(item: Judged, claims: Named, runs: Runs) -> list[Failure]:
    """The claims of an item that fail here or on unseen seeds, in the item's order."""
    found = []
    for name in item["claims"]:
        claim = claims[name]
        unseen = claim.get("unseen", {})
        failing = [seeds for seeds, one in unseen.items() if one["holds"] is False]
        if claim["holds"] is False:
            turned = [seeds for seeds, one in unseen.items() if one["holds"]]
            where = f"fails here, but holds on {_seeds(turned)}" if turned else "fails"
            failed = [case for case in claim.get("cases", ()) if not case["holds"]]
            by = _with_case(claim, claim)
            if len(failed) > 1:
                by += f", and in {len(failed) - 1} more of {len(claim['cases'])} cases"
        elif failing:
            where = f"fails on {_seeds(failing)}"
            one = runs.get(failing[0], {}).get(name)
            by = _with_case(claim, one) if one else ""
        else:
            continue
        brief = "" if name == item["claims"][0] else in_brief(claim["statement"])
        found.append(Failure(name, where, by, brief))
    return found


def in_brief(statement: str) -> str:
    """The first sentence of a statement up to a semicolon, without what stands in parentheses."""
    return STOP.split(ASIDE.sub("", statement), maxsplit=1)[0]


def _seeds(listed: Sequence[str]) -> str:
    return f"seeds {' and '.join(f'+{seeds}' for seeds in listed)}"


def _other_answers(item: Judged) -> Iterator[str]:
    for seeds, one in item["unseen"].items():
        if one["answer"] != item["answer"]:
            yield f"{one['answer']} on seeds +{seeds}"


def _same_case(one: Judged, other: Judged) -> Judged | None:
    """The case of a claim that has the name and the scale of another; None where it has none."""
    if "cases" not in one:
        return None
    wanted = _case_of(other)
    return next((case for case in one["cases"] if _case_of(case) == wanted), None)


def _case_of(one: Judged) -> tuple[str, str]:
    return str(one.get("case", "")), str(one.get("scale", ""))


def _with_case(claim: Judged, one: Judged) -> str:
    """The numbers of a case with its name and its scale."""
    case = ", ".join(filter(None, _case_of(one)))
    return f"{numbers(claim, one)} ({case})" if case else numbers(claim, one)
