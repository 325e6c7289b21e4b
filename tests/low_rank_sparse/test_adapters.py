"""An adapter starts at nothing, and its gradient is the chain rule's."""

import torch

from lib.low_rank_sparse.adapters import adapter_gradient, initial_adapter


def test_an_adapter_begins_with_a_zero_update_and_a_of_unit_covariance():
    A, B = initial_adapter(50, 7, 2000, torch.Generator().manual_seed(0))
    assert (B @ A == 0).all()
    assert B.shape == (7, 2000)
    torch.testing.assert_close(A.T @ A, torch.eye(50), atol=0.12, rtol=0)


def test_the_gradient_is_that_of_autograd():
    g = torch.Generator().manual_seed(0)
    A, B, W_0, T = (
        torch.randn(s, generator=g, dtype=torch.float64) for s in ((2, 5), (4, 2), (4, 5), (4, 5))
    )
    A.requires_grad_()
    B.requires_grad_()
    W = W_0 + B @ A
    loss = (torch.tanh(W) * T).sum()
    [slope] = torch.autograd.grad(loss, W, retain_graph=True)
    wanted = torch.autograd.grad(loss, [A, B])
    for found, right in zip(adapter_gradient(A.detach(), B.detach(), slope), wanted, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-13, atol=1e-14)
