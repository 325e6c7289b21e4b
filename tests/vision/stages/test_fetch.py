"""What is fetched, byte by byte: the digits of scikit-learn, and the official files of a local
folder.

Addresses and altered files are in tests/pipeline/test_fetch.py.
"""

import dataclasses
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from lib.files.files import InputError
from lib.vision.cifar import OFFICIAL, Batch
from tests.stages.made import files

ROOT = Path(__file__).parents[3]
SECTION = "vision.any.data"
DIGITS = {"source": "digits", "n_test": 360, "seed": 0}
FILES = {"train": b"first" * 300, "test": b"second" * 100}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """CIFAR-100 as if it had been published with two short files, as an archive in a folder of its
    own.
    """
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "cifar-100-python.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name, content in {**FILES, "meta": b"names"}.items():
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    small = [Batch(name, 0, len(c), hashlib.md5(c).hexdigest()) for name, c in FILES.items()]
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    official(
        monkeypatch, train=(small[0],), test=(small[1],), sha256=digest, n_bytes=path.stat().st_size
    )
    return path


def official(monkeypatch, **changes):
    """Change what is known of the published CIFAR-100."""
    monkeypatch.setitem(OFFICIAL, "cifar100", dataclasses.replace(OFFICIAL["cifar100"], **changes))


def params(folder):
    return {SECTION: {"source": "cifar100", "source_folder": str(folder)}}


def test_the_digits_are_those_of_scikit_learn(stage, tmp_path):
    stage("vision.fetch", {SECTION: DIGITS}, SECTION, tmp_path / "official")
    assert files(tmp_path) == ["official/SHA256SUMS", "official/digits.csv.gz", "params.yaml"]
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
    stage("vision.fetch", params(folder), SECTION, tmp_path / "official")
    written = [f"official/{name}" for name in FILES]
    assert files(tmp_path) == sorted([*before, *written, "params.yaml"])
    assert {name: (tmp_path / "official" / name).read_bytes() for name in FILES} == FILES
    said = [
        f"{tmp_path}/official/{name}: {len(content)} bytes, the official file\n"
        for name, content in FILES.items()
    ]
    assert capsys.readouterr().out == "".join(said)


def test_what_is_unpacked_goes_before_the_archive(stage, archive, tmp_path, monkeypatch):
    official(monkeypatch, sha256="0" * 64)
    unpacked = archive.parent / "cifar-100-python"
    unpacked.mkdir()
    for name, content in FILES.items():
        (unpacked / name).write_bytes(content)
    stage("vision.fetch", params(archive.parent), SECTION, tmp_path / "official")
    assert files(tmp_path / "official") == sorted(FILES)


def test_an_archive_of_another_size_is_refused(stage, archive, tmp_path, monkeypatch):
    n_bytes = archive.stat().st_size
    official(monkeypatch, n_bytes=n_bytes + 1)
    with pytest.raises(InputError, match=rf"tar.gz: wanted the official archive, got .*{n_bytes}"):
        stage("vision.fetch", params(archive.parent), SECTION, tmp_path / "official")
    assert not (tmp_path / "official").exists()


def test_an_archive_that_lacks_a_file_is_refused(stage, archive, tmp_path, monkeypatch):
    with tarfile.open(archive, "w:gz"):
        pass
    official(
        monkeypatch,
        n_bytes=archive.stat().st_size,
        sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
    )
    with pytest.raises(
        InputError, match=r"wanted \['cifar-100-python/test', 'cifar-100-python/train'\] in it"
    ):
        stage("vision.fetch", params(archive.parent), SECTION, tmp_path / "official")
    assert not (tmp_path / "official").exists()


FOR_DIGITS = "wanted n_test and seed for the digits, which have no official split, and for no other"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            DIGITS | {"source_folder": "."},
            "source_folder: the digits come with scikit-learn, wanted none",
        ),
        ({"source": "digits", "n_test": 20}, FOR_DIGITS),
        ({"source": "cifar10", "n_test": 20}, FOR_DIGITS),
        ({"source": "cifar100", "n_test": 20, "seed": 1}, FOR_DIGITS),
        ({"source": "cifar1000"}, "source: wanted one of"),
        (DIGITS | {"n_test": 9}, r"n_test: wanted a number in \[10, 1787\], got 9"),
        (DIGITS | {"n_test": 1788}, r"n_test: wanted a number in \[10, 1787\], got 1788"),
    ],
)
@pytest.mark.parametrize("verb", ["fetch", "generate"])
def test_params_that_do_not_fit_stop_both_stages(stage, tmp_path, verb, wrong, message):
    paths = [tmp_path / "official", tmp_path / "images"][: 2 if verb == "generate" else 1]
    with pytest.raises(InputError, match=message):
        stage(f"vision.{verb}", {SECTION: wrong}, SECTION, *paths)
    assert files(tmp_path) == ["params.yaml"]


def test_neither_the_fetching_nor_the_reading_of_images_needs_torch():
    """Torch is the largest import; and scikit-learn is loaded only to split the digits."""
    code = "import sys, stages.vision.fetch, stages.vision.generate\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "stages.vision.generate" in done.stdout, done.stderr
    assert not {"torch", "sklearn"} & set(done.stdout.split())
