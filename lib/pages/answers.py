"""What is said of items and their claims: verdicts, answers, and words with the numbers of a run.

The verdicts are those of lib/pages/judging.py.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lib.files.files import InputError
from lib.files.inputs import read_json
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
    wrong_at,
)
from lib.pages.judging import (
    STOOD,
    answer,
    beaten,
    compared,
    judged_case,
    nearest,
    number,
    numbers_of,
)

BRACES = re.compile(r"{([^{}:]+)(?::([^{}]+))?}")
OWN = ("bar", "interval", "better", "statement", "stood", "over")
NOT_RUN = "(not run)"
UNEXPLAINED = "No reason is known: it held when it was written."
CLAIM = {"family", "item", "statement", "bar", "figure", "command", "holds", "n"}
CLAIM |= {"interval", "better", "over", "stood"}
ITEM = {"family", "title", "answer", "claims"}
Measures = Mapping[str, Mapping[str, Any]]  # of each file


def read_named(path: Path, what: str, keys: set[str]) -> dict[str, dict[str, Any]]:
    """The verdicts or the answers of a file by name; raises `InputError` where it is another."""
    found = read_json(path, digest=True)
    for name, one in found.items() if isinstance(found, dict) else [("", found)]:
        if not isinstance(one, dict) or not one.keys() >= keys:
            wanted = f"wanted {what} with {', '.join(sorted(keys))}"
            raise InputError(f"{path}: {wanted}, got {name or one!r:.80}")
    return found


def read_unseen(published: Path) -> dict[str, dict[str, Any]]:
    """The answers and verdicts of each run on unseen seeds, by what was added to the seeds."""
    folders = sorted((published / "unseen").glob("*/"), key=lambda folder: int(folder.name))
    return {
        folder.name: {name: read_json(folder / f"{name}.json") for name in ("items", "claims")}
        for folder in folders
    }


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
        said |= {"check": True} if claim.check else {}
        said |= {"repeated": self.family.is_repeated(self.item, claim)}
        found = FIGURE.fullmatch(claim.figure or self.item.figure)
        assert found is not None
        said |= {"figure": f"{run_of.figures}/{found[1]}.svg", "command": command_of(run_of)}
        if found[2]:
            said["drawn"] = found[2]
        said["statement"] = self.filled(claim.statement, claim)
        cases = list(self.cases(claim))
        if not cases:
            return {**said, "n": 0, "holds": None, "missing": self.missing(claim)}
        worst = nearest(claim, cases)
        numbers = ("case", "scale", "value", "interval_95", "min", "max", "n", "null")
        said |= {key: worst[key] for key in numbers if key in worst}
        again = [case for case in cases if "published" not in case]
        if again and "published" in worst:
            tried = nearest(claim, again)
            said |= {"tried": {key: tried[key] for key in ("case", "scale") if key in tried}}
        said |= {"holds": all(case["holds"] for case in cases), "cases": cases}
        said |= {"nulls": beaten(cases)} if beaten(cases) else {}
        if not said["holds"]:
            said["outcome"] = claim.outcome or "bar missed"
            said["why"] = self.filled(claim.why, claim, cases) if claim.why else UNEXPLAINED
        return said

    def cases(self, claim: Claim) -> Iterator[dict[str, Any]]:
        """The verdict of each case and scale that was run."""
        nulls = claim.nulls
        for case, measure in claim.measures.items():
            null = self.values(nulls[case]) if case in nulls else {}
            kept = {} if self.family.is_made(self.item, measure) else {"published": True}
            for scale, values in self.values(measure).items():
                found = {"case": case, "scale": scale, **judged_case(claim, values, measure)} | kept
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
        names = [name for name in self.measures[file] if name != "setup"]
        near = difflib.get_close_matches(measure, names, n=3, cutoff=0.8)
        if not near:  # the name without its case, or nearly so
            stems = {name.partition(".")[0] for name in names}
            like_it = difflib.get_close_matches(measure.partition(".")[0], stems, n=1, cutoff=0.8)
            near = [name for name in names if name.partition(".")[0] in like_it][:3]
        like = f"; nearly so called: {', '.join(near)}" if near else ""
        return f"{file} has no {measure}{like}"

    def answered(self, item: Item, judged: Mapping[str, Any]) -> dict[str, Any]:
        """The item with its answer, what was found, its limits and its marks."""
        verdicts = [claim for claim in judged.values() if claim["holds"] is not None]
        limits = [self.filled(item.limits)] if item.limits else []
        said = {key: getattr(item, key) for key in ("title", "size", "proof")}
        said |= {key: self.filled(getattr(item, key)) for key in ("says", "asks", "scope")}
        said |= {"answer": answer(item, verdicts, limits)}
        limits += [claim["why"] for claim in verdicts if not claim["holds"]]
        said |= {"limits": " ".join(_sentence(one) for one in limits)}
        if verdicts:
            first = verdicts[0]
            deciding = next(iter(item.claims.values()))
            said |= {"found": self.filled(item.found, deciding)}
            said |= {"headline": self.filled(item.headline)}
            said |= {"number": number(first), "figure": first["figure"]}
            said |= {"stood": "a check: it could not fail" if first.get("check") else ""}
            said |= {"stood": said["stood"] or STOOD[first["stood"]]}
        deciding_claim = next(iter(judged.values()), None)
        said |= {"repeated": bool(deciding_claim and deciding_claim["repeated"])}
        kept = {key: value for key, value in said.items() if value != ""}
        return kept | {"claims": list(judged)}

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
            numbers = [v for of in values.values() for v in numbers_of(of["values"])]
            if not numbers:
                return NOT_RUN
            median, *ends = (format(f(numbers), form) for f in (np.median, np.min, np.max))
            return median if ends == [median, median] else f"{median} ({ends[0]} to {ends[1]})"

        return BRACES.sub(put_in, text)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
