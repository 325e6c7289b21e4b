"""The cases of a table that params name, and what of a case is not as usual."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from lib.files.files import InputError
from lib.files.params import read_cases

Schema = TypeVar("Schema")


def chosen_cases(file: Path, schema: type[Schema], names: Iterable[str], key: str) -> list[Schema]:
    """The cases of these names, in their order; raises `InputError`, which names the key, where one
    is not there.
    """
    cases = {getattr(case, "name", None): case for case in read_cases(file, schema)}
    if not cases.keys() >= set(names):
        raise InputError(f"{key}: wanted some of {list(cases)}, the cases of {file}; got {names}")
    return [cases[name] for name in names]


def differences(case: Any, usual: Any) -> str:
    """The fields of a case that are not as usual, as `labels=permuted,optimizer=sgd`; `none` where
    all are.
    """
    plain = asdict(usual)
    differs = {key: value for key, value in asdict(case).items() if value != plain[key]}
    parts = [
        f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
        for key, value in differs.items()
    ]
    return ",".join(parts).replace(" ", "-") or "none"
