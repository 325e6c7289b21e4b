"""Weight decay: every table of the stage, against scipy's integrals of log|u ± v| and descent by
torch's own decay.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp

from lib.files.files import InputError
from tests.gradual_rank.gradual_rank_reference import TIGHT, Halves, Head, algorithm_1, head
from tests.stages.made import generator

SOLVER, THRESHOLD = "any.solver", "any.threshold"
NUMBERS = {
    "threshold": 0.02,
    "margin": 3,
    "kick": 1e-4,
    "stationary": 1e-5,
    "max_events": 20,
    "rtol": 1e-5,
    "atol": 1e-5,
    "curvature_share": 0.7,
}
SHARES, SCALES = (0, 0.4, 1.5), (-2, -5)
LINES = (
    "name\tn_seeds\tfirst_seed\tn_samples\tseq_len\td_model\tshares\tlog10_init_scales",
    "diagonal\t2\t5\t12\t3\t2\t[0, 0.4, 1.5]\t[-2, -5]",
    "full\t2\t5\t7\t3\t3\t[0, 0.4, 1.5]\t[-2, -3]",
)
SEEDS = (5, 6)
CASES = [(seed, share) for seed in SEEDS for share in SHARES]
N_STEPS = 54
# What of the method is made small.
METHOD = {"REST": 0.5, "N_LOOKS": 4, "RATE": 0.8, "MOST_STEPS": N_STEPS, "EVERY": 3}
METHOD |= {"REST_SCALE": -0.5}


@pytest.fixture
def run(stage, tmp_path, monkeypatch):
    def on(lines):
        (tmp_path / "decays.tsv").write_text("\n".join(lines), encoding="utf-8")
        for name, value in METHOD.items():
            monkeypatch.setattr(f"stages.gradual_rank.decay.{name}", value)
        sections = {SOLVER: NUMBERS, THRESHOLD: 0.1}
        stage("gradual_rank.decay", sections, *sections, tmp_path / "decays.tsv", tmp_path / "d")
        return {file.stem: pd.read_parquet(file) for file in sorted((tmp_path / "d").iterdir())}

    return on


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(run):
    if not KEPT:
        KEPT.update(run(LINES))
    return KEPT


def small_head(seed):
    """The loss of a head of the diagonal line, and its start."""
    [X] = torch.randn(1, 12, 3, 2, generator=generator(seed, "tokens"), dtype=torch.float64)
    u, v = torch.randn(2, 4, generator=generator(seed, "teacher"), dtype=torch.float64)
    start = torch.randn(2, 4, generator=generator(seed, "start"), dtype=torch.float64)
    return Head(X, head(X, u * v)), start.numpy()


@pytest.mark.parametrize(("seed", "share"), CASES)
def test_heads_follow_scipys_integrals_of_the_logarithms(tables, seed, share):
    loss, start = small_head(seed)
    largest = np.abs(loss.g(np.zeros(4))).max()
    decayed = Halves(loss, share * largest)
    stages = list(algorithm_1(decayed, lowest=-math.inf))
    check_stages(of(tables["stages"], seed, share), stages, loss)
    for scale in SCALES:
        cell = {"seed": seed, "share": share, "log10_init_scale": scale}
        check_flow(tables, cell, decayed, stages, start, largest)


def of(table, *values):
    """The rows of a table whose first columns have these values."""
    for column, value in zip(("seed", "share", "log10_init_scale"), values, strict=False):
        table = table[table[column] == value]
    return table


def products(q):
    plus, minus = q.reshape(2, -1)
    return plus - minus


def check_stages(rows, stages, loss):
    assert rows["stage"].tolist() == list(range(len(stages)))
    np.testing.assert_allclose(rows["time"], [s["time"] for s in stages], rtol=1e-4)
    np.testing.assert_allclose(rows["next_time"], [s["next_time"] for s in stages], rtol=1e-4)
    p = [products(s["p"]) for s in stages]
    np.testing.assert_allclose(np.stack(rows["p"].tolist()), p, atol=1e-5)
    assert rows["n_active"].tolist() == [(s["p"] > 0).sum() for s in stages]
    assert rows["n_dropped"].tolist() == [len(s["dropped"]) for s in stages]
    np.testing.assert_allclose(rows["loss"], [loss.relative(one) for one in p], atol=1e-6)


def check_flow(tables, cell, decayed, stages, start, largest):
    log_scale = cell["log10_init_scale"] * math.log(10)
    u, v = start
    w = np.concatenate([u + v, u - v])
    begin = np.log(np.abs(w)) + log_scale
    end = 1.5 * max(stages[-1]["time"], 1 / largest) * (3 - log_scale)

    def risen(i):
        def height(_, a):
            return a[i] - math.log(4 * 0.02) / 2

        height.direction = 1
        return height

    found = solve_ivp(
        lambda _, a: decayed.g(np.exp(2 * a) / 4),
        (0, end),
        begin,
        events=[risen(i) for i in range(8)],
        dense_output=True,
        **TIGHT,
    )
    measured = np.array([times[0] if len(times) else math.inf for times in found.t_events])
    rises = of(tables["rises"], *cell.values())
    assert rises["coordinate"].tolist() == [0, 1, 2, 3] * 2
    assert rises["sign"].tolist() == [1] * 4 + [-1] * 4
    np.testing.assert_allclose(rises["measured"], measured / -log_scale, rtol=1e-3)
    joins = np.full(8, np.inf)
    for stage in stages[:0:-1]:
        joins[stage["coordinate"]] = stage["time"]
    np.testing.assert_allclose(rises["predicted"], joins, rtol=1e-4)
    heights = np.max([stage["p"] for stage in stages], axis=0)
    np.testing.assert_allclose(rises["height"], heights, atol=1e-5)
    course = of(tables["courses"], *cell.values())
    looks = np.geomspace(end / 100, end, 4)
    np.testing.assert_allclose(course["rescaled_time"], looks / -log_scale, rtol=1e-4)
    path = [products(np.exp(2 * found.sol(time)) / 4) for time in looks]
    np.testing.assert_allclose(np.stack(course["p"].tolist()), path, atol=2e-3)
    check_head(tables, cell, decayed, measured, begin, path[-1], products(stages[-1]["p"]))


def check_head(tables, cell, decayed, measured, begin, p, last):
    [row] = of(tables["heads"], *cell.values()).to_dict("records")
    assert row["first_rise"] == pytest.approx(measured.min(), rel=1e-3)
    slope = decayed.g(np.zeros(8))
    waits = (math.log(4 * 0.02) / 2 - begin[slope > 0]) / slope[slope > 0]
    assert row["expected"] == pytest.approx(waits.min(initial=math.inf), rel=1e-9)
    assert row["rank"] == (np.abs(p) > 0.02).sum()
    assert row["product_error"] == pytest.approx(np.abs(p - last).max(), abs=1e-4)
    if not decayed.decay:
        assert math.isnan(row["rest_error"])
        assert math.isnan(row["ridge_error"])
        return
    g = decayed.loss.g(p) / decayed.decay
    on = np.abs(g - np.sign(p))[np.abs(p) > 1e-6].max(initial=0)
    assert row["rest_error"] == pytest.approx(max(on, np.abs(g).max() - 1), abs=1e-3)
    assert row["ridge_error"] == pytest.approx(np.abs(g - p).max(), abs=1e-3)


def output(X, W_K, W_Q, W_V, W_O):
    return torch.softmax(X @ W_K @ W_Q.T @ X.mT, -1) @ X @ W_V @ W_O.T


@pytest.mark.parametrize(("scale", "to_rest"), [(-0.5, True), (-2, False), (-3, False)])
def test_full_matrices_are_trained_as_by_torch(tables, scale, to_rest):
    full = tables["full"]
    assert len(full) == 2 * (2 + 3 + 3)
    rows = full[full["log10_init_scale"] == scale]
    assert (rows["to_rest"] == to_rest).all()
    trained = {
        (seed, share): train(seed, share, 10.0**scale)
        for seed, share in CASES
        if share < 1 or not to_rest
    }
    n_steps = N_STEPS
    if not to_rest:
        last = max(one["risen"] for (_, share), one in trained.items() if share < 1)
        assert (last < N_STEPS) == (scale == -2)  # from the smaller scale not all rise in time
        n_steps = min(N_STEPS, 3 * math.ceil(min(last, N_STEPS) / 3))
    for (seed, share), one in trained.items():
        [row] = of(rows, seed, share).to_dict("records")
        check_training(row, one, n_steps, scale)


def train(seed, share, scale):
    """The loss, the weights and the slopes at every step, and the first with a risen direction."""
    X, *_ = torch.randn(1, 7, 3, 3, generator=generator(seed, "tokens"), dtype=torch.float64)
    drawn = [
        torch.randn(4, 3, 3, generator=generator(seed, name), dtype=torch.float64)
        for name in ("full teacher", "full start")
    ]
    Y = output(X, *drawn[0] / math.sqrt(3))

    def loss_of(W_KQ, W_VO):
        return (torch.softmax(X @ W_KQ @ X.mT, -1) @ X @ W_VO - Y).square().mean()

    def slopes(W_KQ, W_VO):
        both = [one.detach().requires_grad_() for one in (W_KQ, W_VO)]
        return [-g for g in torch.autograd.grad(loss_of(*both), both)]

    zero = torch.zeros(3, 3, dtype=torch.float64)
    U, sigma, Vh = torch.linalg.svd(slopes(zero, zero)[1])
    joint = U[:, 0] @ drawn[1][2] + Vh[0] @ drawn[1][3]
    decay = share * float(sigma[0])
    W = [(scale * one).requires_grad_() for one in drawn[1]]
    sgd = torch.optim.SGD(W, lr=0.8, weight_decay=decay)
    path = []
    for _ in range(N_STEPS + 1):
        W_KQ, W_VO = W[0] @ W[1].T, W[2] @ W[3].T
        loss = loss_of(W_KQ, W_VO)
        path.append((loss.item(), [one.detach().clone() for one in W], slopes(W_KQ, W_VO)))
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    above = [float(torch.linalg.matrix_norm(W[2] @ W[3].T, 2)) >= 0.1 for _, W, _ in path]
    waits = math.log(0.4 / float((scale * joint).square().sum())) / 2
    growth = math.log1p(0.8 * (float(sigma[0]) - decay)) / 0.8
    return {
        "path": path,
        "risen": above.index(True) if any(above) else math.inf,
        "decay": decay,
        "expected": waits / growth if growth > 0 else math.inf,
        "initial": float(loss_of(zero, zero)),
    }


def check_training(row, trained, n_steps, scale):
    loss, W, slopes = trained["path"][n_steps]
    assert row["loss"] == pytest.approx(loss / trained["initial"])
    assert row["expected"] == pytest.approx(trained["expected"])
    courses = [
        math.log(float(torch.linalg.matrix_norm(w[2] @ w[3].T, 2)) / 0.1)
        for _, w, _ in trained["path"][: n_steps + 1 : 3]
    ]
    k = next((k for k, height in enumerate(courses) if height >= 0), None)
    if k is None:
        assert row["first_rise"] == math.inf
    else:
        share = courses[k] / (courses[k] - courses[k - 1]) if k else 0
        assert row["first_rise"] == pytest.approx(2.4 * (k - share))
    for name, (P, Q), G in zip(("KQ", "VO"), (W[:2], W[2:]), slopes, strict=True):
        U, sigma, Vh = torch.linalg.svd(P @ Q.T)
        n = int((sigma > 0.1).sum())
        assert row[f"rank_{name}"] == n
        squares = float(P.square().sum() + Q.square().sum()) / 2
        assert row[f"balance_{name}"] == pytest.approx(squares / float(sigma.sum()))
        if trained["decay"]:
            inner = U[:, :n].T @ G @ Vh[:n].T - trained["decay"] * torch.eye(n).double()
            on = float(torch.linalg.matrix_norm(inner, 2)) if n else 0
            off = float(torch.linalg.matrix_norm(G, 2)) - trained["decay"]
            assert row[f"on_{name}"] == pytest.approx(on / trained["decay"], abs=1e-9)
            assert row[f"off_{name}"] == pytest.approx(off / trained["decay"], abs=1e-9)


def test_what_is_written_is_nothing_else(tables):
    assert set(tables) == {"stages", "rises", "heads", "courses", "full"}


def test_decays_without_zero_are_refused_as_nothing_could_be_compared(run):
    lines = [line.replace("[0, 0.4, 1.5]", "[0.5]") for line in LINES]
    with pytest.raises(InputError, match=r"shares: wanted 0, no decay, among them, got \[0.5\]"):
        run(lines)


def test_a_table_with_one_kind_of_head_is_refused(run):
    wanted = r"wanted a line for diagonal and one for full, got \['diagonal'\]"
    with pytest.raises(InputError, match=wanted):
        run(LINES[:2])
