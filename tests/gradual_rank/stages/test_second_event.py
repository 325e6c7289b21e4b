"""What rises second: what the stage writes, against all weights by an explicit method of order 8.

Theory is computed anew, from slopes by autograd and an optimum of rank one by descent.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp

from tests.gradual_rank.full_reference import normal, output, reached, taught

N = 12
T = 4
D = 3
RISEN = 0.05
SEEDS = (5, 6)
SCALES = (-2, -3)
RANKS = {"whole": 3, "one": 1}
SECTIONS = {
    "any.events": {"n_seeds": 2, "first_seed": 5, "n_samples": N, "longest": 0.01},
    "any.full": {"d_model": D, "seq_len": T, "threshold": RISEN},
}
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if not KEPT:
        rows = [f"{name}\t{rank}\t{list(SCALES)}" for name, rank in RANKS.items()]
        text = "\n".join(["name\tteacher_rank\tlog10_init_scales", *rows])
        (tmp_path / "e.tsv").write_text(text, encoding="utf-8")
        stage("gradual_rank.second_event", SECTIONS, *SECTIONS, tmp_path / "e.tsv", tmp_path / "f")
        for file in sorted((tmp_path / "f").iterdir()):
            KEPT[file.stem] = pd.read_parquet(file)
    return KEPT


def loss(seed, rank):
    X = normal(seed, "tokens", N, T, D)
    Y = taught(X, seed, rank)
    return lambda W: (output(X, *W) - Y).square().mean()


def followed(seed, rank, scale, end):
    """Sizes of W_KQ and W_VO along the flow of all weights."""
    value = loss(seed, rank)

    def velocity(_, x):
        W = torch.from_numpy(x.reshape(4, D, D)).requires_grad_()
        (slope,) = torch.autograd.grad(value(W), W)
        return -slope.numpy().ravel()

    start = 10**scale * normal(seed, "full start", 4, D, D).numpy().ravel()
    times = np.linspace(0, end, 1500)
    path = solve_ivp(velocity, (0, end), start, "DOP853", times, rtol=1e-7, atol=1e-11).y.T
    W_K, W_Q, W_V, W_O = np.moveaxis(path.reshape(-1, 4, D, D), 1, 0)
    svd = [np.linalg.svd(P @ Q.swapaxes(-1, -2)) for P, Q in ((W_K, W_Q), (W_V, W_O))]
    return times, *svd


def slopes(seed, rank, W_VO):
    """Minus the slopes in both products at uniform attention, by autograd."""
    value = loss(seed, rank)
    eye = torch.eye(D, dtype=torch.float64)
    W = torch.stack([torch.zeros_like(eye), W_VO]).requires_grad_()
    found = torch.autograd.grad(value((W[0], eye, W[1], eye)), W)[0]
    return [np.linalg.svd(-one.numpy()) for one in found]


def optimum(seed, rank):
    """The W_VO of rank one that descent from its best direction comes to."""
    value = loss(seed, rank)
    eye = torch.eye(D, dtype=torch.float64)
    zero = torch.zeros_like(eye)
    U, _, Vh = slopes(seed, rank, zero)[1]
    ab = torch.from_numpy(np.stack([U[:, 0], Vh[0]])).requires_grad_()
    search = torch.optim.LBFGS(
        [ab], 1, 500, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure():
        search.zero_grad()
        found = value((zero, eye, torch.outer(*ab), eye))
        found.backward()
        return found.detach()

    search.step(closure)
    return torch.outer(*ab.detach())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", RANKS)
def test_the_limit_is_that_of_slopes_at_zero_and_at_the_optimum(tables, case, seed):
    heads = tables["heads"]
    [row] = heads[(heads["case"] == case) & (heads["seed"] == seed)].to_dict("records")
    rank = RANKS[case]
    _, at_zero = slopes(seed, rank, torch.zeros(D, D, dtype=torch.float64))
    of_KQ, of_VO = slopes(seed, rank, optimum(seed, rank))
    sigma, sigma_2 = at_zero[1][:2]
    assert row["sigma"] == pytest.approx(sigma)
    assert row["sigma_2"] == pytest.approx(sigma_2, abs=1e-12)
    assert row["kappa"] == pytest.approx(of_KQ[1][0], rel=1e-4)
    assert row["tau"] == pytest.approx(of_VO[1][0], rel=1e-4, abs=1e-6)
    assert row["limit_first"] == pytest.approx(1 / sigma)
    keys = 1 / sigma + 1 / of_KQ[1][0]
    if case == "one":
        assert row["limit_keys"] == pytest.approx(keys, rel=1e-4)
        assert row["before"] == 1
        assert math.isnan(row["crossing"])
        return
    second = 1 / sigma + (1 - sigma_2 / sigma) / of_VO[1][0]
    assert row["limit_values"] == pytest.approx(second, rel=1e-4)
    assert (row["before"] == 1) == (keys < second)
    if keys < second:
        assert row["limit_keys"] == pytest.approx(keys, rel=1e-4)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("case", "scale"), [("whole", -2), ("whole", -3), ("one", -2)])
def test_rises_are_those_of_the_flow_of_all_weights(tables, case, seed, scale):
    rises = tables["rises"]
    own = rises[(rises["case"] == case) & (rises["seed"] == seed)]
    [row] = own[own["log10_init_scale"] == scale].to_dict("records")
    rank = RANKS[case]
    times, (U, keys, Vh), (_, values, _) = followed(seed, rank, scale, 1.05 * row["keys"])
    wanted = reached(times, keys[:, 0], RISEN)
    assert row["first"] == pytest.approx(reached(times, values[:, 0], RISEN), rel=1e-3)
    assert row["keys"] == pytest.approx(wanted, rel=1e-3)
    second = reached(times, values[:, 1], RISEN)
    assert row["values"] == pytest.approx(second if second < wanted else math.inf, rel=1e-3)
    assert row["first_said"] == pytest.approx(row["first"], rel=0.05)
    assert row["keys_said"] == pytest.approx(row["keys"], rel=0.05)
    if tables["heads"].query("case == @case and seed == @seed")["before"].iloc[0] == 1:
        k = int(np.searchsorted(times, wanted))
        u, _, vh = slopes(seed, rank, optimum(seed, rank))[0]
        along = abs(u[:, 0] @ U[k, :, 0]) * abs(vh[0] @ Vh[k, 0])
        assert row["overlap"] == pytest.approx(along, abs=2e-2)


def test_courses_end_where_keys_have_risen(tables):
    courses = tables["courses"]
    for _, own in courses.groupby(["case", "seed", "log10_init_scale"]):
        assert own["sigma_keys"].max() == own["sigma_keys"].iloc[-1] >= RISEN
        assert (own["sigma_values"] >= own["sigma_values_2"]).all()
