"""Algorithm 1 and its finite-scale form, against scipy's integrals of the charges and of the flow
on the support.
"""

import itertools
import math

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
    draw_toy,
    staged_events,
    write_problems,
)
from tests.stages.made import files

# The first seed of small loses a coordinate and ends by its stages, the second ends by its loss; at
# the larger scale of paper something is above the threshold from the start.
SMALL = {"max_stages": 3, "forecast_scales": [-3, -6], "atol": 1e-5, "curvature_share": 0.9}
PAPER = {"max_stages": 9, "forecast_scales": [-0.7]}
PARAMS = {"small": SMALL, "paper": PAPER}
STOP_LOSS = 0.03
ADAPTER = {"log10_init_scales": [], "n_changed": 1, "rescaled_end": 1}  # see test_forecast.py
TASKS = {"small": ([6, 2], (3, 2, 2), [9, 36]), "paper": ([4], (4, 3, 2), [39])}


@pytest.fixture
def toys(tmp_path):
    """Seeds that tell a drop, an early end and no end apart; the targets are no head's."""
    return {
        name: draw_toy(tmp_path / f"t/{name}.safetensors", *task, 0.3)
        for name, task in TASKS.items()
    }


def run(stage, tmp_path, params, **solver):
    """The tables of the stage."""
    sections = {
        "a.b": {"stop_loss": STOP_LOSS},
        "a.adapter": ADAPTER,
        "a.solver": {**SOLVER, **solver},
    }
    sections |= {"a.studied": "small", "a.usual": {"max_stages": 7}}
    problems = write_problems(tmp_path / "problems.tsv", params)
    stage("gradual_rank.greedy", sections, *sections, problems, tmp_path / "t", tmp_path / "p")
    return {file.stem: pd.read_parquet(file) for file in sorted((tmp_path / "p").iterdir())}


def stages_of(toy, i, params):
    """The stages of a seed up to the first whose loss is low, or the last that is allowed."""
    loss = Head(toy["X"][i], toy["Y"][i])
    kept = []
    for stage in itertools.islice(algorithm_1(loss), params["max_stages"] + 1):
        kept.append({**stage, "loss": loss.relative(stage["p"])})
        if kept[-1]["loss"] < STOP_LOSS:
            break
    return kept


def curvatures(toy, i, p):
    """2 / the sharpest of the Hessian in (u, v), the flattest in p, and half the flattest in u
    where v = ±u.
    """
    on = torch.from_numpy(np.flatnonzero(p))
    if not len(on):
        return (math.inf,) * 3
    loss, q = Head(toy["X"][i], toy["Y"][i]), torch.from_numpy(p)[on]
    u, sign = q.abs().sqrt(), q.sign()

    def value(q):
        return loss.value(torch.zeros(4, dtype=torch.float64).index_copy(0, on, q))

    def sharp(f, x):
        return torch.linalg.eigvalsh(torch.autograd.functional.hessian(f, x))

    in_weights = sharp(lambda w: value(w[: len(u)] * w[len(u) :]), torch.cat([u, sign * u]))
    return 2 / in_weights[-1], sharp(value, q)[0], sharp(lambda u: value(u * u * sign), u)[0] / 2


def check_stages(tables, toys):
    """Every stage is where the charges and the flow without scale lead."""
    for name, toy in toys.items():
        found = tables[f"{name}_stages"]
        wanted = [stages_of(toy, i, PARAMS[name]) for i in range(len(toy["seeds"]))]
        seeds = toy["seeds"].tolist()
        assert found["seed"].tolist() == [
            seed for seed, kept in zip(seeds, wanted, strict=True) for _ in kept
        ]
        assert found["stage"].tolist() == [k for kept in wanted for k in range(len(kept))]
        flat = [(i, row) for i, kept in enumerate(wanted) for row in kept]
        for key in ("coordinate", "sign"):
            assert found[key].tolist() == [row[key] for _, row in flat]
        for key in ("time", "next_time", "gap", "loss"):
            np.testing.assert_allclose(found[key], [row[key] for _, row in flat], rtol=1e-7)
        assert [list(dropped) for dropped in found["dropped"]] == [
            row["dropped"] for _, row in flat
        ]
        assert {dropped.dtype.kind for dropped in found["dropped"]} == {"i"}
        assert found["n_dropped"].tolist() == [len(row["dropped"]) for _, row in flat]
        largest = max(np.abs(row["g"]).max() for _, row in flat)
        for key in ("g", "charge"):
            np.testing.assert_allclose(
                np.stack(found[key]),
                [row[key] for _, row in flat],
                rtol=1e-6,
                atol=1e-9 * max(1, largest),
            )
        p = np.array([row["p"] for _, row in flat])
        np.testing.assert_allclose(np.stack(found["p"]), p, rtol=1e-7)
        assert np.array_equal(np.stack(found["support"]), p != 0)
        assert found["n_active"].tolist() == (p != 0).sum(1).tolist()
        assert found["residual"].between(0, 1e-9).all()
        columns = ["learning_rate_limit", "strictness_products", "strictness_weights"]
        limits = [curvatures(toy, i, row["p"]) for i, row in flat]
        np.testing.assert_allclose(found[columns], limits, rtol=1e-6)
        kept = [
            "time",
            "next_time",
            "gap",
            "coordinate",
            "sign",
            "loss",
            "dropped",
            "n_dropped",
            "g",
            "charge",
            "p",
            "support",
            "n_active",
            "residual",
        ]
        assert set(found) == {"seed", "stage", *kept, *columns}
    lasts = tables["small_stages"].groupby("seed", sort=False)["stage"].max()
    assert lasts.to_dict() == {6: 3, 2: 2}  # ended by the number of stages, and by the loss
    assert tables["small_stages"]["dropped"].map(list).tolist()[3] == [2]
    assert (
        tables["paper_stages"]["next_time"].tolist()[-1] == math.inf
    )  # by having nothing left to learn


def events_of(toys, name, tables):
    """The rows of events that the table of a task must have: seed by seed, scale by scale."""
    params, stages = PARAMS[name], tables[f"{name}_stages"]
    for i, seed in enumerate(toys[name]["seeds"].tolist()):
        loss = Head(toys[name]["X"][i], toys[name]["Y"][i])
        last = stages.loc[stages["seed"] == seed, "time"].max()
        for scale in params["forecast_scales"]:
            start = Start(toys[name]["u"][i].numpy(), toys[name]["v"][i].numpy(), scale)
            end = last * (-scale * math.log(10) + SOLVER["margin"])
            yield from (
                (seed, scale, *event)
                for event in staged_events(loss, start, end, SOLVER["threshold"])
            )


def check_events(tables, toys):
    """Every event is where the flow on the support crosses its level, to the accuracy of the
    stage's solver.
    """
    for name in TASKS:
        found, wanted = tables[f"{name}_events"], list(events_of(toys, name, tables))
        assert list(found) == ["seed", "log10_init_scale", "time", "coordinate", "sign", "rises"]
        told = found.drop(columns="time").itertuples(index=False, name=None)
        assert list(told) == [(*row[:2], *row[3:]) for row in wanted]
        np.testing.assert_allclose(found["time"], [row[2] for row in wanted], rtol=1e-4, atol=1e-9)
    assert not tables["small_events"]["rises"].all()
    assert 0 in tables["paper_events"]["time"].tolist()
    assert set(tables["small_events"]["sign"]) == {-1, 1}


def test_the_stages_and_the_events_are_those_of_scipy(stage, tmp_path, toys):
    tables = run(stage, tmp_path, PARAMS)
    written = [
        f"{name}_{kind}.parquet" for name in ("paper", "small") for kind in ("events", "stages")
    ]
    assert files(tmp_path / "p") == ["forecast.parquet", *written]
    check_stages(tables, toys)
    check_events(tables, toys)


def test_more_events_than_are_allowed_end_in_an_error(stage, tmp_path, toys):
    with pytest.raises(StalledError, match="wanted at most 1 events, got more"):
        run(stage, tmp_path, {name: {**SMALL, "max_stages": 2} for name in toys}, max_events=1)
