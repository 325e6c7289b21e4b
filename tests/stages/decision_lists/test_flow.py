"""The gradient flows of the stage, against scipy's at tight tolerances on the loss itself, in W and its own time."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from decision_lists_made import Brute, classes, rarest, task, write_tasks
from made import files, read_run
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from lib.io.files import InputError

SECTION, SOLVER = "decision_lists.flow", "decision_lists.solver.flow"
LISTS = [[3, 1, 0], [2, 1], [2], [1, 3]]
PI = [2, 0, 3, 1]
WEIGHTS = [5, 1, 3, 2, 7, 4]


def cyclic(L, m):
    return [[(a - back) % L for back in range(m - 1, -1, -1)] for a in range(L)]


# Right at once, then lost, then right again: the example of docs/decision_lists.md.
LOST_CHANCES = {(0, 3, 4, 5): 100, (0, 1, 2, 4): 3.5, (0, 2, 6, 7): 1}
LOST = task(
    "lost", "far", 8, 4, [[1, 2, 3, 0], *([q] for q in range(1, 8))], [1, 2, 3, 4, 5, 6, 7, 0],
    [LOST_CHANCES.get(s, 0) for s in classes(8, 4, False)], law="three sets", use="bound",
)  # fmt: skip
FAR = task(
    "far-0", "far", 5, 2, [[3, 0], [4, 2, 1], [0, 2], [3], [2, 4]], [2, 0, 3, 4, 1], [1, 4, 2, 8, 3, 5, 7, 6, 9, 2],
    law="ten sets", use="bound",
)  # fmt: skip
NEAR = task("near-0", "near", 4, 2, LISTS, PI, WEIGHTS, law="first law", use="theorem")
OTHER = task(
    "other-0", "other", 4, 3, [[2, 0], [0, 1], [1, 3, 2], [3]], PI, [2, 4, 1, 9], law="second law", use="theorem"
)  # fmt: skip
AGAIN = task(
    "again", "again", 2, 4, [[1, 0], [1]], [1, 0], [1, 0.001, 5, 3, 2], repeats=True, law="pairs", use="bound"
)  # fmt: skip
TWICE, THRICE = (
    task(name, "twice", 3, 3, lists, pi, weights, repeats=True, law=law, use="repeats")
    for name, lists, pi, weights, law in (
        ("twice-0", [[2, 1, 0], [0, 1], [2]], [2, 0, 1], [1, 4, 3, 2], "triples"),
        ("twice-1", [[1, 0], [1], [0, 2]], [1, 2, 0], [2, 3, 1], "others"),
    )
)
TIMED = NEAR | {"name": "timed", "use": "law"}
SEEN = [one | {"name": f"{one['name']}-seen", "use": "spectral"} for one in (NEAR, AGAIN, OTHER)]
IDLE = NEAR | {"name": "idle", "use": "controls"}
TASKS = (NEAR, LOST, THRICE, IDLE, *SEEN[:1], FAR, TIMED, AGAIN, TWICE, *SEEN[1:], OTHER)
PARAMS = {
    "law_scales": [4, 25],
    "repeats_scale": 3,
    "spectral": {"scale": 6, "first_time": 0.03, "last_time": 5, "n_snapshots": 4},
}
SOLVE = {
    "rtol_theorem": 1e-8,
    "rtol_to_bound": 1e-4,
    "rtol_law": 1e-8,
    "rtol_repeats": 1e-8,
    "rtol_spectral": 1e-8,
    "rtol_many": 1e-8,
    "longest_law": 400,
    "longest_repeats": 37,
    "n_compared": 7,
}
MANY = [(7, 3, 1), (7, 3, 4), (7, 3, 2), (5, 2, 1), (5, 2, 2)]
KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(stage, tmp_path):
    """Every table and run that the stage makes of all tasks, in folders with something old in them."""
    if not KEPT:
        for old in ("tables/old.parquet", "runs/old/steps.parquet"):
            write_tasks(tmp_path / old, NEAR)
        follow(stage, tmp_path)
        KEPT.update({file.stem: pd.read_parquet(file) for file in (tmp_path / "tables").iterdir()})
        KEPT["files"] = [*files(tmp_path / "tables"), *(file.name for file in sorted((tmp_path / "runs").iterdir()))]
        KEPT["runs"] = {folder.name: read_run(folder) for folder in (tmp_path / "runs").iterdir()}
    return KEPT


def follow(stage, folder, tasks=TASKS, many=MANY, **solve):
    lines = ["n_tokens\tseq_len\tlist_length", *("\t".join(map(str, sizes)) for sizes in many)]
    (folder / "many.tsv").write_text("\n".join(lines) + "\n")
    params, written = {SECTION: PARAMS, SOLVER: SOLVE | solve}, write_tasks(folder / "tasks", *tasks)
    stage(
        "decision_lists.flow", params, SECTION, SOLVER, written, folder / "many.tsv", folder / "tables", folder / "runs"
    )  # fmt: skip


class Flow:
    """dx/dt = -gradient(x) from 0 up to `end`; x is a matrix of values of about `size`."""

    def __init__(self, brute, gradient, end, size=1.0):
        self.brute, self.zero = brute, torch.zeros_like(brute.P)
        self.velocity = lambda x: -gradient(torch.from_numpy(x).view(self.zero.shape)).flatten().numpy()
        solved = solve_ivp(
            lambda _, x: self.velocity(x), (0, end), self.zero.flatten().numpy(), "LSODA",
            rtol=1e-10, atol=1e-10 * size, dense_output=True,
        )  # fmt: skip
        self.times, self.path = solved.t, solved.sol

    def at(self, t):
        return torch.from_numpy(self.path(t)).view(self.zero.shape) if t else self.zero

    def margin(self, t):
        return float(self.brute.margins(self.at(t)).min())

    def at_once(self):
        return margin_of(self.brute, torch.from_numpy(self.velocity(self.zero.flatten().numpy())).view(self.zero.shape))

    def first(self):
        """The first time at which all is right; NaN where there is none."""
        if self.at_once():
            return 0.0
        for a, b in itertools.pairwise(self.times):
            if self.margin(b) > 0:
                return brentq(self.margin, a, b, xtol=1e-14 * b, rtol=1e-14)
        return math.nan


def margin_of(brute, velocity):
    """Whether the first velocity alone puts every row right."""
    return not (brute.counts > 1).any() and float(brute.margins(velocity).min()) > 0


def of_loss(task, c, end):
    """The flow of W on the loss, at V = cP."""
    brute = Brute(task)
    return Flow(brute, lambda W: brute.gradients(W, c * brute.P)[0], end, 1 / c)


def of_choices(task, end):
    """The limit: Luce's choice model among the tokens of a sequence, their values u / n."""
    brute = Brute(task)

    def gradient(u):
        u = u.clone().requires_grad_()
        logits = brute.counts.log() + u.T[brute.query] / brute.n
        losses = -torch.log_softmax(logits, 1)[brute.every, brute.star]
        return torch.autograd.grad((brute.weight * losses).sum(), u)[0]

    return Flow(brute, gradient, end)


def theorem(task):
    """Its P_min, scale and bound with δ = P_min / n, so that γ = 9."""
    L, n, M, P_min = task["n_tokens"], task["seq_len"], max(len(entries) for entries in task["lists"]), rarest(task)
    return P_min, 4 * n * n * math.log(L) / P_min, 4 * M / (9 * math.log(L))


def named(*names):
    return [one for one in TASKS if one["name"] in names]


def row_of_theorem(one, path, flow):
    """What the table must say of a run whose path is this."""
    P_min, c, bound = theorem(one)
    times, losses, margins = (path[name].tolist() for name in ("time", "loss", "margin"))
    accurate = times[: first_right(margins) + 1]
    row = {"task": one["name"], "group": one["group"], "n_tokens": one["n_tokens"], "seq_len": one["seq_len"]}
    row |= {"length": max(len(entries) for entries in one["lists"]), "law": one["law"], "P_min": P_min, "scale": c}
    row |= {"bound": bound, "at_once": flow.at_once(), "first_time": flow.first()}
    row["perfect_at_bound"] = float(flow.margin(bound) > 0) if one["use"] == "bound" else math.nan
    row["lost"] = sum(a > 0 >= b for a, b in itertools.pairwise(margins))
    row["largest_rise"] = max(b - a for a, b in itertools.pairwise(losses))
    row["largest_attention"] = max(one["seq_len"] * float(flow.brute.attention(flow.at(t)).max()) for t in accurate)
    return row | {"n_steps": len(path)}


def first_right(margins):
    return next((i for i, margin in enumerate(margins) if margin > 0), len(margins) - 1)


def errors_along(path, flow, c):
    """How far each row of a path is from the flow, margins in units of u; its accuracy is exact off the ties."""
    for row in path.to_dict("records"):
        W, V = flow.at(row["time"]), c * flow.brute.P
        margin = c * float(flow.brute.margins(W).min())
        if abs(margin) > 0.01:
            assert row["accuracy"] == pytest.approx(flow.brute.accuracy(W, V), rel=1e-12)
        yield max(abs(row["loss"] - float(flow.brute.loss(W, V))), abs(row["margin"] - margin))


def test_the_runs_at_the_theorems_scale_are_the_flow_of_the_loss(tables):
    wanted = []
    for one in named("near-0", "lost", "far-0", "again", "other-0"):
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
    pd.testing.assert_frame_equal(tables["theorem"], pd.DataFrame(wanted), rtol=1e-6, atol=1e-10, check_dtype=False)
    assert list(tables["paths"]) == ["time", "loss", "accuracy", "margin", "task"]
    assert tables["paths"]["task"].unique().tolist() == [row["task"] for row in wanted]


def test_the_law_of_the_time_is_that_of_each_scale_and_of_the_limit(tables):
    wanted = []
    for one in named("timed"):
        limit = of_choices(one, 400)
        end = limit.first()
        times = np.geomspace(end / 1000, end, 7)
        wanted.append({"task": one["name"], "scale": math.inf, "rescaled_time": end})
        for c in (4, 25):
            flow = of_loss(one, c, 400 / c**2)
            brute, first = flow.brute, flow.first()
            u = [limit.at(t) for t in times]
            row = {"task": one["name"], "scale": c, "rescaled_time": first * c**2}
            row["path_error"] = max(
                float((c * flow.at(t / c**2) - x).norm() / x.norm()) for t, x in zip(times, u, strict=True)
            )
            if not math.isnan(first):
                W = flow.at(first)
                row["largest_attention"] = one["seq_len"] * float(brute.attention(W).max())
                row["attention_to_star"] = float(brute.weight @ brute.attention_to_star(W))
            wanted.append(row)
    assert pd.DataFrame(wanted)["rescaled_time"].isna().tolist() == [False, True, False]
    pd.testing.assert_frame_equal(tables["law"], pd.DataFrame(wanted), rtol=1e-6, check_dtype=False)


def test_sequences_with_repeats_are_followed_until_all_is_right_or_the_longest_time(tables):
    wanted = []
    for one in named("twice-0", "twice-1"):
        flow = of_loss(one, 3, 37)
        row = {"task": one["name"], "law": one["law"], "n_tokens": 3, "seq_len": 3, "first_time": flow.first()}
        if not math.isnan(row["first_time"]):
            row["largest_W"] = float(flow.at(row["first_time"]).abs().max())
        wanted.append(row)
    pd.testing.assert_frame_equal(tables["repeats"], pd.DataFrame(wanted), rtol=1e-6)


def test_the_runs_that_are_kept_hold_the_flow_at_times_evenly_spaced_in_the_logarithm(tables):
    times = [0, 0.03, 0.03 * (5 / 0.03) ** (1 / 3), 0.03 * (5 / 0.03) ** (2 / 3), 5]
    for one in SEEN:
        layout, snapshots, steps = tables["runs"][one["name"]]
        assert layout == {
            "family": "decision_lists", "matrices": {"W": ["seed", "row", "col"]}, "products": {},
            "gauge": {"W": "column shift"}, "seeds": [0], "format": "transformer dynamics run 1",
            "cell": {"task": one["name"], "group": one["group"], "law": one["law"], "scale": 6},
        }  # fmt: skip
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


def test_many_tokens_flow_as_the_whole_matrix_does_under_the_uniform_law(tables):
    wanted = []
    for L, n, m in MANY:
        one = task("all", "all", L, n, cyclic(L, m), list(range(L)), [1])
        _, c, bound = theorem(one)
        horizon = 1.1 * float(tables["many"]["first_time"][len(wanted)]) or bound / 1e6
        flow = of_loss(one, c, horizon)
        row = {"n_tokens": L, "seq_len": n, "length": m, "scale": c, "bound": bound, "first_time": flow.first()}
        wanted.append(row | {"at_once": flow.at_once()})
    pd.testing.assert_frame_equal(tables["many"], pd.DataFrame(wanted), rtol=1e-6, atol=1e-9)


def test_what_is_written_is_nothing_else(tables):
    names = ["law.parquet", "many.parquet", "paths.parquet", "repeats.parquet", "theorem.parquet"]
    assert tables["files"] == [*names, "again-seen", "near-0-seen", "other-0-seen"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"longest_law": 300}, "timed: wanted all right by the rescaled time 300, got errors"),
        (
            {"many": [(7, 3, 2), (10000, 3, 2)]},
            r"many\.tsv: line 3: n_tokens: wanted a scale c of at most 1e\+12, got ",
        ),
        ({"many": [(7, 3, 5)]}, "line 2: n_tokens: wanted at least seq_len \\+ list_length, got 7"),
        ({"many": []}, "a line for each case"),
    ],
)
def test_flows_that_cannot_be_followed_are_refused_and_nothing_is_written(stage, tmp_path, changed, said):
    with pytest.raises(InputError, match=said):
        follow(stage, tmp_path, **({"tasks": [NEAR, TIMED]} | changed))
    assert files(tmp_path) == ["many.tsv", "params.yaml", "tasks"]
