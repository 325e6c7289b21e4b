"""A decision list, and the layer of attention that learns it."""

from matplotlib.figure import Figure

from lib.pages.diagrams import arrow, board, box, note
from lib.pages.style import BLUE, GREEN, ORANGE


def decision_list() -> Figure:
    """The list of one token as questions, and below it the layer that must answer alike."""
    figure, axes = board(11.4, 4.3)
    query = box(axes, 0.95, 3.55, "token a\nof a sequence", width=1.5)
    asked = [
        box(
            axes, 3.1 + 2.25 * k, 3.55, f"does $a_{{{k + 1}}}$\noccur in it?", width=1.5, color=BLUE
        )
        for k in range(3)
    ]
    last = box(axes, 10.1, 3.55, "$a_m$ = a itself\nalways occurs", width=1.7, color=BLUE)
    arrow(axes, query, asked[0])
    for begin, to in zip(asked, [*asked[1:], last], strict=True):
        arrow(axes, begin, to, "no")
    for k, one in enumerate(asked):
        label = box(axes, one.x, 2.15, f"label of $a_{{{k + 1}}}$", width=1.4, color=GREEN)
        arrow(axes, one, label, "yes")
    arrow(axes, last, box(axes, last.x, 2.15, "label of a", width=1.4, color=GREEN))
    tokens = box(axes, 0.95, 0.75, "sequence X", width=1.5)
    attention = box(axes, 3.9, 0.75, "attention:\nsoftmax($X^\\top W X$)", width=2.2, color=BLUE)
    values = box(axes, 6.9, 0.75, "V X attention,\nV near c P", width=2.0, color=ORANGE)
    end = box(axes, 9.9, 0.75, "label: softmax", width=1.7, color=GREEN)
    arrow(axes, tokens, attention)
    arrow(axes, attention, values)
    arrow(axes, values, end)
    note(axes, 5.7, 1.45, "the layer: W must put the first entry that occurs ahead of all others")
    return figure
