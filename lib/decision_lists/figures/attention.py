"""What list attention has learned: W in the order of the lists, attention on sequences, V along P,
spectra.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lib.pages.style import BLUE, BOUND_COLOR, ORANGE, READ_WIDTH, SHADE, VIRIDIS, sized

ALIGNED, CENTRED = BLUE, ORANGE


def weights_in_list_order(weights: pd.DataFrame) -> Figure:
    """W with every column sorted by the list of its query, and beside it as it is."""
    W = weights.pivot_table(index="key", columns="query", values="W").to_numpy()
    sorted_W = weights.pivot_table(index="row", columns="query", values="W").to_numpy()
    length = int(weights["place"].max())
    limit = np.abs(W).max()
    figure, panels = plt.subplots(1, 2, figsize=(9.4, 4.2))
    image = None
    for axes, values in zip(panels, (W, sorted_W), strict=True):
        image = axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.grid(visible=False)
        axes.set_xlabel("query token a")
        axes.set_xticks(range(W.shape[1]))
    panels[0].set(title="W", ylabel="key token b")
    panels[0].set_yticks(range(W.shape[0]))
    labels = [f"$a_{{{i}}}$" for i in range(1, length)] + [f"$a_{{{length}}} = a$", "others"]
    panels[1].set_yticks([*range(length), (length + W.shape[0] - 1) / 2], labels=labels)
    panels[1].axhline(length - 0.5, color="black", lw=1)
    panels[1].set(
        title="W, each column in the order of its list",
        ylabel="place of the key in the query's list",
    )
    assert image is not None
    figure.colorbar(image, ax=panels, label="W[key, query]", shrink=0.85)
    return figure


def attention_before_after(attention: pd.DataFrame) -> Figure:
    """Attention on some sequences at the start and at the end; a ring marks the token that
    determines the label.
    """
    sequences = sorted(attention["sequence"].unique())
    figure, panels = plt.subplots(
        2,
        len(sequences),
        figsize=(1.0 + 2.3 * len(sequences), 4.9),
        squeeze=False,
        sharex="col",
        sharey="col",
    )
    image = None
    for row, when in enumerate(("before", "after")):
        for axes, sequence in zip(panels[row], sequences, strict=True):
            rows = attention[(attention["sequence"] == sequence) & (attention["when"] == when)]
            values = rows.pivot_table(index="key", columns="query", values="attention")
            image = axes.imshow(values, cmap="viridis", vmin=0, vmax=1)
            stars = rows.groupby("query")["star"].first()
            keys = list(values.index)
            axes.plot(
                range(len(stars)),
                [keys.index(star) for star in stars],
                "o",
                ms=13,
                mfc="none",
                color="white",
            )
            axes.set_xticks(range(len(keys)), labels=keys)
            axes.set_yticks(range(len(keys)), labels=keys)
            axes.grid(visible=False)
            if row:
                axes.set_xlabel("query token")
            else:
                axes.set_title(f"sequence {sequence + 1}")
        panels[row][0].set_ylabel(f"{when} training\nkey token")
    assert image is not None
    figure.colorbar(image, ax=panels, label="attention", shrink=0.85)
    return figure


def values_under_uniform_attention(alignment: pd.DataFrame) -> Figure:
    """With W = 0: how fast V moves along P, cosines, raw and centred, and how many columns have the
    right argmax.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.4))
    columns = {
        "along_P": "mean of ⟨−∇, P⟩ so far",
        "cosine": "cos(V, P)",
        "centred_cosine": "cos(V, P), columns centred",
        "argmax_right": "share of columns, argmax right",
    }
    lengths = sorted(alignment["length"].unique())
    colors = {
        length: VIRIDIS(0.85 * i / max(1, len(lengths) - 1)) for i, length in enumerate(lengths)
    }
    for axes, (column, title) in zip(panels, columns.items(), strict=True):
        for task in dict.fromkeys(alignment["task"]):
            rows = alignment[alignment["task"] == task]
            style = ":" if rows["repeats"].iloc[0] else "-"
            axes.plot(
                rows["step"], rows[column], style, lw=1.3, color=colors[rows["length"].iloc[0]]
            )
        axes.set(
            xscale="log",
            xlabel="step of gradient descent on V",
            ylim=(0, None if column == "along_P" else 1.04),
        )
        axes.set_title(title, fontsize=9)
    for i, least in enumerate(sorted(alignment["least_rate"].unique())):
        label = "" if i else "theorem: at least 1/n − 1/L at step 1"
        panels[0].axhline(least, color=BOUND_COLOR, ls="--", lw=1, label=label)
    for length, color in colors.items():
        panels[0].plot([], [], color=color, label=f"lists of length {length}")
    panels[0].plot([], [], ":", color="black", label="with repeats")
    panels[0].set_ylabel("with W = 0: uniform attention")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def spectra_in_time(spectra: pd.DataFrame) -> Figure:
    """Every singular value of W through the flow, and how many count as its rank; shaded: where
    that is judged.
    """
    spectra = spectra[spectra["time"] > 0]
    tasks = list(dict.fromkeys(spectra["task"]))
    figure, panels = plt.subplots(
        2,
        len(tasks),
        figsize=sized(2.3 * len(tasks) + 0.6, 4.6),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    for column, task in enumerate(tasks):
        rows = spectra[spectra["task"] == task].sort_values("time")
        values = np.stack(list(rows["singular_values"]))
        for i in reversed(range(values.shape[1])):
            color = VIRIDIS(0.9 * np.sqrt(i / max(1, values.shape[1] - 1)))
            panels[0][column].plot(rows["time"], values[:, i], color=color, lw=1.2)
        panels[1][column].step(
            rows["time"], rows["numerical_rank"], color="black", where="mid", label="measured"
        )
        law, expected = str(rows["law"].iloc[0]), int(rows["expected_rank"].iloc[0])
        early = rows["time"][rows["early"]]
        if len(early):
            for axes in panels[:, column]:
                axes.axvspan(early.min(), early.max(), color=SHADE, zorder=0)
        panels[1][column].axhline(
            expected,
            color=BOUND_COLOR,
            ls="--",
            lw=1.2,
            label=f"{'L − 1' if law == 'uniform' else 'heads of lists'}: {expected}",
        )
        panels[0][column].set(xscale="log", yscale="log")
        panels[0][column].set_title(f"{law}\n{task}", fontsize=9)
        panels[0][column].set_ylim(values[values > 1e-9].min() / 2, values.max() * 2)
        panels[1][column].set_xlabel("time t")
        panels[1][column].legend(loc="upper left", fontsize=7.5)
    panels[0][0].set_ylim(1e-6, None)
    panels[0][0].set_ylabel("singular values of W")
    highest = max(spectra["numerical_rank"].max(), spectra["expected_rank"].max())
    panels[1][0].set(
        ylabel=f"number above {spectra['rtol'].iloc[0]:g} $\\sigma_1$", ylim=(0, 1.4 * highest)
    )
    panels[1][0].yaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


def entries_that_matter(trained: pd.DataFrame) -> Figure:
    """The entries of W that keep every sequence right, with W in its gauge and as it is, against
    those of the lists.
    """
    figure, axes = plt.subplots(figsize=(4.8, 3.8))
    for column, color, marker, label in (
        ("kept_raw", CENTRED, "s", "W as it is"),
        ("kept_in_gauge", ALIGNED, "o", "column medians removed"),
    ):
        axes.plot(
            trained["list_entries"],
            trained[column],
            marker,
            ms=5,
            mfc="none",
            color=color,
            label=label,
        )
    ends = [trained["list_entries"].min() - 2, trained["list_entries"].max() + 2]
    axes.plot(ends, ends, color="black", ls="--", lw=1.2, label="as many as the lists have")
    axes.set(
        xlabel=r"entries of all lists, $\sum_a |L_a|$", ylabel="fewest entries that keep all right"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=7.5)
    return figure


def longest_sequences(lengths: pd.DataFrame) -> Figure:
    """Up to which length W is certified on all sequences, through the flow; dashed: the length it
    is trained at.
    """
    figure, axes = plt.subplots(figsize=(5.6, 3.6))
    tasks = list(dict.fromkeys(lengths["task"].astype(str)))
    for i, task in enumerate(tasks):
        rows = lengths[(lengths["task"] == task) & (lengths["time"] > 0)].sort_values("time")
        color = VIRIDIS(0.92 * i / max(1, len(tasks) - 1))
        axes.step(
            rows["time"],
            rows["longest"],
            where="post",
            color=color,
            label=f"{task}: {rows['law'].iloc[0]}",
        )
    for seq_len in sorted(lengths["seq_len"].unique()):
        axes.axhline(seq_len, color="black", ls="--", lw=1.2, label=f"trained at n = {seq_len}")
    axes.set(
        xscale="log",
        xlabel="time t",
        ylabel="certified on all sequences up to this length",
        ylim=(0, None),
    )
    axes.legend(fontsize=7.5)
    return figure
