"""The exact population loss is the literal one, its gradients are autograd's, its closed form is
the enumeration's.
"""

import math

import numpy as np
import pytest
import torch

from lib.decision_lists.attention import (
    PopulationLoss,
    Rows,
    SequenceLoss,
    attention_curvature,
    attention_margins,
    attention_on_sequences,
    attention_rows,
    attention_to_star,
    hessian_product,
    logit_margins,
    loss_gradients,
    row_losses,
    sequence_outputs,
)
from lib.decision_lists.flow import (
    ExchangeableFlow,
    ScaledFlow,
    choice_gradient,
    exchangeable_loss_gradient,
)
from lib.decision_lists.lists import (
    Task,
    cyclic_lists,
    determining_tokens,
    dirichlet_law,
    label_matrix,
    multisets,
    product_law,
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


def literal(tokens, W, V):
    """f(X) of one sequence from the paper's formula, entry by entry."""
    n = len(tokens)
    out = torch.zeros(W.shape[0], n, dtype=torch.float64)
    for j, a in enumerate(tokens):
        weight = [torch.exp(W[b, a]) for b in tokens]
        z = sum(w / sum(weight) * V[:, b] for w, b in zip(weight, tokens, strict=True))
        out[:, j] = z - torch.log(torch.exp(z).sum())
    return out


@pytest.mark.parametrize("case", CASES)
def test_the_model_is_the_papers_formula(case):
    counts, *_, W, V = make(*case)
    tokens = sequences_of(counts)
    found = sequence_outputs(tokens, W, V)
    for sequence, log_f in zip(tokens.tolist(), found, strict=True):
        torch.testing.assert_close(log_f, literal(sequence, W, V), rtol=1e-12, atol=1e-12)


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


@pytest.mark.parametrize("case", CASES)
def test_a_transposed_matrix_has_another_loss(case):
    *_, pi, rows, W, V = make(*case)
    loss = loss_gradients(W, V, rows, pi)[0]
    assert abs(loss_gradients(W.T.contiguous(), V, rows, pi)[0] - loss) > 1e-3
    assert abs(loss_gradients(W, V.T.contiguous(), rows, pi)[0] - loss) > 1e-3


@pytest.mark.parametrize("case", CASES)
def test_gradients_equal_autograd(case):
    *_, pi, rows, W, V = make(*case)
    W, V = W.requires_grad_(), V.requires_grad_()
    in_W, in_V = torch.autograd.grad(rows.weight @ row_losses(W, V, rows, pi), (W, V))
    _, found_W, found_V = loss_gradients(W.detach(), V.detach(), rows, pi)
    torch.testing.assert_close(found_W, in_W, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(found_V, in_V, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_column_sums_of_both_gradients_are_zero(case):
    *_, pi, rows, W, V = make(*case)
    for gradient in loss_gradients(W, V, rows, pi)[1:]:
        assert float(gradient.sum(0).abs().max()) < 1e-15


@pytest.mark.parametrize("case", CASES[:3])
def test_the_curvature_is_the_blocks_of_the_hessian_and_there_is_nothing_else(case):
    *_, pi, rows, W, V = make(*case)
    hessian = torch.autograd.functional.hessian(
        lambda W: rows.weight @ row_losses(W, V, rows, pi), W
    )
    n = W.shape[0]
    blocks = torch.zeros(n, n, n, n, dtype=torch.float64)
    for a, block in enumerate(attention_curvature(W, V, rows, pi)):
        blocks[:, a, :, a] = block
    torch.testing.assert_close(hessian, blocks, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_the_hessian_product_is_the_derivative_of_the_gradients_along_a_direction(case):
    *_, pi, rows, W, V = make(*case)
    draw = torch.Generator().manual_seed(0)
    along = tuple(torch.randn(W.shape, generator=draw, dtype=torch.float64) for _ in range(2))
    wanted = torch.autograd.functional.jvp(
        lambda W, V: loss_gradients(W, V, rows, pi)[1:], (W, V), along
    )[1]
    found = hessian_product(W, V, rows, pi)[0](*along)
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)


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


@pytest.mark.parametrize("seq_len", [2, 3, 5, 7])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_the_closed_form_equals_the_enumeration_on_uniform_subsets(seq_len, length):
    n_tokens, scale = 7, 6.0
    draw = torch.Generator().manual_seed(seq_len)
    lists = cyclic_lists(n_tokens, length)
    counts = subsets(n_tokens, seq_len)
    law = product_law(counts, torch.ones(n_tokens, dtype=torch.float64))
    rows = Rows.of(counts, law, *determining_tokens(counts, lists))
    w = torch.randn(length + 1, generator=draw, dtype=torch.float64)
    W = w[0].repeat(n_tokens, n_tokens)
    for a, entries in enumerate(lists):
        W[list(entries), a] = w[1:]
    V = scale * torch.eye(n_tokens, dtype=torch.float64)
    loss, gradient, _ = loss_gradients(W, V, rows, torch.arange(n_tokens))
    found, slope = exchangeable_loss_gradient(w, n_tokens, seq_len, scale)
    assert float(found) == pytest.approx(float(loss), abs=1e-12)
    outside = next(b for b in range(n_tokens) if b not in lists[0])
    assert (slope / n_tokens).tolist() == pytest.approx(
        gradient[[outside, *lists[0]], 0].tolist(), abs=1e-12
    )


def test_the_closed_form_serves_ten_thousand_tokens():
    w = torch.tensor([0.0, 0.3, 0.2, 0.1], dtype=torch.float64)
    loss, _ = exchangeable_loss_gradient(w, 10_000, 100, 50.0)
    assert 0 < float(loss) < torch.log(torch.tensor(10_000.0))
    size = 1e-4
    for i in range(4):
        step = size * torch.eye(4, dtype=torch.float64)[i]
        up, down = (
            float(exchangeable_loss_gradient(w + s * step, 10_000, 100, 50.0)[0]) for s in (1, -1)
        )
        slope = exchangeable_loss_gradient(w, 10_000, 100, 50.0)[1][i]
        assert (up - down) / 2 / size == pytest.approx(
            float(slope) * (9997 if i == 0 else 1), rel=1e-5, abs=1e-10
        )


@pytest.mark.parametrize("case", CASES)
def test_margins_say_which_rows_the_model_gets_right(case):
    counts, _, star, pi, rows, W, V = make(*case)
    tokens = sequences_of(counts)
    labels = pi[star.gather(1, tokens)]
    V = V + 4 * label_matrix(pi.tolist())
    right = logit_margins(W, V, rows, pi) > 0
    assert right.any()
    assert not right.all()
    predicted = sequence_outputs(tokens, W, V).argmax(1) == labels
    share = torch.zeros(len(counts), counts.shape[1], dtype=torch.bool)
    chosen = {tuple(c): i for i, c in enumerate(counts.tolist())}
    for c, query, is_right in zip(
        rows.counts.tolist(), rows.query.tolist(), right.tolist(), strict=True
    ):
        share[chosen[tuple(c)], query] = is_right
    assert torch.equal(share.gather(1, tokens), predicted)
    cP = 5 * label_matrix(pi.tolist())
    assert torch.equal(attention_margins(W, rows) > 0, logit_margins(W, cP, rows, pi) > 0)


def test_a_tie_is_no_success():
    counts = subsets(4, 2)
    rows = Rows.of(
        counts, torch.full((6,), 1 / 6).double(), *determining_tokens(counts, cyclic_lists(4, 2))
    )
    assert (attention_margins(torch.zeros(4, 4, dtype=torch.float64), rows) == 0).all()


def test_attention_is_a_distribution_over_the_tokens_that_are_there():
    *_, rows, W, _ = make(4, 3, 2, True)
    alpha = attention_rows(W, rows)
    torch.testing.assert_close(alpha.sum(1), torch.ones(len(alpha), dtype=torch.float64))
    assert (alpha[rows.counts == 0] == 0).all()


def test_the_limit_of_large_values_is_the_choice_model():
    """-grad at W = u/c over c tends to the choice model's, with an error that falls as 1/c."""
    *_, pi, rows, u, _ = make(6, 3, 3, False)
    limit, errors = choice_gradient(u, rows), []
    for scale in (1e3, 1e4, 1e5):
        gradient = loss_gradients(u / scale, scale * label_matrix(pi.tolist()), rows, pi)[1] / scale
        errors.append(float((gradient - limit).abs().max()))
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.05)


def test_attending_over_queries_is_another_model():
    counts, *_, W, V = make(5, 2, 3, False)
    tokens = sequences_of(counts)
    assert (
        sequence_outputs(tokens, W, V, "queries") - sequence_outputs(tokens, W, V)
    ).abs().max() > 0.1


def test_attention_is_read_off_by_sequence_query_and_key():
    counts, law, star, _, rows, W, _ = make(5, 2, 3, False)
    chosen = [7, 0, 4]  # numbered as they are given
    found = attention_on_sequences(W, counts[chosen], star[chosen])
    assert [one["sequence"] for one in found] == [0] * 4 + [1] * 4 + [2] * 4
    for one in found:
        i = chosen[one["sequence"]]
        tokens = [b for b in range(5) if counts[i, b]]
        assert one["query"] in tokens
        scores = {b: math.exp(W[b, one["query"]]) for b in tokens}
        assert one["attention"] == pytest.approx(scores[one["key"]] / sum(scores.values()))
        assert one["star"] == star[i, one["query"]]
    every = attention_on_sequences(W, counts, star)
    to_star = attention_to_star(W, rows)
    assert sorted(to_star.tolist()) == pytest.approx(
        sorted(o["attention"] for o in every if o["key"] == o["star"])
    )
    assert len(law) == 10


@pytest.mark.parametrize("case", CASES)
def test_what_is_measured_of_weights(case):
    *_, pi, rows, W, V = make(*case)
    P = label_matrix(pi.tolist())
    loss, noisy = PopulationLoss(rows, pi), {"W": W, "V": V}
    found = loss.measured(noisy)
    right = logit_margins(W, V, rows, pi) > 0
    assert (
        found["accuracy"]
        == pytest.approx(loss.accuracy(noisy))
        == pytest.approx(float(rows.weight[right].sum()))
    )
    assert found["cosine"] == pytest.approx(
        float(torch.cosine_similarity(V.flatten(), P.flatten(), dim=0))
    )
    centred = [(X - X.mean(0)).flatten() for X in (V, P)]
    assert found["centred_cosine"] == pytest.approx(float(torch.cosine_similarity(*centred, dim=0)))
    assert found["argmax_right"] == sum(
        int(V[:, b].argmax()) == pi[b] for b in range(len(P))
    ) / len(P)
    assert found["attention_to_star"] == pytest.approx(
        float(rows.weight @ attention_to_star(W, rows))
    )
    assert loss.value(noisy).item() == pytest.approx(loss(noisy)[0].item())
    zero = loss.measured({"W": W, "V": 0 * V})
    assert (zero["cosine"], zero["centred_cosine"], zero["accuracy"]) == (0, 0, 0)


def test_accuracy_over_some_rows_is_their_share():
    *_, pi, rows, W, V = make(5, 2, 3, False)
    kept = rows.only(rows.place == 1)
    right = (logit_margins(W, V, rows, pi) > 0)[rows.place == 1]
    found = PopulationLoss(kept, pi).accuracy({"W": W, "V": V})
    assert found == pytest.approx(float(kept.weight[right].sum() / kept.weight.sum()))


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


@pytest.mark.parametrize("attend_over", ["keys", "queries"])
def test_the_loss_on_sequences_is_that_of_the_model_as_written(attend_over):
    counts, law, star, pi, rows, W, V = make(5, 2, 3, False)
    lists = random_lists(5, 3, torch.Generator().manual_seed(26))  # as `make` draws them
    chances = tuple(law.tolist())
    task = Task("one", "some", 5, 2, False, lists, tuple(pi.tolist()), chances)
    loss, weights = SequenceLoss(task, attend_over), {"W": W, "V": V}
    value = accuracy = 0.0
    for tokens, chance, stars in zip(sequences_of(counts), law, star, strict=True):
        logs = sequence_outputs(tokens[None], W, V, attend_over)[0]
        for position, a in enumerate(tokens.tolist()):
            y = int(pi[stars[a]])
            value -= float(chance * logs[y, position]) / 2
            accuracy += float(chance) / 2 * (int(logs[:, position].argmax()) == y)
    assert float(loss.value(weights)) == pytest.approx(value)
    assert loss.accuracy(weights) == pytest.approx(accuracy)
    if attend_over == "keys":
        exact = PopulationLoss(rows, pi)
        assert float(loss.value(weights)) == pytest.approx(float(exact.value(weights)))
        assert loss.accuracy(weights) == pytest.approx(exact.accuracy(weights))


@pytest.mark.parametrize("case", CASES)
def test_the_scaled_flow_is_the_flow_of_the_loss(case):
    *_, pi, rows, W, _ = make(*case)
    c, n = 7.0, case[1]
    flow, V = ScaledFlow(rows, pi, c), c * label_matrix(pi.tolist())
    x = (c * W).flatten().numpy()
    loss, gradient, _ = loss_gradients(W, V, rows, pi)
    np.testing.assert_allclose(
        flow.velocity(x), -gradient.flatten() / c, rtol=1e-12, atol=1e-14
    )  # du/dτ = dW/dt / c
    margins, found = c * attention_margins(W, rows), flow.measured(x)
    assert found["loss"] == pytest.approx(float(loss))
    assert found["margin"] == pytest.approx(float(margins.min())) == pytest.approx(flow.margin(x))
    assert found["accuracy"] == pytest.approx(float(rows.weight[margins > 0].sum()))
    assert flow.largest_attention(x) == pytest.approx(n * float(attention_rows(W, rows).max()))
    assert flow.attention_to_star(x) == pytest.approx(
        float(rows.weight @ attention_to_star(W, rows))
    )
    assert flow.largest_attention(flow.start) == pytest.approx(float(rows.counts.max()))
    torch.testing.assert_close(flow.matrix(x), c * W)
    limit = ScaledFlow(rows, pi, math.inf)
    np.testing.assert_array_equal(limit.velocity(x), -choice_gradient(c * W, rows).flatten())


@pytest.mark.parametrize(("L", "n", "m"), [(7, 3, 2), (6, 4, 2), (7, 3, 1)])
def test_the_flow_of_few_values_is_that_of_the_whole_matrix(L, n, m):
    counts, lists = subsets(L, n), cyclic_lists(L, m)
    law = torch.full((len(counts),), 1 / len(counts), dtype=torch.float64)
    rows = Rows.of(counts, law, *determining_tokens(counts, lists))
    whole, few = ScaledFlow(rows, torch.arange(L), 50.0), ExchangeableFlow(L, n, m, 50.0)
    u = np.linspace(-0.3, 2, m + 1)
    x = torch.full((L, L), u[0], dtype=torch.float64)
    for a, entries in enumerate(lists):
        for i, b in enumerate(entries, 1):
            x[b, a] = u[i]
    velocity = whole.matrix(whole.velocity(x.flatten().numpy()))
    for a, entries in enumerate(lists):
        outside = next(b for b in range(L) if b not in entries)
        np.testing.assert_allclose(
            few.velocity(u), velocity[[outside, *entries], a], rtol=1e-9, atol=1e-12
        )
    assert few.at_once() == whole.at_once() == (m == 1 or 2 * n > L)
    for point in (u, u[::-1].copy()):
        x = torch.full((L, L), point[0], dtype=torch.float64)
        for a, entries in enumerate(lists):
            x[list(entries), a] = torch.from_numpy(point[1:])
        assert (few.margin(point) > 0) == (whole.margin(x.flatten().numpy()) > 0)
