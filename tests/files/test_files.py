"""Files are whole or absent, whatever happens to their writer."""

import hashlib
import os
import signal

import pytest

from lib.files.files import atomic, sha256, write_files


def test_an_atomic_write_makes_its_folder_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with atomic(path) as part:
        part.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_no_part(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="out of ideas"), atomic(path) as part:
        part.write_text("half")
        raise RuntimeError("out of ideas")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    child = os.fork()
    if not child:
        with atomic(path) as part:
            part.write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert path.read_text() == "old"


def test_a_block_that_writes_nothing_is_an_error_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(FileNotFoundError, match="file"), atomic(path):
        pass
    assert path.read_text() == "old"


def test_files_are_written_by_name_and_replaced_whole(tmp_path):
    (tmp_path / "a.svg").write_bytes(b"old")
    (tmp_path / "kept.svg").write_bytes(b"of another")
    write_files(tmp_path, {"b.svg": b"two", "a.svg": b"one"})
    write_files(tmp_path / "new" / "folder", {"a.svg": b"one"})
    assert (tmp_path / "new" / "folder" / "a.svg").read_bytes() == b"one"
    found = {path.name: path.read_bytes() for path in tmp_path.glob("*.svg")}
    assert found == {"a.svg": b"one", "b.svg": b"two", "kept.svg": b"of another"}


def test_bytes_and_files_have_the_digest_that_the_standard_names(tmp_path):
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert sha256(b"abc") == sha256(path) == abc
    path.write_bytes(b"x" * 3_000_000)
    assert sha256(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
