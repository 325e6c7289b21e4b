"""Algorithm 1 and its finite-scale form, and the rank of an adapter above its base, against scipy's
integrals of the charges and of the flow.
"""

import itertools
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from lib.training.stiff_flow import StalledError
from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    Head,
    Start,
    algorithm_1,
    compare,
    draw_toy,
    flow,
    head,
    head_of,
    staged_events,
    start_of,
    write_problems,
)
from tests.stages.made import files, generator

# The first seed of small loses a coordinate and ends by its stages, the second ends by its loss; at
# the larger scale of paper something is above the threshold from the start; base has an adapter.
SMALL = {"max_stages": 3, "forecast_scales": [-3, -6], "atol": 1e-5, "curvature_share": 0.9}
PAPER = {"max_stages": 9, "forecast_scales": [-0.7]}
BASE = {"max_stages": 1, "forecast_scales": []}
PARAMS = {"small": SMALL, "paper": PAPER, "base": BASE}
STOP_LOSS = 0.03
SCALES = [0, -2, -4]  # of the adapter
TASKS = {
    "small": ([6, 2], (3, 2, 2), [9, 36]),
    "paper": ([4], (4, 3, 2), [39]),
    "base": ([5, 3], (4, 3, 2), [20, 4]),
}
NARROW = {"rtol": 1e-7, "atol": 0}  # of the tables of stages
DERIVED = ("g", "charge", "learning_rate_limit", "strictness_products", "strictness_weights")
WITHIN = {"rtol": 1e-4, "atol": 1e-9}  # of events, whose times are as accurate as the solver
EVENTS = ["seed", "log10_init_scale", "time", "coordinate", "sign", "rises"]
ADAPTER = [*EVENTS[:2], "source", "end", *EVENTS[2:]]


@pytest.fixture
def toys(tmp_path):
    """Seeds that tell a drop, an early end and no end apart; the targets are no head's."""
    return {
        name: draw_toy(tmp_path / f"t/{name}.safetensors", *task) for name, task in TASKS.items()
    }


def run(stage, tmp_path, params=PARAMS, scales=SCALES, **solver):
    """The tables of the stage."""
    sections = {
        "a.b": {"stop_loss": STOP_LOSS},
        "a.adapter": {"log10_init_scales": scales, "n_changed": 2, "rescaled_end": 12},
        "a.solver": {**SOLVER, "max_events": 30, "rtol": 1e-6, "atol": 1e-6, **solver},
        "a.studied": "base",
        "a.usual": {"max_stages": 7},
    }
    problems = write_problems(tmp_path / "problems.tsv", params)
    folders = [tmp_path / "t", tmp_path / "losses.py", tmp_path / "p"]
    stage("gradual_rank.greedy", sections, *sections, problems, *folders)
    return {file.stem: pd.read_parquet(file) for file in sorted((tmp_path / "p").iterdir())}


def stages_of(toy, i, max_stages):
    """The stages of a seed up to the first whose loss is low, or the last that is allowed."""
    loss = head_of(toy, i)
    for k, row in enumerate(itertools.islice(algorithm_1(loss), max_stages + 1)):
        p = row["p"]
        row |= {"seed": int(toy["seeds"][i]), "stage": k, "loss": loss.relative(p)}
        row |= {"support": p != 0, "n_active": (p != 0).sum(), "n_dropped": len(row["dropped"])}
        yield row | curvatures(loss, p)
        if row["loss"] < STOP_LOSS:
            return


def curvatures(loss, p):
    """2 / the sharpest of the Hessian in (u, v), the flattest in p, and half the flattest in u
    where v = ±u.
    """
    names = ("learning_rate_limit", "strictness_products", "strictness_weights")
    on = torch.from_numpy(np.flatnonzero(p))
    if not len(on):
        return dict.fromkeys(names, math.inf)
    q = torch.from_numpy(p)[on]
    u, sign = q.abs().sqrt(), q.sign()

    def value(q):
        return loss.value(torch.zeros(4, dtype=torch.float64).index_copy(0, on, q))

    def sharp(f, x):
        return torch.linalg.eigvalsh(torch.autograd.functional.hessian(f, x))

    in_weights = sharp(lambda w: value(w[: len(u)] * w[len(u) :]), torch.cat([u, sign * u]))
    flattest = sharp(lambda u: value(u * u * sign), u)[0] / 2
    found = (2 / in_weights[-1], sharp(value, q)[0], flattest)
    return dict(zip(names, map(float, found), strict=True))


def check_stages(found, toy, max_stages):
    """Every stage is where the charges and the flow without scale lead."""
    each = (stages_of(toy, i, max_stages) for i in range(len(toy["seeds"])))
    assert found.pop("residual").between(0, 1e-9).all()
    near = {name: {"rtol": 1e-6, "atol": 1e-9} for name in DERIVED}
    compare(found, itertools.chain(*each), NARROW, **near)


def events_of(toy, params, stages):
    """The rows of events that the table of a task must have: seed by seed, scale by scale."""
    for i, seed in enumerate(toy["seeds"].tolist()):
        last = stages.loc[stages["seed"] == seed, "time"].max()
        for scale in params["forecast_scales"]:
            end = last * (-scale * math.log(10) + SOLVER["margin"])
            run = head_of(toy, i), start_of(toy, i, scale), end, SOLVER["threshold"]
            for event in staged_events(*run):
                yield seed, scale, *event


def adapter(toy, i):
    """The seed and the loss of its adapter."""
    seed, X, target = int(toy["seeds"][i]), toy["X"][i], toy["teacher"][i].clone()
    changed = torch.randperm(4, generator=generator(seed, "changed coordinates"))[:2]
    u, v = torch.randn(2, 4, generator=generator(seed, "change"), dtype=torch.float64)
    target[changed] += (u * v)[changed]
    return seed, Head(X, head(X, target), toy["teacher"][i])


def fine_tune(toy, i, scale):
    """The rows of one seed and scale: the forecast, then what is measured."""
    seed, loss = adapter(toy, i)
    start = Start(toy["u"][i].numpy(), np.zeros(4), scale)
    end = 12 * (-scale * math.log(10) + SOLVER["margin"])
    for source, events in (
        ("forecast", staged_events(loss, start, end, SOLVER["threshold"])),
        ("measured", flow(loss, start, end, SOLVER["threshold"])[1]),
    ):
        for event in events:
            yield seed, scale, source, end, *event


def limit(toy, i, scale):
    """The rows of one seed and scale by Algorithm 1, whose times are those of the flow from
    there.
    """
    seed, loss = adapter(toy, i)
    end = 12 * (-scale * math.log(10) + SOLVER["margin"])
    for row in algorithm_1(loss):
        time = row["time"] * -scale * math.log(10)
        if time > end:
            return
        if row["coordinate"] >= 0:
            yield seed, scale, "limit", end, time, row["coordinate"], row["sign"], True
        for coordinate in row["dropped"]:
            yield seed, scale, "limit", end, time, coordinate, 0, False
        if loss.relative(row["p"]) < STOP_LOSS:
            return


def test_the_stages_the_events_and_the_forecast_are_those_of_scipy(stage, tmp_path, toys):
    tables = run(stage, tmp_path)
    kinds = itertools.product(sorted(TASKS), ("events", "stages"))
    written = {"forecast.parquet", *("_".join(one) + ".parquet" for one in kinds)}
    assert set(files(tmp_path / "p")) == written
    for name, toy in toys.items():
        check_stages(tables[f"{name}_stages"], toy, PARAMS[name]["max_stages"])
        events = events_of(toy, PARAMS[name], tables[f"{name}_stages"])
        wanted = pd.DataFrame(events, columns=EVENTS).astype({"time": float})
        compare(tables[f"{name}_events"], wanted, WITHIN)
    lasts = tables["small_stages"].groupby("seed")["stage"].max()
    assert lasts.to_dict() == {6: 3, 2: 2}  # ended by the number of stages, and by the loss
    assert tables["small_stages"]["n_dropped"].sum() == 1
    assert tables["paper_stages"]["next_time"].iloc[-1] == math.inf  # nothing is left to learn
    assert not tables["small_events"]["rises"].all()
    assert 0 in tables["paper_events"]["time"].tolist()
    rows = [row for scale in SCALES for i in range(2) for row in fine_tune(toys["base"], i, scale)]
    forecast = tables["forecast"]
    of_limit = forecast["source"] == "limit"
    wanted = pd.DataFrame(rows, columns=ADAPTER)
    compare(forecast[~of_limit], wanted, WITHIN, time={"atol": 5e-6}, end=NARROW)
    rows = [row for scale in SCALES for i in range(2) for row in limit(toys["base"], i, scale)]
    by_limit = pd.DataFrame(rows, columns=ADAPTER)
    compare(forecast[of_limit], by_limit, NARROW | {"rtol": 1e-5}, time={"atol": 1e-9})
    assert (by_limit.loc[by_limit["log10_init_scale"] == 0, "time"] == 0).all()
    assert len(wanted.groupby(ADAPTER[:3])) == 12


def test_problems_of_equal_tasks_each_have_their_own_stages_and_events(stage, tmp_path, toys):
    """The stages of both are followed once; the short problem ends earlier, and so do its flows."""
    shutil.copy(tmp_path / "t/small.safetensors", tmp_path / "t/short.safetensors")
    long = SMALL | {"forecast_scales": []}
    short = SMALL | {"max_stages": 1, "forecast_scales": [-3]}
    tables = run(stage, tmp_path, {"short": short, "small": long}, scales=[])
    check_stages(tables["small_stages"], toys["small"], 3)
    check_stages(tables["short_stages"], toys["small"], 1)
    assert tables["small_events"].empty
    events = events_of(toys["small"], short, tables["short_stages"])
    wanted = pd.DataFrame(events, columns=EVENTS).astype({"time": float})
    compare(tables["short_events"], wanted, WITHIN)


def test_a_forecast_of_no_adapters_has_its_columns(stage, tmp_path, toys):
    forecast = run(stage, tmp_path, {"base": BASE}, scales=[])["forecast"]
    assert list(forecast) == ADAPTER
    assert forecast.empty


def test_more_events_than_are_allowed_end_in_an_error(stage, tmp_path, toys):
    with pytest.raises(StalledError, match="wanted at most 1 events, got more"):
        run(stage, tmp_path, {"small": SMALL | {"max_stages": 2}}, max_events=1)
