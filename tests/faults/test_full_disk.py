"""A disk that is full, here a limit on the size of a file, ends a stage with an error, and no out
is half there.
"""

import dataclasses
import shlex
import sys

import pytest

from tests.pipeline.alone import declared_files, run_alone
from tests.pipeline.project import contents, different_stages

pytestmark = pytest.mark.slow

LIMITED = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, 2 * (int(sys.argv[1]),)); "
    "os.execvp(sys.argv[2], sys.argv[2:])"
)
# The limit as a share of the stage's largest file; training, of what it keeps in scratch too, where
# files are smaller.
CASES = [(stage.name, 0.75) for stage in different_stages()]
CASES += [(stage.name, 0.1) for stage in different_stages() if stage.verb == "train"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on the size of a file")
@pytest.mark.parametrize(("name", "share"), CASES)
def test_a_stage_that_cannot_write_says_so_and_leaves_no_part_of_an_out(
    name, share, tiny_pipeline, tmp_path
):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    folder = tmp_path / "alone"
    declared_files(stage, tiny_pipeline.folder, folder)
    given = contents(folder, ["."])
    whole = contents(tiny_pipeline.folder, [out.path for out in stage.outs])
    limit = int(share * max(len(content) for content in whole.values()))
    limited = dataclasses.replace(
        stage, cmd=f"python -c {shlex.quote(LIMITED)} {limit} sh -c {shlex.quote(stage.cmd)}"
    )
    done = run_alone(limited, folder, tmp_path / "scratch")
    assert done.returncode != 0
    assert "File too large" in done.stderr, done.stderr
    made = {name: content for name, content in contents(folder, ["."]).items() if name not in given}
    assert (
        sorted(name for name in made if name.rstrip("/") not in whole and not name.endswith("/"))
        == []
    )
    assert [name for name in made if name in whole and made[name] != whole[name]] == []
