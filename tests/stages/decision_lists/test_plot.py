"""The figures of the decision lists: their lines, points, bars, images and texts, against tables made by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from made import files

FIGURES = [
    *("bound", "ratios", "crossover", "lemmas", "outcomes"),
    *("weights", "attention", "alignment", "spectra", "pruning"),
]


def frame(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


TABLES = {
    "theorem": frame(
        "task law n_tokens seq_len length bound at_once first_time",
        ("run a", "zipf 1", 6, 2, 3, 8.0, False, 0.02),
        ("run b", "uniform", 7, 4, 2, 3.0, False, 0.5),
        ("run c", "zipf 1", 8, 3, 2, 5.0, False, 0.001),
        ("run d", "zipf 1", 9, 3, 2, 1.0, True, 1e-12),  # right at once: no part of the histogram
        ("run e", "dirichlet", 9, 5, 4, 2.0, False, 0.03),
    ),
    "paths": frame(
        "task time loss accuracy",
        ("run b", 0.0, 2.5, 0.0),
        ("run b", 4e-5, 2.25, 0.125),  # both are before a ten-thousandth of the time
        ("run b", 0.25, 2.0, 0.5),
        ("run b", 0.75, 1.5, 1.0),
        ("run a", 0.0, 1.75, 0.0),
        ("run a", 0.01, 1.25, 0.25),
        ("run a", 0.04, 0.75, 0.75),
    ),
    "law": frame(
        "task scale rescaled_time path_error attention_to_star",
        ("law z", math.inf, 200.0, math.nan, math.nan),
        ("law z", 100.0, 210.0, 0.02, 0.4),
        ("law z", 5.0, 260.0, 0.3, 0.9),
        ("law z", 20.0, 150.0, 0.1, 0.6),
        ("law b", 5.0, 100.0, 0.25, 0.8),
        ("law b", math.inf, 80.0, math.nan, math.nan),
        ("law b", 100.0, 90.0, 0.01, 0.3),
        ("law b", 20.0, 60.0, 0.05, 0.5),
    ),
    "starts": frame(
        "task start seed accuracy",
        ("s-1", "small", 4, 1.0),
        ("s-1", "small", 2, 0.75),
        ("s-1", "reverse", 4, 0.25),
        ("s-1", "reverse", 2, 0.999),
        ("s-1", "small", 7, 1.0),
        ("s-1", "-P", 4, 0.5),
    ),
    "controls": frame(
        "task control accuracy",
        ("c-1", "trained", 1.0),
        ("c-1", "W transposed", 0.125),
        ("c-0", "trained", 0.875),
        ("c-0", "W transposed", 0.375),
    ),
    "alignment": frame(
        "task step cosine centred_cosine argmax_right accuracy length repeats",
        ("a-1", 1, 0.3, 0.45, 0.5, 0.1, 3, False),
        ("a-1", 8, 0.6, 0.75, 0.875, 0.2, 3, False),
        ("a-0", 1, 0.9, 0.95, 0.125, 0.3, 1, True),
        ("a-0", 8, 0.8, 0.85, 1.0, 0.4, 1, True),
        ("a-2", 1, 0.2, 0.25, 0.625, 0.5, 3, True),
        ("a-2", 8, 0.4, 0.65, 0.75, 0.6, 3, True),
    ),
    "lemmas": frame(
        "bin size min lemma violations cases",
        (-3, 2, 0.75, 1, 2, 9),
        (12, 7, 4.25, 1, 2, 9),
        (5, 3, 1.8125, 2, 0, 14),
        (40, 11, 103.0, 2, 0, 14),
    ),
    "weights": frame(
        "query key row place W",
        (0, 2, 1, 1, 3.0),
        (0, 0, 2, 2, 1.0),
        (0, 1, 3, 0, -0.5),
        (1, 1, 1, 1, 2.0),
        (1, 0, 2, 0, -4.0),
        (1, 2, 3, 0, 0.25),
        (2, 0, 1, 1, 2.5),
        (2, 2, 2, 2, 1.5),
        (2, 1, 3, 0, -1.5),
    ),
    "attention": frame(
        "when sequence query key attention star",
        ("before", 1, 0, 0, 0.5, 3),
        ("before", 1, 0, 3, 0.5, 3),
        ("before", 1, 3, 0, 0.4, 3),
        ("before", 1, 3, 3, 0.6, 3),
        ("before", 0, 1, 1, 0.3, 2),
        ("before", 0, 1, 2, 0.7, 2),
        ("before", 0, 2, 1, 0.2, 1),
        ("before", 0, 2, 2, 0.8, 1),
        ("after", 1, 0, 0, 0.05, 3),
        ("after", 1, 0, 3, 0.95, 3),
        ("after", 1, 3, 0, 0.1, 3),
        ("after", 1, 3, 3, 0.9, 3),
        ("after", 0, 1, 1, 0.15, 2),
        ("after", 0, 1, 2, 0.85, 2),
        ("after", 0, 2, 1, 0.75, 1),
        ("after", 0, 2, 2, 0.25, 1),
    ),
    "trained": frame(
        "task seed list_entries kept_in_gauge kept_raw",
        ("t-1", 0, 10, 11, 13),
        ("t-2", 0, 24, 23, 56),
        ("t-2", 1, 16, 16, 30),
    ),
    "spectra": frame(
        "law task time numerical_rank expected_rank singular_values",
        ("zipf 1", "heads-1", 0.0, 3, 1, np.array([1.0, 0.5, 0.25])),  # a logarithmic axis has no 0
        ("zipf 1", "heads-1", 0.5, 1, 1, np.array([2.0, 0.125, 0.0625])),
        ("zipf 1", "heads-1", 8.0, 2, 1, np.array([4.0, 0.75, 0.375])),
        ("uniform", "uniform", 8.0, 4, 3, np.array([7.0, 6.0, 5.0, 1e-12])),
        ("uniform", "uniform", 2.0, 3, 3, np.array([3.0, 2.5, 2.25, 1e-13])),
        ("uniform", "uniform", 0.0, 0, 3, np.array([0.0, 0.0, 0.0, 0.0])),
        ("zipf 1", "heads-2", 1.0, 2, 4, np.array([9.0, 8.0, 0.5])),
        ("zipf 1", "heads-2", 4.0, 3, 4, np.array([10.0, 8.5, 1.25])),
    ),
}


@pytest.fixture
def figures(stage, drawn, tmp_path):
    """The figures by name, drawn on the made tables."""
    for name, table in TABLES.items():
        (tmp_path / "tables").mkdir(exist_ok=True)
        table.to_parquet(tmp_path / "tables" / f"{name}.parquet")
    stage("decision_lists.plot", {}, tmp_path / "tables", tmp_path / "figures")
    assert files(tmp_path / "figures") == sorted(f"{name}.svg" for name in FIGURES)
    return {name: drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in FIGURES}


def panels(figure):
    """The panels of a figure but for colour bars."""
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def check_lines(axes, *wanted):
    """The axes hold lines of these x and y, in this order, and no others."""
    assert len(axes.lines) == len(wanted)
    for line, (x, y) in zip(axes.lines, wanted, strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([x, y]), rtol=1e-12)


def across(x):
    """A line from top to bottom."""
    return [x, x], [0, 1]


def along(y):
    """A line from left to right."""
    return [0, 1], [y, y]


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def test_every_figure_draws_its_table(figures):
    bound(figures["bound"])
    ratios(figures["ratios"])
    crossover(figures["crossover"])
    lemmas(figures["lemmas"])
    outcomes(figures["outcomes"])
    weights(figures["weights"])
    attention(figures["attention"])
    alignment(figures["alignment"])
    spectra(figures["spectra"])
    pruning(figures["pruning"])


def bound(figure):
    (loss_b, loss_a), (right_b, right_a) = np.reshape(panels(figure), (2, 2))
    check_lines(loss_b, ([0.25, 0.75], [2.0, 1.5]), across(0.5), across(3))
    check_lines(right_b, ([0.25, 0.75], [0.5, 1.0]), across(0.5), across(3))
    check_lines(loss_a, ([0.01, 0.04], [1.25, 0.75]), across(0.02), across(8))
    check_lines(right_a, ([0.01, 0.04], [0.25, 0.75]), across(0.02), across(8))
    assert loss_b.get_title() == "uniform, L = 7, n = 4, M = 2"
    assert loss_a.get_title() == "zipf 1, L = 6, n = 2, M = 3"
    assert (loss_a.get_xscale(), loss_a.get_yscale(), right_a.get_yscale()) == ("log", "log", "linear")
    assert legend(loss_b) == ["population loss", "measured: all sequences right", "theorem: by this time"]
    assert (loss_b.get_ylabel(), right_b.get_ylabel()) == ("population loss", "share of positions right")


def ratios(figure):
    (axes,) = panels(figure)
    found = {"dirichlet": [0.015], "uniform": [1 / 6], "zipf 1": [0.0025, 0.0002]}
    assert legend(axes)[:3] == ["dirichlet (1 runs)", "uniform (1 runs)", "zipf 1 (2 runs)"]
    starts = np.arange(-4, 0.01, 0.5)
    bottom = np.zeros(9)
    for container, values in zip(axes.containers, found.values(), strict=True):
        heights = np.array([sum(start <= math.log10(v) < start + 0.5 for v in values) for start in starts])
        np.testing.assert_allclose([bar.get_x() for bar in container], starts, atol=1e-12)
        np.testing.assert_allclose([bar.get_width() for bar in container], 0.5)
        np.testing.assert_array_equal([bar.get_y() for bar in container], bottom)
        np.testing.assert_array_equal([bar.get_height() for bar in container], heights)
        assert heights.sum() == len(values)
        bottom = bottom + heights
    median = (0.0025 + 0.015) / 2
    check_lines(axes, across(0), across(math.log10(median)))
    assert legend(axes)[3:] == ["theorem: at most 1", "measured median"]
    assert labels(axes.get_xticklabels()) == ["$10^{-4}$", "$10^{-2}$", "$10^{0}$"]


def crossover(figure):
    time, attention, error = panels(figure)
    scales = [5, 20, 100]
    check_lines(time, (scales, [1.3, 0.75, 1.05]), (scales, [1.25, 0.75, 1.125]), along(1))
    check_lines(attention, (scales, [0.9, 0.6, 0.4]), (scales, [0.8, 0.5, 0.3]), along(0.25))
    check_lines(
        error, (scales, [0.3, 0.1, 0.02]), (scales, [0.25, 0.05, 0.01]), ([20, 100], [0.3 * 6 / 20, 0.3 * 6 / 100])
    )
    assert legend(time)[:2] == ["task 1", "task 2"]
    assert [axes.get_xscale() for axes in panels(figure)] == ["log"] * 3
    assert error.get_yscale() == "log"


def lemmas(figure):
    wanted = [([-3, 12], [2, 7], "9 random cases, least 0.75"), ([5, 40], [3, 11], "14 random cases, least 1.812")]
    for axes, (bins, sizes, title) in zip(panels(figure), wanted, strict=True):
        found = [(bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in axes.patches]
        np.testing.assert_allclose(
            found, [(10 ** (b / 20), 10 ** ((b + 1) / 20), n) for b, n in zip(bins, sizes, strict=True)]
        )
        check_lines(axes, across(1))
        assert axes.get_title() == title
        assert axes.get_xscale() == "log"
    assert [legend(axes) for axes in panels(figure)] == [["Lemma 1: at least 1"], ["Lemma 2: at least 1"]]


def outcomes(figure):
    starts, controls = panels(figure)
    nothing = [], []
    check_lines(  # from below, those that are right before those that are not
        starts,
        *(nothing, ([0.5], [0])),
        *(nothing, ([0.25, 0.999], [0.8, 1.2])),
        *(([1, 1], [1.8, 2.2]), ([0.75], [2])),
    )
    check_lines(controls, *(nothing, ([0.125, 0.375], [-0.2, 0.2])), *(([1], [0.8]), ([0.875], [1.2])))
    assert [line.get_markerfacecolor() == "none" for line in starts.lines] == [False, True] * 3
    assert labels(starts.get_yticklabels()) == ["-P", "reverse", "small"]
    assert labels(controls.get_yticklabels()) == ["W transposed", "trained"]
    assert (starts.get_title(), controls.get_title()) == ("both trained, from these starts", "controls")


def weights(figure):
    plain, in_order = panels(figure)
    W = [[1.0, -4.0, 2.5], [-0.5, 2.0, -1.5], [3.0, 0.25, 1.5]]
    in_list_order = [[3.0, 2.0, 2.5], [1.0, -4.0, 1.5], [-0.5, 0.25, -1.5]]
    for axes, values in ((plain, W), (in_order, in_list_order)):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), values)
        assert image.get_clim() == (-4, 4)
    assert labels(in_order.get_yticklabels()) == ["$a_{1}$", "$a_{2} = a$", "others"]
    check_lines(plain)
    check_lines(in_order, along(1.5))


def attention(figure):
    images = {
        ("before", 0): [[0.3, 0.2], [0.7, 0.8]],
        ("before", 1): [[0.5, 0.4], [0.5, 0.6]],
        ("after", 0): [[0.15, 0.75], [0.85, 0.25]],
        ("after", 1): [[0.05, 0.1], [0.95, 0.9]],
    }
    for axes, ((when, sequence), values) in zip(panels(figure), images.items(), strict=True):
        (image,) = axes.images
        np.testing.assert_array_equal(image.get_array(), values)
        assert image.get_clim() == (0, 1)
        check_lines(axes, ([0, 1], [[1, 0], [1, 1]][sequence]))
        assert labels(axes.get_yticklabels()) == [["1", "2"], ["0", "3"]][sequence]
        assert axes.get_title() == (f"sequence {sequence + 1}" if when == "before" else "")
        assert axes.get_ylabel() == ("" if sequence else f"{when} training\nkey token")


def alignment(figure):
    steps = [1, 8]
    wanted = [
        [(0.3, 0.6), (0.9, 0.8), (0.2, 0.4)],
        [(0.45, 0.75), (0.95, 0.85), (0.25, 0.65)],
        [(0.5, 0.875), (0.125, 1.0), (0.625, 0.75)],
    ]
    for axes, courses in zip(panels(figure), wanted, strict=True):
        shown = axes.lines[:3]
        for line, course in zip(shown, courses, strict=True):
            np.testing.assert_array_equal(line.get_xydata(), np.column_stack([steps, course]))
        assert [line.get_linestyle() for line in shown] == ["-", ":", ":"]  # dotted: with repeats
        colors = [line.get_color() for line in shown]
        assert colors[0] == colors[2] != colors[1]  # a colour a length
        assert all(len(line.get_xdata()) == 0 for line in axes.lines[3:])
    titles = [axes.get_title() for axes in panels(figure)]
    assert titles == ["cos(V, P)", "cos(V, P), columns centred", "argmax right"]
    assert legend(panels(figure)[0]) == ["lists of length 1", "lists of length 3", "with repeats"]


def spectra(figure):
    above, below = np.reshape(panels(figure), (2, 3))
    wanted = [
        ([0.5, 8], [(2, 0.125, 0.0625), (4, 0.75, 0.375)], (1, 2), 1, "1 frequent head"),
        ([2, 8], [(3, 2.5, 2.25, 1e-13), (7, 6, 5, 1e-12)], (3, 4), 3, "uniform law"),
        ([1, 4], [(9, 8, 0.5), (10, 8.5, 1.25)], (2, 3), 4, "4 frequent heads"),
    ]
    for over, under, (times, values, ranks, expected, title) in zip(above, below, wanted, strict=True):
        check_lines(over, *((times, course) for course in reversed(list(zip(*values, strict=True)))))
        check_lines(under, (times, ranks), along(expected))
        assert over.get_title() == title
        assert (over.get_xscale(), over.get_yscale()) == ("log", "log")
    assert [legend(axes)[1] for axes in below] == ["heads: 1", "L − 1: 3", "heads: 4"]


def pruning(figure):
    (axes,) = panels(figure)
    check_lines(axes, ([10, 24, 16], [13, 56, 30]), ([10, 24, 16], [11, 23, 16]), ([8, 26], [8, 26]))
    assert legend(axes) == ["W as it is", "column medians removed", "as many as the lists have"]
    assert [line.get_marker() for line in axes.lines] == ["s", "o", "None"]
