"""The figures of the decision lists: their lines, points, bars, images and texts, against tables
made by hand.
"""

import math

import numpy as np
import pandas as pd
import pytest

from tests.stages.made import files


def frame(columns, *rows):
    return pd.DataFrame(rows, columns=columns.split())


LN10 = math.log(10)
TABLES = {
    "theorem": frame(
        "task law n_tokens seq_len length bound at_once first_time scale largest_attention lost "
        "lost_time "
        "regained_time late_limit",
        ("run a", "zipf 1", 6, 2, 3, 8.0, False, 0.02, 10.0, 1.5, 0, math.nan, math.nan, 50.0),
        ("run b", "uniform", 7, 4, 2, 3.0, False, 0.5, 100.0, 1.25, 2, 0.3, 0.6, math.nan),
        ("run c", "zipf 1", 8, 3, 2, 5.0, False, 0.001, 30.0, 1.125, 0, math.nan, math.nan, 5.0),
        (
            "run d",
            "zipf 1",
            9,
            3,
            2,
            1.0,
            True,
            1e-12,
            20.0,
            1.0,
            0,
            math.nan,
            math.nan,
            5.0,
        ),  # right at once: not in it
        ("run e", "dirichlet", 9, 5, 4, 2.0, False, 0.03, 40.0, 1.0625, 0, math.nan, math.nan, 5.0),
        (
            "run f",
            "dirichlet",
            9,
            5,
            4,
            2.0,
            False,
            math.nan,
            50.0,
            1.5,
            0,
            math.nan,
            math.nan,
            5.0,
        ),  # never right
        ("run g", "dirichlet", 9, 5, 4, 2.0, False, 0.2, 60.0, 1.5, 0, math.nan, math.nan, 5.0),
    ),
    "paths": frame(
        "task time loss accuracy margin",
        ("run b", 0.0, 2.5, 0.0, 0.0),
        ("run b", 4e-5, 2.25, 0.125, -1.0),  # both are before a ten-thousandth of the time
        ("run b", 0.25, 2.0, 0.5, -0.5),
        ("run b", 0.75, 1.5, 1.0, 0.5),
        ("run a", 0.0, 1.75, 0.0, 0.0),
        ("run a", 0.01, 1.25, 0.25, -2.0),
        ("run a", 0.04, 0.75, 0.75, 2.0),
    ),
    "late": frame(
        "task law rescaled_time slope loss_times_time limit",
        ("run a", "zipf 1", 100.0, -1.5, 30.0, 20.0),
        ("run c", "zipf 1", 400.0, -0.75, 5.0, 20.0),
        ("run e", "dirichlet", 50.0, -1.0, 3.0, 4.0),
    ),
    "repeats": frame(
        "task law length seq_len first_time largest_W attention_to_star",
        ("r 1", "uniform", 2, 5, 16.0, 1.5, 0.75),
        ("r 2", "zipf 1", 3, 5, 64.0, 2.5, 0.875),
    ),
    "law": frame(
        "task law seq_len scale rescaled_time path_error attention_to_star at_once",
        ("law z", "zipf 1", 5, math.inf, 200.0, math.nan, math.nan, False),
        ("law z", "zipf 1", 5, 100.0, 210.0, 0.02, 0.4, False),
        ("law z", "zipf 1", 5, 5.0, 260.0, 0.3, 0.9, False),
        ("law z", "zipf 1", 5, 20.0, 150.0, 0.1, 0.6, False),
        ("law b", "uniform", 5, 5.0, 100.0, 0.25, 0.8, False),
        ("law b", "uniform", 5, math.inf, 80.0, math.nan, math.nan, False),
        ("law b", "uniform", 5, 100.0, 90.0, 0.01, 0.3, False),
        ("law b", "uniform", 5, 20.0, 60.0, 0.05, 0.5, False),
        (
            "law c",
            "uniform",
            5,
            math.inf,
            0.0,
            math.nan,
            math.nan,
            True,
        ),  # right at once: there is no time to draw
    ),
    "feasible": frame("length least_n closed_form", (3, 40, 38), (1, 19, 19)),
    "both": frame(
        "task noise law seq_len length delta n_steps earliest margin",
        ("d-1", "none", "uniform", 29, 2, 0.125, 2, 50.0, 2.0),
        ("d-1", "adversarial", "uniform", 29, 2, 0.125, 6, 40.0, 0.0),
        ("d-2", "none", "zipf 2", 38, 3, 0.25, 9, 30.0, 1.0),
    ),
    "courses": frame(
        "task noise step loss wrong step_times_curvature",
        ("d-1", "none", 0, 2.0, 0.5, 0.5),
        ("d-1", "none", 2, 1.0, 0.0, 0.25),
        ("d-1", "adversarial", 0, 4.0, 0.5, 0.125),
        ("d-1", "adversarial", 6, 3.0, 0.5, 0.75),
        ("d-2", "none", 0, 2.5, 0.5, 0.375),
        ("d-2", "none", 9, 0.5, 0.0, 0.0625),
    ),
    "joint": frame(
        "task seed step certified_all first_certified_all",
        ("j-1", 0, 40, True, 20.0),
        ("j-1", 1, 40, False, math.nan),
        ("j-2", 0, 40, False, 30.0),  # and not at the end
    ),
    "lengths": frame(
        "time longest task law seq_len",
        (0.0, 1, "heads-1", "zipf 1", 3),
        (1.0, 2, "heads-1", "zipf 1", 3),
        (8.0, 5, "heads-1", "zipf 1", 3),
        (1.0, 4, "uniform", "uniform", 3),
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
        "task step cosine centred_cosine argmax_right along_P least_rate length repeats",
        ("a-1", 1, 0.3, 0.45, 0.5, 0.1, 0.25, 3, False),
        ("a-1", 8, 0.6, 0.75, 0.875, 0.2, 0.25, 3, False),
        ("a-0", 1, 0.9, 0.95, 0.125, 0.3, 0.125, 1, True),
        ("a-0", 8, 0.8, 0.85, 1.0, 0.4, 0.125, 1, True),
        ("a-2", 1, 0.2, 0.25, 0.625, 0.5, 0.125, 3, True),
        ("a-2", 8, 0.4, 0.65, 0.75, 0.6, 0.125, 3, True),
    ),
    "lemmas": frame(
        "bin size min lemma cases",
        (-3, 2, 0.75, 1, 9),
        (12, 7, 4.25, 1, 9),
        (5, 3, 1.8125, 2, 14),
        (40, 11, 103.0, 2, 14),
    ),
    "factored": frame(
        "of task until log10_init_scale n_heads sigma_1 first_rise next_rise right fewest "
        "numerical_rank",
        ("factored", "f-2", "right", -1, 2, 0.5, LN10, 8.0, 6.0, 4, 1),
        ("factored", "f-2", "right", -2, 2, 0.5, 3 * LN10, math.nan, 12.0, 3, 2),
        ("factored", "f-4", "right", -2, 4, 0.25, 4 * LN10, 20.0, 16.0, 6, 3),
        ("factored", "f-4", "first rise", -4, 4, 0.25, 12 * LN10, 20.0, 18.0, 6, 9),
        ("factored", "o-1", "right", -2, 2, 1.0, LN10, 5.0, math.inf, 8, 7),
        ("factored", "n-0", "right", -2, 0, 1.0, 1.5 * LN10, 5.0, 6.0, 8, 6),
        ("whole", "f-2", "right", -1, 2, 0.5, 0.25 * LN10, 1.0, 3.0, 2, 2),
        ("permuted", "f-4", "right", -2, 4, 0.25, 1.0, 1.0, 3.0, 2, 5),
    ),
    "staircases": frame(
        "task log10_init_scale time singular_values",
        ("f-2", -2, 0.0, np.array([0.25, 0.125])),
        ("f-2", -2, 1.0, np.array([0.5, 0.375])),
        ("f-2", -2, 4.0, np.array([2.0, 1.0])),
        ("o-1", -2, 2.0, np.array([3.0, 1.0])),
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
        "law task time numerical_rank expected_rank early rtol singular_values",
        (
            "zipf 1",
            "heads-1",
            0.0,
            3,
            1,
            False,
            0.125,
            np.array([1.0, 0.5, 0.25]),
        ),  # a logarithmic axis has no 0
        ("zipf 1", "heads-1", 0.5, 1, 1, False, 0.125, np.array([2.0, 0.125, 0.0625])),
        ("zipf 1", "heads-1", 8.0, 2, 1, False, 0.125, np.array([4.0, 0.75, 0.375])),
        ("uniform", "uniform", 8.0, 4, 3, False, 0.125, np.array([7.0, 6.0, 5.0, 1e-12])),
        ("uniform", "uniform", 2.0, 3, 3, True, 0.125, np.array([3.0, 2.5, 2.25, 1e-13])),
        ("uniform", "uniform", 0.0, 0, 3, False, 0.125, np.array([0.0, 0.0, 0.0, 0.0])),
        ("zipf 1", "heads-2", 1.0, 2, 4, True, 0.125, np.array([9.0, 8.0, 0.5])),
        ("zipf 1", "heads-2", 4.0, 3, 4, True, 0.125, np.array([10.0, 8.5, 1.25])),
    ),
}


@pytest.fixture
def figures(stage, drawn, tmp_path):
    """The figures by name, drawn on the made tables."""
    for name, table in TABLES.items():
        (tmp_path / "tables").mkdir(exist_ok=True)
        table.to_parquet(tmp_path / "tables" / f"{name}.parquet")
    stage("decision_lists.plot", {}, tmp_path / "tables", tmp_path / "figures")
    assert files(tmp_path / "figures") == sorted(f"{name}.svg" for name in DRAWN)
    return {name: drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in DRAWN}


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
    for name, figure in figures.items():
        DRAWN[name](figure)


def test_the_figures_of_a_use_that_was_not_run_are_not_drawn(stage, drawn, tmp_path):
    (tmp_path / "tables").mkdir()
    for name in ("joint", "weights", "theorem", "both"):  # without "courses"
        table = TABLES[name]
        (table.assign(lost=0) if name == "theorem" else table).to_parquet(
            tmp_path / "tables" / f"{name}.parquet"
        )
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "old.svg").write_text("of an earlier run")
    stage("decision_lists.plot", {}, tmp_path / "tables", tmp_path / "figures")
    assert files(tmp_path / "figures") == ["outcomes.svg", "ratios.svg", "weights.svg"]


def bound(figure):
    (loss_b, loss_a), (right_b, right_a) = np.reshape(panels(figure), (2, 2))
    check_lines(loss_b, ([0.25, 0.75], [2.0, 1.5]), across(0.5), across(3))
    check_lines(right_b, ([0.25, 0.75], [0.5, 1.0]), across(0.5), across(3))
    late = [0.04], [50 / 10**2 / 0.04]  # after the first time
    check_lines(loss_a, ([0.01, 0.04], [1.25, 0.75]), across(0.02), across(8), late)
    check_lines(right_a, ([0.01, 0.04], [0.25, 0.75]), across(0.02), across(8))
    assert loss_b.get_title() == "uniform, L = 7, n = 4, M = 2"
    assert loss_a.get_title() == "zipf 1, L = 6, n = 2, M = 3"
    assert (loss_a.get_xscale(), loss_a.get_yscale(), right_a.get_yscale()) == (
        "log",
        "log",
        "linear",
    )
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:3] == [
        "population loss",
        "measured: all sequences right",
        "theorem: by this time",
    ]
    assert texts[3:] == ["derived, late: $|\\hat u|^2 / c^2 t$"]
    assert (loss_b.get_ylabel(), right_b.get_ylabel()) == (
        "population loss",
        "share of positions right",
    )


def ratios(figure):
    axes, lazy = panels(figure)
    found = {"dirichlet": [0.015, 0.1], "uniform": [1 / 6], "zipf 1": [0.0025, 0.0002]}
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[:3] == ["dirichlet (3 runs)", "uniform (1 runs)", "zipf 1 (2 runs)"]
    starts = np.arange(-4, 0.01, 0.5)
    bottom = np.zeros(9)
    for container, values in zip(axes.containers, found.values(), strict=True):
        heights = np.array(
            [sum(start <= math.log10(v) < start + 0.5 for v in values) for start in starts]
        )
        np.testing.assert_allclose([bar.get_x() for bar in container], starts, atol=1e-12)
        np.testing.assert_array_equal([bar.get_y() for bar in container], bottom)
        np.testing.assert_array_equal([bar.get_height() for bar in container], heights)
        bottom = bottom + heights
    logs = math.log10(0.015), math.log10(0.1)  # of six, one of which takes for ever
    check_lines(axes, across(0), across(sum(logs) / 2), ([], []))
    assert texts[3:] == [
        "theorem: at most 1",
        f"measured median, {10 ** (sum(logs) / 2):.2g}",
        "not right by the bound: 1 runs",
    ]
    assert labels(axes.get_xticklabels()) == ["$10^{-4}$", "$10^{-2}$", "$10^{0}$"]
    check_lines(lazy, ([40, 50, 60], [0.0625, 0.5, 0.5]), ([100], [0.25]), ([10, 30], [0.5, 0.125]))


def late(figure):
    level, slope = panels(figure)
    check_lines(level, ([50], [0.75]), ([100, 400], [1.5, 0.25]), along(1))
    check_lines(slope, ([50], [-1.0]), ([100, 400], [-1.5, -0.75]), along(-1))


def lost(figure):
    (axes,) = panels(figure)
    check_lines(axes, ([0.25, 0.75], [-0.5, 0.5]), along(0), across(0.3), across(0.6), across(3))
    assert legend(axes)[1:] == ["lost at 0.3", "right again at 0.6", "theorem: right before 3"]


def repeats(figure):
    times, largest, attention = panels(figure)
    check_lines(times, ([16, 64], [0, 1]))
    check_lines(largest, ([1.5, 2.5], [0, 1]))
    check_lines(attention, ([0.75, 0.875], [0, 1]), across(0.2))
    assert labels(times.get_yticklabels()) == ["uniform, M = 2", "zipf 1, M = 3"]


def crossover(figure):
    time, attention, off, error = panels(figure)
    scales = [5, 20, 100]
    check_lines(
        time, (scales, [260, 150, 210]), along(200), (scales, [100, 60, 90]), along(80), ([], [])
    )
    check_lines(attention, (scales, [0.9, 0.6, 0.4]), (scales, [0.8, 0.5, 0.3]), along(0.2))
    check_lines(
        off,
        (scales, [0.3, 0.25, 0.05]),
        (scales, [0.25, 0.25, 0.125]),
        ([20, 100], [1.6 * 12.5 / 20, 1.6 * 0.125]),
    )
    check_lines(
        error, (scales, [0.3, 0.1, 0.02]), (scales, [0.25, 0.05, 0.01]), ([20, 100], [0.16, 0.032])
    )
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == ["law z: zipf 1", "law b: uniform", "limit: Luce's choice model"]
    assert legend(attention) == ["uniform attention, 1/n = 1/5"]
    assert [axes.get_xscale() for axes in panels(figure)] == ["log"] * 4
    assert (off.get_yscale(), error.get_yscale()) == ("log", "log")


def feasible(figure):
    (axes,) = panels(figure)
    check_lines(axes, ([1, 3], [19, 38]), ([1, 3], [19, 40]))
    assert [text.get_text() for text in axes.texts] == ["19", "40"]


def descents(figure):
    loss, curvature, hard, ratio = panels(figure)
    courses = [([1, 3], [2, 1]), ([1, 7], [4, 3]), ([1, 10], [2.5, 0.5])]
    ends = [([3], [1]), ([7], [3]), ([10], [0.5])]
    check_lines(
        loss, *(line for both in zip(courses, ends, strict=True) for line in both), *[([], [])] * 2
    )
    assert [loss.lines[i].get_linestyle() for i in (0, 2, 4)] == [":", ":", "-"]
    check_lines(
        curvature,
        ([1, 3], [0.5, 0.25]),
        ([1, 7], [0.125, 0.75]),
        ([1, 10], [0.375, 0.0625]),
        along(1),
    )
    nothing = [], []
    check_lines(hard, ([0.125, 0.25], [2, 9]), nothing, ([0.125], [6]))
    none, adversarial = [1.22, 0.22], [0.78]
    check_lines(
        ratio,
        *(([0.04, 0.3], none), nothing),
        *(nothing, nothing),
        *(nothing, ([0.15], adversarial)),
        across(1),
    )
    assert labels(ratio.get_yticklabels()) == ["zipf 2, n = 38, m = 3", "uniform, n = 29, m = 2"]


def apart(figure):
    waits, course, ranks, times = panels(figure)
    scales = [1e-1, 1e-2, 1e-2, 1e-4, 1e-2, 1e-2]
    check_lines(waits, (scales, [0.5, 0.75, 0.5, 0.75, 0.5, 0.75]), ([0.1], [0.125]), along(1))
    limit = across(4 * LN10)
    check_lines(course, ([1, 4], [0.375, 1.0]), ([1, 4], [0.5, 2.0]), limit, across(12))
    assert course.get_title() == "heads: 2, α = 1e-2"
    check_lines(
        ranks,
        ([1.84, 1.84, 3.84], [1, 2, 3]),  # those that are right, and went on until then
        ([2], [2]),
        ([4.16], [5]),
        ([2.32, 2.32, 4.32], [4, 3, 6]),
        ([1, 2, 3, 4], [1, 1, 2, 3]),
    )
    right, following = [6 / (2 * LN10), 6 / LN10], [math.nan, 8 / LN10]
    check_lines(
        times,
        ([0.01, 0.1], [12 / (2 * LN10), right[1]]),
        ([0.01, 0.1], following),
        ([0.01], [16 / (2 * LN10)]),
        ([0.01], [20 / (2 * LN10)]),
        ([], []),
        ([], []),
    )
    assert legend(times)[:2] == ["heads: 2", "heads: 4"]
    assert legend(waits) == ["W_K and W_Q apart", "W itself", "limit"]


def lengths(figure):
    (axes,) = panels(figure)
    check_lines(axes, ([1, 8], [2, 5]), ([1], [4]), along(3))
    assert legend(axes) == ["heads-1: zipf 1", "uniform: uniform", "trained at n = 3"]


def lemmas(figure):
    wanted = [
        ([-3, 12], [2, 7], 0.75, "9 random cases, least 0.75"),
        ([5, 40], [3, 11], 1.8125, "14 random cases, least 1.8125"),
    ]
    for axes, (bins, sizes, least, title) in zip(panels(figure), wanted, strict=True):
        found = [
            (bar.get_x(), bar.get_x() + bar.get_width(), bar.get_height()) for bar in axes.patches
        ]
        np.testing.assert_allclose(
            found,
            [(10 ** (b / 20), 10 ** ((b + 1) / 20), n) for b, n in zip(bins, sizes, strict=True)],
        )
        check_lines(axes, across(1), across(least))
        assert axes.get_title() == title
        assert axes.get_xscale() == "log"
    assert [legend(axes)[0] for axes in panels(figure)] == [
        "Lemma 1: at least 1",
        "Lemma 2: at least 1",
    ]


def outcomes(figure):
    starts, controls, certified = panels(figure)
    nothing = [], []
    check_lines(  # from below, those that are right before those that are not
        starts,
        *(nothing, ([0.5], [0])),
        *(nothing, ([0.25, 0.999], [0.8, 1.2])),
        *(([1, 1], [1.8, 2.2]), ([0.75], [2])),
    )
    check_lines(
        controls, *(nothing, ([0.125, 0.375], [-0.2, 0.2])), *(([1], [0.8]), ([0.875], [1.2]))
    )
    assert [line.get_markerfacecolor() == "none" for line in starts.lines] == [False, True] * 3
    assert labels(starts.get_yticklabels()) == ["-P", "reverse", "small"]
    assert labels(controls.get_yticklabels()) == ["W transposed", "trained"]
    assert (starts.get_title(), controls.get_title()) == (
        "both trained, from these starts",
        "controls",
    )
    check_lines(certified, nothing, ([30], [0]), ([20], [1]), ([40], [1]))
    assert labels(certified.get_yticklabels()) == ["j-2", "j-1"]


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
        [(0.1, 0.2), (0.3, 0.4), (0.5, 0.6)],
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
    first = panels(figure)[0]
    rules = [line for line in first.lines[3:] if len(line.get_xdata())]
    assert [line.get_ydata()[0] for line in rules] == [0.125, 0.25]
    assert [axes.get_title() for axes in panels(figure)][1:3] == [
        "cos(V, P)",
        "cos(V, P), columns centred",
    ]
    rule = "theorem: at least 1/n − 1/L at step 1"
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [rule, "lists of length 1", "lists of length 3", "with repeats"]


def spectra(figure):
    above, below = np.reshape(panels(figure), (2, 3))
    wanted = [
        ([0.5, 8], [(2, 0.125, 0.0625), (4, 0.75, 0.375)], (1, 2), 1, "zipf 1\nheads-1"),
        ([2, 8], [(3, 2.5, 2.25, 1e-13), (7, 6, 5, 1e-12)], (3, 4), 3, "uniform\nuniform"),
        ([1, 4], [(9, 8, 0.5), (10, 8.5, 1.25)], (2, 3), 4, "zipf 1\nheads-2"),
    ]
    for over, under, (times, values, ranks, expected, title) in zip(
        above, below, wanted, strict=True
    ):
        check_lines(
            over, *((times, course) for course in reversed(list(zip(*values, strict=True))))
        )
        check_lines(under, (times, ranks), along(expected))
        assert over.get_title() == title
        assert (over.get_xscale(), over.get_yscale()) == ("log", "log")
    assert [legend(axes)[1] for axes in below] == [
        "heads of lists: 1",
        "L − 1: 3",
        "heads of lists: 4",
    ]
    assert below[0].get_ylabel() == "number above 0.125 $\\sigma_1$"
    assert [len(axes.patches) for axes in below] == [0, 1, 1]  # shaded: early


def pruning(figure):
    (axes,) = panels(figure)
    check_lines(
        axes, ([10, 24, 16], [13, 56, 30]), ([10, 24, 16], [11, 23, 16]), ([8, 26], [8, 26])
    )
    assert legend(axes) == ["W as it is", "column medians removed", "as many as the lists have"]
    assert [line.get_marker() for line in axes.lines] == ["s", "o", "None"]


DRAWN = {
    "bound": bound,
    "ratios": ratios,
    "late": late,
    "lost": lost,
    "repeats": repeats,
    "crossover": crossover,
    "lemmas": lemmas,
    "feasible": feasible,
    "descents": descents,
    "outcomes": outcomes,
    "weights": weights,
    "attention": attention,
    "alignment": alignment,
    "spectra": spectra,
    "apart": apart,
    "lengths": lengths,
    "pruning": pruning,
}
