"""Descents at the paper's size: every table and measure, against descent by automatic
differentiation on batches that are drawn here.
"""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import kendalltau

from lib.files.files import InputError
from tests.stages.made import generator, table

SEED = 5
N, D = 7, 3
RISEN, LEAST = 0.01, 0.3
LEVEL = 0.04
COLUMNS = (
    "name weights n_seeds first_seed batch_size log10_init_scale learning_rate n_steps look_every"
)
# On all samples, on three batches an epoch of which one is small, and of the diagonal head.
CASES = [
    ("all", "full", 1, 0, 7, -1.5, 0.9, 90, 6),
    ("some", "full", 2, 3, 3, -1.5, 0.9, 90, 6),
    ("diagonal", "diagonal", 2, 3, 3, -0.5, 0.3, 50, 4),
]
# Of the one stage table: when what joins with which sign, and all products then.
STAGES = f"""
seed       stage time coordinate sign p
{SEED}     0     0    -1         0    0,0,0,0,0,0
{SEED}     1     2.0  4          1    0,0,0,0,0.9,0
{SEED}     2     3    3          -1   0,0,0,-0.8,0.9,0
{SEED}     3     4    5          1    0,0,0,-0.8,0.9,0.2  # no significant product
{SEED + 1} 1     1    0          1    1,0,0,0,0,0  # of a seed that is not descended
"""
# Made events: what rises when; one of another sign, one of another scale.
FLOW = f"""
seed   coordinate sign time log10_init_scale rises
{SEED} 4          1    7.0  -.5              True
{SEED} 3          1    1    -.5              True
{SEED} 3          -1   9.5  -.5              True
{SEED} 4          1    1    -2               True
"""


def normal(*shape, source):
    return torch.randn(*shape, generator=source, dtype=torch.float64)


def toy():
    draw = torch.Generator().manual_seed(2)
    zero = torch.zeros(1, 2 * D, dtype=torch.float64)
    X, Y = normal(2, 1, N, 4, D, source=draw)
    Y = Y * torch.tensor([3.0, 5.0, 4.0])
    u, v = normal(2, 1, 2 * D, source=draw)
    return {"seeds": torch.tensor([SEED]), "X": X, "Y": Y, "teacher": zero, "u": u, "v": v}


def attention(X, W_KQ, W_VO):
    return torch.softmax(X @ W_KQ @ X.mT, -1) @ X @ W_VO


def batches(seed, size):
    source = generator(seed, "batches")
    while True:
        order = torch.randperm(N, generator=source)
        yield from (order[i : i + size] for i in range(0, N, size))


def descent(value, W, rate, n_steps, seed, size):
    """The weights at every step, on one batch after another."""
    chosen = batches(seed, size)
    for _ in range(n_steps + 1):
        W = [w.detach().requires_grad_() for w in W]
        yield [w.detach() for w in W]
        slopes = torch.autograd.grad(value(W, next(chosen)), W)
        W = [w - rate * g for w, g in zip(W, slopes, strict=True)]


def products(W):
    return W[0] @ W[1].T, W[2] @ W[3].T


def drawn(purpose):
    return list(normal(4, D, D, source=generator(SEED, purpose)))


def trained(X, case, seed):
    """The loss and both products at every look, of full matrices."""
    _, _, _, _, size, scale, rate, n_steps, every = case
    Y = attention(X, *(product / D for product in products(drawn("full teacher"))))

    def value(W, chosen):
        return (attention(X[chosen], *products(W)) - Y[chosen]).square().mean()

    everything = torch.arange(N)
    steps = descent(value, [10**scale * w for w in drawn("full start")], rate, n_steps, seed, size)
    for step, W in enumerate(steps):
        if step % every == 0:
            loss = value(W, everything) / Y.square().mean()
            yield step, float(loss), [torch.linalg.svdvals(one).numpy() for one in products(W)]


def rise(times, course):
    """When the logarithm first comes to that of the threshold, on straight lines."""
    for k, sigma in enumerate(course):
        if sigma >= RISEN:
            if k == 0:
                return times[0]
            logs = np.log([course[k - 1], sigma])
            return float(np.interp(math.log(RISEN), logs, times[k - 1 : k + 1]))
    return math.inf


def followed(task, case, seed):
    """The products and the loss at every step, of the diagonal head."""
    _, _, _, _, size, scale, rate, n_steps, _ = case
    X, Y = task["X"][0], task["Y"][0]

    def value(W, chosen):
        a, b = (W[0] * W[1]).chunk(2)
        found = attention(X[chosen], torch.diag(a), torch.diag(b))
        return (found - Y[chosen]).square().mean()

    start = [10**scale * task[name][0] for name in "uv"]
    for W in descent(value, start, rate, n_steps, seed, size):
        loss = value(W, torch.arange(N)) / Y.square().mean()
        yield (W[0] * W[1]).numpy(), float(loss)


def crossings(course):
    """When each product first rises to the threshold, and with which sign."""
    found = {}
    for step, p in enumerate(course):
        for i in np.flatnonzero(np.abs(p) >= LEVEL).tolist():
            found.setdefault(i, (step, int(np.sign(p[i]))))
    return found


@pytest.fixture
def run(stage, tmp_path):
    save_file(toy(), tmp_path / "task")
    table(STAGES).to_parquet(tmp_path / "stages")
    table(FLOW).to_parquet(tmp_path / "flow")

    def on(cases):
        lines = ["\t".join(map(str, case)) for case in (COLUMNS.split(), *cases)]
        (tmp_path / "cases.tsv").write_text("\n".join(lines), encoding="utf-8")
        sections = {"any.risen": RISEN, "any.level": LEVEL, "any.least": LEAST}
        read = [tmp_path / name for name in ("cases.tsv", "task", "stages", "flow")]
        stage("gradual_rank.paper_size", sections, *sections, *read, tmp_path / "m")
        names = ("spectra", "directions", "losses", "batches")
        tables = {
            name: pd.read_parquet(tmp_path / "m/tables" / f"{name}.parquet") for name in names
        }
        return tables, json.loads((tmp_path / "m/measures.json").read_text())

    return on


def rows_of(rows, name, seed):
    return rows[(rows["name"] == name) & (rows["batches"] == seed)]


def values(measures, name):
    return dict(zip(measures[name]["cases"], measures[name]["values"], strict=True))


KEPT = []  # what one run of the stage wrote


@pytest.fixture
def made(run):
    """The tables and the measures."""
    if not KEPT:
        KEPT.extend(run(CASES))
    return KEPT


def test_full_matrices_descend_and_rise_as_by_automatic_differentiation(made):
    tables, measures = made
    rises = {}
    for case, seed in ((CASES[0], 0), (CASES[1], 3), (CASES[1], 4)):
        rises[case[0], seed] = check_full(toy()["X"][0], tables, case, seed)
    check_rises(measures, rises)


def test_statements_name_the_sizes(made):
    setup = {"d_model": D, "n_samples": N, "some_batch_size": 3, "all_scale": "1e-1.5"}
    assert setup.items() <= made[1]["setup"].items()


def check_full(X, tables, case, seed):
    """Losses, and the singular values of the first seed; gives when what rises, by matrix."""
    name, rate, scale = case[0], case[6], case[5]
    looks = list(trained(X, case, seed))
    times = [step * rate for step, *_ in looks]
    losses = rows_of(tables["losses"], name, seed)
    np.testing.assert_allclose(losses["loss"], [loss for _, loss, _ in looks], rtol=1e-6)
    np.testing.assert_allclose(losses["time"], times)
    np.testing.assert_allclose(losses["rescaled_time"], np.divide(times, -scale * math.log(10)))
    found = {}
    for k, matrix in enumerate(("W_KQ", "W_VO")):
        courses = np.stack([sigma[k] for *_, sigma in looks])
        own = rows_of(tables["spectra"], name, seed)
        own = own[own["matrix"] == matrix]
        if seed != 4:
            np.testing.assert_allclose(np.stack(list(own["singular_values"])), courses, rtol=1e-5)
            assert own["step"].tolist() == [step for step, *_ in looks]
        else:
            assert own.empty
        found[matrix] = [rise(times, course) for course in courses.T]
        directions = rows_of(tables["directions"], name, seed)
        directions = directions[directions["matrix"] == matrix].sort_values("direction")
        np.testing.assert_allclose(directions["rise"], found[matrix], rtol=1e-5)
    return found


def check_rises(measures, rises):
    """What is counted, and the first rise beside the linear flow about zero."""
    assert np.isinf(rises["some", 3]["W_KQ"]).any()
    assert np.isfinite(rises["all", 0]["W_VO"]).sum() > 1
    reference = np.concatenate(list(rises["all", 0].values()))
    for (name, seed), found in rises.items():
        own = {key: values(measures, f"{name}_{key}")[str(seed)] for key in KEYS}
        assert own["rises_KQ"] == np.isfinite(found["W_KQ"]).sum()
        assert own["rises_VO"] == np.isfinite(found["W_VO"]).sum()
        first, second, never = sorted(found["W_VO"])
        assert never == math.inf
        assert own["least_gap"] == pytest.approx((second - first) / first, rel=1e-5)
        limit, stepped = forecast(0.9)
        assert own["first_rise_limit"] == pytest.approx(abs(limit / first - 1), rel=1e-5)
        assert own["first_rise_stepped"] == pytest.approx(abs(stepped / first - 1), rel=1e-5)
        both = np.concatenate(list(found.values()))
        off = [
            abs(b / a - 1) if b < math.inf else 1.0
            for a, b in zip(reference, both, strict=True)
            if a < math.inf
        ]
        assert own["descent_error"] == pytest.approx(np.median(off), rel=1e-4, abs=1e-9)


KEYS = (
    "rises_KQ",
    "rises_VO",
    "least_gap",
    "first_rise_limit",
    "first_rise_stepped",
    "descent_error",
)


def forecast(rate):
    """1 / σ₁, and when the joint direction of W_V and W_O that grows by 1 + η σ₁ a step rises."""
    X = toy()["X"][0]
    Y = attention(X, *(product / D for product in products(drawn("full teacher"))))
    W = torch.zeros(D, D, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad((attention(X, torch.zeros_like(W), W) - Y).square().mean(), W)
    U, sigma, V = np.linalg.svd(-slope.numpy())
    start = drawn("full start")
    joint = U[:, 0] @ start[2].numpy() + V[0] @ start[3].numpy()
    growth = math.log(4 * RISEN / (10**-3 * (joint @ joint)))
    return 1.5 * math.log(10) / sigma[0], growth / (2 * math.log(1 + rate * sigma[0]) / rate)


@pytest.mark.parametrize("seed", [3, 4])
def test_significant_products_activate_as_in_descent_and_beside_the_flow(made, seed):
    (tables, measures), task, case = made, toy(), CASES[2]
    rate, unit = case[6], 0.5 * math.log(10)
    looks = list(followed(task, case, seed))
    losses = rows_of(tables["losses"], "diagonal", seed)
    np.testing.assert_allclose(losses["loss"], [loss for _, loss in looks][::4], rtol=1e-6)
    crossed = crossings([p for p, _ in looks])
    own = rows_of(tables["batches"], "diagonal", seed).sort_values("stage")
    assert own["coordinate"].tolist() == [4, 3]
    measured = [
        crossed[i][0] * rate / unit if crossed.get(i, (0, 0))[1] == sign else math.inf
        for i, sign in ((4, 1), (3, -1))
    ]
    assert min(measured) < math.inf
    np.testing.assert_allclose(own["measured"], measured, rtol=1e-6)
    np.testing.assert_allclose(own["flow"], [7 / unit, 9.5 / unit], rtol=1e-6)
    np.testing.assert_allclose(own["predicted"], [2, 3])
    for key, theory in (("flow_error", own["flow"]), ("limit_error", own["predicted"])):
        errors = [
            abs(a - b) / b if a < math.inf else 1.0 for a, b in zip(measured, theory, strict=True)
        ]
        found = values(measures, f"diagonal_{key}")[str(seed)]
        assert found == pytest.approx(np.median(errors), rel=1e-6)
    tau = kendalltau(measured, own["flow"]).statistic
    assert values(measures, "diagonal_order")[str(seed)] == pytest.approx(tau)


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (CASES[:2], "wanted lines for full and for diagonal weights"),
        (
            [CASES[0], (*CASES[2][:5], -3, *CASES[2][6:])],
            r"wanted one of the flows' \[-2.*, got -3",
        ),
        (
            [CASES[0], (*CASES[2][:5], -2, 0.3, 1, 1)],
            "diagonal: n_steps: wanted steps in which .* in 1",
        ),
        ([(*CASES[0][:6], 1e9, *CASES[0][7:]), CASES[2]], "all: learning_rate: .*stays finite"),
    ],
)
def test_what_cannot_be_descended_or_judged_is_refused(run, cases, message):
    with pytest.raises(InputError, match=message):
        run(cases)
