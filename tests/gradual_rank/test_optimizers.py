"""Update rules against torch.optim in float64 and numpy's SVD; what flows of them do to factors, as
the theory says.
"""

import math

import numpy as np
import pytest
import torch

from lib.gradual_rank.optimizers import (
    Adam,
    DiagonalStep,
    RMSProp,
    TorchMuon,
    annealed,
    descend,
    descend_diagonal,
    descended,
    normalized,
    path_of,
    polar_factors,
    signs,
    slopes,
    until_changed,
    until_fallen,
    warmed_up,
)


def random_slopes(n_steps, *shape):
    """Gradients of two matrices at each of some steps, of very different lengths."""
    g = torch.Generator().manual_seed(3)
    return [
        {name: size * 10.0 ** (k % 3) * torch.randn(shape, generator=g, dtype=torch.float64)}
        | {"B": torch.randn(shape, generator=g, dtype=torch.float64)}
        for k in range(n_steps)
        for name, size in [("A", 1e-3)]
    ]


def by_torch(make, gradients):
    """The steps that an optimiser of torch takes from zero at rate one, when it is given minus
    these slopes.
    """
    weights = {name: torch.zeros_like(g).requires_grad_() for name, g in gradients[0].items()}
    optimizer, found = make(list(weights.values())), []
    for G in gradients:
        before = {name: w.detach().clone() for name, w in weights.items()}
        for name, w in weights.items():
            w.grad = -G[name]
        optimizer.step()
        found.append({name: w.detach() - before[name] for name, w in weights.items()})
    return found


@pytest.mark.parametrize(
    ("rule", "make"),
    [
        (Adam(), lambda w: torch.optim.Adam(w, lr=1.0)),
        (Adam(beta_1=0.7, beta_2=0.9), lambda w: torch.optim.Adam(w, lr=1.0, betas=(0.7, 0.9))),
        (RMSProp(), lambda w: torch.optim.RMSprop(w, lr=1.0)),
        (slopes, lambda w: torch.optim.SGD(w, lr=1.0)),
    ],
    ids=["adam", "adam of other betas", "rmsprop", "gradient descent"],
)
def test_a_rule_takes_the_steps_of_torch(rule, make):
    gradients = random_slopes(7, 3, 5)
    for G, wanted in zip(gradients, by_torch(make, gradients), strict=True):
        found = rule(G)
        for name in G:
            torch.testing.assert_close(found[name], wanted[name], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4)])
def test_the_muon_of_torch_is_ours_to_the_rounding_of_bfloat16(shape):
    """Another order of the sums moves last digits, of which bfloat16 has eight bits."""
    gradients = random_slopes(4, *shape)
    rule = TorchMuon()
    wanted = by_torch(lambda w: torch.optim.Muon(w, lr=1.0, weight_decay=0.0), gradients)
    factor = math.sqrt(max(1, shape[0] / shape[1]))  # torch's for the shape
    for G, theirs in zip(gradients, wanted, strict=True):
        for name, step in rule(G).items():
            assert float((step - theirs[name] / factor).abs().max()) < 0.02
            assert float(step.abs().max()) > 0.3


def test_the_polar_factor_is_that_of_numpys_svd():
    G = random_slopes(1, 2, 5, 5)[0]
    for name, found in polar_factors(G).items():
        U, _, Vh = np.linalg.svd(G[name].numpy())
        np.testing.assert_allclose(found.numpy(), U @ Vh, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.linalg.svd(found.numpy())[1], 1, rtol=1e-12)


def test_normalised_steps_have_length_one_and_zero_stays_zero():
    G = random_slopes(1, 2, 3, 4)[0]
    G["A"][1] = 0
    found = normalized(G)
    assert torch.linalg.matrix_norm(found["A"]).tolist() == pytest.approx([1, 0])
    torch.testing.assert_close(found["B"][0] * torch.linalg.matrix_norm(G["B"][0]), G["B"][0])
    torch.testing.assert_close(signs(G)["A"], torch.sign(G["A"]))


def factorisation(target):
    """The loss of P Qᵀ against a target, ½ of the squares, and minus its gradients."""

    def loss_and_slopes(W):
        off = target - W["P"] @ W["Q"].mT
        return off.square().sum((-2, -1)) / 2, {"P": off @ W["Q"], "Q": off.mT @ W["P"]}

    return loss_and_slopes


def test_descent_yields_every_state_with_its_time_and_loss():
    target = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64))
    W = {name: torch.eye(2, dtype=torch.float64) * 0.5 for name in "PQ"}
    steps = list(descend(factorisation(target), W, slopes, [0.1, 0.2]))
    assert [(s.number, s.time) for s in steps] == [(0, 0.0), (1, 0.1), (2, pytest.approx(0.3))]
    for step, rate, after in zip(steps, (0.1, 0.2), steps[1:], strict=False):
        off = target - step.weights["P"] @ step.weights["Q"].T
        torch.testing.assert_close(step.loss, off.square().sum() / 2)
        torch.testing.assert_close(
            after.weights["P"], step.weights["P"] + rate * off @ step.weights["Q"]
        )
        torch.testing.assert_close(
            after.weights["Q"], step.weights["Q"] + rate * off.T @ step.weights["P"]
        )


def test_each_descent_ends_where_its_own_share_of_the_loss_is_left():
    target = torch.diag(torch.tensor([2.0, 1.0], dtype=torch.float64)).expand(2, 2, 2)
    scale = torch.tensor([0.5, 0.01], dtype=torch.float64)[:, None, None]
    W = {name: torch.eye(2, dtype=torch.float64) * scale for name in "PQ"}
    steps = list(descend(factorisation(target), W, slopes, [0.1] * 25))
    found, reached = descended(iter(steps), 0.3)
    losses = torch.stack([step.loss for step in steps])
    first = int(torch.argmax((losses[:, 0] <= 0.3 * losses[0, 0]).int()))
    assert reached.tolist() == [True, False]
    assert 0 < first < 25
    for name in "PQ":
        torch.testing.assert_close(found[name][0], steps[first].weights[name][0])
        torch.testing.assert_close(found[name][1], steps[-1].weights[name][1])


@pytest.fixture
def modes():
    """A target of singular values 1, .5, .25 in random frames, and a random start at 1e-8."""
    g = torch.Generator().manual_seed(5)
    U, V = (
        torch.linalg.qr(torch.randn(3, 3, generator=g, dtype=torch.float64)).Q for _ in range(2)
    )
    target = U @ torch.diag(torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)) @ V.T
    return target, {
        name: 1e-8 * torch.randn(3, 3, generator=g, dtype=torch.float64) for name in "PQ"
    }


def course(rule, modes, rate, n_steps):
    target, start = modes
    steps = list(descend(factorisation(target), start, rule, [rate] * n_steps))
    sigma = torch.stack(
        [torch.linalg.svdvals(s.weights["P"] @ s.weights["Q"].T) for s in steps]
    ).numpy()
    return np.array([s.time for s in steps]), sigma


def test_under_muon_every_singular_value_is_tau_squared_until_it_is_done_the_smallest_first(modes):
    times, sigma = course(polar_factors, modes, 0.002, 550)
    for i, last in enumerate((1.0, 0.5, 0.25)):
        rising = times < 0.95 * math.sqrt(last)
        np.testing.assert_allclose(np.sqrt(sigma[rising, i]), times[rising], rtol=0, atol=0.005)
        assert sigma[-1, i] == pytest.approx(last, abs=0.01)


def test_under_gradient_descent_the_largest_rises_first_and_later_from_a_smaller_start(modes):
    times, sigma = course(slopes, modes, 0.1, 1000)
    begun = [float(times[np.argmax(sigma[:, i] > 0.1)]) for i in range(2)]
    assert begun[1] == pytest.approx(2 * begun[0], rel=0.15)  # the times are log(1/α) / σ
    target, start = modes
    later, sigma = course(slopes, (target, {name: w * 1e-4 for name, w in start.items()}), 0.1, 600)
    delay = later[np.argmax(sigma[:, 0] > 0.1)] - begun[0]
    assert delay == pytest.approx(math.log(1e4) * 0.1 / math.log(1.1), rel=0.02)


def test_under_sign_descent_of_a_diagonal_network_every_product_is_tau_squared():
    g = torch.Generator().manual_seed(1)
    target = torch.tensor([[0.9, -0.5, 0.3]], dtype=torch.float64)
    u, v = 1e-9 * torch.randn(2, 1, 3, generator=g, dtype=torch.float64)
    rates = warmed_up(1e-10, 1.05, 1e-3, 0.5)
    assert max(rates) == 1e-3
    assert 0.5 <= sum(rates) < 0.502
    for step in descend_diagonal(lambda p: target - p, u, v, signs, rates):
        p = (step.u * step.v)[0]
        torch.testing.assert_close(step.g, target - step.u * step.v)
        if step.time > 0.05:
            torch.testing.assert_close(
                p * target[0].sign(), torch.full_like(p, step.time**2), rtol=1e-3, atol=0
            )


def test_a_descent_is_followed_until_a_g_of_each_network_leaves_the_sign_that_it_had():
    """A g that never had the sign, as the first network's second, leaves nothing."""
    g = torch.tensor(
        [
            [[0.5, -1.0], [0.0, 2.0]],
            [[1.0, -2.0], [-3.0, 1.0]],
            [[-1.0, -3.0], [-1.0, 1.0]],
            [[1.0, -3.0], [-1.0, 0.0]],
            [[1.0, -3.0], [-2.0, -1.0]],
            [[9.0, 9.0], [9.0, 9.0]],
        ]
    )
    zero, s = torch.zeros(2, 2), torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    steps = [DiagonalStep(k, 0.1 * k, zero, zero, one) for k, one in enumerate(g)]
    assert [step.number for step in until_changed(steps, s)] == [0, 1, 2, 3, 4, 5]
    first = [step._replace(g=step.g[0]) for step in steps]
    assert [step.number for step in until_changed(first, s[0])] == [0, 1, 2]
    assert [step.number for step in until_changed(steps[:2], s)] == [0, 1]


def test_a_descent_is_followed_until_every_loss_has_fallen_where_it_is_looked_at():
    """The loss is 1 - p of each of two networks, that of the second one step behind."""
    steps = []
    for k in range(9):
        u = torch.tensor([[0.1 * k], [0.1 * max(0, k - 1)]], dtype=torch.float64)
        steps.append(DiagonalStep(k, 0.5 * k, u, torch.ones_like(u), u))

    def value(p):
        return 1 - p[:, 0]

    def numbers(share, every):
        return [step.number for step in until_fallen(steps, value, share, every)]

    assert numbers(0.75, 1) == [0, 1, 2, 3, 4]
    assert numbers(0.75, 3) == [0, 1, 2, 3, 4, 5, 6]
    assert numbers(0.01, 1) == list(range(9))
    times, products = path_of(steps[:3])
    np.testing.assert_array_equal(times, [0, 0.5, 1])
    np.testing.assert_allclose(products, [[[0], [0.1], [0.2]], [[0], [0], [0.1]]])


def test_annealed_rates_are_constant_and_then_fall_to_no_zero():
    rates = annealed(0.5, 10, 0.4)
    assert rates[:6] == [0.5] * 6
    np.testing.assert_allclose(rates[6:], [0.4, 0.3, 0.2, 0.1])
    assert annealed(0.5, 10, 0.0) == [0.5] * 10
