"""What trainings of small models share: their table, windows of a text, and the rate of a step."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from lib.checkpoints.trainings import Sizes, descent, drawn_windows, read_trainings
from lib.training.devices import generator
from tests.checkpoints.checkpoints_made import SIZES

TABLE = "name\tn_steps\tlearning_rate\tsnapshot_steps\n"
HOW = Sizes(**SIZES, batch_size=3, n_seeds=1)


class Bytes(torch.nn.Module):
    """A model with a loss of slope 1 in its only parameter, which remembers what it was given."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(()))
        self.frozen = torch.nn.Parameter(torch.zeros(()), requires_grad=False)
        self.seen = []

    def forward(self, input_ids, labels):
        self.seen.append(input_ids)
        return SimpleNamespace(loss=1 * self.bias)


def test_the_base_stands_apart_from_what_tunes_it(tmp_path):
    file = tmp_path / "t.tsv"
    file.write_text(TABLE + "large\t3\t2e-2\t[1]\nbase\t4\t1e-2\t[]\ngentle\t2\t1e-3\t[]\n")
    base, others = read_trainings(file)
    assert (base.name, base.n_steps) == ("base", 4)
    assert {name: one.learning_rate for name, one in others.items()} == {
        "large": 2e-2,
        "gentle": 1e-3,
    }


def test_windows_are_stretches_of_the_text_from_anywhere():
    tokens = torch.arange(40)
    rows = drawn_windows(tokens, HOW, generator(0, "windows"))
    assert rows.shape == (3, HOW.seq_len)
    assert (rows.diff() == 1).all()
    assert len(set(rows[:, 0].tolist())) > 1


def test_a_step_of_a_constant_slope_is_as_long_as_the_rate(tmp_path):
    """AdamW then moves by the rate: it rises over 20 steps, and falls to a tenth."""
    text = tmp_path / "t.txt"
    text.write_bytes(bytes(range(200)))
    model = Bytes()
    places = []
    for step in descent(model, text, HOW, 40, 1e-2, generator(0, "steps")):
        assert step == len(places)
        places.append(float(model.bias.detach()))
    moved = [before - after for before, after in pairwise(places)]
    wanted = [1e-2 * min(1, (i + 1) / 20) * (1 - 0.9 * i / 40) for i in range(40)]
    assert moved == pytest.approx(wanted, rel=1e-3)
    assert float(model.frozen) == 0
    assert len(model.seen) == 40
    assert all((rows.diff() == 1).all() for rows in model.seen)
