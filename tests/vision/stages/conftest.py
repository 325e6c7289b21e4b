"""What the tests of training share: data, the stage, its updates and a clock."""

import math
from types import SimpleNamespace

import pytest
import torch

from tests.vision.train_made import IMAGE_SHAPE, N_CLASSES, SECTION, TABLE
from tests.vision.vit_made import (
    make_images,
)


@pytest.fixture
def fast(monkeypatch):
    """Matrix products with which a stage measures the machine take longer than all of its training
    here.
    """
    monkeypatch.setattr(torch, "mm", lambda A, B: None)


@pytest.fixture
def data(tmp_path):
    """13 images, of which an epoch of two batches leaves out three."""
    return make_images(tmp_path / "images", 13, 9, N_CLASSES, IMAGE_SHAPE)


@pytest.fixture
def train(stage, fast, data, tmp_path):
    """Trains with params; gives the folder of runs."""

    def run(params, table=TABLE):
        (tmp_path / "controls.tsv").write_text(table)
        paths = [tmp_path / name for name in ("controls.tsv", "images", "runs")]
        stage("vision.train", {SECTION: params}, SECTION, *paths)
        return tmp_path / "runs"

    return run


@pytest.fixture
def updates(monkeypatch):
    """How many updates were `made`; more than are `allowed` stop the stage."""
    count, original = SimpleNamespace(made=0, allowed=math.inf), torch.Tensor.backward

    def backward(*arguments, **options):
        if count.made == count.allowed:
            raise KeyboardInterrupt
        count.made += 1
        original(*arguments, **options)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    return count
