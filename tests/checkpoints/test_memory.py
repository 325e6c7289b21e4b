"""What a plan must have to begin: on the host, and on a GPU."""

import pytest
import torch

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.memory import check_plan_memory, plan_memory
from lib.files.files import InputError
from tests.checkpoints.transformers_made import pair


def test_without_a_text_the_need_does_not_grow_with_the_number_of_layers(tmp_path):
    found = []
    for n_layers in (2, 6):
        made = pair("llama", tmp_path / f"{n_layers}", num_hidden_layers=n_layers)[0]
        base = open_checkpoint(made)
        found.append([plan_memory(base, text) for text in ("-", "my.txt")])
    (few, of_few), (many, of_many) = found
    assert few == many
    assert of_many > of_few


def test_too_little_room_on_a_gpu_is_said_before_any_work(tmp_path, monkeypatch):
    base = open_checkpoint(pair("llama", tmp_path)[0])
    free = 1000
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 10**9))
    with pytest.raises(InputError, match=r"plan: wanted about .* GB on cuda, got 1e-06 GB free"):
        check_plan_memory(base, "my.txt", "cuda")
    check_plan_memory(base, "-", "cuda")
    free = 10**9
    check_plan_memory(base, "my.txt", "cuda")
