"""The rank of an adapter, forecast and measured, against scipy's integrals of the head above its
base.
"""

import math

import numpy as np
import pandas as pd
import torch

from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    Head,
    Start,
    draw_toy,
    flow,
    head,
    staged_events,
    write_problems,
)
from tests.stages.made import files, generator

# One stage of a head that is learned at once: the stage predicts heads, too (test_greedy.py).
PROBLEM = {"max_stages": 1, "forecast_scales": []}
PARAMS = {"log10_init_scales": [0, -2, -4], "n_changed": 2, "rescaled_end": 12}
ACCURATE = SOLVER | {"max_events": 30, "rtol": 1e-6, "atol": 1e-6}
SEEDS = [5, 3]
COLUMNS = ["seed", "log10_init_scale", "source", "end", "time", "coordinate", "sign", "rises"]


def run(stage, tmp_path, **params):
    """The table, and the task; its targets, and the v of its starts, are not the adapter's."""
    toy = draw_toy(tmp_path / "t/small.safetensors", SEEDS, (4, 3, 2), [20, 4], 0.3)
    draw_toy(tmp_path / "t/paper.safetensors", [2], (3, 2, 2), [36], 0.3)
    sections = {
        "a.greedy": {"stop_loss": 0.9},
        "a.b": {**PARAMS, **params},
        "a.solver": ACCURATE,
        "a.studied": "small",
    }
    sections["a.usual"] = {}
    problems = write_problems(tmp_path / "problems.tsv", {"paper": PROBLEM, "small": PROBLEM})
    stage("gradual_rank.greedy", sections, *sections, problems, tmp_path / "t", tmp_path / "p")
    return pd.read_parquet(tmp_path / "p/forecast.parquet"), toy


def fine_tune(toy, i, scale):
    """The rows of one seed and scale: the forecast, then what is measured."""
    seed, X, base = SEEDS[i], toy["X"][i], toy["teacher"][i]
    changed = torch.randperm(4, generator=generator(seed, "changed coordinates"))[:2].tolist()
    u, v = torch.randn(2, 4, generator=generator(seed, "change"), dtype=torch.float64)
    target = base.clone()
    for j in changed:
        target[j] += u[j] * v[j]
    loss = Head(X, head(X, target), base)
    start = Start(toy["u"][i].numpy(), np.zeros(4), scale)
    end = 12 * (-scale * math.log(10) + SOLVER["margin"])
    sources = {
        "forecast": staged_events(loss, start, end, 0.02),
        "measured": flow(loss, start, end, 0.02)[1],
    }
    for source, events in sources.items():
        for time, j, sign, rises in events:
            yield seed, scale, source, end, time, j, sign, rises


def test_forecast_and_measurement_are_those_of_scipy(stage, tmp_path):
    found, toy = run(stage, tmp_path)
    rows = [row for scale in (0, -2, -4) for i in range(2) for row in fine_tune(toy, i, scale)]
    wanted = pd.DataFrame(rows, columns=COLUMNS)
    assert list(found) == COLUMNS
    exact = ["seed", "log10_init_scale", "source", "coordinate", "sign", "rises"]
    assert found[exact].values.tolist() == wanted[exact].values.tolist()
    np.testing.assert_allclose(found["time"], wanted["time"], rtol=1e-4, atol=5e-6)
    np.testing.assert_allclose(found["end"], wanted["end"], rtol=1e-12)
    assert len(found.groupby(["seed", "log10_init_scale", "source"])) == 12
    written = [
        f"{name}_{kind}.parquet" for name in ("paper", "small") for kind in ("events", "stages")
    ]
    assert files(tmp_path / "p") == ["forecast.parquet", *written]


def test_a_table_without_events_has_its_columns(stage, tmp_path):
    for none in ({"rescaled_end": 0.01, "log10_init_scales": [-4]}, {"log10_init_scales": []}):
        found, _ = run(stage, tmp_path, **none)
        assert list(found) == COLUMNS
        assert found.empty
