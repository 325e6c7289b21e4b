"""The model is the paper's formula, and its closed-form gradient is that of autograd."""

import pytest
import torch

from lib.low_rank_sparse import one_layer as one_layer_vit
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    SPARE,
    SampleLoss,
    attention_pattern,
    forward_flops,
    hinge,
    initial_weights,
    loss_gradient,
    margins,
    neuron_margins,
    neuron_outputs,
    outputs,
    random_readout,
    relevant_attention,
    score,
    update_sides,
    value_cosines,
    with_factor,
)

D, N_NEURONS, SEQ_LEN, N_SAMPLES = 6, 10, 7, 9
CASES = [("tied", 1), ("untied", 1), ("tied", 3), ("untied", 3)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def problem(kind, n_outputs, seed=0, scale=1.0):
    """Weights in general position, a readout, tokens and labels, in float64."""
    g = generator(seed)

    def draw(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64)

    weights = {
        "W_Q": draw(D, 5),
        "W_K": draw(D, 5),
        "W_V": draw(D, 4),
        "W_O": scale * draw(N_NEURONS, 4),
    }
    readout = random_readout(kind, n_outputs, SEQ_LEN, N_NEURONS, g).double()
    labels = torch.randint(0, max(2, n_outputs), (N_SAMPLES,), generator=g)
    return weights, readout, draw(N_SAMPLES, SEQ_LEN, D), labels


def as_written(weights, readout, X):
    """The paper's formula, with the paper's matrices (tokens as columns), sample by sample, query
    by query.
    """
    Q, K, V, O = weights["W_Q"].T, weights["W_K"].T, weights["W_V"].T, weights["W_O"]  # noqa: E741
    F = torch.zeros(len(X), len(readout), dtype=X.dtype)
    for n, x in enumerate(X):
        for place in range(len(x)):
            attention = torch.softmax(torch.stack([x_s @ K.T @ Q @ x[place] for x_s in x]), 0)
            value = sum(V @ x_s * weight for x_s, weight in zip(x, attention, strict=True))
            for c, a in enumerate(readout):
                F[n, c] += a[place if len(a) > 1 else 0] @ torch.relu(O @ value) / len(x)
    return F


@pytest.mark.parametrize(("kind", "n_outputs"), CASES)
def test_the_outputs_are_the_formula(kind, n_outputs):
    weights, readout, X, _ = problem(kind, n_outputs)
    torch.testing.assert_close(
        outputs(weights, readout, X), as_written(weights, readout, X), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("scale", [0.01, 1.0, 4.0])
@pytest.mark.parametrize(("kind", "n_outputs"), CASES)
def test_the_closed_form_gradient_is_that_of_autograd(kind, n_outputs, scale):
    """At a small scale every sample has a loss, at a large one some have none."""
    weights, readout, X, labels = problem(kind, n_outputs, scale=scale)
    free = {name: W.clone().requires_grad_() for name, W in weights.items()}
    loss = hinge(margins(outputs(free, readout, X), labels)).mean()
    wanted = dict(zip(free, torch.autograd.grad(loss, list(free.values())), strict=True))
    found, gradient = loss_gradient(weights, readout, X, labels)
    torch.testing.assert_close(found, loss.detach(), rtol=1e-13, atol=0)
    for name in MATRICES:
        size = wanted[name].abs().max()
        assert size > 1e-6
        assert (gradient[name] - wanted[name]).abs().max() <= 1e-12 * max(1.0, size)


def test_samples_without_loss_leave_the_weights():
    weights, readout, X, labels = problem("tied", 1)
    F = outputs(weights, readout, X)[:, 0]
    right = ((1 - 2 * labels) * F > 0).nonzero()[:, 0]
    weights["W_O"] *= 2 / F[right].abs().min()
    loss, gradient = loss_gradient(weights, readout, X[right], labels[right])
    assert loss == 0
    assert all((slope == 0).all() for slope in gradient.values())
    _, among = loss_gradient(weights, readout, X, labels)
    wrong = torch.tensor([i for i in range(N_SAMPLES) if i not in right.tolist()])
    _, alone = loss_gradient(weights, readout, X[wrong], labels[wrong])
    for name in MATRICES:
        torch.testing.assert_close(among[name], alone[name] * len(wrong) / N_SAMPLES)


@pytest.mark.parametrize(("kind", "n_outputs"), CASES)
def test_a_stack_of_seeds_is_each_of_them_alone(kind, n_outputs):
    alone = [problem(kind, n_outputs, seed) for seed in range(3)]
    weights = {name: torch.stack([w[name] for w, *_ in alone]) for name in MATRICES}
    readout, X, labels = (torch.stack(parts) for parts in list(zip(*alone, strict=True))[1:])
    is_relevant = torch.rand((*labels.shape, SEQ_LEN), generator=generator()) < 0.5
    is_relevant[..., 0] = True
    loss, gradient = loss_gradient(weights, readout, X, labels)
    scores = score(weights, readout, X, labels, is_relevant)
    for i, (w, a, x, y) in enumerate(alone):
        loss_i, gradient_i = loss_gradient(w, a, x, y)
        torch.testing.assert_close(loss[i], loss_i, rtol=1e-13, atol=0)
        for name in MATRICES:
            torch.testing.assert_close(gradient[name][i], gradient_i[name], rtol=1e-10, atol=1e-14)
        for name, value in score(w, a, x, y, is_relevant[i]).items():
            torch.testing.assert_close(scores[name][i], value)


def test_one_output_is_for_y_of_plus_one_in_class_zero():
    F = torch.tensor([[0.3], [0.3], [-2.0]])
    labels = torch.tensor([0, 1, 1])
    torch.testing.assert_close(margins(F, labels), torch.tensor([0.3, -0.3, 2.0]))
    torch.testing.assert_close(hinge(margins(F, labels)), torch.tensor([0.7, 1.3, 0.0]))


def test_several_outputs_have_the_margin_to_the_largest_wrong_one():
    F = torch.tensor([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0]])
    torch.testing.assert_close(margins(F, torch.tensor([1, 0])), torch.tensor([1.0, -2.0]))


@pytest.mark.parametrize(("kind", "n_outputs"), CASES)
def test_pruning_neurons_is_a_sum_over_those_that_stay(kind, n_outputs):
    weights, readout, X, _ = problem(kind, n_outputs)
    each = neuron_outputs(weights, readout, X)
    torch.testing.assert_close(each.sum(-1), outputs(weights, readout, X), rtol=1e-12, atol=1e-14)
    kept = torch.tensor([0, 3, 4, 8])
    removed = outputs(weights | {"W_O": weights["W_O"][kept]}, readout[..., kept], X)
    torch.testing.assert_close(each[..., kept].sum(-1), removed, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("kind", ["tied", "untied"])
def test_the_neurons_add_up_to_the_margin(kind):
    weights, readout, X, labels = problem(kind, 1)
    wanted = margins(outputs(weights, readout, X), labels)
    torch.testing.assert_close(
        neuron_margins(weights, readout, X, labels).sum(1), wanted, rtol=1e-12, atol=1e-14
    )


def test_a_neuron_along_the_value_of_its_pattern_has_the_cosine_one():
    weights, readout, _, _ = problem("tied", 1)
    mu = torch.eye(D).double()[:4]
    signs = readout[0, 0].sign()
    own = torch.where(signs[:, None] > 0, mu[0] @ weights["W_V"], mu[1] @ weights["W_V"])
    assert set(signs.tolist()) == {1, -1}
    found = value_cosines(weights | {"W_O": 3 * own}, readout, mu)
    torch.testing.assert_close(found, torch.ones(N_NEURONS).double())
    torch.testing.assert_close(value_cosines(weights | {"W_O": -own}, readout, mu), -found)


@pytest.mark.parametrize(("kind", "n_outputs"), CASES)
@pytest.mark.parametrize("n_samples", [1, 4])
def test_samples_that_do_not_fit_into_a_block_change_nothing(
    monkeypatch, kind, n_outputs, n_samples
):
    weights, readout, X, labels = problem(kind, n_outputs)

    def everything():
        loss, gradient = loss_gradient(weights, readout, X, labels)
        return [
            loss,
            *gradient.values(),
            outputs(weights, readout, X),
            neuron_outputs(weights, readout, X),
        ]

    at_once = everything()
    monkeypatch.setattr(one_layer_vit, "BLOCK", n_samples * SEQ_LEN * N_NEURONS)
    for found, wanted in zip(everything(), at_once, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


def test_a_tied_readout_does_not_see_the_order_of_tokens_and_an_untied_one_does():
    for kind, same in (("tied", True), ("untied", False)):
        weights, readout, X, _ = problem(kind, 1)
        assert (
            torch.allclose(outputs(weights, readout, X), outputs(weights, readout, X.flip(1)))
            == same
        )


def test_attention_on_relevant_tokens_is_summed_over_keys_and_averaged_over_queries():
    S = torch.tensor([[[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]]])
    relevant = torch.tensor([[True, False, True]])
    everywhere, of_relevant = relevant_attention(S, relevant)
    assert float(everywhere) == pytest.approx((0.75 + 0 + 0.8) / 3)
    assert float(of_relevant) == pytest.approx((0.75 + 0.8) / 2)


def test_attention_rows_sum_to_one_and_are_uniform_without_scores():
    weights, _, X, _ = problem("tied", 1)
    S = attention_pattern(weights, X)
    torch.testing.assert_close(S.sum(-1), torch.ones_like(S[..., 0]))
    S = attention_pattern(weights | {"W_Q": 0 * weights["W_Q"]}, X)
    torch.testing.assert_close(S, torch.full_like(S, 1 / SEQ_LEN))


def test_the_start_is_that_of_assumption_one():
    weights = initial_weights(20, 400, 0.01, generator())
    assert torch.equal(weights["W_Q"], torch.eye(20))
    assert torch.equal(weights["W_K"], torch.eye(20))
    torch.testing.assert_close(weights["W_V"] @ weights["W_V"].T, torch.eye(20), atol=1e-6, rtol=0)
    assert float(weights["W_O"].std()) == pytest.approx(0.01, rel=0.03)


def test_errors_of_the_start_have_their_size():
    """Only the errors differ: the draws are the same."""
    ideal = initial_weights(200, 4, 0.01, generator())
    erring = initial_weights(200, 4, 0.01, generator(), value_error=0.2, query_key_error=0.5)
    for name, size in (("W_V", 0.2), ("W_Q", 0.5), ("W_K", 0.5)):
        error = erring[name] - ideal[name]
        assert float(error.norm(dim=1).mean()) == pytest.approx(size, rel=0.03)
    assert torch.equal(erring["W_O"], ideal["W_O"])


@pytest.mark.parametrize(("kind", "n_positions"), [("tied", 1), ("untied", 30)])
def test_readouts_are_balanced_signs_of_unit_norm(kind, n_positions):
    readout = random_readout(kind, 2, 30, 1000, generator())
    assert readout.shape == (2, n_positions, 1000)
    torch.testing.assert_close(readout.norm(dim=-1), torch.ones(2, n_positions))
    assert abs(float(readout.sign().mean())) < 5 / readout.numel() ** 0.5


def test_operations_of_a_forward_pass():
    """Counted by torch's own counter, for the products."""
    from torch.utils.flop_counter import FlopCounterMode

    weights = initial_weights(20, 100, 0.01, generator())
    readout = random_readout("untied", 1, 40, 100, generator())
    X = torch.randn(3, 40, 20, generator=generator())
    with FlopCounterMode(display=False) as counter:
        outputs(weights, readout, X)
    assert counter.get_total_flops() == 3 * forward_flops(40, 20, 100)
    assert forward_flops(40, 20, 1000) == 1_904_000


@pytest.mark.parametrize(("kind", "n_outputs"), CASES)
def test_what_is_known_of_the_attention_changes_no_bit(kind, n_outputs):
    weights, readout, X, _ = problem(kind, n_outputs)
    S = attention_pattern(weights, X)
    torch.testing.assert_close(
        outputs(weights, readout, X, S), outputs(weights, readout, X), rtol=0, atol=0
    )


def test_weights_rest_where_every_sample_has_a_margin_of_one_and_a_little():
    """One output of one neuron per sign: its scale is the margin's."""
    weights, readout, X, _ = problem("tied", 1)
    labels = (outputs(weights, readout, X)[:, 0] < 0).long()
    least = float(margins(outputs(weights, readout, X), labels).min())
    for spare, rests in ((2 * SPARE, True), (0.5 * SPARE, False), (-0.1, False)):
        scaled = weights | {"W_O": weights["W_O"] * (1 + spare) / least}
        assert SampleLoss(readout, X, labels).at_rest(scaled) is rests
    scaled = weights | {"W_O": weights["W_O"] * (1 + 2 * SPARE) / least}
    loss, slopes = loss_gradient(scaled, readout, X, labels)
    assert float(loss) == 0
    assert all(not slope.any() for slope in slopes.values())


def test_the_factor_brings_the_mean_margin_of_known_samples_back():
    margin, known = torch.tensor([0.25, 1.0, -0.5]), torch.tensor([1.0, 0.0])
    found = with_factor(margin, known, torch.tensor(2.0))
    assert found == pytest.approx({"factor": 4, "rescaled_hinge": (0 + 0 + 3) / 3})
    lost = with_factor(margin, -known, torch.tensor(2.0))
    assert lost == pytest.approx({"factor": torch.nan, "rescaled_hinge": torch.nan}, nan_ok=True)


def test_each_side_of_an_update_is_its_rows_and_tokens_are_seen_there_through_the_start():
    first, last = problem("tied", 1)[0], problem("tied", 1, seed=1)[0]
    found = {
        (name, side): (update, image) for name, side, update, image in update_sides(first, last)
    }
    moved, tokens = {name: last[name] - first[name] for name in MATRICES}, torch.eye(D).double()
    wanted = {
        ("W_Q", "input"): (moved["W_Q"], tokens),
        ("W_Q", "output"): (moved["W_Q"].T, first["W_K"]),
        ("W_K", "input"): (moved["W_K"], tokens),
        ("W_K", "output"): (moved["W_K"].T, first["W_Q"]),
        ("W_V", "input"): (moved["W_V"], tokens),
        ("W_V", "output"): (moved["W_V"].T, first["W_V"]),
        ("W_O", "input"): (moved["W_O"].T, first["W_V"]),
    }
    assert list(found) == list(wanted)
    for place, (update, image) in wanted.items():
        assert torch.equal(found[place][0], update)
        assert torch.equal(found[place][1], image)
