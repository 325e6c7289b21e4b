"""The flow follows known solutions, stiff or not, and finds the time of a crossing."""

import math

import numpy as np
import pytest
from scipy.integrate import BDF
from scipy.linalg import expm

from lib.training.stiff_flow import (
    StalledError,
    Step,
    along,
    crossing_of,
    stiff_flow,
    until_positive,
)


def last(steps):
    *_, step = steps
    return step


@pytest.mark.parametrize(
    ("method", "rtol"), [("LSODA", 1e-5), ("LSODA", 1e-8), ("LSODA", 1e-11), ("BDF", 1e-8)]
)
def test_a_linear_flow_is_the_matrix_exponential(method, rtol):
    A = np.array([[-1.0, 2.0, 0.0], [-2.0, -1.0, 0.5], [0.0, 0.5, -3.0]])
    start = np.array([1.0, -1.0, 2.0])
    step = last(stiff_flow(lambda x: A @ x, None, start, 2.0, rtol=rtol, atol=rtol, method=method))
    assert step.time == 2.0
    assert np.abs(step.state - expm(2 * A) @ start).max() < 30 * rtol


def test_a_stiff_flow_takes_few_steps():
    rates = np.array([-1.0, -1e6])
    for jacobian in (None, lambda x: np.diag(rates)):
        steps = list(
            stiff_flow(lambda x: rates * x, jacobian, np.ones(2), 10.0, rtol=1e-6, atol=1e-9)
        )
        assert len(steps) < 1000
        assert steps[-1].state[0] == pytest.approx(math.exp(-10), rel=1e-3)


def test_the_path_between_steps_is_as_good_as_the_steps():
    for step in stiff_flow(lambda x: -x, None, np.ones(1), 3.0, rtol=1e-9, atol=1e-9):
        for time in np.linspace(step.before, step.time, 5):
            assert step.path(time)[0] == pytest.approx(math.exp(-time), rel=1e-6)


def test_steps_by_lapack_are_those_of_scipys_own_bdf_bit_for_bit():
    """A stiff predator and prey, with its Jacobian."""

    def velocity(x):
        a, b, c = x
        return np.array([a - a * b, a * b - b, 1e4 * (a * b - c)])

    def jacobian(x):
        a, b, _ = x
        return np.array([[1 - b, -a, 0], [b, a - 1, 0], [1e4 * b, 1e4 * a, -1e4]])

    start = np.array([2.0, 0.5, 0.0])
    own = BDF(
        lambda _, x: velocity(x), 0, start, 20, rtol=1e-7, atol=1e-9, jac=lambda _, x: jacobian(x)
    )
    steps = list(stiff_flow(velocity, jacobian, start, 20.0, rtol=1e-7, atol=1e-9, method="BDF"))
    assert len(steps) > 100
    for step in steps:
        own.step()
        assert own.t == step.time
        np.testing.assert_array_equal(own.y, step.state)
        middle = (step.before + step.time) / 2
        np.testing.assert_array_equal(own.dense_output()(middle), step.path(middle))
    assert own.status == "finished"


@pytest.mark.parametrize("method", ["LSODA", "BDF"])
def test_a_flow_may_end_a_rounding_after_a_step(method):
    def steps(end):
        return list(
            stiff_flow(lambda x: -x, None, np.ones(1), end, rtol=1e-6, atol=1e-9, method=method)
        )

    for step in steps(30.0)[1:-1:9]:
        end = np.nextafter(step.time, np.inf)
        assert steps(end)[-1].time == end


def test_a_level_is_found_on_the_side_on_which_it_lies():
    step = Step(0.0, 2.0, np.array([3.0]), np.array([-3.0]), lambda t: np.array([3 - 3 * t]))
    assert crossing_of(step, 0, 1.5) == pytest.approx(0.5)
    assert crossing_of(step, 0, -1.5) == pytest.approx(1.5)
    assert [crossing_of(step, 0, level) for level in (3.0, -3.0)] == pytest.approx([0, 2])


@pytest.mark.filterwarnings("ignore:lsoda")
@pytest.mark.parametrize("method", ["LSODA", "BDF"])
def test_a_flow_that_blows_up_is_refused(method):
    with (
        np.errstate(over="ignore", invalid="ignore"),
        pytest.raises(StalledError, match="the flow stopped at time"),
    ):
        last(stiff_flow(lambda x: x**2, None, np.ones(1), 2.0, rtol=1e-8, atol=1e-8, method=method))


def test_a_flow_is_followed_until_a_value_is_positive_and_read_off_along_its_steps():
    def steps(end):
        return stiff_flow(lambda x: x, None, np.ones(1), end, rtol=1e-10, atol=1e-10)

    found = until_positive(steps(5.0), lambda x: float(x[0]) - 3)
    assert found is not None
    time, passed = found
    assert time == pytest.approx(math.log(3), rel=1e-8)
    assert passed[-1].before <= time <= passed[-1].time < 5
    times = np.array([0.0, 0.01, 0.5, time])
    np.testing.assert_allclose(along(passed, times)[:, 0], np.exp(times), rtol=1e-8)
    assert until_positive(steps(1.0), lambda x: float(x[0]) - 3) is None
