"""Tables of what an update consists of: the directions that rise in a head, and the ranks of whole
matrices.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from lib.files.runs import Run
from lib.matrices.directions import direction_times
from lib.matrices.ranks import stable_rank
from lib.matrices.spectra import singular_values
from lib.vision.cuts import whole
from lib.vision.measures import LABELS, PRODUCTS, plain_typed
from lib.vision.tables.drawn import DIRECTIONS, WHOLE_RANKS
from lib.vision.vit import MATRICES

SIGNIFICANT = 0.05  # as a share of the largest singular value at the end, of what counts
COURSE = ["matrix", "control", "init_scale", "seed", "layer", "head"]


def directions(spectra: pd.DataFrame) -> pd.DataFrame:
    """When each direction of a head's update has begun and ended, under true and permuted labels.

    The columns `begun` and `ended` are steps, between the saved ones on the straight line of the
    logarithm (`lib.matrices.directions`); `singular_value` is that of the last step. Only what is
    above `SIGNIFICANT` at the end counts.
    """
    spectra = plain_typed(spectra)
    chosen = (spectra["of"] == "update") & (spectra["step"] > 0)
    chosen &= spectra["matrix"].isin(PRODUCTS) & spectra["control"].isin(LABELS)
    tables = []
    for place, course in spectra[chosen].sort_values("step").groupby(COURSE):
        steps = course["step"].to_numpy(float)
        sigma = np.stack(list(course["singular_values"])).astype(float)
        sigma = np.maximum(sigma, np.finfo(float).tiny)  # so that every value has a logarithm
        last, begun, ended = direction_times(steps, sigma, SIGNIFICANT * sigma[-1, 0])
        found = {"singular_value": last, "begun": begun, "ended": ended}
        tables.append(pd.DataFrame(dict(zip(COURSE, place, strict=True)) | found))
    return pd.concat(tables, ignore_index=True) if tables else DIRECTIONS.frame([])


def whole_ranks(runs: Iterable[Run]) -> pd.DataFrame:
    """The stable rank of the final update of every whole matrix, with all heads side by side, in
    the plain runs.

    These are the matrices whose updates `lib.vision.cuts` cuts to a rank.
    """
    tables = []
    for run in runs:
        if run.layout.cell["control"] != "none":
            continue
        initial, final = (
            {name: whole(W, name) for name, W in run.weights(i).items() if name in MATRICES}
            for i in (0, -1)
        )
        for name, W in sorted(final.items()):  # safetensors gives them in any order
            sigma = singular_values(W.double() - initial[name].double()).numpy()
            ranks = pd.DataFrame(stable_rank(sigma), run.layout.seeds)
            rows = ranks.rename_axis("seed").melt(
                var_name="layer", value_name="stable_rank", ignore_index=False
            )
            rows["layer"] += 1
            tables.append(rows.reset_index().assign(**run.layout.cell, matrix=name))
    return pd.concat(tables, ignore_index=True) if tables else WHOLE_RANKS.frame([])
