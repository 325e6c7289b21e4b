"""The losses of the parts of a batch by one call are those of a call for each."""

import pytest
import torch

from lib.checkpoints.accuracy import judged
from lib.checkpoints.gains import Parts, losses_of
from lib.checkpoints.part_losses import part_losses
from lib.checkpoints.texts import mean_loss
from tests.checkpoints.transformers_made import made


def batches(*, masked: bool, n: int = 4):
    """Two batches of windows; where it is asked, so many first labels do not count, in each sample
    others.
    """
    random = torch.Generator().manual_seed(0)
    found = []
    for size in (n, 3):
        ids = torch.randint(256, (size, 12), generator=random)
        labels = ids.clone()
        for row in range(size * masked):
            labels[row, : min(2 * row, 9)] = -100
        found.append({"input_ids": ids, "labels": labels})
    return found


def calls_of(model) -> list[int]:
    """How many samples each call has, as they come."""
    sizes = []

    def note(_, __, given, *___):
        sizes.append(len(given["input_ids"]))

    model.register_forward_hook(note, with_kwargs=True)
    return sizes


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt_neox", "bert", "mixtral"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("some", [slice(None), slice(2, 5)])
def test_each_part_has_its_own_loss_and_a_batch_is_one_call(kind, masked, some):
    model = made(kind)
    parts = Parts(batches(masked=masked))
    wanted = [mean_loss(model, [part]) for part in parts.batches[some]]
    sizes = calls_of(model)
    assert losses_of(model, parts, some) == pytest.approx(wanted, rel=5e-7)
    assert sizes == ([4, 3] if some == slice(None) else [2, 1])


def test_parts_of_several_samples_weigh_their_labels():
    model = made("llama")
    parts = Parts(batches(masked=True, n=16))
    wanted = [mean_loss(model, [part]) for part in parts.batches]
    sizes = calls_of(model)
    assert losses_of(model, parts) == pytest.approx(wanted, rel=5e-7)
    assert sizes == [16, 3]


def test_a_loss_that_is_no_cross_entropy_of_the_logits_takes_a_call_for_each_part():
    """A mixture adds what its router loses, which is no mean over samples."""
    model = made("mixtral", output_router_logits=True, router_aux_loss_coef=0.1)
    parts = Parts(batches(masked=False))
    wanted = [mean_loss(model, [part]) for part in parts.batches]
    sizes = calls_of(model)
    assert losses_of(model, parts) == wanted
    assert sizes == [4, 1, 1, 1, 1, 1, 1, 1]


def test_in_a_narrow_type_each_part_is_a_call():
    model = made("llama").bfloat16()
    parts = Parts(batches(masked=False))
    wanted = [mean_loss(model, [part]) for part in parts.batches]
    sizes = calls_of(model)
    assert losses_of(model, parts) == wanted
    assert sizes == [1] * 7


def test_a_loss_that_is_no_number_is_that_of_its_part_alone():
    model = made("llama")
    whole = batches(masked=False)[0]
    parts = [{name: values[i : i + 1] for name, values in whole.items()} for i in range(4)]
    parts[1]["labels"][:, 1:] = -100  # nothing foretells the first one
    found = part_losses(model, [parts])
    assert found[1] != found[1]
    assert [found[0], *found[2:]] == [mean_loss(model, [parts[i]]) for i in (0, 2, 3)]


def test_a_classifier_has_each_label_counted_once():
    model = made("vit")
    random = torch.Generator().manual_seed(0)
    pixels = torch.rand(12, 3, 8, 8, generator=random)
    parts = Parts([{"pixel_values": pixels, "labels": torch.arange(12) % 2}])
    found = judged(model, lambda: losses_of(model, parts))
    assert found["losses"] == [mean_loss(model, [part]) for part in parts.batches]
    assert found["n_labels"] == 12
