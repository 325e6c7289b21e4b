"""Parameters are read exactly, or refused with a message that names section, key, what was wanted
and what was got.
"""

import ast
import builtins
import math
import re
import shutil
import string
import types
from collections import Counter
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import torch
import yaml
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from lib.files.files import InputError
from lib.files.params import (
    Count,
    Fraction,
    Interval,
    Name,
    Positive,
    Seed,
    Seeds,
    load_yaml,
    parse,
    read_cases,
    read_params,
)
from lib.files.runs import open_runs
from lib.training.devices import Device, generator
from lib.vision.images import Images
from lib.vision.variants import chosen_variants
from stages.vision import train
from stages.vision.train import Train

ROOT = Path(__file__).parents[2]


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

    def read(text, section="toy.train", schema=Toy):
        file = tmp_path / "params.yaml"
        file.write_text(text, encoding="utf-8")
        return read_params(section, schema, file)

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


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps: 10", "steps: ten", "toy.train.steps: wanted a whole number, got 'ten'"),
        ("steps: 10", "steps: '10'", "toy.train.steps: wanted a whole number, got '10'"),
        ("steps: 10", "steps: 10.0", "toy.train.steps: wanted a whole number, got 10.0"),
        ("steps: 10", "steps: true", "toy.train.steps: wanted a whole number, got True"),
        ("steps: 10", "steps:", "toy.train.steps: wanted a whole number, got None"),
        ("steps: 10", "steps: 0", "toy.train.steps: wanted a number in [1, 1e9], got 0"),
        ("steps: 10", "steps: 1000000001", "wanted a number in [1, 1e9], got 1000000001"),
        ("rate: 1e-4", "rate: '1e-4'", "toy.train.rate: wanted a number, got '1e-4'"),
        ("rate: 1e-4", "rate: false", "toy.train.rate: wanted a number, got False"),
        ("rate: 1e-4", "rate: 0", "toy.train.rate: wanted a number in (0, 1e9], got 0"),
        ("rate: 1e-4", "rate: .nan", "toy.train.rate: wanted a finite number, got nan"),
        ("rate: 1e-4", "rate: -.inf", "toy.train.rate: wanted a finite number, got -inf"),
        ("rate: 1e-4", f"rate: 1{'0' * 400}", "toy.train.rate: wanted a finite number, got 1000"),
        ("share: 1", "share: 1.5", "toy.train.share: wanted a number in [0, 1], got 1.5"),
        ("- 1", "- -1", "toy.train.seeds[1]: wanted a number in [0, 4294967295], got -1"),
        ("- 1", "- 3", "toy.train.seeds: wanted distinct values, got [3, 3]"),
        ("rule: adam", "rule: Adam", "toy.train.rule: wanted one of 'adam' or 'sgd', got 'Adam'"),
        ("fast: true", "fast: 1", "toy.train.fast: wanted true or false, got 1"),
        ("name: a toy", "name: 7", "toy.train.name: wanted a text, got 7"),
        ("width: 2", "width: 0", "toy.train.head.width: wanted a number in [1, 1e9], got 0"),
        ("gain: -.5", "gain: x", "toy.train.heads[0].gain: wanted a number, got 'x'"),
        (
            "gain: -.5",
            "loss: 1",
            "toy.train.heads[0]: unknown key 'loss', wanted ['gain', 'width']",
        ),
        (
            "{width: 3}",
            "{wide: 3}",
            "toy.train.widths.any: unknown key 'wide', wanted ['gain', 'width']",
        ),
        (
            "{width: 3}",
            "{width: 0}",
            "toy.train.widths.any.width: wanted a number in [1, 1e9], got 0",
        ),
        ("{width: 3}", "3", "toy.train.widths.any: wanted a section of keys, got 3"),
        ("any: {width: 3}", "- 3", "toy.train.widths: wanted a section of keys, got [3]"),
        (
            "any: {width: 3}",
            "7: {width: 3}",
            "toy.train.widths: wanted keys that are texts, got the key 7",
        ),
        ("    fast: true\n", "", "toy.train: missing key 'fast', got ['head', 'heads', "),
        (
            "fast: true",
            "fast: true\n    7: 1",
            "toy.train: wanted keys that are texts, got the key 7",
        ),
        ("head:\n      width: 2", "head: 2", "toy.train.head: wanted a section of keys, got 2"),
        (
            "fast: true",
            "fast: true\n    limit: 2",
            "limit: wanted at most the rate 0.0001, got 2.0",
        ),
        ("fast: true", "fast: true\n    limit: a", "toy.train.limit: wanted a number, got 'a'"),
        ("  train:", "  tain:", "wanted the section toy.train, got ['tain'] at toy"),
        ("toy:", "toi:", "wanted the section toy.train, got ['toi'] at the top level"),
        ("fast: true", "fast: true\n    fast: true", 'line 11: found duplicate key "fast"'),
    ],
)
def test_what_does_not_fit_is_refused_in_so_many_words(read, old, new, message):
    assert GOOD.count(old) == 1
    with pytest.raises(InputError, match=r"params\.yaml: .*" + re.escape(message)):
        read(GOOD.replace(old, new))


def test_of_several_faults_an_unknown_key_is_said_first_and_a_relation_last(read):
    broken = GOOD.replace("rate: 1e-4", "limit: 2\n    rate: 1e-4")
    with pytest.raises(InputError, match="limit: wanted at most the rate"):
        read(broken)
    with pytest.raises(InputError, match=r"toy\.train\.heads\[0\]\.gain: wanted a number"):
        read(broken.replace("gain: -.5", "gain: x"))
    with pytest.raises(InputError, match=r"toy\.train\.widths\.any: unknown key 'wide'"):
        read(broken.replace("gain: -.5", "gain: x").replace("{width: 3}", "{wide: 3}"))


@dataclass(frozen=True)
class Nested:
    inner: Toy
    last: Count


def test_a_relation_of_an_inner_section_is_said_after_a_key_that_is_missing_further_on(read):
    inner = GOOD.replace("  train:\n", "  train:\n   inner:\n").replace(
        "rate: 1e-4", "limit: 2\n    rate: 1e-4"
    )
    with pytest.raises(InputError, match=r"toy\.train: missing key 'last', got "):
        read(inner, schema=Nested)
    with pytest.raises(InputError, match=r"toy\.train\.inner: limit: wanted at most the rate"):
        read(inner + "   last: 1\n", schema=Nested)


def test_a_list_in_place_of_a_section_and_a_number_in_place_of_a_list_are_refused(read):
    with pytest.raises(InputError, match=r"toy: wanted a section of keys, got \[1, 2\]"):
        read("toy:\n  - 1\n  - 2", "toy")
    with pytest.raises(InputError, match=r"toy\.train\.seeds: wanted a list, got 3"):
        read(re.sub(r"seeds:\n +- 3\n +- 1", "seeds: 3", GOOD))


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


# PyYAML alone reads YAML 1.1, where 010 is eight, 1:30 is ninety, and "on" is true.
@pytest.mark.parametrize(
    "text",
    [
        "010",
        "08",
        "0o10",
        "0x1F",
        "1:30",
        "1_000",
        "on",
        "no",
        "yes",
        "true",
        "False",
        "1e-4",
        "1E5",
        "-7",
    ],
)
def test_no_number_or_truth_is_read_otherwise_than_dvc_reads_it(tmp_path, text):
    serialize = pytest.importorskip("dvc.utils.serialize")
    file = tmp_path / "params.yaml"
    file.write_text(f"x: {text}")
    found = load_yaml(file)["x"]
    assert repr(found) in (repr(serialize.load_yaml(str(file))["x"]), repr(text))


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"\xff\xfe\x00",
        b"x: [1",
        b"x: 1\n---\ny: 2",
        b"x: {{ steps }}",
        b"x: 2024-13-45",
        b"x: !!int ten",
        b"x: !!bool maybe",
        b"x: " + b"9" * 5000,
        b"x: " + b"[" * 800,
    ],
)
def test_a_file_that_is_no_yaml_is_refused(tmp_path, content):
    file = tmp_path / "params.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=r"params\.yaml: wanted a readable YAML file, got: "):
        load_yaml(file)


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
    "text",
    [
        "",
        "1, 2",
        "[2, 1]",
        "{1, 2}",
        "(1, 1)",
        "[1, 1)",
        "[nan, 1]",
        "[1, 2, 3]",
        "[1]",
        "[a, b]",
        "[inf, inf]",
    ],
)
def test_what_is_no_range_is_no_interval(text):
    with pytest.raises(
        ValueError, match=re.escape(f"wanted an interval such as '[1, 2)', got {text!r}")
    ):
        Interval(text)


@dataclass(frozen=True)
class Sown(Seeds):
    width: Count


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("n_seeds: 3", (0, 1, 2)), ("n_seeds: 2, first_seed: 7", (7, 8)), ("n_seeds: 1", (0,))],
)
def test_seeds_are_a_count_from_the_first(read, text, seeds):
    found = read(f"s: {{{text}, width: 2}}", "s", Sown)
    assert found.seeds == seeds
    assert found.width == 2


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


def test_seeds_of_a_table_are_shifted_once(tmp_path, monkeypatch):
    """Those that a table shares with a section were shifted as the section was read."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("seeds_from: 70\ns: {n_seeds: 2, first_seed: 4, width: 1}\n")
    Path("cases.tsv").write_text("width\tfirst_seed\n2\t\n3\t9\n")
    section = read_params("s", Sown)
    cases = read_cases(Path("cases.tsv"), Sown, shared=vars(section))
    assert [case.seeds for case in cases] == [(74, 75), (79, 80)]
    [alone] = read_cases(table(tmp_path), Sown)
    assert alone.seeds == (70, 71)


def table(folder):
    """A table whose cases do not say the first seed."""
    file = folder / "alone.tsv"
    file.write_text("width\tn_seeds\n2\t2\n")
    return file


def test_the_largest_seed_that_is_accepted_is_a_seed():
    assert Seeds(n_seeds=100_000, first_seed=4_000_000_000).seeds[-1] in Seed.__metadata__[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n_seeds: 0", r"s\.n_seeds: wanted a number in \[1, 100000\], got 0"),
        ("n_seeds: 100001", r"s\.n_seeds: wanted a number in \[1, 100000\], got 100001"),
        ("n_seeds: 1, first_seed: -1", r"s\.first_seed: wanted a number in \[0, 4e9\], got -1"),
        ("seeds: 3", r"s: unknown key 'seeds', wanted \['first_seed', 'n_seeds', 'width'\]"),
        ("first_seed: 3", "s: missing key 'n_seeds'"),
    ],
)
def test_seeds_that_are_none_are_refused(read, text, message):
    with pytest.raises(InputError, match=message):
        read(f"s: {{{text}, width: 2}}", "s", Sown)


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


@pytest.fixture
def cases(tmp_path):
    """Reads a text, or bytes, as a table of cases."""

    def cases(text, schema=Case):
        file = tmp_path / "cases.tsv"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_cases(file, schema)

    return cases


READ = (Case("one", 1e-4, (2, 3), "steep"), Case("two", 5.0), Case("three", 0.5, (), "flat"))


def test_a_table_of_cases_is_read_as_it_is_written(cases):
    assert cases(CASES) == READ
    assert [type(case.rate) for case in cases(CASES)] == [float] * 3


@pytest.mark.parametrize(
    "written",
    [
        CASES.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + CASES.encode(),
        b"\xef\xbb\xbf" + CASES.removeprefix("# cases of a toy\n").encode(),
        CASES.removesuffix("\n").encode(),
    ],
    ids=[
        "Windows line ends",
        "a byte order mark",
        "a byte order mark before the header",
        "no last line end",
    ],
)
def test_a_table_may_come_from_a_spreadsheet(cases, written):
    assert cases(written) == READ


def test_the_order_of_columns_means_nothing_and_one_with_a_default_can_be_left_out(cases):
    assert cases("sizes\tname\trate\n[4]\tone\t1\n") == (Case("one", 1.0, (4,)),)
    assert cases("cap\trate\tname\n\t1\tone\n2\t1\ttwo") == (
        Case("one", 1.0),
        Case("two", 1.0, cap=2.0),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("one\t1e-4", "one\tfast", "cases.tsv: line 4, column rate: wanted a number, got 'fast'"),
        (
            "two\t5",
            "two\t-5",
            "cases.tsv: line 5, column rate: wanted a number in (0, 1e9], got -5",
        ),
        ("two\t5", "two\t", "cases.tsv: line 5: missing key 'rate', got ['name']"),
        ("two\t5", "two\t~", "cases.tsv: line 5: missing key 'rate', got ['name']"),
        (
            "[2, 3]",
            "[2, 0]",
            "cases.tsv: line 4, column sizes[1]: wanted a number in [1, 1e9], got 0",
        ),
        ("[2, 3]", "[2, 2]", "cases.tsv: line 4, column sizes: wanted distinct values, got [2, 2]"),
        ("[2, 3]", "2, 3", "cases.tsv: line 4, column sizes: wanted a list, got '2, 3'"),
        ("[2, 3]", '"[2, 3]"', "cases.tsv: line 4, column sizes: wanted a list, got '[2, 3]'"),
        (
            "[2, 3]",
            "[2, 3",
            "cases.tsv: line 4, column sizes: wanted a value as in params.yaml, got '[2, 3'",
        ),
        (
            "[2, 3]",
            "{{ 2 }}",
            "cases.tsv: line 4, column sizes: wanted a value as in params.yaml, got '{{ 2 }}'",
        ),
        (
            "[2, 3]",
            "2024-01-01",
            "line 4, column sizes: wanted a text, a number, or true or false, got datetime",
        ),
        ("one", "a/b", "cases.tsv: line 4, column name: wanted a name of at most 100 letters"),
        (
            "\tsteep",
            "\tSteep",
            "cases.tsv: line 4, column law: wanted one of 'flat' or 'steep', got 'Steep'",
        ),
        ("\tsteep", "", "cases.tsv: line 4: wanted 4 cells, one for each column, got 3"),
        ("\tsteep", "\tsteep\t", "cases.tsv: line 4: wanted 4 cells, one for each column, got 5"),
        ("three", "one", "cases.tsv: line 7: wanted a case of its own, got 'one' again"),
        (
            "sizes",
            "size",
            "cases.tsv: unknown column 'size', wanted ['cap', 'law', 'name', 'rate', 'sizes']",
        ),
        (
            "\trate",
            "\tname",
            "cases.tsv: wanted a line of distinct column names and a line for each case, got [",
        ),
        (
            "\trate",
            "\tcap",
            "cases.tsv: line 4: missing key 'rate', got ['cap', 'law', 'name', 'sizes']",
        ),
    ],
)
def test_what_does_not_fit_in_a_table_is_refused_by_its_line_and_column(cases, old, new, message):
    assert CASES.count(old) == 1
    with pytest.raises(InputError, match=re.escape(message)):
        cases(CASES.replace(old, new))


def test_an_unknown_column_is_refused_although_its_cells_are_empty(cases):
    with pytest.raises(InputError, match=r"cases\.tsv: unknown column 'colour', wanted \['cap', "):
        cases("name\trate\tcolour\none\t1\t\n")


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "name\trate\n", "name\trate\n\n# none\n", "\ufeff"]
)
def test_a_table_without_a_case_is_refused(cases, text):
    with pytest.raises(
        InputError, match="wanted a line of distinct column names and a line for each case, got "
    ):
        cases(text)


def test_a_table_that_is_missing_or_no_text_is_refused(cases, tmp_path):
    with pytest.raises(
        InputError, match=r"gone\.tsv: wanted a readable table of cases, got: .*No such file"
    ):
        read_cases(tmp_path / "gone.tsv", Case)
    with pytest.raises(
        InputError, match=r"cases\.tsv: wanted a readable table of cases, got: .*decode"
    ):
        cases(b"\xff\xfe\x00")


def test_cases_without_a_name_are_told_apart_by_all_that_they_are(cases):
    assert cases("width\tgain\n1\t2\n1\t3\n", Head) == (Head(1, 2.0), Head(1, 3.0))
    with pytest.raises(
        InputError,
        match=r"line 3: wanted a case of its own, got 'Head\(width=1, gain=2\.0\)' again",
    ):
        cases("width\tgain\n1\t2\n1\t2.0\n", Head)


READERS = ("read_params", "read_cases", "read_problems")


def reads():
    """Every schema that a stage reads, as (stage, schema)."""
    for file in sorted((ROOT / "stages").rglob("*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in READERS:
                assert isinstance(node.args[1], ast.Name), (
                    f"{module}: line {node.lineno}: wanted a schema by its name"
                )
                yield module, node.args[1].id


def schemas():
    """Every section, and every table of cases, that a stage reads; a single key's type, such as
    `float`, is none.
    """
    for module, name in dict.fromkeys(reads()):
        schema = getattr(import_module(module), name, None) or getattr(builtins, name)
        if is_dataclass(schema):
            yield pytest.param(schema, id=f"{module}.{name}")


def bounds(wanted):
    """The ends of the type's interval, and whether each belongs to it."""
    (interval,) = (bound for bound in get_args(wanted)[1:] if isinstance(bound, Interval))
    low, high = (float(end) for end in interval.text[1:-1].split(","))
    return low, high, low in interval, high in interval


def values(wanted, smaller=types.MappingProxyType({})):
    """YAML values of a type; `smaller` names keys that are drawn from a strategy of their own."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if is_dataclass(wanted):
        hints = get_type_hints(wanted, include_extras=True)
        drawn = {name: smaller.get(name, values(hint, smaller)) for name, hint in hints.items()}
        free = {field.name for field in fields(wanted) if field.default is not MISSING}
        return st.fixed_dictionaries(
            {name: value for name, value in drawn.items() if name not in free},
            optional={name: value for name, value in drawn.items() if name in free},
        )
    if wanted == Device:
        return st.sampled_from(["cpu", "cuda", "cuda:0", "cuda:15"])
    if wanted == Name:
        return st.builds("{}{}".format, st.sampled_from("aZ_9"), st.text("aZ_9=.,+-", max_size=3))
    if origin is Annotated:
        low, high, with_low, with_high = bounds(wanted)
        if arguments[0] is int:
            low, high = math.ceil(low) + (not with_low), math.floor(high) - (not with_high)
            return st.integers(low, high)
        return st.floats(low, high, exclude_min=not with_low, exclude_max=not with_high)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values(arguments[0], smaller), max_size=2, unique_by=repr)
    if origin is dict:
        return st.dictionaries(
            st.text("ab", min_size=1, max_size=2), values(arguments[1], smaller), max_size=2
        )
    if origin in (Union, types.UnionType):
        return st.none() | values(arguments[0], smaller)
    plain = {bool: st.booleans(), str: st.text("ab é:#-1", max_size=5), int: st.integers()}
    return plain.get(wanted, st.floats(allow_nan=False, allow_infinity=False))


NAMED = {*string.ascii_letters, *string.digits, *"_.,=+-"}


def fits(value, wanted):
    """Whether a YAML value is of a type, in range and distinct where it is listed; a second
    opinion.
    """
    origin, arguments = get_origin(wanted), get_args(wanted)
    if is_dataclass(wanted):
        hints = get_type_hints(wanted, include_extras=True)
        needed = {field.name for field in fields(wanted) if field.default is MISSING}
        return (
            isinstance(value, dict)
            and needed <= value.keys() <= hints.keys()
            and all(fits(item, hints[key]) for key, item in value.items())
        )
    if wanted == Device:
        number = value[5:] if type(value) is str and value.startswith("cuda:") else ""
        return value in ("cpu", "cuda") or (
            0 < len(number) <= 3 and set(number) <= set("0123456789")
        )
    if wanted == Name:
        return (
            type(value) is str
            and 0 < len(value) <= 100
            and value[0] not in ".,=+-"
            and set(value) <= NAMED
        )
    if origin is Annotated:
        low, high, with_low, with_high = bounds(wanted)
        return fits(value, arguments[0]) and (
            low < value < high or (with_low and value == low) or (with_high and value == high)
        )
    if origin is Literal:
        return value in arguments and type(value) in map(type, arguments)
    if origin is tuple:
        same = (
            [a == b for i, a in enumerate(value) for b in value[:i]]
            if type(value) is list
            else [True]
        )
        return not any(same) and all(fits(item, arguments[0]) for item in value)
    if origin is dict:
        return type(value) is dict and all(
            type(k) is str and fits(item, arguments[1]) for k, item in value.items()
        )
    if origin in (Union, types.UnionType):
        return value is None or fits(value, arguments[0])
    if wanted is float:
        return type(value) in (int, float) and -1.8e308 < value < 1.8e308
    return type(value) is wanted


JUNK = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        1e300,
        math.nan,
        math.inf,
        10**400,
        "",
        "1e-4",
        "adam",
        date(2024, 1, 1),
        b"bytes",
    ]
) | st.sampled_from([[], [0], [1, 1], [[]], [None], {}, {"a": 1}, {1: 2}])


@st.composite
def faulty(draw, sections):
    """A section as it was drawn, or with one fault, and the key where the fault is (or None)."""
    section = draw(sections)
    places = [(section, key) for key in section]
    for item in section.values():
        for inner in item if isinstance(item, list) else [item]:
            places += [(inner, key) for key in inner] if isinstance(inner, dict) else []
    place, key = draw(st.sampled_from(places))
    fault = draw(st.sampled_from(["none", "none", "missing", "unknown", "junk", "junk"]))
    if fault == "none":
        return section, None
    if fault == "missing":
        del place[key]
    elif fault == "unknown":
        key = draw(st.sampled_from([key.upper(), key + "s_", 7, 1.5, True, "?", date(2024, 1, 1)]))
        place[key] = draw(JUNK)
    else:
        place[key] = draw(JUNK)
    return section, key


def names(schema):
    """Every key of a schema and of the sections in it."""
    if is_dataclass(schema):
        hints = get_type_hints(schema)
        return set(hints).union(*(names(hint) for hint in hints.values()))
    return set().union(*(names(argument) for argument in get_args(schema)))


# The sizes of a transformer are plain whole numbers, whose bounds the transformer itself knows.
SIZES = dict.fromkeys(
    ("patch_size", "d_model", "n_heads", "d_head", "d_mlp"), st.integers(1, 16384)
)
SIZES |= {"n_layers": st.integers(1, 256)}


@pytest.mark.parametrize("schema", list(schemas()))
def test_a_fuzzed_section_is_read_in_range_or_refused_by_its_key(schema):
    seen = Counter()

    @settings(max_examples=300 if schema is Train else 100)
    @given(faulty(values(schema, SIZES if schema is Train else {})))
    def check(drawn):
        section, key = drawn
        try:
            found = parse(section, schema, "a.b")
        except InputError as error:
            assert str(error).startswith("a.b")
            message = str(error).removeprefix("a.b")
            if fits(section, schema):  # then a relation between keys does not hold
                assert any(name in message for name in names(schema))
                seen["unrelated"] += 1
            else:
                assert repr(key) in message or str(key) in message
                seen["refused"] += 1
        else:
            assert fits(section, schema)
            assert type(found) is schema
            assert all(getattr(found, name) == plain(item) for name, item in section.items())
            seen["read"] += 1

    def plain(item):
        """What the reader makes of a YAML value, told by comparison alone."""
        return tuple(plain(i) for i in item) if isinstance(item, list) else Like(item)

    check()
    assert seen["refused"] >= 5
    assert seen["read"] + seen["unrelated"] >= 5


class Like:
    """Equal to a value, to a dataclass whose fields equal the entries of a dict, or to a tuple that
    equals a list.
    """

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        if isinstance(self.value, dict):
            found = other if isinstance(other, dict) else vars(other)
            return all(found[key] == Like(item) for key, item in self.value.items())
        if isinstance(self.value, list):
            return len(other) == len(self.value) and all(
                a == Like(b) for a, b in zip(other, self.value, strict=True)
            )
        return other == self.value


TINY = {
    "n_seeds": st.integers(1, 2),
    "controls": st.lists(
        st.sampled_from(["permuted_labels", "sgd", "other_reading"]), max_size=2, unique=True
    ),
    "init_scales": st.lists(st.floats(1e-3, 100), max_size=1),
    "device": st.just("cpu"),
    "compile": st.just(False),  # minutes, and the machine's own affair
    "max_hours": st.just(1.0),
    "patch_size": st.sampled_from([1, 2, 4, 8]),
    "d_model": st.integers(1, 8),
    "n_heads": st.integers(1, 3),
    "d_head": st.integers(1, 5),
    "d_mlp": st.integers(1, 8),
    "n_layers": st.integers(1, 2),
    "batch_size": st.integers(1, 8),
    "n_operations": st.integers(1, 2),
    "n_steps": st.integers(4, 8),
    "warmup_steps": st.integers(0, 4),
    "snapshot_every": st.integers(1, 20),
}


@pytest.mark.parametrize("n_sections", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_fuzzed_section_that_is_accepted_trains_to_a_readable_run(
    n_sections, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.setattr(
        train, "spread", lambda function, jobs, **_: (function(*job) for job in jobs)
    )
    g = generator(0, "fuzzed training")
    shapes = {"train_images": (30, 3, 8, 8), "test_images": (20, 3, 8, 8)}
    tensors = {name: pixels(shape, g) for name, shape in shapes.items()}
    tensors |= {
        "train_labels": pixels((30,), g).long() % 3,
        "test_labels": pixels((20,), g).long() % 3,
    }
    save_file(vars(Images.from_tensors(tensors)), tmp_path / "images.safetensors")
    trained = []

    @settings(max_examples=4 * n_sections, phases=[Phase.generate])
    @given(values(Train, TINY))
    def check(section):
        if len(trained) == n_sections:
            return
        Path("params.yaml").write_text(yaml.safe_dump({"toy": section}), encoding="utf-8")
        controls = ROOT / "stages" / "vision" / "controls.tsv"
        try:
            params = read_params("toy", Train)
            wanted = chosen_variants(controls, params.controls, params.init_scales)
        except InputError:
            return
        train.main("toy", controls, Path("images.safetensors"), Path("runs"))
        runs = {run.folder.name: run for run in open_runs(Path("runs"))}
        assert sorted(runs) == sorted(variant.run for variant in wanted)
        model = params.model
        for run in runs.values():
            assert run.layout.seeds == list(params.seeds)
            assert run.steps["step"].iloc[-1] == params.n_steps
            assert len(run.steps) == len(params.seeds) * len(run.snapshots)
            assert run.weights(-1)["W_Q"].shape == (
                (len(params.seeds), model.n_layers, model.n_heads, model.d_model, model.d_head)
            )
        trained.append(section)
        shutil.rmtree("runs")

    check()
    assert len(trained) == n_sections


def pixels(shape, g):
    """Random bytes."""
    return torch.randint(0, 256, shape, generator=g).byte()


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "more than 50 values that lie in one another"),
        ("{a: " * 100_000, "more than 50 values that lie in one another"),
        ("- " * 100_000 + "1", "more than 50 values that lie in one another"),
        (
            "".join(f"{' ' * i}a:\n" for i in range(1000)),
            "more than 50 values that lie in one another",
        ),
        (BOMB, "more than 1000000 values, those of aliases counted"),
        ("a: &a [*a]", ""),
        ("#" * (1 << 24) + "\n", "16777217 bytes, more than 16777216"),
    ],
    ids=["lists", "sections", "dashes", "lines", "aliases", "itself", "long"],
)
def test_yaml_that_would_take_all_the_memory_or_crash_the_parser_is_refused_in_one_line(
    text, said, tmp_path
):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    with pytest.raises(
        InputError, match=f"params.yaml: wanted a readable YAML file, got: .*{said}"
    ) as found:
        load_yaml(path)
    assert "\n" not in str(found.value)
    if len(text) < 1 << 24:
        path.write_text("name\n" + text.replace("\n", " ") + "\n")
        with pytest.raises(InputError, match="wanted"):
            read_cases(path, Toy)
