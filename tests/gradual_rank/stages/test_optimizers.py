"""The training by several optimisers: courses, rows and test losses, against autograd and
torch.optim.
"""

import itertools
import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kendalltau

from lib.files.files import InputError
from lib.files.runs import open_runs
from tests.gradual_rank.full_reference import (
    NAMES,
    descent,
    growth_at_zero,
    normal,
    output,
    reached,
    sigma,
    taught,
)

SECTION, HEAD = "any.family.optimizers", "any.family.full"
PARAMS = {
    "n_seeds": 2,
    "first_seed": 5,
    "log10_init_scales": [-1, -2],
    "n_samples": 9,
    "teacher_rank": 2,
    "significant": 0.05,
    "few_samples": [1],
    "few_log10_init_scale": -1,
    "noisy_samples": 3,
    "noise": 0.5,
    "noisy_longer": 2,
    "n_test": 4,
}
SIZES = {"d_model": 3, "seq_len": 4, "threshold": 0.04, "look_every": 5}
TABLE = """# name is what measures say
name\trule\tlearning_rate\tn_steps\trescaled_end\tannealed
gd\tslopes\t0.3\t10\t2\t0
sign\tsigns\t0.01\t30\t0\t0.4
adam\tadam\t0.01\t40\t0\t0
muon\tpolar_factors\t0.02\t30\t0\t0.5
"""
PLACES = ("optimizers.tsv", "optimizer_runs", "trained")
SEEDS, D = (5, 6), 3
PRODUCTS = (("KQ", 0), ("VO", 2))  # and where their factors stand
RATES = {"gd": 0.3, "sign": 0.01, "adam": 0.01, "muon": 0.02}


def task(seed, rank, n_samples, noise=0.0):
    """Tokens, targets and test data."""
    X, X_test = normal(seed, "tokens", n_samples, 4, D), normal(seed, "test tokens", 4, 4, D)
    Y = taught(X, seed, rank)
    if noise:
        Y = Y + noise * Y.std() * normal(seed, "noise", *Y.shape)
    return X, Y, X_test, taught(X_test, seed, rank)


def rates(name, scale, longer=1):
    if name == "gd":
        n = longer * (10 + math.ceil(2 * -scale * math.log(10) / 0.3))
        return [0.3] * n
    n, share = {"sign": (30, 0.4), "adam": (40, 0.0), "muon": (30, 0.5)}[name]
    falling = round(share * n * longer)
    return [RATES[name] * min(1, (n * longer - k) / (falling + 1)) for k in range(n * longer)]


def trained(name, X, Y, seed, scale, longer=1, of_Q=1.0):
    """τ, the loss and the weights before every step and after the last; torch.optim.Adam makes
    Adam's steps.

    W_Q and W_O begin `of_Q` times as large as the others.
    """
    start = 10**scale * normal(seed, "full start", 4, D, D)
    start[1::2] *= of_Q
    times = np.cumsum([0.0, *rates(name, scale, longer)])
    each = iter(rates(name, scale, longer))
    of_adam = start.clone().requires_grad_()
    adam = torch.optim.Adam([of_adam])

    def move(W, G):
        rate = next(each)
        if name == "adam":
            of_adam.grad = G
            adam.param_groups[0]["lr"] = rate
            adam.step()
            return of_adam.detach().clone()
        if name == "muon":
            U, _, Vh = torch.linalg.svd(G)
            return W - rate * U @ Vh
        return W - rate * (G if name == "gd" else G.sign())

    steps = descent(lambda W: (output(X, *W) - Y).square().mean(), start, move)
    return [(float(time), loss, W) for time, (loss, W) in zip(times, steps, strict=False)]


@cache
def on_many(name, rank, scale, seed):
    X, Y, *_ = task(seed, rank, 9)
    return trained(name, X, Y, seed, scale)


def effective(values):
    shares = values / values.sum()
    return math.exp(-(shares * np.log(shares)).sum())


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if KEPT:
        return KEPT
    (tmp_path / "optimizers.tsv").write_text(TABLE)
    sections = {SECTION: PARAMS, HEAD: SIZES}
    stage("gradual_rank.optimizers", sections, SECTION, HEAD, *(tmp_path / name for name in PLACES))
    for name in ("runs", "courses", "few", "paths", "conserved"):
        KEPT[name] = pd.read_parquet(tmp_path / "trained" / f"{name}.parquet")
    KEPT["opened"] = [
        (run, [run.weights(k) for k in range(9)]) for run in open_runs(tmp_path / "optimizer_runs")
    ]
    return KEPT


def test_courses_and_what_is_read_off_them_are_those_of_automatic_differentiation(tables):
    runs = tables["runs"]
    cell = ["optimizer", "teacher_rank", "log10_init_scale", "seed"]
    courses = dict(list(tables["courses"].groupby(cell)))
    assert len(runs) == len(courses) == 4 * 2 * 2 * 2
    for row in runs.to_dict("records"):
        steps = on_many(*(row[key] for key in cell))
        own = courses[tuple(row[key] for key in cell)].sort_values("step")
        assert own["step"].tolist() == list(range(len(steps)))  # so few are all kept
        np.testing.assert_allclose(own["time"], [time for time, *_ in steps], atol=1e-12)
        for product, k in PRODUCTS:
            path = [sigma(*W[k : k + 2]) for *_, W in steps]
            found = np.stack(list(own[f"W_{product}"]))
            np.testing.assert_allclose(found, path, rtol=1e-5, atol=1e-9)
        check_row(row, steps)


def test_the_weights_are_kept_as_a_run_of_each_training(tables):
    assert len(tables["opened"]) == 4 * 2 * 2
    for run, weights in tables["opened"]:
        cell = run.layout.cell
        name, rank, scale = (cell[key] for key in ("optimizer", "teacher_rank", "log10_init_scale"))
        assert (run.layout.seeds, run.layout.products["W_VO"]) == ([5, 6], ["W_V", "W_O"])
        folder = f"optimizer={name},teacher_rank={rank},log10_init_scale={scale:g}"
        assert run.folder.name == folder
        for n, seed in enumerate(SEEDS):
            steps = on_many(name, rank, scale, seed)
            own = run.steps[run.steps["seed"] == seed]
            assert (own["step"].iloc[0], own["step"].iloc[-1], len(own)) == (0, len(steps) - 1, 9)
            for row in own.to_dict("records"):
                time, loss, W = steps[row["step"]]
                found = [row[key] for key in ("time", "rescaled_time", "loss")]
                wanted = [time, time / (-scale * math.log(10)), loss / steps[0][1]]
                assert found == pytest.approx(wanted, rel=1e-5, abs=1e-12)
                for key, w in zip(NAMES, W, strict=True):
                    kept = weights[row["snapshot"]][key][n]
                    np.testing.assert_allclose(kept, w, rtol=1e-5, atol=1e-9)


def square_change(before, after, k):
    """The change of PᵀP - QᵀQ over that of the sum."""
    P, Q = (after.mT @ after - before.mT @ before)[k : k + 2]
    return float(torch.linalg.matrix_norm(P - Q) / torch.linalg.matrix_norm(P + Q))


def test_what_is_conserved_is_that_of_uneven_factors(tables):
    """The course goes from factors of uneven size to the first step at which a tenth of the loss is
    left, or the last.
    """
    assert len(tables["conserved"]) == 4 * 2
    for row in tables["conserved"].to_dict("records"):
        X, Y, *_ = task(row["seed"], D, 9)
        steps = trained(row["optimizer"], X, Y, row["seed"], -1, of_Q=0.5)
        fallen = [W for _, loss, W in steps if loss <= 0.1 * steps[0][1]]
        assert row["reached"] == bool(fallen)
        last = fallen[0] if fallen else steps[-1][2]
        for product, k in PRODUCTS:
            wanted = square_change(steps[0][2], last, k)
            assert row[f"square_change_{product}"] == pytest.approx(wanted, rel=1e-4)


def check_row(row, steps):
    """What the row says of the course."""
    time, loss, W = zip(*steps, strict=True)
    VO = np.stack([sigma(*w[2:]) for w in W])
    half = next((k for k, one in enumerate(loss) if one <= loss[0] / 2), -1)
    stable = [(values**2).sum() / values[0] ** 2 for values in VO]
    counted = VO.T[VO[-1] > PARAMS["significant"]]
    begun, ended = (
        [reached(time, values, share * values[-1]) for values in counted] for share in (0.1, 0.9)
    )
    in_turn = itertools.pairwise(sorted(zip(ended, begun, strict=True)))
    apart = [begin >= end for (end, _), (_, begin) in in_turn]
    of_factors = np.stack([torch.linalg.svdvals(w[2:]) for w in W])
    growth = [
        np.diff(np.interp([0.05, 0.15], time, of_factors[:, n, k]))[0] / 0.1
        for n, k in itertools.product((0, 1), range(len(counted)))
    ]
    rate = RATES[row["optimizer"]]
    X, Y, *_ = task(row["seed"], row["teacher_rank"], 9)
    wanted = {
        "stable_rank_half": stable[half],
        "stable_rank_end": stable[-1],
        "first_rise": reached(time, VO[:, 0], SIZES["threshold"]),
        "order": order(counted[:, -1], ended),
        "separate": np.mean(apart) if apart else math.nan,
        "slope_least": min(growth, default=math.nan),
        "slope_most": max(growth, default=math.nan),
        "growth": math.log1p(rate * growth_at_zero(X, Y)[0]) / rate,
        "square_change_KQ": square_change(W[0], W[-1], 0),
    }
    found = {name: row[name] for name in wanted}
    assert found == pytest.approx(wanted, rel=1e-4, abs=1e-9, nan_ok=True)


def order(last, ended):
    """Kendall's tau of size and earliness, of two directions at least."""
    return kendalltau(last, np.negative(ended)).statistic if len(last) > 1 else math.nan


def test_few_and_noisy_samples_have_the_test_losses_of_their_paths(tables):
    few = tables["few"]
    cell = ["optimizer", "seed", "n_samples", "noise"]
    paths = dict(list(tables["paths"].groupby(cell)))
    assert len(few) == len(paths) == 4 * 2 * 2
    for row in few.to_dict("records"):
        X, Y, X_test, Y_test = task(row["seed"], 2, row["n_samples"], row["noise"])
        steps = trained(row["optimizer"], X, Y, row["seed"], -1, 2 if row["noise"] else 1)
        _, losses, W = zip(*steps, strict=True)
        power = Y_test.square().mean()
        tested = [float((output(X_test, *w) - Y_test).square().mean() / power) for w in W]
        shares = np.array(losses) / losses[0]
        own = paths[tuple(row[key] for key in cell)].sort_values("step")
        np.testing.assert_allclose(own["test_loss"], tested, rtol=1e-5)
        np.testing.assert_allclose(own["loss"], shares, rtol=1e-5)
        wanted = {
            "best_test_loss": min(tested),
            "last_test_loss": tested[-1],
            "loss": shares[-1],
            "effective_rank_KQ": effective(sigma(*W[-1][:2])),
        }
        assert {name: row[name] for name in wanted} == pytest.approx(wanted, rel=1e-5)


def test_more_than_a_million_steps_are_refused_before_any_training(stage, tmp_path):
    """Here only the noisy trainings have too many, as they take twice as many steps."""
    (tmp_path / "optimizers.tsv").write_text(
        TABLE.splitlines()[1] + "\nown\tsigns\t0.01\t900000\t0\t0\n"
    )
    paths = [tmp_path / name for name in PLACES]
    said = "own: rescaled_end, learning_rate, n_steps, noisy_longer: .* got 1800000 "
    with pytest.raises(InputError, match=said):
        stage("gradual_rank.optimizers", {SECTION: PARAMS, HEAD: SIZES}, SECTION, HEAD, *paths)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["optimizers.tsv", "params.yaml"]
