"""A table of cases is read exactly, or refused by its line and column."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from lib.files.files import InputError
from lib.files.params import Count, Name, Positive, Seeds, read_cases, read_params


@dataclass(frozen=True)
class Case:
    name: Name
    rate: Positive
    sizes: tuple[Count, ...] = (1,)
    law: Literal["flat", "steep"] = "flat"
    cap: float | None = None


CASES = """\
# cases of a toy
name\trate\tsizes\tlaw

one\t1e-4\t[2, 3]\tsteep
two\t5\t\t
# the last
three\t.5\t[]\tflat
"""
READ = (Case("one", 1e-4, (2, 3), "steep"), Case("two", 5.0), Case("three", 0.5, (), "flat"))


@pytest.fixture
def cases(tmp_path):
    """Reads a text as a table of cases."""

    def cases(text, schema=Case, **how):
        file = tmp_path / "cases.tsv"
        file.write_bytes(text.encode())
        return read_cases(file, schema, **how)

    return cases


@pytest.mark.parametrize(
    "written",
    [
        CASES,
        CASES.replace("\n", "\r\n"),
        f"\ufeff{CASES}",
        CASES.removesuffix("\n").replace("# cases of a toy\n", "\ufeff"),
    ],
    ids=["as it is", "Windows line ends", "a byte order mark", "one before the header, no end"],
)
def test_a_table_is_read_as_an_editor_or_a_spreadsheet_writes_it(cases, written):
    assert cases(written) == READ


def test_the_order_of_columns_means_nothing_and_one_with_a_default_can_be_left_out(cases):
    assert cases("cap\trate\tname\n\t1\tone\n2\t1\ttwo") == (
        Case("one", 1.0),
        Case("two", 1.0, cap=2.0),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("one\t1e-4", "one\tfast", "line 4, column rate: wanted a number, got 'fast'"),
        ("two\t5", "two\t", "line 5: missing key 'rate', got ['name']"),
        ("[2, 3]", "[2, 0]", "line 4, column sizes[1]: wanted a number in [1, 1e9], got 0"),
        ("[2, 3]", "[2, 3", "line 4, column sizes: wanted a value as in params.yaml, got '[2, 3'"),
        ("one", "a/b", "line 4, column name: wanted a name of at most 100 letters"),
        ("\tsteep", "", "line 4: wanted 4 cells, one for each column, got 3"),
        ("\tsteep", "\tsteep\t", "line 4: wanted 4 cells, one for each column, got 5"),
        ("three", "one", "line 7: wanted a case of its own, got 'one' again"),
        ("sizes", "size", "unknown column 'size', wanted ['cap', 'law', 'name', 'rate', 'sizes']"),
        ("\trate", "\tname", "wanted a line of distinct column names and a line for each case"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_line_and_column(cases, old, new, message):
    assert CASES.count(old) == 1
    with pytest.raises(InputError, match=re.escape(f"cases.tsv: {message}")):
        cases(CASES.replace(old, new))


@pytest.mark.parametrize("text", ["", "# nothing\n", "name\trate\n", "name\trate\n\n# none\n"])
def test_a_table_without_a_case_is_refused(cases, text):
    with pytest.raises(InputError, match="wanted a line of distinct column names and a line for"):
        cases(text)


@pytest.mark.parametrize(("content", "why"), [(None, "No such file"), (b"\xff\xfe\x00", "decode")])
def test_a_table_that_is_missing_or_no_text_is_refused(tmp_path, content, why):
    if content:
        (tmp_path / "cases.tsv").write_bytes(content)
    with pytest.raises(InputError, match=rf"cases\.tsv: wanted a readable table of .*{why}"):
        read_cases(tmp_path / "cases.tsv", Case)


@dataclass(frozen=True)
class Head:
    width: Count
    gain: float = 1.0


def test_cases_without_a_name_are_told_apart_by_all_that_they_are(cases):
    assert cases("width\tgain\n1\t2\n1\t3\n", Head) == (Head(1, 2.0), Head(1, 3.0))
    with pytest.raises(InputError, match=r"line 3: wanted a case of its own, got 'Head\(width=1"):
        cases("width\tgain\n1\t2\n1\t2.0\n", Head)


def test_columns_of_other_readers_are_left_out_and_all_others_refused(cases):
    text = "other\twidth\nx\t3\n\t4\n"
    assert cases(text, Head, columns=("width", "other")) == (Head(3), Head(4))
    for columns in (None, ("width", "others")):
        with pytest.raises(InputError, match=r"cases\.tsv: unknown column 'other', wanted \['"):
            cases(text, Head, columns=columns)


@dataclass(frozen=True)
class Named:
    name: str
    width: Count
    rates: tuple[float, ...] = ()


SHARED = {"width": 7, "rates": [0.5, 0.25], "device": "cpu"}


def test_what_a_line_leaves_out_is_that_of_the_section_as_far_as_the_schema_knows_it(cases):
    """A line's own value, a list too, wins."""
    found = cases("name\trates\na\t\nb\t[1, 2]\nc\t[]\n", Named, shared=SHARED)
    assert found == (Named("a", 7, (0.5, 0.25)), Named("b", 7, (1, 2)), Named("c", 7, ()))


@dataclass(frozen=True)
class Sown(Seeds):
    width: Count


def test_seeds_of_a_table_are_shifted_once(cases, tmp_path, monkeypatch):
    """Seeds that a table shares with a section were shifted when the section was read."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("seeds_from: 70\ns: {n_seeds: 2, first_seed: 4, width: 1}\n")
    shared = vars(read_params("s", Sown))
    found = cases("width\tfirst_seed\n2\t\n3\t9\n", Sown, shared=shared)
    assert [case.seeds for case in found] == [(74, 75), (79, 80)]
    [alone] = cases("width\tn_seeds\n2\t2\n", Sown)
    assert alone.seeds == (70, 71)
