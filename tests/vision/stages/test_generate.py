"""The images of a data set, one by one: the digits against a table of them, CIFAR against made
files.
"""

import gzip

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.model_selection import train_test_split

from lib.files.files import InputError
from lib.vision.digits import digits_file
from tests.stages.made import files
from tests.vision.cifar_made import pickled, published

SECTION = "vision.any.data"
N_DIGITS, N_TEST, SEED = 1797, 411, 7
DIGITS = {"source": "digits", "n_test": N_TEST, "seed": SEED}


@pytest.fixture
def generate(stage, tmp_path):
    """Run the stage on what is in the folder `official`; the images that it wrote."""

    def run(**params):
        images = tmp_path / "images"
        stage("vision.generate", {SECTION: params}, SECTION, tmp_path / "official", images)
        return load_file(images / "images.safetensors")

    (tmp_path / "official").mkdir()
    return run


def digits(row: int, column: int, value: int) -> bytes:
    """A file as scikit-learn's, of white pictures and all classes, but for one number."""
    table = np.zeros((N_DIGITS, 65), int)
    table[:, 64] = np.arange(N_DIGITS) % 10
    table[row, column] = value
    return gzip.compress("".join(",".join(map(str, row)) + "\n" for row in table).encode())


def check_part(found, part, images, labels):
    pictures, numbers = found.pop(f"{part}_images"), found.pop(f"{part}_labels")
    assert (pictures.dtype, numbers.dtype) == (torch.uint8, torch.int64)
    assert pictures.tolist() == images
    assert numbers.tolist() == labels


def test_the_digits_are_split_class_by_class_by_the_seed(generate, tmp_path):
    """The digits of a made table of as many, in which no two rows are equal."""
    draw = np.random.default_rng(0)
    table = draw.integers(0, 17, (N_DIGITS, 65))
    table[:, 64] = draw.choice(10, N_DIGITS, p=np.arange(1, 11) / 55)
    lines = "".join(",".join(map(str, row)) + "\n" for row in table)
    (tmp_path / "official" / "digits.csv.gz").write_bytes(gzip.compress(lines.encode()))
    found = generate(**DIGITS)
    places = np.arange(N_DIGITS)
    parts = train_test_split(places, test_size=N_TEST, random_state=SEED, stratify=table[:, 64])
    for part, rows in zip(("train", "test"), parts, strict=True):
        pixels = [[[table[row, 8 * i : 8 * i + 8].tolist() for i in range(8)]] for row in rows]
        check_part(found, part, pixels, table[rows, 64].tolist())
    assert found == {}


@pytest.mark.parametrize(
    ("source", "labels", "key"),
    [
        ("cifar10", "fine", b"labels"),
        ("cifar100", "fine", b"fine_labels"),
        ("cifar100", "coarse", b"coarse_labels"),
    ],
)
def test_cifar_keeps_its_own_parts_and_order(generate, monkeypatch, tmp_path, source, labels, key):
    """Images are rows of red, then of green, then of blue; no other labels are read."""
    train = {"cifar10": ["data_batch_2", "data_batch_1"], "cifar100": ["train"]}[source]
    draw = np.random.default_rng(1)
    contents, held = {}, {"train": [], "test": []}
    for n, name in enumerate([*train, "test_batch"], 2):
        pixels = draw.integers(0, 256, (n, 3072), np.uint8)
        numbers = draw.integers(0, 10, n).tolist()
        contents[name] = pickled(pixels, numbers, key)
        rows = zip(pixels, numbers, strict=True)
        held["train" if name in train else "test"] += rows
    published(monkeypatch, tmp_path / "official", source, contents)
    found = generate(source=source, labels=labels)
    for part, rows in held.items():
        colours = [
            [row[1024 * c : 1024 * (c + 1)].reshape(32, 32) for c in range(3)] for row, _ in rows
        ]
        check_part(found, part, np.array(colours).tolist(), [label for _, label in rows])
    assert found == {}


@pytest.mark.parametrize(
    ("params", "content"),
    [
        ({"source": "cifar10"}, None),
        (DIGITS, None),
        (DIGITS, digits_file().read_bytes()[:-100]),
        (DIGITS, gzip.compress(b"1,2\n3,4\n")),
        (DIGITS, gzip.compress(b"a,b\n")),
        (DIGITS, digits(5, 63, 17)),
        (DIGITS, digits(5, 64, 10)),
        (DIGITS, digits(5, 0, -1)),
    ],
    ids=[
        "no batches",
        "no digits",
        "cut short",
        "another table",
        "a table of text",
        "a pixel of 17",
        "a class of 10",
        "a pixel of -1",
    ],
)
def test_what_is_not_the_official_file_stops_the_stage(generate, tmp_path, params, content):
    if content is not None:
        (tmp_path / "official" / "digits.csv.gz").write_bytes(content)
    with pytest.raises(
        InputError, match=r"official/(data_batch_1: wanted the official|digits.csv.gz: wanted )"
    ):
        generate(**params)
    assert "images" not in files(tmp_path)
