import json
import shutil

import pytest

from lib.checkpoints.snapshots import audited, digest, findings, open_snapshots
from tests.checkpoints.transformers_made import made, moved, saved


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A run of steps 1 to 6 that moves evenly, but is a copy at 3 and far away at 5; and another
    run.
    """
    folder = tmp_path_factory.mktemp("snapshots")
    model = made("llama")
    for step in range(1, 7):
        if step == 3:
            shutil.copytree(folder / "a/step-2", folder / "a/step-3")
            continue
        moved(model, step, 0.5 if step == 5 else 0.01)
        saved(model, folder / f"a/step-{step}")
    saved(model, folder / "b/step-9")
    return folder, audited(open_snapshots(folder))


def test_every_matrix_has_its_way_from_the_snapshot_before(table):
    folder, rows = table
    by_place = {(one.run, one.step): one.checkpoint for one in open_snapshots(folder)}
    assert set(rows["run"]) == {"a"}
    names = {n for n, entry in by_place["a", 1].tensors.items() if len(entry.shape) == 2}
    assert len(rows) == 5 * len(names)
    for row in rows.to_dict("records"):
        assert row["before"] == row["step"] - 1
        before, after = (by_place["a", row[at]].load(row["tensor"]) for at in ("before", "step"))
        assert row["moved"] == pytest.approx(float((after - before).norm()), rel=1e-5)
        assert row["digest"] == digest(after)
    assert len(set(rows["digest"])) == 4 * len(names)


def test_equal_and_jumping_neighbours_are_found(table):
    _, rows = table
    equal, jump = findings(rows)
    assert (equal["before"], equal["step"], equal["equal"]) == (2, 3, True)
    assert (jump["before"], jump["step"], jump["equal"]) == (4, 5, False)
    assert jump["times"] == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize(
    ("states", "step"),
    [
        ({}, 21),
        ({"": {"global_step": 30}}, 30),
        ({"checkpoint-20": {"max_steps": 25, "global_step": 20}}, 25),
        ({"checkpoint-20": {"max_steps": 20}}, 21),
        ({"": [1], "checkpoint-20": {"max_steps": None}}, 21),
    ],
)
def test_weights_at_the_root_come_after_the_snapshots_beside_them(tmp_path, states, step):
    """A checkpoint that holds a trainer's state alone is none."""
    model = made("llama")
    for place in ("checkpoint-3", "checkpoint-20", ""):
        saved(moved(model, 1), tmp_path / place)
    (tmp_path / "checkpoint-30").mkdir()
    (tmp_path / "checkpoint-30/config.json").write_text("{}")
    for place, state in states.items():
        (tmp_path / place / "trainer_state.json").write_text(json.dumps(state))
    found = open_snapshots(tmp_path)
    assert [one.step for one in found] == [3, 20, step]
    assert {one.run for one in found} == {tmp_path.name}
    assert found[-1].checkpoint.folder == tmp_path
