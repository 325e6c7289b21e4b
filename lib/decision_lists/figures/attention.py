"""What list attention has learned: W in the order of the lists, attention, V along P, spectra."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from lib.decision_lists.figures.lines import (
    DASHED,
    LOG_LOG,
    SMALL,
    law_words,
    numbered,
    singular_values_in_time,
)
from lib.pages.marks import BOUND, shaded, where
from lib.pages.panels import grid
from lib.pages.style import BLUE, ORANGE, READ_WIDTH, SHADE, number_panel


def weights_in_list_order(weights: pd.DataFrame) -> Figure:
    """W as it is, and beside it with every column sorted by the list of its query."""
    W = weights.pivot_table(index="key", columns="query", values="W").to_numpy()
    sorted_W = weights.pivot_table(index="row", columns="query", values="W").to_numpy()
    length = int(weights["place"].max())
    limit = np.abs(W).max()
    figure, panels = plt.subplots(1, 2, figsize=(9.4, 4.2))
    for axes, values in zip(panels, (W, sorted_W), strict=True):
        axes.imshow(values, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.grid(visible=False)
        axes.set_xlabel("query token a")
        axes.set_xticks(range(W.shape[1]))
    plain, in_order = panels
    plain.set(title="W", ylabel="key token b")
    plain.set_yticks(range(W.shape[0]))
    labels = [f"$a_{{{i}}}$" for i in range(1, length)] + [f"$a_{{{length}}} = a$", "others"]
    in_order.set_yticks([*range(length), (length + W.shape[0] - 1) / 2], labels=labels)
    in_order.axhline(length - 0.5, color="black", lw=1)
    in_order.set(title="W, each column in the order of its list")
    in_order.set(ylabel="place of the key in the query's list")
    figure.colorbar(in_order.images[0], ax=panels, label="W[key, query]", shrink=0.85)
    return figure


def attention_before_after(attention: pd.DataFrame) -> Figure:
    """Attention on some sequences at the start and at the end; a ring marks the right token."""
    sequences = sorted(attention["sequence"].unique())
    n = len(sequences)
    size = 1.0 + 2.3 * n, 4.9
    figure, panels = grid(2, n, size, sharex="col", sharey="col")
    ring = {"ms": 13, "mfc": "none", "color": "white"}
    for row, when in zip(panels, ("before", "after"), strict=True):
        for axes, sequence in zip(row, sequences, strict=True):
            rows = where(attention, sequence=sequence, when=when)
            values = rows.pivot_table(index="key", columns="query", values="attention")
            axes.imshow(values, cmap="viridis", vmin=0, vmax=1)
            stars = rows.groupby("query")["star"].first()
            keys = list(values.index)
            axes.plot(range(len(stars)), [keys.index(star) for star in stars], "o", **ring)
            axes.set_xticks(range(len(keys)), labels=keys)
            axes.set_yticks(range(len(keys)), labels=keys)
            axes.grid(visible=False)
            if when == "after":
                axes.set_xlabel("query token")
            else:
                axes.set_title(f"sequence {sequence + 1}")
        row[0].set_ylabel(f"{when} training\nkey token")
    figure.colorbar(panels[-1][-1].images[0], ax=panels, label="attention", shrink=0.85)
    return figure


def values_under_uniform_attention(alignment: pd.DataFrame) -> Figure:
    """How fast V moves along P with W = 0, its cosine with P, and how many columns are right.

    The upper panels have sequences without repeated tokens, which the theorem is about, the lower
    ones sequences with them; a line is a task.
    """
    columns = {
        "along_P": "speed of V along P, mean of ⟨−∇, P⟩ so far",
        "cosine": "cos(V, P)",
        "argmax_right": "share of columns of V\nwith their largest entry at the right label",
    }
    kinds = [kind for kind in (False, True) if (alignment["repeats"] == kind).any()]
    size = (READ_WIDTH, 0.6 + 3.1 * len(kinds))
    figure, panels = grid(len(kinds), len(columns), size, sharex=True)
    colors = {length: color for length, _, color in shaded(alignment, "length", ordered=True)}
    for row, repeats in zip(panels, kinds, strict=True):
        own = where(alignment, repeats=repeats)
        for axes, (column, title) in zip(row, columns.items(), strict=True):
            for _, rows in own.groupby("task", sort=False, observed=True):
                color = colors[rows["length"].iloc[0]]
                axes.plot(rows["step"], rows[column], lw=1.5, color=color)
            axes.set(xscale="log", ylim=(0, None if column == "along_P" else 1.04))
            if repeats == kinds[0]:
                axes.set_title(title, fontsize=9)
        for i, least in enumerate(sorted(own["least_rate"].unique())):
            label = "" if i else "at least this at step 1: 1/n − 1/L"
            row[0].axhline(least, **BOUND, lw=1.2, label=label)
        row[0].set_ylabel("sequences with repeats" if repeats else "no token is repeated")
        row[0].legend(loc="lower left")
    for axes in panels[-1]:
        axes.set_xlabel("step of gradient descent on V, with W = 0")
    lines = [Line2D([], [], color=color) for color in colors.values()]
    names = [f"lists of length {length}" for length in colors]
    figure.legend(lines, names, loc="outside lower center", ncols=len(names))
    alone = panels[0][-1]  # whose axis is named though it is shared, as a page shows it alone
    alone.tick_params(labelbottom=True)
    alone.set_xlabel(panels[-1][-1].get_xlabel())
    number_panel(alone)
    return figure


def spectra_in_time(spectra: pd.DataFrame) -> Figure:
    """Every singular value of W through the flow, and its rank, shaded where that is judged.

    The first task is drawn for each rank that is expected.
    """
    shown = spectra.drop_duplicates("expected_rank")["task"]
    spectra = spectra[(spectra["time"] > 0) & spectra["task"].isin(shown)]
    runs = list(shaded(spectra, "task"))
    n = len(runs)
    figure, panels = grid(2, n, (2.3 * n + 0.6, 4.6), sharex=True, sharey="row")
    for (above, below), (_, rows, _) in zip(panels.T, runs, strict=True):
        rows = rows.sort_values("time")
        values = singular_values_in_time(above, rows)
        rank = {"color": "black", "where": "mid", "label": "measured"}
        below.step(rows["time"], rows["numerical_rank"], **rank)
        early = rows["time"][rows["early"]]
        if len(early):
            for axes in (above, below):
                axes.axvspan(early.min(), early.max(), color=SHADE, zorder=0)
        law = rows["law"].iloc[0]
        expected = rows["expected_rank"].iloc[0]
        label = f"{'L − 1' if law == 'uniform' else 'heads'}: {expected}"
        below.axhline(expected, **BOUND, lw=1.2, label=label)
        above.set(**LOG_LOG)
        above.set_title(law_words(law).replace(" ×", "\n×"), fontsize=9)
        above.set_ylim(values[values > 1e-9].min() / 2, values.max() * 2)
        below.set_xlabel("time t")
        below.legend(loc="upper left", fontsize=SMALL)
    above, below = panels[:, 0]
    above.set_ylim(1e-6, None)
    above.set_ylabel("singular values of W")
    highest = max(spectra["numerical_rank"].max(), spectra["expected_rank"].max())
    label = f"number above {spectra['rtol'].iloc[0]:g} $\\sigma_1$"
    below.set(ylabel=label, ylim=(0, 1.4 * highest))
    below.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


def entries_that_matter(trained: pd.DataFrame) -> Figure:
    """The entries of W that keep every sequence right, against those of the lists."""
    figure, axes = plt.subplots(figsize=(4.8, 3.8))
    entries = trained["list_entries"]
    ring = {"ms": 5, "mfc": "none"}
    axes.plot(entries, trained["kept_raw"], "s", color=ORANGE, label="W as it is", **ring)
    in_gauge = "column medians removed"
    axes.plot(entries, trained["kept_in_gauge"], "o", color=BLUE, label=in_gauge, **ring)
    ends = [entries.min() - 2, entries.max() + 2]
    axes.plot(ends, ends, **DASHED, label="as many as the lists have")
    axes.set(xlabel=r"entries of all lists, $\sum_a |L_a|$")
    axes.set(ylabel="fewest entries that keep all right")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=SMALL)
    return figure


def longest_sequences(lengths: pd.DataFrame) -> Figure:
    """The length up to which W is certified on all sequences; dashed, that of training."""
    figure, axes = plt.subplots(figsize=(5.6, 3.6))
    names = numbered([law_words(law) for law in lengths.drop_duplicates("task")["law"]])
    for name, (_, rows, color) in zip(names, shaded(lengths, "task"), strict=True):
        rows = rows[rows["time"] > 0].sort_values("time")
        line = {"color": color, "where": "post", "label": name}
        axes.step(rows["time"], rows["longest"], **line)
    for seq_len in sorted(lengths["seq_len"].unique()):
        axes.axhline(seq_len, **DASHED, label=f"trained at n = {seq_len}")
    axes.set(xscale="log", xlabel="time t", ylim=(0, None))
    axes.set(ylabel="certified on all sequences up to this length")
    axes.legend(fontsize=SMALL)
    return figure
