"""The CIFAR reader on small batches in the official format, and on pickles that mean harm."""

import dataclasses
import hashlib
import io
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from lib.vision.cifar import (
    OFFICIAL,
    Batch,
    Official,
    archive_batches,
    folder_batches,
    parse_batch,
    read_cifar,
)


def short(text: bytes) -> bytes:
    """A string of Python 2."""
    return b"U" + bytes([len(text)]) + text


def official_pickle(images: np.ndarray, labels: list[int], key: bytes = b"labels") -> bytes:
    """A batch as Python 2 and an old numpy pickled it (protocol 2), for up to 255 images."""
    n = len(images)
    return b"".join(
        [
            b"\x80\x02}q\x01(" + short(b"batch_label") + short(b"training batch 1 of 5"),
            short(key) + b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e",
            short(b"data") + b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03",
            b"K\x00\x85U\x01b\x87Rq\x04(K\x01K"
            + bytes([n])
            + b"M\x00\x0c\x86cnumpy\ndtype\nq\x05U\x02u1K\x00K\x01\x87R",
            b"q\x06(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
            + (n * 3072).to_bytes(4, "little"),
            images.tobytes()
            + b"tb"
            + short(b"filenames")
            + b"]("
            + short(b"leptodactylus_pentadactylus_s_000004.png"),
            b"eu.",
        ]
    )


def pictures(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, 32, 32), dtype=np.uint8)


IMAGES = [pictures(3, 0), pictures(3, 1), pictures(2, 2)]
LABELS = [[9, 0, 3], [1, 1, 5], [2, 7]]
FILES = dict(
    zip(
        ("data_batch_1", "data_batch_2", "test_batch"),
        map(official_pickle, IMAGES, LABELS),
        strict=True,
    )
)


@pytest.fixture
def official(monkeypatch) -> Official:
    """CIFAR-10 as if it had been published with eight images."""
    batches = [
        Batch(name, len(labels), len(FILES[name]), hashlib.md5(FILES[name]).hexdigest())
        for name, labels in zip(FILES, LABELS, strict=True)
    ]
    small = dataclasses.replace(
        OFFICIAL["cifar10"], train=tuple(batches[:2]), test=tuple(batches[2:])
    )
    monkeypatch.setitem(OFFICIAL, "cifar10", small)
    return small


@pytest.fixture
def folder(official, tmp_path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def parse(content: bytes, n_images: int = 3):
    return parse_batch(content, OFFICIAL["cifar10"], n_images, "here")


def test_the_official_sizes_are_those_of_the_papers():
    for official in OFFICIAL.values():
        assert sum(batch.n_images for batch in official.train) == 50_000
        assert sum(batch.n_images for batch in official.test) == 10_000


def test_a_missing_file_is_named(folder):
    (folder / "test_batch").unlink()
    with pytest.raises(ValueError, match=r"wanted the official test_batch, got: .*No such file"):
        read_cifar(folder, "cifar10")


@pytest.mark.parametrize("length", [0, 1, 1000, -1])
def test_a_truncated_file_is_told_by_its_length(folder, length):
    content = FILES["data_batch_2"][:length]
    (folder / "data_batch_2").write_bytes(content)
    with pytest.raises(
        ValueError, match=rf"data_batch_2 \(\d+ bytes, MD5 .* got {len(content)} bytes: cut short"
    ):
        read_cifar(folder, "cifar10")


def test_a_single_altered_byte_is_noticed(folder):
    content = bytearray(FILES["data_batch_1"])
    content[1000] ^= 1
    (folder / "data_batch_1").write_bytes(content)
    with pytest.raises(ValueError, match=r"got as many bytes with MD5 .*: an altered file"):
        read_cifar(folder, "cifar10")


@pytest.mark.parametrize(
    "content",
    [
        official_pickle(IMAGES[0], [9, 0, 10]),
        official_pickle(IMAGES[0], [9, 0]),
        official_pickle(IMAGES[0], [9, 0, 3], b"labelz"),
        official_pickle(IMAGES[2], [9, 0, 3]),
        FILES["data_batch_1"].replace(b"U\x02u1", b"U\x02i1"),
        FILES["data_batch_1"].replace(b"\x89T", b"\x88T"),
        FILES["data_batch_1"].replace(short(b"data"), short(b"dada")),
        pickle.dumps({"data": [0], "labels": [0]}),
        pickle.dumps([1, 2]),
        b"not a pickle",
        b"",
        b"\x80\x09",
    ],
)
def test_what_is_not_a_batch_is_refused(content):
    with pytest.raises(
        ValueError, match="here: wanted a pickled batch of 3 images with labels, got: "
    ):
        parse(content)


class Reduced:
    """Pickles as a call of a function with arguments."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def hostile(mark: Path) -> dict[str, bytes]:
    """Pickles that would create the file `mark`, if the names in them were looked up."""
    import os

    code = f"open({str(mark)!r}, 'w').close()"
    command = f"touch {mark}".encode()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
    return {
        **{
            f"os.system, protocol {p}": pickle.dumps(Reduced(os.system, f"touch {mark}"), p)
            for p in range(pickle.HIGHEST_PROTOCOL + 1)
        },
        "builtins.eval": pickle.dumps(Reduced(eval, code)),
        "builtins.exec of Python 2": b"c__builtin__\neval\n(U"
        + bytes([len(code)])
        + code.encode()
        + b"tR.",
        "nested": pickle.dumps(
            {b"data": [(Reduced(getattr, Reduced(__import__, "os"), "system"),)]}
        ),
        "inst": b"(S'" + command + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\nS'" + command + b"'\no.",
        "a numpy function": b"cnumpy\nsave\n(S'" + str(mark).encode() + b"'\nK\x00tR.",
        "a numpy method": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93("
        + array
        + short(bytes(mark))
        + b"tR.",
        "within the array's state": array + b"(" + b"cos\nsystem\n(S'" + command + b"'\ntRtb.",
        "a persistent id": b"Pos.system\n.",
        "an extension": b"\x82\x01.",
    }


@pytest.mark.parametrize("name", hostile(Path("mark")))
def test_a_hostile_pickle_is_refused_and_not_run(name, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(ValueError, match="here: wanted a pickled batch"):
        parse(hostile(mark)[name])
    assert not mark.exists()


def test_a_forbidden_name_is_named():
    with pytest.raises(ValueError, match=r"UnpicklingError: the forbidden name builtins\.eval"):
        parse(pickle.dumps(Reduced(eval, "1")))


def test_what_numpys_names_become_stays_what_it_was():
    with pytest.raises(ValueError, match="wanted a pickled batch"):
        parse(b"cnumpy\nndarray\nN}U\x08__init__NsI1\n\x86b.")
    assert parse(FILES["data_batch_1"])[1].tolist() == LABELS[0]


def archive_of(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)
    return path


@pytest.fixture
def archive(official, tmp_path) -> Path:
    members = {f"{official.folder}/{name}": content for name, content in FILES.items()}
    extra = {f"{official.folder}/readme.html": b"<html>", "../evil": b"evil", "/evil": b"evil"}
    return archive_of(tmp_path / "archive.tar.gz", {**extra, **members}, {"link": "/etc/passwd"})


def test_of_the_archive_only_the_official_files_are_unpacked(archive):
    assert dict(archive_batches(archive, "cifar10")) == FILES


def test_of_the_folder_only_the_official_files_are_read(folder):
    (folder / "evil").write_bytes(b"evil")
    assert dict(folder_batches(folder, "cifar10")) == FILES


def test_a_truncated_or_foreign_archive_is_refused(archive):
    content = archive.read_bytes()
    foreign = [
        content[:-1000],
        content[: len(content) // 2],
        content[:5],
        b"",
        b"<html>please log in</html>",
    ]
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 255
    for broken in [*foreign, bytes(flipped)]:
        archive.write_bytes(broken)
        with pytest.raises(ValueError, match=r"archive\.tar\.gz: "):
            dict(archive_batches(archive, "cifar10"))


def test_an_archive_without_a_file_or_with_a_link_in_its_place_is_refused(official, tmp_path):
    members = {f"{official.folder}/{name}": FILES[name] for name in ("data_batch_1", "test_batch")}
    links = {f"{official.folder}/data_batch_2": "data_batch_1"}
    archive = archive_of(tmp_path / "archive.tar.gz", members, links)
    with pytest.raises(ValueError, match=r"wanted \['cifar-10-batches-py/data_batch_2'\] in it"):
        dict(archive_batches(archive, "cifar10"))


def test_an_altered_file_in_an_archive_is_refused(official, tmp_path):
    members = {f"{official.folder}/{name}": content for name, content in FILES.items()}
    members[f"{official.folder}/data_batch_2"] = b"x" * 10_000_000
    archive = archive_of(tmp_path / "archive.tar.gz", members)
    with pytest.raises(
        ValueError, match="cifar-10-batches-py/data_batch_2: wanted the official data_batch_2"
    ):
        dict(archive_batches(archive, "cifar10"))
