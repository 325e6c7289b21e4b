"""Lists, labels and laws are what their definitions say, read literally."""

import math
from dataclasses import replace
from itertools import permutations, product
from math import comb

import pandas as pd
import pytest
import torch

from lib.decision_lists.lists import (
    Law,
    Task,
    cyclic_lists,
    determining_tokens,
    dirichlet_law,
    frequent_heads,
    in_list_order,
    label_matrix,
    log_normal_frequencies,
    multisets,
    own_lists,
    product_law,
    random_lists,
    random_permutation,
    random_subsets,
    read_tasks,
    shared_heads_lists,
    subsets,
    used_for,
    whole,
    zipf_frequencies,
)
from lib.files.tables import write_table


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


def literal_label(sequence, query, lists, pi):
    """y = pi(a_j*) with j* the first place of the list whose token occurs anywhere in the
    sequence.
    """
    for entry in lists[query]:
        if entry in sequence:
            return pi[entry]
    raise AssertionError("the list ends with the query, which is there")


@pytest.mark.parametrize(
    ("n_tokens", "seq_len", "length"), [(4, 3, 2), (5, 3, 3), (6, 2, 4), (5, 4, 1)]
)
@pytest.mark.parametrize("repeats", [False, True])
def test_labels_equal_a_literal_reading_on_every_sequence(n_tokens, seq_len, length, repeats, draw):
    lists = random_lists(n_tokens, length, draw)
    pi = random_permutation(n_tokens, draw)
    counts = (multisets if repeats else subsets)(n_tokens, seq_len)
    star, place = determining_tokens(counts, lists)
    classes = {tuple(c): i for i, c in enumerate(counts.int().tolist())}
    sequences = (
        product(range(n_tokens), repeat=seq_len)
        if repeats
        else permutations(range(n_tokens), seq_len)
    )
    seen = set()
    for sequence in sequences:
        i = classes[tuple(sequence.count(b) for b in range(n_tokens))]
        seen.add(i)
        for query in sequence:
            found = int(star[i, query])
            assert pi[found] == literal_label(sequence, query, lists, pi)
            assert lists[query][int(place[i, query]) - 1] == found
    assert len(seen) == len(counts)


def test_a_query_that_is_absent_has_no_label():
    counts = subsets(5, 2)
    star, place = determining_tokens(counts, cyclic_lists(5, 2))
    assert ((star == -1) == (counts == 0)).all()
    assert ((place == 0) == (counts == 0)).all()


def test_every_list_ends_with_its_token_and_has_distinct_entries(draw):
    for lists in (cyclic_lists(7, 4), random_lists(7, 4, draw), shared_heads_lists(7, 3, 2, draw)):
        for a, entries in enumerate(lists):
            assert entries[-1] == a
            assert len(set(entries)) == len(entries)


def test_a_cyclic_list_holds_the_tokens_before_its_own():
    assert cyclic_lists(5, 3)[1] == (4, 0, 1)


def test_shared_heads_have_as_many_patterns_as_heads(draw):
    for n_heads in (1, 2, 3, 4):
        lists = shared_heads_lists(12, 2, n_heads, draw)
        assert {entries[0] for entries in lists[n_heads:]} == set(range(n_heads))
        assert lists[:n_heads] == tuple((h,) for h in range(n_heads))


@pytest.mark.parametrize("length", [0, 6])
def test_a_list_longer_than_the_vocabulary_is_refused(length, draw):
    for make in (lambda: cyclic_lists(5, length), lambda: random_lists(5, length, draw)):
        with pytest.raises(ValueError, match=r"length must lie in 1\.\.5, got"):
            make()


@pytest.mark.parametrize("n_heads", [0, 5])
def test_heads_that_cannot_fill_the_lists_are_refused(n_heads, draw):
    with pytest.raises(ValueError, match=r"n_heads must lie in 1\.\.4, got"):
        shared_heads_lists(5, 2, n_heads, draw)


def test_sequences_longer_than_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match=r"seq_len must lie in 1\.\.3, got 4"):
        subsets(3, 4)


def test_classes_are_all_there_are():
    assert subsets(6, 3).shape == (comb(6, 3), 6)
    assert multisets(6, 3).shape == (comb(8, 3), 6)
    for counts in (subsets(6, 3), multisets(6, 3)):
        assert (counts.sum(1) == 3).all()
        assert len(torch.unique(counts, dim=0)) == len(counts)


def test_the_law_of_multisets_is_that_of_independent_tokens(draw):
    theta = log_normal_frequencies(3, 1.0, draw)
    theta = theta / theta.sum()
    counts = multisets(3, 4)
    law = {
        tuple(c): float(p)
        for c, p in zip(counts.int().tolist(), product_law(counts, theta), strict=True)
    }
    found = dict.fromkeys(law, 0.0)
    for sequence in product(range(3), repeat=4):
        found[tuple(sequence.count(b) for b in range(3))] += float(theta[list(sequence)].prod())
    assert found == pytest.approx(law, rel=1e-12)


def test_the_law_of_subsets_is_that_of_independent_tokens_without_repeats(draw):
    theta = zipf_frequencies(4, 1.0, draw)
    counts = subsets(4, 2)
    law = product_law(counts, theta)
    pairs = torch.stack([theta[c > 0].prod() for c in counts])
    torch.testing.assert_close(law, pairs / pairs.sum(), rtol=1e-12, atol=0)


def test_frequencies(draw):
    assert frequent_heads(4, 2, 30).tolist() == [30, 30, 1, 1]
    assert sorted(zipf_frequencies(4, 2.0, draw).tolist(), reverse=True) == pytest.approx(
        [1, 1 / 4, 1 / 9, 1 / 16]
    )
    law = dirichlet_law(1000, draw)
    assert float(law.sum()) == pytest.approx(1)
    assert float(law.min()) > 0
    assert 1.7 < 1000 * float(law.square().sum()) < 2.3  # of the flat Dirichlet: 2


def test_the_label_matrix_has_labels_in_rows(draw):
    pi = random_permutation(5, draw)
    P = label_matrix(pi)
    assert all(P[pi[b], b] == 1 for b in range(5))
    assert not torch.equal(P, P.T), "a permutation that is its own inverse hides a transposition"


def test_random_subsets_are_uniform(draw):
    counts = random_subsets(5, 2, 20000, draw)
    assert (counts.sum(1) == 2).all()
    codes = (counts * 2 ** torch.arange(5)).sum(1)
    frequencies = torch.unique(codes, return_counts=True)[1]
    assert len(frequencies) == 10
    assert (abs(frequencies / 2000 - 1) < 0.15).all()


def test_a_task_comes_back_from_its_row(draw, tmp_path):
    lists = shared_heads_lists(5, 2, 2, draw)
    law = tuple(dirichlet_law(10, draw).tolist())
    task = Task("one", "some", 5, 2, False, lists, random_permutation(5, draw), law, "dirichlet")
    assert Task.from_row(task.as_row()) == task
    assert task.counts.shape == (10, 5)
    assert task.longest == 2
    assert task.chances.tolist() == list(law)
    other = replace(task, name="two", use="law")
    write_table(pd.DataFrame([task.as_row(), other.as_row()]), tmp_path / "tasks")
    assert read_tasks(tmp_path / "tasks") == [task, other]
    assert used_for([task, other], "law", "alone") == [other]


def test_a_task_knows_its_classes_and_what_determines_their_labels():
    task = Task("one", "some", 3, 2, False, ((1, 0), (1,), (1, 0, 2)), (1, 2, 0), (0.5, 0.3, 0.2))
    assert task.counts.tolist() == [[1, 1, 0], [1, 0, 1], [0, 1, 1]]
    assert task.chances.tolist() == [0.5, 0.3, 0.2]
    assert task.star.tolist() == [[1, 1, -1], [0, -1, 0], [-1, 1, 1]]
    assert task.place.tolist() == [[1, 1, 0], [2, 0, 2], [0, 1, 1]]
    assert task.labels.tolist() == [1, 2, 0]
    assert task.label_matrix.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
    assert task.heads == {1}  # the list of the token 1 holds nothing else


def test_lists_order_the_columns_of_a_matrix():
    assert in_list_order(((1, 0), (1,), (1, 0, 2))).tolist() == [[1, 0, 2], [2, 1, 3], [0, 0, 1]]


@pytest.mark.parametrize(
    ("name", "kind", "value"),
    [
        ("uniform", "uniform", None),
        ("zipf 1", "zipf", 1),
        ("log-normal 0.3", "log-normal", 0.3),
        ("frequent heads 100", "frequent heads", 100),
        ("dirichlet", "dirichlet", None),
    ],
)
def test_a_law_has_a_name_that_says_all_of_it(name, kind, value):
    law = Law.named(name)
    assert (law.kind, law.value, law.name) == (kind, value, name)
    assert Law.named(name.replace("100", "100.0")) == law


@pytest.mark.parametrize(
    "name", ["", "zipf", "uniform 1", "zipf 0", "zipf -1", "zipf nan", "zipf inf", "Zipf 1", "1"]
)
def test_what_is_no_law_is_refused(name):
    with pytest.raises(
        ValueError,
        match=r"law: wanted uniform, dirichlet, or zipf, .* with a number above 0, .* got",
    ):
        Law.named(name)


def test_laws_are_those_of_their_frequencies():
    counts, seeded = subsets(5, 2), lambda: torch.Generator().manual_seed(3)
    wanted = {
        "uniform": torch.full((10,), 0.1, dtype=torch.float64),
        "zipf 1.5": product_law(counts, zipf_frequencies(5, 1.5, seeded())),
        "log-normal 0.3": product_law(counts, log_normal_frequencies(5, 0.3, seeded())),
        "frequent heads 7": product_law(counts, frequent_heads(5, 2, 7.0)),
        "dirichlet": dirichlet_law(10, seeded()),
    }
    for name, chances in wanted.items():
        torch.testing.assert_close(Law.named(name).probabilities(counts, 2, seeded()), chances)


def test_drawn_tasks_are_of_every_kind_within_their_bounds(draw):
    tasks = [Task.drawn(5, draw) for _ in range(300)]
    assert {task.n_tokens for task in tasks} == {3, 4, 5}
    assert {task.seq_len for task in tasks} == {2, 3, 4}
    assert {task.repeats for task in tasks} == {False, True}
    assert {len(entries) for task in tasks for entries in task.lists} == {1, 2, 3, 4}
    for task in tasks:
        assert len(task.probability) == len(task.counts)
        assert math.isclose(sum(task.probability), 1)
        assert task.seq_len < task.n_tokens
        assert all(
            entries[-1] == a and len(set(entries)) == len(entries)
            for a, entries in enumerate(task.lists)
        )
    assert {Task.drawn(5, draw, repeats=True).repeats for _ in range(20)} == {True}


def test_whole_numbers_are_drawn_with_both_ends(draw):
    assert {whole(2, 4, draw) for _ in range(100)} == {2, 3, 4}


def test_lists_and_laws_of_ones_own():
    assert own_lists("2 1 0 / 1 / 0 2", 3) == ((2, 1, 0), (1,), (0, 2))
    law = Law.named("frequencies 3 1 1")
    assert (law.name, law.label) == ("frequencies 3 1 1", "own frequencies")
    counts, draw = subsets(3, 2), torch.Generator()
    assert law.probabilities(counts, 1, draw).tolist() == pytest.approx([3 / 7, 3 / 7, 1 / 7])
    law = Law.named("sequences 0 0 = 1 / 2 1 = 3")
    assert law.label == "own sequences"
    assert law.probabilities(multisets(3, 2), 1, draw).tolist() == pytest.approx(
        [0.25, 0, 0, 0, 0.75, 0]
    )
