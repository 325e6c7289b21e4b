"""The tables of the README say of every claim what its verdict says."""

from tools import readme

CLAIMS = {
    "one": {
        "family": "b",
        "statement": "The rank | is two",
        "where": "theorem 1",
        "source": "[P]",
        "kind": "theorem",
        "value": 2.00004,
        "spread": 0.1234,
        "n": 3,
        "over": "mean",
        "bar": "[1, 3]",
        "state": "holds",
        "figure": "plots/b/1.svg",
        "nulls": {"weak": "beats", "strong": "does not beat", "far": "not run"},
    },
    "two": {
        "family": "a",
        "statement": "It falls",
        "where": "figure 2",
        "source": "[C]",
        "kind": "our bar",
        "value": 12345.6,
        "spread": None,
        "n": 1,
        "over": "every",
        "bar": "(0, 1]",
        "state": "fails",
        "figure": "plots/a/2.svg",
        "expected": "fails, because it is so",
    },
    "three": {
        "family": "a",
        "statement": "It was not run",
        "where": "figure 3",
        "source": "[G]",
        "kind": "control",
        "over": "median",
        "bar": "[0, 1]",
        "state": "not run",
        "figure": "plots/a/3.svg",
    },
    "four": {
        "family": "a",
        "statement": "It fails",
        "where": "figure 4",
        "source": "[G]",
        "kind": "control",
        "value": 0.5,
        "spread": 0.0,
        "scale": "1e-8",
        "n": 2,
        "over": "median",
        "bar": "[0, 1]",
        "state": "fails",
        "figure": "plots/a/4.svg",
    },
}
TABLES = r"""## b: 1 of 1 claims hold

| claim | kind | value ± spread (n) | bar | |
|---|---|---|---|---|
| The rank \| is two (theorem 1) [P]; beats weak; does not beat strong | theorem | 2 ± 0.12 (3) | mean in [1, 3] | [holds](../plots/b/1.svg) |

## a: 0 of 3 claims hold; 2 fail, 1 of them as expected; 1 not run

| claim | kind | value ± spread (n) | bar | |
|---|---|---|---|---|
| It falls (figure 2) [C] *fails, because it is so* | our bar | 1.235e+04 (1) | every in (0, 1] | [fails, as expected](../plots/a/2.svg) |
| It was not run (figure 3) [G] | control | – | median in [0, 1] | [not run](../plots/a/3.svg) |
| It fails (figure 4) [G] | control | 0.5 ± 0 at 1e-8 (2) | median in [0, 1] | [fails](../plots/a/4.svg) |
"""  # noqa: E501


def test_every_claim_is_a_row_with_its_value_and_verdict():
    assert readme.page(CLAIMS) == readme.PAGE + TABLES


def test_the_headlines_are_the_claims_that_say_so_in_their_order():
    chosen = {
        "one": CLAIMS["one"],
        "two": CLAIMS["two"] | {"headline": 2},
        "four": {**CLAIMS["four"], "headline": 1},
    }
    assert readme.headlines(chosen) == (
        "- It fails: **0.5 ± 0 at 1e-8 (2)**, median in [0, 1]; [fails](plots/a/4.svg) (control).\n"
        "- It falls: **1.235e+04 (1)**, every in (0, 1]; [fails](plots/a/2.svg) (our bar)."
    )


def test_a_part_is_set_and_the_rest_stays():
    text = "before\n<!-- a: made by make readme -->\nold\n<!-- end of a -->\nafter\n"
    wanted = "before\n<!-- a: made by make readme -->\nnew \\1 $x\n<!-- end of a -->\nafter\n"
    assert readme.replaced(text, "a", r"new \1 $x") == wanted
