"""A head's second task: its base, its teacher's change, and a loss that is that of the head."""

import numpy as np
import pytest
import torch

from lib.gradual_rank.full_heads import FullHead, gaussian_factors, output, products_of_ranks
from lib.gradual_rank.heads_to_tune import HeadTask, changes, head_to_tune

TASK = HeadTask(
    n_samples=20,
    seq_len=4,
    d_model=5,
    init_scale=0.5,
    learning_rate=0.4,
    n_steps=400,
    changes=(1.0, 0.5),
    deviations=(0.5, 1.5),
)
SEED = 3


@pytest.fixture(scope="module")
def head():
    return head_to_tune(SEED, TASK)


def test_the_gradient_by_an_update_is_that_of_the_head_transposed(head):
    base = head.base["W_KQ"], head.base["W_VO"]
    loss, g_KQ, g_VO = FullHead(head.X, head.Y).loss_and_gradients(*base)
    updates = {name: torch.zeros_like(W, requires_grad=True) for name, W in head.base.items()}
    value = head.loss(updates)
    slopes = torch.autograd.grad(value, list(updates.values()))
    assert value.item() == pytest.approx(float(loss))
    for slope, wanted in zip(slopes, (g_KQ, g_VO), strict=True):
        torch.testing.assert_close(-slope.T, wanted)


def test_the_base_has_learned_its_first_task_and_not_the_second(head):
    assert 0 < head.left < 0.1
    zeros = {name: torch.zeros_like(W) for name, W in head.base.items()}
    assert head.loss(zeros).item() > head.left * head.Y.square().mean().item()


def test_the_teacher_is_the_first_with_its_changes(head):
    """A head that is told both teachers' products has no loss left."""
    added = changes(SEED, 5, TASK.changes)
    for W in added:
        sigma = np.linalg.svd(W.numpy(), compute_uv=False)
        assert sigma == pytest.approx([1.0, 0.5, 0, 0, 0], abs=1e-12)
    first = products_of_ranks(gaussian_factors(5, [SEED], "full teacher"), [5])[0][:, 0]
    torch.testing.assert_close(head.Y, output(head.X, *(first + added)))


def test_tokens_have_other_deviations_than_in_the_first_task(head):
    assert head.X.flatten(0, 1).std(0).numpy() == pytest.approx(np.linspace(0.5, 1.5, 5), rel=0.35)
