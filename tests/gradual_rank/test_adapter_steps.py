"""Steps that an adapter's small update takes are those of the recursions, run step by step."""

import numpy as np
import pytest
import torch

from lib.gradual_rank.adapter_start import small_update_time
from lib.gradual_rank.adapter_steps import adam_steps, descended, descent_steps

S = 2.0
RATIO = 9.0  # κ = S √RATIO = 6
RATE = 0.05


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def pull(seed):
    """A gradient and its triplets."""
    G = drawn(seed, 7, 5) / 4
    U, sigma, Vh = np.linalg.svd(G, full_matrices=False)
    return G, U, sigma, Vh.T


def descent(G, A, B, n):
    """The factors after n steps with a gradient that stays."""
    for _ in range(n):
        A, B = A + RATE * S * B.T @ G, B + RATIO * RATE * S * G @ A.T
    return A, B


@pytest.mark.parametrize("b_scale", [0.0, 0.02])
def test_descent_adds_what_its_two_factors_say_step_by_step(b_scale):
    G, U, sigma, V = pull(0)
    A = 0.03 * drawn(1, 3, 5)
    B = b_scale * drawn(2, 7, 3)
    a = A @ V
    b = B.T @ U / np.sqrt(RATIO)
    plus = ((a + b) ** 2).sum(0)
    minus = ((a - b) ** 2).sum(0)
    kappa = S * np.sqrt(RATIO)
    x = RATE * kappa * sigma
    for n in (1, 4, 9):
        A_n, B_n = descent(G, A, B, n)
        added = S * (U * ((B_n @ A_n - B @ A) @ V)).sum(0)
        assert descended(n, x, kappa, plus, minus) == pytest.approx(added, rel=1e-10)


def test_the_number_of_steps_is_that_after_which_so_much_was_added():
    x = np.array([0.3, 0.02, 0.1])
    plus = np.array([1.0, 3.0, 1e-6])
    minus = np.array([1, 2, 1e-6])
    n = descent_steps(0.4, x, 6.0, plus, minus)
    assert descended(n, x, 6.0, plus, minus) == pytest.approx([0.4] * 3, rel=1e-10)
    with pytest.raises(ValueError, match=r"wanted steps of a share in \(0, 1\), got 0.5 to 1.5"):
        descent_steps(0.4, np.array([0.5, 1.5]), 6.0, plus[:2], minus[:2])


def test_small_steps_take_the_time_of_the_flow():
    sigma = np.array([0.8, 0.3])
    squares = np.array([1e-3, 2.0])
    kappa = 6.0
    rate = 1e-6
    n = descent_steps(0.1, rate * kappa * sigma, kappa, squares, squares)
    assert n * rate == pytest.approx(small_update_time(0.1, sigma, squares, kappa), rel=1e-4)


@pytest.mark.parametrize(("scale", "within"), [(1.0, 0.02), (1e-3, 0.3)])
def test_adam_takes_the_steps_that_the_signs_say_while_the_gradient_stays(scale, within):
    """From a large A the first term decides, and from a small one the second: its signs change."""
    G, U, _, V = pull(3)
    drawn_A = scale * drawn(4, 3, 5)
    rate = 1e-4
    p = 2e-3
    wanted = adam_steps(p, G, drawn_A, U, V, scaling=S, rate=rate)
    A, B = (torch.tensor(one, requires_grad=True) for one in (drawn_A, np.zeros((7, 3))))
    optimiser = torch.optim.Adam([A, B], lr=rate, eps=1e-30)
    course = []
    for _ in range(400):
        optimiser.zero_grad()
        (-S * (torch.from_numpy(G) * (B @ A)).sum()).backward()
        optimiser.step()
        course.append(S * (U * ((B @ A).detach().numpy() @ V)).sum(0))
    first = int(np.argmax(np.array(course)[:, 0] >= p)) + 1
    assert first == pytest.approx(wanted[0], rel=within, abs=1)


def test_adam_never_comes_to_a_direction_against_the_gradient():
    G, U, _, V = pull(5)
    one = {"scaling": S, "rate": 1e-4}
    A = drawn(6, 3, 5)
    assert np.isfinite(adam_steps(1e-3, G, A, U[:, :1], V[:, :1], **one)).all()
    assert np.isinf(adam_steps(1e-3, G, A, -U[:, :1], V[:, :1], **one)).all()
