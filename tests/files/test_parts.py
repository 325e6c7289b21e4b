"""A stage reads, of another stage's section or table, what it uses; the rest is not its to
check.
"""

from dataclasses import dataclass

import pytest

from lib.files.files import InputError
from lib.files.params import Count, read_cases, read_params


@dataclass(frozen=True)
class Part:
    batch_size: Count


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "params.yaml"
    path.write_text(
        "train:\n  batch_size: 3\n  other: -1\nwrong:\n  batch_size: 0\nlacking:\n  other: "
        "1\nnone: 1\n"
    )
    return path


def test_other_keys_are_left_out_of_a_part_and_else_refused(file):
    assert read_params("train", Part, file, part=True) == Part(3)
    with pytest.raises(InputError, match="train: unknown key 'other'"):
        read_params("train", Part, file)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("wrong", r"wrong.batch_size: wanted a number in \[1, 1e9\], got 0"),
        ("lacking", "lacking: missing key 'batch_size'"),
        ("none", "none: wanted a section of keys, got 1"),
    ],
)
def test_the_keys_of_a_part_are_checked(file, section, message):
    with pytest.raises(InputError, match=message):
        read_params(section, Part, file, part=True)


def test_columns_of_other_readers_are_left_out_of_a_part_of_a_table_and_all_others_refused(
    tmp_path,
):
    (tmp_path / "cases").write_text("other\tbatch_size\nx\t3\n\t4\n")
    assert read_cases(tmp_path / "cases", Part, columns=("batch_size", "other")) == (
        Part(3),
        Part(4),
    )
    for columns in (None, ("batch_size", "others")):
        with pytest.raises(
            InputError, match=r"cases: unknown column 'other', wanted \['batch_size'"
        ):
            read_cases(tmp_path / "cases", Part, columns=columns)


@dataclass(frozen=True)
class Case:
    name: str
    batch_size: Count
    rates: tuple[float, ...] = ()


def test_what_a_line_leaves_out_is_that_of_the_section_as_far_as_the_schema_knows_it(tmp_path):
    """A line's own value, a list too, wins; a column that is nowhere in the table is shared by
    all.
    """
    shared = {"batch_size": 7, "rates": [0.5, 0.25], "device": "cpu"}
    (tmp_path / "cases").write_text("name\trates\na\t\nb\t[1, 2]\nc\t[]\n")
    found = read_cases(tmp_path / "cases", Case, shared=shared)
    assert found == (Case("a", 7, (0.5, 0.25)), Case("b", 7, (1, 2)), Case("c", 7, ()))
    (tmp_path / "cases").write_text("name\tbatch_size\na\t\nb\t0\n")
    with pytest.raises(
        InputError, match=r"cases: line 3, column batch_size: wanted a number in \[1, 1e9\], got 0"
    ):
        read_cases(tmp_path / "cases", Case, shared=shared)
    with pytest.raises(InputError, match="cases: line 2: missing key 'batch_size'"):
        read_cases(tmp_path / "cases", Case)
