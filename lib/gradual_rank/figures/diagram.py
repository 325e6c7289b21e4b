"""One attention head, with the letters of Boix-Adserà et al. (2023)."""

from matplotlib.figure import Figure

from lib.pages.diagrams import arrow, board, box, note
from lib.pages.style import MATRIX_COLORS


def attention_head() -> Figure:
    """An attention head: which weights act only through a product, and what has steps."""
    figure, axes = board(10.6, 3.3)
    scores_color, values_color = MATRIX_COLORS.values()
    tokens = box(axes, 0.95, 1.65, "tokens X\nn × d", width=1.5)
    scores = box(axes, 3.6, 2.5, "$X\\,W_K W_Q^\\top X^\\top$", width=2.2, color=scores_color)
    attention = box(axes, 6.3, 2.5, "attention\nsoftmax of each row", width=2.0)
    values = box(axes, 3.6, 0.9, "$X\\,W_V W_O^\\top$", width=2.2, color=values_color)
    mixed = box(axes, 6.3, 0.9, "attention × values", width=2.0)
    end = box(axes, 9.35, 0.9, "output\nn × d", width=1.5)
    for begin, to in ((tokens, scores), (tokens, values), (scores, attention)):
        arrow(axes, begin, to)
    arrow(axes, attention, mixed)
    arrow(axes, values, mixed)
    arrow(axes, mixed, end)
    note(axes, 3.6, 3.08, "keys and queries act only through $W_K W_Q^\\top$", scores_color)
    note(axes, 3.6, 0.3, "values and outputs act only through $W_V W_O^\\top$", values_color)
    note(
        axes,
        9.0,
        2.62,
        "The paper: from a small start these\ntwo products gain one direction\nafter another.",
    )
    return figure
