"""Tables made by hand, with the columns about which a test says nothing."""

import numpy as np
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
from lib.work.schemas import Schema

NOTHING = {
    "integer": 0,
    "number": 0.0,
    "truth": False,
    "text": "",
    "integers": np.zeros(1, int),
    "numbers": np.zeros(1),
    "truths": np.zeros(1, bool),
}
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


def whole(table: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """The table with every column of its schema: zeros, and lists of a zero, where it has none."""
    missing = {
        name: pd.Series([NOTHING[column.kind]] * len(table), table.index)
        for name, column in schema.columns.items()
        if name not in table
    }
    return table.assign(**missing)


def whole_of(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """The table whose path is FOLDER/NAME, FOLDER/PROBLEM_NAME or NAME."""
    if name in OF_FOLDERS[""]:
        return whole(table, OF_FOLDERS[""][name])
    folder, _, own = name.rpartition("/")
    return whole(table, OF_FOLDERS[folder][own.rpartition("_")[2]])
