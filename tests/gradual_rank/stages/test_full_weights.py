"""The training of full matrices: every snapshot, loss and rise, against descent by automatic
differentiation.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.stages.made import files, generator, read_run

SECTION = "any.family.full_weights"
PARAMS = {
    "n_seeds": 3,
    "first_seed": 3,
    "n_samples": 7,
    "seq_len": 3,
    "d_model": 4,
    "log10_init_scales": [
        -1,
        -2,
        -0.6,
    ],  # from the last all have risen already, from 1e-2 two have not at the end
    "learning_rate": 0.35,
    "rescaled_end": 1.95,
    "threshold": 0.3,
    "n_snapshots": 4,
    "look_every": 3,
}
SEEDS = [3, 4, 5]
NAMES = ("W_K", "W_Q", "W_V", "W_O")


def output(X, W):
    """Equation (1): softmax(X W_K W_Qᵀ Xᵀ) X W_V W_Oᵀ."""
    return torch.softmax(X @ W["W_K"] @ W["W_Q"].T @ X.mT, -1) @ X @ W["W_V"] @ W["W_O"].T


def problem(seed):
    """The tokens, what the teacher makes of them, and the start before it is scaled."""
    d = PARAMS["d_model"]
    shape = PARAMS["n_samples"], PARAMS["seq_len"], d
    X = torch.randn(shape, generator=generator(seed, "tokens"), dtype=torch.float64)
    drawn = [
        torch.randn(4, d, d, generator=generator(seed, name), dtype=torch.float64)
        for name in ("full teacher", "full start")
    ]
    teacher, start = (dict(zip(NAMES, W, strict=True)) for W in drawn)
    return X, output(X, {name: W / math.sqrt(d) for name, W in teacher.items()}), start


def trained(seed, scale):
    """The loss, the weights and the log of the first singular value of W_VO over the threshold, at
    every step.
    """
    X, Y, W = problem(seed)
    W = {name: 10**scale * w for name, w in W.items()}
    end = math.ceil(PARAMS["rescaled_end"] * -scale * math.log(10) / PARAMS["learning_rate"])
    found = []
    for _ in range(end + 1):
        W = {name: w.detach().requires_grad_() for name, w in W.items()}
        loss = (output(X, W) - Y).square().mean()
        above = torch.linalg.matrix_norm(W["W_V"] @ W["W_O"].T, 2).log() - math.log(
            PARAMS["threshold"]
        )
        found.append(
            (
                float(loss.detach() / Y.square().mean()),
                {name: w.detach() for name, w in W.items()},
                float(above.detach()),
            )
        )
        slopes = torch.autograd.grad(loss, list(W.values()))
        W = {
            name: w - PARAMS["learning_rate"] * g
            for (name, w), g in zip(W.items(), slopes, strict=True)
        }
    return found


def rise(found):
    """When log σ₁ crosses the threshold, on the straight line between the last two looks; None
    where it never does.
    """
    every, rate = PARAMS["look_every"], PARAMS["learning_rate"]
    for step in range(0, len(found), every):
        now = found[step][2]
        if now >= 0:
            before = found[step - every][2] if step else -math.inf
            return rate * (step if before == -math.inf else step - every * now / (now - before))
    return None


def forecast(seed, scale):
    """By the linear flow about 0: W_V' = G W_O, W_O' = Gᵀ W_V, whose first direction grows as e^(σ
    t).
    """
    X, Y, start = problem(seed)
    W_VO = torch.zeros(
        PARAMS["d_model"], PARAMS["d_model"], dtype=torch.float64, requires_grad=True
    )
    mean_tokens = X.mean(-2, keepdim=True).expand_as(X)  # attention is uniform at 0
    (slope,) = torch.autograd.grad((mean_tokens @ W_VO - Y).square().mean(), W_VO)
    U, sigma, V = np.linalg.svd(-slope.numpy())
    joint = U[:, 0] @ start["W_V"].numpy() + V[0] @ start["W_O"].numpy()
    growth = math.log(4 * PARAMS["threshold"] / (10 ** (2 * scale) * (joint @ joint)))
    rate = PARAMS["learning_rate"]
    return {
        "limit": -scale * math.log(10) / sigma[0],
        "finite": growth / (2 * sigma[0]),
        "stepped": growth / (2 * math.log(1 + rate * sigma[0]) / rate),
    }


def test_every_snapshot_loss_and_rise_is_that_of_descent_by_automatic_differentiation(
    stage, tmp_path
):
    stale = tmp_path / "runs" / "log10_init_scale=-9"
    stale.mkdir(parents=True)
    stage(
        "gradual_rank.full_weights",
        {SECTION: PARAMS},
        SECTION,
        tmp_path / "runs",
        tmp_path / "rises",
    )
    assert sorted(folder.name for folder in (tmp_path / "runs").iterdir()) == [
        "log10_init_scale=-0.6",
        "log10_init_scale=-1",
        "log10_init_scale=-2",
    ]
    wanted = []
    for scale in PARAMS["log10_init_scales"]:
        layout, snapshots, rows = read_run(tmp_path / "runs" / f"log10_init_scale={scale}")
        assert layout["family"] == "gradual_rank"
        assert layout["matrices"] == {name: ["seed", "row", "col"] for name in NAMES}
        assert layout["products"] == {"W_KQ": ["W_K", "W_Q"], "W_VO": ["W_V", "W_O"]}
        cell = {
            "variant": f"log10_init_scale={scale}",
            "log10_init_scale": scale,
            "learning_rate": 0.35,
        }
        assert (layout["cell"], layout["seeds"]) == (cell, SEEDS)
        descents = [trained(seed, scale) for seed in SEEDS]
        saved = [round(k * (len(descents[0]) - 1) / 3) for k in range(4)]
        assert len(snapshots) == 4
        assert len(rows) == 4 * 3
        for number, step in enumerate(saved):
            assert set(snapshots[number]) == set(NAMES)
            for i, seed in enumerate(SEEDS):
                loss, W, _ = descents[i][step]
                (row,) = rows[(rows["snapshot"] == number) & (rows["seed"] == seed)].to_dict(
                    "records"
                )
                time = step * 0.35
                rescaled = time / (-scale * math.log(10))
                numbers = {
                    "snapshot": number,
                    "seed": seed,
                    "step": step,
                    "time": time,
                    "rescaled_time": rescaled,
                }
                assert row == pytest.approx({**numbers, "loss": loss}, rel=1e-9)
                for name in NAMES:
                    torch.testing.assert_close(
                        snapshots[number][name][i], W[name], rtol=1e-8, atol=1e-12
                    )
        for seed, found in zip(SEEDS, descents, strict=True):
            time = rise(found)
            if time is not None:
                wanted.append(
                    {"seed": seed, "log10_init_scale": scale, "time": time, **forecast(seed, scale)}
                )
    rises = pd.read_parquet(tmp_path / "rises")
    assert {row["seed"] for row in wanted if row["log10_init_scale"] == -2} == {5}
    pd.testing.assert_frame_equal(
        rises.sort_values(["log10_init_scale", "seed"], ignore_index=True),
        pd.DataFrame(wanted).sort_values(["log10_init_scale", "seed"], ignore_index=True)[
            list(rises.columns)
        ],
        rtol=1e-8,
        check_dtype=False,
    )
    assert len(rises.columns) == len(wanted[0])


def test_descent_that_overflows_names_its_learning_rate_and_the_step(stage, tmp_path):
    params = {**PARAMS, "learning_rate": 1e6, "rescaled_end": 1e7}
    with pytest.raises(InputError, match=r"learning_rate: .*stays finite, got 1e\+06 \(step \d+\)"):
        stage(
            "gradual_rank.full_weights",
            {SECTION: params},
            SECTION,
            tmp_path / "runs",
            tmp_path / "rises",
        )
    assert files(tmp_path) == ["params.yaml"]
