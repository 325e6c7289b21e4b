"""The sizes of a data set of patterns have bounds, and what makes a sample is what its task
takes.
"""

import pytest

from lib.files.files import InputError
from lib.files.params import parse
from lib.low_rank_sparse.patterns import PatternSizes, PatternTask

SIZES = {
    "d_model": 12,
    "n_patterns": 6,
    "seq_len": 9,
    "n_relevant": 4,
    "n_confusion": 1,
    "noise": 0.4,
}
COUNTS = {"n_train": 13, "n_test": 8}


def test_a_task_takes_all_but_the_numbers_of_samples():
    found = parse(COUNTS | SIZES, PatternSizes, "data")
    assert found.task() == PatternTask(**SIZES)
    assert found.task((2, 1)) == PatternTask(**SIZES, patterns_of_classes=(2, 1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_train": 0}, r"data.n_train: wanted a number in \[1, 1e6\], got 0"),
        ({"d_model": 16385}, r"data.d_model: wanted a number in \[1, 16384\], got 16385"),
        ({"n_confusion": -1}, r"data.n_confusion: wanted a number in \[0, 16384\], got -1"),
        ({"noise": 101}, r"data.noise: wanted a number in \[0, 100\], got 101"),
        ({"seq_len": 9.5}, "data.seq_len: wanted a whole number, got 9.5"),
    ],
)
def test_sizes_out_of_bounds_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        parse(COUNTS | SIZES | change, PatternSizes, "data")
