"""What the tables in git have of the runs: the spectra and init scales that figures show, and what
was published before.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from lib.files.files import InputError
from lib.vision.measures import PRODUCTS, plain_typed
from lib.vision.tables.drawn import DRAWN

PLACE = ["variant", "init_scale", "control", "matrix", "of", "step", "seed", "layer", "head"]


def spectra_shown(spectra: pd.DataFrame, n_leading: int) -> pd.DataFrame:
    """The leading singular values of the products of the plain runs' first seed.

    The number of all stands beside them; an update of a product has at most 2 d_head that are not
    zero.
    """
    chosen = spectra["matrix"].isin(PRODUCTS) & (spectra["control"] == "none")
    chosen = spectra[chosen & (spectra["seed"] == spectra["seed"].min())]
    sigma = chosen["singular_values"]
    return chosen[PLACE].assign(
        n_singular_values=[len(values) for values in sigma],
        singular_values=[values[:n_leading].astype(np.float32) for values in sigma],
    )


def scales_shown(plain: pd.DataFrame, reference: float, where: str) -> pd.DataFrame:
    """Which init scales figures show, by use.

    Raises `InputError`, which begins with `where`, if the reference scale was not trained.
    """
    trained = sorted(plain["init_scale"].unique())
    if reference not in trained:
        wanted = f"wanted one that was trained, {trained}"
        raise InputError(f"{where}: {wanted}; got {reference:g}")
    rows = [{"use": "growth", "init_scale": scale} for scale in trained]
    return pd.DataFrame([*rows, {"use": "reference", "init_scale": reference}])


def with_published(table: pd.DataFrame, beside: Path, name: str) -> pd.DataFrame:
    """The rows of a published table, and behind them those of a new one, which may have none."""
    before = plain_typed(DRAWN[name].read(beside / f"{name}.parquet"))
    return pd.concat([before, table], ignore_index=True) if len(table) else before
