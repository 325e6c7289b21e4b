"""The training by several optimisers: courses, rows and test losses, against autograd and
torch.optim.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kendalltau

from lib.files.files import InputError
from lib.files.runs import open_runs
from tests.stages.made import generator

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
SEEDS, NAMES, D = (5, 6), ("W_K", "W_Q", "W_V", "W_O"), 3
RATES = {"gd": 0.3, "sign": 0.01, "adam": 0.01, "muon": 0.02}


def output(X, W_KQ, W_VO):
    return torch.softmax(X @ W_KQ @ X.mT, -1) @ X @ W_VO


def four(seed, purpose):
    drawn = torch.randn(4, D, D, generator=generator(seed, purpose), dtype=torch.float64)
    return dict(zip(NAMES, drawn, strict=True))


def task(seed, rank, n_samples, noise=0.0):
    """Tokens, targets and test data; the teacher's factors have as many columns as its rank."""
    W = {name: w[:, :rank] for name, w in four(seed, "full teacher").items()}
    products = [W[a] @ W[b].T / math.sqrt(D * rank) for a, b in (("W_K", "W_Q"), ("W_V", "W_O"))]
    X, X_test = (
        torch.randn(n, 4, D, generator=generator(seed, purpose), dtype=torch.float64)
        for n, purpose in ((n_samples, "tokens"), (4, "test tokens"))
    )
    Y = output(X, *products)
    if noise:
        Y = Y + noise * Y.std() * torch.randn(
            Y.shape, generator=generator(seed, "noise"), dtype=torch.float64
        )
    return X, Y, X_test, output(X_test, *products)


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
    W = {
        key: 10**scale * (of_Q if key in ("W_Q", "W_O") else 1) * w
        for key, w in four(seed, "full start").items()
    }
    W = {key: w.requires_grad_() for key, w in W.items()}
    adam = torch.optim.Adam(list(W.values()), lr=1.0)
    time, found = 0.0, []
    for rate in [*rates(name, scale, longer), 0.0]:
        loss = (output(X, W["W_K"] @ W["W_Q"].T, W["W_V"] @ W["W_O"].T) - Y).square().mean()
        found.append(
            (time, float(loss.detach()), {key: w.detach().clone() for key, w in W.items()})
        )
        adam.zero_grad()
        loss.backward()
        adam.param_groups[0]["lr"] = rate
        if name == "adam":
            adam.step()
        with torch.no_grad():
            for w in W.values() if name != "adam" else ():
                if name == "muon":
                    U, _, Vh = np.linalg.svd(w.grad.numpy())
                    w -= rate * torch.from_numpy(U @ Vh)
                else:
                    w -= rate * (w.grad if name == "gd" else w.grad.sign())
        time += rate
    return found


def sigma(W, a, b):
    return np.linalg.svd((W[a] @ W[b].T).numpy(), compute_uv=False)


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
    runs, courses = tables["runs"], tables["courses"]
    assert len(runs) == 4 * 2 * 2 * 2
    for row in runs.to_dict("records"):
        cell = {key: row[key] for key in ("optimizer", "teacher_rank", "log10_init_scale", "seed")}
        X, Y, *_ = task(row["seed"], row["teacher_rank"], 9)
        steps = trained(row["optimizer"], X, Y, row["seed"], row["log10_init_scale"])
        own = courses[
            np.logical_and.reduce([courses[key] == value for key, value in cell.items()])
        ].sort_values("step")
        assert own["step"].tolist() == list(range(len(steps)))  # so few are all kept
        for look, (time, _, W) in zip(own.to_dict("records"), steps, strict=True):
            assert look["time"] == pytest.approx(time, abs=1e-12)
            for product, pair in (("W_KQ", ("W_K", "W_Q")), ("W_VO", ("W_V", "W_O"))):
                np.testing.assert_allclose(look[product], sigma(W, *pair), rtol=1e-5, atol=1e-9)
        check_row(row, steps)


def test_the_weights_are_kept_as_a_run_of_each_training(tables):
    assert len(tables["opened"]) == 4 * 2 * 2
    rows = tables["runs"].set_index(["optimizer", "teacher_rank", "log10_init_scale", "seed"])
    for run, weights in tables["opened"]:
        cell = run.layout.cell
        name, scale = cell["optimizer"], cell["log10_init_scale"]
        assert (run.layout.seeds, run.layout.products["W_VO"]) == ([5, 6], ["W_V", "W_O"])
        assert (
            run.folder.name
            == f"optimizer={name},teacher_rank={cell['teacher_rank']},log10_init_scale={scale:g}"
        )
        for n, seed in enumerate(SEEDS):
            X, Y, *_ = task(seed, cell["teacher_rank"], 9)
            steps = trained(name, X, Y, seed, scale)
            own = run.steps[run.steps["seed"] == seed]
            assert (own["step"].iloc[0], own["step"].iloc[-1], len(own)) == (0, len(steps) - 1, 9)
            for row in own.to_dict("records"):
                time, loss, W = steps[row["step"]]
                assert (row["time"], row["loss"]) == pytest.approx(
                    (time, loss / steps[0][1]), rel=1e-5, abs=1e-12
                )
                assert row["rescaled_time"] == pytest.approx(
                    time / (-scale * math.log(10)), abs=1e-12
                )
                found = weights[row["snapshot"]]
                for key in NAMES:
                    np.testing.assert_allclose(found[key][n], W[key], rtol=1e-5, atol=1e-9)
            of = rows.loc[name, cell["teacher_rank"], scale, seed]
            first, last = steps[0][2], steps[-1][2]
            assert of["square_change_KQ"] == pytest.approx(
                square_change(first, last, "W_K", "W_Q"), rel=1e-4
            )


def square_change(before, after, P, Q):
    """The change of PᵀP - QᵀQ over that of the sum."""
    change = [after[key].T @ after[key] - before[key].T @ before[key] for key in (P, Q)]
    return float(
        torch.linalg.matrix_norm(change[0] - change[1])
        / torch.linalg.matrix_norm(change[0] + change[1])
    )


def test_what_is_conserved_is_that_of_uneven_factors(tables):
    """From factors of uneven size, up to the first step at which a tenth of the loss is left, or
    the last.
    """
    assert len(tables["conserved"]) == 4 * 2
    for row in tables["conserved"].to_dict("records"):
        X, Y, *_ = task(row["seed"], D, 9)
        steps = trained(row["optimizer"], X, Y, row["seed"], -1, of_Q=0.5)
        ended = next((n for n, (_, loss, _) in enumerate(steps) if loss <= 0.1 * steps[0][1]), None)
        assert row["reached"] == (ended is not None)
        last = steps[-1 if ended is None else ended][2]
        for product, pair in (("KQ", ("W_K", "W_Q")), ("VO", ("W_V", "W_O"))):
            assert row[f"square_change_{product}"] == pytest.approx(
                square_change(steps[0][2], last, *pair), rel=1e-4
            )


def reached(time, values, bar):
    """When values first reach a bar, on the straight line of their logarithm."""
    k = next((k for k, value in enumerate(values) if value >= bar), None)
    if not k:
        return math.inf if k is None else time[0]
    return float(np.interp(math.log(bar), np.log(values[k - 1 : k + 1]), time[k - 1 : k + 1]))


def check_row(row, steps):
    """What the row says of the course."""
    time, loss = [step[0] for step in steps], [step[1] for step in steps]
    KQ, VO = (
        np.stack([sigma(W, *pair) for *_, W in steps]) for pair in (("W_K", "W_Q"), ("W_V", "W_O"))
    )
    half = next((k for k, one in enumerate(loss) if one <= loss[0] / 2), -1)
    stable = [(values**2).sum() / values[0] ** 2 for values in VO]
    counted, of_keys = (values.T[values[-1] > PARAMS["significant"]] for values in (VO, KQ))
    begun, ended, ended_keys = (
        [reached(time, values, share * values[-1]) for values in of]
        for of, share in ((counted, 0.1), (counted, 0.9), (of_keys, 0.9))
    )
    in_turn = itertools.pairwise(sorted(zip(ended, begun, strict=True)))
    apart = [begin >= end for (end, _), (_, begin) in in_turn]
    growth = [
        np.diff(np.interp([0.05, 0.15], time, [np.linalg.svd(W[key])[1][k] for *_, W in steps]))[0]
        / 0.1
        for key, k in itertools.product(("W_V", "W_O"), range(len(counted)))
    ]
    wanted = {
        "loss": loss[-1] / loss[0],
        "stable_rank_half": stable[half],
        "stable_rank_end": stable[-1],
        "first_rise": reached(time, VO[:, 0], SIZES["threshold"]),
        "first_rise_KQ": reached(time, KQ[:, 0], SIZES["threshold"]),
        "n_directions": len(counted),
        "order": order(counted[:, -1], ended),
        "order_KQ": order(of_keys[:, -1], ended_keys),
        "separate": np.mean(apart) if apart else math.nan,
        "slope_least": min(growth, default=math.nan),
        "slope_most": max(growth, default=math.nan),
        "plateau": plateau(time, loss),
    }
    assert {name: row[name] for name in wanted} == pytest.approx(
        wanted, rel=1e-4, abs=1e-9, nan_ok=True
    )
    X, Y, *_ = task(row["seed"], row["teacher_rank"], 9)
    W_VO = torch.zeros(D, D, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(
        (X.mean(-2, keepdim=True).expand_as(X) @ W_VO - Y).square().mean(), W_VO
    )
    rate = RATES[row["optimizer"]]
    assert row["growth"] == pytest.approx(
        math.log1p(rate * np.linalg.svd(slope)[1][0]) / rate, rel=1e-9
    )


def order(last, ended):
    """Kendall's tau of size and earliness, of two directions at least."""
    return kendalltau(last, np.negative(ended)).statistic if len(last) > 1 else math.nan


def plateau(time, loss):
    """Of the time from a tenth to nine tenths of the drop, the share at under a tenth of its mean
    speed.
    """
    fallen = [(loss[0] - one) / (loss[0] - min(loss)) for one in loss]
    begin, end = (next(k for k, one in enumerate(fallen) if one >= share) for share in (0.1, 0.9))
    pieces = [(time[k + 1] - time[k], fallen[k + 1] - fallen[k]) for k in range(begin, end)]
    bar = 0.1 * (fallen[end] - fallen[begin]) / (time[end] - time[begin])
    return sum(lasts for lasts, falls in pieces if falls / lasts < bar) / (time[end] - time[begin])


def test_few_and_noisy_samples_have_the_test_losses_of_their_paths(tables):
    few, paths = tables["few"], tables["paths"]
    assert len(few) == 4 * 2 * 2
    for row in few.to_dict("records"):
        X, Y, X_test, Y_test = task(row["seed"], 2, row["n_samples"], row["noise"])
        steps = trained(row["optimizer"], X, Y, row["seed"], -1, 2 if row["noise"] else 1)
        tested = [
            float(
                (output(X_test, W["W_K"] @ W["W_Q"].T, W["W_V"] @ W["W_O"].T) - Y_test)
                .square()
                .mean()
                / Y_test.square().mean()
            )
            for *_, W in steps
        ]
        own = paths[
            (paths["seed"] == row["seed"])
            & (paths["optimizer"] == row["optimizer"])
            & (paths["noise"] == row["noise"])
        ]
        np.testing.assert_allclose(own.sort_values("step")["test_loss"], tested, rtol=1e-5)
        np.testing.assert_allclose(
            own.sort_values("step")["loss"], [one / steps[0][1] for _, one, _ in steps], rtol=1e-5
        )
        assert row["best_test_loss"] == pytest.approx(min(tested), rel=1e-5)
        assert (row["last_test_loss"], row["loss"]) == pytest.approx(
            (tested[-1], steps[-1][1] / steps[0][1]), rel=1e-5
        )
        W = steps[-1][2]
        assert row["effective_rank_KQ"] == pytest.approx(
            effective(sigma(W, "W_K", "W_Q")), rel=1e-5
        )
        assert row["effective_rank_VO"] == pytest.approx(
            effective(sigma(W, "W_V", "W_O")), rel=1e-5
        )


STEPS = (
    "rescaled_end, learning_rate, n_steps, noisy_longer: wanted an end that takes at most "
    "1000000 steps, got"
)


@pytest.mark.parametrize(
    ("line", "change", "said"),
    [
        ("gd\tslopes\t1e-9\t10\t2\t0", {}, f"gd: {STEPS} 4605170196 "),
        (
            "own\tsigns\t0.01\t900000\t0\t0",
            {},
            f"own: {STEPS} 1800000 ",
        ),  # only where targets are noisy
    ],
)
def test_more_than_a_million_steps_are_refused_before_any_training(
    stage, tmp_path, line, change, said
):
    """By the names of the params: those of the end over the rate, and the factor of the noisy
    ones.
    """
    (tmp_path / "optimizers.tsv").write_text(TABLE.splitlines()[1] + f"\n{line}\n")
    sections = {SECTION: PARAMS | change, HEAD: SIZES}
    with pytest.raises(InputError, match=said):
        stage(
            "gradual_rank.optimizers",
            sections,
            SECTION,
            HEAD,
            *(tmp_path / name for name in PLACES),
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["optimizers.tsv", "params.yaml"]
