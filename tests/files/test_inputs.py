"""A data set that is not whole, or larger than what it says, is refused by its name before anything
is unpacked.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from lib.files import inputs
from lib.files.files import InputError
from lib.files.inputs import (
    read_as,
    read_header,
    read_json,
    read_sums,
    verify,
    with_digest,
    write_sums,
)

TENSORS = {
    "X": np.arange(6.0).reshape(2, 3),
    "labels": np.array([1, 2], np.int64),
    "none": np.zeros((0, 4)),
}


def refused(path: Path, match: str) -> None:
    with pytest.raises(InputError, match=match) as found:
        verify(path)
    assert str(found.value).startswith(str(path))
    assert "\n" not in str(found.value)


def file_of(header: Any, content: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content


def one(shape: Any = (2,), dtype: str = "F64", places: Any = (0, 16)) -> dict[str, Any]:
    return {"X": {"dtype": dtype, "shape": shape, "data_offsets": places}}


@pytest.fixture
def dataset(tmp_path) -> Path:
    path = tmp_path / "data.safetensors"
    path.write_bytes(with_digest(save(TENSORS)))
    return path


def test_a_data_set_with_its_digest_is_read_as_one_without(dataset):
    verify(dataset)
    found = load_file(dataset)
    assert sorted(found) == sorted(TENSORS)
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(found[name], tensor)
    assert {name: entry.shape for name, entry in read_header(dataset).items()} == {
        name: tensor.shape for name, tensor in TENSORS.items()
    }


def test_the_same_tensors_give_the_same_bytes():
    assert with_digest(save(TENSORS)) == with_digest(save(dict(reversed(TENSORS.items()))))


def test_a_flipped_bit_is_refused_wherever_it_is(dataset):
    data = dataset.read_bytes()
    for place in range(0, 8 * len(data), 13):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        dataset.write_bytes(flipped)
        refused(dataset, "wanted|does not fit")


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100, -1])
def test_a_part_of_a_data_set_is_refused(length, dataset):
    dataset.write_bytes(dataset.read_bytes()[:length])
    refused(dataset, "wanted")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PAR1" * 100, "a header of 3553974868629406032 bytes in 400"),
        (file_of(b"[" * 100_000), "wanted a safetensors file, got: "),
        (file_of([]), "wanted a safetensors file, got: "),
        (file_of({"__metadata__": 3}), "wanted a safetensors file, got: metadata"),
        (file_of(one(places=(0, 10**15)), bytes(16)), "X: 1000000000000000 bytes for"),
        (file_of(one(shape=(1.0,), places=(0, 8)), bytes(16)), "no whole numbers"),
        (file_of(one() | {"Y": one()["X"]}, bytes(16)), "got one at byte 0 behind byte 16"),
        (file_of(one(places=(8, 24)), bytes(24)), "got one at byte 8 behind byte 0"),
        (file_of(one(), bytes(24)), "wanted .* bytes, as its header says, got"),
        (save(TENSORS), "wanted a data set with its digest, as `generate` writes it"),
        (
            file_of({"__metadata__": {"sha256": "0" * 64}, **one()}, bytes(16)),
            "does not fit the digest in its header",
        ),
    ],
)
def test_what_is_no_data_set_is_refused_in_one_line(data, said, dataset):
    dataset.write_bytes(data)
    refused(dataset, said)


def test_a_header_is_not_read_when_it_is_too_long(dataset, monkeypatch):
    dataset.write_bytes(file_of(b" " * 1_000_000))
    monkeypatch.setattr(inputs, "MOST_HEADER", 1000)
    refused(dataset, "a header of 1000000 bytes")


def test_a_folder_is_verified_file_by_file(tmp_path, dataset):
    verify(tmp_path)
    dataset.write_bytes(save(TENSORS))
    with pytest.raises(InputError, match=r"data.safetensors: wanted a data set with its digest"):
        verify(tmp_path)
    (tmp_path / "config.json").write_text("{}")  # a checkpoint, whose format has no digests
    verify(tmp_path)


def test_a_folder_with_digests_holds_what_they_say(tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(name)
    write_sums(tmp_path)
    assert sorted(read_sums(tmp_path)) == ["a.txt", "b.txt"]
    verify(tmp_path)
    verify(tmp_path / "b.txt")
    (tmp_path / "b.txt").write_text("c.txt")
    verify(tmp_path / "a.txt")
    for path in (tmp_path, tmp_path / "b.txt"):
        with pytest.raises(InputError, match=r"b.txt: the content does not fit its SHA256SUMS"):
            verify(path)
    (tmp_path / "b.txt").unlink()
    refused(tmp_path, "wanted the file b.txt, which its SHA256SUMS lists")


def test_digests_are_lines_that_end(tmp_path):
    for text, said in (
        ("half", "wanted lines that end"),
        ("0  ../a\n", "wanted 'digest  name' lines, got '0  ../a'"),
    ):
        (tmp_path / "SHA256SUMS").write_text(text)
        with pytest.raises(InputError, match=said):
            read_sums(tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    with pytest.raises(InputError, match=r"wanted a data set \(no SHA256SUMS is there\)"):
        read_sums(tmp_path)


@pytest.mark.parametrize("text", [b"{", b"\xff", b"[" * 100_000])
def test_json_that_is_none_is_refused_in_one_line(text, tmp_path):
    path = tmp_path / "measures.json"
    path.write_bytes(text)
    with pytest.raises(InputError, match=r"measures.json: wanted a JSON file, got: ") as found:
        read_json(path)
    assert "\n" not in str(found.value)


def test_json_is_not_read_when_it_is_too_long(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "MOST_JSON", 10)
    (tmp_path / "long.json").write_text("[" + "1," * 10 + "1]")
    with pytest.raises(
        InputError, match=r"long.json: wanted a JSON file of at most 10 bytes, got 23"
    ):
        read_json(tmp_path / "long.json")


@pytest.fixture
def other(tmp_path):
    """A data set that is no toy task."""
    file = tmp_path / "other.safetensors"
    file.write_bytes(with_digest(save({"b": np.zeros(2), "a": np.zeros(1)})))
    return file


def test_a_data_set_without_the_tensors_that_are_wanted_is_said_by_what_it_holds(other):
    said = r"other\.safetensors: wanted any, with tensors \['a', 'c'\], got \['a', 'b'\]"
    with pytest.raises(InputError, match=said):
        read_header(other, "any", ("a", "c"))
    assert set(read_header(other, "any", ("a",))) == {"a", "b"}


def test_what_a_reader_does_not_find_is_said_by_what_is_there(other, tmp_path):
    assert read_as("a name", lambda path: path.name, other) == "other.safetensors"
    with pytest.raises(InputError, match=r"wanted a toy task, got tensors \['a', 'b'\]"):
        read_as("a toy task", lambda path: load_file(path)["X"], other)
    with pytest.raises(InputError, match=r"none\.safetensors: wanted a toy task, got: .*No such"):
        read_as("a toy task", load_file, tmp_path / "none.safetensors")


def test_what_a_reader_refuses_in_its_own_words_is_kept(other):
    def refuse(file):
        raise InputError(f"{file}: kept as it is")

    with pytest.raises(InputError, match=r"other\.safetensors: kept as it is"):
        read_as("a name", refuse, other)
