"""A few seeded faults of `make torture`; and what it counts as lost is lost."""

import random

import pytest

from tests.faults import torture
from tests.faults.torture import KILLS, OTHERS, disturbed, forget, strike, table, torment
from tests.pipeline.project import append, duplicate, stages

QUICK = "low_rank_sparse_cut"
BELIEVES = """

def without_json_digest(found, where):
    return {key: value for key, value in found.items() if key != JSON_DIGEST}
"""


@pytest.fixture
def project(tiny_pipeline, tmp_path, monkeypatch):
    """A copy of the tiny pipeline, of which one quick stage is disturbed."""
    folder = duplicate(tiny_pipeline.folder, tmp_path / "pipeline", "scratch")
    quick = [stage for stage in disturbed(folder) if stage.name == QUICK]
    monkeypatch.setattr(torture, "disturbed", lambda _: quick)
    return folder


@pytest.mark.slow
def test_a_few_faults_are_survived(project, tiny_pipeline):
    found = list(torment(tiny_pipeline.folder, project, 4, seed=1))
    assert found == [(kind, QUICK, "") for kind in [*KILLS][:4]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", OTHERS)
def test_what_was_altered_is_not_used(project, tiny_pipeline, kind):
    [stage] = torture.disturbed(project)
    forget(project, stage, scratch=True)
    assert strike(tiny_pipeline.folder, project, kind, stage, random.Random(0))


@pytest.mark.slow
def test_the_judge_of_claims_is_struck_by_wrong_measures_of_the_right_time(
    project, tiny_pipeline, monkeypatch
):
    [judge] = [stage for stage in stages(project) if stage.name == torture.JUDGES]
    before = (project / "metrics" / "claims.json").read_bytes()
    forget(project, judge, scratch=False)
    assert strike(tiny_pipeline.folder, project, torture.RESTORED, judge, random.Random(0))
    assert (project / "metrics" / "claims.json").read_bytes() == before


@pytest.mark.slow
def test_a_wrong_file_that_is_believed_is_a_loss(project, tiny_pipeline):
    """The digests are taken out of the measures, and the reader no longer wants them."""
    append(project / "lib" / "files" / "inputs.py", BELIEVES)
    [judge] = [stage for stage in stages(project) if stage.name == torture.JUDGES]
    with pytest.raises(AssertionError):
        for seed in range(9):
            forget(project, judge, scratch=False)
            strike(tiny_pipeline.folder, project, torture.RESTORED, judge, random.Random(seed))


@pytest.mark.slow
def test_a_second_run_that_makes_other_bytes_is_a_loss(project, tiny_pipeline, tmp_path):
    undisturbed = duplicate(tiny_pipeline.folder, tmp_path / "undisturbed", "scratch")
    [stage] = torture.disturbed(project)
    (undisturbed / stage.outs[0].path).write_bytes(b"?")
    [(_, _, said)] = torment(undisturbed, project, 1, seed=1)
    assert said.startswith("AssertionError: not the bytes of an undisturbed run")


def test_the_table_counts_what_was_tried_and_lost_which_ends_the_program_badly(monkeypatch, capsys):
    found = [("Ctrl-C", "a", ""), ("Ctrl-C", "b", "other bytes"), ("two at once", "a", "")]
    lines = ["| Ctrl-C | 2 | 1 | 1 |", "| two at once | 1 | 1 | 0 |", "| all | 3 | 2 | 1 |"]
    assert table(found).splitlines()[2:] == lines
    monkeypatch.setattr(torture, "disturbed", lambda _: [])
    monkeypatch.setattr(torture, "run_tiny", lambda *_: None)
    monkeypatch.setattr(torture, "duplicate", lambda *_: None)
    monkeypatch.setattr(torture, "torment", lambda *_: iter(found))
    with pytest.raises(SystemExit, match="True"):
        torture.main(3, 0)
    assert "lost: Ctrl-C: b: other bytes" in capsys.readouterr().out
