"""Cross-entropy: every table of the stage, against scipy's integrals and autograd."""

import math
from itertools import islice

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.integrate import solve_ivp
from torch.nn.functional import cross_entropy

from lib.files.files import InputError
from tests.gradual_rank.full_reference import normal
from tests.gradual_rank.gradual_rank_reference import (
    SOLVER,
    TIGHT,
    Halves,
    algorithm_1,
    compare,
    head,
)

PARAMS = {"share": 0.1, "rest": 0.5, "rtol": 1e-7, "atol": 1e-7}
LINES = (
    "name\tn_seeds\tfirst_seed\tn_samples\tseq_len\td_model\tlog10_init_scales",
    "linear\t2\t5\t9\t\t3\t[-2, -5]",
    "head\t1\t7\t6\t3\t2\t[-3]",
)
CASES = [("linear", 5), ("linear", 6), ("head", 7)]
SCALES = {"linear": (-2, -5), "head": (-3,)}
N_LOOKS = 4


@pytest.fixture
def run(stage, tmp_path, monkeypatch):
    def on(lines):
        (tmp_path / "c.tsv").write_text("\n".join(lines), encoding="utf-8")
        monkeypatch.setattr("stages.gradual_rank.cross_entropy.N_LOOKS", N_LOOKS)
        sections = {"any.params": PARAMS, "any.solver": SOLVER}
        stage("gradual_rank.cross_entropy", sections, *sections, tmp_path / "c.tsv", tmp_path / "f")
        return {file.stem: pd.read_parquet(file) for file in sorted((tmp_path / "f").iterdir())}

    return on


KEPT = {}  # what one run of the stage wrote


@pytest.fixture
def tables(run):
    if not KEPT:
        KEPT.update(run(LINES))
    return KEPT


class Classifier:
    """The cross-entropy of a network as a function of its products, and its negative gradient."""

    def __init__(self, name, seed):
        if name == "linear":
            self.size = 3
            Z = normal(seed, "points", 1, 9, 3)[0]
            X = Z @ (torch.eye(3).double() + normal(seed, "correlations", 3, 3) / math.sqrt(3))
            signs = torch.sign(X @ self.teacher(seed))
            self.value = lambda p: torch.log1p(torch.exp(-signs * (X @ p))).mean()
        else:
            self.size = 4
            X = normal(seed, "tokens", 6, 3, 2)
            labels = head(X, self.teacher(seed)).argmax(-1).flatten()
            self.value = lambda p: cross_entropy(head(X, p).reshape(-1, 2), labels)

    def teacher(self, seed):
        u, v = normal(seed, "teacher", 2, self.size)
        return u * v

    def g(self, p):
        p = torch.tensor(p, requires_grad=True)
        return -torch.autograd.grad(self.value(p), p)[0].numpy()

    def curvature(self, halves):
        """The least eigenvalue of the Hessian in the halves that are not zero."""
        on = np.flatnonzero(halves)
        signs = np.where(on < self.size, 1, -1)
        plus, minus = halves.reshape(2, -1)
        H = torch.autograd.functional.hessian(self.value, torch.tensor(plus - minus)).numpy()
        places = on % self.size
        return np.linalg.eigvalsh(H[np.ix_(places, places)] * np.outer(signs, signs)).min()


def products(q):
    plus, minus = np.asarray(q).reshape(2, -1)
    return plus - minus


def of(table, cell):
    for column, value in cell.items():
        table = table[table[column] == value]
    return table.reset_index(drop=True)


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_networks_with_decay_follow_scipys_integrals(tables, name, seed):
    loss = Classifier(name, seed)
    largest = np.abs(loss.g(np.zeros(loss.size))).max()
    decayed = Halves(loss, 0.1 * largest)
    stages = list(islice(algorithm_1(decayed, lowest=-math.inf), 20))
    cell = {"case": name, "seed": seed, "share": 0.1}
    rows = [
        {
            **cell,
            "stage": k,
            "time": stage["time"],
            "next_time": stage["next_time"],
            "strictness_products": loss.curvature(stage["p"]) if k else math.inf,
            "p": products(stage["p"]),
            "g": loss.g(products(stage["p"])),
        }
        for k, stage in enumerate(stages)
    ]
    ours = of(tables["stages"], cell)
    near = {"rtol": 0, "atol": 1e-4}
    compare(ours, rows, {"rtol": 1e-4, "atol": 0}, p=near, g=near)
    for scale in SCALES[name]:
        check_flow(tables, cell | {"log10_init_scale": scale}, decayed, ours, loss)


def check_flow(tables, cell, decayed, stages, loss):
    """The looks at a flow: in the middles of plateaus, at the end and later, and on its course."""
    log_scale = cell["log10_init_scale"] * math.log(10)
    last = stages["time"].max()
    end = 1.5 * last * (SOLVER["margin"] - log_scale)
    cut = stages["next_time"].clip(upper=2 * last)
    looks = {
        "plateaus": (stages["time"] + cut) / 2 * -log_scale,
        "ends": end * np.array([1, 10, 100]),
        "courses": np.geomspace(stages["time"][1] * -log_scale / 2, 100 * end, N_LOOKS),
    }
    u, v = normal(cell["seed"], "start", 2, loss.size).numpy()
    w = np.log(np.abs(np.concatenate([u + v, u - v]))) + log_scale
    every = np.unique(np.concatenate([*looks.values()]))
    found = solve(decayed, w, every)
    p = {name: [products(found[time]) for time in times] for name, times in looks.items()}
    near = {"rtol": 1e-3, "atol": 1e-3}
    for name in ("plateaus", "courses"):
        got = of(tables[name], cell)
        smallest = cell["log10_init_scale"] == min(SCALES[cell["case"]])
        assert len(got) == (len(looks[name]) if name == "plateaus" or smallest else 0)
        for ours, theirs in zip(got["p"], p[name], strict=False):
            np.testing.assert_allclose(ours, theirs, **near)
    [row] = of(tables["ends"], cell).to_dict("records")
    sizes = [np.abs(one).sum() for one in p["ends"]]
    assert [row["size"], row["size_later"], row["size_last"]] == pytest.approx(sizes, rel=1e-3)
    error = np.abs(p["ends"][0] - stages["p"].iloc[-1]).max()
    assert row["error"] == pytest.approx(error, abs=1e-3)


def solve(decayed, w, times):
    """The halves at some times, by scipy, from the logarithms of |u ± v|."""
    found = solve_ivp(
        lambda _, a: decayed.g(np.exp(2 * a) / 4), (0, times[-1]), w, t_eval=times, **TIGHT
    )
    return dict(zip(times, (np.exp(2 * a) / 4 for a in found.y.T), strict=True))


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_without_decay_the_products_grow_as_scipy_says(tables, name, seed):
    """From the smallest scale alone, to times that are those of the flow with decay."""
    loss = Classifier(name, seed)
    cell = {"case": name, "seed": seed, "share": 0}
    [row] = of(tables["ends"], cell).to_dict("records")
    scale = min(SCALES[name])
    assert row["log10_init_scale"] == scale
    log_scale = scale * math.log(10)
    decayed = of(tables["stages"], cell | {"share": 0.1})
    end = 1.5 * decayed["time"].max() * (SOLVER["margin"] - log_scale)
    u, v = normal(seed, "start", 2, loss.size).numpy()
    w = np.log(np.abs(np.concatenate([u + v, u - v]))) + log_scale
    times = end * np.array([1, 10, 100])
    found = solve(Halves(loss, 0.0), w, times)
    p = [products(found[time]) for time in times]
    sizes = [np.abs(one).sum() for one in p]
    assert [row["size"], row["size_later"], row["size_last"]] == pytest.approx(sizes, rel=1e-2)
    assert sizes[2] > sizes[1] > sizes[0]
    error = np.abs(p[0] - decayed["p"].iloc[-1]).max()
    assert row["error"] == pytest.approx(error, rel=1e-2)


def test_without_decay_algorithm_1_ends_where_the_labels_are_fitted(tables):
    for name, seed in CASES:
        loss = Classifier(name, seed)
        stages = of(tables["stages"], {"case": name, "seed": seed, "share": 0})
        first = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
        shares = [float(loss.value(torch.tensor(p))) / first for p in stages["p"]]
        assert all(share >= 1e-3 for share in shares[:-1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (1, r"seq_len: wanted one of a head, and none of a linear classifier, got 3 of linear"),
        (2, r"seq_len: wanted one of a head, and none of a linear classifier, got None of head"),
    ],
)
def test_a_length_of_sequences_is_wanted_of_heads_alone(run, line, message):
    cells = LINES[line].split("\t")
    cells[4] = "" if cells[4] else "3"
    with pytest.raises(InputError, match=message):
        run([LINES[0], "\t".join(cells)])


def test_no_scales_are_refused(run):
    with pytest.raises(InputError, match="log10_init_scales: wanted at least one, got none"):
        run([LINES[0], LINES[1].replace("[-2, -5]", "[]")])
