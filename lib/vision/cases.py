"""The cases of tables that several stages read or that params name, and what of a case is not as
usual.
"""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from lib.files.files import InputError
from lib.files.params import read_cases, read_params

Schema = TypeVar("Schema")

# The columns of tables of which each stage reads a part: whoever reads such a table refuses any
# other column.
PROBLEM = (
    "name",
    "n_seeds",
    "first_seed",
    "n_samples",
    "seq_len",
    "d_model",
    "teacher",
    "start",
    "n_layers",
    "n_heads",
    "d_mlp",
    "frames",
    "max_stages",
    "flow_scales",
    "forecast_scales",
    "n_times",
    "n_snapshots",
    "curvature_share",
    "atol",
    "drawn",
)
CONFIGURATION = ("name", "readout", "learning_rate", "n_steps", "n_seeds", "first_seed", "labels")


def read_problems(file: Path, schema: type[Schema], usual: str) -> tuple[Schema, ...]:
    """What the schema knows of the problems of gradual_rank; an empty cell is as in the section
    `usual` of params.
    """
    shared = read_params(usual, dict)
    for key in shared:
        if key not in PROBLEM:
            raise InputError(f"params.yaml: {usual}: unknown key {key!r}, wanted {sorted(PROBLEM)}")
    return read_cases(file, schema, columns=PROBLEM, shared=shared)


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
