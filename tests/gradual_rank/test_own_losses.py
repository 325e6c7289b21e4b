"""A loss of one's own through the stages, against brute force, and what is refused."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from lib.gradual_rank.own_losses import Named
from lib.gradual_rank.tasks import read_toy
from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    Bowl,
    algorithm_1,
    flow,
    start_of,
    write_problems,
)
from tests.stages.made import generator

H = [[1.0, 0.3, 0.0], [0.3, 0.8, -0.1], [0.0, -0.1, 0.6]]
MINIMUM = [1.0, -0.7, 0.4]
CODE = f"""
import torch
H = torch.tensor({H}, dtype=torch.float64)
def bowl(p, seed):
    off = p - seed * torch.tensor({MINIMUM}, dtype=torch.float64)
    return off @ H @ off / 2
def slope(p, seed):
    return H @ (p - seed * torch.tensor({MINIMUM}, dtype=torch.float64))
def twice(p, seed):
    return 2 * slope(p, seed)
def single(p, seed):
    return bowl(p, seed).float()
def rows(p, seed):
    return p
def wrong(p, seed):
    return bowl(p[:2], seed)
def infinite(p, seed):
    return 1 / p.sum()
def nothing(p, seed):
    return bowl(p, 0)
def still(p, seed):
    return torch.ones((), dtype=torch.float64)
number = 3
"""
SEEDS = (1, 2)
SCALE = -6
PROBLEMS = {
    "small": {"n_seeds": 1, "max_stages": 1, "flow_scales": [SCALE], "n_samples": 5},
    "own": {"n_seeds": 2, "first_seed": 1, "max_stages": 6, "flow_scales": [SCALE]},
    "by_hand": {"n_seeds": 2, "first_seed": 1, "max_stages": 6, "flow_scales": [SCALE]},
}
PROBLEMS["own"] |= {"loss": "my_losses:bowl", "n_products": 3, "forecast_scales": [SCALE]}
PROBLEMS["by_hand"] |= {**PROBLEMS["own"], "gradient": "my_losses:slope"}
USUAL = {"seq_len": 2, "d_model": 2, "teacher": "gaussian", "start": "gaussian", "n_times": 2}
USUAL |= {"n_samples": 5, "forecast_scales": []}
FINE = SOLVER | {"rtol": 1e-7, "atol": 1e-7}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of losses, seen from its folder."""
    monkeypatch.chdir(tmp_path)
    Path("my_losses.py").write_text(CODE, encoding="utf-8")
    return Path("my_losses.py")


KEPT = {}  # what one run of the stages wrote


@pytest.fixture
def ran(stage, tmp_path, file):
    """The tables of the stages greedy and flow, by their names."""
    if not KEPT:
        KEPT.update(tables_of(stage, tmp_path, file))
    return KEPT


def tables_of(stage, tmp_path, file, problems=PROBLEMS):
    """The stages on these problems, and on a small head, which the adapter needs."""
    lines = {"small": PROBLEMS["small"], **problems}
    table = write_problems(tmp_path / "problems.tsv", lines)
    t, p, f = (tmp_path / name for name in "tpf")
    stage("gradual_rank.generate", {"a.usual": USUAL}, "a.usual", table, t)
    sections = {"a.greedy": {"stop_loss": 0}, "a.solver": FINE, "a.studied": "small"}
    sections["a.forecast"] = {"log10_init_scales": [], "n_changed": 1, "rescaled_end": 1}
    sections |= {"a.usual": USUAL, "a.flow": {"rest": 0.5, "grown": 0.1, "rtol": 1e-7}}
    sections["a.flow"] |= {"atol": 1e-7}
    names = ["a.greedy", "a.forecast", "a.solver", "a.studied", "a.usual"]
    stage("gradual_rank.greedy", sections, *names, table, t, file, p)
    sections["a.shown"] = {"figure_seed": 0}
    names = ["a.flow", "a.solver", "a.shown", "a.usual"]
    stage("gradual_rank.flow", sections, *names, table, t, p, file, f)
    with pytest.raises(InputError, match=r"own.safetensors: wanted a head or a transformer, got"):
        read_toy(t / "own.safetensors")
    return {
        one.name[0] + "/" + two.stem: pd.read_parquet(two)
        for one in (p, f)
        for two in sorted(one.glob("*.parquet"))
    }


@pytest.mark.parametrize("name", ["own", "by_hand"])
def test_stages_and_flows_are_those_of_brute_force(ran, name):
    for seed in SEEDS:
        loss = Bowl(H, seed * np.array(MINIMUM))
        wanted = list(algorithm_1(loss))
        stages = ran[f"p/{name}_stages"]
        own = stages[stages["seed"] == seed]
        assert own["coordinate"].tolist() == [stage["coordinate"] for stage in wanted]
        assert own["time"].tolist() == pytest.approx([stage["time"] for stage in wanted], rel=1e-4)
        np.testing.assert_allclose(np.stack(own["p"]), [one["p"] for one in wanted], atol=1e-5)
        draw = generator(seed, "start")
        u, v = torch.randn(2, 3, generator=draw, dtype=torch.float64)
        toy = {"u": u[None], "v": v[None]}
        start = start_of(toy, 0, SCALE)
        events = ran[f"f/{name}_events"]
        found = events[events["seed"] == seed]
        last = wanted[-1]["time"]
        end = last * max(SOLVER["margin"] - SCALE * math.log(10), 1.5 * -SCALE * math.log(10))
        _, moments = flow(loss, start, end, SOLVER["threshold"])
        assert found["coordinate"].tolist() == [i for _, i, _, _ in moments]
        times = [time for time, *_ in moments]
        assert found["time"].tolist() == pytest.approx(times, rel=1e-4)


def test_a_change_of_the_file_alone_computes_its_problems_anew(stage, tmp_path, file):
    before = tables_of(stage, tmp_path, file, {"own": PROBLEMS["own"]})["p/own_stages"]
    file.write_text(CODE.replace("off @ H @ off / 2", "off @ H @ off"), encoding="utf-8")
    after = tables_of(stage, tmp_path, file, {"own": PROBLEMS["own"]})["p/own_stages"]
    assert after["time"].tolist() == pytest.approx((before["time"] / 2).tolist())


REFUSED = {
    "my_losses:single": r"seed 1: wanted a loss that is a scalar tensor of float64, got a tensor "
    r"of torch.float32 with the shape \[\]",
    "my_losses:rows": r"wanted a loss that is a scalar tensor .* with the shape \[3\]",
    "my_losses:wrong": r"wanted a loss of 3 products, got RuntimeError: ",
    "my_losses:infinite": "wanted a finite loss, got inf",
    "my_losses:nothing": "wanted a loss that is not zero at p = 0, got 0",
    "my_losses:still": "wanted a loss of 3 products, got RuntimeError: ",
    "my_losses:number": r"my_losses.py: wanted a function 'number', got the functions \['bowl', ",
    "my_losses:nowhere": r"my_losses.py: wanted a function 'nowhere', got the functions \['bowl', ",
    "others:bowl": "wanted a function of my_losses.py, the file of losses, got others.py",
    "my_losses": "wanted a loss as MODULE:FUNCTION, got 'my_losses'",
    "../my_losses:bowl": "wanted a loss as MODULE:FUNCTION, got '../my_losses:bowl'",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items())
def test_what_is_no_loss_is_refused_by_name(file, name, message):
    with pytest.raises(InputError, match=message):
        Named(name).of(file, 3, 1)


def test_a_gradient_of_another_loss_is_refused(file):
    with pytest.raises(
        InputError, match=r"wanted the gradient of the loss, which begins with -0\.79"
    ):
        Named("my_losses:bowl", "my_losses:twice").of(file, 3, 1)


def test_a_file_that_cannot_be_imported_is_refused(file):
    file.write_text("import nowhere_at_all\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"my_losses.py: wanted a file that can be imported, got Mod"
    ):
        Named("my_losses:bowl").of(file, 3, 1)
    with pytest.raises(
        InputError, match=r"gone.py: wanted a file that can be imported, got FileNot"
    ):
        Named("gone:bowl").of(Path("gone.py"), 3, 1)


def test_values_and_gradients_of_rows_are_those_of_each(file):
    loss = Named("my_losses:bowl", "my_losses:slope").of(file, 3, 2)
    p = torch.arange(12, dtype=torch.float64).reshape(2, 2, 3)
    one = torch.stack([loss.value(row) for row in p.reshape(-1, 3)]).reshape(2, 2)
    torch.testing.assert_close(loss.value(p), one)
    plain = Named("my_losses:bowl").of(file, 3, 2)
    torch.testing.assert_close(loss.gradient(p), plain.gradient(p))
    assert loss.on_share(0.1) is loss


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"n_products": ""}, "wanted both of loss and n_products, or none of them"),
        (
            {"n_layers": 1, "n_heads": 1, "d_mlp": 2, "frames": "own"},
            "n_layers: wanted none beside",
        ),
    ],
)
def test_half_a_loss_is_refused(stage, tmp_path, line, message):
    table = write_problems(tmp_path / "problems.tsv", {"own": PROBLEMS["own"] | line})
    with pytest.raises(InputError, match=message):
        stage("gradual_rank.generate", {"a.usual": USUAL}, "a.usual", table, tmp_path / "t")
