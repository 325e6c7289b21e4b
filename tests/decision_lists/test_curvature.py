"""Lanczos finds what a dense decomposition finds."""

import pytest
import torch

from lib.decision_lists.descent import largest_curvature, largest_eigenpair


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


def test_the_largest_curvature_is_found_from_a_gradient_that_misses_it():
    A = torch.diag(torch.tensor([5.0, 2.0, 1.0], dtype=torch.float64))
    gradient = torch.tensor([0.0, 30.0, 40.0], dtype=torch.float64)
    draw = torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64)
    other = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)  # an eigenvector
    for near in (None, other):
        found = largest_curvature(lambda x: A @ x, gradient, draw, 3, near=near)[0]
        assert found == pytest.approx(5)
    start = torch.tensor([2 / 3, 0.6 + 1 / 3, 0.8 + 2 / 3], dtype=torch.float64)  # as much of both
    one_step = float(start @ A @ start / (start @ start))
    assert largest_curvature(lambda x: A @ x, gradient, draw, 1)[0] == pytest.approx(one_step)
