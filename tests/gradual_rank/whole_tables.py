"""The tables of this family that are made by hand, by their paths, with all their columns."""

import pandas as pd

from lib.gradual_rank.tables import (
    adapter_start,
    decay,
    descents,
    disturbed,
    flows,
    full,
    optimizers,
    predictions,
    signs,
)
from tests.stages.made import whole

OF_FOLDERS = {
    "descents": descents.FOLDER,
    "disturbed": disturbed.FOLDER,
    "trained": optimizers.FOLDER,
    "followed": signs.FOLDER,
    "decayed": decay.FOLDER,
    "adapters": adapter_start.FOLDER,
    "flows": flows.FOLDER,
    "predictions": {"stages": predictions.STAGES, "events": predictions.EVENTS},
    "": {
        "rises": full.RISES,
        "spectra": full.SPECTRA,
        "predictions/forecast": predictions.FORECAST,
    },
}


def whole_of(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """The table whose path is FOLDER/NAME, FOLDER/PROBLEM_NAME or NAME."""
    if name in OF_FOLDERS[""]:
        return whole(table, OF_FOLDERS[""][name])
    folder, _, own = name.rpartition("/")
    return whole(table, OF_FOLDERS[folder][own.rpartition("_")[2]])
