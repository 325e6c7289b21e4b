"""Images come whole, augmentation only moves them, and every epoch shows each image once."""

from itertools import islice, pairwise

import pytest
import torch
from safetensors.torch import save_file

from lib.training.devices import generator
from lib.vision.augmentation import crop_and_flip
from lib.vision.images import (
    Images,
    batches,
    channel_statistics,
    permuted,
    read_images,
    standardise,
)


def bytes_of(shape, seed=0):
    """Random uint8 images."""
    return torch.randint(0, 256, shape, generator=generator(seed, "bytes")).byte()


def tensors():
    """A small data set, as named tensors."""
    return {
        "train_images": bytes_of((6, 3, 4, 5)),
        "train_labels": torch.tensor([0, 1, 2, 0, 1, 2]),
        "test_images": bytes_of((2, 3, 4, 5)),
        "test_labels": torch.tensor([2, 3]),
    }


def test_a_data_set_comes_back_as_it_was_written(tmp_path):
    save_file(tensors(), tmp_path / "d.safetensors")
    found = read_images(tmp_path / "d.safetensors")
    assert all(torch.equal(getattr(found, name), tensor) for name, tensor in tensors().items())
    assert found.n_classes == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": None}, r"wanted a data set with \[.*\], got \['test_images'"),
        ({"more": torch.ones(1)}, r"wanted a data set with \[.*\], got \['more'"),
        (
            {"train_images": torch.ones(6, 3, 4, 5)},
            r"train: wanted uint8 images .* got torch.float32 \[6, 3, 4, 5\]",
        ),
        (
            {"test_images": bytes_of((2, 4, 5))},
            r"test: wanted uint8 images .* got torch.uint8 \[2, 4, 5\]",
        ),
        (
            {"test_images": bytes_of((2, 3, 5, 5))},
            r"test: wanted uint8 images .* got torch.uint8 \[2, 3, 5, 5\]",
        ),
        ({"train_labels": torch.tensor([0, 1])}, "train: wanted uint8 images .* labels"),
        ({"train_labels": torch.zeros(6, 1).long()}, "train: wanted uint8 images .* labels"),
        ({"test_labels": torch.tensor([0.0, 1.0])}, "test: wanted uint8 images .* labels"),
        ({"test_labels": torch.tensor([0, -1])}, "test: wanted one label or more, from 0 up"),
    ],
)
def test_a_data_set_of_other_tensors_is_refused(tmp_path, change, message):
    changed = {
        name: tensor for name, tensor in {**tensors(), **change}.items() if tensor is not None
    }
    save_file(changed, tmp_path / "d.safetensors")
    with pytest.raises(
        ValueError, match=r"d\.safetensors: wanted a data set of images, got: " + message
    ):
        read_images(tmp_path / "d.safetensors")


@pytest.mark.parametrize("kept", [None, 0.0, 0.05, 0.5, 0.99])
def test_a_missing_or_truncated_data_set_is_refused(tmp_path, kept):
    path = tmp_path / "d.safetensors"
    if kept is not None:
        save_file(tensors(), path)
        data = path.read_bytes()
        path.write_bytes(data[: int(kept * len(data))])
    with pytest.raises(ValueError, match=r"d\.safetensors: wanted a data set of images, got: "):
        read_images(path)


def test_channel_statistics_are_the_mean_and_deviation_over_all_pixels():
    images = bytes_of((50, 3, 7, 5))
    mean, deviation = channel_statistics(images)
    assert mean.numpy() == pytest.approx(images.numpy().mean((0, 2, 3)), rel=1e-6)
    assert deviation.numpy() == pytest.approx(images.numpy().std((0, 2, 3)), rel=1e-6)


def test_standardised_images_have_mean_zero_and_deviation_one():
    images = bytes_of((50, 3, 7, 5))
    found = standardise(images, *channel_statistics(images)).double()
    assert found.mean((0, 2, 3)).abs().max() < 1e-5
    assert (found.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5


def test_a_constant_channel_stays_finite():
    images = torch.full((4, 2, 3, 3), 7, dtype=torch.uint8)
    assert torch.equal(standardise(images, *channel_statistics(images)), torch.zeros(4, 2, 3, 3))


def test_permuted_labels_keep_every_class_as_frequent():
    labels = torch.arange(300) % 7
    found = permuted(labels, generator(0, "permuted"))
    assert torch.equal(torch.bincount(found), torch.bincount(labels))
    assert (found == labels).double().mean() < 0.3
    assert torch.equal(found, permuted(labels, generator(0, "permuted")))


def numbered(n):
    """Images that carry their number in every pixel, and labels that are ten times it."""
    numbers = torch.arange(n)
    return numbers.byte()[:, None, None, None].expand(n, 1, 8, 8).contiguous(), 10 * numbers


def unchanged(images, epoch):
    return images


def cropped(images, epoch):
    return crop_and_flip(images, 1, generator(0, "crops", epoch))


def stream(n, batch_size, augment=unchanged, start=0):
    draw = lambda purpose, epoch: generator(0, purpose, epoch)  # noqa: E731
    return batches(*numbered(n), batch_size, augment, draw, start)


def test_every_epoch_shows_each_image_once_with_its_label_in_a_new_order():
    found = list(islice(stream(12, 3), 5 * 4))
    epochs = []
    for begin in range(0, 20, 4):
        images, labels = (torch.cat(parts) for parts in zip(*found[begin : begin + 4], strict=True))
        assert torch.equal(labels, 10 * images[:, 0, 0, 0].long())
        assert sorted(labels.tolist()) == list(range(0, 120, 10))
        epochs.append(labels.tolist())
    assert all(one != next_one for one, next_one in pairwise(epochs))


def test_the_incomplete_batch_of_an_epoch_is_left_out():
    found = [labels.tolist() for _, labels in islice(stream(11, 4), 60)]
    assert all(len(labels) == 4 for labels in found)
    assert all(len({*one, *two}) == 8 for one, two in zip(found[::2], found[1::2], strict=True))
    assert len({label for labels in found for label in labels}) == 11


@pytest.mark.parametrize("augment", [unchanged, cropped])
@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 11])
def test_batches_from_a_step_on_are_those_of_one_run(start, augment):
    through = list(islice(stream(11, 3, augment), start, start + 7))
    resumed = list(islice(stream(11, 3, augment, start), 7))
    for (images, labels), (images_2, labels_2) in zip(through, resumed, strict=True):
        assert torch.equal(images, images_2)
        assert torch.equal(labels, labels_2)


def test_every_epoch_is_augmented_anew():
    whole = islice(stream(9, 9, cropped), 3)
    found = [images[labels.argsort()] for images, labels in whole]
    assert all(not torch.equal(one, two) for one, two in pairwise(found))


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="batch_size: wanted at most the 5 samples, got 6"):
        next(stream(5, 6))


def test_images_of_another_type_are_not_a_data_set():
    with pytest.raises(ValueError, match="train: wanted uint8 images"):
        Images.from_tensors({**tensors(), "train_images": tensors()["train_images"].int()})
