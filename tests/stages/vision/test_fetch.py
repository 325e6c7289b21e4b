"""What is fetched, byte by byte: the digits of scikit-learn, and the official files of a local folder.

Addresses and altered files are in tests/pipeline/test_fetch.py.
"""

import dataclasses
import gzip
import hashlib
import io
import tarfile
from importlib import resources

import numpy as np
import pytest
from made import files
from sklearn.datasets import load_digits

from lib.data.cifar import OFFICIAL, Batch
from lib.io.files import InputError

SECTION = "vision.any.fetch"
DIGITS = {"source": "digits"}
FILES = {"train": b"first" * 300, "test": b"second" * 100}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """CIFAR-100 as if it had been published with two short files, as an archive in a folder of its own."""
    small = [Batch(name, 0, len(c), hashlib.md5(c).hexdigest()) for name, c in FILES.items()]
    official = dataclasses.replace(OFFICIAL["cifar100"], train=(small[0],), test=(small[1],))
    monkeypatch.setitem(OFFICIAL, "cifar100", official)
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name, content in {**FILES, "meta": b"names"}.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def params(archive, **changes):
    content = archive.read_bytes()
    known = {"source": "cifar100", "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    return {SECTION: known | {"source_folder": str(archive.parent)} | changes}


def test_the_digits_are_those_of_scikit_learn(stage, tmp_path):
    stage("vision.fetch", {SECTION: DIGITS}, SECTION, tmp_path / "official")
    assert files(tmp_path) == ["official/digits.csv.gz", "params.yaml"]
    content = (tmp_path / "official" / "digits.csv.gz").read_bytes()
    assert content == (resources.files("sklearn.datasets.data") / "digits.csv.gz").read_bytes()
    digits = load_digits()
    table = np.loadtxt(io.BytesIO(gzip.decompress(content)), delimiter=",")
    np.testing.assert_array_equal(table, np.column_stack([digits.data, digits.target]))


@pytest.mark.parametrize("where", ["at its path", "from the folder of the project", "from home"])
def test_a_local_folder_is_found(stage, archive, tmp_path, monkeypatch, capsys, where):
    folder = str(archive.parent)
    if where == "from the folder of the project":
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / "mine" / "project"))
        (tmp_path / "mine" / "project").mkdir()
        folder = ".."
    elif where == "from home":
        monkeypatch.setenv("HOME", str(tmp_path))
        folder = "~/mine"
    before = files(tmp_path)
    stage("vision.fetch", params(archive, source_folder=folder), SECTION, tmp_path / "official")
    written = [f"official/{name}" for name in FILES]
    assert files(tmp_path) == sorted([*before, *written, "params.yaml"])
    assert {name: (tmp_path / "official" / name).read_bytes() for name in FILES} == FILES
    said = [f"{tmp_path}/official/{name}: {len(content)} bytes, the official file\n" for name, content in FILES.items()]
    assert capsys.readouterr().out == "".join(said)


def test_what_is_unpacked_goes_before_the_archive(stage, archive, tmp_path):
    unpacked = archive.parent / "cifar-100-python"
    unpacked.mkdir()
    for name, content in FILES.items():
        (unpacked / name).write_bytes(content)
    stage("vision.fetch", params(archive, sha256="0" * 64), SECTION, tmp_path / "official")
    assert files(tmp_path / "official") == sorted(FILES)


def test_an_archive_of_another_size_is_refused(stage, archive, tmp_path):
    n_bytes = archive.stat().st_size
    wrong = params(archive, size=n_bytes + 1)
    with pytest.raises(InputError, match=rf"tar.gz: wanted the official archive, got .*{n_bytes}"):
        stage("vision.fetch", wrong, SECTION, tmp_path / "official")
    assert not (tmp_path / "official").exists()


def test_an_archive_that_lacks_a_file_is_refused(stage, archive, tmp_path):
    with tarfile.open(archive, "w:gz"):
        pass
    with pytest.raises(InputError, match=r"wanted \['cifar-100-python/test', 'cifar-100-python/train'\] in it"):
        stage("vision.fetch", params(archive), SECTION, tmp_path / "official")
    assert not (tmp_path / "official").exists()


NO_OTHER = "source: the digits come with scikit-learn, wanted no other key"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (DIGITS | {"urls": ["http://127.0.0.1:1/"]}, NO_OTHER),
        (DIGITS | {"sha256": "0" * 64}, NO_OTHER),
        (DIGITS | {"size": 1}, NO_OTHER),
        (DIGITS | {"source_folder": "."}, NO_OTHER),
        ({"source": "cifar10", "sha256": 65 * "0", "size": 1, "source_folder": "."}, "sha256: wanted 64 hexadecimal"),
        ({"source": "cifar10", "sha256": 64 * "0", "source_folder": "."}, "size: wanted the archive's size in bytes"),
        ({"source": "cifar10", "sha256": 64 * "0", "size": 1}, "wanted at least one of urls, or a source_folder"),
    ],
)
def test_params_that_do_not_fit_stop_the_stage(stage, tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        stage("vision.fetch", {SECTION: wrong}, SECTION, tmp_path / "official")
    assert files(tmp_path) == ["params.yaml"]
