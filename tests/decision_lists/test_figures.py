"""What figures of the decision lists show of tables made by hand; no task's id is in any."""

import numpy as np

from lib.decision_lists.figures.attention import longest_sequences, values_under_uniform_attention
from lib.decision_lists.figures.descents import descents_on_both, outcomes
from lib.decision_lists.figures.lines import law_words, numbered
from tests.stages.made import legend, table, ticks


def test_laws_have_words_and_equal_names_a_number():
    laws = ["zipf 2", "log-normal 1", "frequent heads 30", "dirichlet", "uniform", "own 1 2"]
    assert [law_words(law) for law in laws] == [
        "Zipf, exponent 2",
        "log-normal, σ = 1",
        "heads 30 × as frequent",
        "Dirichlet",
        "uniform",
        "own 1 2",
    ]
    assert numbered(["a", "b", "a"]) == ["a (1)", "b", "a (2)"]


def test_steps_stand_beside_those_of_the_theorem_and_the_longest_descent_is_thick():
    both = table("""
task noise       law       seq_len length n_steps earliest margin
t-0  none        'zipf 2'  29      2      10      1e6      0.5
t-0  uniform     'zipf 2'  29      2      40      1e6      -0.5
t-1  adversarial dirichlet 29      2      20      1e8      0.5
""")
    courses = table("""
task noise       step loss step_times_curvature
t-0  none        0    2    0.5
t-1  adversarial 0    2    0.5
""")
    figure = descents_on_both(both, courses)
    steps, loss, _ = figure.axes
    assert ticks(steps.yaxis) == [
        "Dirichlet,\nn = 29, m = 2",
        "Zipf, exponent 2,\nn = 29, m = 2",
    ]
    drawn = [line for line in steps.lines if line.get_marker() == "o" and len(line.get_xdata())]
    assert [line.get_xdata().tolist() for line in drawn] == [[10], [40], [20]]
    assert [line.get_markerfacecolor() == "none" for line in drawn] == [False, True, False]
    theory = [line.get_xdata().tolist() for line in steps.lines if line.get_marker() == "|"]
    assert theory == [[1e6], [1e6], [1e8], []]
    assert [line.get_linewidth() for line in loss.lines if line.get_alpha()] == [2, 0.8]


def test_the_share_that_is_certified_rises_with_each_training():
    joint = table("""
n_tokens step first_certified_all
8        100  20
8        100  40
8        100  -
10       100  60
""")
    [axes] = outcomes(joint).axes
    assert legend(axes) == ["L = 8 tokens: 2 of 3", "L = 10 tokens: 1 of 1"]
    first = axes.lines[0]
    np.testing.assert_allclose(first.get_xdata(), [0, 20, 40, 100])
    np.testing.assert_allclose(first.get_ydata(), [0, 1 / 3, 2 / 3, 2 / 3])


def test_sequences_with_repeats_have_a_row_of_their_own():
    alignment = table("""
task step cosine argmax_right along_P least_rate length repeats
t-0  1    0.5    0.25         0.2     0.125      2      False
t-0  2    0.6    0.5          0.1     0.125      2      False
t-1  1    0.7    1            0.3     0.25       3      True
t-1  2    0.8    1            0.2     0.25       3      True
""")
    figure = values_under_uniform_attention(alignment)
    assert [axes.get_ylabel() for axes in figure.axes[::3]] == [
        "no token is repeated",
        "sequences with repeats",
    ]
    assert figure.axes[5].lines[0].get_ydata().tolist() == [1, 1]
    assert figure.axes[3].lines[1].get_ydata() == [0.25, 0.25]
    assert legend(figure) == ["lists of length 2", "lists of length 3"]


def test_lengths_are_named_by_their_laws():
    lengths = table("""
time longest task law       seq_len
1    2       t-0  dirichlet 4
1    3       t-1  dirichlet 4
""")
    [axes] = longest_sequences(lengths).axes
    assert legend(axes) == ["Dirichlet (1)", "Dirichlet (2)", "trained at n = 4"]
