"""A training finds its snapshots again, and the newest checkpoint that is whole and has all
snapshots before it.
"""

from types import SimpleNamespace

import pytest
import torch

from lib.files.files import InputError
from lib.work import cells
from lib.work.cells import Checkpoints, Pace, newest, stacked
from lib.work.live import Curves
from lib.work.scratch import Scratch

STEPS = [0, 1, 5]


class Drawn(Curves):
    """Curves that are kept in a list."""

    def __init__(self):
        super().__init__("drawn")
        self.rows = []

    def log(self, row):
        self.rows.append(row)


@pytest.fixture
def scratch(tmp_path):
    with Scratch("toy", {}, tmp_path) as scratch:
        yield scratch


def opened(scratch):
    curves = Drawn()
    return Checkpoints(scratch, STEPS, curves), curves


def save(kept, *steps):
    for step in steps:
        kept.save(step, {"W": torch.tensor([float(step)])}, {"loss": torch.tensor(step / 2)})


def test_a_training_is_complete_when_every_snapshot_is_there_and_then_drawn_again(scratch):
    kept, curves = opened(scratch)
    save(kept, 0, 1)
    assert curves.rows == [{"step": 0, "loss": 0.0}, {"step": 1, "loss": 0.5}]
    again, curves = opened(scratch)
    assert not again.complete()
    assert curves.rows == []
    save(kept, 5)
    again, curves = opened(scratch)
    assert again.complete()
    assert curves.rows == [{"step": step, "loss": step / 2} for step in STEPS]


def test_two_checkpoints_are_kept_and_the_newest_is_used_and_drawn_up_to(hasty, scratch, capsys):
    kept, _ = opened(scratch)
    save(kept, 0, 1)
    for step in (2, 3, 4):
        kept.checkpoint(step, {"W": torch.tensor([float(step)])})
    assert scratch.names("checkpoint") == ["checkpoint-000000003", "checkpoint-000000004"]
    save(kept, 5)
    again, curves = opened(scratch)
    step, [tensors] = newest([again])
    assert (step, tensors["W"].item()) == (4, 4)
    assert f"resumed at step 4: {scratch.folder}" in capsys.readouterr().err
    assert [row["step"] for row in curves.rows] == [0, 1]
    again.end()
    assert scratch.names("checkpoint") == []


def test_a_checkpoint_that_is_broken_or_lacks_a_snapshot_before_it_is_passed_over(hasty, scratch):
    kept, _ = opened(scratch)
    save(kept, 0)
    for step in (0, 2):
        kept.checkpoint(step, {"W": torch.tensor([float(step)])})
    assert newest([opened(scratch)[0]])[0] == 0  # snapshot 1 is missing
    save(kept, 1)
    assert newest([opened(scratch)[0]])[0] == 2
    [file] = scratch.folder.glob("checkpoint-000000002-*")
    file.write_bytes(b"")
    with pytest.warns(UserWarning, match="cut short or altered"):
        assert newest([opened(scratch)[0]])[0] == 0


def test_trainings_together_go_on_from_the_newest_step_that_all_have(tmp_path, capsys):
    both = [Scratch("toy", {"seed": seed}, tmp_path) for seed in (0, 1)]
    with both[0] as one, both[1] as other:
        kept = [opened(one)[0], opened(other)[0]]
        for training in kept:
            save(training, 0, 1)
        assert newest(kept) is None
        for training, steps in zip(kept, [(2, 3), (1, 2)], strict=True):
            for step in steps:
                training.checkpoint(step, {"W": torch.tensor([float(step)])})
        kept = [opened(one)[0], opened(other)[0]]
        step, tensors = newest(kept)
        assert (step, [float(found["W"]) for found in tensors]) == (2, [2, 2])
        assert capsys.readouterr().err.count("resumed at step 2") == 2
        [file] = other.folder.glob("checkpoint-000000002-*")
        file.write_bytes(b"")
        with pytest.warns(UserWarning, match="cut short or altered"):
            assert newest(kept) is None


def test_the_snapshots_of_a_step_are_stacked_by_seed(tmp_path):
    trainings = {seed: Scratch("toy", {"seed": seed}, tmp_path) for seed in (4, 2)}
    for seed, training in trainings.items():
        with training as scratch:
            opened(scratch)[0].save(5, {"W": torch.tensor([1.0, seed])}, {"loss": seed / 2})
    weights, rows = stacked(trainings, 5)
    assert weights["W"].tolist() == [[1, 4], [1, 2]]
    assert rows == [{"seed": 4, "step": 5, "loss": 2.0}, {"seed": 2, "step": 5, "loss": 1.0}]
    with pytest.raises(InputError, match="a snapshot broke after training; run again"):
        stacked(trainings, 1)


def test_a_checkpoint_is_due_after_five_seconds_or_thirty_times_what_the_last_one_cost(monkeypatch):
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(cells, "time", SimpleNamespace(monotonic=lambda: clock.now))
    pace = Pace()
    for cost, wanted in [(0.01, 5.0), (2.0, 60.0), (0.0, 5.0)]:
        with pace:
            clock.now += cost
        begin = clock.now
        clock.now = begin + wanted - 0.01
        assert not pace.due()
        clock.now = begin + wanted + 0.01
        assert pace.due()
