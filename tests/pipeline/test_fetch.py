"""The fetch stage: from an address and, where they lie beside the repository, the real images."""

import dataclasses
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from lib.files.files import InputError
from lib.vision.cifar import OFFICIAL, Batch, read_cifar
from stages.vision.fetch import main

REBUILD = Path(__file__).parents[3] / "shared" / "data" / "rebuild_cifar.py"
FILES = {"data_batch_1": b"first" * 1000, "test_batch": b"third" * 1000}


def official(monkeypatch, **changes) -> None:
    """Change what is known of the published CIFAR-10."""
    monkeypatch.setitem(OFFICIAL, "cifar10", dataclasses.replace(OFFICIAL["cifar10"], **changes))


@pytest.fixture
def archive(tmp_path, monkeypatch) -> Path:
    """A small CIFAR-10 as it lies on a server; the stage runs in a folder of its own."""
    unpacked = tmp_path / OFFICIAL["cifar10"].folder
    unpacked.mkdir()
    for name, content in FILES.items():
        (unpacked / name).write_bytes(content)
    archive = tmp_path / "served" / OFFICIAL["cifar10"].archive
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as file:
        file.add(unpacked, unpacked.name)
    small = [Batch(n, 0, len(c), hashlib.md5(c).hexdigest()) for n, c in FILES.items()]
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    official(
        monkeypatch,
        train=tuple(small[:1]),
        test=tuple(small[1:]),
        sha256=digest,
        n_bytes=archive.stat().st_size,
    )
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("DVC_ROOT", str(here))
    monkeypatch.setenv("NO_PROXY", "*")
    return archive


@pytest.fixture
def address(archive):
    """An address of the small archive, served for the length of a test."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=archive.parent))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/{archive.name}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(**more: str) -> Path:
    """Run the stage with params as for the real data set, and with `more`."""
    Path("params.yaml").write_text(
        yaml.safe_dump({"vision": {"data": {"source": "cifar10", **more}}})
    )
    folder = Path("data/official")
    main("vision.data", folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_archive_comes_once_from_the_first_address_that_has_it(address, monkeypatch):
    official(monkeypatch, urls=(f"{address}.not", address))
    assert contents(fetch()) == FILES
    official(monkeypatch, urls=("http://127.0.0.1:1/",))
    assert contents(fetch()) == FILES


@pytest.mark.parametrize("name", list(OFFICIAL))
def test_every_archive_has_addresses_a_digest_and_a_size(name):
    known = OFFICIAL[name]
    assert all(
        url.startswith("https://") and url.endswith(f"/{known.archive}") for url in known.urls
    )
    assert len(set(known.urls)) == 3
    assert re.fullmatch("[0-9a-f]{64}", known.sha256)
    assert 1.6e8 < known.n_bytes < 1.8e8


def test_an_empty_local_folder_is_named_with_what_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = f"holds cifar-10-batches-py/ or cifar-10-python.tar.gz, got {tmp_path}"
    with pytest.raises(InputError, match=wanted):
        fetch(source_folder=str(tmp_path))


@pytest.fixture(scope="module")
def real_folder(tmp_path_factory) -> Iterator[Path]:
    """The official files of both data sets, rebuilt from the images beside the repository (370
    MB).
    """
    pytest.importorskip(
        "PIL", reason="Pillow is not installed, the real CIFAR files cannot be rebuilt"
    )
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
    real_folder, tmp_path, monkeypatch, name, mean, first_train, first_test
):
    out = real_folder / "out" / name
    monkeypatch.chdir(tmp_path)
    params = {"source": name, "source_folder": str(real_folder)}
    Path("params.yaml").write_text(yaml.safe_dump({"fetch": params}))
    main("fetch", out)
    arrays = read_cifar(out, name)
    assert len(arrays["test_images"]) == 10_000
    assert arrays["train_labels"][:4].tolist() == first_train
    assert arrays["test_labels"][:4].tolist() == first_test
    means = arrays["train_images"].mean(axis=(0, 2, 3)) / 255
    assert means == pytest.approx(mean, abs=5e-5)
