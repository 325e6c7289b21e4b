"""The file of claims: what the papers claim, as measurable statements with bars, by groups that
share files.

A group names its files, its headlines, and the claims that are expected to fail with the reason.
Its claims stand in parts, which share what each claim may also say itself: the `source` (its kind,
the tag of who says so, and where) and the `figure` that shows it, with the column that is drawn. A
claim whose name holds `<case>` stands for one claim per case of its part's `each`; its bar may
differ by case. All names begin with that of the family, which is left out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode

from lib.files.files import InputError
from lib.files.params import Interval, load_yaml, parse

SOURCE = re.compile(r"(theorem|paper's figure|assumption|our bar|control) (\[[A-Z]+\]), (.+)")
TEST = re.compile(r"(every|mean|median) ([^\s@]+)(?:@(<=|>=|)(\S+))? in (.+)")
OWN_BAR = re.compile(r", (\w+) (?=[\[(])")
FIGURE = re.compile(r"([\w.<>-]+)(?:, from ([\w<>]+\.[\w<>]+))?")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What the claims of a part may share."""

    source: str | None = None
    figure: str | None = None

    def __post_init__(self) -> None:
        if self.source is not None and not SOURCE.fullmatch(self.source):
            wanted = "theorem, paper's figure, assumption, our bar or control, a tag, and where"
            raise ValueError(
                f"source: wanted {wanted}, such as 'theorem [P], theorem 4.5', got {self.source!r}"
            )
        if self.figure is not None and not FIGURE.fullmatch(self.figure):
            raise ValueError(
                f"figure: wanted NAME, or NAME, from TABLE.COLUMN, got {self.figure!r}"
            )


@dataclass(frozen=True, kw_only=True)
class Entry(Shared):
    """A claim as it is written: `test` is how it is judged, such as `mean errors@<=1e-8 in [0, 1]`.

    Behind the bar stand those of cases that have their own: `in [0, 1], untied [0, 2]`. `{low}` and
    `{high}` in the statement are the ends of the bar.
    """

    statement: str
    test: str
    nulls: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        found = TEST.fullmatch(self.test)
        if not found or (found[4] and not _is_number(found[4])):
            measure = "MEASURE, MEASURE@SCALE, MEASURE@<=SCALE or MEASURE@>=SCALE"
            raise ValueError(
                f"test: wanted every, mean or median, {measure}, and in INTERVAL, got {self.test!r}"
            )
        for bar in bars(found[5]).values():
            try:
                Interval(bar)
            except ValueError as error:
                raise ValueError(f"test: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Part(Shared):
    """Claims that share something; `each` names the cases, apart by spaces, that `<case>` stands
    for.
    """

    claims: dict[str, Entry]
    each: str = ""


@dataclass(frozen=True)
class Group:
    """What claims share: the file of their measures, the folder of their figures, the command that
    makes both.
    """

    measures: str
    figures: str
    command: str
    claims: tuple[Part, ...]
    family: str = ""  # that of the group's name
    headlines: tuple[str, ...] = ()
    fails: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A statement, who says so, and the bar that a measure must meet, at every scale where it is
    one by scale.

    `measure` is NAME, or NAME@SCALE, NAME@<=SCALE, NAME@>=SCALE for some of the scales. `{name}` in
    the statement is a number of the setup in the file of measures. What a paper says is `drawn` in
    the figure, as TABLE.COLUMN.
    """

    family: str
    place: tuple[str | int, ...]  # the keys of its entry in the file
    measures: str
    command: str
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
    nulls: tuple[str, ...]
    expected: str | None

    def among(self, measures: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """The values that are judged: by scale, or under "" of a measure without scales; those that
        were taken.
        """
        name, _, wanted = self.measure.partition("@")
        measure = measures.get(name, {})
        by_scale = {"": measure} if "values" in measure else measure
        if wanted:
            among = {"<": Decimal.__le__, ">": Decimal.__ge__}.get(wanted[0], Decimal.__eq__)
            end = Decimal(wanted.lstrip("<>="))
            if none := [scale for scale in by_scale if scale and not _is_number(scale)]:
                raise InputError(
                    f"{self.measures}: {name}: wanted values by init scale, got them by {none[0]!r}"
                )
            by_scale = {
                scale: one
                for scale, one in by_scale.items()
                if scale and among(Decimal(scale), end)
            }
        return {scale: values for scale, values in by_scale.items() if values.get("values")}


def read_claims(file: Path) -> dict[str, Claim]:
    """All claims of the file by their names, in its order; raises `InputError` with file and line
    for what is none.
    """
    listed = load_yaml(file)
    if not isinstance(listed, dict):
        raise InputError(f"{file}: wanted groups of claims by name, got {listed!r}")
    found: dict[str, Claim] = {}
    for title, entry in listed.items():
        group = _group(file, title, entry)
        claims = list(_expanded(file, title, group))
        own = [name for name, _ in claims]
        for name in (*group.headlines, *group.fails):
            if name not in own:
                raise _wrong(file, name, f"{title}: wanted a claim of the group, got {name!r}")
        for name, claim in claims:
            full = f"{group.family}_{name}"
            if full in found:
                raise _wrong(file, name, f"wanted claims of different names, got {full!r} again")
            found[full] = claim
    for name, claim in found.items():
        unknown = sorted(set(claim.nulls) - set(found))
        if unknown:
            own = name.removeprefix(f"{claim.family}_")
            raise _wrong(file, own, f"{own}: nulls: wanted names of claims, got {unknown}")
    return found


def bars(text: str) -> dict[str, str]:
    """The bar of every case, by "", and those of cases that have their own, by the names of
    these.
    """
    first, *own = OWN_BAR.split(text)
    return {"": first, **dict(zip(own[::2], own[1::2], strict=True))}


def line_of(file: Path, text: str) -> int:
    """The number of the first line that begins with a text, or ends with it, apart from spaces and
    dashes.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(
        (
            n
            for n, line in enumerate(lines, 1)
            if line.strip(" -").startswith(text) or line.endswith(text)
        ),
        1,
    )


def wrong_at(file: Path, place: tuple[str | int, ...], message: str) -> InputError:
    """The error with the file and the line at which the value of these keys stands, or the item of
    a list.
    """
    line, node = 0, YAML(typ="safe", pure=True).compose(file)
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
        group = parse(entry, Group, f"{file}: {title}")
        return replace(group, family=group.family or title)
    except InputError as error:
        place = re.search(r"\]\.claims\.([\w<>]+)", str(error))
        line = line_of(file, f"{place[1]}:" if place else f"{title}:")
        raise InputError(str(error).replace(f"{file}: ", f"{file}, line {line}: ", 1)) from error


def _expanded(file: Path, title: str, group: Group) -> Iterator[tuple[str, Claim]]:
    for number, part in enumerate(group.claims):
        for name, entry in part.claims.items():
            place = (title, "claims", number, "claims", name)
            cases = part.each.split() if "<case>" in name else [""]
            unknown = sorted({*bars(TEST.fullmatch(entry.test)[5])} - {"", *cases})  # pyright: ignore
            if not cases or unknown:
                wanted = (
                    "each: wanted the cases of <case>"
                    if not cases
                    else f"test: wanted bars of {cases}"
                )
                raise wrong_at(file, place, f"{name}: {wanted}, got {unknown or 'none'}")
            said = {
                one.name: getattr(entry, one.name) or getattr(part, one.name)
                for one in fields(Shared)
            }
            missing = [key for key, value in said.items() if value is None]
            if missing:
                raise wrong_at(
                    file, place, f"{name}: missing key {missing[0]!r}, of the claim or of its part"
                )
            texts = (*said.values(), entry.statement, entry.test, *entry.nulls)
            if cases == [""] and any("<case>" in text for text in texts):
                raise wrong_at(
                    file,
                    place,
                    f"{name}: wanted <case> in the name, or nowhere, got it in the claim",
                )
            for case in cases:
                full = name.replace("<case>", case)
                yield full, _claim(group, place, full, case, entry, said)


def _claim(
    group: Group,
    place: tuple[str | int, ...],
    name: str,
    case: str,
    entry: Entry,
    said: dict[str, str],
) -> Claim:
    """The claim of one case."""

    def of_case(text: str) -> str:
        return text.replace("<case>", case)

    over, measure, side, scale, text = TEST.fullmatch(of_case(entry.test)).groups()  # pyright: ignore[reportOptionalMemberAccess]
    bar = bars(text).get(case, bars(text)[""])
    low, high = bar[1:-1].split(",")
    kind, source, where = SOURCE.fullmatch(of_case(said["source"])).groups()  # pyright: ignore[reportOptionalMemberAccess]
    figure, drawn = FIGURE.fullmatch(of_case(said["figure"])).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return Claim(
        family=group.family,
        place=place,
        measures=group.measures,
        command=group.command,
        statement=of_case(entry.statement)
        .replace("{low}", low.strip())
        .replace("{high}", high.strip()),
        where=where,
        kind=kind,
        source=source,
        measure=f"{measure}@{side}{scale}" if scale else measure,
        over=over,
        bar=bar,
        figure=f"{group.figures}/{figure}.svg",
        drawn=drawn,
        headline=group.headlines.index(name) + 1 if name in group.headlines else 0,
        nulls=tuple(f"{group.family}_{of_case(null)}" for null in entry.nulls),
        expected=f"fails, because {group.fails[name]}" if name in group.fails else None,
    )


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except ArithmeticError:
        return False


def _wrong(file: Path, text: str, message: str) -> InputError:
    return InputError(f"{file}, line {line_of(file, text)}: {message}")
