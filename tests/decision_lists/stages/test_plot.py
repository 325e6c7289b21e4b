"""The figures of the decision lists where the runs in git have nothing to show of it."""

from lib.decision_lists.figures.attention import spectra_in_time
from lib.decision_lists.figures.convergence import bound_ratios
from lib.decision_lists.tables.drawn import DRAWN
from stages.decision_lists.plot import drawings
from tests.stages.made import legend, table, whole

# d is right at once, f never; e and g are the other runs of a law.
THEOREM = """
task    law       n_tokens seq_len length bound at_once first_time scale largest_attention
'run a' zipf      6        2       3      8.0   False   0.02       10    1.5
'run b' uniform   7        4       2      3.0   False   0.5        100   1.25
'run c' zipf      8        3       2      5.0   False   0.001      30    1.125
'run d' zipf      9        3       2      1.0   True    1e-12      20    1.0
'run e' dirichlet 9        5       4      2.0   False   0.03       40    1.0625
'run f' dirichlet 9        5       4      2.0   False   -          50    1.5
'run g' dirichlet 9        5       4      2.0   False   0.2        60    1.5
"""
TABLES = {  # all of "weights", and a part of what "descents", "outcomes" and "lost" take
    "both": """
task noise law     seq_len length delta n_steps earliest margin
d-1  none  uniform 29      2      0.125 2       50       2.0
""",
    "joint": """
n_tokens step first_certified_all
8        40   20
""",
    "paths": """
task    time loss accuracy margin
'run b' 0.25 2.0  0.5      -0.5
""",
    "weights": """
query key row place W
0     0   1   1     3.0
""",
}


def test_the_figures_of_a_use_that_was_not_run_are_not_drawn(tmp_path):
    for name, text in TABLES.items():
        whole(table(text), DRAWN[name]).to_parquet(tmp_path / f"{name}.parquet")
    theorem = whole(table(THEOREM).assign(late_limit=5.0), DRAWN["theorem"])
    theorem.to_parquet(tmp_path / "theorem.parquet")
    assert set(drawings(tmp_path)) == {"bound", "diagram", "outcomes", "ratios", "weights"}


def test_a_run_that_is_never_right_is_told_and_counts_in_the_median():
    """The logarithms' median is that of six runs, one of which takes for ever."""
    figure = bound_ratios(table(THEOREM))
    assert legend(figure)[-2:] == ["measured median, 0.039", "not right by the bound: 1 runs"]


def test_the_first_task_of_each_number_of_heads_is_drawn():
    spectra = table("""
task law     time numerical_rank expected_rank early rtol singular_values
h-0  heads   1    1              1             True  0.1  2,0.5
h-0  heads   2    1              1             False 0.1  4,0.25
h-1  heads   1    2              2             True  0.1  2,1
h-1  heads   2    2              2             False 0.1  3,1
h-2  others  1    1              1             True  0.1  5,0.5
h-2  others  2    1              1             False 0.1  6,0.5
""")
    figure = spectra_in_time(spectra)
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles == ["heads", "heads"]
    said = [label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]]
    assert said == ["measured", "heads: 1", "measured", "heads: 2"]
