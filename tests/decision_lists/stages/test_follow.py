"""The descents with the steps of V apart, and draws of noise, against autograd."""

import math

import numpy as np
import pandas as pd
import pytest

from tests.decision_lists.decision_lists_made import (
    NEAR,
    Brute,
    longest,
    noisy_start,
    read_tables,
    task,
    write_tasks,
)

SECTION = "decision_lists.descend"
# Two are right after some steps; one is not within twice the steps that it had.
LONG = task("long", 11, [[a] for a in range(12)], [*range(1, 12), 0], "3 4", use="both")
TASKS = {"long": LONG, "near": NEAR | {"use": "both"}}
RUNS = [
    ("near", "adversarial", 12, 1e-4),
    ("long", "uniform", 7, 1e-7),
    ("near", "uniform", 2, 1e-13),
]
PARAMS = {SECTION: {"noise": ["none"], "noise_seed": 6}}


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    if not KEPT:
        tasks = write_tasks(tmp_path / "tasks", NEAR | {"name": "idle"}, *TASKS.values())
        runs = pd.DataFrame(RUNS, columns=["task", "noise", "n_steps", "step_size"])
        (tmp_path / "descend").mkdir()
        runs.to_parquet(tmp_path / "descend" / "both.parquet")
        arguments = SECTION, tasks, tmp_path / "descend", tmp_path / "out"
        stage("decision_lists.follow", PARAMS, *arguments)
        KEPT.update(read_tables(tmp_path / "out"))
    return KEPT


def test_every_descent_is_that_of_autograd_and_says_how_far_v_moves(tables):
    wanted = []
    for name, noise, n_steps, eta in sorted(RUNS, key=lambda run: -run[2]):
        one = TASKS[name]
        brute = Brute(one)
        c, _, offset = noisy_start(one, noise, 6)
        V_0 = c * brute.P + offset
        W = moved = 0 * V_0
        steps, number = [], math.inf
        for k in range(2 * n_steps + 1):
            by_W, by_V = brute.gradients(W, V_0 + moved)
            steps.append(float((eta * by_V * brute.P).abs().max()))
            at_P = float((moved * brute.P).abs().max())
            if float(brute.logit_margins(W, V_0 + moved).min()) > 0:
                number = k
                break
            W, moved = W - eta * by_W, moved - eta * by_V
        found = {"task": name, "noise": noise, "followed_steps": float(number)}
        found |= {"largest_step": max(steps), "moved": at_P}
        wanted.append(found | {"stands_still": max(steps) < np.spacing(c) / 2})
    wanted = pd.DataFrame(wanted)
    assert wanted["stands_still"].nunique() == 2
    assert wanted["followed_steps"].between(1, 100).tolist() == [True, True, False]
    pd.testing.assert_frame_equal(tables["followed"], wanted, rtol=1e-5, atol=0, check_dtype=False)


def test_every_draw_of_noise_has_its_first_loss_and_what_that_leaves(tables):
    draws = tables["draws"].to_dict("records")
    wanted = [(name, seed) for name in TASKS for seed in range(7, 27)]
    assert [(row["task"], row["seed"]) for row in draws] == wanted
    for row in draws[::7]:
        one = TASKS[row["task"]]
        n, m = one["seq_len"], longest(one)
        c, epsilon, offset = noisy_start(one, "uniform", row["seed"])
        brute = Brute(one)
        L_0 = float(brute.loss(0 * offset, c * brute.P + offset))
        A = L_0 - 6 * epsilon / n
        assert row["share"] == pytest.approx(L_0 / math.log(n), rel=1e-9)
        assert row["met"] == (A > 0 and 4 * m * L_0 / epsilon < A**2)
        r = row["least_share"]
        assert r > 1 / 3
        assert n * math.log(n) ** 2 * (r - 1 / 3) ** 2 == pytest.approx(72 * m * r)


def test_without_descents_there_are_draws_alone(stage, tmp_path):
    tasks = write_tasks(tmp_path / "tasks", TASKS["near"])
    stage("decision_lists.follow", PARAMS, SECTION, tasks, tmp_path / "no", tmp_path / "out")
    assert list(read_tables(tmp_path / "out")) == ["draws"]
