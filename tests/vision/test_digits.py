"""The digits come whole, and split class by class."""

import gzip

import pytest

from lib.vision.digits import digits_file, read_digits


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("official")
    (folder / "digits.csv.gz").write_bytes(digits_file().read_bytes())
    return folder


@pytest.fixture(scope="module")
def digits(folder):
    return read_digits(folder, 360, 0)


def test_the_digits_are_1797_small_grey_images_of_ten_classes(digits):
    assert digits["train_images"].shape == (1437, 1, 8, 8)
    assert digits["test_images"].shape == (360, 1, 8, 8)
    assert digits["train_labels"].shape == (1437,)
    assert digits["test_labels"].shape == (360,)
    assert set(digits["train_labels"]) == set(digits["test_labels"]) == set(range(10))
    assert 0 == digits["train_images"].min() < digits["train_images"].max() == 16


@pytest.mark.filterwarnings("ignore:loadtxt. input contained no data")
@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"no gzip",
        digits_file().read_bytes()[:-100],
        gzip.compress(b"1,2\n3,4\n"),
        gzip.compress(b"a,b\n"),
    ],
    ids=["no file", "empty", "no gzip", "cut short", "another table", "a table of text"],
)
def test_a_file_that_is_not_the_digits_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "digits.csv.gz").write_bytes(content)
    with pytest.raises(ValueError, match=r"digits\.csv\.gz: wanted "):
        read_digits(tmp_path, 360, 0)
