"""Images come whole, augmentation only moves them, and every epoch shows each image once."""

import pytest
import torch
from safetensors.torch import save_file

from lib.training.devices import generator
from lib.vision.images import (
    Images,
    batches,
    channel_statistics,
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": None}, r"wanted a data set with \[.*\], got \['test_images'"),
        (
            {"train_images": torch.ones(6, 3, 4, 5)},
            r"train: wanted uint8 images .* got torch.float32 \[6, 3, 4, 5\]",
        ),
        (
            {"test_images": bytes_of((2, 3, 5, 5))},
            r"test: wanted uint8 images .* got torch.uint8 \[2, 3, 5, 5\]",
        ),
        ({"train_labels": torch.tensor([0, 1])}, "train: wanted uint8 images .* labels"),
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


def test_a_constant_channel_stays_finite():
    images = torch.full((4, 2, 3, 3), 7, dtype=torch.uint8)
    assert torch.equal(standardise(images, *channel_statistics(images)), torch.zeros(4, 2, 3, 3))


def numbered(n):
    """Images that carry their number in every pixel, and labels that are ten times it."""
    numbers = torch.arange(n)
    return numbers.byte()[:, None, None, None].expand(n, 1, 8, 8).contiguous(), 10 * numbers


def unchanged(images, epoch):
    return images


def stream(n, batch_size, augment=unchanged, start=0):
    draw = lambda purpose, epoch: generator(0, purpose, epoch)  # noqa: E731
    return batches(*numbered(n), batch_size, augment, draw, start)


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(ValueError, match="batch_size: wanted at most the 5 samples, got 6"):
        next(stream(5, 6))


def test_images_of_another_type_are_not_a_data_set():
    with pytest.raises(ValueError, match="train: wanted uint8 images"):
        Images.from_tensors({**tensors(), "train_images": tensors()["train_images"].int()})
