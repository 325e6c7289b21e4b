"""The shares of energy of an update that is zero."""

import math

import numpy as np

from lib.low_rank_sparse.energy import around, nuclear_tail


def test_an_update_of_nothing_has_all_its_energy_and_neither_gaps_nor_a_tail():
    found = around(np.zeros(4), 2)
    assert (found["energy"], nuclear_tail(np.zeros(4), 2)) == (1, 0)
    assert {key for key, value in found.items() if math.isnan(value)} == {"gap", "gap_2"}
