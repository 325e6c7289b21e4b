"""Each stage alone, on tiny params: what dvc.yaml declares is all that it reads and all that it
writes.
"""

import pytest

from tests.pipeline.alone import declared_files, run_loaded
from tests.pipeline.project import contents, different_stages, run

NAMES = [stage.name for stage in different_stages()]


@pytest.mark.parametrize("name", NAMES)
def test_a_stage_alone_makes_what_it_declares_and_the_same_bytes_as_in_the_pipeline(
    name, tiny_pipeline, tmp_path
):
    """It may use every core, and so has another number of worker processes than in the pipeline."""
    stage = tiny_pipeline.stage(name)
    declared_files(stage, tiny_pipeline.folder, tmp_path / "alone")
    given = contents(tmp_path / "alone", ["."])
    code, said = run_loaded(stage, tmp_path / "alone", tmp_path / "scratch")
    left = contents(tmp_path / "alone", ["."])
    assert code == 0, f"{stage.cmd}\n{said}"
    assert {name: left.get(name) for name in given} == given, "it changed or removed what it reads"
    made = {name: content for name, content in left.items() if name not in given}
    wanted = contents(tiny_pipeline.folder, [out.path for out in stage.outs])
    assert sorted(made) == sorted(wanted), "what it wrote is not what it declares"
    assert [name for name in wanted if made[name] != wanted[name]] == [], (
        "not the bytes of the pipeline"
    )


def test_a_stage_needs_no_code_but_what_it_declares(tiny_pipeline, tmp_path):
    """It runs in a process of its own; the sources show that all stages declare what they import."""
    stage = tiny_pipeline.stage("gradual_rank_greedy")
    declared_files(stage, tiny_pipeline.folder, tmp_path / "alone")
    run("sh", "-c", stage.cmd, at=tmp_path / "alone", DVC_ROOT=str(tmp_path / "scratch"))
