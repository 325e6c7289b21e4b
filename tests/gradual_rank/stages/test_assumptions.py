"""The disturbances of the flow and of the starts of stages, against the flow of the weights
themselves.
"""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from scipy.integrate import solve_ivp

from lib.files.files import InputError
from tests.gradual_rank.gradual_rank_reference import SOLVER, Head, compare
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import files, generator, table

SECTION = "any.family.assumptions"
PARAMS = {
    "n_seeds": 2,
    "first_seed": 8,
    "log10_init_scale": -1.5,
    "nonnegligible": 0.15,
    "noise": 0.07,
    "duration": 0.6,
    "n_random": 2,
    "n_rises": 1,
    "n_kicks": 2,
    "n_path_times": 3,
    "rtol": 2e-7,
    "atol": 1e-7,
}
KNOWN, SEEDS = [9, 8, 7], (8, 9)
SIZE = 4
# When which coordinate joins with which sign, for every seed, and the plateau then: any numbers
# will do.
STAGES = """
seed time coordinate sign p
9    0    -1         0    0,0,0,0
9    2.6  3          1    0,0,0,0.6
9    3.1  0          1    0.4,0,0,0.7
9    4.4  2          -1   0.5,0,-0.3,0.8
9    5.2  1          -1   0.5,-0.1,-0.3,0.8
8    0    -1         0    0,0,0,0
8    .6   2          1    0,0,0.7,0
8    .9   1          -1   0,-0.2,0.9,0
8    1.8  3          -1   0,-0.3,0.8,-0.5
7    0    -1         0    0,0,0,0
7    1    1          1    0,9,0,0
"""
WITHIN = {"rtol": 2e-4, "atol": 2e-4}  # of the stage's solver, whose steps are to be few


def stages_of(seed):
    rows = table(STAGES)
    return rows[rows["seed"] == seed].to_dict("records")


def toy():
    draw = torch.Generator().manual_seed(1)
    X, Y = (torch.randn(len(KNOWN), 3, 2, 2, generator=draw, dtype=torch.float64) for _ in range(2))
    u, v = (torch.randn(len(KNOWN), SIZE, generator=draw, dtype=torch.float64) for _ in range(2))
    u[0, 0], v[0, 0] = 6, 5  # not negligible from the start: no rise
    return {
        "seeds": torch.tensor(KNOWN),
        "X": X,
        "Y": 2 * Y,
        "teacher": torch.zeros_like(u),
        "u": u,
        "v": v,
    }


def flow(loss, u, v, times, active=True):
    """(u, v) at the times, of which the first is 0; the products of what is not active count as
    0.
    """

    def velocity(_, weights):
        u, v = np.split(weights, 2)
        g = loss.g(np.where(active, u * v, 0))
        return np.concatenate([v * g, u * g])

    start = np.concatenate([u, v])
    options = {"method": "LSODA", "rtol": 1e-8, "atol": 1e-10}
    found = solve_ivp(velocity, (0, times[-1]), start, t_eval=times, **options)
    return np.split(found.y, 2)


def gaussians(*purpose):
    draw = np.random.default_rng(generator(*purpose).initial_seed())
    return draw.normal(0, PARAMS["noise"], (2, SIZE))


def points(loss, u, v, seed):
    """Kind, time and weights of random points and of those where a weight stops being
    negligible.
    """
    log_scale = -PARAMS["log10_init_scale"] * math.log(10)
    first, last = (stages_of(seed)[k]["time"] * log_scale for k in (1, -1))
    grid = np.linspace(0, last, 2000)
    U, V = flow(loss, math.exp(-log_scale) * u, math.exp(-log_scale) * v, grid)
    draw = np.random.default_rng(generator(seed, "times of disturbances").initial_seed())
    chosen = [
        ("random", int((grid < t).sum())) for t in draw.uniform(first, last, PARAMS["n_random"])
    ]
    risen = [
        np.flatnonzero(np.sqrt(abs(U[i] * V[i])) > PARAMS["nonnegligible"])[:1] for i in range(SIZE)
    ]
    rises = sorted(int(k[0]) for k in risen if len(k) and k[0] > 0)
    assert len(rises) > PARAMS["n_rises"]
    chosen += [("rise", k) for k in rises[: PARAMS["n_rises"]]]
    return [(kind, grid[k], U[:, k], V[:, k]) for kind, k in chosen]


def disturbed(u, v, noise, draw):
    """Noise on the weights that are not negligible; balanced noise makes |p| = (u + noise)² and
    keeps u² - v².
    """
    touched = np.maximum(abs(u), abs(v)) > PARAMS["nonnegligible"]
    if noise == "everywhere":
        return u + draw[0], v + draw[1], np.ones(SIZE, bool)
    new_u, new_v = u.copy(), v.copy()
    for i in np.flatnonzero(touched):
        if noise == "independent":
            new_u[i], new_v[i] = u[i] + draw[0][i], v[i] + draw[1][i]
        else:
            p, kept = np.sign(u[i] * v[i]) * (u[i] + draw[0][i]) ** 2, u[i] ** 2 - v[i] ** 2
            both = math.hypot(kept, 2 * p)
            if kept > 0:  # then u is the larger, and keeps its sign
                new_u[i] = np.sign(u[i]) * math.sqrt((both + kept) / 2)
                new_v[i] = p / new_u[i]
            else:
                new_v[i] = np.sign(v[i]) * math.sqrt((both - kept) / 2)
                new_u[i] = p / new_v[i]
    return new_u, new_v, touched


def expected(loss, u, v, seed):
    """The rows of the returns, the paths and the kicks of a seed."""
    returns, paths, kicks = [], [], []
    times = PARAMS["duration"] * np.linspace(0, 1, PARAMS["n_path_times"]) ** 3
    for number, (kind, time, here_u, here_v) in enumerate(points(loss, u, v, seed)):
        still = flow(loss, here_u, here_v, times)
        q = still[0] * still[1]
        noises = ("balanced", "independent", "everywhere")
        for noise in noises if kind == "random" else noises[:2]:
            moved_u, moved_v, touched = disturbed(
                here_u, here_v, noise, gaussians(seed, "disturbance", number)
            )
            moved = flow(loss, moved_u, moved_v, times)
            p = moved[0] * moved[1]
            apart = [abs(p[:, k] - q[:, k]).max() for k in (0, -1)]
            far = [
                np.linalg.norm(
                    np.concatenate([a[:, k] - b[:, k] for a, b in zip(moved, still, strict=True)])
                )
                for k in (0, -1)
            ]
            row = {"seed": seed, "point": number, "kind": kind, "time": time, "noise": noise}
            ratios = {"ratio_products": apart[1] / apart[0], "ratio_weights": far[1] / far[0]}
            returns.append({**row, **ratios})
            for k, after in enumerate(times):
                known = {
                    "coordinates": np.flatnonzero(touched),
                    "p": p[touched, k],
                    "p_undisturbed": q[touched, k],
                }
                paths.append({**row, "after": after, **known})
    stages = stages_of(seed)
    n_stages = len(stages) - 1
    for k in sorted({1 + i * n_stages // PARAMS["n_kicks"] for i in range(PARAMS["n_kicks"])}):
        newcomer, sign, end = (stages[k][name] for name in ("coordinate", "sign", "p"))
        p, draw = stages[k - 1]["p"], gaussians(seed, "kick", k)
        root, signs, active = np.sqrt(abs(p)), np.sign(p), p != 0
        signs[newcomer], active[newcomer] = sign, True
        for noise in ("none", "balanced", "independent"):
            u0 = abs(root + draw[0]) if noise != "none" else root.copy()
            if noise == "none":
                u0[newcomer] = PARAMS["noise"]
            v0 = abs(root + draw[1]) if noise == "independent" else u0
            U, V = flow(loss, u0, signs * v0, [0, PARAMS["duration"]], active)
            error = abs(np.where(active, (U * V)[:, -1], 0) - end).max()
            kicks.append({"seed": seed, "stage": k, "noise": noise, "error": error})
    return returns, paths, kicks


def run(stage, folder, params=PARAMS, n_stages=9):
    save_file(toy(), folder / "task")
    rows = table(STAGES)
    rows["stage"] = rows.groupby("seed").cumcount()
    rows = rows[rows["stage"] < n_stages][::-1]
    whole_of("predictions/stages", rows).to_parquet(folder / "stages")
    sections = {SECTION: params, "any.solver": SOLVER}
    paths = (folder / name for name in ("task", "stages", "out"))
    stage("gradual_rank.assumptions", sections, SECTION, "any.solver", *paths)


def test_what_is_disturbed_and_begun_elsewhere_moves_as_its_weights_do(stage, tmp_path):
    run(stage, tmp_path)
    assert files(tmp_path / "out") == ["kicks.parquet", "paths.parquet", "returns.parquet"]
    known, found = toy(), ([], [], [])
    for seed in SEEDS:
        i = KNOWN.index(seed)
        loss = Head(known["X"][i], known["Y"][i])
        rows = expected(loss, known["u"][i].numpy(), known["v"][i].numpy(), seed)
        for kind, more in zip(found, rows, strict=True):
            kind += more
    for name, rows in zip(("returns", "paths", "kicks"), found, strict=True):
        compare(pd.read_parquet(tmp_path / "out" / f"{name}.parquet"), rows, WITHIN)


def test_a_seed_in_which_nothing_ever_joins_has_no_points_and_no_stages(stage, tmp_path):
    run(stage, tmp_path, n_stages=1)
    for name in ("returns", "paths", "kicks"):
        assert pd.read_parquet(tmp_path / "out" / f"{name}.parquet").empty


def test_seeds_without_a_task_are_refused(stage, tmp_path):
    with pytest.raises(
        InputError, match=r"assumptions: wanted seeds of \[9, 8, 7\], got \[9, 10\]"
    ):
        run(stage, tmp_path, {**PARAMS, "first_seed": 9})
    assert files(tmp_path) == ["params.yaml", "stages", "task"]
