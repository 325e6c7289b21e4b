"""A certificate says of all sequences what enumerating them says."""

import numpy as np
import pytest
import torch

from lib.decision_lists.certificates import list_order_margin, logit_margin
from lib.decision_lists.lists import random_lists, random_permutation
from tests.decision_lists.decision_lists_made import Brute, ordered, task


@pytest.mark.parametrize("repeats", [False, True])
def test_both_certificates_equal_enumeration_on_random_cases(repeats):
    draw = torch.Generator().manual_seed(int(repeats))
    outcomes = []
    for L, n, m in [(3, 2, 2), (4, 2, 3), (5, 3, 2), (5, 4, 3), (4, 3, 4)]:
        for _ in range(30):
            lists, pi = random_lists(L, m, draw), random_permutation(L, draw)
            brute = Brute(task("any", n, lists, pi, [1], repeats))
            size, noise = torch.rand(2, generator=draw).tolist()
            G = noise * torch.randn(2, L, L, generator=draw, dtype=torch.float64)
            W, V = 4 * size * ordered(lists) + G[0], brute.P + 0.4 * G[1]
            margins = brute.margins(W), brute.logit_margins(W, V)
            right = [bool((rows > 0).all()) for rows in margins]
            found = list_order_margin(W, lists, n, repeats)
            assert [found > 0, logit_margin(W, V, lists, pi, n, repeats) > 0] == right
            outcomes.append(right)
    for share in np.mean(outcomes, 0):
        assert 0.2 < share < 0.8, "one outcome is so rare that agreement says little"
