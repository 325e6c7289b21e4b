"""The published disturbances at the paper's size: tables, measures and figures of a small head are
those of the stage that disturbs.
"""

import json

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from safetensors.torch import save_file

from lib.pages.measures import read_measures
from published.paper_disturbances import run as published
from stages.gradual_rank import assumptions
from tests.gradual_rank.whole_tables import whole_of

PARAMS = {
    "n_seeds": 4,
    "log10_init_scale": -1.5,
    "nonnegligible": 0.15,
    "noise": 0.07,
    "duration": 3,
    "n_random": 2,
    "n_rises": 1,
    "n_kicks": 2,
    "n_path_times": 9,
    "rtol": 1e-5,
    "atol": 1e-5,
}
OWN = {"n_seeds": 1, "n_kicks": 0, "rtol": 1e-4, "atol": 1e-4, "duration": 0.6}
STAGES = [(0, 0, 0.0, -1, 0), (0, 1, 2.6, 3, 1), (0, 2, 3.1, 0, 1)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A head of two columns, published."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(published, "OWN", OWN)
    monkeypatch.setattr(published, "EARLY", 0.3)
    draw = torch.Generator().manual_seed(1)
    X, Y = (torch.randn(1, 3, 2, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    u, v = (torch.randn(1, 4, generator=draw, dtype=torch.float64) for _ in range(2))
    toy = {"seeds": torch.tensor([0]), "X": X, "Y": Y, "teacher": u * v, "u": u, "v": v}
    save_file(toy, tmp_path / "task.safetensors")
    stages = pd.DataFrame(STAGES, columns=["seed", "stage", "time", "coordinate", "sign"])
    stages = whole_of("predictions/stages", stages.assign(p=[np.zeros(4)] * 3))
    stages.to_parquet(tmp_path / "stages.parquet")
    bars = {"returned": 0.5, "near": 0.05}
    params = {"gradual_rank": {"assumptions": PARAMS, "bars": bars | {"log10_init_scale": -4}}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params))
    published.main(tmp_path / "task.safetensors", tmp_path / "stages.parquet")
    return tmp_path


def test_what_is_published_is_what_the_stage_measures_with_other_numbers(folder):
    out = folder / "published" / "paper_disturbances"
    params = assumptions.Assumptions(**PARAMS | OWN)
    files = (folder / "task.safetensors", folder / "stages.parquet")
    wanted = assumptions.disturb(*files, params, published.CURVATURE_SHARE, 0)
    returns = pd.read_parquet(out / "tables" / "returns.parquet")
    assert len(returns) > 3
    for column in ("ratio_products", "ratio_weights"):
        np.testing.assert_allclose(returns[column], wanted["returns"][column], rtol=1e-5)
    measures = read_measures(out / "measures.csv")
    paths = wanted["paths"]
    paths = paths[(paths["noise"] == "independent") & (paths["kind"] == "random")]
    for name, end in (("early", 0.3), ("late", 0.6)):
        last = paths[paths["after"] <= end]
        last = last[last["after"] == last["after"].max()]
        apart = [np.abs(a - b).max() for a, b in zip(last["p"], last["p_undisturbed"], strict=True)]
        values = measures[f"random_distance.{name}"]["values"]
        np.testing.assert_allclose(values, apart, rtol=1e-5)
    assert "kick_error_independent" not in measures
    assert measures["setup"] == {
        "d_model": 2,
        "duration": 0.6,
        "early": 0.3,
        "returned": 0.5,
        "near": 0.05,
    }
    note = json.loads((out / "provenance.json").read_text())
    assert note["params"]["assumptions"]["rtol"] == 1e-4
    assert note["seeds"] == [0]
    names = sorted(file.name for file in (out / "figures").iterdir())
    assert names == ["figure-10-size.svg", "figure-9-size.svg"]
