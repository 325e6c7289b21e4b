"""Read a section of params.yaml into a plain frozen dataclass, and refuse what does not fit.

A schema is a dataclass whose fields are `int`, `float`, `bool`, `str`, `Literal[...]`, another such dataclass,
`tuple[T, ...]` (a YAML list of distinct values) or `T | None`; `Annotated[T, Interval("(0, 1]")]` bounds a number, and
`Name` is a text that becomes a part of a path.
A relation between fields is checked by the dataclass's own `__post_init__`, which raises `ValueError`.
"""

import math
import re
import types
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from lib.io.files import InputError, file_name

Schema = TypeVar("Schema")


@dataclass(frozen=True)
class Interval:
    """A range of numbers as it is written in mathematics: `"(0, 1]"`, `"[1, 1e6]"`, `"(0, inf)"`."""

    text: str

    def __contains__(self, value: float) -> bool:
        low, high = (float(end) for end in self.text[1:-1].split(","))
        above = value >= low if self.text[0] == "[" else value > low
        below = value <= high if self.text[-1] == "]" else value < high
        return above and below


Fraction = Annotated[float, Interval("[0, 1]")]
Positive = Annotated[float, Interval("(0, 1e9]")]
Count = Annotated[int, Interval("[1, 1e9]")]
Seed = Annotated[int, Interval("[0, 4294967295]")]
Name = Annotated[str, file_name]


class _Loader(yaml.SafeLoader):
    """Numbers, true and false as in YAML 1.2 and in DVC: `1e-4` is a number, `on`, `1:30` and `010` are texts."""


_PLAIN = {
    "tag:yaml.org,2002:bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(?:inf|Inf|INF))"
        r"|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _PLAIN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_pattern, _first) in _PLAIN.items():
    _Loader.add_implicit_resolver(_tag, re.compile(f"(?:{_pattern})$"), list(_first))


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    loader.flatten_mapping(node)
    mapping: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        line = key_node.start_mark.line + 1
        if isinstance(key, dict | list | set):
            raise yaml.YAMLError(f"line {line}: wanted a key that is a text, got {key!r}")
        if key in mapping:
            raise yaml.YAMLError(f"line {line}: the key {key!r} stands twice")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_Loader.add_constructor("tag:yaml.org,2002:map", _unique_mapping)


def load_yaml(path: Path) -> Any:
    """Read a YAML file as DVC reads it; raises `InputError` where it is missing or malformed."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506 (a SafeLoader)
    except (OSError, ValueError, KeyError, AttributeError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: wanted a readable YAML file, got: {error}") from error


def read_params(section: str, schema: type[Schema], file: Path = Path("params.yaml")) -> Schema:
    """Read the dotted `section` of the params file into `schema`.

    Raises `InputError` for an unknown or missing key, a wrong type, or a value out of range; the
    message names the file, the section and key, what was wanted and what was got.
    """
    value = load_yaml(file)
    seen = []
    for name in section.split("."):
        if not isinstance(value, dict) or name not in value:
            got = sorted(map(str, value)) if isinstance(value, dict) else value
            where = ".".join(seen) or "the top level"
            raise InputError(f"{file}: wanted the section {section}, got {got} at {where}")
        value = value[name]
        seen.append(name)
    return parse(value, schema, f"{file}: {section}")


def parse(value: Any, wanted: Any, where: str) -> Any:
    """Check `value` against the type `wanted`, recursively; `where` begins every error message."""
    if is_dataclass(wanted):
        return _parse_section(value, wanted, where)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        found = parse(value, arguments[0], where)
        for bound in arguments[1:]:
            if isinstance(bound, Interval) and found not in bound:
                raise InputError(f"{where}: wanted a number in {bound.text}, got {value!r}")
            if bound is file_name:
                try:
                    file_name(found)
                except InputError as error:
                    raise InputError(f"{where}: {error}") from error
        return found
    if origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in arguments):
            raise InputError(f"{where}: wanted one of {list(arguments)}, got {value!r}")
        return value
    if origin is tuple:
        return _parse_list(value, arguments[0], where)
    if origin in (Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else parse(value, inner, where)
    return _parse_plain(value, wanted, where)


def _parse_section(value: Any, schema: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InputError(f"{where}: wanted a section of keys, got {value!r}")
    hints = get_type_hints(schema, include_extras=True)
    unknown = [key for key in value if key not in hints]
    if unknown:
        raise InputError(f"{where}: unknown key {unknown[0]!r}, wanted {sorted(hints)}")
    missing = [f.name for f in fields(schema) if f.name not in value and f.default is MISSING]
    if missing:
        raise InputError(f"{where}: missing key {missing[0]!r}, got {sorted(value)}")
    parsed = {key: parse(item, hints[key], f"{where}.{key}") for key, item in value.items()}
    try:
        return schema(**parsed)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def _parse_list(value: Any, item: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InputError(f"{where}: wanted a list, got {value!r}")
    parsed = tuple(parse(entry, item, f"{where}[{i}]") for i, entry in enumerate(value))
    if len(set(parsed)) < len(parsed):
        raise InputError(f"{where}: wanted distinct values, got {value!r}")
    return parsed


def _parse_plain(value: Any, wanted: Any, where: str) -> Any:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    fits = type(value) is wanted or (wanted is float and type(value) is int)
    if not fits:
        raise InputError(f"{where}: wanted {names[wanted]}, got {value!r}")
    if wanted is float:
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise InputError(f"{where}: wanted a finite number, got {value!r}")
    return value
