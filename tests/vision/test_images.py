"""What is no data set of images is refused."""

import pytest
import torch
from safetensors.torch import save_file

from lib.vision.images import batches, channel_statistics, read_images, standardise


def black(*shape):
    return torch.zeros(shape, dtype=torch.uint8)


def tensors():
    """A small data set, as named tensors."""
    return {
        "train_images": black(6, 3, 4, 5),
        "train_labels": torch.tensor([0, 1, 2, 0, 1, 2]),
        "test_images": black(2, 3, 4, 5),
        "test_labels": torch.tensor([2, 3]),
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_labels": None}, r"wanted a data set with \[.*\], got \['test_images'"),
        ({"test_images": black(0, 3, 4, 5)}, "test: wanted one image or more, got none"),
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


@pytest.mark.parametrize("kept", [None, 0.5])
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


def test_a_batch_larger_than_the_data_is_refused():
    images, labels = tensors()["train_images"], tensors()["train_labels"]
    with pytest.raises(ValueError, match="batch_size: wanted at most the 6 samples, got 7"):
        next(batches(images, labels, 7, lambda *_: images, lambda *_: torch.Generator()))
