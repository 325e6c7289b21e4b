"""The exact population loss is the literal one, its gradients are autograd's, its closed form is
the enumeration's.
"""

import math

import pytest
import torch

from lib.decision_lists.attention import (
    FEW,
    PopulationLoss,
    Rows,
    attention_rows,
    errors,
    loss_gradients,
    row_losses,
    sequence_outputs,
)
from lib.decision_lists.lists import (
    classes_of,
    determining_tokens,
    dirichlet_law,
    random_lists,
    random_permutation,
)


def make(n_tokens, seq_len, length, repeats):
    draw = torch.Generator().manual_seed(1 + n_tokens + 10 * seq_len)
    counts = classes_of(n_tokens, seq_len, repeats)
    lists = random_lists(n_tokens, length, draw)
    pi = torch.tensor(random_permutation(n_tokens, draw))
    law = dirichlet_law(len(counts), draw)
    star, place = determining_tokens(counts, lists)
    W, V = 2 * torch.randn(2, n_tokens, n_tokens, generator=draw, dtype=torch.float64)
    return counts, law, star, pi, Rows.of(counts, law, star, place), W, V


@pytest.mark.parametrize("case", [(5, 2, 3, False), (4, 3, 2, True)])
def test_the_population_loss_is_the_mean_over_sequences_and_positions(case):
    counts, law, star, pi, rows, W, V = make(*case)
    numbers = torch.arange(len(W))
    tokens = torch.stack([torch.repeat_interleave(numbers, of.long()) for of in counts])
    labels = pi[star.gather(1, tokens)]
    log_f = sequence_outputs(tokens, W, V).gather(1, labels[:, None])[:, 0]
    wanted = -float(law @ log_f.mean(1))
    assert float(loss_gradients(W, V, rows, pi)[0]) == pytest.approx(wanted, abs=1e-12)


def test_a_small_loss_and_gradient_keep_their_digits():
    """1 - p of a row that is right by far is not rounding: the gradient falls with the loss."""
    z = torch.tensor([[0.0, 50.0, 1.0]], dtype=torch.float64)
    loss, gradient = errors(z, torch.tensor([1]))
    others = z.new_tensor([1, math.e]) * math.exp(-50)
    torch.testing.assert_close(loss[0], others.sum())
    torch.testing.assert_close(gradient[0], torch.stack([others[0], -others.sum(), others[1]]))


def test_the_flat_hessian_is_that_of_autograd_and_so_is_its_part_in_attention():
    *_, pi, rows, W, V = make(4, 3, 2, False)
    loss, n = PopulationLoss(rows, pi), W.numel()

    def of_flat(x):
        return rows.weight @ row_losses(x[:n].view_as(W), x[n:].view_as(V), rows, pi)

    flat = torch.cat([W.flatten(), V.flatten()])
    H = torch.autograd.functional.hessian(of_flat, flat)
    apply, gradient = loss.hessian({"W": W, "V": V})
    torch.testing.assert_close(
        torch.stack([apply(e) for e in torch.eye(2 * n, dtype=torch.float64)]), H
    )
    torch.testing.assert_close(gradient, torch.autograd.functional.jacobian(of_flat, flat))
    in_W = float(torch.linalg.eigvalsh(H[:n, :n])[-1])
    assert loss.attention_curvature({"W": W, "V": V}) == pytest.approx(in_W)


@pytest.mark.parametrize("trained", [("W",), ("V",), ("W", "V")])
def test_what_autograd_gets_in_closed_form_is_what_it_finds_itself(trained):
    *_, pi, rows, W, V = make(4, 3, 2, False)
    weights = {"W": W, "V": V}
    for name in trained:
        weights[name].requires_grad_()
    chosen = [weights[name] for name in trained]
    loss = PopulationLoss(rows, pi).value(weights)
    wanted = rows.weight @ row_losses(W, V, rows, pi)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(
        torch.autograd.grad(loss, chosen), torch.autograd.grad(wanted, chosen)
    )


@pytest.mark.parametrize("spread", [1.0, 1e4])
def test_attention_is_the_softmax_however_wide_a_column_is(spread):
    *_, rows, W, _ = make(8, 4, 2, False)
    assert rows.counts.numel() >= FEW
    wanted = torch.softmax(rows.log_counts + spread * W.T[rows.query], -1)
    torch.testing.assert_close(attention_rows(spread * W, rows), wanted)


def test_what_is_kept_of_other_weights_does_not_come_back():
    *_, pi, rows, W, V = make(4, 3, 2, False)
    loss = PopulationLoss(rows, pi)
    for weights in ({"W": W, "V": V}, {"W": V, "V": V}, {"W": V, "V": W}):
        anew = PopulationLoss(rows, pi)
        torch.testing.assert_close(loss(weights), anew(weights))
        torch.testing.assert_close(loss.margins(weights), anew.margins(weights))
        of_V = loss.gradient_in("V", weights)[1]["V"]
        torch.testing.assert_close(of_V, anew(weights)[1]["V"])
