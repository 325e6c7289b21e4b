"""Adapters of tiny language models: every step, time and forecast is that of dense matrices that
are trained here; and the measures that are kept are those of the kept tables.
"""

import math
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from torch.func import functional_call

from lib.checkpoints.adapters import lora_config, with_adapter
from lib.checkpoints.linear_modules import linear_modules
from lib.checkpoints.models import save_model, small_model
from lib.pages.measures import read_measures
from published.lora_start import run as published
from published.lora_start import trainings
from published.lora_start.trainings import Adapter
from tests.checkpoints.checkpoints_made import SIZES, TEXT, windows
from tests.pipeline.project import ROOT

SEED = 3
RANK = 2
RATIO = 4.0
N_STEPS = 12
ONE = Adapter("descent", RANK, -0.5, RATIO, N_STEPS, 0.2)
P = 2e-3


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def trained(request, tmp_path_factory):
    """What the program makes of a base, and the same adapter trained as dense matrices."""
    folder = tmp_path_factory.mktemp(request.param)
    model = small_model(request.param, **SIZES, seed=1)
    save_model(model, folder / "base")
    (folder / "tuned.txt").write_bytes(TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainings, "SIZES", (P,))
        base = folder / "base" / "model.safetensors"
        found = trainings.train(request.param, ONE, SEED, base, folder / "tuned.txt")
    return found, dense(request.param, model.train(False), found["learned"]["rate"].iloc[0])


def dense(kind, model, rate):
    """The gradients, the factors and the loss at every step, where W is W_0 + 2 B A."""
    ids = windows(TEXT)[:8]
    begun = {name: module.weight.detach() for name, module in linear_modules(model).items()}
    ranks = dict.fromkeys(begun, RANK)
    config = lora_config(ranks, fan_in_fan_out=kind == "gpt2", scale=2)
    held = dict(with_adapter(deepcopy(model), config, SEED).named_parameters())
    scale = 10**ONE.log10_init_scale
    A = {k: scale * held[f"base_model.model.{k}.lora_A.default.weight"].detach() for k in begun}
    turned = kind == "gpt2"
    outs = {k: W.shape[1] if turned else W.shape[0] for k, W in begun.items()}
    B = {k: torch.zeros(n, RANK) for k, n in outs.items()}

    def loss_of(weights):
        named = {f"{k}.weight": W for k, W in weights.items()}
        return functional_call(model, named, kwargs={"input_ids": ids, "labels": ids}).loss

    moving = {k: W.clone().requires_grad_() for k, W in begun.items()}
    slopes = torch.autograd.grad(loss_of(moving), list(moving.values()))
    G = {k: -(g.T if turned else g).numpy() for k, g in zip(begun, slopes, strict=True)}
    states = []
    losses = []
    for _ in range(N_STEPS + 1):
        states.append({k: (A[k].numpy().copy(), B[k].numpy().copy()) for k in begun})
        a, b = ({k: one.clone().requires_grad_() for k, one in of.items()} for of in (A, B))
        added = {k: 2 * b[k] @ a[k] for k in begun}
        value = loss_of({k: W + (added[k].T if turned else added[k]) for k, W in begun.items()})
        losses.append(float(value.detach()))
        value.backward()
        A = {k: A[k] - rate * a[k].grad for k in begun}
        B = {k: B[k] - RATIO * rate * b[k].grad for k in begun}
    return G, states, losses


def course_of(G, states, name):
    """What each step has of the first directions of a module."""
    U, _, Vh = np.linalg.svd(G[name], full_matrices=False)
    found = [np.diag(U[:, :3].T @ (2 * B @ A) @ Vh[:3].T) for A, B in (s[name] for s in states)]
    return np.array(found)


def test_times_are_those_of_dense_matrices_that_are_trained_alike(trained):
    found, (G, states, losses) = trained
    for name, rows in found["learned"].groupby("module"):
        course = course_of(G, states, name)
        sigma = np.linalg.svd(G[name], compute_uv=False)[:3]
        assert rows["sigma"].to_numpy() == pytest.approx(sigma, rel=1e-4)
        for k, when in enumerate(rows["measured"]):
            if math.isinf(when):
                assert course[:, k].max() < P * 1.001
                continue
            at = np.interp(when, range(N_STEPS + 1), course[:, k])
            assert at == pytest.approx(P, rel=2e-3)
            assert (course[: int(when) + 1, k] < P * 1.001).all()
    assert np.isfinite(found["learned"]["measured"]).mean() > 0.2
    below = [i for i, value in enumerate(losses) if value <= 0.98 * losses[0]]
    assert set(found["learned"]["horizon"]) == {float(below[0] if below else N_STEPS)}


def steps_to_size(x, a, b, kappa):
    """Steps of the two vectors of a direction, a fixed gradient's, until they have added P."""
    begun = a @ b
    n = 0
    while kappa * (a @ b - begun) < P:
        a, b, n = a + x * b, b + x * a, n + 1
    return n


@pytest.mark.parametrize("column", ["forecast", "shuffled", "two"])
def test_forecasts_are_the_steps_of_two_vectors_whose_gradient_stays(trained, column):
    found, (G, states, _) = trained
    table = found["learned"]
    names = list(table["module"].unique())
    kappa = 2 * math.sqrt(RATIO)
    rate = table["rate"].iloc[0]
    assert rate * kappa * max(np.linalg.norm(G[k], 2) for k in names) == pytest.approx(0.2)
    for i, name in enumerate(names):
        other = names[i - 1] if column == "shuffled" else name
        sigma = np.linalg.svd(G[other], compute_uv=False)[:3]
        a = states[0][name][0] @ np.linalg.svd(G[name], full_matrices=False)[2][:3].T
        for k, said in enumerate(table.loc[table["module"] == name, column]):
            b = a[:, k] if column == "two" else np.zeros(RANK)
            assert math.ceil(said - 1e-3) in (
                steps_to_size(rate * kappa * sigma[k], a[:, k], b, kappa),
                math.ceil(said + 1e-3),
            )


def test_the_first_direction_lies_where_that_of_the_dense_update_does(trained):
    found, (G, states, _) = trained
    assert len(found["shares"]) > 3
    for row in found["shares"].to_dict("records"):
        course = course_of(G, states, row["module"]).max(1)
        assert course[row["step"]] > P * 0.999
        assert course[: row["step"]].max() < P * 1.001
        A, B = states[row["step"]][row["module"]]
        U, _, Vh = np.linalg.svd(G[row["module"]], full_matrices=False)
        u, _, vh = np.linalg.svd(B @ A)
        assert row["out"] == pytest.approx(((U[:, :3].T @ u[:, 0]) ** 2).sum(), rel=1e-2)
        assert row["in"] == pytest.approx(((Vh[:3] @ vh[0]) ** 2).sum(), rel=1e-2)
        assert row["random_out"] == 3 / len(B)
        assert row["random_in"] == 3 / A.shape[1]


def test_two_small_factors_start_with_a_b_of_their_scale_and_adam_with_none():
    model = small_model("llama", **SIZES, seed=1)
    names = dict.fromkeys(linear_modules(model), RANK)
    adapted = with_adapter(model, lora_config(names, fan_in_fan_out=False), 0)
    factors = trainings.factors_of(adapted, names)
    for case, share in (("both", 0.1), ("adam", 0.0)):
        trainings.begin(factors, Adapter(case, RANK, -1.0, 1.0, 1, 0.1), SEED)
        for _, B in factors.values():
            largest = share / math.sqrt(len(B))
            assert 0.5 * largest <= float(B.detach().abs().max()) <= largest
            with torch.no_grad():
                B.zero_()


def test_published_measures_are_those_of_the_published_tables():
    folder = ROOT / published.OUT
    tables = {
        name: pd.read_parquet(folder / "tables" / f"{name}.parquet") for name in published.TABLES
    }
    rows = [row for row in published.measured(tables) if row.unit]
    kept = read_measures(folder / "measures.csv")
    assert {f"{row.measure}.{row.case}" for row in rows} == kept.keys() - {"setup"}
    for row in rows:
        one = kept[f"{row.measure}.{row.case}"][row.scale]
        wanted = one["values"][one["cases"].index(row.unit)]
        if wanted is None:
            assert math.isinf(row.value), row
        else:
            assert row.value == pytest.approx(wanted, rel=1e-4, abs=1e-6), row


def test_measures_are_of_what_is_forecast_before_the_loss_has_fallen():
    """Three directions of a module by hand: on time, late and beyond the horizon."""
    where = {"case": "descent", "model": "llama", "module": "m", "seed": 0, "log10_init_scale": 0.0}
    where |= {"n_steps": 40, "rate": 0.1, "ratio": 1.0, "horizon": 10.0, "signs": 1.0, "two": 4.0}
    rows = [
        where | {"direction": k, "size": size, "sigma": sigma, "forecast": said, "measured": came}
        for k, (sigma, said, came) in enumerate([(3.0, 5, 5.45), (2.0, 8, 10.0), (1.0, 20, np.inf)])
        for size in published.SIZES
    ]
    table = pd.DataFrame(rows).assign(equal=5.0, shuffled=10.0)
    by_name = {f"{row.measure}.{row.case}": row.value for row in of_one(table)}
    assert by_name["n_near.descent"] == 2
    assert by_name["time_error.descent"] == pytest.approx(0.25)
    assert by_name["median_error.descent"] == pytest.approx((0.09 + 0.25) / 2)
    assert by_name["time_error_equal.descent"] == pytest.approx(1.0)
    assert by_name["time_error_two.descent"] == pytest.approx(1.5)
    assert by_name["time_error_shuffled.descent"] == pytest.approx(0.455)
    assert by_name["order.descent"] == pytest.approx(1.0)
    assert by_name["on_time_larger.descent"] == pytest.approx(1 / 3)
    assert by_name["late.descent"] == pytest.approx(2 / 3)
    assert by_name["came_last.descent"] == 0.0


def of_one(table):
    where = {"case": "descent", "model": "llama", "module": "m", "log10_init_scale": 0.0, "seed": 0}
    sides = dict(zip(published.SIDES, (0.9, 0.2, 0.05, 0.04), strict=True))
    shares = pd.DataFrame([where | sides | {"size": published.SMALL}])
    plus = table.assign(case="plus", ratio=4.0, rate=0.05)
    return published.measured({"learned": pd.concat([table, plus]), "shares": shares})


def test_a_ratio_cuts_times_counted_in_learning_rates_of_a():
    where = {"case": "descent", "model": "llama", "module": "m", "seed": 0, "log10_init_scale": 0.0}
    where |= {"n_steps": 40, "horizon": 10.0, "direction": 0, "size": published.SMALL}
    plain = where | {"rate": 0.1, "ratio": 1.0, "forecast": 8.0, "measured": 10.0}
    plus = where | {"case": "plus", "rate": 0.2, "ratio": 16.0, "forecast": 1.0, "measured": 1.5}
    found = published.cuts(pd.DataFrame([plain, plus]))
    [cut], [said], [root] = (found[name]["1e0"] for name in found)
    assert cut == pytest.approx(0.3)
    assert said == pytest.approx(0.3 / 0.25)
    assert root == pytest.approx(0.3 * 4)
