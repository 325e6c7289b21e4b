"""W_K and W_Q apart: every descent of the stage against one step after another, by autograd on a
loss of sequences.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from lib.files.files import InputError
from stages.decision_lists.factored import Case
from tests.decision_lists.decision_lists_made import Brute, cyclic, read_tables, task
from tests.stages.made import generator

HEADER = (
    "group n_tokens seq_len list_length lists n_heads law scale learning_rate log10_init_scales "
    "staircase_scales until n_seeds first_seed"
)
ALIKE = [6, 0.5, [-1, -2]]
HEADS = ["h", 4, 2, 2, "shared heads", 1, "frequent heads 9", *ALIKE, [-1], "next rise", 2, 3]
NONE = ["n", 5, 3, 2, "cyclic", 0, "uniform", *ALIKE, [-1, -2], "right", 2, 3]


def run(stage, folder, *rows):
    lines = ["\t".join(map(str, row)) for row in (HEADER.split(), *rows)]
    (folder / "cases.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    stage("decision_lists.factored", {"seeds_from": 0}, folder / "cases.tsv", folder / "out")


def made(of):
    """What a case of the table says, with lists and chances worked out by hand."""
    if of == "cyclic":
        return Brute(task("n", 3, cyclic(5, 2), list(range(5)), [1]))
    head = 1 if of == "permuted" else 0  # the frequent token stays 0
    lists = [[a] if a == head else [head, a] for a in range(4)]
    return Brute(task("h", 2, lists, list(range(4)), [9, 9, 9, 1, 1, 1]))


def centred(W):
    return W - W.mean(0)


def ascent(brute, W):
    return -brute.gradients(W, 6 * brute.P)[0]


def share(brute, W):
    margins = brute.margins(W)
    return float(brute.weight[margins > 0].sum()), bool((margins > 0).all())


def cut(W, rank):
    U, sigma, V = torch.linalg.svd(centred(W))
    return U[:, :rank] @ torch.diag(sigma[:rank]) @ V[:rank]


def descent(brute, of, seed, scale, until):
    """The looks of one descent until it is over, and W and G when all was right first."""
    draw = [generator(seed, name) for name in ("W_K", "W_Q")]
    size = brute.L, brute.L
    K, Q = (10.0**scale * torch.randn(size, generator=g, dtype=torch.float64) for g in draw)
    W = K.T @ Q
    looks, right = [], None
    for step in range(40_001):
        G = ascent(brute, W)
        if step % 10 == 0:
            sigma = torch.linalg.svdvals(centred(W)).tolist()
            looks.append((step / 2, sigma))
            if right is None and float(brute.margins(W).min()) > 0:
                right = step / 2, W, G
            if sigma[until == "next rise"] > 0.05 and (until == "first rise" or right):
                break
        if of == "whole":
            W = W + G / 2
        else:
            K, Q = K + Q @ G.T / 2, Q + K @ G / 2
            W = K.T @ Q
    return looks, right


def rise(looks, direction):
    if looks[0][1][direction] > 0.05:
        return 0
    for (t, before), (u, after) in itertools.pairwise(looks):
        if after[direction] > 0.05:
            logs = [math.log(x[direction]) for x in (before, after)]
            return t + (u - t) * (math.log(0.05) - logs[0]) / (logs[1] - logs[0])
    return math.nan


def wanted(of, seed, scale, until):
    brute = made(of)
    looks, right = descent(brute, of, seed, scale, until)
    row = {"first_rise": rise(looks, 0), "next_rise": rise(looks, 1)}
    if right is None:
        return row | {"right": math.inf}, looks
    time, W, G = right
    ranks = range(1, brute.L + 1)
    return row | {
        "right": time,
        "sigma_then": float(torch.linalg.svdvals(G)[0]),
        "fewest": next(r for r in ranks if share(brute, cut(W, r))[1] or r == brute.L),
        "right_when_cut": share(brute, cut(W, 1))[0],
        "singular_values": torch.linalg.svdvals(centred(W)).numpy(),
    }, looks


def test_every_descent_is_that_of_autograd(stage, tmp_path):
    run(stage, tmp_path, HEADS, NONE)
    table, courses = (read_tables(tmp_path / "out")[of] for of in ("factored", "staircases"))
    kinds = [(of, "h-000") for of in ("factored", "whole", "permuted")] + [("factored", "n-001")]
    assert list(dict.fromkeys(zip(table["of"], table["task"], strict=True))) == kinds
    assert len(table) == 4 * len(kinds)
    assert np.isfinite(table["right"]).sum() > 4
    for found in table.to_dict("records"):
        heads = found["task"] == "h-000"
        until = "next rise" if heads else "right"
        if heads and found["log10_init_scale"] == -2:
            until = "first rise"
        of = found["of"] if heads else "cyclic"
        row, looks = wanted(of, found["seed"], found["log10_init_scale"], until)
        sigma = row.pop("singular_values", [])
        np.testing.assert_allclose(found["singular_values"], sigma, atol=1e-12)
        assert found["until"] == until
        for name, value in row.items():
            assert found[name] == pytest.approx(value, rel=1e-6, nan_ok=True), name
        brute = made(of)
        G = ascent(brute, torch.zeros_like(brute.P))
        assert found["sigma_1"] == pytest.approx(float(torch.linalg.svdvals(G)[0]))
        assert (found["n_large"], found["n_heads"], found["shared"]) == (1, int(heads), True)
        drawn = found["seed"] == 3 and found["log10_init_scale"] == (-1 if heads else -2)
        if found["of"] == "factored" and drawn:
            course = courses[courses["task"] == found["task"]]
            assert course["time"].tolist() == [time for time, _ in looks]
            values = np.stack(course["singular_values"])
            np.testing.assert_allclose(values, [sigma for _, sigma in looks], atol=1e-12)
    assert set(courses["task"]) == {"h-000", "n-001"}


@pytest.mark.parametrize(
    ("n_heads", "n_large", "shared"), [(0, 1, True), (2, 1, True), (4, 3, True), (5, 4, False)]
)
def test_one_direction_fewer_than_heads_is_expected_to_be_large(n_heads, n_large, shared):
    columns = dict(zip(HEADER.split(), HEADS, strict=True)) | {"n_tokens": 10, "n_heads": n_heads}
    case = Case(**columns)
    assert (case.n_large, case.shared) == (n_large, shared)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([*HEADS[:10], [-3], *HEADS[11:]], r"staircase_scales: wanted some of \[-1.*got \[-3"),
        ([*HEADS[:10], [], *HEADS[11:]], r"staircase_scales: wanted some of .*, got \[\]"),
        ([*HEADS[:6], "zipf", *HEADS[7:]], "law: .*got 'zipf'"),
        ([*HEADS[:5], 4, *HEADS[6:]], "case 1: n_heads must lie in 1..3, got 4"),
    ],
)
def test_a_case_that_does_not_fit_is_refused(stage, tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        run(stage, tmp_path, row)
    assert not (tmp_path / "out").exists()
