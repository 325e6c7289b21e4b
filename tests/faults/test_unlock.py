"""What a killed DVC left half written is set aside, and the next DVC begins; what is whole
stays.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from ruamel.yaml import YAML

from lib.files.files import InputError
from tests.pipeline.project import PYTHON, duplicate, dvc, run
from tools import repro, unlock

RWLOCK = json.dumps(
    {
        "write": {"/a/b": {"pid": 4711, "cmd": "dvc repro"}},
        "read": {"/a/c": [{"pid": 1, "cmd": "x"}]},
    }
)
LOCK = """\
schema: '2.0'
stages:
  one:
    cmd: python -m a b
    deps:
    - path: a/b
      hash: md5
      md5: 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a
      size: 12
    params:
      params.yaml:
        a.b:
          c:
          - 1
          - 2
          d: e f
          g:
    outs:
    - path: c/d
      hash: md5
      md5: 0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b
      size: 3
  two:
    cmd: b
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A project whose two files are whole."""
    (tmp_path / ".dvc" / "tmp").mkdir(parents=True)
    (tmp_path / ".dvc" / "tmp" / "rwlock").write_text(RWLOCK)
    (tmp_path / "dvc.lock").write_text(LOCK)
    return tmp_path


@pytest.mark.parametrize("content", [RWLOCK, "{}", None])
def test_whole_files_stay_and_nothing_is_said(project, content, capsys):
    if content is None:
        (project / ".dvc" / "tmp" / "rwlock").unlink()
        (project / "dvc.lock").unlink()
    else:
        (project / ".dvc" / "tmp" / "rwlock").write_text(content)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    unlock.main(project)
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    assert capsys.readouterr().out == ""


def test_a_lock_that_was_cut_short_anywhere_is_set_aside_with_one_line(project, capsys):
    path = project / ".dvc" / "tmp" / "rwlock"
    for n_bytes in range(0, len(RWLOCK), 9):
        path.write_text(RWLOCK[:n_bytes])
        unlock.main(project)
        assert not path.exists()
        assert path.with_name("rwlock.unreadable").read_text() == RWLOCK[:n_bytes]
        [line] = capsys.readouterr().out.splitlines()
        assert line.startswith(f"{path} cannot be read")


def test_what_is_left_of_a_cut_dvc_lock_is_read_by_dvc_or_set_aside(tmp_path):
    kept = 0
    for n_bytes in range(0, len(LOCK), 3):
        (tmp_path / "dvc.lock").write_text(LOCK[:n_bytes])
        unlock.main(tmp_path)
        if (tmp_path / "dvc.lock").exists():
            kept += 1
            COMPILED_LOCKFILE_SCHEMA(YAML(typ="safe").load(tmp_path / "dvc.lock"))
    assert 0 < kept < len(LOCK) / 3


def test_nothing_is_set_aside_while_dvc_works_there(project, tmp_path):
    (project / ".dvc" / "tmp" / "rwlock").write_text("{")
    (project / "below").mkdir()
    (tmp_path / "dvc").write_text("print(1, flush=True); import time; time.sleep(60)")
    with subprocess.Popen(
        [sys.executable, tmp_path / "dvc"], cwd=project / "below", stdout=subprocess.PIPE
    ) as other:
        other.stdout.readline()
        with pytest.raises(
            InputError, match=rf"rwlock: .* while DVC works here \(process {other.pid}\)"
        ):
            unlock.main(project)
        other.kill()
    unlock.main(project)
    assert not (project / ".dvc" / "tmp" / "rwlock").exists()


def test_make_repro_sets_aside_first(monkeypatch):
    begun = []
    monkeypatch.setattr(unlock, "main", lambda: begun.append("unlock"))
    monkeypatch.setattr(repro, "Progress", lambda *_: begun.append("repro") or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        repro.main()
    assert begun == ["unlock", "repro"]


@pytest.mark.slow
def test_dvc_goes_on_after_its_lock_was_cut_short(tiny_pipeline, tmp_path):
    project = duplicate(tiny_pipeline.folder, tmp_path / "project", "scratch")
    whole = (project / "dvc.lock").read_bytes()
    end = whole.index(b"\n    - path: ", len(whole) // 2) + 10
    (project / "dvc.lock").write_bytes(whole[:end])
    dvc("repro", "claims", at=project, fails=True)
    assert "set aside" in run(PYTHON, "-m", "tools.unlock", at=project)
    dvc("repro", "claims", at=project)
