"""The exact population loss is the literal one, its gradients are autograd's, its closed form is
the enumeration's.
"""

import pytest
import torch

from lib.decision_lists.attention import (
    PopulationLoss,
    Rows,
    attention_margins,
    loss_gradients,
    row_losses,
    sequence_outputs,
)
from lib.decision_lists.flow import (
    choice_gradient,
)
from lib.decision_lists.lists import (
    cyclic_lists,
    determining_tokens,
    dirichlet_law,
    label_matrix,
    multisets,
    random_lists,
    random_permutation,
    subsets,
)

CASES = [(4, 3, 2, False), (5, 2, 3, False), (6, 4, 4, False), (4, 3, 2, True), (3, 4, 3, True)]


def make(n_tokens, seq_len, length, repeats):
    draw = torch.Generator().manual_seed(1 + n_tokens + 10 * seq_len)
    counts = (multisets if repeats else subsets)(n_tokens, seq_len)
    lists, pi = (
        random_lists(n_tokens, length, draw),
        torch.tensor(random_permutation(n_tokens, draw)),
    )
    law = dirichlet_law(len(counts), draw)
    star, place = determining_tokens(counts, lists)
    W, V = (
        2 * torch.randn(n_tokens, n_tokens, generator=draw, dtype=torch.float64) for _ in range(2)
    )
    return counts, law, star, pi, Rows.of(counts, law, star, place), W, V


def sequences_of(counts):
    return torch.stack(
        [torch.repeat_interleave(torch.arange(counts.shape[1]), c.long()) for c in counts]
    )


@pytest.mark.parametrize("case", CASES)
def test_the_population_loss_is_the_mean_over_sequences_and_positions(case):
    counts, law, star, pi, rows, W, V = make(*case)
    tokens = sequences_of(counts)
    labels = pi[star.gather(1, tokens)]
    log_f = sequence_outputs(tokens, W, V).gather(1, labels[:, None])[:, 0]
    wanted = -float(law @ log_f.mean(1))
    assert float(loss_gradients(W, V, rows, pi)[0]) == pytest.approx(wanted, abs=1e-12)
    assert float(rows.weight @ row_losses(W, V, rows, pi)) == pytest.approx(wanted, abs=1e-12)
    assert float(rows.weight.sum()) == pytest.approx(1, abs=1e-14)


def test_a_small_loss_and_gradient_keep_their_digits():
    """1 - p of a row that is right by far is not rounding: the gradient falls with the loss."""
    counts = subsets(4, 2)
    star, place = determining_tokens(counts, cyclic_lists(4, 2))
    rows = Rows.of(counts, torch.full((6,), 1 / 6, dtype=torch.float64), star, place)
    pi, W = torch.arange(4), torch.zeros(4, 4, dtype=torch.float64)
    for a, entries in enumerate(cyclic_lists(4, 2)):
        W[list(entries), a] = torch.tensor([8.0, 4.0], dtype=torch.float64)
    for scale in (60.0, 120.0):
        loss, gradient, _ = loss_gradients(W, scale * torch.eye(4, dtype=torch.float64), rows, pi)
        assert 0 < float(loss) < 1e-15
        assert 0 < float(gradient.abs().max()) < scale * float(loss)


def test_a_tie_is_no_success():
    counts = subsets(4, 2)
    rows = Rows.of(
        counts, torch.full((6,), 1 / 6).double(), *determining_tokens(counts, cyclic_lists(4, 2))
    )
    assert (attention_margins(torch.zeros(4, 4, dtype=torch.float64), rows) == 0).all()


def test_the_limit_of_large_values_is_the_choice_model():
    """-grad at W = u/c over c tends to the choice model's, with an error that falls as 1/c."""
    *_, pi, rows, u, _ = make(6, 3, 3, False)
    limit, errors = choice_gradient(u, rows), []
    for scale in (1e3, 1e4, 1e5):
        gradient = loss_gradients(u / scale, scale * label_matrix(pi.tolist()), rows, pi)[1] / scale
        errors.append(float((gradient - limit).abs().max()))
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.05)


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
