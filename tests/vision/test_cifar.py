"""The CIFAR reader on what is not the official files, and on pickles that mean harm."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from lib.vision.cifar import OFFICIAL, parse_batch, read_cifar
from tests.vision.cifar_made import pickled, published

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 3072), np.uint8)
BATCH = pickled(PIXELS, [9, 0, 3])


def parse(content: bytes):
    return parse_batch(content, b"labels", 3, "here")


def test_the_official_sizes_are_those_of_the_papers():
    for official in OFFICIAL.values():
        assert sum(batch.n_images for batch in official.train) == 50_000
        assert sum(batch.n_images for batch in official.test) == 10_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (BATCH[:1000], r"data_batch_1 \(\d+ bytes, MD5 .* got 1000 bytes: cut short"),
        (BATCH[:1000] + b"more" + BATCH[1004:], "got as many bytes with MD5 .*: an altered file"),
    ],
)
def test_another_file_is_told_by_its_length_and_its_digest(monkeypatch, tmp_path, content, message):
    published(monkeypatch, tmp_path, "cifar10", {"data_batch_1": BATCH, "test_batch": BATCH})
    (tmp_path / "data_batch_1").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_cifar(tmp_path, "cifar10")


@pytest.mark.parametrize(
    "content",
    [pickled(PIXELS, [9, 0, 3], b"labelz"), pickled(PIXELS[:2], [9, 0]), b"not a pickle"],
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
    touch = Reduced(os.system, f"touch {mark}")
    return {
        "os.system, protocol 0": pickle.dumps(touch, 0),
        "os.system, last protocol": pickle.dumps(touch, pickle.HIGHEST_PROTOCOL),
        "builtins.eval": pickle.dumps(Reduced(eval, f"open({str(mark)!r}, 'w').close()")),
        "a numpy function": b"cnumpy\nsave\n(S'" + str(mark).encode() + b"'\nK\x00tR.",
        "a numpy method": b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93.",
    }


@pytest.mark.parametrize("name", hostile(Path("mark")))
def test_a_hostile_pickle_is_refused_and_not_run(name, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(
        ValueError, match=r"batch .* got: UnpicklingError: the forbidden name \w+\."
    ):
        parse(hostile(mark)[name])
    assert not mark.exists()
