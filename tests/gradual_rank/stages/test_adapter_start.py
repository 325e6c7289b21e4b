"""LoRA's start: every table of the stage, against scipy's LSODA and formulas by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scipy.integrate import quad, solve_ivp

from lib.files.files import InputError
from tests.gradual_rank.full_reference import normal
from tests.stages.made import generator

COLUMNS = (
    "name rule start n_seeds first_seed n_samples seq_len d_model targets scaling ranks ratios "
    "log10_init_scales"
)
TWO = "[1, 0.5]"
LINES = (
    ("apart", "flow", "zero", 2, 5, 0, 1, 4, TWO, 1, "[2, 3]", "[1, 4]", "[-2]"),
    ("close", "flow", "zero", 1, 5, 0, 1, 3, "[1, 0.9]", 1, "[2]", "[1]", "[-1]"),
    ("head", "flow", "zero", 1, 6, 7, 3, 3, "[1, 0.4]", 2, "[3]", "[1]", "[-1]"),
    ("plus", "flow", "zero", 1, 5, 0, 1, 3, "[1]", 1, "[1]", "[0.25]", "[-1]"),
    ("scaled", "flow", "zero", 1, 5, 0, 1, 3, "[1]", 3, "[1]", "[1]", "[-1]"),
    ("both", "flow", "both", 1, 5, 0, 1, 3, "[1]", 1, "[2]", "[1]", "[-2]"),
    ("output", "flow", "output", 1, 5, 0, 1, 3, "[1]", 1, "[2]", "[1]", "[-2]"),
    ("adam", "adam", "zero", 1, 5, 0, 1, 4, TWO, 1, "[2]", "[1]", "[-2]"),
)


@pytest.fixture
def run(stage, tmp_path):
    def on(lines):
        text = [COLUMNS.split(), *([str(cell) for cell in line] for line in lines)]
        table = "\n".join("\t".join(line) for line in text)
        (tmp_path / "adapters.tsv").write_text(table, encoding="utf-8")
        stage("gradual_rank.adapter_start", {}, tmp_path / "adapters.tsv", tmp_path / "d")
        return [pd.read_parquet(tmp_path / f"d/{name}.parquet") for name in ("learned", "courses")]

    return on


KEPT = []  # what one run of the stage wrote


@pytest.fixture
def tables(run):
    if not KEPT:
        KEPT.extend(run(LINES))
    return KEPT


def layer(seed, n_samples, seq_len, d, targets):
    """G at the start and the curvature H, of a matrix or of a head, in the layer's W x."""
    U, V = torch.linalg.qr(normal(seed, "adapter's task", 2, d, d)).Q[..., : len(targets)]
    change = U @ torch.diag(torch.tensor(targets).double()) @ V.T
    if not n_samples:
        return change.numpy(), np.eye(d)
    X = normal(seed, "adapter's tokens", n_samples, seq_len, d)
    W_K, W_Q, _, _ = normal(seed, "adapter's base", 4, d, d)
    Z = (torch.softmax(X @ (W_K @ W_Q.T / d) @ X.mT, -1) @ X).flatten(0, 1)
    H = (2 * Z.T @ Z / X.numel()).numpy()
    return change.numpy() @ H, H


def factors(seed, d, rank, scale, start):
    of_A = generator(seed, "adapter", rank)
    of_B = generator(seed, "output", rank)
    A = torch.randn(rank, d, generator=of_A, dtype=torch.float64).numpy()
    B = torch.randn(d, rank, generator=of_B, dtype=torch.float64).numpy()
    a = 0.1 if start == "output" else 10.0**scale
    b = 0.0 if start == "zero" else 10.0**scale
    return b / math.sqrt(d) * B, a / math.sqrt(d) * A


def lsoda(G, H, B, A, s, ratio, aims, U, V):
    """When each direction reaches its aim, and how much of each is learned at any time."""
    d, r = B.shape

    def split(x):
        return x[: d * r].reshape(d, r), x[d * r :].reshape(r, d)

    def slope(_, x):
        B, A = split(x)
        pull = G - s * B @ A @ H
        return np.concatenate([ratio * s * (pull @ A.T).ravel(), s * (B.T @ pull).ravel()])

    def learned(x):
        B, A = split(x)
        return np.diag(U.T @ (s * B @ A) @ V)

    def above(i):
        return lambda _, x: learned(x)[i] - aims[i]

    found = solve_ivp(
        slope,
        (0, 200),
        np.concatenate([B.ravel(), A.ravel()]),
        method="LSODA",
        rtol=1e-9,
        atol=1e-12,
        events=[above(i) for i in range(len(aims))],
        dense_output=True,
    )
    return [times[0] for times in found.t_events], lambda t: learned(found.sol(t))


def time_alone(i, square, sigma, h, kappa):
    """The integral of one over the speed of a direction, up to half of its target."""
    target = sigma[i] / h[i]

    def slowness(q):
        return 1 / (kappa**2 * h[i] * (target - q) * math.sqrt(square**2 + 4 * (q / kappa) ** 2))

    bends = [square, 10 * square, 100 * square]
    points = [point for point in bends if point < target / 2]
    return quad(slowness, 0, target / 2, points=points, epsrel=1e-9, limit=500)[0]


def said_by(a, sigma, h, kappa, shift=0):
    """The time of each direction with what earlier ones leave of its start, and that start."""
    n = len(sigma)
    times, counted, taken = {}, {}, []
    while len(times) < n:
        basis = np.linalg.qr(a[:, taken])[0]
        rest = a - basis @ (basis.T @ a)
        waiting = {
            i: time_alone((i - shift) % n, rest[:, i] @ rest[:, i], sigma, h, kappa)
            for i in range(n)
            if i not in times
        }
        first = min(waiting, key=waiting.get)
        times[first] = waiting[first]
        counted[first] = rest[:, first] @ rest[:, first]
        taken.append(first)
    return [times[i] for i in range(n)], [counted[i] for i in range(n)]


CELLS = [
    (line, seed, rank, ratio)
    for line in LINES
    for seed in range(line[4], line[4] + line[3])
    for rank in yaml.safe_load(line[10])
    for ratio in yaml.safe_load(line[11])
]


@pytest.mark.parametrize(("line", "seed", "rank", "ratio"), CELLS)
def test_every_direction_is_what_lsoda_and_integrals_say(tables, line, seed, rank, ratio):
    learned, courses = tables
    name, rule, start, _, first, n, T, d, targets, s, _, _, scales = line
    [scale] = yaml.safe_load(scales)
    rows = learned[(learned["case"] == name) & (learned["seed"] == seed)]
    rows = rows[(rows["rank"] == rank) & (rows["ratio"] == ratio)]
    G, H = layer(seed, n, T, d, yaml.safe_load(targets))
    k = len(yaml.safe_load(targets))
    U, sigma, Vh = np.linalg.svd(G)
    U, sigma, V = U[:, :k], sigma[:k], Vh[:k].T
    h = np.diag(V.T @ H @ V)
    kappa = s * math.sqrt(ratio)
    B, A = factors(seed, d, rank, scale, start)
    a = A @ V
    square = (a**2).sum(0)
    forecast, counted = said_by(a, sigma, h, kappa)
    wanted = {
        "direction": range(k),
        "sigma": sigma,
        "pace": kappa,
        "log10_init_scale": scale,
        "a_squared": square,
        "counted": counted,
        "forecast": forecast,
        "alone": [time_alone(i, square[i], sigma, h, kappa) for i in range(k)],
        "small": np.arcsinh(sigma / h / (kappa * square)) / (2 * kappa * sigma),
        "equal": [time_alone(i, square.mean(), sigma, h, kappa) for i in range(k)],
        "shuffled": said_by(a, sigma, h, kappa, 1)[0],
    }
    if rule == "flow":
        times, at = lsoda(G, H, B, A, s, ratio, sigma / h / 2, U, V)
        wanted["measured"] = times
    for column, value in wanted.items():
        np.testing.assert_allclose(rows[column], value, rtol=1e-5, err_msg=column)
    shown = courses[(courses["case"] == name) & (courses["rank"] == rank)]
    shown = shown[shown["ratio"] == ratio]
    assert len(shown) > 10
    if rule == "flow" and seed == first:
        for i, own in shown.groupby("direction"):
            np.testing.assert_allclose(own["target"], sigma[i] / h[i])
            late = own.iloc[-5:]
            found = [at(time)[i] for time in late["time"]]
            np.testing.assert_allclose(late["learned"], found, rtol=1e-5)
            assert np.isinf(own.loc[own["learned"] >= own["target"], "expected"]).all()


def test_adam_is_torchs_with_the_rate_and_betas_of_the_stage(tables):
    [(_, seed, rank, _)] = [cell for cell in CELLS if cell[0][0] == "adam"]
    G, _ = layer(seed, 0, 1, 4, (1, 0.5))
    U, sigma, Vh = np.linalg.svd(G)
    B, A = (torch.from_numpy(x).requires_grad_() for x in factors(seed, 4, rank, -2, "zero"))
    steps = torch.optim.Adam([B, A], lr=1e-3)
    reached = {}
    k = 0
    while len(reached) < 2:
        for i, u in enumerate(U.T[:2]):
            if u @ (B @ A).detach().numpy() @ Vh[i] >= sigma[i] / 2:
                reached.setdefault(i, 1e-3 * k)
        steps.zero_grad()
        ((torch.from_numpy(G) - B @ A).square().sum() / 2).backward()
        steps.step()
        k += 1
    rows = tables[0][tables[0]["case"] == "adam"]
    np.testing.assert_allclose(rows["measured"], [reached[0], reached[1]], atol=1e-9)


def test_a_missing_case_and_too_many_directions_are_refused(run):
    with pytest.raises(InputError, match=r"wanted a line for each of .*, got no \['adam'\]"):
        run(LINES[:-1])
    with pytest.raises(InputError, match=r"targets: wanted 1..1, the least of .*, got 2"):
        run([(*LINES[0][:10], "[1, 3]", *LINES[0][11:]), *LINES[1:]])
