"""Weight decay: every table of the stage, against scipy's integrals of log|u ± v| and descent by
torch's own decay.
"""

import math
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp

from lib.files.files import InputError
from tests.gradual_rank.full_reference import (
    descent,
    first_rise,
    growth_at_zero,
    normal,
    output,
    reached,
    sigma,
    taught,
)
from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    TIGHT,
    Halves,
    Head,
    algorithm_1,
    compare,
    head,
)

SHARES, SCALES = (0, 0.4, 1.5), (-2, -5)
LINES = (
    "name\tn_seeds\tfirst_seed\tn_samples\tseq_len\td_model\tshares\tlog10_init_scales",
    "diagonal\t2\t5\t12\t3\t2\t[0, 0.4, 1.5]\t[-2, -5]",
    "full\t2\t5\t7\t3\t3\t[0, 0.4, 1.5]\t[-2, -3]",
)
SEEDS = (5, 6)
CASES = [(seed, share) for seed in SEEDS for share in SHARES]
N_STEPS = 54
WITHIN = {"rtol": 1e-4, "atol": 0}
# The parts of the method that are made small.
METHOD = {"REST": 0.5, "N_LOOKS": 4, "RATE": 0.8, "MOST_STEPS": N_STEPS, "EVERY": 3}
METHOD |= {"REST_SCALE": -0.5, "REST_EVERY": 3}


@pytest.fixture
def run(stage, tmp_path, monkeypatch):
    def on(lines):
        (tmp_path / "decays.tsv").write_text("\n".join(lines), encoding="utf-8")
        for name, value in METHOD.items():
            monkeypatch.setattr(f"stages.gradual_rank.decay.{name}", value)
        sections = {"any.solver": SOLVER, "any.threshold": 0.1}
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
    X = normal(seed, "tokens", 12, 3, 2)
    u, v = normal(seed, "teacher", 2, 4)
    return Head(X, head(X, u * v)), normal(seed, "start", 2, 4).numpy()


@pytest.mark.parametrize(("seed", "share"), CASES)
def test_heads_follow_scipys_integrals_of_the_logarithms(tables, seed, share):
    loss, start = small_head(seed)
    largest = np.abs(loss.g(np.zeros(4))).max()
    decayed = Halves(loss, share * largest)
    stages = list(algorithm_1(decayed, lowest=-math.inf))
    cell = {"seed": seed, "share": share}
    check_stages(tables["stages"], cell, stages)
    for scale in SCALES:
        check_flow(tables, cell | {"log10_init_scale": scale}, decayed, stages, start, largest)


def of(table, cell):
    """The rows of a table whose columns have these values."""
    for column, value in cell.items():
        table = table[table[column] == value]
    return table


def near(atol):
    return {"rtol": 0, "atol": atol}


def products(q):
    plus, minus = q.reshape(2, -1)
    return plus - minus


def check_stages(table, cell, stages):
    plateaus = [products(stage["p"]) for stage in stages]
    rows = [
        {
            **cell,
            "stage": k,
            "time": stage["time"],
            "p": p,
            "n_dropped": len(stage["dropped"]),
        }
        for k, (stage, p) in enumerate(zip(stages, plateaus, strict=True))
    ]
    compare(of(table, cell), rows, WITHIN, p=near(1e-5))


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
    joins = np.full(8, np.inf)
    for stage in stages[:0:-1]:
        joins[stage["coordinate"]] = stage["time"]
    rises = {
        **cell,
        "coordinate": [0, 1, 2, 3] * 2,
        "sign": [1] * 4 + [-1] * 4,
        "measured": measured / -log_scale,
        "predicted": joins,
        "height": np.max([stage["p"] for stage in stages], axis=0),
    }
    ours = of(tables["rises"], cell)
    compare(ours, rises, WITHIN, measured={"rtol": 1e-3}, height=near(1e-5))
    looks = np.geomspace(end / 100, end, 4)
    path = [products(np.exp(2 * found.sol(time)) / 4) for time in looks]
    course = {**cell, "rescaled_time": looks / -log_scale, "p": path}
    compare(of(tables["courses"], cell), course, WITHIN, p=near(2e-3))
    p = path[-1]
    slope = decayed.g(np.zeros(8))
    waits = (math.log(4 * 0.02) / 2 - begin[slope > 0]) / slope[slope > 0]
    head = {
        **cell,
        "first_rise": measured.min(),
        "expected": waits.min(initial=math.inf),
        "rank": (np.abs(p) > 0.02).sum(),
        "product_error": np.abs(p - products(stages[-1]["p"])).max(),
        "rest_error": math.nan,
        "ridge_error": math.nan,
    }
    if decayed.decay:
        g = decayed.loss.g(p) / decayed.decay
        on = np.abs(g - np.sign(p))[np.abs(p) > 1e-6].max(initial=0)
        head["rest_error"] = max(on, np.abs(g).max() - 1)
        head["ridge_error"] = np.abs(g - p).max()
    tolerances = {"first_rise": {"rtol": 1e-3}, "expected": {"rtol": 1e-9}}
    tolerances["product_error"] = near(1e-4)
    compare(of(tables["heads"], cell), [head], near(1e-3), **tolerances)


@pytest.mark.parametrize(("scale", "to_rest"), [(-0.5, True), (-2, False), (-3, False)])
def test_full_matrices_are_trained_as_by_autograd(tables, scale, to_rest):
    full = tables["full"]
    assert len(full) == 2 * (2 + 3 + 3)
    rows = full[full["log10_init_scale"] == scale]
    assert (rows["to_rest"] == to_rest).all()
    trained = {
        (seed, share): train(seed, share, 10.0**scale)
        for seed, share in CASES
        if share < 1 or not to_rest
    }
    all_rise = []
    for seed in SEEDS:
        own = {share: one for (whose, share), one in trained.items() if whose == seed}
        n_steps = N_STEPS
        if not to_rest:  # each seed ends when all of its own that can rise have risen
            courses = [one["largest"] for share, one in own.items() if share < 1]
            risen = (np.min(courses, axis=0) >= 0.1).tolist()
            all_rise.append(any(risen))
            n_steps = 3 * math.ceil(risen.index(True) / 3) if any(risen) else N_STEPS
        for share, one in own.items():
            [row] = of(rows, {"seed": seed, "share": share}).to_dict("records")
            check_training(row, one, n_steps)
    if not to_rest:  # from the smaller scale not all rise in time
        assert all(all_rise) == (scale == -2)


def train(seed, share, scale):
    """What is trained, the loss and the weights at every step, and the forecast of the first
    rise.
    """
    X = normal(seed, "tokens", 7, 3, 3)
    Y = taught(X, seed)
    decay = share * growth_at_zero(X, Y)[0]
    start = scale * normal(seed, "full start", 4, 3, 3)
    steps = descent(
        lambda W: (output(X, *W) - Y).square().mean(), start, lambda W, g: W - 0.8 * (g + decay * W)
    )
    losses, W = zip(*islice(steps, N_STEPS + 1), strict=True)
    return {
        "data": (X, Y),
        "shares": [loss / float(Y.square().mean()) for loss in losses],
        "W": W,
        "largest": [sigma(*w[2:])[0] for w in W],
        "decay": decay,
        "expected": first_rise(X, Y, start, 0.1, 0.8, decay)["stepped"],
    }


def check_training(row, trained, n_steps):
    W_K, W_Q, W_V, W_O = trained["W"][n_steps]
    looks = range(0, n_steps + 1, 3)
    rise = reached([0.8 * k for k in looks], [trained["largest"][k] for k in looks], 0.1)
    wanted = {"loss": trained["shares"][n_steps], "expected": trained["expected"]}
    wanted |= {"first_rise": rise}
    decay = trained["decay"]
    X, Y = trained["data"]
    both = [(W_K @ W_Q.T).requires_grad_(), (W_V @ W_O.T).requires_grad_()]
    loss = (torch.softmax(X @ both[0] @ X.mT, -1) @ X @ both[1] - Y).square().mean()
    slopes = torch.autograd.grad(-loss, both)
    for name, P, Q, G in zip(("KQ", "VO"), (W_K, W_V), (W_Q, W_O), slopes, strict=True):
        U, values, Vh = torch.linalg.svd(P @ Q.T)
        n = int((values > 0.1).sum())
        wanted[f"rank_{name}"] = n
        if decay:
            inner = U[:, :n].T @ G @ Vh[:n].T - decay * torch.eye(n).double()
            on = float(torch.linalg.matrix_norm(inner, 2)) if n else 0
            wanted[f"on_{name}"] = on / decay
            wanted[f"off_{name}"] = float(torch.linalg.matrix_norm(G, 2)) / decay - 1
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, abs=1e-9)


def test_decays_without_zero_are_refused_as_nothing_could_be_compared(run):
    lines = [line.replace("[0, 0.4, 1.5]", "[0.5]") for line in LINES]
    with pytest.raises(InputError, match=r"shares: wanted 0, no decay, among them, got \[0.5\]"):
        run(lines)


def test_a_table_with_one_kind_of_head_is_refused(run):
    wanted = r"wanted a line for diagonal and one for full, got \['diagonal'\]"
    with pytest.raises(InputError, match=wanted):
        run(LINES[:2])
