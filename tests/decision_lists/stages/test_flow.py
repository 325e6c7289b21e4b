"""The gradient flows of the stage, against scipy's at tight tolerances on the loss itself, in W and
its own time.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import (
    AGAIN,
    NEAR,
    OTHER,
    TWICE,
    classes,
    cyclic,
    equal,
    longest,
    of_loss,
    rarest,
    read_tables,
    task,
    write_tasks,
)
from tests.stages.made import files

SECTION, SOLVER = "decision_lists.flow", "decision_lists.solver.flow"
# Right at once, then lost, then right again: the example of docs/decision_lists.md.
LOST_CHANCES = {(0, 3, 4, 5): 100, (0, 1, 2, 4): 3.5, (0, 2, 6, 7): 1}
LOST = task(
    "lost",
    4,
    "1 2 3 0 / 1 / 2 / 3 / 4 / 5 / 6 / 7",
    "1 2 3 4 5 6 7 0",
    [LOST_CHANCES.get(s, 0) for s in classes(8, 4, False)],
    use="bound",
)
FAR = task("far", 2, "3 0 / 4 2 1 / 0 2 / 3 / 2 4", "2 0 3 4 1", "1 4 2 8 3 5 7 6 9 2", use="bound")
THEOREM = [NEAR | {"use": "theorem"}, LOST, FAR, AGAIN | {"use": "bound"}]
THEOREM += [OTHER | {"use": "theorem"}]
THRICE = task("thrice", 3, "1 0 / 1 / 0 2", "1 2 0", "2 3 1", repeats=True)
REPEATS = [one | {"use": "repeats"} for one in (THRICE, TWICE)]
STEEP = NEAR | {"name": "steep", "use": "gamma"}
IDLE = NEAR | {"name": "idle"}
TASKS = (*THEOREM[:2], REPEATS[0], IDLE, STEEP, *THEOREM[2:], REPEATS[1])
PARAMS = {"repeats_scale": 3, "gamma_shares": [2, 0.5]}
SOLVE = {
    "rtol_theorem": 1e-8,
    "rtol_to_bound": 1e-4,
    "rtol_repeats": 1e-8,
    "rtol_many": 1e-8,
    "longest_repeats": 37,
}
MANY = [(7, 3, 1), (7, 3, 4), (7, 3, 2), (5, 2, 1), (5, 2, 2)]
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    KEPT.update(KEPT or follow(stage, tmp_path))
    return KEPT


def follow(stage, folder, tasks=TASKS, many=MANY):
    lines = ["n_tokens\tseq_len\tlist_length", *("\t".join(map(str, sizes)) for sizes in many)]
    (folder / "many.tsv").write_text("\n".join(lines) + "\n")
    params = {SECTION: PARAMS, SOLVER: SOLVE}
    inputs = write_tasks(folder / "tasks", *tasks), folder / "many.tsv"
    stage("decision_lists.flow", params, SECTION, SOLVER, *inputs, folder / "tables")
    return read_tables(folder / "tables")


def theorem(task, share=1):
    """The γ, scale and bound of a task with δ = share P_min / n, so that γ = (4 / share - 1)²."""
    log_L, n, P_min = math.log(task["n_tokens"]), task["seq_len"], rarest(task)
    gamma = {0.5: 49, 1: 9, 2: 1}[share]
    return gamma, 4 * n * n * log_L / (share * P_min), 4 * longest(task) / (gamma * log_L)


def row_of_theorem(one, path, flow):
    """What the table must say of a run whose path is this."""
    gamma, c, bound = theorem(one)
    times, margins = (path[name].tolist() for name in ("time", "margin"))
    accurate = times[: first_right(margins) + 1]
    row = {name: one[name] for name in ("n_tokens", "seq_len", "law")}
    row |= {"task": one["name"], "length": longest(one), "gamma": gamma}
    row |= {"scale": c, "bound": bound, "at_once": flow.at_once(), "first_time": flow.first()}
    row["perfect_at_bound"] = float(flow.margin(bound) > 0) if one["use"] == "bound" else math.nan
    row["lost"] = sum(a > 0 >= b for a, b in itertools.pairwise(margins))
    # The example of docs/decision_lists.md, from a solution of its own.
    row["lost_time"], row["regained_time"] = (
        (1.2012e-06, 1.6223e-05) if one is LOST else (math.nan, math.nan)
    )
    attention = max(float(flow.brute.attention(flow.at(t)).max()) for t in accurate)
    return row | {"largest_attention": one["seq_len"] * attention}


def first_right(margins):
    return next((i for i, margin in enumerate(margins) if margin > 0), len(margins) - 1)


def errors_along(path, flow, c):
    """How far each row of a path is from the flow, margins in units of u; its accuracy is exact off
    the ties.
    """
    for row in path.to_dict("records"):
        W, V = flow.at(row["time"]), c * flow.brute.P
        margin = c * float(flow.brute.margins(W).min())
        if abs(margin) > 0.01:
            assert row["accuracy"] == pytest.approx(flow.brute.accuracy(W, V), rel=1e-12)
        yield max(abs(row["loss"] - float(flow.brute.loss(W, V))), abs(row["margin"] - margin))


def test_the_runs_at_the_theorems_scale_are_the_flow_of_the_loss(tables):
    wanted = []
    for one in THEOREM:
        _, c, bound = theorem(one)
        path = tables["paths"][tables["paths"]["task"] == one["name"]]
        times, first = path["time"].tolist(), first_right(path["margin"].tolist())
        flow = of_loss(one, c, bound if one["use"] == "bound" else times[-1])
        wanted.append(row_of_theorem(one, path, flow))
        errors = list(errors_along(path, flow, c))
        assert max(errors[: first + 1]) < 2e-6
        assert times[0] == 0
        assert times == sorted(times)
        if one["use"] == "bound":
            assert times[-1] == pytest.approx(bound, rel=1e-12)
            assert max(errors[first:]) < 0.02
        else:
            assert first == len(path) - 1
        if one is FAR:
            assert max(errors[first:]) > 1e-4  # the rest of the way is less accurate
    assert [row["lost"] for row in wanted] == [0, 1, 0, 0, 0]
    assert [row["perfect_at_bound"] for row in wanted[1:4]] == [1, 1, 0]
    rows = pd.DataFrame(wanted)
    assert set(tables["theorem"]) == set(rows)
    found = tables["theorem"][list(rows)]
    for name in ("lost_time", "regained_time"):  # on the less accurate way
        np.testing.assert_allclose(found.pop(name), rows.pop(name), rtol=2e-3)
    equal(found, rows, rtol=1e-6, atol=1e-10, check_dtype=False)
    assert list(tables["paths"]) == ["time", "loss", "accuracy", "margin", "task"]


def test_another_delta_has_another_gamma_scale_and_bound(tables):
    for share, found in zip((2, 0.5), tables["gamma"].to_dict("records"), strict=True):
        gamma, c, bound = theorem(STEEP, share)
        flow = of_loss(STEEP, c, 1.5 * found["first_time"])
        wanted = {"task": "steep", "gamma": gamma, "scale": c, "bound": bound}
        assert {name: found[name] for name in wanted} == pytest.approx(wanted)
        assert found["first_time"] == pytest.approx(flow.first(), rel=1e-5)


def test_sequences_with_repeats_are_followed_until_all_is_right_or_the_longest_time(tables):
    wanted = []
    for one in REPEATS:
        flow = of_loss(one, 3, 37)
        row = {name: one[name] for name in ("law", "n_tokens", "seq_len")}
        row |= {"task": one["name"], "length": longest(one), "first_time": flow.first()}
        row |= {"largest_W": math.nan, "attention_to_star": math.nan}
        if not math.isnan(row["first_time"]):
            W = flow.at(row["first_time"])
            row["largest_W"] = float(W.abs().max())
            row["attention_to_star"] = float(flow.brute.weight @ flow.brute.attention_to_star(W))
        wanted.append(row)
    equal(tables["repeats"][list(wanted[0])], wanted, rtol=1e-6)


def test_many_tokens_flow_as_the_whole_matrix_does_under_the_uniform_law(tables):
    wanted = []
    for L, n, m in MANY:
        one = task("all", n, cyclic(L, m), list(range(L)), [1])
        _, c, bound = theorem(one)
        horizon = 1.1 * float(tables["many"]["first_time"][len(wanted)]) or bound / 1e6
        flow = of_loss(one, c, horizon)
        row = {"n_tokens": L, "seq_len": n, "length": m, "bound": bound}
        wanted.append(row | {"first_time": flow.first(), "at_once": flow.at_once()})
    equal(tables["many"], wanted, rtol=1e-6, atol=1e-9)


def test_a_use_without_tasks_has_no_table(stage, tmp_path):
    found = follow(stage, tmp_path, [IDLE, REPEATS[1]], MANY[:1])
    assert found.keys() == {"many", "repeats"}


@pytest.mark.parametrize(
    ("many", "said"),
    [
        ([(7, 3, 2), (10000, 3, 2)], r"many\.tsv: line 3: n_tokens: wanted a scale c of at most "),
        ([(7, 3, 5)], "line 2: n_tokens: wanted at least seq_len \\+ list_length, got 7"),
        ([], "a line for each case"),
    ],
)
def test_flows_that_cannot_be_followed_are_refused_and_nothing_is_written(
    stage, tmp_path, many, said
):
    with pytest.raises(InputError, match=said):
        follow(stage, tmp_path, [NEAR], many)
    assert files(tmp_path) == ["many.tsv", "params.yaml", "tasks"]
