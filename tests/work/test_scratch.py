"""What lies in scratch is right or is not used, belongs to one key, and is used by one process at a
time.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lib.work.scratch import Scratch, scratch_root

ROOT = Path(__file__).parents[2]
KEY = {"seed": 3, "data": "abc"}


@pytest.fixture
def tensors():
    g = torch.Generator().manual_seed(0)
    return {"W": torch.randn(4, 3, generator=g), "step": torch.tensor(7.0)}


@pytest.fixture
def scratch(tmp_path):
    with Scratch("toy", KEY, tmp_path) as scratch:
        yield scratch


def test_what_was_saved_is_loaded_bit_for_bit(scratch, tensors):
    scratch.save(
        "checkpoint-1",
        {"W": tensors["W"].mT.requires_grad_(), "step": tensors["step"]},
        {"step": 7},
    )
    found, note = scratch.load("checkpoint-1")
    assert found.keys() == tensors.keys()
    assert torch.equal(found["W"], tensors["W"].mT)
    assert torch.equal(found["step"], tensors["step"])
    assert note == {"step": 7}


def test_names_are_sorted_and_may_be_dropped(scratch, tensors):
    for name in ("b-2", "a-1", "b-1"):
        scratch.save(name, tensors, {})
    assert scratch.names() == ["a-1", "b-1", "b-2"]
    assert scratch.names("b") == ["b-1", "b-2"]
    scratch.drop("b-1")
    scratch.drop("b-1")
    assert scratch.names() == ["a-1", "b-2"]


def test_a_name_is_not_the_beginning_of_another(scratch, tensors):
    scratch.save("a-1", tensors, {})
    assert scratch.load("a") is None
    scratch.drop("a")
    assert scratch.names() == ["a-1"]


def test_a_second_save_replaces_the_first(scratch, tensors):
    scratch.save("a", tensors, {"step": 1})
    scratch.save("a", {"W": tensors["W"] + 1}, {"step": 2})
    found, note = scratch.load("a")
    assert (scratch.names(), sorted(found), note) == (["a"], ["W"], {"step": 2})


def test_a_file_with_a_flipped_bit_is_skipped_with_a_warning_and_made_again(scratch, tensors):
    scratch.save("a", tensors, {"step": 1})
    [path] = scratch.folder.glob("*.safetensors")
    data = path.read_bytes()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.warns(UserWarning, match=f"{path} is cut short or altered; it is skipped"):
            assert scratch.load("a") is None
        assert scratch.names() == []
    scratch.save("a", tensors, {})
    assert torch.equal(scratch.load("a")[0]["W"], tensors["W"])


def test_the_part_of_a_killed_writer_is_swept_away(tmp_path):
    with Scratch("toy", KEY, tmp_path) as scratch:
        part = scratch.folder / ".a-0123.safetensors.99.part"
        part.write_bytes(b"half")
    with Scratch("toy", KEY, tmp_path) as scratch:
        assert scratch.names() == []
        assert not part.exists()


def test_every_part_of_the_key_has_a_folder_of_its_own(tmp_path, tensors):
    others = [{**KEY, "seed": 4}, {**KEY, "data": "abd"}, {"seed": 3}, {**KEY, "more": None}]
    with Scratch("toy", KEY, tmp_path) as scratch:
        scratch.save("a", tensors, {})
    with Scratch("toy", dict(reversed(KEY.items())), tmp_path) as same:
        assert same.folder == scratch.folder
    folders = {scratch.folder}
    for key in others:
        with Scratch("toy", key, tmp_path) as other:
            assert other.load("a") is None
            folders.add(other.folder)
    assert len(folders) == 1 + len(others)


def test_scratch_lies_in_the_temporary_folder_of_dvc(tmp_path, monkeypatch):
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    assert scratch_root() == tmp_path / ".dvc" / "tmp" / "scratch"
    assert scratch_root() in Scratch("toy", KEY).folder.parents
    monkeypatch.delenv("DVC_ROOT")
    monkeypatch.chdir(tmp_path)
    assert scratch_root().resolve() == (tmp_path / ".dvc" / "tmp" / "scratch").resolve()


def test_a_second_process_waits_until_the_first_is_done(tmp_path, tensors):
    script = (
        "import json, pathlib, sys; from lib.work.scratch import Scratch\n"
        "with Scratch('toy', json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])) as scratch:\n"
        "    print(scratch.names(), flush=True)\n"
    )
    command = [sys.executable, "-c", script, json.dumps(KEY), tmp_path]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        Scratch("toy", KEY, tmp_path) as scratch,
        subprocess.Popen(command, cwd=ROOT, **pipes) as second,
    ):
        try:
            assert second.stderr.readline().startswith("waiting: another process works in ")
            assert second.poll() is None
            scratch.save("made-by-the-first", tensors, {})
            scratch.__exit__(None, None, None)
            assert second.communicate(timeout=120)[0] == "['made-by-the-first']\n"
        finally:
            second.kill()
