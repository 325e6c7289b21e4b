"""A disk that is full, here a limit on the size of a file, ends a stage with an error, and no out
is half there.
"""

import resource
from functools import partial

import pytest

from tests.pipeline.alone import declared_files, run_loaded
from tests.pipeline.project import contents, different_stages

pytestmark = pytest.mark.slow

# The limit as a share of the stage's largest file; training, of what it keeps in scratch too, where
# files are smaller.
CASES = [(stage.name, 0.75) for stage in different_stages()]
CASES += [(stage.name, 0.1) for stage in different_stages() if stage.verb == "train"]


@pytest.mark.parametrize(("name", "share"), CASES)
def test_a_stage_that_cannot_write_says_so_and_leaves_no_part_of_an_out(
    name, share, tiny_pipeline, tmp_path
):
    stage = tiny_pipeline.stage(name)
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    given = contents(folder, ["."])
    whole = contents(tiny_pipeline.folder, [out.path for out in stage.outs])
    limit = int(share * max(map(len, whole.values())))

    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
    code, said = run_loaded(stage, folder, tmp_path / "scratch", full)
    assert code != 0
    assert "File too large" in said
    left = contents(folder, ["."])
    made = {name: content for name, content in left.items() if name not in given}
    assert [name for name in made if name not in whole and not name.endswith("/")] == []
    assert [name for name in made if name in whole and made[name] != whole[name]] == []
