"""The diagonal head under sign descent, Adam and gradient descent, and its sign flow, against plain
loops.
"""

import itertools
import math
import re
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.stats import kendalltau

from lib.files.files import InputError
from tests.gradual_rank.full_reference import normal

SECTION, PROBLEM, SOLVER = "any.signs", "any.problem", "any.solver"
PARAMS = {
    "n_seeds": 2,
    "first_seed": 9,
    "log10_init_scales": [-4, -6],
    "end": 0.5,
    "learning_rate": 0.005,
    "slope_rate": 2e-4,
    "descent_rate": 0.5,
}
SIZES = {"n_samples": 12, "seq_len": 4, "d_model": 2, "n_times": 3}
D, SEEDS = 2, (9, 10)
LEARNED = 1e-7  # so low that what is learned early tells the init scales apart


@cache
def head(seed):
    """The gradient of the loss in the products, minus it; the loss over that of nothing learned;
    the start's direction.
    """
    X = normal(seed, "tokens", 12, 4, D)

    def output(p):
        return torch.softmax(X * p[:D] @ X.mT, -1) @ X * p[D:]

    u, v = normal(seed, "teacher", 2, 2 * D)
    Y = output(u * v)

    def g(p):
        p = p.detach().requires_grad_()
        return -torch.autograd.grad((output(p) - Y).square().mean(), p)[0]

    def left(p):
        return float((output(p) - Y).square().mean() / Y.square().mean())

    return g, left, normal(seed, "start", 2, 2 * D)


@cache
def sign_descent(seed, scale):
    """τ, the products and g at every step: rates from the scale over 20 that grow by 5 % up to the
    largest.
    """
    g, _, start = head(seed)
    (u, v), time, n, found = 10**scale * start, 0.0, 0, []
    while True:
        slope = g(u * v)
        found.append((time, (u * v).numpy(), slope.numpy()))
        if time >= PARAMS["end"]:
            times, *courses = zip(*found, strict=True)
            return np.array(times), *map(np.stack, courses)
        rate = min(PARAMS["learning_rate"], 10**scale / 20 * 1.05**n)
        u, v = u + rate * (v * slope).sign(), v + rate * (u * slope).sign()
        time, n = time + rate, n + 1


def by_torch(seed, scale, make, **options):
    """u and v before every step of an optimiser of torch, without end."""
    g, _, start = head(seed)
    w = (10**scale * start).requires_grad_()
    optimizer = make([w], **options)
    while True:
        u, v = w.detach().clone()
        yield u, v
        w.grad = -torch.stack([v, u]) * g(u * v)
        optimizer.step()


def gradient_descent(seed, scale):
    return by_torch(seed, scale, torch.optim.SGD, lr=0.5)


def first_ray(g):
    """The signs of the first ray, q = s τ, p = q |q|: those of g at 0, and of g on the way for the
    others.
    """
    s = g(torch.zeros(2 * D, dtype=torch.float64)).sign()
    s[:D] = 0
    return torch.where(s != 0, s, g(1e-8 * s).sign())


def orders(times, path):
    """Kendall's tau of size and of when nine tenths of it are there: of all products, and of those
    of the values.
    """
    p = np.abs(path)
    ended = -times[(p >= 0.9 * p[-1]).argmax(0)]
    return [kendalltau(p[-1, k:], ended[k:]).statistic for k in (0, D)]


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if KEPT:
        return KEPT
    sections = {SECTION: PARAMS, PROBLEM: SIZES, SOLVER: {"threshold": LEARNED, "rtol": 1e-5}}
    stage("gradual_rank.signs", sections, SECTION, PROBLEM, SOLVER, tmp_path / "signs")
    names = ("changes", "events", "paths", "slopes", "diagonal", "rises")
    for name in names:
        KEPT[name] = pd.read_parquet(tmp_path / "signs" / f"{name}.parquet")
    return KEPT


def test_the_first_change_of_sign_is_that_of_small_steps(tables):
    changes = tables["changes"]
    cells = sorted(zip(changes["seed"], changes["log10_init_scale"], strict=True))
    assert cells == [(seed, scale) for seed in SEEDS for scale in (-32, -6, -4)]
    for row in changes.to_dict("records"):
        g, *_ = head(row["seed"])
        s = first_ray(g)
        times, p, slopes = sign_descent(row["seed"], row["log10_init_scale"])
        found = []
        for i, values in enumerate((slopes * s.numpy()).T):
            falls = np.flatnonzero((values[:-1] > 0) & (values[1:] < 0))
            if len(falls):
                k = falls[0]
                share = values[k] / (values[k] - values[k + 1])
                found.append((times[k] + share * (times[k + 1] - times[k]), i))
        first, coordinate = min(found, default=(math.inf, 0))
        assert row["measured"] == pytest.approx(first, rel=1e-6)
        assert row["measured_coordinate"] == coordinate
        on_ray = (times >= 0.01) & (times < row["measured"])
        off = np.abs(np.sqrt(np.abs(p[on_ray])) / times[on_ray, None] - 1)
        assert row["ray_error"] == pytest.approx(off.max(), rel=1e-6)
        if row["predicted"] < math.inf:
            at = [s * g(s * time**2) for time in (row["predicted"] - 1e-6, row["predicted"] + 1e-6)]
            i = row["predicted_coordinate"]
            assert at[0][i] > 0 > at[1][i]
            assert (torch.cat([at[0][:i], at[0][i + 1 :]]) > 0).all()


def test_paths_are_those_of_small_steps_of_the_weights_and_of_the_roots(tables):
    paths = tables["paths"]
    for (method, scale, seed), own in paths.groupby(["method", "log10_init_scale", "seed"]):
        looks = own.sort_values("time")
        assert looks["time"].iloc[-1] == pytest.approx(0.5)
        p = np.stack(list(looks["p"]))
        if method == "weights":
            times, path, _ = sign_descent(seed, scale)
            wanted = [np.interp(looks["time"], times, one) for one in path.T]
            np.testing.assert_allclose(p.T, wanted, rtol=1e-6, atol=1e-12)
        else:  # many small steps of the signed roots
            g, q, rate = head(seed)[0], torch.zeros(2 * D, dtype=torch.float64), 1e-3
            found = []
            for _ in range(501):
                found.append((q * q.abs()).numpy())
                q = q + rate * g(q * q.abs()).sign()
            wanted = np.stack(found)[np.rint(looks["time"] / rate).astype(int)]
            assert np.abs(wanted - p).max() < (0.004 if method == "flow" else 0.01)
    cells = set(zip(paths["method"], paths["log10_init_scale"], strict=True))
    assert cells == {("weights", -4), ("weights", -6), ("roots", -math.inf), ("flow", -math.inf)}
    assert set(tables["events"]["seed"]) == set(SEEDS)


def test_the_slopes_of_roots_are_those_of_adam_of_torch(tables):
    for row in tables["slopes"].to_dict("records"):
        betas = (0.9, row["beta_2"])
        steps = by_torch(row["seed"], -4, torch.optim.Adam, lr=2e-4, betas=betas)
        before, after = (u.mul(v).abs().sqrt() for u, v in itertools.islice(steps, 100, 201, 100))
        wanted = ((after - before) / (100 * 2e-4)).unflatten(0, (2, D)).median(-1).values
        assert (row["slope_KQ"], row["slope_VO"]) == pytest.approx(tuple(wanted.tolist()), rel=1e-6)


def test_gradient_descent_keeps_what_a_loop_of_it_keeps(tables):
    diagonal = tables["diagonal"]
    rows = diagonal[diagonal["optimizer"] == "gd"].set_index("seed")
    for seed in SEEDS:
        _, left, start = head(seed)
        looks = itertools.islice(gradient_descent(seed, -4), 0, None, 5)
        u, v = next((u, v) for u, v in looks if left(u * v) <= 0.9)
        assert rows.loc[seed, "rank_early"] == int(((u * v).abs() > LEARNED).sum())
        for power, name in ((1, "lengths_kept"), (2, "squares_kept")):
            before, after = (
                (a.abs() ** power - b.abs() ** power).abs() for a, b in (1e-4 * start, (u, v))
            )
            assert rows.loc[seed, name] == pytest.approx(float((after / before).median()), rel=1e-5)


def test_the_orders_of_sign_descent_are_those_of_a_loop(tables):
    diagonal = tables["diagonal"]
    of_signs, of_adam = (diagonal[diagonal["optimizer"] == name] for name in ("sign", "adam"))
    for row in of_signs.to_dict("records"):
        times, path, _ = sign_descent(row["seed"], row["log10_init_scale"])
        left = head(row["seed"])[1]
        early = [p for p in path[::5] if left(torch.from_numpy(p)) <= 0.9]
        assert row["rank_early"] == ((np.abs(early[0]) > LEARNED).sum() if early else -1)
        assert [row["order"], row["order_VO"]] == pytest.approx(orders(times, path))
    assert len(of_signs) == 4
    assert len(of_adam) == 2
    assert of_adam["order"].between(-1, 1).all()


def test_the_orders_of_gradient_flow_are_those_of_scipy(tables):
    """The path of u and v as they stand, until a millionth of the loss is left."""
    rows = tables["diagonal"]
    rows = rows[rows["optimizer"] == "gradient flow"]
    cells = sorted(zip(rows["log10_init_scale"], rows["seed"], strict=True))
    assert cells == [(scale, seed) for scale in (-6, -4) for seed in SEEDS]
    for row in rows.to_dict("records"):
        g, left, start = head(row["seed"])

        def rate(_, w, g=g):
            u, v = torch.from_numpy(w).chunk(2)
            return torch.cat([v, u]).numpy() * np.tile(g(u * v).numpy(), 2)

        def over(_, w, left=left):
            return left(torch.from_numpy(w[: 2 * D] * w[2 * D :])) - 1e-6

        over.terminal = True
        begun = (10 ** row["log10_init_scale"] * start).flatten().numpy()
        found = solve_ivp(
            rate, (0, 1e5), begun, "LSODA", events=over, dense_output=True, rtol=1e-8, atol=1e-13
        )
        assert len(found.t_events[0]) == 1
        times = np.linspace(0, found.t[-1], 40_001)
        path = found.sol(times).reshape(2, 2 * D, -1).prod(0).T
        assert [row["order"], row["order_VO"]] == pytest.approx(orders(times, path))
        early = next(p for p in path[::20] if left(torch.from_numpy(p)) <= 0.9)
        assert row["rank_early"] == (np.abs(early) > LEARNED).sum()


def test_first_rises_are_those_of_plain_loops(tables):
    """Every optimiser runs from every scale, and those that do not wait run from 1e-32, too."""
    rises = tables["rises"]
    cells = ["optimizer", "log10_init_scale", "seed"]
    assert len(rises.drop_duplicates(cells)) == len(rises) == 2 * (2 + 3 + 3)
    for row in rises.to_dict("records"):
        name, scale, seed = (row[key] for key in cells)
        if name == "sign":
            times, path, _ = sign_descent(seed, scale)
            wanted = times[(np.abs(path) > LEARNED).any(1).argmax()]
        else:
            adam = by_torch(seed, scale, torch.optim.Adam, lr=0.005)
            steps = gradient_descent(seed, scale) if name == "gd" else adam
            n = next(n for n, (u, v) in enumerate(steps) if ((u * v).abs() > LEARNED).any())
            wanted = n * (0.5 if name == "gd" else 0.005)
        assert row["first_rise"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("change", "got"),
    [
        ({"learning_rate": 1e-7}, "5000000 (0.5 in steps of 1e-07)"),
        (
            {"end": 1e9, "learning_rate": 1e9},
            "50000000000 (1e+09 in steps of 0.02)",
        ),  # those of sign flow
    ],
)
def test_more_than_a_million_steps_are_refused_before_any_descent(stage, tmp_path, change, got):
    sections = {SECTION: PARAMS | change, PROBLEM: SIZES, SOLVER: {"threshold": 1e-3}}
    said = (
        f"any.signs: end, learning_rate: wanted an end that takes at most 1000000 steps, got {got}"
    )
    with pytest.raises(InputError, match=re.escape(said)):
        stage("gradual_rank.signs", sections, SECTION, PROBLEM, SOLVER, tmp_path / "signs")
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]
