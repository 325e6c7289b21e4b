"""First rises under momentum, Adam and a warm-up: what the stage writes, against torch.optim."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.gradual_rank.full_reference import growth_at_zero, normal, output, reached, sigma, taught

N, T, D, RISEN = 9, 4, 3, 0.04
SEEDS = (5, 6, 7)
SCALES = (-1.5, -3)
LINES = {
    "heavy": ("sgd", 0.3, 0.8, 0, 0, 0),
    "ahead": ("nesterov", 0.3, 0.8, 0, 0, 0),
    "warm": ("sgd", 0.3, 0.5, 0, 0, 40),
    "large": ("adam", 0.01, 0.9, 0.99, 1e-2, 0),
    "small": ("adam", 0.01, 0.9, 0.99, 1e-9, 0),
}
HEADER = "name\trule\tlearning_rate\tbeta\tbeta_2\teps\twarmup\tlog10_init_scales"
SECTIONS = {
    "any.waits": {"n_seeds": 3, "first_seed": 5, "n_samples": N, "n_steps": 4000},
    "any.full": {"d_model": D, "seq_len": T, "threshold": RISEN},
}
KEPT = {}  # what one run of the stage wrote


def table_of(lines):
    rows = ["\t".join(map(str, (name, *line, list(SCALES)))) for name, line in lines.items()]
    return "\n".join([HEADER, *rows])


@pytest.fixture
def tables(stage, tmp_path):
    if not KEPT:
        (tmp_path / "m.tsv").write_text(table_of(LINES), encoding="utf-8")
        stage("gradual_rank.momentum", SECTIONS, *SECTIONS, tmp_path / "m.tsv", tmp_path / "f")
        for file in sorted((tmp_path / "f").iterdir()):
            KEPT[file.stem] = pd.read_parquet(file)
    return KEPT


def trained(name, seed, scale):
    """W_V and W_O at every step of an optimiser of torch, until W_VO has risen."""
    rule, rate, beta, beta_2, eps, warmup = LINES[name]
    X = normal(seed, "tokens", N, T, D)
    Y = taught(X, seed)
    W = (10**scale * normal(seed, "full start", 4, D, D)).requires_grad_()
    if rule == "adam":
        own = torch.optim.Adam([W], rate, (beta, beta_2), eps)
    else:
        own = torch.optim.SGD([W], rate, beta, nesterov=rule == "nesterov")
    found = [W.detach().clone()]
    while sigma(found[-1][2], found[-1][3])[0] < RISEN:
        own.param_groups[0]["lr"] = rate * min(1, len(found) / max(1, warmup))
        own.zero_grad()
        (output(X, *W) - Y).square().mean().backward()
        own.step()
        found.append(W.detach().clone())
    return X, Y, torch.stack(found)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", LINES)
def test_rises_are_those_of_torch(tables, name, seed, scale):
    rises = tables["rises"]
    [row] = rises[
        (rises["case"] == name) & (rises["seed"] == seed) & (rises["log10_init_scale"] == scale)
    ].to_dict("records")
    X, Y, W = trained(name, seed, scale)
    values = np.array([sigma(P, Q) for P, Q in W[:, 2:]])
    rise = reached(np.arange(len(W)), values[:, 0], RISEN)
    assert row["rise"] == pytest.approx(rise, rel=1e-6)
    assert row["second"] == pytest.approx(values[-1, 1] / values[-1, 0], rel=1e-5)
    growth, u, v = growth_at_zero(X, Y)
    start = normal(seed, "full start", 4, D, D)
    assert row["sigma"] == pytest.approx(growth)
    assert row["joint"] == pytest.approx(float((u @ start[2] + v @ start[3]).square().sum()))
    begin, end = int(rise / 3), int(2 * rise / 3)
    along = [abs(float(u @ W[k, 2] @ W[k, 3].mT @ v)) for k in (begin, end)]
    if end > begin:
        grown = math.log(along[1] / along[0]) / 2 / (end - begin)
        assert row["growth"] == pytest.approx(grown, rel=1e-5)
    else:
        assert math.isnan(row["growth"])
    assert [row[key] for key in HEADER.split("\t")[1:-1]] == list(LINES[name])


def test_courses_are_those_of_the_first_seed_until_it_has_risen(tables):
    courses = tables["courses"]
    assert set(courses["seed"]) == {SEEDS[0]}
    own = courses[(courses["case"] == "heavy") & (courses["log10_init_scale"] == SCALES[0])]
    _, _, W = trained("heavy", SEEDS[0], SCALES[0])
    assert own["step"].max() == len(W) - 1
    wanted = [sigma(W[k, 2], W[k, 3])[0] for k in own["step"]]
    np.testing.assert_allclose(own["value"], wanted, rtol=1e-6)


def test_a_head_that_never_rises_is_said_to_rise_never(stage, tmp_path):
    (tmp_path / "m.tsv").write_text(table_of({"warm": LINES["warm"]}), encoding="utf-8")
    sections = {**SECTIONS, "any.waits": {**SECTIONS["any.waits"], "n_steps": 9}}
    stage("gradual_rank.momentum", sections, *sections, tmp_path / "m.tsv", tmp_path / "f")
    rises = pd.read_parquet(tmp_path / "f/rises.parquet")
    assert np.isinf(rises["rise"]).all()
    assert rises[["second", "growth"]].isna().all(axis=None)


def test_adam_without_an_epsilon_is_refused(stage, tmp_path):
    line = ("adam", 0.01, 0.9, 0.99, 0, 0)
    (tmp_path / "m.tsv").write_text(table_of({"none": line}), encoding="utf-8")
    with pytest.raises(InputError, match="eps: wanted one above 0 for Adam, got 0"):
        stage("gradual_rank.momentum", SECTIONS, *SECTIONS, tmp_path / "m.tsv", tmp_path / "f")
