"""What the rules know of the modules of a checkpoint: their spectra, and the kept factors."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from lib.checkpoints.factors import rank_of, read_factors
from lib.checkpoints.folders import Checkpoint
from lib.checkpoints.plans import Module, largest_rank
from lib.checkpoints.update_spectra import Triplets
from lib.files.files import InputError


def described(
    tuned: Checkpoint, places: Mapping[str, tuple[str, bool]], spectra: pd.DataFrame
) -> tuple[dict[str, Module], pd.DataFrame]:
    """What the rules know of the modules of a checkpoint, and a row for each.

    Raises `InputError` where the spectrum of a module's tensor is not there.
    """
    matrices = spectra[(spectra["of"] == "update") & (spectra["head"] == 0)]
    rows = matrices.set_index("module").to_dict("index")
    modules = {}
    table = []
    for name, (place, by_columns) in places.items():
        if place not in rows:
            wanted = f"wanted its spectrum, got none: measure spectra of {tuned.folder} first"
            raise InputError(f"{place}: {wanted}")
        row = rows[place]
        sigma = np.asarray(row["singular_values"])
        above_edge = min(int(row["rank_above_edge"]), len(sigma))
        limit = max(above_edge, largest_rank(sigma, float(row["norm"]) ** 2))
        shape = (int(row["rows"]), int(row["cols"]))
        modules[name] = Module(shape, sigma, float(row["norm"]) ** 2, limit, above_edge)
        table.append(
            {
                "module": name,
                "tensor": place,
                "rows": row["rows"],
                "cols": row["cols"],
                "norm": row["norm"],
                "base_norm": row["base_norm"],
                "limit": limit,
                "by_columns": by_columns,
            }
        )
    return modules, pd.DataFrame(table)


def kept_factors(
    folder: Path, modules: Mapping[str, Module], table: pd.DataFrame
) -> dict[str, Triplets]:
    """The triplets of every module, up to its limit, as the spectra kept them."""
    found = read_factors(folder)
    for name, place in zip(table["module"], table["tensor"], strict=True):
        wanted = modules[name].limit
        got = rank_of(found.get(place))
        if got < wanted:
            said = f"wanted {wanted} leading triplets of {place}, got {got}"
            raise InputError(f"{folder}: {said}: measure spectra and keep all factors")
    return {name: found[at] for name, at in zip(table["module"], table["tensor"], strict=True)}
