"""Items of a paper, and the claims that answer them.

`stages/FAMILY/claims.yaml` has a family's folder of figures, the command that makes them, its runs
(a file of measures each), the names of its published runs (folders of `published/`, with figures
and command of their own), and its items, those of the paper in its order, ours behind them. An item
says in one sentence what the paper says, or what we ask, and in another what was found. Its claims
answer it: a claim is one sentence and one bar, judged in one or several cases, each a measure. A
null stands inside its claim, for the same cases. docs/add_a_family.md shows a whole file, and
lib/pages/judging.py has the verdicts and answers that follow.

A measure is written `NAME`, or `NAME.CASE` for one case of several, with `@SCALE`, `@<=SCALE` or
`@>=SCALE` behind it for some of its init scales, and with `RUN/` before it where it is not of the
item's first run.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

from lib.files.files import InputError
from lib.files.params import Interval, load_yaml, parse

MEASURE = re.compile(r"(?:([\w-]+)/)?(\w+(?:\.[\w -]*\w)?)(?:@((?:<=|>=|)[\d.eE+-]+))?")
BAR = re.compile(r"(every|mean|median) in (\S+ \S+|\S+)")
FIGURE = re.compile(r"([\w-]+)(?:, from (\w+\.\w+))?")
NAMED = re.compile(r"[a-z][a-z0-9_]*")
VERDICTS = {True: "holds", False: "does not hold", None: "not run"}
OUTCOMES = Literal["finding", "limit", "bar missed"]
BETTER = Literal["less", "more", "near"]  # the direction; near the middle of the bar
STOOD = Literal["paper", "before", "after"]

Place = tuple[str | int, ...]  # the keys and positions that lead to a value of a YAML file


@dataclass(frozen=True)
class Run:
    """Where measures and figures are, and the command that makes them.

    A published run's command stands in its provenance.json.
    """

    measures: str
    figures: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence, its bar, and the cases in which it is judged.

    Every case has a measure; the bar holds in each case, for `every` value, or for their `mean` or
    `median`. A null is measured in the same cases, or is one measure for all; which of the two is
    better, `better` says, not the bar. A figure is a name in the run's folder, with the
    TABLE.COLUMN that shows the claim there. In the sentence and in `why`, braces hold numbers of
    the run (`filled` of lib/pages/answers.py).
    """

    statement: str
    bar: str
    better: BETTER
    share: bool = False  # of a whole, so that the interval of its mean stays in [0, 1]
    check: bool = False  # a theorem or identity, which no run here could have failed
    measure: str = ""  # of a claim of one case
    cases: dict[str, str] = field(default_factory=dict)  # measures by the name of the case
    kind: Literal["paper", "ours", ""] = ""  # who says it; without one as its item
    stood: STOOD = "after"  # the bar is the paper's or a theorem's, or was set before, or after
    null_is: str = ""  # in words
    null_measure: str | dict[str, str] = ""  # of all cases, or by case
    units: str = "[^,]*"  # of a value's name, what names the task, base or seed that it depends on
    figure: str = ""
    outcome: OUTCOMES | None = None  # where it does not hold
    why: str = ""

    def __post_init__(self) -> None:
        found = BAR.fullmatch(self.bar)
        if not found:
            wanted = "wanted every, mean or median, and an interval: 'every in [0, 1]'"
            raise ValueError(f"bar: {wanted}, got {self.bar!r}")
        try:
            bar = Interval(found[2])
        except ValueError as error:
            raise ValueError(f"bar: {error}") from None
        if self.better == "near" and not math.isfinite(bar.low + bar.high):
            raise ValueError(f"better: near wants a bar with two ends, got {self.bar!r}")
        if bool(self.measure) == bool(self.cases):
            raise ValueError("wanted a measure, or cases that have one each, got both or none")
        if bool(self.null_is) != bool(self.null_measure):
            raise ValueError("wanted null_is, in words, and null_measure, got one of them")
        if (self.outcome is None) != (not self.why):
            raise ValueError("wanted outcome and why, or none of them, got one")
        for measure in (*self.measures.values(), *self.nulls.values()):
            if not MEASURE.fullmatch(measure):
                wanted = "MEASURE, MEASURE.CASE, MEASURE@SCALE, MEASURE@<=SCALE or RUN/MEASURE"
                raise ValueError(f"wanted {wanted}, got {measure!r}")
        if self.figure and not FIGURE.fullmatch(self.figure):
            raise ValueError(
                f"figure: wanted NAME, or NAME, from TABLE.COLUMN, got {self.figure!r}"
            )
        if not self.nulls.keys() <= self.measures.keys():
            raise ValueError(f"null_measure: wanted {list(self.measures)}, got {list(self.nulls)}")

    @property
    def measures(self) -> dict[str, str]:
        """The measure of each case; a claim of one case calls it ""."""
        return self.cases or {"": self.measure}

    @property
    def nulls(self) -> dict[str, str]:
        """The null's measure of each case that has one."""
        if isinstance(self.null_measure, dict):
            return self.null_measure
        return dict.fromkeys(self.measures, self.null_measure) if self.null_measure else {}

    @property
    def over(self) -> str:
        """What meets the bar: `every` value, their `mean` or their `median`."""
        return self.bar.partition(" ")[0]

    @property
    def interval(self) -> str:
        """The bar without what meets it."""
        return self.bar.partition(" in ")[2]


@dataclass(frozen=True, kw_only=True)
class Item:
    """What a paper says, or what we ask, in one sentence, and the claims that answer it.

    The first claim decides: where it fails the answer is `otherwise`. What is said in `limits`
    fails whatever comes out; limits, and claims that fail beside the first, are said with the
    answer and make it one in part. What the item is about (sizes, seeds, our reading) is its
    `scope`, which lowers no answer.
    """

    title: str  # begins with the place in the paper
    says: str = ""  # the paper
    asks: str = ""  # ours
    size: str = ""  # "the paper's", or what is smaller
    found: str = ""  # the result in a sentence: the number, its unit, the bar and the null
    scope: str = ""
    limits: str = ""
    run: str = ""  # the run of its measures and figures, without one the first
    otherwise: Literal["not reproduced", "contradicted"] = "not reproduced"
    proof: str = ""  # a page, with the section
    headline: str = ""  # what README says of it, in one sentence with its numbers
    figure: str = ""
    claims: dict[str, Claim] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if bool(self.says) == bool(self.asks):
            raise ValueError("wanted what the paper says, or what is asked, got both or none")
        if bool(self.claims) != bool(self.found):
            raise ValueError("found: wanted what was found where there are claims, and only there")
        if self.says and self.claims and not self.size:
            raise ValueError("size: wanted the paper's, or what is smaller, got none")


@dataclass(frozen=True)
class Family:
    """A family's runs, those of the pipeline and the published, and its items by name."""

    figures: str
    command: str
    runs: dict[str, str]  # the file of measures of each
    items: dict[str, Item]
    published: list[str] = field(default_factory=list)

    @property
    def all_runs(self) -> dict[str, Run]:
        """The runs by name; a published one is a folder of that name."""
        folders = {name: f"published/{name}" for name in self.published}
        return {
            name: Run(measures, self.figures, self.command) for name, measures in self.runs.items()
        } | {
            name: Run(f"{folder}/measures.csv", f"{folder}/figures")
            for name, folder in folders.items()
        }

    def run_of(self, item: Item, measure: str = "") -> Run:
        """The run of a measure of an item, or of the item."""
        return self.all_runs[self._run_name(item, measure)]

    def is_repeated(self, item: Item, claim: Claim) -> bool:
        """Whether the pipeline measures something of the claim, so that other seeds repeat it."""
        return any(self.is_made(item, measure) for measure in claim.measures.values())

    def is_made(self, item: Item, measure: str) -> bool:
        """Whether the pipeline makes a measure of an item; else it is of a published run."""
        return self._run_name(item, measure) in self.runs

    def _run_name(self, item: Item, measure: str) -> str:
        found = MEASURE.fullmatch(measure)
        return (found and found[1]) or item.run or next(iter(self.runs))


def kind_of(item: Item, claim: Claim) -> str:
    """Who says it: the paper or we."""
    return claim.kind or ("paper" if item.says else "ours")


def read_families(files: Sequence[Path]) -> dict[str, Family]:
    """What the files claim, by family, which is the name of a file's folder.

    Raises:
        InputError: An entry is no item or claim, or two have one name; says file and line.
    """
    families: dict[str, Family] = {}
    seen: dict[str, Path] = {}
    for file in files:
        listed = load_yaml(file)
        try:
            family = parse(listed, Family, str(file))
        except InputError as error:
            raise _where(file, listed, str(error)) from error
        for place, problem in _problems(family):
            raise wrong_at(file, place, problem)
        for item, name, _ in claims_of(family):
            if name in seen:
                place = ("items", item, "claims", name)
                raise wrong_at(file, place, f"{name}: wanted another name, as {seen[name]} has it")
            seen[name] = file
        families[file.parent.name] = family
    return families


def claims_of(family: Family) -> Iterator[tuple[str, str, Claim]]:
    """The claims of a family: the item's name, the claim's, the claim."""
    for item, entry in family.items.items():
        for name, claim in entry.claims.items():
            yield item, name, claim


def among(measure: str, measures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The values of a measure, where there are any: by scale, or under "" without scales."""
    found = MEASURE.fullmatch(measure)
    assert found is not None
    named = measures.get(found[2], {})
    by_scale = {"": named} if "values" in named else named
    if found[3]:
        compare = {"<": Decimal.__le__, ">": Decimal.__ge__}.get(found[3][0], Decimal.__eq__)
        end = Decimal(found[3].lstrip("<>="))
        by_scale = {s: of for s, of in by_scale.items() if s and compare(Decimal(s), end)}
    return {scale: values for scale, values in by_scale.items() if values.get("values")}


def turned(now: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """A line for each claim whose verdict is another than before, with both numbers."""
    for name, claim in now.items():
        old = before.get(name, claim)
        if old.get("holds") != claim["holds"]:
            was, got = (
                f"{VERDICTS[one.get('holds')]} ({one.get('value')})" for one in (old, claim)
            )
            yield f"turned: {name}: {was} in the last commit, {got} now: {claim['figure']}"


def wrong_at(file: Path, place: Place, message: str) -> InputError:
    """The error with the file and the line of the value at a place."""
    line = 0
    node = YAML(typ="safe", pure=True).compose(file)
    for key in place:
        if isinstance(node, MappingNode):
            name, node = next((name, value) for name, value in node.value if name.value == key)
            line = name.start_mark.line
        else:
            node = node.value[key]
            line = node.start_mark.line
    return InputError(f"{file}, line {line + 1}: {message}")


def _problems(family: Family) -> Iterator[tuple[Place, str]]:
    """What does not fit together, and where."""
    for name, item in family.items.items():
        if not NAMED.fullmatch(name):
            yield ("items", name), f"wanted a name of small letters, digits and _, got {name!r}"
        if item.run and item.run not in family.all_runs:
            yield ("items", name), f"run: wanted one of {list(family.all_runs)}, got {item.run!r}"
    for item, name, claim in claims_of(family):
        place = ("items", item, "claims", name)
        if not NAMED.fullmatch(name):
            yield place, f"wanted a name of small letters, digits and _, got {name!r}"
        if not (claim.figure or family.items[item].figure):
            yield place, f"{name}: wanted a figure, of the claim or of its item"
        for measure in (*claim.measures.values(), *claim.nulls.values()):
            found = MEASURE.fullmatch(measure)
            if found and found[1] and found[1] not in family.all_runs:
                yield place, f"{measure}: wanted a run of {list(family.all_runs)}, got {found[1]!r}"


def _where(file: Path, listed: Any, message: str) -> InputError:
    """The error with the line of the item or the claim that it names."""
    found = re.search(r"\.items\.(\w+)(?:\.claims\.(\w+))?", message)
    place: Place = ()
    if found and isinstance(listed, dict):
        place = ("items", found[1], *(("claims", found[2]) if found[2] else ()))
    try:
        return wrong_at(file, place, message)
    except (StopIteration, AttributeError, TypeError):
        return InputError(message)
