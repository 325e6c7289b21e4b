"""Where a flow departs from Algorithm 1, by orders and plateaus written by hand, and by a flow that
comes to rest.
"""

import math

import numpy as np
import pandas as pd
import pytest
import yaml

from lib.gradual_rank.departures import (
    agrees_from,
    difference,
    in_common,
    joins,
    off_plateaus,
    rises,
)
from lib.pages.measures import read_measures
from published.transformers_seed_by_seed import run as published
from tests.pipeline.project import ROOT
from tests.stages.made import table


def test_orders_are_of_what_rises_first_and_differ_from_the_first_other_on():
    events = table("""
time coordinate sign rises
3    1          1    True
1    2          -1   True
2    2          -1   False
4    2          1    True
""")
    assert rises(events) == [(2, -1), (1, 1)]
    stages = table("""
stage time coordinate sign
0     0    -1         0
2     2    5          1
1     1    4          -1
3     3    4          -1
""")
    assert joins(stages) == [(4, -1), (5, 1)]
    assert in_common([(1, 1), (2, 1), (3, 1)], [(1, 1), (2, -1), (3, 1)]) == 1
    assert in_common([(1, 1), (2, 1)], [(1, 1), (2, 1), (3, 1)]) == 2


def test_a_plateau_is_off_by_its_worst_product_and_relaxes_at_the_rate_of_its_slowest():
    stages = table("""
seed stage p       time next_time strictness_weights
0    0     0,0     0    2         9
0    1     1.5,-.3 2    5         .25
""")
    plateaus = table("""
seed stage log10_init_scale p       time
0    0     -8               9,9     1
0    1     -8               1.6,-.6 9
""")
    [row] = off_plateaus(stages, plateaus).to_dict("records")
    assert row["error"] == pytest.approx(0.3)
    assert row["relaxations"] == pytest.approx(0.25 * 3 * 8 * math.log(10))


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
    measures = read_measures(out / "measures.csv")
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
