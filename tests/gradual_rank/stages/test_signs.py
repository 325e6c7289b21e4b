"""The diagonal head under sign descent, Adam and gradient descent, and its sign flow, against plain
loops.
"""

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.stats import kendalltau

from lib.files.files import InputError
from tests.stages.made import generator

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


def head(seed):
    """The gradient of the loss in the products, minus it, and the loss; the start's direction."""
    X = torch.randn(12, 4, D, generator=generator(seed, "tokens"), dtype=torch.float64)

    def output(p):
        return torch.softmax(X * p[:D] @ X.mT, -1) @ X * p[D:]

    u, v = torch.randn(2, 2 * D, generator=generator(seed, "teacher"), dtype=torch.float64)
    Y = output(u * v)

    def loss(p):
        return (output(p) - Y).square().mean()

    def g(p):
        p = p.detach().requires_grad_()
        return -torch.autograd.grad(loss(p), p)[0]

    return g, loss, torch.randn(2, 2 * D, generator=generator(seed, "start"), dtype=torch.float64)


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
            return found
        rate = min(PARAMS["learning_rate"], 10**scale / 20 * 1.05**n)
        u, v = u + rate * (v * slope).sign(), v + rate * (u * slope).sign()
        time, n = time + rate, n + 1


def first_ray(g):
    """The signs of the first ray, q = s τ, p = q |q|: those of g at 0, and of g on the way for the
    others.
    """
    s = g(torch.zeros(2 * D, dtype=torch.float64)).sign()
    s[:D] = 0
    return torch.where(s != 0, s, g(1e-8 * s).sign())


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
        steps = sign_descent(row["seed"], row["log10_init_scale"])
        found = []
        for i in range(2 * D):
            signs = [float(s[i]) * slope[i] for _, _, slope in steps]
            k = next((k for k in range(1, len(steps)) if signs[k] < 0 < signs[k - 1]), None)
            if k is not None:
                share = signs[k - 1] / (signs[k - 1] - signs[k])
                found.append((steps[k - 1][0] + share * (steps[k][0] - steps[k - 1][0]), i))
        first, coordinate = min(found, default=(math.inf, 0))
        assert row["measured"] == pytest.approx(first, rel=1e-6)
        assert row["measured_coordinate"] == coordinate
        on_ray = [(time, p) for time, p, _ in steps if 0.01 <= time < row["measured"]]
        off = [abs(math.sqrt(abs(one)) / time - 1) for time, p in on_ray for one in p]
        assert row["ray_error"] == pytest.approx(max(off), rel=1e-6)
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
            steps = sign_descent(seed, scale)
            for i in range(2 * D):
                wanted = np.interp(
                    looks["time"], [t for t, *_ in steps], [one[i] for _, one, _ in steps]
                )
                np.testing.assert_allclose(p[:, i], wanted, rtol=1e-6, atol=1e-12)
        else:  # many small steps of the signed roots
            g, q, rate = head(seed)[0], torch.zeros(2 * D, dtype=torch.float64), 1e-3
            found = []
            for _ in range(501):
                found.append(q.numpy().copy())
                q = q + rate * g(q * q.abs()).sign()
            roots = np.stack(found)[np.rint(looks["time"] / rate).astype(int)]
            off = np.abs(roots * np.abs(roots) - p).max()
            assert off < (0.004 if method == "flow" else 0.01)
    cells = set(zip(paths["method"], paths["log10_init_scale"], strict=True))
    assert cells == {("weights", -4), ("weights", -6), ("roots", -math.inf), ("flow", -math.inf)}
    assert set(tables["events"]["seed"]) == set(SEEDS)


def test_the_slopes_of_roots_are_those_of_adam_of_torch(tables):
    for row in tables["slopes"].to_dict("records"):
        g, _, start = head(row["seed"])
        w = [(1e-4 * one).requires_grad_() for one in start]
        adam, rate = torch.optim.Adam(w, lr=2e-4, betas=(0.9, row["beta_2"])), 2e-4
        roots = []
        for n in range(201):
            if n in (100, 200):
                roots.append((w[0] * w[1]).detach().abs().sqrt())
            slope = g(w[0] * w[1])
            w[0].grad, w[1].grad = -(w[1].detach() * slope), -(w[0].detach() * slope)
            adam.step()
        wanted = ((roots[1] - roots[0]) / (100 * rate)).unflatten(0, (2, D)).median(-1).values
        assert (row["slope_KQ"], row["slope_VO"]) == pytest.approx(tuple(wanted.tolist()), rel=1e-6)


def test_gradient_descent_keeps_what_a_loop_of_it_keeps(tables):
    diagonal = tables["diagonal"]
    rows = diagonal[diagonal["optimizer"] == "gd"].set_index("seed")
    for seed in SEEDS:
        g, loss, start = head(seed)
        (u, v), n = 1e-4 * start, 0
        begin = loss(torch.zeros(2 * D, dtype=torch.float64))
        while True:
            p = u * v
            count = int((p.abs() > LEARNED).sum())
            if n % 5 == 0 and loss(p) <= 0.9 * begin:
                break
            slope = g(p)
            u, v, n = u + 0.5 * v * slope, v + 0.5 * u * slope, n + 1
        assert rows.loc[seed, "rank_early"] == count
        for power, name in ((1, "lengths_kept"), (2, "squares_kept")):
            before, after = (
                (a.abs() ** power - b.abs() ** power).abs() for a, b in (1e-4 * start, (u, v))
            )
            assert rows.loc[seed, name] == pytest.approx(float((after / before).median()), rel=1e-5)


def test_the_orders_of_sign_descent_are_those_of_a_loop(tables):
    diagonal = tables["diagonal"]
    for row in diagonal[diagonal["optimizer"] == "sign"].to_dict("records"):
        loss, steps = head(row["seed"])[1], sign_descent(row["seed"], row["log10_init_scale"])
        times, path = [time for time, *_ in steps], np.stack([p for _, p, _ in steps])
        begin = loss(torch.zeros(2 * D, dtype=torch.float64))
        early = [
            n for n in range(0, len(steps), 5) if loss(torch.from_numpy(path[n])) <= 0.9 * begin
        ]
        assert row["rank_early"] == ((np.abs(path[early[0]]) > LEARNED).sum() if early else -1)
        ended = [times[int(np.argmax(np.abs(p) >= 0.9 * abs(p[-1])))] for p in path.T]
        assert row["order"] == pytest.approx(
            kendalltau(np.abs(path[-1]), [-t for t in ended]).statistic
        )
        assert row["order_VO"] == pytest.approx(
            kendalltau(np.abs(path[-1, D:]), [-t for t in ended[D:]]).statistic
        )
    assert len(diagonal[diagonal["optimizer"] == "sign"]) == 4
    adam = diagonal[diagonal["optimizer"] == "adam"]
    assert len(adam) == 2
    assert adam["order"].between(-1, 1).all()


def test_the_orders_of_gradient_flow_are_those_of_scipy(tables):
    """Of u and v as they stand, until a millionth of the loss is left."""
    rows = tables["diagonal"]
    rows = rows[rows["optimizer"] == "gradient flow"]
    assert sorted(zip(rows["log10_init_scale"], rows["seed"], strict=True)) == [
        (s, n) for s in (-6, -4) for n in SEEDS
    ]
    for row in rows.to_dict("records"):
        g, loss, start = head(row["seed"])
        begin = float(loss(torch.zeros(2 * D, dtype=torch.float64)))

        def rate(_, w, g=g):
            slope = g(torch.from_numpy(w[: 2 * D] * w[2 * D :])).numpy()
            return np.concatenate([w[2 * D :] * slope, w[: 2 * D] * slope])

        def left(_, w, loss=loss, begin=begin):
            return float(loss(torch.from_numpy(w[: 2 * D] * w[2 * D :]))) / begin - 1e-6

        left.terminal = True
        begun = (10 ** row["log10_init_scale"] * start).flatten().numpy()
        found = solve_ivp(
            rate, (0, 1e5), begun, "LSODA", events=left, dense_output=True, rtol=1e-8, atol=1e-13
        )
        assert len(found.t_events[0]) == 1
        u, v = np.split(found.sol(np.linspace(0, found.t[-1], 40_001)), 2)
        path, times = np.abs(u * v), np.linspace(0, found.t[-1], 40_001)
        ended = [-times[np.argmax(own >= 0.9 * own[-1])] for own in path]
        assert row["order"] == pytest.approx(kendalltau(path[:, -1], ended).statistic)
        assert row["order_VO"] == pytest.approx(kendalltau(path[D:, -1], ended[D:]).statistic)
        early = next(
            k
            for k in range(0, 40_001, 20)
            if left(0, np.concatenate([u[:, k], v[:, k]])) <= 0.9 - 1e-6
        )
        assert row["rank_early"] == (path[:, early] > LEARNED).sum()


def test_first_rises_are_those_of_plain_loops(tables):
    """Every optimiser from every scale, and those that do not wait from 1e-32 too."""
    rises = tables["rises"]
    cells = {
        (row["optimizer"], row["log10_init_scale"], row["seed"]): row["first_rise"]
        for _, row in rises.iterrows()
    }
    assert len(cells) == len(rises) == 2 * (2 + 3 + 3)
    for (name, scale, seed), found in cells.items():
        if name == "sign":
            wanted = next(
                time for time, p, _ in sign_descent(seed, scale) if (np.abs(p) > LEARNED).any()
            )
            assert found == pytest.approx(wanted)
            continue
        g, _, start = head(seed)
        w = [(10**scale * one).requires_grad_() for one in start]
        rate = 0.5 if name == "gd" else 0.005
        steps = torch.optim.SGD(w, lr=rate) if name == "gd" else torch.optim.Adam(w, lr=rate)
        n = 0
        while not ((w[0] * w[1]).detach().abs() > LEARNED).any():
            slope = g(w[0] * w[1])
            w[0].grad, w[1].grad = -(w[1].detach() * slope), -(w[0].detach() * slope)
            steps.step()
            n += 1
        assert found == pytest.approx(rate * n)


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
