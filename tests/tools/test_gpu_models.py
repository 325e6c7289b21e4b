"""What `make gpu` measures beside CIFAR's trainings, rehearsed with small models on the CPU."""

import json

import pandas as pd
import pytest

from lib.files.params import load_yaml
from tests.tools.test_gpu import SHARED, TRAIN, check_speed
from tools import gpu


@pytest.fixture
def work(tmp_path):
    return gpu.Work(tmp_path, gpu.Clock(10), SHARED)


def test_speed_of_vit_b_16_is_measured_on_made_images_once(tmp_path, work, monkeypatch):
    """This is rehearsed with a small model, which is trained on a part of a batch of two."""
    model = TRAIN["model"] | {"patch_size": 56, "attention_biases": True}
    train = TRAIN | {"model": model, "batch_size": 4, "parts": 2}
    monkeypatch.setattr(gpu, "LONGEST_MEASUREMENT", 0.1)
    work.vit_b_16({"imagenet": {"data": {}, "train": train}}, "cpu")
    found = json.loads((tmp_path / "vit_b_16.json").read_text())
    check_speed(found)
    assert found["batch_size"] == 2
    work.vit_b_16({"imagenet": {"data": {}, "train": {}}}, "cpu")


def test_low_rank_sparse_is_trained_on_both_devices_once(tmp_path, work, monkeypatch):
    section = load_yaml(gpu.ROOT / "params.yaml")["low_rank_sparse"]
    section["generate"] |= {"n_seeds": 2, "n_train": 40, "n_test": 10}
    section["train"] |= {"n_steps": 3, "batch_size": 20, "n_neurons": 30, "snapshot_steps": [1]}
    section["train"]["device"] = "cuda"  # both are told their device
    table = tmp_path / "configurations.tsv"
    table.write_text("name\treadout\tn_steps\tn_seeds\tlabels\ntied\ttied\t\t\t\n")
    monkeypatch.setattr(gpu, "CONFIGURATIONS", table)
    work.one_layer(section, "cpu")
    found = json.loads((tmp_path / "one_layer.json").read_text())
    assert found["largest_difference"] == 0
    assert found["largest_spread"] > 0
    assert set(found["seconds"]) == {"cpu", "device"}
    work.one_layer({}, "cpu")


def test_losses_of_two_devices_are_compared_by_their_means_over_seeds():
    cells = [("a", step, seed) for step in (0, 1) for seed in (0, 1)]
    tables = {
        name: pd.DataFrame(cells, columns=["configuration", "step", "seed"]).assign(loss=losses)
        for name, losses in {"cpu": [1.0, 3.0, 1.0, 2.0], "device": [2.0, 2.0, 1.0, 1.5]}.items()
    }
    found = gpu.compared(tables)
    assert found == {"largest_difference": 0.25, "largest_spread": pytest.approx(2**0.5)}


def test_cifar_100_with_coarse_labels_is_a_data_set_beside_it():
    vision = load_yaml(gpu.ROOT / "params.yaml")["vision"]
    found, fine = (gpu.given(vision, name, "cuda", "") for name in ("cifar100_coarse", "cifar100"))
    assert found["data"].pop("labels") == "coarse"
    assert found == fine
