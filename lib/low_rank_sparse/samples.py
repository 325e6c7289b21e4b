"""How many training samples are needed, against the share of label-relevant tokens."""

import numpy as np
import pandas as pd
from scipy.optimize import isotonic_regression

from lib.low_rank_sparse.measures import numbers_needed

NEGLIGIBLE = 0.01  # of the threshold: a loss of zero has no logarithm


def numbers_of_falling_losses(scored: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """`numbers_needed` where the losses of a seed may rise by chance from one number to the next.

    Their logarithms are replaced by the nearest that do not rise (least squares): else a finer grid
    of numbers, on which a rise by chance is likelier, would need more samples.
    """

    def falling(losses: pd.Series) -> np.ndarray:
        logs = losses.clip(lower=NEGLIGIBLE * threshold).apply(np.log)
        return np.exp(isotonic_regression(logs.to_numpy(), increasing=False).x)

    rows = scored.sort_values("n_train")
    by = rows.groupby(["sweep", "n_relevant", "seed"])["hinge"]
    return numbers_needed(rows.assign(hinge=by.transform(falling)), threshold)


def local_exponents(found: pd.DataFrame) -> pd.DataFrame:
    r"""The exponent of $n \propto \alpha_*^b$ between each share and the next, a column per seed.

    `found` has a row per share and seed, with `n_needed`. A row of the result is named by the
    geometric mean of its two shares.
    """
    needed = found.pivot_table(index="share", columns="seed", values="n_needed", dropna=False)
    logs = needed.apply(np.log)
    x = np.log(logs.index.to_numpy())
    slopes = np.diff(logs.to_numpy(), axis=0) / np.diff(x)[:, None]
    middle = np.exp((x[1:] + x[:-1]) / 2)
    return pd.DataFrame(slopes, pd.Index(middle, name="share"), logs.columns)
