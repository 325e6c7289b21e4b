"""The flows of the stage at other scales, against scipy's on the loss itself, in W and its own
time.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import of_choices, of_loss, task, write_tasks
from tests.stages.made import files, read_run

SECTION, SOLVER = "decision_lists.scales", "decision_lists.solver.scales"
PI = "2 0 3 1"
NEAR = task("near-0", "near", 4, 2, "3 1 0 / 2 1 / 2 / 1 3", PI, "5 1 3 2 7 4", law="first law")
OTHER = task("other-0", "other", 4, 3, "2 0 / 0 1 / 1 3 2 / 3", PI, "2 4 1 9", law="second law")
AGAIN = task("again", "again", 2, 4, "1 0 / 1", "1 0", "1 0.001 5 3 2", repeats=True, law="pairs")
TIMED = NEAR | {"name": "timed", "use": "law"}
AT_ONCE = task("at once", "easy", 4, 3, [[a] for a in range(4)], PI, [1], law="flat", use="law")
SEEN = [one | {"name": f"{one['name']}-seen", "use": "spectral"} for one in (NEAR, AGAIN, OTHER)]
IDLE = NEAR | {"name": "idle", "use": "controls"}
TASKS = (*SEEN[:1], TIMED, IDLE, *SEEN[1:], AT_ONCE)
PARAMS = {
    "law_scales": [4, 25],
    "spectral": {"scale": 6, "first_time": 0.03, "last_time": 5, "n_snapshots": 4},
}
SOLVE = {"rtol_law": 1e-8, "rtol_spectral": 1e-8, "longest_law": 400, "n_compared": 7}
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    """The table and runs that the stage makes of all tasks, in folders with something old in
    them.
    """
    if not KEPT:
        for old in ("tables/old.parquet", "runs/old/steps.parquet"):
            write_tasks(tmp_path / old, NEAR)
        follow(stage, tmp_path)
        KEPT.update({file.stem: pd.read_parquet(file) for file in (tmp_path / "tables").iterdir()})
        KEPT["files"] = [
            *files(tmp_path / "tables"),
            *(file.name for file in sorted((tmp_path / "runs").iterdir())),
        ]
        KEPT["runs"] = {folder.name: read_run(folder) for folder in (tmp_path / "runs").iterdir()}
    return KEPT


def follow(stage, folder, tasks=TASKS, **solve):
    params, written = (
        {SECTION: PARAMS, SOLVER: SOLVE | solve},
        write_tasks(folder / "tasks", *tasks),
    )
    stage(
        "decision_lists.scales",
        params,
        SECTION,
        SOLVER,
        written,
        folder / "tables",
        folder / "runs",
    )


def test_the_law_of_the_time_is_that_of_each_scale_and_of_the_limit(tables):
    wanted = []
    for one in (TIMED, AT_ONCE):
        limit = of_choices(one, 400)
        about = {name: one[name] for name in ("law", "n_tokens", "seq_len")}
        if limit.at_once():
            wanted.append(
                {
                    "task": one["name"],
                    **about,
                    "scale": math.inf,
                    "at_once": True,
                    "rescaled_time": 0.0,
                }
            )
            continue
        end = limit.first()
        times = np.geomspace(end / 1000, end, 7)
        wanted.append(
            {
                "task": one["name"],
                **about,
                "scale": math.inf,
                "at_once": False,
                "rescaled_time": end,
            }
        )
        for c in (4, 25):
            flow = of_loss(one, c, 400 / c**2)
            brute, first = flow.brute, flow.first()
            u = [limit.at(t) for t in times]
            row = {
                "task": one["name"],
                **about,
                "scale": c,
                "at_once": flow.at_once(),
                "rescaled_time": first * c**2,
            }
            row["path_error"] = max(
                float((c * flow.at(t / c**2) - x).norm() / x.norm())
                for t, x in zip(times, u, strict=True)
            )
            if not math.isnan(first):
                W = flow.at(first)
                row["largest_attention"] = one["seq_len"] * float(brute.attention(W).max())
                row["attention_to_star"] = float(brute.weight @ brute.attention_to_star(W))
            wanted.append(row)
    assert pd.DataFrame(wanted)["rescaled_time"].isna().tolist() == [False, True, False, False]
    assert set(tables["law"]) == set().union(*wanted)
    found = tables["law"][list(pd.DataFrame(wanted))]
    pd.testing.assert_frame_equal(found, pd.DataFrame(wanted), rtol=1e-6, check_dtype=False)


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
        pd.testing.assert_frame_equal(steps, pd.DataFrame(wanted), rtol=1e-6, atol=1e-7)
    assert tables["runs"].keys() == {one["name"] for one in SEEN}


def test_without_a_law_there_is_no_table(stage, tmp_path):
    follow(stage, tmp_path, SEEN[:1])
    assert files(tmp_path / "tables") == []


def test_what_is_written_is_nothing_else(tables):
    assert tables["files"] == ["law.parquet", "again-seen", "near-0-seen", "other-0-seen"]


def test_a_law_that_does_not_end_is_refused_and_nothing_is_written(stage, tmp_path):
    with pytest.raises(
        InputError, match="timed: wanted all right by the rescaled time 300, got errors"
    ):
        follow(stage, tmp_path, [NEAR, TIMED], longest_law=300)
    assert files(tmp_path) == ["params.yaml", "tasks"]
