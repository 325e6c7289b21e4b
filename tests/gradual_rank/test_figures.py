"""What figures of the family show of a table made by hand: lines, marks and names of the cases."""

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.figures.disturbances import assumption_checks
from lib.gradual_rank.figures.greedy_limit import label, supports_by_scale
from lib.gradual_rank.figures.optimizers import properties
from lib.gradual_rank.figures.staircase import entries_by_scale, loss_frames, losses_by_scale
from tests.stages.made import table

PROBLEMS = table("""
name  d_model n_layers n_heads frames   studied
small 8       -        -       -        True
whole 50      -        -       -        False
tied  3       1        2       common   False
mine  4       2        1       standard False
""")
SCALES = (-1.0, -2.0, -8.0, -32.0)


def trajectory(scales):
    """Two products, of which the second moves from every scale."""
    rows = [
        {"log10_init_scale": scale, "rescaled_time": time, "loss": 1 - time / 3, "p": [time, time]}
        for scale in scales
        for time in (0.0, 1.0, 2.0)
    ]
    return pd.DataFrame(rows).assign(problem="small", seed=0)


STAGES = pd.DataFrame(
    {
        "time": [0.0, 1.0],
        "next_time": [1.0, np.inf],
        "loss": [1.0, 0.5],
        "coordinate": [-1, 1],
        "p": [[0.0, 0.0], [0.0, 1.0]],
    }
)
ERRORS = pd.DataFrame({"log10_init_scale": [-8.0], "plateau_product_error": [0.25]})


def case(scales=SCALES, name="a head"):
    return (name, trajectory(scales), STAGES, ERRORS)


def test_a_problem_has_words_where_it_is_ours_and_its_name_where_it_is_not():
    said = [label(name, PROBLEMS) for name in PROBLEMS["name"]]
    assert said[0] == "small head: d = 8"
    assert said[1] == "paper's head, to its end: d = 50"
    assert said[2] == "Transformer, one frame: d = 3, 1 layer of 2 heads"
    assert said[3] == "Transformer, standard basis: d = 4, 2 layers of 1 head"
    user = PROBLEMS.assign(name=["my_head", *PROBLEMS["name"][1:]])
    assert label("my_head", user) == "my_head: d = 8"


def test_the_losses_of_all_scales_stand_in_one_panel_of_each_problem():
    figure = losses_by_scale([case(), case(SCALES[:2], "another")])
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["a head", "another"]
    scales = [line.get_label() for line in first.lines]
    assert scales == ["$10^{-1}$", "$10^{-2}$", "$10^{-8}$", "$10^{-32}$", "Algorithm 1"]
    assert [line.get_linestyle() for line in second.lines] == ["-", "-", "--"]
    np.testing.assert_allclose(first.lines[0].get_ydata(), [1, 2 / 3, 1 / 3])


def test_each_scale_has_a_frame_with_the_same_theory():
    figure = loss_frames(case())
    assert len(figure.axes) == len(SCALES)
    theory = [list(axes.lines[1].get_ydata()) for axes in figure.axes]
    assert theory == [theory[0]] * len(SCALES)
    assert [axes.get_gid() for axes in figure.axes][:2] == ["view: 1e-1", "view: 1e-2"]


def test_the_largest_a_middle_and_the_least_scale_are_shown_without_holes():
    figure = entries_by_scale([case(), case(SCALES[:3])], "W_VO")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "init scale $10^{-1}$",
        "init scale $10^{-8}$; products off by 0.2",
        "init scale $10^{-32}$",
        "init scale $10^{-1}$",
        "init scale $10^{-2}$",
        "init scale $10^{-8}$; products off by 0.2",
    ]
    assert all(axes.axison for axes in figure.axes)


def test_two_medians_of_the_studied_problem_are_written_beside_their_points():
    errors = table("""
problem seed log10_init_scale same
small   0    -1               0.0
small   1    -1               0.1
small   0    -2               0.2
small   1    -2               0.4
small   0    -64              0.9
small   1    -64              1.0
whole   0    -2               0.5
""")
    stages = table("""
problem seed stage n_active n_dropped
small   0    1     1        0
small   0    2     1        1
""")
    departed = table("problem seed pull\nsmall 0 0.5")
    figure = supports_by_scale(errors, stages, departed, PROBLEMS)
    share, stages_of, pull = figure.axes
    assert [(text.get_text(), text.xy) for text in share.texts] == [
        ("30%", (2.0, pytest.approx(0.3))),
        ("95%", (64.0, pytest.approx(0.95))),
    ]
    assert share.get_gid() == "view: number"
    assert [tick.get_text() for tick in pull.get_xticklabels()] == ["small head"]
    assert stages_of.lines[0].get_xydata().tolist() == [[0, 0], [2, 0]]
    assert stages_of.collections[0].get_offsets().tolist() == [[2, 0]]


def test_the_median_move_of_the_first_rise_is_written_in_per_cent():
    rows = [
        (optimizer, 12, scale, seed, rise, 0.5, 0.5, 1.0, 2.0, 1.0, 2.0)
        for optimizer, rises in (("gd", (1.0, 2.31)), ("muon", (1.0, 0.999)))
        for scale, rise in zip((-4, -8), rises, strict=True)
        for seed in (0, 1)
    ]
    columns = "optimizer teacher_rank log10_init_scale seed first_rise order separate slope_least"
    columns += " slope_most stable_rank_half stable_rank_end"
    figure = properties(pd.DataFrame(rows, columns=columns.split()))
    delay = figure.axes[0]
    assert [text.get_text() for text in delay.texts] == ["130 %", "0.1 %"]
    points = [list(line.get_xdata()) for line in delay.lines]
    assert points == [pytest.approx([131, 131]), pytest.approx([0.1, 0.1])]
    assert [tick.get_text() for tick in delay.get_yticklabels()] == [
        "gradient descent",
        "Muon, polar factor",
    ]


def test_a_tie_is_counted_and_drawn_apart_from_the_gaps():
    stages = table("""
problem seed stage next_time gap strictness_products strictness_weights
small   0    0     2         1   0.1                 0.2
small   0    1     4         1   0.3                 0.4
tied    0    0     2         0   0.1                 0.2
tied    0    1     2         1   0.1                 0.2
""")
    returns = table("seed kind noise ratio_products ratio_weights\n0 random balanced 0.1 0.2")
    ends = table("kind noise distance\nrise balanced 0.1")
    kicks = table("noise error\nnone 0.1")
    figure = assumption_checks(stages, returns, kicks, ends, PROBLEMS, 0.01, 0.05)
    gaps, strict, *_ = figure.axes
    assert [tick.get_text() for tick in gaps.get_yticklabels()] == [
        "small head,\nd = 8",
        "Transformer, one frame,\nd = 3, 1 layer of 2 heads",
    ]
    assert [text.get_text() for text in gaps.texts] == ["1 of 2"]
    medians = [list(line.get_xdata()) for line in strict.lines if line.get_marker() == "o"][:2]
    assert medians == [[0.3], [0.4]]
    assert "stages with no gap: a tie" in gaps.get_legend_handles_labels()[1]
