"""The ways to train that params name, and the name of what differs in one."""

import pytest

from lib.files.files import InputError
from lib.vision.variants import Variant, chosen_cases, chosen_variants


@pytest.fixture
def table(tmp_path):
    file = tmp_path / "cases.tsv"
    lines = ["name\tinit_scale\tlabels\toptimizer", "slow\t0.25\t\tsgd", "other\t\tpermuted\t"]
    file.write_text("\n".join([*lines, "as usual\t2\t\tadam"]) + "\n")
    return file


def test_cases_come_in_the_order_of_their_names_in_the_params(table):
    slow = Variant(0.25, optimizer="sgd", name="slow")
    other = Variant(labels="permuted", name="other")
    assert chosen_cases(table, ("other", "slow")) == [other, slow]
    assert chosen_cases(table, ()) == []


def test_a_case_without_an_init_scale_comes_at_every_one_behind_the_plain_trainings(table):
    found = chosen_variants(table, ("other", "slow"), (1, 2))
    said = [(one.init_scale, one.control) for one in found]
    permuted = [(scale, "labels=permuted") for scale in (1, 2)]
    assert said == [(1, "none"), (2, "none"), *permuted, (0.25, "optimizer=sgd")]


def test_two_variants_that_are_one_are_refused(table):
    wanted = r"controls: wanted variants that differ, got \['init_scale=2', 'init_scale=2'\]"
    with pytest.raises(InputError, match=wanted):
        chosen_variants(table, ("as usual",), (2,))


def test_a_name_that_no_case_has_is_refused_with_those_that_there_are(table):
    wanted = r"controls: wanted some of \['slow', 'other', 'as usual'\], .*cases.tsv; got \('a',\)"
    with pytest.raises(InputError, match=wanted):
        chosen_cases(table, ("a",))


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        (Variant(1.0, name="x"), "none"),
        (Variant(1.0, learning_rate=0.30000000000000004), "learning_rate=0.3"),
    ],
)
def test_what_differs_is_named_by_its_field_and_value(variant, said):
    assert variant.control == said


def test_controls_without_an_init_scale_are_refused(table):
    wanted = r"init_scales: wanted one for the controls \['other'\], got none"
    with pytest.raises(InputError, match=wanted):
        chosen_variants(table, ["other"], [])
