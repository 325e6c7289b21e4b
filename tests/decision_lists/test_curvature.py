"""Lanczos finds what a dense decomposition finds."""

import pytest
import torch

from lib.decision_lists.attention import PopulationLoss
from lib.decision_lists.descent import WarmCurvature, largest_eigenpair


def test_the_largest_eigenvalue_of_a_symmetric_matrix():
    draw = torch.Generator().manual_seed(40)
    A = torch.randn(40, 40, generator=draw, dtype=torch.float64)
    A = A + A.T
    start = torch.randn(40, generator=draw, dtype=torch.float64)
    wanted = float(torch.linalg.eigvalsh(A)[-1])
    assert largest_eigenpair(lambda x: A @ x, start, 40)[0] == pytest.approx(wanted, rel=2e-6)


def test_an_invariant_space_ends_it():
    A = torch.diag(torch.tensor([2.0, 1.0, 1.0], dtype=torch.float64))
    start = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    assert largest_eigenpair(lambda x: A @ x, start, 3)[0] == pytest.approx(2)
    assert largest_eigenpair(lambda x: 0 * x, start, 3)[0] == 0


class Bowl(PopulationLoss):
    """Curvature A, and a gradient, in the two entries of W and V of a single token."""

    A = torch.diag(torch.tensor([5.0, 2.0], dtype=torch.float64))
    gradient = torch.tensor([0.0, 30.0], dtype=torch.float64)

    def __init__(self):
        self.permutation = torch.tensor([0])

    def hessian(self, weights):
        return lambda x: self.A @ x, self.gradient


def test_the_largest_curvature_is_found_from_a_gradient_that_misses_it():
    curvature = WarmCurvature(Bowl(), 2)
    other = torch.tensor([0.0, 1.0], dtype=torch.float64)  # an eigenvector
    for near in (None, other):
        curvature.near = near
        assert curvature({}, 0.0) == pytest.approx(5)
    torch.testing.assert_close(curvature.near.abs(), other.flip(0))  # where the next search starts


@pytest.mark.parametrize("near", [None, torch.tensor([0.6, 0.8], dtype=torch.float64)])
def test_a_search_starts_from_as_much_of_the_gradient_a_draw_and_what_was_found_nearby(near):
    curvature = WarmCurvature(Bowl(), 1)
    curvature.near = near
    draw = curvature.draw / curvature.draw.norm()
    start = draw + torch.tensor([0.0, 1.0]) + (0 if near is None else near)
    one_step = float(start @ Bowl.A @ start / (start @ start))
    assert curvature({}, 0.0) == pytest.approx(one_step)
