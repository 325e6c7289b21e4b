"""When keys turn and values rise by gradient descent, with QK-norm and with plain attention."""

from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.marks import THEORY, where
from lib.pages.panels import numbers_below, shared_legend
from lib.pages.style import (
    BLUE,
    GREY,
    MATRIX_COLORS,
    MATRIX_NAMES,
    PERMUTED_COLOR,
    READ_WIDTH,
    number_panel,
)


class Line(NamedTuple):
    """A line of a panel: whose it is, and its look."""

    label: str
    attention: str
    labels: str
    color: str
    marker: str


LINES = (
    Line("QK-norm", "qk_norm", "true", BLUE, "o"),
    Line("QK-norm, permuted labels", "qk_norm", "permuted", PERMUTED_COLOR, "^"),
    Line("plain attention", "plain", "true", GREY, "s"),
)
COURSES = (("qk_norm", "QK-norm: keys first"), ("plain", "plain: values first"))
SHOWN = 2.0  # the highest multiple of a mark that is drawn


def turns_and_rises(
    followed: pd.DataFrame, found: pd.DataFrame, late: pd.DataFrame, turned: float, risen: float
) -> Figure:
    """Times of turns and rises by init scale, and one training of each attention.

    The tables are the states, and their `events` and `waits` (lib/vision/waits.py).

    On the left a marker is a seed, a line the mean over seeds. Dashed is the mean time with QK-norm
    from the smallest scale, at every scale, and in the second panel the wait that theory says from
    the second smallest scale to the smallest. On the right is the first seed from the smallest
    scale.
    """
    figure, panels = plt.subplots(1, 4, figsize=(READ_WIDTH, 3.9))
    keys, values, *courses = panels
    whole = where(found, steps="whole")
    scales = sorted(whole["init_scale"].unique())
    for line in LINES:
        own = where(whole, attention=line.attention, labels=line.labels)
        waited = where(late, attention=line.attention, labels=line.labels)
        _by_scale(keys, own, "turn", line)
        means = _by_scale(values, own, "rise", line)
        said = means[scales[1]] + (means[scales[0]] - means[scales[1]]) / waited["values"].mean()
        values.plot(scales[:2], [said, means[scales[1]]], **THEORY, lw=1.2, zorder=3)
    constant = keys.lines[0].get_ydata()[0]
    keys.axhline(constant, **THEORY, lw=1.2, label="theory")
    keys.set(title="keys: no wait with QK-norm")
    keys.set_ylabel(f"time at which {MATRIX_NAMES['W_KQ']} has moved by {turned:.0%}")
    values.set(title="values wait in both")
    values.set_ylabel(f"time at which {MATRIX_NAMES['W_VO']} has moved by {risen:g}")
    for axes in (keys, values):
        axes.set(xscale="log", xlabel="init scale of the attention", ylim=(0, None))
        axes.invert_xaxis()
        numbers_below(axes, scales)
    followed = where(followed, steps="whole", labels="true", init_scale=scales[0])
    followed = where(followed, seed=followed["seed"].min())
    for axes, (attention, title) in zip(courses, COURSES, strict=True):
        _course(axes, where(followed, attention=attention), turned, risen)
        axes.set(title=title, xlabel=f"time, from init scale {scales[0]:g}")
    courses[0].set_ylabel("move over that at which the time is taken")
    courses[0].legend(loc="upper left")
    shared_legend(figure, keys)
    number_panel(keys)
    return figure


def _by_scale(axes: Axes, own: pd.DataFrame, name: str, line: Line) -> pd.Series:
    """A marker for each seed at each init scale, and a line through means, which it returns."""
    means = own.groupby("init_scale")[name].mean()
    look: Any = {"color": line.color, "marker": line.marker}
    axes.plot(means.index, means, ms=3, label=line.label, **look)
    axes.plot(own["init_scale"], own[name], ls="none", ms=4, mfc="none", **look)
    return means


def _course(axes: Axes, states: pd.DataFrame, turned: float, risen: float) -> None:
    """How far keys and values have moved through one training, over their marks."""
    states = states.sort_values("step")
    for column, matrix, mark in (("keys", "W_KQ", turned), ("values", "W_VO", risen)):
        look: Any = {"color": MATRIX_COLORS[matrix], "label": MATRIX_NAMES[matrix]}
        axes.plot(states["time"], states[column] / mark, **look)
    axes.axhline(1, color="black", lw=0.8, ls=":")
    axes.set_ylim(0, SHOWN)
