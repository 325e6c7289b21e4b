"""Shares of an update of nothing."""

import math

import numpy as np
import torch

from lib.low_rank_sparse.energy import around
from lib.low_rank_sparse.subspaces import energy_inside


def test_an_update_of_nothing_has_all_its_energy_and_neither_gap_nor_tail():
    found = around(np.zeros(4), 2)
    assert (found["energy"], found["nuclear_tail"]) == (1, 0)
    assert {key for key, value in found.items() if math.isnan(value)} == {"gap", "gap_2", "tail"}


def test_the_energy_of_nothing_is_inside_every_span():
    assert energy_inside(torch.zeros(10, 6), torch.ones(2, 10)) == 1
