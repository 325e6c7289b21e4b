"""The order of removal is exact, and what is removed is really gone."""

import pytest
import torch
from torch.nn.utils import prune

from lib.matrices import pruning
from lib.matrices.pruning import (
    fewest_kept,
    magnitude_masks,
    pruned_states,
    pruning_rates,
    removal_order,
)

RATES = [0.0, 0.05, 0.1, 0.3, 0.5, 0.77, 0.9, 0.999, 1.0]


def generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def matrices():
    source = generator(1)
    return {
        "a": torch.randn(31, 17, generator=source),
        "b": 2 * torch.randn(2, 3, 50, generator=source),
    }


def test_the_masks_are_those_of_torch(matrices):
    for rate, found in magnitude_masks(matrices, RATES):
        modules = {name: torch.nn.Module() for name in matrices}
        for name, module in modules.items():
            module.weight = torch.nn.Parameter(matrices[name].clone())
        pairs = [(module, "weight") for module in modules.values()]
        prune.global_unstructured(pairs, prune.L1Unstructured, amount=rate)
        for name, module in modules.items():
            assert torch.equal(found[name], module.weight_mask.bool())


def test_of_equal_magnitudes_exactly_as_many_go_as_the_rate_says_the_first_first():
    weights = {"a": torch.tensor([2.0, -1.0, 1.0, 0.0, -1.0, 1.0, -0.0, 3.0])}
    removed = {rate: (~masks["a"]).nonzero() for rate, masks in magnitude_masks(weights, RATES)}
    assert removed[0.3].flatten().tolist() == [3, 6]
    assert removed[0.5].flatten().tolist() == [1, 2, 3, 6]
    assert {rate: len(gone) for rate, gone in removed.items()} == {r: round(8 * r) for r in RATES}


def flat(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors.values()])


@pytest.mark.parametrize("digits", [4, 1000], ids=["often equal", "distinct"])
def test_weights_are_removed_or_what_was_added_to_them_is_taken_back(matrices, digits, monkeypatch):
    """All are ranked together, whatever their tensor; of equal ones the first go."""
    monkeypatch.setattr(pruning, "PART", 7)
    base = {name: (digits * W).round() / digits for name, W in matrices.items()}
    draw = generator(5)
    tuned = {
        name: W + (digits * torch.randn(W.shape, generator=draw)).round() / digits
        for name, W in base.items()
    }
    ends = {"weights, smallest first": torch.zeros(827), "updates, at random": flat(base)}
    ends["updates, smallest first"] = flat(base)
    ranked = {"weights, smallest first": tuned}
    ranked["updates, smallest first"] = {name: tuned[name] - base[name] for name in base}
    found = []
    for what, rate, weights in pruned_states(base, tuned, RATES, lambda what: generator(len(what))):
        found.append((what, rate))
        left = flat(dict(weights))
        kept = left == flat(tuned)
        torch.testing.assert_close(left, torch.where(kept, flat(tuned), ends[what]))
        if what in ranked:
            ((_, masks),) = magnitude_masks(ranked[what], [rate])
            wanted = torch.where(flat(masks), flat(tuned), ends[what])
            torch.testing.assert_close(left, wanted)
        else:
            moved = int((flat(tuned) != flat(base)).sum())
            assert abs(int((~kept).sum()) - rate * moved) < 40
    kinds = ["weights, smallest first", "updates, smallest first", "updates, at random"]
    assert found == [(what, rate) for what in kinds for rate in RATES]


def test_what_goes_at_random_is_drawn_for_each_matrix():
    equal = torch.ones(400)
    zero = {name: torch.zeros(400) for name in "ab"}
    half = pruned_states(zero, {"a": equal, "b": equal}, [0.5], lambda _: generator(0))
    left = {what: dict(weights) for what, _, weights in half}["updates, at random"]
    assert (left["a"] != left["b"]).sum() > 100


def test_units_are_ordered_within_their_layer():
    magnitudes = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    assert removal_order(magnitudes, "smallest").tolist() == [[1, 2, 0], [0, 2, 1]]
    assert removal_order(magnitudes, "largest").tolist() == [[0, 2, 1], [1, 2, 0]]
    drawn = removal_order(torch.zeros(2, 9), "random", generator(0))
    assert drawn.sort(dim=1).values.tolist() == [[*range(9)]] * 2
    assert drawn[0].tolist() != drawn[1].tolist()


def test_the_fewest_entries_are_those_with_which_and_with_every_more_all_is_right():
    W = torch.tensor([[5.0, -4.0], [3.0, 0.5]])
    for kept, perfect in [
        (2, lambda pruned: bool(pruned[0, 1])),  # the second largest
        (4, lambda pruned: bool(pruned[1, 1])),
        (0, lambda pruned: True),
        (5, lambda pruned: False),  # not even with all
        (3, lambda pruned: int((pruned != 0).sum()) != 2),  # right again with one, but not with two
    ]:
        assert fewest_kept(W, perfect) == kept


@pytest.mark.parametrize(
    ("step", "rates"),
    [
        (0.1, [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]),
        (0.3, [0, 0.3, 0.6, 0.9]),
        (0.35, [0, 0.35, 0.7]),
        (0.4, [0, 0.4, 0.8]),
        (1, [0]),
    ],
)
def test_rates_are_the_multiples_below_one_to_the_digit(step, rates):
    assert pruning_rates(step) == rates


@pytest.mark.parametrize("n", [3, 49, 1000])
def test_a_share_of_one_nth_has_n_rates(n):
    assert len(pruning_rates(1 / n)) == n
