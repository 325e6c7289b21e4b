"""The pages say of every item and claim what its answer and its verdict say."""

import yaml

from tools import readme

ITEMS = yaml.safe_load("""
b.one:
  family: b
  title: Theorem 1
  says: It is so.
  answer: reproduced in part
  size: d = 8 (1000)
  found: It is 2, where 1 to 3 were asked.
  scope: Here.
  limits: In part.
  number: '2'
  stood: set before the first run
  repeated: true
  fragile: true
  unseen: {'9': {answer: not reproduced, number: '5'}}
  figure: plots/b/1.svg
  headline: It is **2**.
  claims: [one, two]
a.two:
  family: a
  title: Ours
  asks: Is it?
  answer: 'no'
  found: It is 7, not 0.5 as asked. A second sentence is on the page.
  stood: set after the first run
  repeated: false
  figure: plots/a/2.svg
  claims: [three]
a.three: {family: a, title: Later, asks: 'Is it?', answer: not tested, claims: []}
""")
CLAIMS = yaml.safe_load("""
one:
  statement: The rank | is two
  kind: paper
  stood: before
  repeated: true
  fragile: true
  unseen: {'9': {holds: false, value: 5.0}}
  bar: mean in [1, 3]
  interval: '[1, 3]'
  over: mean
  better: near
  value: 2.00004
  interval_95: [1.5, 2.5]
  min: 1.0
  max: 3.0
  n: 8
  case: small
  scale: '1e-8'
  'null': {what: chance, value: 9.125, beats: true}
  nulls: {beaten: 1, cases: 3}
  holds: true
two:
  statement: It falls
  kind: ours
  stood: after
  check: true
  repeated: true
  bar: every in (0, 1]
  interval: '(0, 1]'
  over: every
  better: less
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
  stood: paper
  repeated: false
  bar: median in [0, 1]
  interval: '[0, 1]'
  over: median
  better: less
  n: 0
  holds: null
""")
RUNS = {"9": {"one": {"holds": False, "value": 5.0, "min": 4.0, "max": 6.0}}}
COMPARED = "bar: mean 1 to 3; here: mean 2 (small, 1e-8); on seeds +9: mean 5"
SECTIONS = r"""## b: 1 reproduced in part

| item | answer | size | unseen seeds | bar |
|-|-|-|-|-|
| [Theorem 1](#b.one) | reproduced in part | d = 8 (1000) | fragile: the answer is not reproduced on seeds +9 | ours, set before the first run |

### <a id="b.one"></a>Theorem 1

*Reproduced in part.* It is so.

**Found.** It is 2, where 1 to 3 were asked.

**Limits.** In part.

**Scope.** Here.

| claim | number | null | bar | unseen seeds | |
|-|-|-|-|-|-|
| The rank \| is two | mean 2 (1.5 to 2.5; n = 8), small, 1e-8 | 9.12: chance; beaten in 1 of 3 | mean 1 to 3; threshold: ours, set before the first run | fragile: does not hold on seeds +9 (bar: mean 1 to 3; here: mean 2 (small, 1e-8); on seeds +9: mean 5) | holds |
| It falls (ours) (a check, which no run could have failed) | median 1.23e+04 (1 to –; n = 2) | 1: another | every value at most 1; threshold: ours, set after the first run | not run | finding |

## a: 1 no, 1 not tested

| item | answer | size | unseen seeds | bar |
|-|-|-|-|-|
| [Ours](#a.two) | no |  | not repeated: a published run | ours, set after the first run |
| [Later](#a.three) | not tested |  |  |  |

### <a id="a.two"></a>Ours

*No.* Is it?

**Found.** It is 7, not 0.5 as asked. A second sentence is on the page.

| claim | number | null | bar | unseen seeds | |
|-|-|-|-|-|-|
| It was not run | – | – | median at most 1; threshold: from the paper or a theorem | not repeated: a published run | not run |

### <a id="a.three"></a>Later

*Not tested.* Is it?
"""  # noqa: E501


def test_every_item_has_its_claims_with_numbers_and_verdicts():
    assert readme.page(ITEMS, CLAIMS, RUNS) == readme.PAGE + SECTIONS


def test_the_results_are_the_items_with_a_headline_their_marks_and_the_numbers_that_decide():
    assert readme.results(ITEMS, CLAIMS, RUNS) == (
        "- It is **2**. [Figure](plots/b/1.svg), [claims](docs/claims.md#b.one). *Size: d = 8 "
        "(1000). Unseen seeds: fragile: the answer is not reproduced on seeds +9. Bar: ours, set "
        "before the first run.*\n\n"
        "| the claim that decides, that turned, or that fails | bar | here | seeds +9 |\n"
        "|-|-|-|-|\n"
        "| [The rank \\| is two](docs/claims.md#b.one) | mean 1 to 3 | mean 2 (small, 1e-8) | "
        "mean 5: missed |\n"
        "| [It falls](docs/claims.md#b.one) | every value at most 1 | "
        "median 1.23e+04, worst not known: missed | – |"
    )


def test_an_answer_that_stays_has_the_number_here_beside_those_of_other_seeds():
    kept = ITEMS["b.one"] | {"fragile": False}
    runs = RUNS | {"20": {"one": {"holds": True, "value": 1.5, "min": 1.0, "max": 2.0}}}
    holding = CLAIMS | {"two": CLAIMS["two"] | {"holds": True}}
    last = readme.results({"b.one": kept}, holding, runs).splitlines()[-1]
    assert last.endswith("| mean 1 to 3 | mean 2 (small, 1e-8) | mean 5: missed | mean 1.5 |")
    published = holding | {"one": CLAIMS["one"] | {"repeated": False}}
    last = readme.results({"b.one": kept | {"repeated": False}}, published, runs)
    assert last.endswith("| mean 2 (small, 1e-8) | not repeated | not repeated |")


def test_a_claim_of_a_published_run_has_no_number_on_other_seeds_whatever_its_item_has():
    claims = CLAIMS | {"two": CLAIMS["two"] | {"repeated": False}}
    old = {"two": {"holds": False, "value": 12345.6, "min": 1.0, "max": None}}
    last = readme.results(ITEMS, claims, {"9": RUNS["9"] | old}).splitlines()[-1]
    assert last.endswith("median 1.23e+04, worst not known: missed | not repeated |")


def test_what_does_not_hold_is_listed_apart_for_papers_and_for_ours():
    assert readme.unsure(ITEMS, CLAIMS) == (
        f"{readme.OF_PAPERS}\n\n- None.\n\n"
        "Questions of ours whose answer is no:\n\n"
        "- It is 7, not 0.5 as asked. [More](docs/claims.md#a.two). "
        "*Unseen seeds: not repeated: a published run.*"
    )


def test_the_score_counts_answers_and_says_what_unseen_seeds_say():
    assert readme.score(ITEMS) == (
        "The papers' items: 1 reproduced in part. Our own questions: 1 no, 1 not tested. "
        "On unseen seeds 1 answers were tried again (1 run): 0 were the same, 1 turned. "
        "1 rest on published runs, which were not repeated."
    )
    before = readme.score({"a.two": ITEMS["a.two"]})
    assert before.endswith("No run on unseen seeds has been made of this state.")


def test_what_turned_on_unseen_seeds_is_listed_with_its_answers():
    assert readme.fragile(ITEMS) == (
        "| item | here | seeds +9 |\n|-|-|-|\n"
        "| [Theorem 1](docs/claims.md#b.one) | reproduced in part | not reproduced |"
    )
    kept = ITEMS["b.one"] | {"fragile": False}
    assert readme.fragile({"b.one": kept}) == "No answer turned."
    said = readme.fragile({"a.two": ITEMS["a.two"]})
    assert said == "No run on unseen seeds has been made of this state."


def test_a_part_is_set_and_the_rest_stays():
    text = "before\n<!-- a: made by make readme -->\nold\n<!-- end of a -->\nafter\n"
    wanted = "before\n<!-- a: made by make readme -->\nnew \\1 $x\n<!-- end of a -->\nafter\n"
    assert readme.replaced(text, "a", r"new \1 $x") == wanted
