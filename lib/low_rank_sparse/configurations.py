"""The table of configurations, of which each stage reads its part."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, TypeVar

from lib.files.files import InputError
from lib.files.params import Name, Positive, Seeds, Steps

Part = TypeVar("Part")


@dataclass(frozen=True)
class Configuration(Seeds):
    """A way to train: `readout` is a reading of the paper's a_(l); permuted labels are a null."""

    name: Name
    readout: Literal["tied", "untied"]
    learning_rate: Positive
    n_steps: Steps
    labels: Literal["given", "permuted"] = "given"


COLUMNS = tuple(field.name for field in fields(Configuration))


def named(known: Mapping[str, Part], name: str, where: str) -> Part:
    """The configuration of that name; raises `InputError`, which begins with `where`."""
    if name not in known:
        raise InputError(f"{where}: wanted a configuration of {list(known)}, got {name!r}")
    return known[name]
