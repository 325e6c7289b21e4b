"""Normalised heads after their turn: tables of the stage, against scipy's integrals of slopes by
autograd.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp

from lib.gradual_rank.limit_flows import LimitCourse
from tests.gradual_rank.full_reference import normal, taught

N, T, D = 6, 3, 2
SEEDS = (12, 13)  # in whose heads no key comes to zero, where scipy would stop
SCALES = (-0.5, -1.0)
CASES = {  # QK-norm, gain, decay of keys and of values, until what
    "plain": (False, "fixed", 0.0, 0.0, "end"),
    "held": (True, "fixed", 0.5, 0.5, "rise"),
    "small": (True, "small", 0.5, 0.0, "turn"),
    "learned": (True, "learned", 0.0, 0.0, "rise"),
}
FLAGS = ["name", "qk_norm", "gain", "decay_keys", "decay_values", "until", "pre_norm"]
SIZES = ["end", "n_seeds", "first_seed", "n_samples", "seq_len", "d_model", "log10_init_scales"]
PARAMS = {
    "turned": 0.2,
    "risen": 0.1,
    "moved": 0.01,
    "stiffness": 1e6,
    "longest": 0.02,
    "margin": 3,
}
END = 0.6
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if not KEPT:
        rows = ["\t".join(FLAGS + SIZES)]
        for name, (normed, *more) in CASES.items():
            cells = [name, str(normed).lower(), *more, "false", END, 2, 12, N, T, D]
            rows.append("\t".join(map(str, [*cells, list(SCALES)])))
        (tmp_path / "n.tsv").write_text("\n".join(rows), encoding="utf-8")
        sections = {"any.turns": PARAMS}
        stage("gradual_rank.turns", sections, *sections, tmp_path / "n.tsv", tmp_path / "f")
        for file in sorted((tmp_path / "f").iterdir()):
            KEPT[file.stem] = pd.read_parquet(file)
    return KEPT


def loss_of(case, X, Y, W, gain):
    """The loss of a head, by the formula."""
    W_K, W_Q, W_V, W_O = W
    K, Q = X @ W_K, X @ W_Q
    S = K @ Q.mT
    if CASES[case][0]:
        S = gain * S / (K.norm(dim=-1)[..., :, None] * Q.norm(dim=-1)[..., None, :])
    return (torch.softmax(S, -1) @ X @ W_V @ W_O.mT - Y).square().mean()


def rates(X, Y):
    """The singular values of the slope at zero under uniform attention."""
    W_VO = torch.zeros(D, D, dtype=torch.float64, requires_grad=True)
    means = X.mean(-2, keepdim=True).expand_as(X)
    (g,) = torch.autograd.grad((means @ W_VO - Y).square().mean(), W_VO)
    return torch.linalg.svdvals(g).tolist()


class Course:
    """The integral of a head's flow, with what the stage measures on it."""

    def __init__(self, case, seed, scale):
        _, gain, keys, values, _ = CASES[case]
        self.case = case
        self.X = normal(seed, "tokens", N, T, D)
        self.Y = taught(self.X, seed)
        self.sigma, self.sigma_2 = rates(self.X, self.Y)
        self.decays = torch.tensor([keys, keys, values, values])[:, None, None] * self.sigma
        first = math.sqrt(D) * (10.0**scale if gain == "small" else 1)
        self.learned = gain != "fixed"
        start = 10.0**scale * normal(seed, "full start", 4, D, D)
        end = END * (PARAMS["margin"] - scale * math.log(10)) / self.sigma
        if case == "small":
            end /= 4  # after the turn keys get stiff, and scipy stops
        begin = [*start.flatten().tolist(), first]
        self.times = np.linspace(0, end, 6001)
        found = solve_ivp(
            self.slope, (0, end), begin, method="LSODA", rtol=1e-6, atol=1e-9, dense_output=True
        )
        assert found.sol is not None
        path = found.sol(self.times).T
        W_K, W_Q, W_V, W_O = path[:, :-1].reshape(-1, 4, D, D).swapaxes(0, 1)
        undecayed = np.exp(2 * keys * self.sigma * self.times)[:, None, None]
        W_KQ = undecayed * (W_K @ W_Q.swapaxes(-1, -2))
        self.W_KQ = W_KQ / np.linalg.norm(W_KQ[0])
        self.W_VO = W_V @ W_O.swapaxes(-1, -2)
        self.gain = path[:, -1]

    def slope(self, _, y):
        W = torch.tensor(y, requires_grad=True)
        factors = W[:-1].unflatten(0, (4, D, D))
        (g,) = torch.autograd.grad(-loss_of(self.case, self.X, self.Y, factors, W[-1]), W)
        g[:-1] -= (self.decays * factors.detach()).flatten()
        if not self.learned:
            g[-1] = 0
        return g.numpy()

    def reached(self, numbers, bar):
        """When numbers first come to a bar."""
        k = int(np.argmax(numbers >= bar))
        return float(self.times[k]) if numbers[k] >= bar else math.inf


@pytest.mark.parametrize("case", CASES)
def test_keys_turn_and_values_rise_when_scipys_integral_does(tables, case):
    seed = SEEDS[0]
    scale = SCALES[-1]
    heads = tables["heads"]
    chosen = (heads["case"] == case) & (heads["seed"] == seed)
    [row] = heads[chosen & (heads["log10_init_scale"] == scale)].to_dict("records")
    course = Course(case, seed, scale)
    step = 2 * course.times[1]
    turned = np.linalg.norm(course.W_KQ - course.W_KQ[0], axis=(-2, -1))
    turn = course.reached(turned, PARAMS["turned"])
    assert row["turn"] == pytest.approx(turn, rel=0.02, abs=step)
    if case != "small":
        sigma = np.linalg.norm(course.W_VO, 2, axis=(-2, -1))
        rise = course.reached(sigma, PARAMS["risen"])
        assert row["rise"] == pytest.approx(rise, rel=0.02, abs=step)
    moved = course.reached(np.abs(course.gain / course.gain[0] - 1), PARAMS["moved"])
    if case == "learned" or (case == "small" and moved < turn):
        assert row["gain_moved"] == pytest.approx(moved, rel=0.03, abs=step)
    limits = tables["limits"]
    own = limits[(limits["case"] == case) & (limits["seed"] == seed)].iloc[0]
    assert own["sigma"] == pytest.approx(course.sigma)
    assert own["sigma_2"] == pytest.approx(course.sigma_2)


def test_directions_begin_and_end_where_scipys_singular_values_do(tables):
    seed = SEEDS[0]
    course = Course("plain", seed, -1.0)
    table = tables["directions"]
    chosen = (table["seed"] == seed) & (table["log10_init_scale"] == -1.0)
    for matrix, W in (("W_KQ", course.W_KQ), ("W_VO", course.W_VO)):
        sigma = np.linalg.svd(W - W[0], compute_uv=False)
        own = table[chosen & (table["matrix"] == matrix)].set_index("direction")
        for i in (1, 2):
            last = sigma[-1, i - 1]
            assert own["last"][i] == pytest.approx(last, rel=0.05)
            for share, column in ((0.1, "begun"), (0.9, "ended")):
                wanted = course.reached(sigma[:, i - 1], share * last)
                assert own[column][i] == pytest.approx(wanted, rel=0.05, abs=0.05)


def test_the_limit_says_the_same_turn_under_decay_of_all_matrices(tables):
    limits = tables["limits"].set_index("case")
    held = limits.loc["held"]
    np.testing.assert_allclose(held["turn"], held["turn_undecayed"])
    np.testing.assert_allclose(held["decay"], 0.5 * held["sigma"])
    assert np.isinf(limits.loc["plain", "turn"]).all()


def test_what_keys_have_left_is_from_where_they_are_when_values_begin_to_rise(tables):
    course = Course("plain", SEEDS[0], -1.0)
    sigma = np.linalg.norm(course.W_VO, 2, axis=(-2, -1))
    begun = int(np.argmax(sigma >= 0.1 * PARAMS["risen"]))
    left = np.linalg.norm(course.W_KQ[-1] - course.W_KQ[begun])
    left /= np.linalg.norm(course.W_KQ[-1] - course.W_KQ[0])
    heads = tables["heads"].set_index(["case", "seed", "log10_init_scale"])
    assert heads["left"]["plain", SEEDS[0], -1.0] == pytest.approx(left, rel=0.02)


def test_the_rate_of_values_is_a_mean_over_the_stretch_in_which_they_are_between_two_sizes():
    """Their size is e^t and its growth 1 + t, so that under a decay of 1/4 they are e at t = 2."""
    t = np.linspace(0, 10, 10001)
    course = LimitCourse(times=t, turned=0 * t, sigma=np.exp(t), pull=0 * t, growth=1 + t)
    assert course.rate(math.e, math.e**2) == pytest.approx(2.5, abs=0.01)
    assert course.rate(math.e, math.e**2, decay=0.25) == pytest.approx(3.75, abs=0.01)
