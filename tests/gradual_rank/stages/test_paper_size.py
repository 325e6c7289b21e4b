"""Descents at the paper's size: every table and measure, against descent by automatic
differentiation on batches that are drawn here.
"""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import kendalltau

from lib.files.files import InputError
from tests.gradual_rank.full_reference import (
    descent,
    first_rise,
    growth_at_zero,
    normal,
    output,
    reached,
    sigma,
    taught,
)
from tests.gradual_rank.gradual_rank_reference import head
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import generator, read_measures, table

SEED = 5
N, D = 7, 3
RISEN, LEAST = 0.01, 0.3
LEVEL = 0.04
COLUMNS = (
    "name weights n_seeds first_seed batch_size log10_init_scale learning_rate n_steps look_every"
)
# On all samples, on three batches an epoch of which one is small, and of the diagonal head.
CASES = [
    ("all", "full", 1, 0, 7, -1.5, 0.9, 90, 6),
    ("some", "full", 2, 3, 3, -1.5, 0.9, 90, 6),
    ("diagonal", "diagonal", 2, 3, 3, -0.5, 0.3, 52, 4),  # the last step is a look
]
# The one stage table: when what joins with which sign, and all products then.
STAGES = f"""
seed       stage time coordinate sign p
{SEED}     0     0    -1         0    0,0,0,0,0,0
{SEED}     1     2.0  4          1    0,0,0,0,0.9,0
{SEED}     2     3    3          -1   0,0,0,-0.8,0.9,0
{SEED}     3     4    5          1    0,0,0,-0.8,0.9,0.2  # no significant product
{SEED + 1} 1     1    0          1    1,0,0,0,0,0  # of a seed that is not descended
"""
# Made events: what rises when; one of another sign, one of another scale.
FLOW = f"""
seed   coordinate sign time log10_init_scale rises
{SEED} 4          1    7.0  -.5              True
{SEED} 3          1    1    -.5              True
{SEED} 3          -1   9.5  -.5              True
{SEED} 4          1    1    -2               True
"""


def toy():
    draw = torch.Generator().manual_seed(2)
    X, Y = torch.randn(2, 1, N, 4, D, generator=draw, dtype=torch.float64)
    Y = Y * torch.tensor([3.0, 5.0, 4.0])
    u, v = torch.randn(2, 1, 2 * D, generator=draw, dtype=torch.float64)
    zero = torch.zeros_like(u)
    return {"seeds": torch.tensor([SEED]), "X": X, "Y": Y, "teacher": zero, "u": u, "v": v}


def on_batches(case, seed, of, Y, start):
    """The loss on all samples and the weights at every step, on one batch after another."""
    *_, size, scale, rate, n_steps, _ = case
    X = toy()["X"][0]
    source = generator(seed, "batches")
    epochs = (torch.randperm(N, generator=source).split(size) for _ in itertools.count())
    batches = itertools.chain.from_iterable(epochs)

    def value(W, chosen):
        return (of(X[chosen], *W) - Y[chosen]).square().mean()

    steps = descent(lambda W: value(W, next(batches)), 10**scale * start, lambda W, g: W - rate * g)
    for _, W in itertools.islice(steps, n_steps + 1):
        yield float(value(W, torch.arange(N)) / Y.square().mean()), W


def diagonal(X, u, v):
    return head(X, u * v)


@pytest.fixture
def run(stage, tmp_path):
    save_file(toy(), tmp_path / "task")
    whole_of("predictions/stages", table(STAGES)).to_parquet(tmp_path / "stages")
    whole_of("flows/events", table(FLOW)).to_parquet(tmp_path / "flow")

    def on(cases):
        lines = ["\t".join(map(str, case)) for case in (COLUMNS.split(), *cases)]
        (tmp_path / "cases.tsv").write_text("\n".join(lines), encoding="utf-8")
        sections = {"any.risen": RISEN, "any.level": LEVEL, "any.least": LEAST}
        read = [tmp_path / name for name in ("cases.tsv", "task", "stages", "flow")]
        stage("gradual_rank.paper_size", sections, *sections, *read, tmp_path / "m")
        names = ("spectra", "directions", "losses", "batches")
        tables = {
            name: pd.read_parquet(tmp_path / "m/tables" / f"{name}.parquet") for name in names
        }
        return tables, read_measures(tmp_path / "m")

    return on


def rows_of(rows, name, seed):
    return rows[(rows["name"] == name) & (rows["batches"] == seed)]


KEPT = []  # what one run of the stage wrote


@pytest.fixture
def made(run):
    """The tables and the measures."""
    if not KEPT:
        KEPT.extend(run(CASES))
    return KEPT


def test_full_matrices_descend_and_rise_as_by_automatic_differentiation(made):
    tables, (_, measures) = made
    X = toy()["X"][0]
    Y = taught(X, SEED)
    start = normal(SEED, "full start", 4, D, D)
    growth, _, _ = growth_at_zero(X, Y)
    wait = first_rise(X, Y, 10**-1.5 * start, RISEN, 0.9)["stepped"]
    reference = None
    for case, seed in ((CASES[0], 0), (CASES[1], 3), (CASES[1], 4)):
        name = case[0]
        looks = list(on_batches(case, seed, output, Y, start))[::6]
        times = 0.9 * 6 * np.arange(len(looks))
        losses = rows_of(tables["losses"], name, seed)
        np.testing.assert_allclose(losses["loss"], [loss for loss, _ in looks], rtol=1e-6)
        np.testing.assert_allclose(losses["time"], times)
        np.testing.assert_allclose(losses["rescaled_time"], times / (1.5 * math.log(10)))
        rises = {}
        for matrix, k in (("W_KQ", 0), ("W_VO", 2)):
            courses = np.stack([sigma(*W[k : k + 2]) for _, W in looks])
            spectra, directions = (
                rows[rows["matrix"] == matrix]
                for rows in (rows_of(tables[key], name, seed) for key in ("spectra", "directions"))
            )
            if seed == 4:  # the first seed alone is drawn
                assert spectra.empty
            else:
                of_looks = np.stack(list(spectra["singular_values"]))
                np.testing.assert_allclose(of_looks, courses, rtol=1e-5)
                assert spectra["step"].tolist() == list(range(0, 91, 6))
            rises[matrix] = [reached(times, course, RISEN) for course in courses.T]
            found = directions.sort_values("direction")["rise"]
            np.testing.assert_allclose(found, rises[matrix], rtol=1e-5)
        both = np.concatenate(list(rises.values()))
        reference = both if reference is None else reference
        seen = np.isfinite(reference)
        assert 1 < seen.sum() < 2 * D
        with np.errstate(invalid="ignore"):
            off = np.where(np.isfinite(both), np.abs(both / reference - 1), 1)[seen]
        first, second, never = sorted(rises["W_VO"])
        assert never == math.inf
        wanted = {
            "rises_KQ": np.isfinite(rises["W_KQ"]).sum(),
            "rises_VO": 2,
            "least_gap": (second - first) / first,
            "first_rise_limit": abs(1.5 * math.log(10) / growth / first - 1),
            "first_rise_stepped": abs(wait / first - 1),
            "descent_error": np.median(off),
        }
        own = {key: measures[f"{key}.{name}"][""][str(seed)] for key in wanted}
        assert own == pytest.approx(wanted, rel=1e-4, abs=1e-9)


def test_statements_name_the_sizes(made):
    setup = {"d_model": f"{D}", "n_samples": f"{N}", "batch_size.some": "3", "scale.all": "1e-1.5"}
    assert setup.items() <= made[1][0].items()


@pytest.mark.parametrize("seed", [3, 4])
def test_significant_products_activate_as_in_descent_and_beside_the_flow(made, seed):
    (tables, (_, measures)), task = made, toy()
    unit = 0.5 * math.log(10)
    start = torch.cat([task["u"], task["v"]])
    looks = list(on_batches(CASES[2], seed, diagonal, task["Y"][0], start))
    losses = rows_of(tables["losses"], "diagonal", seed)
    np.testing.assert_allclose(losses["loss"], [loss for loss, _ in looks][::4], rtol=1e-6)
    own = rows_of(tables["batches"], "diagonal", seed).sort_values("stage")
    assert own["coordinate"].tolist() == [4, 3]
    measured = []
    for i, sign in ((4, 1), (3, -1)):
        course = np.array([float(W.prod(0)[i]) for _, W in looks])
        crossed = np.flatnonzero(np.abs(course) >= LEVEL)
        joins = len(crossed) and course[crossed[0]] * sign > 0
        measured.append(crossed[0] * 0.3 / unit if joins else math.inf)
    assert min(measured) < math.inf
    np.testing.assert_allclose(own["measured"], measured, rtol=1e-6)
    np.testing.assert_allclose(own["flow"], [7 / unit, 9.5 / unit], rtol=1e-6)
    np.testing.assert_allclose(own["predicted"], [2, 3])
    for key, theory in (("flow_error", own["flow"]), ("limit_error", own["predicted"])):
        off = np.where(np.isfinite(measured), np.abs(measured - theory) / theory, 1)
        found = measures[f"{key}.diagonal"][""][str(seed)]
        assert found == pytest.approx(np.median(off), rel=1e-6)
    tau = kendalltau(measured, own["flow"]).statistic
    assert measures["order.diagonal"][""][str(seed)] == pytest.approx(tau)


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (CASES[:2], "wanted lines for full and for diagonal weights"),
        (
            [CASES[0], (*CASES[2][:5], -3, *CASES[2][6:])],
            r"wanted one of the flows' \[-2.*, got -3",
        ),
        (
            [CASES[0], (*CASES[2][:5], -2, 0.3, 1, 1)],
            "diagonal: n_steps: wanted steps in which .* in 1",
        ),
        ([(*CASES[0][:6], 1e9, *CASES[0][7:]), CASES[2]], "all: learning_rate: .*stays finite"),
    ],
)
def test_what_cannot_be_descended_or_judged_is_refused(run, cases, message):
    with pytest.raises(InputError, match=message):
        run(cases)
