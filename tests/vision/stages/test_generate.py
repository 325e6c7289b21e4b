"""The images of a data set, one by one: the digits against a table of them, CIFAR against made
files.
"""

import dataclasses
import gzip
import hashlib
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.model_selection import train_test_split

from lib.files.files import InputError
from lib.vision.cifar import OFFICIAL, Batch
from tests.stages.made import files

SECTION = "vision.any.data"
N_DIGITS, N_TEST, SEED = 1797, 411, 7
DIGITS = {"source": "digits", "n_test": N_TEST, "seed": SEED}


@pytest.fixture
def digits(tmp_path):
    """A made table of as many digits, on which no two rows are equal; the folder that holds it."""
    draw = np.random.default_rng(0)
    table = draw.integers(0, 17, (N_DIGITS, 65))
    table[:, 64] = draw.choice(10, N_DIGITS, p=np.arange(1, 11) / 55)
    lines = "".join(",".join(map(str, row)) + "\n" for row in table)
    (tmp_path / "official").mkdir()
    (tmp_path / "official" / "digits.csv.gz").write_bytes(gzip.compress(lines.encode()))
    return table


def test_the_digits_are_split_class_by_class_by_the_seed(stage, digits, tmp_path, capsys):
    stage(
        "vision.generate",
        {SECTION: DIGITS},
        SECTION,
        tmp_path / "official",
        tmp_path / "out" / "images",
    )
    assert files(tmp_path) == ["official/digits.csv.gz", "out/images", "params.yaml"]
    found = load_file(tmp_path / "out" / "images")
    places = np.arange(N_DIGITS)
    parts = train_test_split(places, test_size=N_TEST, random_state=SEED, stratify=digits[:, 64])
    for part, rows in zip(("train", "test"), parts, strict=True):
        images, labels = found.pop(f"{part}_images"), found.pop(f"{part}_labels")
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        assert images.shape == (len(rows), 1, 8, 8)
        assert images.tolist() == [
            [[digits[row, 8 * i : 8 * i + 8].tolist() for i in range(8)]] for row in rows
        ]
        assert labels.tolist() == digits[rows, 64].tolist()
    assert found == {}
    assert capsys.readouterr().out == f"{N_DIGITS - N_TEST} training and {N_TEST} test images\n"


@pytest.fixture
def published(tmp_path, monkeypatch):
    """CIFAR-10 and CIFAR-100 as if they had been published with a few images; what each part of
    them holds.
    """
    draw = np.random.default_rng(1)
    held = {}
    for source, key, counts in [
        ("cifar10", b"labels", {"data_batch_2": 3, "data_batch_1": 2, "test_batch": 4}),
        ("cifar100", b"fine_labels", {"train": 5, "test": 2}),
    ]:
        (tmp_path / source).mkdir()
        batches, held[source] = [], {"train": [], "test": []}
        for name, n in counts.items():
            pixels, labels = (
                draw.integers(0, 256, (n, 3072), np.uint8),
                draw.integers(0, 10, n).tolist(),
            )
            batch = {b"data": pixels, key: labels, b"coarse_labels": [0] * n}
            # as Python 2 and an old numpy wrote them
            content = pickle.dumps(batch, 3).replace(b"numpy._core", b"numpy.core")
            content = content.replace(b"X\x02\x00\x00\x00u1", b"U\x02u1")
            (tmp_path / source / name).write_bytes(content)
            batches.append(Batch(name, n, len(content), hashlib.md5(content).hexdigest()))
            held[source]["test" if "test" in name else "train"].append((pixels, labels))
        small = dataclasses.replace(
            OFFICIAL[source], train=tuple(batches[:-1]), test=tuple(batches[-1:])
        )
        monkeypatch.setitem(OFFICIAL, source, small)
    return held


@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_cifar_keeps_its_own_parts_and_order(stage, published, tmp_path, capsys, source):
    stage(
        "vision.generate",
        {SECTION: {"source": source}},
        SECTION,
        tmp_path / source,
        tmp_path / "images",
    )
    found = load_file(tmp_path / "images")
    for part, batches in published[source].items():
        pixels = np.concatenate([pixels for pixels, _ in batches])
        images, labels = found.pop(f"{part}_images"), found.pop(f"{part}_labels")
        assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
        # rows of red, then of green, then of blue
        colours = [[row[1024 * c : 1024 * (c + 1)] for c in range(3)] for row in pixels]
        assert images.tolist() == np.array(colours).reshape(-1, 3, 32, 32).tolist()
        assert labels.tolist() == [label for _, labels in batches for label in labels]
    assert found == {}
    numbers = {"cifar10": (5, 4), "cifar100": (5, 2)}[source]
    assert capsys.readouterr().out == "{} training and {} test images\n".format(*numbers)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (DIGITS, r"official/digits.csv.gz: wanted scikit-learn's digits, got"),
        ({"source": "cifar10"}, r"official/data_batch_1: wanted the official data_batch_1, got"),
    ],
)
def test_what_is_not_there_stops_the_stage(stage, tmp_path, params, message):
    with pytest.raises(InputError, match=message):
        stage(
            "vision.generate",
            {SECTION: params},
            SECTION,
            tmp_path / "official",
            tmp_path / "images",
        )
    assert files(tmp_path) == ["params.yaml"]
