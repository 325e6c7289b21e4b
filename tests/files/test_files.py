"""Files are whole or absent, whatever happens to their writer."""

import hashlib
import signal
import subprocess
import sys

import pytest

from lib.files.files import atomic, sha256, write_files


def test_an_atomic_write_makes_its_folder_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with atomic(path) as part:
        part.write_text("whole")
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_sees_the_old_file_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with atomic(path) as part:
        part.write_text("half")
        assert path.read_text() == "old"
        part.write_text("new")
    assert path.read_text() == "new"


def test_who_reads_the_old_file_reads_it_to_its_end(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with path.open() as reader:
        with atomic(path) as part:
            part.write_text("new")
        assert reader.read() == "old"


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
    script = (
        "import os, pathlib, sys; from lib.files.files import atomic\n"
        "with atomic(pathlib.Path(sys.argv[1])) as part:\n"
        "    part.write_text('half'); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, path])
    assert done.returncode == -signal.SIGKILL
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
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {"a.svg": b"one", "b.svg": b"two", "kept.svg": b"of another"}


def test_a_folder_is_made_for_the_files_that_are_written_in_it(tmp_path):
    write_files(tmp_path / "new" / "figures", {"a.svg": b"\x00\xff"})
    assert (tmp_path / "new" / "figures" / "a.svg").read_bytes() == b"\x00\xff"
    assert [path.name for path in (tmp_path / "new" / "figures").iterdir()] == ["a.svg"]


def test_bytes_and_files_have_the_digest_that_the_standard_names(tmp_path):
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, B.1
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert sha256(b"abc") == sha256(path) == abc
    path.write_bytes(b"x" * 3_000_000)
    assert sha256(path) == hashlib.sha256(b"x" * 3_000_000).hexdigest()
