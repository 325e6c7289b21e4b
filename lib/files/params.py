"""Read a section of params.yaml, or a table of cases, into plain frozen dataclasses, and refuse
what does not fit.

A schema is a dataclass whose fields are `int`, `float`, `bool`, `str`, `Literal[...]`, another such
dataclass, `tuple[T, ...]` (a list of distinct values), `dict[str, T]` or `T | None`; `Annotated[T,
Interval("(0, 1]")]` bounds a number, and `Name` is a text that becomes a part of a path. A relation
between fields is checked by the dataclass's own `__post_init__`, which raises `ValueError`. Files
are read by DVC's parser and checked by pydantic, whose messages are put in our words.
"""

import itertools
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, ErrorDetails
from pydantic_core.core_schema import no_info_after_validator_function
from ruamel.yaml import YAML, YAMLError
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent

from lib.files.files import InputError, file_name
from lib.files.sources import noted

Schema = TypeVar("Schema")

MOST_YAML = 1 << 24  # bytes
MOST_DEPTH = 50  # values in one another
MOST_VALUES = 1_000_000
MOST_SHIFT = 100_000_000  # of seeds


@dataclass(frozen=True)
class Interval:
    """A range of numbers as it is written in mathematics: `"(0, 1]"`, `"[1, 1e6]"`, `"(0, inf)"`.

    Raises `ValueError` for a text that is no range, and for an empty range.
    """

    text: str
    low: float = field(init=False, repr=False, compare=False)
    high: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = re.fullmatch(r"([\[(])([^,]+),([^,]+)([\])])", self.text)
        try:
            low, high = (float(found[2]), float(found[3])) if found else (math.nan, math.nan)
        except ValueError:
            low = high = math.nan
        closed = self.text.startswith("[") and self.text.endswith("]")
        if not (low < high or (low == high and closed and math.isfinite(low))):
            raise ValueError(f"wanted an interval such as '[1, 2)', got {self.text!r}")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __contains__(self, value: float) -> bool:
        above = value >= self.low if self.text[0] == "[" else value > self.low
        below = value <= self.high if self.text[-1] == "]" else value < self.high
        return above and below

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return no_info_after_validator_function(self._bound, handler(source))

    def _bound(self, value: float) -> float:
        if value not in self:
            raise ValueError(f"wanted a number in {self.text}, got {value!r}")
        return value


Fraction = Annotated[float, Interval("[0, 1]")]
Positive = Annotated[float, Interval("(0, 1e9]")]
Count = Annotated[int, Interval("[1, 1e9]")]
# The steps of one training, which is serial: a step takes 0.1 to 10 ms, and a million of them two
# minutes to three hours. A larger number is a slip; what is kept of a step is small beside it.
Steps = Annotated[int, Interval("[1, 1e6]")]
Seed = Annotated[int, Interval("[0, 4294967295]")]
FirstSeed = Annotated[int, Interval("[0, 4e9]")]  # of several
Name = Annotated[str, AfterValidator(file_name)]


@dataclass(frozen=True, kw_only=True)
class Seeds:
    """Consecutive seeds, given by their number and the first of them."""

    n_seeds: Annotated[int, Interval("[1, 100000]")]
    first_seed: FirstSeed = 0

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in order."""
        return tuple(range(self.first_seed, self.first_seed + self.n_seeds))


def load_yaml(path: Path) -> Any:
    """Read a YAML file as DVC reads it; raises `InputError` where it is missing or malformed."""
    return noted(str(path), partial(_loaded, path))


def _loaded(path: Path) -> Any:
    try:
        return _yaml(_text(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: wanted a readable YAML file, got: {error}") from error


def _text(file: Path) -> str:
    if file.stat().st_size > MOST_YAML:
        raise ValueError(f"{file.stat().st_size} bytes, more than {MOST_YAML}")
    return file.read_text(encoding="utf-8")


def read_params(
    section: str, schema: type[Schema], file: Path = Path("params.yaml"), *, part: bool = False
) -> Schema:
    """Read the dotted `section` of the params file into `schema`; a `part` leaves out keys that the
    schema lacks.

    A stage reads a part of another stage's section, whose other keys are that stage's to check.
    Raises `InputError` for an unknown or missing key, a wrong type, or a value out of range; the
    message names the file, the section and key, what was wanted and what was got.
    """

    def read() -> Any:
        whole = _loaded(file)
        value = _section(section, whole, file)
        return shifted(_known(value, schema) if part else value, schema, seeds_from(whole, file))

    value = noted(f"{section} of {file}", read)
    return parse(value, schema, f"{file}: {section}")


def seeds_from(whole: Any, file: Path) -> int:
    """The number by which all seeds of a params file are shifted; 0 where the file has none."""
    value = whole.get("seeds_from", 0) if isinstance(whole, dict) else 0
    if type(value) is not int or not 0 <= value <= MOST_SHIFT:
        wanted = f"wanted a whole number in [0, {MOST_SHIFT:g}]"
        raise InputError(f"{file}: seeds_from: {wanted}, got {value!r}")
    return value


def shifted(value: Any, schema: Any, by: int) -> Any:
    """The values of a section in which every seed is larger by a number.

    A seed is what the schema calls a `Seed` or a `FirstSeed`; one that is left out and has a
    default is given, larger than that.
    """
    if not by or not isinstance(value, dict) or not is_dataclass(schema):
        return value
    kinds = get_type_hints(schema, include_extras=True)
    found = dict(value)
    for one in fields(schema):
        kind = kinds[one.name]
        if any(seed in (kind, *get_args(kind)) for seed in (Seed, FirstSeed)):
            given = found.get(one.name, one.default)
            found |= {one.name: given + by} if isinstance(given, int) else {}
        elif one.name in found:
            found[one.name] = shifted(found[one.name], kind, by)
    return found


def _section(section: str, value: Any, file: Path) -> Any:
    seen = []
    for name in section.split("."):
        if not isinstance(value, dict) or name not in value:
            got = sorted(map(str, value)) if isinstance(value, dict) else value
            where = ".".join(seen) or "the top level"
            raise InputError(f"{file}: wanted the section {section}, got {got} at {where}")
        value = value[name]
        seen.append(name)
    return value


def read_cases(
    file: Path,
    schema: type[Schema],
    *,
    columns: Collection[str] | None = None,
    shared: Mapping[str, Any] | None = None,
) -> tuple[Schema, ...]:
    """Read a table of cases, tab-separated, with a line of column names and one line per case, into
    a schema per line.

    A cell is written as a value of params.yaml; an empty cell leaves its key out; a line that
    begins with # is a comment. What a line leaves out is taken from the `shared` values of a
    section of params.yaml, where the schema knows them: `-S` varies these. Where several stages
    read a part of the table each, `columns` are all columns that it may have, and those that the
    schema lacks are left out. Raises `InputError` for what does not fit, for another column, and
    where two cases have the same `name`; the message names the file, line and column, what was
    wanted and what was got.
    """
    try:
        text = noted(str(file), partial(_text, file))
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: wanted a readable table of cases, got: {error}") from error
    lines = text.removeprefix("\ufeff").split("\n")  # a spreadsheet may write a byte order mark
    numbered = [
        (n, line) for n, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")
    ]
    header = numbered[0][1].split("\t") if numbered else []
    if len(set(header)) < len(header) or len(numbered) < 2:
        raise InputError(
            f"{file}: wanted a line of distinct column names and a line for each case, got "
            f"{lines[:3]}"
        )
    wanted = sorted(columns or _keys(schema, ()))
    by = noted("seeds_from of params.yaml", _of_params)
    for column in header:
        if column not in wanted:
            raise InputError(f"{file}: unknown column {column!r}, wanted {wanted}")
    cases: dict[Any, Schema] = {}
    for number, line in numbered[1:]:
        where = f"{file}: line {number}"
        cells = line.split("\t")
        if len(cells) != len(header):
            raise InputError(
                f"{where}: wanted {len(header)} cells, one for each column, got {len(cells)}"
            )
        row = {
            column: _cell(cell, f"{where}, column {column}")
            for column, cell in zip(header, cells, strict=True)
        }
        said = {column: value for column, value in row.items() if value is not None}
        given = _known(shared or {}, schema)  # its seeds were shifted as it was read
        moved = shifted(said, schema, by)
        row = {**moved, **given, **{column: moved[column] for column in said}}
        case = parse(_known(row, schema) if columns else row, schema, where, ", column ")
        name = getattr(case, "name", repr(case))
        if name in cases:
            raise InputError(f"{where}: wanted a case of its own, got {name!r} again")
        cases[name] = case
    return tuple(cases.values())


def _of_params() -> int:
    file = Path("params.yaml")
    return seeds_from(_loaded(file), file) if file.is_file() else 0


def parse(value: Any, wanted: type[Schema], where: str, separator: str = ".") -> Schema:
    """Check a value, as YAML gives it, against the type `wanted`; `where` begins every error
    message.
    """
    for place, wrong in _not_plain(value):
        raise InputError(f"{where}{_path(place, separator)}: {wrong}")
    try:
        return _model(wanted).model_validate_json(json.dumps({"value": value})).value  # pyright: ignore
    except ValidationError as error:
        first = min(error.errors(), key=_rank)
        raise InputError(f"{where}{_in_words(first, wanted, separator)}") from error


def _known(value: Any, schema: Any) -> Any:
    """The entries of a section whose keys a schema has."""
    if not isinstance(value, dict):
        return value
    names = [field.name for field in fields(schema)]
    return {key: item for key, item in value.items() if key in names}


@cache
def _model(wanted: Any) -> type[BaseModel]:
    config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return create_model("Section", value=(wanted, ...), __config__=config)


def _yaml(text: str) -> Any:
    try:
        _check_depth(text)
        found = YAML(typ="safe").load(text)
        if next(itertools.islice(_values(found), MOST_VALUES, None), None) is not None:
            raise ValueError(f"more than {MOST_VALUES} values, those of aliases counted")
        return found
    except (YAMLError, KeyError, AttributeError, TypeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None)
        said = f"line {mark.line + 1}: {problem}" if mark and problem else str(error)
        raise ValueError(said) from error


def _check_depth(text: str) -> None:
    """Raise `ValueError` where values lie too deep in one another: the parser in C would crash."""
    depth = 0
    for event in YAML(typ="safe").parse(text):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if depth > MOST_DEPTH:
            raise ValueError(f"more than {MOST_DEPTH} values that lie in one another")


def _values(value: Any) -> Iterator[bool]:
    """Yield something for each value within a value, to count them."""
    yield True
    inside = value.values() if isinstance(value, dict) else value
    for item in inside if isinstance(value, dict | list) else ():
        yield from _values(item)


def _cell(text: str, where: str) -> Any:
    try:
        return _yaml(text)
    except ValueError as error:
        raise InputError(f"{where}: wanted a value as in params.yaml, got {text!r}") from error


def _not_plain(
    value: Any, place: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The parts that no schema can hold: keys that are no texts, dates, a value twice in a list."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                yield place, f"wanted keys that are texts, got the key {key!r}"
            yield from _not_plain(item, (*place, key))
    elif isinstance(value, list):
        if any(item in value[:i] for i, item in enumerate(value)):
            yield place, f"wanted distinct values, got {value!r}"
        for i, item in enumerate(value):
            yield from _not_plain(item, (*place, i))
    elif not isinstance(value, str | int | float | None):
        yield place, f"wanted a text, a number, or true or false, got {value!r}"
    elif isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        yield place, f"wanted a name or text of whole characters, got {value!r}"


_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "dataclass_type": "a section of keys",
    "dict_type": "a section of keys",
}


def _rank(error: ErrorDetails) -> int:
    """The rank of an error: unknown keys come first, relations between a section's keys last."""
    relation = error["type"] == "value_error" and isinstance(error["input"], dict)
    return 0 if error["type"] == "unexpected_keyword_argument" else 1 + relation


def _in_words(error: ErrorDetails, schema: Any, separator: str) -> str:
    """An error of pydantic in our words: where, what was wanted, what was got."""
    place = error["loc"][1:]
    got = error["input"]
    kind = error["type"]
    if kind in ("missing", "unexpected_keyword_argument"):
        *place, key = place
        if kind == "missing":
            return f"{_path(place, separator)}: missing key {key!r}, got {sorted(got)}"
        return (
            f"{_path(place, separator)}: unknown key {key!r}, wanted {sorted(_keys(schema, place))}"
        )
    path = _path(place, separator)
    context = error.get("ctx", {})
    if kind == "value_error":
        return f"{path}: {context['error']}"
    wanted = _WANTED.get(kind, error["msg"])
    if kind == "literal_error":
        wanted = f"one of {context['expected']}"
    return f"{path}: wanted {wanted}, got {got!r}"


def _keys(schema: Any, place: Sequence[str | int]) -> list[str]:
    """The keys of the section that stands at a place of a schema."""
    for step in place:
        schema = (
            get_type_hints(schema)[str(step)]
            if is_dataclass(schema)
            else get_args(schema)[-isinstance(step, str)]
        )
        while get_origin(schema) not in (None, tuple, dict):
            schema = get_args(schema)[0]
    return [field.name for field in fields(schema)]


def _path(place: Sequence[str | int], separator: str) -> str:
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in place]
    return "".join(parts).replace(".", separator, 1) if parts else ""
