"""Training is Adam, AdamW, Muon or descent as PyTorch has them, and goes on bit for bit from any
state.
"""

import sys
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from lib.training.sgd import State, newton_schulz, saved_steps, sgd, warmup_cosine

N_STEPS, WARMUP, RATE = 20, 5, 0.03
OPTIMIZERS = ["adam", "adamw", "sgd", "muon"]
RULES = {
    "adamw": {"weight_decay": 0.1},
    "muon": {"matrices": {"A": 2}},
}  # what is given to each besides its name


def loss(weights, X, y):
    return ((torch.tanh(X @ weights["A"]) @ weights["b"] - y) ** 2).mean()


def problem(dtype):
    """Initial weights and the batches of all steps."""
    g = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=g, dtype=torch.float64).to(dtype)

    return {"A": draw(4, 3), "b": draw(3)}, [(draw(8, 4), draw(8)) for _ in range(N_STEPS)]


def copied(state):
    return State(
        state.step,
        {name: w.detach().clone() for name, w in state.weights.items()},
        {name: m.clone() for name, m in state.moments.items()},
        state.loss.clone(),
    )


def trained(start, batches, optimizer, n_steps=N_STEPS):
    """Copies of all states."""
    rule = {
        "optimizer": optimizer,
        "learning_rate": RATE,
        "warmup_steps": WARMUP,
        **RULES.get(optimizer, {}),
    }
    return [copied(state) for state in sgd(loss, start, batches, n_steps, **rule)]


def hand_loop(weights, batches, optimizer):
    """The textbook loop with PyTorch's optimiser and schedule."""
    weights = {name: w.clone().requires_grad_() for name, w in weights.items()}
    if optimizer == "muon":
        rules = [PlainMuon([weights["A"]]), torch.optim.Adam([weights["b"]], lr=RATE)]
    else:
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[
            optimizer
        ]
        rules = [kind(weights.values(), lr=RATE, **RULES.get(optimizer, {}))]
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(r, lambda step: warmup_cosine(step, WARMUP, N_STEPS))
        for r in rules
    ]
    for batch in batches:
        value = loss(weights, *batch)
        for rule in rules:
            rule.zero_grad()
        value.backward()
        for rule, schedule in zip(rules, schedules, strict=True):
            rule.step()
            schedule.step()
        yield {name: w.detach().clone() for name, w in weights.items()}, value.detach()


class PlainMuon(torch.optim.Optimizer):
    """Muon of Jordan et al. (2024) by SVDs of single matrices, the polynomial on their singular
    values.
    """

    def __init__(self, matrices):
        super().__init__(matrices, {"lr": RATE})

    def step(self, closure=None):
        for group in self.param_groups:
            for W in group["params"]:
                mean = self.state[W].setdefault("mean", torch.zeros_like(W))
                mean += 0.05 * (W.grad - mean)
                ahead = 0.05 * W.grad + 0.95 * mean
                rate = group["lr"] * 0.2 * max(W.shape) ** 0.5
                with torch.no_grad():
                    W -= rate * torch.from_numpy(by_svd(ahead.numpy()))


def by_svd(G):
    """Newton–Schulz of a matrix: five times the odd polynomial on its singular values over its
    norm.
    """
    U, sigma, Vh = np.linalg.svd(G, full_matrices=False)
    sigma = sigma / np.sqrt((sigma**2).sum())
    for _ in range(5):
        sigma = 3.4445 * sigma - 4.775 * sigma**3 + 2.0315 * sigma**5
    return (U * sigma) @ Vh


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (2, 3, 5, 4), (1, 1), (3, 1)])
def test_newton_schulz_moves_the_singular_values_towards_one_and_leaves_the_vectors(shape):
    G = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = newton_schulz(G)
    wanted = np.stack([by_svd(g) for g in G.reshape(-1, *shape[-2:]).numpy()]).reshape(shape)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-9, atol=1e-12)
    large = (
        np.linalg.svd(G.numpy(), compute_uv=False)
        > 0.01 * torch.linalg.matrix_norm(G).unsqueeze(-1).numpy()
    )
    sigma = np.linalg.svd(found.numpy(), compute_uv=False)[large]
    assert ((sigma > 0.68) & (sigma < 1.14)).all()
    assert found.dtype == G.dtype


def test_newton_schulz_of_nothing_is_nothing():
    assert not newton_schulz(torch.zeros(2, 3, 3)).any()


@pytest.mark.parametrize("axes", [2, 3])
def test_muon_takes_each_matrix_or_the_heads_side_by_side_as_if_it_were_alone(axes):
    """Two layers of three heads of 5 rows and 2 columns."""
    draw = torch.Generator().manual_seed(2)
    W, target = torch.randn((2, 2, 3, 5, 2), generator=draw, dtype=torch.float64)
    if axes == 2:
        cut = partial(torch.flatten, end_dim=1)
    else:

        def cut(heads):
            return torch.cat(heads.unbind(1), -1)

    def by_muon(start, goal, axes):
        *_, state = sgd(
            lambda weights: ((weights["W"] - goal) ** 4).sum(),
            State(0, {"W": start}),
            [()] * 3,
            3,
            optimizer="muon",
            learning_rate=RATE,
            warmup_steps=0,
            matrices={"W": axes},
        )
        return state.weights["W"].detach()

    found = cut(by_muon(W, target, axes))
    for one, start, goal in zip(found, cut(W), cut(target), strict=True):
        torch.testing.assert_close(one, by_muon(start, goal, 2), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_state_is_that_of_the_textbook_loop(optimizer):
    weights, batches = problem(torch.float64)
    found = trained(State(0, weights), batches, optimizer)
    wanted = list(hand_loop(weights, batches, optimizer))
    assert [state.step for state in found] == list(range(1, N_STEPS + 1))
    rtol = 1e-9 if optimizer == "muon" else 1e-12  # an SVD beside products
    for state, (weights_then, value) in zip(found, wanted, strict=True):
        for name, weight in weights_then.items():
            torch.testing.assert_close(state.weights[name], weight, rtol=rtol, atol=1e-13)
        torch.testing.assert_close(state.loss, value, rtol=rtol, atol=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("step", [1, 6, N_STEPS - 1])
def test_training_goes_on_bit_for_bit_from_the_tensors_of_a_state(optimizer, step):
    weights, batches = problem(torch.float32)
    through = trained(State(0, weights), batches, optimizer)
    kept = {**through[step - 1].tensors(), "of another": torch.ones(1)}
    state = State.from_tensors(step, kept, torch.device("cpu"))
    assert torch.equal(state.loss, through[step - 1].loss)
    resumed = trained(state, batches[step:], optimizer)
    assert [state.step for state in resumed] == list(range(step + 1, N_STEPS + 1))
    for one, other in zip(through[step:], resumed, strict=True):
        wanted = other.tensors()
        assert one.tensors().keys() == wanted.keys()
        assert all(torch.equal(tensor, wanted[name]) for name, tensor in one.tensors().items())


def test_the_start_is_left_as_it_was():
    weights, batches = problem(torch.float32)
    start = trained(State(0, weights), batches[:3], "adam")[-1]
    before = copied(start)
    trained(start, batches[3:], "adam")
    assert start.step == 3
    assert all(torch.equal(start.weights[name], before.weights[name]) for name in weights)
    assert all(torch.equal(start.moments[name], before.moments[name]) for name in before.moments)


def test_a_training_that_is_done_takes_no_further_step():
    weights, batches = problem(torch.float32)
    assert trained(State(N_STEPS, weights), batches, "adam") == []
    assert len(trained(State(0, weights), batches, "adam", n_steps=3)) == 3


def test_the_warm_up_is_linear_and_the_cosine_ends_at_zero():
    factors = [warmup_cosine(step, 4, 24) for step in range(25)]
    assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors[14] == pytest.approx(0.5)
    assert factors[24] == pytest.approx(0.0, abs=1e-15)
    assert all(one > two for one, two in pairwise(factors[4:]))


def test_a_cycle_is_the_cosine_of_its_own_length_and_the_last_ends_at_zero():
    factors = [warmup_cosine(step, 4, 24, n_cycles=2) for step in range(25)]
    single = [warmup_cosine(step, 0, 10) for step in range(10)]
    assert factors[4:24] == pytest.approx(2 * single)
    assert factors[24] == pytest.approx(0.0, abs=1e-15)


def test_a_schedule_may_lack_a_warm_up_or_be_one():
    assert warmup_cosine(0, 0, 10) == 1.0
    assert warmup_cosine(4, 4, 4) == 1.0


@pytest.mark.parametrize(
    ("n_steps", "every", "steps"),
    [
        (10, 4, [0, 1, 2, 4, 8, 10]),
        (40, 10, [0, 1, 2, 4, 8, 10, 20, 30, 40]),
        (10, 100, [0, 1, 2, 4, 8, 10]),
        (3, 1, [0, 1, 2, 3]),
        (1, 1, [0, 1]),
    ],
)
def test_the_saved_steps_are_dense_at_first_and_even_later(n_steps, every, steps):
    assert saved_steps(n_steps, every) == steps


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_that_the_loss_does_not_depend_on_stay(optimizer):
    weights, batches = problem(torch.float64)
    unused = torch.ones(2, dtype=torch.float64)
    found = trained(State(0, weights | {"unused": unused}), batches, optimizer)[-1]
    wanted = trained(State(0, weights), batches, optimizer)[-1]
    assert torch.equal(found.weights.pop("unused"), unused)
    assert all(torch.equal(found.weights[name], wanted.weights[name]) for name in weights)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_does_not_wait_for_the_compiler_to_be_imported(optimizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    weights, batches = problem(torch.float32)
    assert trained(State(0, weights), batches[:1], optimizer)
