"""Claims: what a paper says, as statements that a measure of the pipeline meets or does not.

A family's file holds groups of claims. A group names its files, its headlines, and why some of its
claims fail. Its claims stand in parts, which share what each claim may also say itself: the
`source` (its kind, the tag of who says so, and where) and the `figure` that shows it, with the
column that is drawn. A claim whose name holds `<case>` stands for one claim per case of its part's
`each`; its bar may differ by case. Full names begin with the family, which the file leaves out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

from lib.files.files import InputError
from lib.files.params import Interval, load_yaml, parse

SOURCE = re.compile(r"(theorem|paper's figure|assumption|our bar|control) (\[[A-Z]+\]), (.+)")
TEST = re.compile(r"(every|mean|median) ([^\s@]+(?:@(?:<=|>=|)(\S+))?) in (.+)")
OWN_BAR = re.compile(r", (\w+) (?=[\[(])")
FIGURE = re.compile(r"([\w.<>-]+)(?:, from ([\w<>]+\.[\w<>]+))?")

Place = tuple[str | int, ...]  # the keys and positions that lead to a value of a YAML file


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the claims of a part may share."""

    source: str = ""
    figure: str = ""

    def __post_init__(self) -> None:
        if self.source and not SOURCE.fullmatch(self.source):
            wanted = "theorem, paper's figure, assumption, our bar or control, a tag, and where"
            raise ValueError(
                f"source: wanted {wanted}, such as 'theorem [P], theorem 4.5', got {self.source!r}"
            )
        if self.figure and not FIGURE.fullmatch(self.figure):
            raise ValueError(
                f"figure: wanted NAME, or NAME, from TABLE.COLUMN, got {self.figure!r}"
            )


SHARED = fields(Shared)


@dataclass(frozen=True, kw_only=True)
class Entry(Shared):
    """A claim as it is written: `test` is how it is judged, such as `mean errors@<=1e-8 in [0, 1]`.

    Cases with a bar of their own stand behind it: `in [0, 1], untied [0, 2]`. In the statement,
    `{low}` and `{high}` are the ends of the bar.
    """

    statement: str
    test: str
    nulls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        found = TEST.fullmatch(self.test)
        if not found or (found[3] and not _is_number(found[3])):
            measure = "MEASURE, MEASURE@SCALE, MEASURE@<=SCALE or MEASURE@>=SCALE"
            raise ValueError(
                f"test: wanted every, mean or median, {measure}, and in INTERVAL, got {self.test!r}"
            )
        for bar in self.bars.values():
            try:
                Interval(bar)
            except ValueError as error:
                raise ValueError(f"test: {error}") from None

    @property
    def bars(self) -> dict[str, str]:
        """The bar, by "", and those of cases that have their own, by the cases."""
        first, *own = OWN_BAR.split(_groups(TEST, self.test)[3])
        return {"": first, **dict(zip(own[::2], own[1::2], strict=True))}


@dataclass(frozen=True, kw_only=True)
class Part(Shared):
    """Claims that share something; `each` names the cases of `<case>`, apart by spaces."""

    claims: dict[str, Entry]
    each: str = ""


@dataclass(frozen=True)
class Group:
    """Claims on one file of measures and one folder of figures, which one command makes."""

    measures: str
    figures: str
    command: str
    claims: tuple[Part, ...]
    family: str = ""  # the group's name, where it is empty
    headlines: tuple[str, ...] = ()
    fails: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A statement, who says so, and the bar that a measure must meet at each of its scales.

    `measure` is NAME, or NAME@SCALE, NAME@<=SCALE, NAME@>=SCALE for some of the scales. `{name}` in
    the statement is a number of the setup in the file of measures. What a paper says is `drawn` in
    the figure, as TABLE.COLUMN.
    """

    file: Path
    place: Place  # of its entry in the file
    measures: str
    nulls: tuple[str, ...]
    statement: str
    where: str
    kind: str
    source: str
    measure: str
    over: str
    bar: str
    figure: str
    drawn: str | None
    headline: int  # its place among those of the group, from 1 on; 0 for none
    expected: str | None
    family: str
    command: str

    def among(self, measures: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The values that are judged, where there are any: by scale, or under "" without scales."""
        name, _, wanted = self.measure.partition("@")
        measure = measures.get(name, {})
        by_scale = {"": measure} if "values" in measure else measure
        if wanted:
            by_scale = {scale: values for scale, values in by_scale.items() if scale}
            for scale in by_scale:
                if not _is_number(scale):
                    raise InputError(
                        f"{self.measures}: {name}: wanted values by init scale, got them by "
                        f"{scale!r}"
                    )
            among = {"<": Decimal.__le__, ">": Decimal.__ge__}.get(wanted[0], Decimal.__eq__)
            end = Decimal(wanted.lstrip("<>="))
            by_scale = {s: values for s, values in by_scale.items() if among(Decimal(s), end)}
        return {scale: values for scale, values in by_scale.items() if values.get("values")}


def read_claims(files: Sequence[Path]) -> dict[str, Claim]:
    """All claims of the files by their full names, in order.

    Raises:
        InputError: An entry is no claim, or two have one name; says file and line.
    """
    found: dict[str, Claim] = {}
    for file in files:
        listed = load_yaml(file)
        if not isinstance(listed, dict):
            raise InputError(f"{file}: wanted groups of claims by name, got {listed!r}")
        for title, entry in listed.items():
            for name, claim in _claims_of(file, title, _group(file, title, entry)):
                if name in found:
                    message = f"wanted claims of different names, got {name!r} again"
                    raise wrong_at(file, claim.place, f"{message}, as in {found[name].file}")
                found[name] = claim
    for claim in found.values():
        if unknown := sorted(set(claim.nulls) - set(found)):
            message = f"{claim.place[-1]}: nulls: wanted names of claims, got {unknown}"
            raise wrong_at(claim.file, claim.place, message)
    return found


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


def _group(file: Path, title: str, entry: Any) -> Group:
    try:
        group = parse(entry, Group, title)
    except InputError as error:
        found = re.search(r"\[(\d+)\]\.claims\.([\w<>]+)", str(error))
        place = ("claims", int(found[1]), "claims", found[2]) if found else ()
        raise wrong_at(file, (title, *place), str(error)) from error
    return replace(group, family=group.family or title)


def _claims_of(file: Path, title: str, group: Group) -> Iterator[tuple[str, Claim]]:
    """The claims of a group by their full names."""
    names = set()
    for number, part in enumerate(group.claims):
        for name, entry in part.claims.items():
            place = (title, "claims", number, "claims", name)
            said = {one.name: getattr(entry, one.name) or getattr(part, one.name) for one in SHARED}
            whole = replace(entry, **said)
            cases = part.each.split() if "<case>" in name else [""]
            if problem := _problem(whole, cases):
                raise wrong_at(file, place, f"{name}: {problem}")
            for case in cases:
                own = name.replace("<case>", case)
                names.add(own)
                yield f"{group.family}_{own}", _claim(file, place, group, own, case, whole)
    named = {name: ("headlines", i) for i, name in enumerate(group.headlines)}
    named |= {name: ("fails", name) for name in group.fails}
    for name, place in named.items():
        if name not in names:
            message = f"{title}: wanted a claim of the group, got {name!r}"
            raise wrong_at(file, (title, *place), message)


def _problem(entry: Entry, cases: list[str]) -> str:
    """What is wrong with a claim of these cases, the one case "" where its name has none."""
    if not cases:
        return "each: wanted the cases of <case>, got none"
    if unknown := sorted(set(entry.bars) - {"", *cases}):
        return f"test: wanted bars of {cases}, got {unknown}"
    if missing := [one.name for one in SHARED if not getattr(entry, one.name)]:
        return f"missing key {missing[0]!r}, of the claim or of its part"
    texts = (entry.source, entry.figure, entry.statement, entry.test, *entry.nulls)
    if cases == [""] and any("<case>" in text for text in texts):
        return "wanted <case> in the name, or nowhere, got it in the claim"
    return ""


def _claim(file: Path, place: Place, group: Group, name: str, case: str, entry: Entry) -> Claim:
    """The claim of one case."""

    def of_case(text: str) -> str:
        return text.replace("<case>", case)

    over, measure, *_ = _groups(TEST, of_case(entry.test))
    kind, source, where = _groups(SOURCE, of_case(entry.source))
    figure, drawn = _groups(FIGURE, of_case(entry.figure))
    bar = entry.bars.get(case, entry.bars[""])
    low, high = bar[1:-1].split(",")
    statement = of_case(entry.statement).replace("{low}", low.strip())
    return Claim(
        file=file,
        place=place,
        measures=group.measures,
        nulls=tuple(f"{group.family}_{of_case(null)}" for null in entry.nulls),
        statement=statement.replace("{high}", high.strip()),
        where=where,
        kind=kind,
        source=source,
        measure=measure,
        over=over,
        bar=bar,
        figure=f"{group.figures}/{figure}.svg",
        drawn=drawn,
        headline=group.headlines.index(name) + 1 if name in group.headlines else 0,
        expected=f"fails, because {group.fails[name]}" if name in group.fails else None,
        family=group.family,
        command=group.command,
    )


def _groups(pattern: re.Pattern[str], text: str) -> tuple[Any, ...]:
    """The groups of a text that is known to fit."""
    found = pattern.fullmatch(text)
    assert found is not None
    return found.groups()


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False
