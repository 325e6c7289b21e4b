"""The training of full matrices: every snapshot, loss and rise, against descent by automatic
differentiation.
"""

import math
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.gradual_rank.full_reference import (
    NAMES,
    descent,
    first_rise,
    growth_at_zero,
    normal,
    output,
    reached,
    sigma,
    taught,
)
from tests.stages.made import files, read_run

SECTION = "any.family.full_weights"
# From the last scale all have risen already, from 1e-2 two have not at the end.
SCALES, SEEDS, RATE, THRESHOLD = [-1, -2, -0.6], [3, 4, 5], 0.35, 0.3
PARAMS = {
    "n_seeds": 3,
    "first_seed": 3,
    "n_samples": 7,
    "seq_len": 3,
    "d_model": 4,
    "log10_init_scales": SCALES,
    "learning_rate": RATE,
    "rescaled_end": 1.95,
    "threshold": THRESHOLD,
    "n_snapshots": 4,
    "look_every": 3,
}


def trained(seed, scale):
    """The losses, the weights at every step, and what the table of rises says."""
    X = normal(seed, "tokens", 7, 3, 4)
    Y = taught(X, seed)
    start = 10**scale * normal(seed, "full start", 4, 4, 4)
    waited = -scale * math.log(10)
    steps = descent(lambda W: (output(X, *W) - Y).square().mean(), start, lambda W, g: W - RATE * g)
    losses, W = zip(*islice(steps, math.ceil(1.95 * waited / RATE) + 1), strict=True)
    looks = range(0, len(W), 3)
    time = reached([RATE * k for k in looks], [sigma(*W[k][2:])[0] for k in looks], THRESHOLD)
    row = {"seed": seed, "log10_init_scale": scale, "time": time}
    row |= {"limit": waited / growth_at_zero(X, Y)[0]}
    row |= first_rise(X, Y, start, THRESHOLD, RATE)
    return np.array(losses) / float(Y.square().mean()), W, row


def run(stage, tmp_path, **params):
    paths = [tmp_path / name for name in ("runs", "rises")]
    stage("gradual_rank.full_weights", {SECTION: PARAMS | params}, SECTION, *paths)


def test_every_snapshot_loss_and_rise_is_that_of_descent_by_automatic_differentiation(
    stage, tmp_path
):
    (tmp_path / "runs" / "log10_init_scale=-9").mkdir(parents=True)  # of a run before
    run(stage, tmp_path)
    folders = sorted(folder.name for folder in (tmp_path / "runs").iterdir())
    assert folders == [f"log10_init_scale={scale}" for scale in (-0.6, -1, -2)]
    wanted = []
    for scale in SCALES:
        variant = f"log10_init_scale={scale}"
        layout, snapshots, rows = read_run(tmp_path / "runs" / variant)
        assert layout["family"] == "gradual_rank"
        assert layout["matrices"] == {name: ["seed", "row", "col"] for name in NAMES}
        assert layout["products"] == {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]}
        cell = {"variant": variant, "log10_init_scale": scale, "learning_rate": RATE}
        assert (layout["cell"], layout["seeds"]) == (cell, SEEDS)
        losses, W, rises = zip(*(trained(seed, scale) for seed in SEEDS), strict=True)
        wanted += rises
        saved = [round(k * (len(W[0]) - 1) / 3) for k in range(4)]
        table = [[k, step, seed] for k, step in enumerate(saved) for seed in SEEDS]
        assert rows[["snapshot", "step", "seed"]].values.tolist() == table
        np.testing.assert_allclose(rows["time"], rows["step"] * RATE)
        waited = -scale * math.log(10)
        np.testing.assert_allclose(rows["rescaled_time"], rows["step"] * RATE / waited)
        of_steps = np.stack(losses, 1)[saved].ravel()
        np.testing.assert_allclose(rows["loss"], of_steps, rtol=1e-9)
        for step, snapshot in zip(saved, snapshots, strict=True):
            assert set(snapshot) == set(NAMES)
            for k, name in enumerate(NAMES):
                own = torch.stack([path[step][k] for path in W])
                torch.testing.assert_close(snapshot[name], own, rtol=1e-8, atol=1e-12)
    wanted = pd.DataFrame([row for row in wanted if row["time"] < math.inf])
    assert wanted.loc[wanted["log10_init_scale"] == -2, "seed"].tolist() == [5]
    order = ["log10_init_scale", "seed"]
    found, wanted = (
        one.sort_values(order, ignore_index=True)
        for one in (pd.read_parquet(tmp_path / "rises"), wanted)
    )
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-8, check_dtype=False, check_like=True)


def test_descent_that_overflows_names_its_learning_rate_and_the_step(stage, tmp_path):
    with pytest.raises(InputError, match=r"learning_rate: .*stays finite, got 1e\+06 \(step \d+\)"):
        run(stage, tmp_path, learning_rate=1e6, rescaled_end=1e7)
    assert files(tmp_path) == ["params.yaml"]
