"""The rank of an adapter, forecast and measured, against scipy's integrals of the head above its base."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from gradual_rank_reference import Head, Start, draw_toy, flow, head, staged_events
from made import files, generator

from lib.dynamics.stiff_flow import StalledError

PARAMS = {
    "log10_init_scales": [-2, -4],
    "n_changed": 2,
    "rescaled_end": 12,
    "threshold": 0.03,
    "stationary": 1e-5,
    "rtol": 1e-6,
    "atol": 1e-6,
    "curvature_samples": 3,
    "max_events": 30,
}
SEEDS = [5, 3]
COLUMNS = ["seed", "log10_init_scale", "source", "time", "end", "coordinate", "sign", "rises"]


def run(stage, tmp_path, **params):
    """The table, and the task; its targets, and the v of its starts, are not the adapter's."""
    toy = draw_toy(tmp_path / "task", SEEDS, (4, 3, 2), [20, 4], 0.3)
    stage("gradual_rank.forecast", {"a.b": {**PARAMS, **params}}, "a.b", tmp_path / "task", tmp_path / "forecast")
    return pd.read_parquet(tmp_path / "forecast"), toy


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
    end = -scale * math.log(10) * 12
    sources = {"forecast": staged_events(loss, start, end, 0.03), "measured": flow(loss, start, end, 0.03)[1]}
    for source, events in sources.items():
        for time, j, sign, rises in events:
            yield seed, scale, source, time, end, j, sign, rises


def test_forecast_and_measurement_are_those_of_scipy(stage, tmp_path):
    found, toy = run(stage, tmp_path)
    rows = [row for scale in (-2, -4) for i in range(2) for row in fine_tune(toy, i, scale)]
    wanted = pd.DataFrame(rows, columns=COLUMNS)
    assert list(found) == COLUMNS
    exact = ["seed", "log10_init_scale", "source", "coordinate", "sign", "rises"]
    assert found[exact].values.tolist() == wanted[exact].values.tolist()
    np.testing.assert_allclose(found["time"], wanted["time"], rtol=1e-4)
    np.testing.assert_allclose(found["end"], wanted["end"], rtol=1e-12)
    assert len(found.groupby(["seed", "log10_init_scale", "source"])) == 8
    assert files(tmp_path) == ["forecast", "params.yaml", "task"]


def test_a_table_without_events_has_its_columns(stage, tmp_path):
    found, _ = run(stage, tmp_path, rescaled_end=0.01)
    assert list(found) == COLUMNS
    assert found.empty


def test_more_events_than_are_allowed_end_in_an_error(stage, tmp_path):
    with pytest.raises(StalledError, match="wanted at most 1 events, got more"):
        run(stage, tmp_path, max_events=1)
