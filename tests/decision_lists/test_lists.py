"""Lists, labels and laws are what their definitions say, read literally."""

from itertools import permutations, product

import pytest
import torch

from lib.decision_lists.lists import (
    Law,
    determining_tokens,
    multisets,
    random_lists,
    random_permutation,
    subsets,
)


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
