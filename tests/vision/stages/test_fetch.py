"""What is fetched, byte by byte: the digits of scikit-learn, and the official files of an address,
a local folder or an archive.
"""

import dataclasses
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from lib.files.files import InputError
from lib.vision.cifar import OFFICIAL, Batch, archive_batches, read_cifar
from tests.pipeline.project import ROOT, contents, served
from tests.stages.made import files

REBUILD = ROOT.parent / "shared" / "data" / "rebuild_cifar.py"
SECTION = "vision.any.data"
DIGITS = {"source": "digits", "n_test": 360, "seed": 0}
FILES = {"train": b"first" * 300, "test": bytes(range(256)) * 100}
MEMBERS = {f"cifar-100-python/{name}": content for name, content in FILES.items()}
ALTERED = {**MEMBERS, "cifar-100-python/test": b"x" * 90_000}
NO_ARCHIVE = "wanted cifar-100-python.tar.gz, got"


def packed(members: dict[str, bytes], links: dict[str, str]) -> bytes:
    """An archive of files, and of links to them."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, held in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(held)
            archive.addfile(member, io.BytesIO(held))
        for name, target in links.items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return content.getvalue()


WHOLE = packed({**MEMBERS, "../evil": b"evil"}, {"link": "/etc/passwd"})


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """CIFAR-100 as if it had been published with two short files, as an archive in a folder of its
    own.
    """
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "cifar-100-python.tar.gz"
    path.write_bytes(WHOLE)
    train, test = (Batch(n, 0, len(c), hashlib.md5(c).hexdigest()) for n, c in FILES.items())
    told = {"sha256": hashlib.sha256(WHOLE).hexdigest(), "n_bytes": len(WHOLE)}
    known = dataclasses.replace(OFFICIAL["cifar100"], train=(train,), test=(test,), **told)
    monkeypatch.setitem(OFFICIAL, "cifar100", known)
    return path


def params(folder):
    return {SECTION: {"source": "cifar100", "source_folder": str(folder)}}


def test_the_digits_are_those_of_scikit_learn(stage, tmp_path):
    stage("vision.fetch", {SECTION: DIGITS}, SECTION, tmp_path / "official")
    assert files(tmp_path) == ["official/SHA256SUMS", "official/digits.csv.gz", "params.yaml"]
    content = (tmp_path / "official" / "digits.csv.gz").read_bytes()
    assert content == (resources.files("sklearn.datasets.data") / "digits.csv.gz").read_bytes()


@pytest.mark.parametrize("where", ["at its path", "from the folder of the project", "from home"])
def test_of_the_archive_in_a_local_folder_the_official_files_are_unpacked(
    stage, archive, tmp_path, monkeypatch, where
):
    folder = str(archive.parent)
    if where == "from the folder of the project":
        monkeypatch.setenv("DVC_ROOT", str(tmp_path / "mine" / "project"))
        (tmp_path / "mine" / "project").mkdir()
        folder = ".."
    elif where == "from home":
        monkeypatch.setenv("HOME", str(tmp_path))
        folder = "~/mine"
    stage("vision.fetch", params(folder), SECTION, tmp_path / "official")
    assert contents(tmp_path / "official", ["."]) == FILES


def test_the_archive_comes_once_from_the_first_address_that_has_it(
    stage, archive, tmp_path, monkeypatch
):
    monkeypatch.setenv("NO_PROXY", "*")
    with served(archive.parent) as address:
        for urls in (f"{address}none", f"{address}{archive.name}"), ("http://127.0.0.1:1/",):
            known = dataclasses.replace(OFFICIAL["cifar100"], urls=urls)
            monkeypatch.setitem(OFFICIAL, "cifar100", known)
            stage("vision.fetch", {SECTION: {"source": "cifar100"}}, SECTION, tmp_path / "official")
            assert contents(tmp_path / "official", ["."]) == FILES


@pytest.mark.parametrize("name", list(OFFICIAL))
def test_every_archive_has_addresses_a_digest_and_a_size(name):
    known = OFFICIAL[name]
    assert all(
        url.startswith("https://") and url.endswith(f"/{known.archive}") for url in known.urls
    )
    assert len(set(known.urls)) == 3
    assert re.fullmatch("[0-9a-f]{64}", known.sha256)
    assert 1.6e8 < known.n_bytes < 1.8e8


def test_an_empty_local_folder_is_named_with_what_was_looked_for(stage, tmp_path):
    wanted = f"holds cifar-100-python/ or cifar-100-python.tar.gz, got {tmp_path}"
    with pytest.raises(InputError, match=wanted):
        stage("vision.fetch", params(tmp_path), SECTION, tmp_path / "official")


def test_an_archive_that_is_not_the_official_one_is_refused(stage, archive, tmp_path):
    archive.write_bytes(WHOLE + b"more")
    with pytest.raises(InputError, match=r"tar.gz: wanted the official archive, got "):
        stage("vision.fetch", params(archive.parent), SECTION, tmp_path / "official")
    assert not (tmp_path / "official").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[:-300], NO_ARCHIVE),
        (b"<html>please log in</html>", NO_ARCHIVE),
        (
            packed({}, dict.fromkeys(MEMBERS, "elsewhere")),
            r"wanted \['cifar-100-python/test', 'cifar-100-python/train'\] in it",
        ),
        (packed(ALTERED, {}), "cifar-100-python/test: wanted the official test .* more bytes"),
    ],
    ids=["cut short", "foreign", "links", "altered"],
)
def test_an_archive_without_the_official_files_is_refused(archive, content, message):
    archive.write_bytes(content)
    with pytest.raises(InputError, match=message):
        dict(archive_batches(archive, "cifar100"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (DIGITS | {"source_folder": "."}, "unknown key 'source_folder'"),
        ({"source": "digits", "n_test": 20}, "missing key 'seed'"),
        ({"source": "cifar10", "n_test": 20}, "unknown key 'n_test'"),
        (
            {"source": "cifar10", "labels": "coarse"},
            "labels: wanted fine, the only ones of",
        ),
        (
            {"source": "imagenet"},
            "source: wanted one of 'digits', 'cifar10', 'cifar100' or 'folder'",
        ),
        (DIGITS | {"n_test": 1788}, r"n_test: wanted a number in \[10, 1787\], got 1788"),
    ],
)
def test_params_that_do_not_fit_stop_the_stage(stage, tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        stage("vision.fetch", {SECTION: wrong}, SECTION, tmp_path / "official")


def test_neither_the_fetching_nor_the_reading_of_images_needs_torch():
    """Torch is the largest import; and scikit-learn is loaded only to split the digits."""
    code = "import sys, stages.vision.fetch, stages.vision.generate\nprint(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "stages.vision.generate" in done.stdout, done.stderr
    assert not {"torch", "sklearn"} & set(done.stdout.split())


@pytest.fixture(scope="module")
def real_folder(tmp_path_factory) -> Iterator[Path]:
    """The official files of both data sets, rebuilt from the images beside the repository (370
    MB).
    """
    if not REBUILD.exists():
        pytest.skip(f"no real CIFAR images here: {REBUILD} is not there")
    folder = tmp_path_factory.mktemp("real")
    subprocess.run([sys.executable, REBUILD, folder], check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mean", "first_train", "first_test"),
    [
        ("cifar10", [0.4914, 0.4822, 0.4465], [6, 9, 9, 4], [3, 8, 8, 0]),
        ("cifar100", [0.5071, 0.4865, 0.4409], [19, 29, 0, 11], [49, 33, 72, 51]),
    ],
)
def test_the_real_images_are_fetched_and_read(
    stage, real_folder, name, mean, first_train, first_test
):
    out = real_folder / "out" / name
    given = {"source": name, "source_folder": str(real_folder)}
    stage("vision.fetch", {SECTION: given}, SECTION, out)
    arrays = read_cifar(out, name)
    assert len(arrays["test_images"]) == 10_000
    assert arrays["train_labels"][:4].tolist() == first_train
    assert arrays["test_labels"][:4].tolist() == first_test
    means = arrays["train_images"].mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx(mean, abs=5e-5)
