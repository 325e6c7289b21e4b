"""The one-layer Transformer, with the letters of Li et al. (2024)."""

from matplotlib.figure import Figure

from lib.pages.diagrams import arrow, board, box, note
from lib.pages.style import BLUE, GREEN, ORANGE


def one_layer() -> Figure:
    """The layer from tokens to its output: what is trained, and what the paper says of each."""
    figure, axes = board(11.4, 3.3)
    tokens = box(axes, 0.9, 1.65, "tokens $x_1 \\ldots x_L$\nfew patterns", width=1.6)
    weights = box(
        axes, 3.5, 2.45, "softmax$_s$ of\n$x_s^\\top W_K^\\top W_Q\\, x_l$", width=2.0, color=BLUE
    )
    values = box(axes, 3.5, 0.9, "$W_V x_s$", width=2.0, color=BLUE)
    mixed = box(axes, 5.85, 1.65, "sum over s", width=1.3)
    neurons = box(axes, 7.9, 1.65, "ReLU($W_O\\,\\cdot$)\nm neurons", width=1.6, color=ORANGE)
    end = box(
        axes, 10.3, 1.65, "mean over l of\n$a_{(l)}^\\top \\cdot$ = F(X)", width=1.8, color=GREEN
    )
    for begin, to in ((tokens, weights), (tokens, values), (weights, mixed), (values, mixed)):
        arrow(axes, begin, to)
    arrow(axes, mixed, neurons)
    arrow(axes, neurons, end)
    note(axes, 3.5, 3.1, "updates of $W_Q$, $W_K$, $W_V$: of rank two", BLUE)
    note(axes, 7.9, 2.5, "a row of $W_O$ is a neuron:\nsome stay small, and can go", ORANGE)
    note(axes, 10.3, 2.5, "the readout is not trained:\ntied, one a, or untied", GREEN)
    return figure
