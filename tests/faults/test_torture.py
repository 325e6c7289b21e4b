"""A few seeded faults of `make torture`; and what it counts as lost is lost."""

import random

import pytest

from tests.faults import torture
from tests.faults.torture import (
    EDITS,
    KILLS,
    OTHERS,
    Lost,
    Pipeline,
    disturbed,
    moments,
    strike,
    table,
    torment,
)
from tests.pipeline.project import duplicate

QUICK = ("low_rank_sparse_adapt", "decision_lists_control", "low_rank_sparse_cut")


@pytest.fixture
def pipeline(tiny_pipeline, tmp_path) -> Pipeline:
    folder = duplicate(tiny_pipeline.folder, tmp_path / "pipeline", "scratch")
    return Pipeline(folder, [stage for stage in disturbed(folder) if stage.name in QUICK])


@pytest.mark.slow
def test_a_few_faults_are_survived(pipeline):
    found = list(torment(pipeline, 4, seed=1))
    assert [kind for kind, *_ in found] == list(KILLS)[:4]
    assert [said for *_, said in found] == [""] * 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["bit flip in scratch", "bit flip in data", "DVC's file cut short"]
)
def test_what_was_altered_is_not_used(pipeline, kind):
    stage = next(stage for stage in pipeline.listed if stage.name == "low_rank_sparse_cut")
    pipeline.forget(stage, scratch=True)
    assert strike(pipeline, kind, stage, "", random.Random(0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", EDITS)
def test_after_an_edit_while_a_stage_runs_the_next_run_is_of_the_edit(pipeline, kind):
    stage = next(stage for stage in pipeline.listed if stage.name == "low_rank_sparse_cut")
    assert strike(pipeline, kind, stage, "at a finished cell", random.Random(0))


@pytest.mark.slow
def test_other_bytes_than_those_of_an_undisturbed_run_are_a_loss(pipeline):
    stage = pipeline.listed[0]
    file = next(iter(pipeline.outs[stage.name]))
    pipeline.outs[stage.name][file] += b"?"
    with pytest.raises(Lost, match=file):
        pipeline.check(stage, pipeline.folder)


def test_the_table_counts_what_was_tried_and_lost():
    found = [("Ctrl-C", "a", ""), ("Ctrl-C", "b", "other bytes"), ("two at once", "a", "")]
    lines = table(found).splitlines()[2:]
    assert lines == [
        "| Ctrl-C | 2 | 1 | 1 |",
        "| disk full | not tried | | |",
        "| two at once | 1 | 1 | 0 |",
        "| all | 3 | 2 | 1 |",
    ]


def test_every_fault_has_a_moment_and_a_loss_ends_the_program_badly(monkeypatch, tmp_path, capsys):
    assert all(moments(kind) for kind in [*KILLS, *OTHERS])
    outcomes = [("Ctrl-C", "a", ""), ("two at once", "a", "other bytes in b")]
    monkeypatch.setattr(torture, "made", lambda folder: Pipeline.__new__(Pipeline))
    monkeypatch.setattr(Pipeline, "listed", [], raising=False)
    monkeypatch.setattr(torture, "torment", lambda *_: iter(outcomes))
    with pytest.raises(SystemExit, match="True"):
        torture.main(2, 0)
    assert "lost: two at once: a: other bytes in b" in capsys.readouterr().out
