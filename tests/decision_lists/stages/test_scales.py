"""The flows of the stage at other scales, against scipy's on the loss itself, in W and its own
time.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import (
    AGAIN,
    NEAR,
    OTHER,
    equal,
    of_choices,
    of_loss,
    read_tables,
    task,
    write_tasks,
)
from tests.stages.made import files, read_run

SECTION, SOLVER = "decision_lists.scales", "decision_lists.solver.scales"
TIMED = NEAR | {"name": "timed", "use": "law"}
AT_ONCE = task("at once", 3, [[a] for a in range(4)], "2 0 3 1", [1], use="law")
SEEN = [one | {"use": "spectral"} for one in (NEAR, AGAIN, OTHER)]
IDLE = NEAR | {"name": "idle"}
TASKS = (*SEEN[:1], TIMED, IDLE, *SEEN[1:], AT_ONCE)
PARAMS = {
    "law_scales": [4, 25],
    "spectral": {"scale": 6, "first_time": 0.03, "last_time": 5, "n_snapshots": 4},
}
SOLVE = {"rtol_law": 1e-8, "rtol_spectral": 1e-8, "longest_law": 400, "n_compared": 7}
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if not KEPT:
        write_tasks(tmp_path / "runs/old/steps.parquet", NEAR)
        follow(stage, tmp_path)
        KEPT.update(read_tables(tmp_path / "tables"))
        KEPT["runs"] = {folder.name: read_run(folder) for folder in (tmp_path / "runs").iterdir()}
    return KEPT


def follow(stage, folder, tasks=TASKS, **solve):
    params = {SECTION: PARAMS, SOLVER: SOLVE | solve}
    written = write_tasks(folder / "tasks", *tasks)
    outs = folder / "tables", folder / "runs"
    stage("decision_lists.scales", params, SECTION, SOLVER, written, *outs)


def test_the_law_of_the_time_is_that_of_each_scale_and_of_the_limit(tables):
    wanted = []
    for one in (TIMED, AT_ONCE):
        limit = of_choices(one, 400)
        end = limit.first()
        about = {name: one[name] for name in ("law", "n_tokens", "seq_len")}
        about |= {"task": one["name"], "scale": math.inf, "at_once": limit.at_once()}
        wanted.append(about | {"rescaled_time": end})
        for c in (4, 25) if end else ():
            flow = of_loss(one, c, 400 / c**2)
            brute, first = flow.brute, flow.first()
            row = about | {"scale": c, "at_once": flow.at_once(), "rescaled_time": first * c**2}
            row["path_error"] = max(
                float((c * flow.at(t / c**2) - limit.at(t)).norm() / limit.at(t).norm())
                for t in np.geomspace(end / 1000, end, 7)
            )
            if not math.isnan(first):
                W = flow.at(first)
                row["attention_to_star"] = float(brute.weight @ brute.attention_to_star(W))
            wanted.append(row)
    wanted = pd.DataFrame(wanted)
    assert wanted["rescaled_time"].isna().tolist() == [False, True, False, False]
    assert set(tables["law"]) == set(wanted)
    equal(tables["law"][list(wanted)], wanted, rtol=1e-6, check_dtype=False)


def test_the_runs_that_are_kept_hold_the_flow_at_times_evenly_spaced_in_the_logarithm(tables):
    times = [0, 0.03, 0.03 * (5 / 0.03) ** (1 / 3), 0.03 * (5 / 0.03) ** (2 / 3), 5]
    for one in SEEN:
        layout, snapshots, steps = tables["runs"][one["name"]]
        assert layout == {
            "family": "decision_lists",
            "matrices": {"W": ["seed", "row", "col"]},
            "products": {},
            "gauge": {"W": "column shift"},
            "seeds": [0],
            "format": "transformer dynamics run 1",
            "cell": {"task": one["name"], "group": one["group"], "law": one["law"], "scale": 6},
        }
        flow = of_loss(one, 6, 5.1)
        brute, wanted = flow.brute, []
        for number, (t, weights) in enumerate(zip(times, snapshots, strict=True)):
            W = flow.at(t)
            torch.testing.assert_close(weights, {"W": W[None]}, rtol=1e-6, atol=1e-7)
            loss, accuracy = float(brute.loss(W, 6 * brute.P)), brute.accuracy(W, 6 * brute.P)
            row = {"snapshot": number, "time": t, "loss": loss, "accuracy": accuracy}
            wanted.append(row | {"margin": float(brute.margins(W).min())})
        equal(steps, wanted, rtol=1e-6, atol=1e-7)
    assert tables["runs"].keys() == {one["name"] for one in SEEN}


def test_a_law_that_does_not_end_is_refused_and_nothing_is_written(stage, tmp_path):
    with pytest.raises(
        InputError, match="timed: wanted all right by the rescaled time 300, got errors"
    ):
        follow(stage, tmp_path, [NEAR, TIMED], longest_law=300)
    assert files(tmp_path) == ["params.yaml", "tasks"]
