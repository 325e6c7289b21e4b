"""The order of removal is exact, and what is removed is really gone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.utils import prune
from torch.utils.flop_counter import FlopCounterMode

from lib.matrices import pruning
from lib.matrices.pruning import (
    fewest_kept,
    largest_of_each_group,
    magnitude_masks,
    n_pruned,
    pruned_states,
    pruning_rates,
    removal_order,
)
from lib.vision.vit import (
    ViT,
    forward_flops,
    keep_units,
    logits,
    remove_heads,
    remove_neurons,
    score,
)

RATES = [0.0, 0.05, 0.1, 0.3, 0.5, 0.77, 0.9, 0.999, 1.0]
MODEL = ViT(patch_size=2, d_model=12, n_heads=3, d_head=5, d_mlp=7, n_layers=2)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def model():
    weights = MODEL.initial_weights((1, 6, 6), 4, 1.0, "layers", generator())
    return {name: w.double() for name, w in weights.items()}


@pytest.fixture
def matrices():
    source = generator(1)
    return {
        "a": torch.randn(31, 17, generator=source),
        "b": 2 * torch.randn(2, 3, 50, generator=source),
    }


@pytest.mark.parametrize("rate", RATES)
def test_the_masks_are_those_of_torch(matrices, rate):
    modules = {name: torch.nn.Module() for name in matrices}
    for name, module in modules.items():
        module.weight = torch.nn.Parameter(matrices[name].clone())
    prune.global_unstructured(
        [(module, "weight") for module in modules.values()],
        prune.L1Unstructured,
        amount=float(rate),
    )
    ((_, ours),) = magnitude_masks(matrices, [rate])
    for name, module in modules.items():
        assert torch.equal(ours[name], module.weight_mask.bool())


def test_all_rates_at_once_give_what_each_gives_alone(matrices):
    for rate, masks in magnitude_masks(matrices, RATES):
        ((_, alone),) = magnitude_masks(matrices, [rate])
        assert all(torch.equal(masks[name], alone[name]) for name in masks)


def test_of_equal_magnitudes_exactly_as_many_go_as_the_rate_says_the_first_first():
    weights = {"a": torch.tensor([2.0, -1.0, 1.0, 0.0, -1.0, 1.0, -0.0, 3.0])}
    for rate, masks in magnitude_masks(weights, [0.125, 0.25, 0.5, 0.75]):
        assert (~masks["a"]).sum() == n_pruned(8, rate)
    assert dict(magnitude_masks(weights, [0.5]))[0.5]["a"].tolist() == [
        True,
        False,
        False,
        False,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("order", ["smallest", "random", "largest"])
def test_what_is_removed_at_a_rate_stays_removed_at_a_higher_one(matrices, order):
    before = {name: torch.ones_like(w, dtype=torch.bool) for name, w in matrices.items()}
    for _, masks in magnitude_masks(matrices, RATES, order, generator(2)):
        assert all((masks[name] <= before[name]).all() for name in masks)
        before = masks


def test_weights_are_removed_or_what_was_added_to_them_is_taken_back():
    base = {"a": torch.tensor([[4.0, -1.0], [0.5, 3.0]]), "b": torch.tensor([2.0, -5.0])}
    added = {"a": torch.tensor([[0.1, -0.4], [0.3, 0.2]]), "b": torch.tensor([-0.6, 0.5])}
    tuned = {name: base[name] + added[name] for name in base}
    states = [
        (what, rate, dict(weights))
        for what, rate, weights in pruned_states(
            base, tuned, [0.0, 0.5], lambda what: torch.Generator().manual_seed(len(what))
        )
    ]
    kinds = ["weights, smallest first", "updates, smallest first", "updates, at random"]
    assert [(what, rate) for what, rate, _ in states] == [
        (what, rate) for what in kinds for rate in (0.0, 0.5)
    ]
    for _, _, weights in states[::2]:
        for name, weight in weights.items():
            torch.testing.assert_close(weight, tuned[name])
    weights, updates, random = (state for _, _, state in states[1::2])
    torch.testing.assert_close(weights["a"], torch.tensor([[4.1, 0.0], [0.0, 3.2]]))
    torch.testing.assert_close(weights["b"], torch.tensor([0.0, -4.5]))
    torch.testing.assert_close(updates["a"], torch.tensor([[4.0, -1.4], [0.5, 3.0]]))
    torch.testing.assert_close(updates["b"], tuned["b"])
    back = torch.cat([(random[name] == base[name]).flatten() for name in base])
    assert back.sum() == 3
    torch.testing.assert_close(random["b"], torch.where(back[4:], base["b"], tuned["b"]))


def test_entries_of_many_tensors_are_ranked_together_as_one(matrices, monkeypatch):
    """Of magnitudes that are often equal, too: the first of them go."""
    monkeypatch.setattr(pruning, "PART", 7)
    tuned = {name: (8 * W).round() / 8 for name, W in matrices.items()}
    base = {name: torch.zeros_like(W) for name, W in tuned.items()}
    states = pruned_states(base, tuned, RATES, lambda _: generator(2))
    wanted = magnitude_masks(tuned, RATES)
    smallest = [one for one in states if "smallest" in one[0]]
    for (_, rate, weights), (of, masks) in zip(smallest, [*wanted] * 2, strict=False):
        assert rate == of
        found = dict(weights)
        for name, mask in masks.items():
            assert torch.equal(found[name], tuned[name] * mask)


def test_largest_first_leaves_the_smallest(matrices):
    ((_, masks),) = magnitude_masks(matrices, [0.6], "largest")
    flat = torch.cat([w.abs().flatten() for w in matrices.values()])
    stays = torch.cat([m.flatten() for m in masks.values()])
    assert flat[stays].max() < flat[~stays].min()


def test_a_rate_or_a_weight_that_makes_no_sense_is_refused(matrices):
    with pytest.raises(ValueError, match=r"rate must lie in 0..1, got \[1.5\]"):
        list(magnitude_masks(matrices, [1.5]))
    with pytest.raises(ValueError, match="wanted finite weights"):
        list(magnitude_masks({"a": torch.tensor([1.0, torch.nan])}, [0.5]))


def test_units_are_ordered_within_their_layer():
    magnitudes = torch.tensor([[3.0, 1.0, 2.0], [0.0, 5.0, 4.0]])
    assert removal_order(magnitudes, "smallest").tolist() == [[1, 2, 0], [0, 2, 1]]
    assert removal_order(magnitudes, "largest").tolist() == [[0, 2, 1], [1, 2, 0]]
    assert (
        removal_order(magnitudes, "random", generator()).sort(dim=1).values.tolist()
        == [[0, 1, 2]] * 2
    )


def test_each_layer_keeps_its_own_units():
    W = torch.arange(12.0).view(2, 2, 3)
    kept = keep_units(W, torch.tensor([[0, 2], [1, 2]]), 2)
    assert kept.tolist() == [[[0.0, 2.0], [3.0, 5.0]], [[7.0, 8.0], [10.0, 11.0]]]


def test_a_model_without_neurons_says_what_the_model_with_their_weights_at_zero_says(model):
    images, kept = (
        torch.randn(3, 1, 6, 6, generator=generator(3)).double(),
        torch.tensor([[0, 3, 6], [1, 2, 5]]),
    )
    masked = {name: w.clone() for name, w in model.items()}
    for layer, units in enumerate(kept):
        gone = [unit for unit in range(7) if unit not in units]
        masked["W_2"][layer, gone] = 0
    torch.testing.assert_close(logits(remove_neurons(model, kept), images), logits(masked, images))


def test_a_model_without_heads_says_what_the_model_with_their_output_at_zero_says(model):
    images, kept = (
        torch.randn(3, 1, 6, 6, generator=generator(3)).double(),
        torch.tensor([[0, 2], [1, 2]]),
    )
    masked = {name: w.clone() for name, w in model.items()}
    masked["W_O"][0, 1] = 0
    masked["W_O"][1, 0] = 0
    torch.testing.assert_close(logits(remove_heads(model, kept), images), logits(masked, images))


def test_a_model_without_any_head_still_speaks(model):
    none = remove_heads(model, torch.empty(2, 0, dtype=torch.long))
    assert logits(none, torch.randn(3, 1, 6, 6).double()).isfinite().all()


@pytest.mark.parametrize(("neurons", "heads"), [(7, 3), (4, 3), (7, 1), (0, 2)])
def test_the_operations_are_those_that_torch_counts(model, neurons, heads):
    cut = remove_neurons(model, torch.arange(neurons).expand(2, -1))
    cut = remove_heads(cut, torch.arange(heads).expand(2, -1))
    with FlopCounterMode(display=False) as counter:
        logits(cut, torch.randn(5, 1, 6, 6).double())
    assert counter.get_total_flops() == 5 * forward_flops(cut)


def test_a_score_is_the_loss_and_the_share_that_is_right_whatever_the_batches(model):
    images, labels = torch.randn(11, 1, 6, 6).double(), torch.arange(11) % 4
    found = logits(model, images)
    loss = torch.nn.functional.cross_entropy(found.float(), labels).item()
    accuracy = (found.argmax(1) == labels).double().mean().item()
    for batch_size in (3, 11, 100):
        found = score(model, images, labels, batch_size=batch_size)
        assert [found["test_loss"].item(), found["test_accuracy"].item()] == pytest.approx(
            [loss, accuracy], rel=1e-6
        )


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


@pytest.mark.parametrize("n", [3, 7, 49, 100, 1000])
def test_a_share_of_one_nth_has_n_rates(n):
    assert len(pruning_rates(1 / n)) == n


@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 20))
def test_each_group_of_a_row_keeps_its_largest(n_groups, kept, seed):
    W = torch.randn(3, 4 * n_groups, generator=torch.Generator().manual_seed(seed))
    mask = largest_of_each_group(W, kept, 4).view(3, n_groups, 4)
    sizes = W.abs().view(3, n_groups, 4)
    assert (mask.sum(-1) == kept).all()
    smallest_kept = torch.where(mask, sizes, torch.inf).amin(-1)
    largest_gone = torch.where(mask, 0.0, sizes).amax(-1)
    assert (smallest_kept >= largest_gone).all()


def test_of_equal_weights_the_first_stay():
    assert largest_of_each_group(torch.ones(1, 4), 2, 4).tolist() == [[True, True, False, False]]


def test_columns_that_make_no_whole_groups_are_refused():
    with pytest.raises(
        ValueError, match="wanted columns in groups of 4, of which 2 stay, got 6 columns"
    ):
        largest_of_each_group(torch.ones(1, 6), 2, 4)
