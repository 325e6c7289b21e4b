"""A law of sequences by its name."""

from lib.decision_lists.lists import Law


def test_a_law_has_one_name_however_its_number_is_written():
    law = Law.named("frequent heads 100.0")
    assert (law.kind, law.value, law.name) == ("frequent heads", 100, "frequent heads 100")
    assert law == Law.named(law.name)
