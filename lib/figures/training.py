"""Loss and accuracy through training."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import VIRIDIS, scale_label


def learning_curves(table: pd.DataFrame) -> Figure:
    """Training loss, test loss and test accuracy against the step, for every init scale; mean and range over seeds."""
    quantities = {
        "train_loss": "training loss (since the last point)",
        "test_loss": "test loss",
        "test_accuracy": "test accuracy",
    }
    figure, panels = plt.subplots(1, 3, figsize=(10.2, 3.2))
    scales = sorted(table["init_scale"].unique())
    for axes, (column, name) in zip(panels, quantities.items(), strict=True):
        for i, scale in enumerate(scales):
            rows = table[table["init_scale"] == scale].dropna(subset=[column])
            by_step = rows.groupby("step")[column].agg(["mean", "min", "max"])
            color = VIRIDIS(0.9 * i / max(1, len(scales) - 1))
            axes.plot(by_step.index, by_step["mean"], color=color, label=scale_label(float(f"{scale:g}")))
            axes.fill_between(by_step.index, by_step["min"], by_step["max"], color=color, alpha=0.16, lw=0)
        axes.set(title=name, xlabel="step")
    panels[2].set_ylim(0, 1.01)
    panels[2].set_yticks(np.arange(0, 1.01, 0.2))
    panels[2].legend(loc="lower right")
    return figure
