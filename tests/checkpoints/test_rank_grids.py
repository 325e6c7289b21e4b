"""Where each module of a plan stands in the grid of ranks."""

import numpy as np
import pandas as pd
import pytest

from lib.checkpoints.figures.rank_grids import middle_budget, rank_grid

MODULES = pd.DataFrame({"module": ["h.0.q", "h.0.up", "h.2.q", "head"]})


def plans(rules):
    """A plan of each rule at each of two budgets, and a shuffle of it."""
    rows = [(rule, shuffle, budget) for rule in rules for shuffle in (0, 1) for budget in (2, 8)]
    table = pd.DataFrame(rows, columns=["rule", "shuffle", "budget"])
    first = {"uniform": 10, "attributed": 50}
    table["ranks"] = [
        [first[rule] + 100 * shuffle + budget + i for i in range(4)]
        for rule, shuffle, budget in rows
    ]
    return table


@pytest.mark.parametrize(
    ("rules", "rule", "least"),
    [(["uniform"], "uniform", 18), (["uniform", "attributed"], "attributed", 58)],
)
def test_the_grid_has_the_attributed_ranks_or_else_the_uniform_ones(rules, rule, least):
    table = plans(rules)
    assert middle_budget(table) == 8
    found = rank_grid(table, MODULES, 8)
    assert (found.rule, found.budget) == (rule, 8)
    assert (found.kinds, found.layers) == (["q", "up", "head"], [0, 1, 3])
    none = np.nan
    above = [[none, 0, 2], [none, 1, none], [3, none, none]]
    np.testing.assert_array_equal(found.ranks, np.add(above, least))
    assert np.nanmax(found.shares) == 1
    assert found.shares[0, 1] == least / (least + 3)
