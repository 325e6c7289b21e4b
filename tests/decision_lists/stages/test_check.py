"""Both lemmas of the stage, on the same random cases, against every sequence and autograd; the
least lengths at which part 2 can be met, as docs/decision_lists.md has them.
"""

import pytest
import torch

from tests.decision_lists.decision_lists_made import (
    Brute,
    classes,
    equal,
    noisy_start,
    ordered,
    random_lists,
    random_permutation,
    random_weights,
    read_tables,
    task,
)
from tests.stages.made import generator

SECTION = "decision_lists.check"
PARAMS = {"seed": 9, "n_cases": 60, "most_tokens": 5, "list_lengths": [2, 1]}
FEASIBLE = {1: 19, 2: 29}
CHUNKS = (35, 25)  # a chunk is made to hold 35 cases


@pytest.fixture
def tables(stage, tmp_path, monkeypatch):
    monkeypatch.setattr("stages.decision_lists.check.CASES_A_CHUNK", CHUNKS[0])
    stage("decision_lists.check", {SECTION: PARAMS}, SECTION, tmp_path / "tables")
    return read_tables(tmp_path / "tables")


def chunks(question, ask):
    """The rows of every chunk, which has a generator of its own."""
    rows = []
    for number, n_cases in enumerate(CHUNKS):
        draw = generator(PARAMS["seed"], question, number)
        found = []
        while len(found) < n_cases:
            found += ask(draw)
        rows += found[:n_cases]
    return rows


def whole(draw, low, high):
    return int(torch.randint(low, high + 1, (), generator=draw))


def uniform(draw, low, high):
    return low + (high - low) * float(torch.rand((), generator=draw, dtype=torch.float64))


def normal(draw, n):
    return torch.randn(n, n, generator=draw, dtype=torch.float64)


def random_task(draw, repeats=None):
    """A task of 3 tokens or more: with lists of any length up to 4, and any law, sequences of 2 to
    5 tokens.
    """
    L = whole(draw, 3, PARAMS["most_tokens"])
    repeats = whole(draw, 0, 1) == 1 if repeats is None else repeats
    n = whole(draw, 2, min(5, L - 1))
    lists = random_lists(L, whole(draw, 1, min(4, L)), draw)
    lists = [entries[whole(draw, 0, len(entries) - 1) :] for entries in lists]
    weights = random_weights(len(classes(L, n, repeats)), draw).tolist()
    return task("any", n, lists, random_permutation(L, draw), weights, repeats=repeats)


def along_the_list(one, W, V, wrong):
    """The loss's descent along the entries of the first failing list up to its failing place; those
    rows.
    """
    brute = Brute(one)
    a, i = brute.first_failing(wrong)
    gradient = brute.gradients(W, V)[0]
    rows = wrong & (brute.query == a) & (brute.place == i)
    return -sum(float(gradient[b, a]) for b in one["lists"][a][:i]), rows


def lemma_1(draw):
    one = random_task(draw)
    c = 10 ** uniform(draw, -1, 4)
    brute = Brute(one)
    for _ in range(8):
        W = 10 ** uniform(draw, -3, 0.7) * normal(draw, brute.L) + uniform(draw, 0, 2) * ordered(
            one["lists"]
        )
        wrong = brute.margins(W) <= 0
        if wrong.any():
            derivative, rows = along_the_list(one, W, c * brute.P, wrong)
            bound = c / 2 * float((brute.weight * brute.attention_to_star(W))[rows].sum())
            yield {"repeats": one["repeats"], "derivative": derivative, "bound": bound}


def test_lemma_1_holds_and_has_both_its_sides(tables):
    rows = chunks("lemma 1", lemma_1)
    assert {row.pop("repeats") for row in rows} == {False, True}
    equal(tables["lemma_1"], rows, rtol=1e-8, atol=1e-10)
    assert all(row["derivative"] >= row["bound"] * (1 - 1e-12) > 0 for row in rows)


def lemma_2(draw):
    one = random_task(draw, False)
    brute, n = Brute(one), one["seq_len"]
    c, epsilon, _ = noisy_start(one, "none", 0)
    L_0 = float(brute.loss(0 * brute.P, c * brute.P))
    offset = epsilon * (2 * torch.rand(brute.L, brute.L, generator=draw, dtype=torch.float64) - 1)
    if whole(draw, 0, 1):
        offset = epsilon * offset.sign()
    V = c * brute.P + offset
    for _ in range(8):
        W = uniform(draw, 0, 2) * ordered(one["lists"]) + 10 ** uniform(draw, -1, 0.3) * normal(
            draw, brute.L
        )
        W = W * 10 ** uniform(draw, 0, 2) / c
        wrong = brute.logit_margins(W, V) <= 0
        if wrong.any() and float(brute.loss(W, V)) <= L_0:
            derivative, _ = along_the_list(one, W, V, wrong)
            bound = 2.5 * (1 - 1 / n) * L_0 - 3 * epsilon / n
            assert bound >= L_0 - 6 * epsilon / n  # which the abstract has
            yield {"derivative": derivative, "bound": bound}


def test_lemma_2_holds_and_has_both_its_sides(tables):
    rows = chunks("lemma 2", lemma_2)
    equal(tables["lemma_2"], rows, rtol=1e-7, atol=1e-10)
    assert all(row["derivative"] >= row["bound"] for row in rows)


def test_the_least_length_is_sought_for_every_length_of_lists(tables):
    equal(tables["feasible"], [{"length": m, "least_n": FEASIBLE[m]} for m in (2, 1)])
