"""The loss at V = cP in numpy is that of attention.py, where sequences repeat tokens and not."""

import numpy as np
import pytest
import torch

from lib.decision_lists.attention import (
    PopulationLoss,
    attention_margins,
    attention_rows,
    attention_to_star,
    row_losses,
)
from lib.decision_lists.fixed_values import FixedValues
from lib.decision_lists.lists import Task


def cases():
    draw = torch.Generator().manual_seed(3)
    for repeats in (False, True):
        for log_scale in (-1, 1, 5):
            for size in (1e-3, 1.0, 300.0):
                yield Task.drawn(6, draw, repeats), 10.0**log_scale, size


@pytest.mark.parametrize(("task", "scale", "size"), list(cases()))
def test_attention_losses_margins_and_gradient_are_those_of_the_whole_loss(task, scale, size):
    draw = torch.Generator().manual_seed(task.n_tokens)
    W = size * torch.randn(task.n_tokens, task.n_tokens, generator=draw, dtype=torch.float64)
    loss = PopulationLoss.of(task)
    V = scale * task.label_matrix
    fixed = FixedValues(loss.rows)
    w = W.flatten().numpy()
    alpha = attention_rows(W, loss.rows)
    assert fixed.attention(w).max() == pytest.approx(float(alpha.max()), rel=1e-12)
    found = {
        "losses": (fixed.losses(w, scale), row_losses(W, V, loss.rows, loss.permutation)),
        "margins": (fixed.margins(w), attention_margins(W, loss.rows)),
        "to star": (fixed.attention_to_star(w), attention_to_star(W, loss.rows)),
    }
    for name, (got, wanted) in found.items():
        np.testing.assert_allclose(got, wanted, rtol=1e-11, atol=1e-300, err_msg=name)
    _, gradients = loss.gradient_in("W", {"W": W, "V": V})
    wanted = -gradients["W"].flatten().numpy() / scale
    # Where attention is on one token alone, what is left of its difference is rounding.
    rounding = 1e-15 if size > 100 else 1e-12 * abs(wanted).max()
    np.testing.assert_allclose(fixed.ascent(w, scale), wanted, rtol=1e-9, atol=rounding)


def test_where_all_is_nearly_right_an_error_keeps_its_digits():
    """1 − p of the right label is far below the last digit of p."""
    lists = ((1, 0), (1,), (2,))
    task = Task("", "", 3, 2, False, lists, (1, 2, 0), (0.5, 0.25, 0.25))
    loss = PopulationLoss.of(task)
    W = 20 * (task.label_matrix * 0 + torch.tensor([[1.0, 0, 0], [2, 3, 0], [0, 0, 4]]).double())
    fixed = FixedValues(loss.rows)
    losses = fixed.losses(W.flatten().numpy(), 60.0)
    assert 0 < losses.max() < 1e-16
    wanted = row_losses(W, 60 * task.label_matrix, loss.rows, loss.permutation)
    np.testing.assert_allclose(losses, wanted, rtol=1e-12)
    _, gradients = loss.gradient_in("W", {"W": W, "V": 60 * task.label_matrix})
    slopes = -gradients["W"].flatten().numpy() / 60
    np.testing.assert_allclose(fixed.ascent(W.flatten().numpy(), 60.0), slopes, rtol=1e-5)
