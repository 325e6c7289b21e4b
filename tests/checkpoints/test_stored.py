"""Tensors are read from files that stay open, and patterns name modules without a regular
expression of the adapter's.
"""

import re
from itertools import product

import pytest
import torch
from safetensors.torch import save_file

from lib.checkpoints import stored
from lib.checkpoints.stored import PLAIN, is_named, read_tensor

KEYS = (
    "q_proj",
    r"layers\.0\.q_proj",
    "layers.0.q_proj",
    "^model.layers.0.q_proj$",
    r"^layers\.0",
    ".*q_proj",
    "layers.*q_proj",
    "layers.*proj$",
    "l.*r.*q.*j",
    "k_proj|q_proj",
    "^k_proj|layers.*v_proj",
    "proj",
    "q_proj.*",
)
MODULES = ("model.layers.0.q_proj", "layers.0.k_proj", "q_proj", "k_proj", "layers.0", "xq_proj")


@pytest.mark.parametrize(("key", "module"), list(product(KEYS, MODULES)))
def test_a_plain_key_names_the_modules_that_peft_matches(key, module):
    """peft matches the regular expression; so does this test."""
    assert PLAIN.fullmatch(key)
    assert is_named(module, key) is bool(re.match(rf"(.*\.)?({key})$", module))


@pytest.mark.parametrize("key", ["(a|b)c", "a+", "a{2}", "[ab]", "a*", "a?", r"\d", "a b", ""])
def test_a_key_that_is_another_regular_expression_is_not_plain(key):
    assert not PLAIN.fullmatch(key)


def test_a_file_is_opened_once_for_all_its_tensors_and_again_when_it_is_written_anew(
    tmp_path, monkeypatch
):
    opened = []
    real = stored.safe_open
    monkeypatch.setattr(
        stored, "safe_open", lambda file, framework: (opened.append(file), real(file, framework))[1]
    )
    file = tmp_path / "model.safetensors"
    for value in (1.0, 2.0):
        save_file({f"{i}": torch.full((2,), value) for i in range(20)}, file)
        assert [float(read_tensor(file, f"{i}")[0]) for i in range(20)] == [value] * 20
    assert opened == [file, file]
