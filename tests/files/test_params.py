"""A section of parameters is read exactly, or refused by section, key, what was wanted and what was
got.
"""

import math
import re
from dataclasses import dataclass
from typing import Literal

import pytest

from lib.files.files import InputError
from lib.files.params import Count, Fraction, Interval, Positive, Seed, Seeds, read_params


@dataclass(frozen=True)
class Head:
    width: Count
    gain: float = 1.0


@dataclass(frozen=True)
class Toy:
    rate: Positive
    steps: Count
    share: Fraction
    seeds: tuple[Seed, ...]
    rule: Literal["adam", "sgd"]
    fast: bool
    name: str
    head: Head
    heads: tuple[Head, ...]
    widths: dict[str, Head]
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit > self.rate:
            raise ValueError(f"limit: wanted at most the rate {self.rate}, got {self.limit}")


GOOD = """\
toy:
  train:
    rate: 1e-4
    steps: 10
    share: 1
    seeds:
      - 3
      - 1
    rule: adam
    fast: true
    name: a toy
    head:
      width: 2
    heads:
      - width: 1
        gain: -.5
    widths:
      any: {width: 3}
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text as the params file of a toy."""

    def read(text, section="toy.train", schema=Toy, **how):
        file = tmp_path / "params.yaml"
        file.write_text(text, encoding="utf-8")
        return read_params(section, schema, file, **how)

    return read


def test_a_section_is_read_as_it_is_written(read):
    assert read(GOOD) == Toy(
        rate=1e-4,
        steps=10,
        share=1.0,
        seeds=(3, 1),
        rule="adam",
        fast=True,
        name="a toy",
        head=Head(2, 1.0),
        heads=(Head(1, -0.5),),
        widths={"any": Head(3, 1.0)},
        limit=None,
    )


# What is written in place of what, and what is then said.
REFUSED = r"""
steps: 10  →  steps: '10'        →  .steps: wanted a whole number, got '10'
steps: 10  →  steps: 10.0        →  .steps: wanted a whole number, got 10.0
steps: 10  →  steps: true        →  .steps: wanted a whole number, got True
steps: 10  →  steps: 0           →  .steps: wanted a number in [1, 1e9], got 0
steps: 10  →  steps: 1000000001  →  .steps: wanted a number in [1, 1e9], got 1000000001
rate: 1e-4  →  rate: '1e-4'  →  .rate: wanted a number, got '1e-4'
rate: 1e-4  →  rate: 0       →  .rate: wanted a number in (0, 1e9], got 0
rate: 1e-4  →  rate: .nan    →  .rate: wanted a finite number, got nan
rate: 1e-4  →  rate: {huge}  →  .rate: wanted a finite number, got 1000
share: 1  →  share: 1.5  →  .share: wanted a number in [0, 1], got 1.5
- 1  →  - 4294967296  →  .seeds[1]: wanted a number in [0, 4294967295], got 4294967296
- 1  →  - 3           →  .seeds: wanted distinct values, got [3, 3]
seeds:\n      - 3\n      - 1  →  seeds: 3  →  .seeds: wanted a list, got 3
rule: adam  →  rule: Adam  →  .rule: wanted one of 'adam' or 'sgd', got 'Adam'
fast: true  →  fast: 1  →  .fast: wanted true or false, got 1
name: a toy  →  name: 7           →  .name: wanted a text, got 7
name: a toy  →  name: 2024-01-01  →  .name: wanted a text, a number, or true or false
gain: -.5  →  gain: 2024-01-01  →  .heads[0].gain: wanted a text, a number, or true or false
gain: -.5  →  loss: 1  →  .heads[0]: unknown key 'loss', wanted ['gain', 'width']
{width: 3}  →  {wide: 3}   →  .widths.any: unknown key 'wide', wanted ['gain', 'width']
{width: 3}  →  {width: 0}  →  .widths.any.width: wanted a number in [1, 1e9], got 0
any: {width: 3}  →  - 3            →  .widths: wanted a section of keys, got [3]
any: {width: 3}  →  7: {width: 3}  →  .widths: wanted keys that are texts, got the key 7
\n    fast: true  →  →  : missing key 'fast', got ['head', 'heads',
head:\n      width: 2  →  head: 2  →  .head: wanted a section of keys, got 2
fast: true  →  fast: true\n    limit: 2  →  : limit: wanted at most the rate 0.0001, got 2.0
fast: true  →  fast: true\n    limit: a  →  .limit: wanted a number, got 'a'
fast: true  →  fast: true\n    fast: true  →  line 11: found duplicate key "fast"
  train:  →  tain:  →  wanted the section toy.train, got ['tain'] at toy
toy:  →  toi:  →  wanted the section toy.train, got ['toi'] at the top level
"""


@pytest.mark.parametrize("line", REFUSED.strip().splitlines())
def test_what_does_not_fit_is_refused_by_its_key(read, line):
    line = line.replace(r"\n", "\n").replace("{huge}", f"1{'0' * 400}")
    old, new, message = (part.strip(" ") for part in line.split("→"))
    assert GOOD.count(old) == 1
    said = f"toy.train{message}" if message[0] in ".:" else message
    with pytest.raises(InputError, match=r"params\.yaml: .*" + re.escape(said)):
        read(GOOD.replace(old, new))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "limit: wanted at most the rate"),
        ({"gain: -.5": "gain: x"}, r"heads\[0\]\.gain: wanted a number"),
        ({"gain: -.5": "gain: x", "{width": "{wide"}, r"widths\.any: unknown key 'wide'"),
    ],
)
def test_of_several_faults_an_unknown_key_is_said_first_and_a_relation_last(read, changes, said):
    broken = GOOD.replace("rate: 1e-4", "limit: 2\n    rate: 1e-4")
    for old, new in changes.items():
        broken = broken.replace(old, new)
    with pytest.raises(InputError, match=said):
        read(broken)


@dataclass(frozen=True)
class Number:
    x: float


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-4", 1e-4), ("1E5", 1e5), (".5", 0.5), ("-1.", -1.0), ("+2e+3", 2e3), ("3", 3.0)],
)
def test_numbers_are_numbers_however_they_are_written(read, text, value):
    found = read(f"n:\n  x: {text}", "n", Number).x
    assert found == value
    assert type(found) is float


@pytest.mark.parametrize("text", ["1e", "1e-4x", "1.2.3", "e5", "1 e5", "--1", "."])
def test_what_only_looks_like_a_number_is_text(read, text):
    with pytest.raises(InputError, match=r"n\.x: wanted a number, got '"):
        read(f"n:\n  x: {text}", "n", Number)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("[0, 1]", (0, 1, 0.5), (-1e-300, 1.0000001, math.nan)),
        ("(0, 1]", (1e-300, 1), (0, 2)),
        ("[1, 1e6)", (1, 999_999), (0, 1e6)),
        ("(0, inf)", (1e-9, 1e300, 10**400), (0, math.inf)),
    ],
)
def test_an_interval_holds_what_mathematics_says(text, inside, outside):
    assert all(value in Interval(text) for value in inside)
    assert not any(value in Interval(text) for value in outside)


@pytest.mark.parametrize(
    "text", ["1, 2", "[2, 1]", "(1, 1)", "[1, 1)", "[nan, 1]", "[1, 2, 3]", "[a, b]", "[inf, inf]"]
)
def test_what_is_no_range_is_no_interval(text):
    with pytest.raises(ValueError, match=r"wanted an interval such as '\[1, 2\)', got '"):
        Interval(text)


@dataclass(frozen=True)
class Sown(Seeds):
    width: Count


@pytest.mark.parametrize(
    ("text", "seeds"), [("n_seeds: 3", (0, 1, 2)), ("n_seeds: 2, first_seed: 7", (7, 8))]
)
def test_seeds_are_a_count_from_the_first(read, text, seeds):
    assert read(f"s: {{{text}, width: 2}}", "s", Sown).seeds == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n_seeds: 0", r"s\.n_seeds: wanted a number in \[1, 100000\], got 0"),
        ("n_seeds: 100001", r"s\.n_seeds: wanted a number in \[1, 100000\], got 100001"),
        ("n_seeds: 1, first_seed: 4000000001", r"s\.first_seed: wanted a number in \[0, 4e9\]"),
    ],
)
def test_seeds_out_of_range_are_refused(read, text, message):
    with pytest.raises(InputError, match=message):
        read(f"s: {{{text}, width: 2}}", "s", Sown)


@dataclass(frozen=True)
class Drawn(Seeds):
    """Seeds, and others by themselves and further in."""

    figure_seed: Seed
    inner: dict[str, int]
    more: Sown
    other_seed: Seed | None = None


def test_one_number_shifts_every_seed_of_a_section(read):
    more = "more: {n_seeds: 1, first_seed: 5, width: 2}"
    text = f"s: {{n_seeds: 2, figure_seed: 3, inner: {{figure_seed: 3}}, {more}}}"
    found = read(f"seeds_from: 70\n{text}", "s", Drawn)
    assert (found.seeds, found.figure_seed, found.other_seed) == ((70, 71), 73, None)
    assert (found.more.seeds, found.more.width, found.inner) == ((75,), 2, {"figure_seed": 3})
    assert read(text, "s", Drawn).seeds == (0, 1)


@pytest.mark.parametrize("value", ["-1", "1.5", "true", "many", "1000000000"])
def test_a_shift_that_is_none_is_refused(read, value):
    with pytest.raises(InputError, match=r"seeds_from: wanted a whole number in \[0, 1e\+08\]"):
        read(f"seeds_from: {value}\ns: {{n_seeds: 3, width: 2}}", "s", Sown)


def test_another_stage_reads_the_keys_that_it_knows_of_a_section(read):
    text = "train:\n  width: 3\n  other: -1\n"
    assert read(text, "train", Head, part=True) == Head(3)
    with pytest.raises(InputError, match="train: unknown key 'other'"):
        read(text, "train", Head)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{width: 0}", r"train\.width: wanted a number in \[1, 1e9\], got 0"),
        ("1", "train: wanted a section of keys, got 1"),
    ],
)
def test_the_keys_of_a_part_are_checked(read, text, message):
    with pytest.raises(InputError, match=message):
        read(f"train: {text}", "train", Head, part=True)
