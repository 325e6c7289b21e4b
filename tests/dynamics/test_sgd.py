"""Training is Adam or gradient descent as PyTorch has it, and goes on bit for bit from any state."""

import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lib.dynamics.sgd import State, saved_steps, sgd, warmup_cosine

N_STEPS, WARMUP, RATE = 20, 5, 0.03
OPTIMIZERS = ["adam", "sgd"]


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
    states = sgd(loss, start, batches, n_steps, optimizer=optimizer, learning_rate=RATE, warmup_steps=WARMUP)
    return [copied(state) for state in states]


def hand_loop(weights, batches, optimizer):
    """The textbook loop with PyTorch's optimiser and schedule."""
    weights = {name: w.clone().requires_grad_() for name, w in weights.items()}
    kind = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    rule = kind(weights.values(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(rule, lambda step: warmup_cosine(step, WARMUP, N_STEPS))
    for batch in batches:
        rule.zero_grad()
        value = loss(weights, *batch)
        value.backward()
        rule.step()
        schedule.step()
        yield {name: w.detach().clone() for name, w in weights.items()}, value.detach()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_state_is_that_of_the_textbook_loop(optimizer):
    weights, batches = problem(torch.float64)
    found = trained(State(0, weights), batches, optimizer)
    wanted = list(hand_loop(weights, batches, optimizer))
    assert [state.step for state in found] == list(range(1, N_STEPS + 1))
    for state, (weights_then, value) in zip(found, wanted, strict=True):
        for name, weight in weights_then.items():
            torch.testing.assert_close(state.weights[name], weight, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(state.loss, value, rtol=1e-12, atol=0)


def test_an_adam_step_is_the_one_of_the_paper():
    weights, (batch, *_) = problem(torch.float64)
    b = weights["b"].clone().requires_grad_()
    g = torch.autograd.grad(loss({**weights, "b": b}, *batch), b)[0]
    (state, *_) = trained(State(0, weights), [batch], "adam")
    moved = RATE / WARMUP * g / (g.abs() + 1e-8)  # the moments of one gradient, their bias corrected
    torch.testing.assert_close(weights["b"] - state.weights["b"], moved, rtol=1e-10, atol=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("step", [1, 6, N_STEPS - 1])
def test_training_goes_on_bit_for_bit_from_a_state(optimizer, step):
    weights, batches = problem(torch.float32)
    through = trained(State(0, weights), batches, optimizer)
    resumed = trained(through[step - 1], batches[step:], optimizer)
    assert [state.step for state in resumed] == list(range(step + 1, N_STEPS + 1))
    for one, other in zip(through[step:], resumed, strict=True):
        assert torch.equal(one.loss, other.loss)
        assert one.moments.keys() == other.moments.keys()
        for part, other_part in ((one.weights, other.weights), (one.moments, other.moments)):
            assert all(torch.equal(part[name], other_part[name]) for name in part)


def test_adam_without_its_moments_goes_elsewhere():
    weights, batches = problem(torch.float32)
    through = trained(State(0, weights), batches, "adam")
    forgetful = State(6, through[5].weights)
    assert not torch.equal(trained(forgetful, batches[6:], "adam")[-1].weights["A"], through[-1].weights["A"])


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


def test_a_schedule_may_lack_a_warm_up_or_be_one():
    assert warmup_cosine(0, 0, 10) == 1.0
    assert [warmup_cosine(step, 4, 4) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


@pytest.mark.parametrize(
    ("n_steps", "every", "steps"),
    [
        (10, 4, [0, 1, 2, 4, 8, 10]),
        (12, 4, [0, 1, 2, 4, 8, 12]),
        (40, 10, [0, 1, 2, 4, 8, 10, 20, 30, 40]),
        (10, 100, [0, 1, 2, 4, 8, 10]),
        (8, 100, [0, 1, 2, 4, 8]),
        (3, 1, [0, 1, 2, 3]),
        (1, 1, [0, 1]),
    ],
)
def test_the_saved_steps_are_dense_at_first_and_even_later(n_steps, every, steps):
    assert saved_steps(n_steps, every) == steps


@given(st.integers(1, 3000), st.integers(1, 4000))
def test_the_saved_steps_rise_from_zero_to_the_last(n_steps, every):
    steps = saved_steps(n_steps, every)
    assert (steps[0], steps[-1]) == (0, n_steps)
    assert all(one < two for one, two in pairwise(steps))
    assert {*range(0, n_steps, every)} <= {*steps}
    odd = [step for step in steps[:-1] if step % every]
    assert odd == [2**k for k in range(len(odd))] or every & (every - 1) == 0


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_state_is_made_again_from_its_tensors(optimizer):
    weights, batches = problem(torch.float64)
    state = trained(State(0, weights), batches, optimizer, 3)[-1]
    found = State.from_tensors(3, {**state.tensors(), "of another": torch.ones(1)}, torch.device("cpu"))
    assert found.step == 3
    assert torch.equal(found.loss, state.loss)
    for one, other in ((found.weights, state.weights), (found.moments, state.moments)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weights_that_the_loss_does_not_depend_on_stay(optimizer):
    weights, batches = problem(torch.float64)
    unused = torch.ones(2, dtype=torch.float64)
    found = trained(State(0, weights | {"unused": unused}), batches, optimizer)[-1]
    wanted = trained(State(0, weights), batches, optimizer)[-1]
    assert torch.equal(found.weights.pop("unused"), unused)
    assert all(torch.equal(found.weights[name], wanted.weights[name]) for name in weights)


def test_training_does_not_wait_for_the_compiler_to_be_imported():
    script = """
import sys, torch
from lib.dynamics.sgd import State, sgd
for optimizer in ("adam", "sgd"):
    start = State(0, {"w": torch.ones(2)})
    list(sgd(lambda w: w["w"].sum(), start, [()], 1, optimizer=optimizer, learning_rate=1.0, warmup_steps=0))
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
