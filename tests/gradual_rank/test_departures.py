"""Where a flow departs from Algorithm 1, by orders and plateaus written by hand, and by a flow that
comes to rest.
"""

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from lib.gradual_rank.departures import (
    agrees_from,
    difference,
    in_common,
    joins,
    off_plateaus,
    rises,
)
from lib.gradual_rank.diagonal_heads import Quadratic
from lib.gradual_rank.flow import LogCoordinates, log_flow
from lib.gradual_rank.greedy import strong_minimum
from published.transformers_seed_by_seed import run as published
from tests.pipeline.project import ROOT


def test_orders_are_of_what_rises_first_and_differ_from_the_first_other_on():
    rows = [(3.0, 1, 1, True), (1.0, 2, -1, True), (2.0, 2, -1, False), (4.0, 2, 1, True)]
    events = pd.DataFrame(rows, columns=["time", "coordinate", "sign", "rises"])
    assert rises(events) == [(2, -1), (1, 1)]
    rows = [(0, 0.0, -1, 0), (2, 2.0, 5, 1), (1, 1.0, 4, -1), (3, 3.0, 4, -1)]
    stages = pd.DataFrame(rows, columns=["stage", "time", "coordinate", "sign"])
    assert joins(stages) == [(4, -1), (5, 1)]
    assert in_common([(1, 1), (2, 1), (3, 1)], [(1, 1), (2, -1), (3, 1)]) == 1
    assert in_common([(1, 1), (2, 1)], [(1, 1), (2, 1), (3, 1)]) == 2
    assert in_common([], [(1, 1)]) == 0


def test_a_plateau_relaxes_as_often_as_the_flow_halves_its_distance_by_e():
    H = torch.tensor([[1.0, 0.4], [0.4, 0.5]], dtype=torch.float64)
    rest = np.array([1.5, -0.3])
    _, strict = strong_minimum(H.numpy(), rest)
    here = {"seed": 0, "stage": 1, "p": rest, "time": 2.0, "next_time": 5.0}
    stages = pd.DataFrame([here | {"strictness_weights": strict}])
    looked = {
        "seed": 0,
        "stage": 1,
        "log10_init_scale": -8.0,
        "p": rest + np.array([0.1, -0.3]),
        "time": 9.0,
    }
    [row] = off_plateaus(stages, pd.DataFrame([looked])).to_dict("records")
    assert row["error"] == pytest.approx(0.3)

    log_c = np.full(2, -60.0)
    y = np.sign(rest) * LogCoordinates(np.zeros(2), log_c).level(np.abs(rest) * [1.001, 0.999])
    start = LogCoordinates(y, log_c)
    loss = Quadratic(H, torch.from_numpy(rest))
    steps = list(log_flow(loss, start, 30.0, rtol=1e-10, atol=1e-10))
    late = [step for step in steps if 12 < step.time < 24]
    off = [np.log(np.abs(start.products(step.state) - rest).max()) for step in (late[0], late[-1])]
    rate = (off[0] - off[1]) / (late[-1].time - late[0].time)
    assert row["relaxations"] == pytest.approx(rate * 3 * 8 * math.log(10), rel=0.01)


@pytest.mark.parametrize(
    ("flow", "wanted"),
    [
        ([0.0, 0.5, 0.5, 0.0], ("late", "")),
        ([0.3, 0.5, 0.0, 0.01], ("not gone", "+0 -2")),
        ([0.3, 0.5, 0.7, -0.1], ("another", "+0 +3")),
    ],
)
def test_a_flow_differs_by_what_is_there(flow, wanted):
    p = [np.zeros(4), np.array([0.9, 0, 0, 0]), np.array([0.9, 0.5, 0, 0])]
    p.append(np.array([0, 0.7, 0.7, 0]))
    stages = pd.DataFrame({"stage": range(4), "p": p, "support": [one != 0 for one in p]})
    plateaus = pd.DataFrame({"stage": [3], "p": [np.array(flow)]})
    assert difference(stages, plateaus, 3, 0.02) == wanted


def test_what_agrees_at_one_scale_and_not_at_a_smaller_one_does_not_agree_from_there_on():
    errors = pd.Series({-4.0: 0.01, -8.0: 0.2, -16.0: 0.03, -32.0: 0.001})
    assert agrees_from(errors, 0.05) == -16
    assert math.isnan(agrees_from(errors, 1e-4))


def test_what_is_published_of_a_seed(tmp_path, monkeypatch):
    params = yaml.safe_load((ROOT / "params.yaml").read_text())["gradual_rank"]
    params["cases"] = {"problems": "problems.tsv"}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"gradual_rank": params}))
    columns = "name n_samples seq_len d_model n_layers n_heads d_mlp frames max_stages"
    cells = "transformer 8 3 2 1 2 2 own 3"
    lines = [columns + " flow_scales forecast_scales", cells + " [-4] [-4]"]
    table = "\n".join("\t".join(line.split(" ")) for line in lines) + "\n"
    (tmp_path / "problems.tsv").write_text(table)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(published, "SEEDS", range(2))
    monkeypatch.setattr(published, "SCALES", (-4.0, -8.0, -64.0))
    monkeypatch.setattr(published, "STUDIED", -8.0)
    published.main()
    out = published.OUT
    seeds = pd.read_parquet(out / "tables" / "seeds.parquet")
    plateaus = pd.read_parquet(out / "tables" / "plateaus.parquet")
    measures = json.loads((out / "measures.json").read_text())
    assert list(measures["error"]) == ["1e-4", "1e-8", "1e-64"]
    for row, error in zip(seeds.itertuples(), measures["error"]["1e-8"]["values"], strict=True):
        at = (plateaus["seed"] == row.seed) & (plateaus["stage"] == row.last_stage)
        own = plateaus[at & (plateaus["log10_init_scale"] == -8)]
        assert own["error"].tolist() == pytest.approx([error], rel=1e-5)
        assert (row.kind == "follows") == (error <= published.NEAR)
    assert measures["error"]["1e-64"]["values"] == pytest.approx([0, 0], abs=0.01)
    assert measures["foretold"]["values"] == [1, 1]
    assert measures["error_finer"]["values"] == pytest.approx([0, 0], abs=0.01)
    assert max(measures["error_finer"]["values"]) > 0
    assert measures["setup"]["n_seeds"] == 2
    assert (out / "figures" / "transformers-seeds.svg").is_file()
