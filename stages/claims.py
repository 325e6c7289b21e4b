"""Judge every claim by the numbers in git, and answer every item of a paper."""

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.files.files import InputError
from lib.files.params import Interval
from lib.files.tables import read_json, read_measures, write_json
from lib.pages.claims import (
    FIGURE,
    MEASURE,
    Claim,
    Family,
    Item,
    Run,
    among,
    claims_of,
    kind_of,
    read_families,
    wrong_at,
)
from lib.pages.statistics import interval, middle
from lib.work.command import OutFile, run

BRACES = re.compile(r"{([^{}:]+)(?::([^{}]+))?}")
OWN = ("bar", "interval", "statement", "stood", "over")
NOT_RUN = "(not run)"
UNEXPLAINED = "no reason is known: it held when it was written"
Measures = Mapping[str, Mapping[str, Any]]  # of each file
Values = Mapping[str, Any]  # of a measure at a scale: `cases`, the name of each, and `values`


def main(families: list[Path], published: Path, verdicts: OutFile, answers: OutFile) -> None:
    """FAMILIES: for each family its claims (YAML), then the files of their measures (JSON).

    PUBLISHED: the folder of published runs, each a folder with its measures and its provenance.
    """
    files = [path for path in families if path.suffix == ".yaml"]
    read = read_families(files)
    made = [path for path in families if path.suffix != ".yaml"]
    measures = {str(path): read_measures(path) for path in [*made, *kept_in(published)]}
    for file in files:
        check_measures(file, read[file.parent.name], measures)
    judged: dict[str, Any] = {}
    items: dict[str, Any] = {}
    for name, family in read.items():
        for item, claim, entry in claims_of(family):
            said = Said(name, family, family.items[item], measures)
            judged[claim] = {"family": name, "item": item, **said.judged(entry)}
        for item, entry in family.items.items():
            said = Said(name, family, entry, measures)
            own = {claim: judged[claim] for claim in entry.claims}
            items[f"{name}.{item}"] = {"family": name, **said.answered(entry, own)}
    write_json(judged, verdicts, digest=True)
    write_json(items, answers, digest=True)
    found = [verdict["holds"] for verdict in judged.values()]
    print(f"{len(items)} items, {len(found)} claims: {found.count(True)} hold, ", end="")
    print(f"{found.count(False)} do not, {found.count(None)} were not run")


def kept_in(published: Path) -> list[Path]:
    """The measures of published runs; answers on unseen seeds are no run's."""
    return sorted(published.glob("*/measures.json"))


def command_of(run_of: Run) -> str:
    """The command that makes a run again."""
    kept = Path(run_of.measures).with_name("provenance.json")
    return run_of.command or read_json(kept)["command"]


def check_measures(file: Path, family: Family, measures: Measures) -> None:
    """Raise `InputError` where a run's file is not there, or has the measures of another."""
    for name, one in family.all_runs.items():
        if one.measures not in measures:
            wanted = f"wanted a file that a stage makes, one of {sorted(measures)}"
            place = ("runs", name) if name in family.runs else ("published",)
            raise wrong_at(file, place, f"{wanted}; got {one.measures}")
    named: dict[str, list[str]] = {}
    for item, _, claim in claims_of(family):
        for measure in claim.measures.values():
            found = MEASURE.fullmatch(measure)
            assert found is not None
            named.setdefault(family.run_of(family.items[item], measure).measures, []).append(
                found[2]
            )
    for path, names in named.items():
        there = measures[path].keys() - {"setup"}
        if there and not there & set(names):
            wanted = f"{path}: wanted measures such as {names[0]!r}"
            raise InputError(f"{wanted}, got {', '.join(sorted(there)):.100}")


class Said:
    """What is said of an item and its claims: words, with the numbers of their run put in."""

    def __init__(self, name: str, family: Family, item: Item, measures: Measures):
        self.name = name
        self.family = family
        self.item = item
        self.measures = measures

    def judged(self, claim: Claim) -> dict[str, Any]:
        """The claim with its verdict, and the numbers of the case that is nearest to failing."""
        run_of = self.family.run_of(self.item, next(iter(claim.measures.values())))
        said = {key: getattr(claim, key) for key in OWN} | {"kind": kind_of(self.item, claim)}
        found = FIGURE.fullmatch(claim.figure or self.item.figure)
        assert found is not None
        said |= {"figure": f"{run_of.figures}/{found[1]}.svg", "command": command_of(run_of)}
        if found[2]:
            said["drawn"] = found[2]
        said["statement"] = self.filled(claim.statement, claim)
        cases = list(self.cases(claim))
        if not cases:
            return {**said, "n": 0, "holds": None, "missing": self.missing(claim)}
        worst = min(cases, key=lambda case: (case["holds"], _room(claim, case)))
        numbers = ("case", "scale", "value", "interval_95", "min", "max", "n", "null")
        said |= {key: worst[key] for key in numbers if key in worst}
        said |= {"holds": all(case["holds"] for case in cases), "cases": cases}
        if not said["holds"]:
            said["outcome"] = claim.outcome or "bar missed"
            said["why"] = self.filled(claim.why, claim, cases) if claim.why else UNEXPLAINED
        return said

    def cases(self, claim: Claim) -> Iterator[dict[str, Any]]:
        """The verdict of each case and scale that was run."""
        nulls = claim.nulls
        for case, measure in claim.measures.items():
            null = self.values(nulls[case]) if case in nulls else {}
            for scale, values in self.values(measure).items():
                found = {"case": case, "scale": scale, **verdict(claim, values, measure)}
                beside = null.get(scale) or (next(iter(null.values())) if len(null) == 1 else None)
                if beside:
                    found["null"] = {"what": claim.null_is, **compared(claim, values, beside)}
                yield {key: value for key, value in found.items() if value != ""}

    def values(self, measure: str) -> dict[str, Any]:
        """The values of a measure by scale."""
        return among(measure, self.measures[self.family.run_of(self.item, measure).measures])

    def missing(self, claim: Claim) -> str:
        """Which measure of a claim is not there, and what is nearly so called."""
        measure = next(iter(claim.measures.values()))
        file = self.family.run_of(self.item, measure).measures
        near = difflib.get_close_matches(measure, self.measures[file], n=3, cutoff=0.8)
        like = f"; nearly so called: {', '.join(near)}" if near else ""
        return f"{file} has no {measure}{like}"

    def answered(self, item: Item, judged: Mapping[str, Any]) -> dict[str, Any]:
        """The item with its answer, its limits, and the number of the claim that decides."""
        run_of = [claim for claim in judged.values() if claim["holds"] is not None]
        failing = [claim for claim in run_of if not claim["holds"]]
        limits = [self.filled(item.limits)] if item.limits else []
        limits += [claim["why"] for claim in failing]
        words = ("yes", "yes, with limits", "no") if item.asks else _OF_PAPER
        if not run_of:
            answer = "not tested"
        elif not run_of[0]["holds"]:
            answer = item.otherwise if item.says else words[2]
        else:
            answer = words[1] if limits else words[0]
        said = {key: getattr(item, key) for key in ("title", "proof")}
        said |= {key: self.filled(getattr(item, key)) for key in ("says", "asks")}
        said |= {"headline": self.filled(item.headline)} if item.headline and run_of else {}
        said |= {"answer": answer, "limits": " ".join(_sentence(one) for one in limits)}
        if run_of:
            said |= {"number": number(run_of[0]), "figure": run_of[0]["figure"]}
            null = run_of[0].get("null")
            said["null"] = f"{_short(null['value'])} ({null['what']})" if null else ""
            said["measured"] = run_of[0]["statement"]
        return {key: value for key, value in said.items() if value} | {"claims": list(judged)}

    def filled(
        self, text: str, claim: Claim | None = None, cases: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """A sentence with numbers in place of what stands in its braces.

        `{low}` and `{high}` are the ends of the claim's bar, `{n_failing}` and `{n_cases}` count
        its cases; other names are numbers of the run's setup, or measures: their median, and their
        range where there are several. Behind a colon stands Python's format of a number (`:.0%`).
        What was not run is said to be so: a sweep may leave out cases.
        """
        setup = self.measures[self.family.run_of(self.item).measures].get("setup", {})
        known: dict[str, Any] = dict(setup)
        if claim:
            ends = claim.interval[1:-1].split(",")
            known |= {"low": ends[0].strip(), "high": ends[1].strip()}
            known |= {"n_cases": len(cases)}
            known |= {"n_failing": sum(not case["holds"] for case in cases)}

        def put_in(match: re.Match[str]) -> str:
            name = match[1]
            form = match[2] or ".3g"
            if name in known:
                value = known[name]
                return format(value, form) if isinstance(value, float) or match[2] else str(value)
            values = self.values(name) if MEASURE.fullmatch(name) else {}
            numbers = [v for of in values.values() for v in _numbers(of["values"])]
            if not numbers:
                return NOT_RUN
            median, *ends = (format(f(numbers), form) for f in (np.median, np.min, np.max))
            return median if len(numbers) == 1 else f"{median} ({ends[0]} to {ends[1]})"

        return BRACES.sub(put_in, text)


_OF_PAPER = ("reproduced", "reproduced with limits", "not reproduced")


def verdict(claim: Claim, values: Values, measure: str) -> dict[str, Any]:
    """The numbers of a claim in one case, at one scale, and whether they meet the bar.

    What is independent (`units`) counts once: its values are summed up before an interval is taken.
    """
    names = list(map(str, values.get("cases", ())))
    numbers = _numbers(values["values"])
    if len(names) != len(numbers):
        wanted = f"wanted a case for each of {len(numbers)} values"
        raise InputError(f"{measure}: {wanted}, got {len(names)}")
    bar = Interval(claim.interval)
    summed = middle(numbers, claim.over)
    units = list(_by_unit(claim, names, numbers).values())
    return {
        "measure": measure,
        "value": summed,
        "interval_95": interval(units, claim.over),
        "min": float(np.min(numbers)),  # NaN where one of them is, unlike min
        "max": float(np.max(numbers)),
        "n": len(units),
        "holds": all(number in bar for number in (numbers if claim.over == "every" else [summed])),
        "names": names,
        "values": numbers,
    }


def compared(claim: Claim, own: Values, null: Values) -> dict[str, Any]:
    """A claim's numbers beside those of its null, in pairs of one name, or else of one unit.

    `difference` is the middle of value less null. The claim beats its null where its numbers are
    better: with an interval, where all of that is on the better side of 0, below six pairs where
    every pair is.
    """
    mine = dict(zip(map(str, own["cases"]), _numbers(own["values"]), strict=True))
    other = dict(zip(map(str, null["cases"]), _numbers(null["values"]), strict=True))
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
    """What of a number is good: it itself, less it, or less its distance from the bar's middle.

    Within a bar that begins at 0 less is better; where it has no upper end, or one at 1, more is.
    """
    bar = Interval(claim.interval)
    if bar.low in (0, -math.inf):
        return -number
    if bar.high in (1, math.inf):
        return number
    return -abs(number - (bar.low + bar.high) / 2)


def number(judged: Mapping[str, Any]) -> str:
    """The number of a verdict in words: its middle, its interval or range, and n."""
    said = _short(judged["value"])
    if judged["n"] > 1 or judged["min"] != judged["max"]:
        known = judged["interval_95"]
        ends = known if all(map(math.isfinite, known)) else (judged["min"], judged["max"])
        kind = "95 %: " if ends is known else ""
        said += f" ({kind}{_short(ends[0])} to {_short(ends[1])}; n = {judged['n']})"
    where = [judged[key] for key in ("case", "scale") if judged.get(key)]
    return f"{said}, {', '.join(where)}" if where else said


def _room(claim: Claim, case: Mapping[str, Any]) -> float:
    """How far the numbers that decide are from the bar's end that they may miss."""
    bar = Interval(claim.interval)
    deciding = case["values"] if claim.over == "every" else [case["value"]]
    ends = [bar.high - max(deciding)] if bar.low in (0, -math.inf) else []
    ends += [min(deciding) - bar.low] if bar.high in (1, math.inf) else []
    both = [min(min(deciding) - bar.low, bar.high - max(deciding))]
    found = min(ends or both)
    return found if math.isfinite(found) else -math.inf


def _by_unit(claim: Claim, names: Sequence[str], numbers: Sequence[float]) -> dict[str, float]:
    """One number for what is independent: the middle of those that share a seed, base or task."""
    units: dict[str, list[float]] = {}
    for name, value in zip(names, numbers, strict=True):
        found = re.match(claim.units, name)
        units.setdefault(found[0] if found else name, []).append(value)
    return {unit: middle(of, claim.over) for unit, of in units.items()}


def _numbers(values: Sequence[float | None]) -> list[float]:
    """The values as numbers, NaN for one that is missing."""
    return [math.nan if value is None else float(value) for value in values]


def _short(value: float | None) -> str:
    return "not known" if value is None or math.isnan(value) else f"{value:.3g}"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


if __name__ == "__main__":
    run(main)
