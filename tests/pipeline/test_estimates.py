"""Before a long training: what it will cost is said, and what cannot end well is refused."""

import dataclasses
import shutil
from collections import namedtuple

import pytest
import torch

from lib.files.files import InputError
from lib.files.params import read_params
from lib.vision.images import Images
from stages.vision import train

Usage = namedtuple("Usage", ["total", "used", "free"])


@pytest.fixture
def params() -> train.Train:
    return dataclasses.replace(read_params("vision.digits.train", train.Train), init_scales=(1.0,))


@pytest.fixture
def images() -> Images:
    pixels, labels = torch.zeros(80, 1, 8, 8, dtype=torch.uint8), torch.arange(80) % 10
    return Images(pixels, labels, pixels, labels)


def test_the_estimate_names_operations_hours_and_disk(params, images, tmp_path, capsys):
    train.say_cost(params, images, 4, tmp_path)
    said = capsys.readouterr().err
    assert f"4 trainings of {params.n_steps} steps" in said
    assert "operations" in said
    assert "h on this cpu" in said
    assert "GB of snapshots" in said


def test_a_training_that_would_take_too_long_is_refused(params, images, tmp_path):
    long = dataclasses.replace(params, n_steps=10**8, snapshot_every=10**8, max_hours=0.5)
    with pytest.raises(InputError, match=r"max_hours: wanted at most 0.5 h, got about"):
        train.say_cost(long, images, 1, tmp_path)


def test_a_training_whose_snapshots_find_no_room_is_refused(params, images, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**40, 2**40 - 1000, 1000))
    with pytest.raises(
        InputError, match=r"snapshots: wanted .* GB of disk, got 1e-06 GB that are free"
    ):
        train.say_cost(params, images, 1, tmp_path)


def test_a_batch_larger_than_the_data_set_is_refused(params, images):
    with pytest.raises(InputError, match="batch_size: wanted at most 80 images, got 81"):
        train.check_fit(dataclasses.replace(params, batch_size=81), images)


def test_randaugment_is_for_images_in_colour(params, images):
    coloured = dataclasses.replace(
        params, randaugment=train.RandAugment(n_operations=2, magnitude=9)
    )
    with pytest.raises(InputError, match=r"randaugment: wanted images of 3 channels .* got 1"):
        train.check_fit(coloured, images)


def test_a_patch_that_does_not_divide_the_image_is_refused(params, images, tmp_path):
    model = dataclasses.replace(params.model, patch_size=3)
    with pytest.raises(InputError, match="patch_size"):
        train.say_cost(dataclasses.replace(params, model=model), images, 1, tmp_path)
