"""Loss and accuracy through training."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib.figures.style import VIRIDIS, scale_label


def learning_curves(table: pd.DataFrame) -> Figure:
    """Training loss, test loss and test accuracy against the step, for every init scale; mean and range over seeds.

    Dashed: of permuted labels.
    """
    quantities = {
        "train_loss": "training loss (since the last point)",
        "test_loss": "test loss",
        "test_accuracy": "test accuracy",
    }
    figure, panels = plt.subplots(1, 3, figsize=(10.2, 3.5))
    scales = sorted(table[table["control"] == "none"]["init_scale"].unique())
    for axes, (column, name) in zip(panels, quantities.items(), strict=True):
        for i, scale in enumerate(scales):
            color = VIRIDIS(0.9 * i / max(1, len(scales) - 1))
            for control, style in (("none", "-"), ("labels=permuted", "--")):
                rows = table[(table["init_scale"] == scale) & (table["control"] == control)].dropna(subset=[column])
                if rows.empty:
                    continue
                by_step = rows.groupby("step")[column].agg(["mean", "min", "max"])
                label = scale_label(float(f"{scale:g}")) if control == "none" else None
                axes.plot(by_step.index, by_step["mean"], style, color=color, label=label)
                axes.fill_between(by_step.index, by_step["min"], by_step["max"], color=color, alpha=0.16, lw=0)
        axes.set(title=name, xlabel="step")
    panels[2].set_ylim(0, 1.01)
    panels[2].set_yticks(np.arange(0, 1.01, 0.2))
    if (table["control"] == "labels=permuted").any():
        panels[2].plot([], [], "--", color="black", label="permuted labels")
    handles, labels = panels[2].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure
