"""One GPU of several may be named, and one that is not there is refused."""

import os
import re
import warnings
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

from lib.files.files import InputError
from lib.files.params import parse
from lib.training.devices import Device, kind_of, use_device


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine that says it has two; what is set on it is kept."""
    made = SimpleNamespace(deterministic=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        torch, "use_deterministic_algorithms", lambda mode: setattr(made, "deterministic", mode)
    )
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    return made


def test_a_device_is_that_of_its_name(two_gpus):
    assert use_device("cpu") == torch.device("cpu")
    assert use_device("cuda") == torch.device("cuda")
    assert use_device("cuda:1") == torch.device("cuda", 1)
    assert [kind_of(name) for name in ("cpu", "cuda", "cuda:1")] == ["cpu", "cuda", "cuda"]
    assert not two_gpus.deterministic


@dataclass(frozen=True)
class Placed:
    device: Device


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:1000", "CPU", "cpu:0"])
def test_a_name_of_no_device_is_refused(device):
    assert parse({"device": "cuda:12"}, Placed, "a") == Placed("cuda:12")
    with pytest.raises(InputError, match="device: wanted cpu, cuda, or the number of a GPU"):
        parse({"device": device}, Placed, "a")


def test_a_gpu_that_is_not_there_is_refused(two_gpus):
    with pytest.raises(InputError, match="device: wanted cuda:2, got a machine of 2 GPUs"):
        use_device("cuda:2")


def test_the_same_bits_are_asked_of_a_gpu_alone(two_gpus):
    use_device("cpu", deterministic=True)
    assert not two_gpus.deterministic
    use_device("cuda", deterministic=True)
    assert two_gpus.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.parametrize(
    ("cuda", "error", "said"),
    [
        (None, "", "got a torch made for the CPU alone, which sees no GPU"),
        ("13.0", "No CUDA GPUs are available", "got a machine on which torch sees no GPU"),
        (
            "13.0",
            "The NVIDIA driver on your system is too old (found version 12020).\nPlease update "
            "your GPU driver",
            "got a driver for CUDA 12.2, older than CUDA 13.0, for which this torch is made: "
            "install a newer ",
        ),
    ],
)
def test_why_torch_sees_no_gpu_is_said_in_one_line(cuda, error, said, monkeypatch):
    def fails() -> None:
        raise RuntimeError(error)

    def none() -> bool:
        warnings.warn("CUDA initialization: ...", UserWarning, stacklevel=1)
        return False

    monkeypatch.setattr(torch.cuda, "is_available", none)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "init", fails)
    with pytest.raises(InputError, match=re.escape(f"device: wanted cuda, {said}")) as found:
        use_device("cuda")
    assert "\n" not in str(found.value)
