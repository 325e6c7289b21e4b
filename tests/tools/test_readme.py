"""The pages say of every item and claim what its answer and its verdict say."""

import yaml

from tools import readme

ITEMS = yaml.safe_load("""
b.one:
  family: b
  title: Theorem 1
  says: It is so.
  answer: reproduced with limits
  limits: In part.
  figure: plots/b/1.svg
  headline: It is **2**.
  claims: [one, two]
a.two:
  family: a
  title: Ours
  asks: Is it?
  answer: 'no'
  figure: plots/a/2.svg
  claims: [three]
a.three: {family: a, title: Later, asks: 'Is it?', answer: not tested, claims: []}
""")
CLAIMS = yaml.safe_load("""
one:
  statement: The rank | is two
  kind: paper
  bar: mean in [1, 3]
  value: 2.00004
  interval_95: [1.5, 2.5]
  min: 1.0
  max: 3.0
  n: 8
  case: small
  scale: '1e-8'
  'null': {what: chance, value: 9.125, beats: true}
  holds: true
two:
  statement: It falls
  kind: ours
  bar: every in (0, 1]
  value: 12345.6
  interval_95: [null, null]
  min: 1.0
  max: null
  n: 2
  'null': {what: another, value: 1.0, beats: null}
  holds: false
  outcome: finding
three:
  statement: It was not run
  kind: ours
  bar: median in [0, 1]
  n: 0
  holds: null
""")
SECTIONS = r"""## b: 1 reproduced with limits

**Theorem 1**: *reproduced with limits*. It is so. Limits: In part.

| claim | number | null | bar | |
|-|-|-|-|-|
| The rank \| is two | 2 (1.5 to 2.5; n = 8), small, 1e-8 | 9.12: chance, beaten | mean in [1, 3] | holds |
| It falls (ours) | 1.23e+04 (1 to –; n = 2) | 1: another | every in (0, 1] | finding |

## a: 1 no, 1 not tested

**Ours**: *no*. Is it?

| claim | number | null | bar | |
|-|-|-|-|-|
| It was not run | – | – | median in [0, 1] | not run |

**Later**: *not tested*. Is it?
"""  # noqa: E501


def test_every_item_has_its_claims_with_numbers_and_verdicts():
    assert readme.page(ITEMS, CLAIMS) == readme.PAGE + SECTIONS


def test_the_results_are_the_items_with_a_headline():
    assert readme.results(ITEMS) == "- It is **2**. [figure](plots/b/1.svg)"


def test_what_does_not_hold_is_listed():
    assert readme.unsure(ITEMS) == "- Is it? *No.*"


def test_a_part_is_set_and_the_rest_stays():
    text = "before\n<!-- a: made by make readme -->\nold\n<!-- end of a -->\nafter\n"
    wanted = "before\n<!-- a: made by make readme -->\nnew \\1 $x\n<!-- end of a -->\nafter\n"
    assert readme.replaced(text, "a", r"new \1 $x") == wanted
