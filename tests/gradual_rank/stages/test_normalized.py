"""Heads with normalised queries and keys: every table of the stage, against scipy's integrals of
slopes by autograd.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp

from tests.gradual_rank.full_reference import normal, taught
from tests.stages.made import generator

N, T, D = 6, 3, 2
SEEDS = (12, 13)  # in whose heads no key comes to zero, where scipy would stop
SCALES = (-0.5, -1.0)
RISEN = {"plain": 0.1, "whole": 0.1, "permuted": 1e-6}
LINES = (
    "name\tqk_norm\tlearned_gain\tpre_norm\tpermuted\trisen\tn_seeds\tfirst_seed\tn_samples\tseq_len"
    "\td_model\tlog10_init_scales",
    "plain\tfalse\tfalse\tfalse\tfalse\t0.1\t2\t12\t6\t3\t2\t[-0.5, -1]",
    "whole\ttrue\ttrue\ttrue\tfalse\t0.1\t2\t12\t6\t3\t2\t[-0.5, -1]",
    "permuted\ttrue\tfalse\tfalse\ttrue\t1e-6\t2\t12\t6\t3\t2\t[-0.5, -1]",
)
PARAMS = {"turned": 0.2, "small": 0.08, "stiffness": 1e6, "longest": 0.03, "end": 20}
CELLS = [(name, seed, scale) for name in RISEN for seed in SEEDS for scale in SCALES]
METHOD = {"method": "LSODA", "rtol": 1e-6, "atol": 1e-9, "dense_output": True}
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if not KEPT:
        (tmp_path / "n.tsv").write_text("\n".join(LINES), encoding="utf-8")
        sections = {"any.normalized": PARAMS}
        stage("gradual_rank.normalized", sections, *sections, tmp_path / "n.tsv", tmp_path / "f")
        for file in sorted((tmp_path / "f").iterdir()):
            KEPT[file.stem] = pd.read_parquet(file)
    return KEPT


def attention(name, X, W_K, W_Q, gain):
    """The attention of a case, by the formula."""
    K, Q = X @ W_K, X @ W_Q
    logits = K @ Q.mT
    if name != "plain":
        logits = gain * logits / (K.norm(dim=-1)[..., :, None] * Q.norm(dim=-1)[..., None, :])
    return torch.softmax(logits, -1)


def data(name, seed):
    """The tokens and targets of a case."""
    X = normal(seed, "tokens", N, T, D)
    Y = taught(X, seed)
    if name == "permuted":
        Y = Y[torch.randperm(N, generator=generator(seed, "permuted labels"))]
    return (X / X.square().mean(-1, keepdim=True).sqrt() if name == "whole" else X), Y


class Course:
    """The integral of a head's flow, from the start times a scale, until its end."""

    def __init__(self, name, seed, scale, linear=False):
        self.X, self.Y = data(name, seed)
        self.name, self.linear = name, linear
        self.start = 10.0**scale * normal(seed, "full start", 4, D, D)
        begin = np.array([*self.start.flatten().tolist(), math.sqrt(D)])
        big = 1.2 * RISEN[name] * (100.0 if linear else 1.0)
        K, Q = self.start[:2].numpy()

        def over(_, y):
            """Both have come to where the stage looks at them, and a little farther."""
            W_K, W_Q = np.asarray(y)[:-1].reshape(4, D, D)[:2]
            turned = np.linalg.norm(W_K @ W_Q.T - K @ Q.T) / np.linalg.norm(K @ Q.T)
            large = np.linalg.norm(self.values(y), 2) / big
            return float(min(large, turned / (1.2 * PARAMS["turned"]))) - 1

        over.terminal = True  # pyright: ignore
        end = 1e3 if linear else PARAMS["end"]
        self.found = solve_ivp(self.slope, (0, end), begin, events=over, **METHOD)
        end = float(self.found.t[-1])
        self.times = np.linspace(0, end, 4001)
        self.path = self.found.sol(self.times).T

    def slope(self, _, y):
        W = torch.tensor(y, requires_grad=True)
        W_K, W_Q, W_V, W_O = W[:-1].unflatten(0, (4, D, D))
        A = attention(self.name, self.X, W_K, W_Q, W[-1])
        Z = A @ self.X @ W_V @ W_O.mT
        loss = (-2 * self.Y * Z if self.linear else (Z - self.Y).square()).mean()
        (g,) = torch.autograd.grad(-loss, W)
        if self.name != "whole" or self.linear:
            g[-1] = 0
        return g.numpy()

    def values(self, y):
        _, _, W_V, W_O = np.asarray(y)[:-1].reshape(4, D, D)
        return W_V @ W_O.T

    def reached(self, numbers, bar):
        """When numbers first come to a bar."""
        k = int(np.argmax(numbers >= bar))
        return float(self.times[k]) if numbers[k] >= bar else math.inf

    def quantities(self):
        W = self.path[:, :-1].reshape(-1, 4, D, D)
        W_K, W_Q, W_V, W_O = W.swapaxes(0, 1)
        K, Q = self.start[:2].numpy()
        update = W_K @ W_Q.swapaxes(-1, -2) - K @ Q.T
        sizes = np.linalg.svd(update, compute_uv=False)
        norms = np.linalg.norm(W[:, :2], axis=(-2, -1))
        cosine = (W_K * K).sum((-2, -1)) / (norms[:, 0] * np.linalg.norm(K))
        return {
            "turned": np.linalg.norm(update, axis=(-2, -1)) / np.linalg.norm(K @ Q.T),
            "sigma": np.linalg.svd(W_V @ W_O.swapaxes(-1, -2), compute_uv=False)[:, 0],
            "angle": np.degrees(np.arccos(cosine.clip(-1, 1))),
            "rank": (sizes**2).sum(-1) / np.maximum(sizes[:, 0] ** 2, 1e-300),
            "drift": np.abs(norms / norms[0] - 1).max(-1),
        }

    def growth(self, y):
        """σ₁ of minus the slope in W_VO at zero, under the attention of these weights."""
        W_K, W_Q = torch.tensor(y[:-1]).unflatten(0, (4, D, D))[:2]
        W_VO = torch.zeros(D, D, dtype=torch.float64, requires_grad=True)
        A = attention(self.name, self.X, W_K, W_Q, math.sqrt(D))
        (g,) = torch.autograd.grad(-(A @ self.X @ W_VO - self.Y).square().mean(), W_VO)
        return float(torch.linalg.matrix_norm(g, 2))


@pytest.mark.parametrize(("name", "seed", "scale"), CELLS)
def test_heads_turn_and_rise_when_scipys_integral_does(tables, name, seed, scale):
    heads = tables["heads"]
    [row] = heads[
        (heads["case"] == name) & (heads["seed"] == seed) & (heads["log10_init_scale"] == scale)
    ].to_dict("records")
    course = Course(name, seed, scale)
    seen = course.quantities()
    turn = course.reached(seen["turned"], PARAMS["turned"])
    rise = course.reached(seen["sigma"], RISEN[name])
    small = course.reached(seen["sigma"], PARAMS["small"])
    step = 2 * course.times[1]
    assert row["turn"] == pytest.approx(turn, rel=0.02, abs=step)
    assert row["rise"] == pytest.approx(rise, rel=0.02, abs=step)
    K, Q = course.start[:2].numpy()
    first = np.linalg.svd(K @ Q.T, compute_uv=False)
    assert row["rank_at_start"] == pytest.approx((first**2).sum() / first[0] ** 2)
    if turn < math.inf:
        at = int(np.searchsorted(course.times, turn))
        assert row["stable_rank"] == pytest.approx(seen["rank"][at], rel=0.02)
        assert row["drift"] == pytest.approx(seen["drift"][: at + 1].max(), rel=0.05, abs=2e-3)
    if small < min(max(turn, rise), math.inf):
        at = int(np.searchsorted(course.times, small))
        assert row["angle"] == pytest.approx(seen["angle"][at], rel=0.02, abs=0.1)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RISEN)
def test_the_limit_has_scipys_turn_and_rate(tables, name, seed):
    limits = tables["limits"]
    [row] = limits[(limits["case"] == name) & (limits["seed"] == seed)].to_dict("records")
    if name == "plain":
        start = Course(name, seed, SCALES[-1])
        assert row["start_growth"] == pytest.approx(start.growth(start.path[0]))
        assert row["growth"] == row["start_growth"]
        assert row["turn"] == math.inf
        return
    course = Course(name, seed, 0.0, linear=True)
    seen = course.quantities()
    assert row["start_growth"] == pytest.approx(course.growth(course.path[0]))
    assert row["turn"] == pytest.approx(
        course.reached(seen["turned"], PARAMS["turned"]), rel=0.02, abs=2 * course.times[1]
    )
    ends = [RISEN[name] / 10.0 ** (2 * scale) for scale in SCALES]
    if ends[0] > seen["sigma"][0]:
        begin, end = (course.reached(seen["sigma"], bar) for bar in ends)
        looks = np.linspace(begin, end, 60)
        rates = [course.growth(course.found.sol(time)) for time in looks]
        assert row["growth"] == pytest.approx(np.mean(rates), rel=0.02)


def test_courses_are_those_of_the_first_seed(tables):
    courses = tables["courses"]
    assert set(courses["seed"]) == {SEEDS[0]}
    assert set(courses["case"]) == set(RISEN)
    course = Course("whole", SEEDS[0], -1.0)
    own = courses[(courses["case"] == "whole") & (courses["log10_init_scale"] == -1.0)]
    seen = course.quantities()
    for column in ("turned", "sigma"):
        wanted = np.interp(own["time"], course.times, seen[column])
        np.testing.assert_allclose(own[column], wanted, rtol=0.03, atol=2e-3)
