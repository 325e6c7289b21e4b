"""Cases of a table by the names that params give, and the name of what differs in one."""

from dataclasses import dataclass

import pytest

from lib.files.files import InputError
from lib.vision.cases import chosen_cases, differences


@dataclass(frozen=True)
class Case:
    name: str
    rate: float = 0.5
    kind: str = "plain"
    n: int = 1


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "cases.tsv"
    file.write_text("name\trate\tkind\nslow\t0.25\t\nother\t\tall but one\nas usual\t0.5\tplain\n")
    return file


def test_cases_come_in_the_order_of_their_names_in_the_params(table):
    assert chosen_cases(table, Case, ("other", "slow"), "key") == [
        Case("other", kind="all but one"),
        Case("slow", 0.25),
    ]
    assert chosen_cases(table, Case, (), "key") == []


def test_a_name_that_no_case_has_is_refused_with_those_that_there_are(table):
    with pytest.raises(
        InputError,
        match=r"key: wanted some of \['slow', 'other', 'as usual'\], .*cases.tsv; got \('a',\)",
    ):
        chosen_cases(table, Case, ("a",), "key")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (Case("x"), "none"),
        (Case("x", rate=0.30000000000000004), "rate=0.3"),
        (Case("x", 2.0, "all but one", 7), "rate=2,kind=all-but-one,n=7"),
    ],
)
def test_what_differs_is_named_by_its_field_and_value(case, said):
    assert differences(case, Case("x")) == said
