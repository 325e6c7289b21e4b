"""A YAML file is read as DVC reads it, or refused in one line, whatever it would do to a parser."""

import pytest
from dvc.utils import serialize

from lib.files import params
from lib.files.files import InputError
from lib.files.params import load_yaml


@pytest.fixture
def file(tmp_path):
    return tmp_path / "params.yaml"


# PyYAML alone reads YAML 1.1, where 010 is eight, 1:30 is ninety, and "on" is true.
@pytest.mark.parametrize(
    "text", ["010", "08", "0o10", "0x1F", "1:30", "1_000", "on", "no", "True", "1e-4", "1E5", "-7"]
)
def test_no_number_or_truth_is_read_otherwise_than_dvc_reads_it(file, text):
    file.write_text(f"x: {text}")
    found = load_yaml(file)["x"]
    assert repr(found) in (repr(serialize.load_yaml(str(file))["x"]), repr(text))


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 10)}]\n" for a, b in zip("abc", "bcd", strict=True)
)
DEEP = "more than 50 values that lie in one another"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[" * 100_000, DEEP),
        ("{a: " * 100_000, DEEP),
        ("- " * 100_000 + "1", DEEP),
        ("".join(f"{' ' * i}a:\n" for i in range(1000)), DEEP),
        (BOMB, "more than 10000 values, those of aliases counted"),
        ("a: &a [*a]", ""),
        ("#" * (1 << 24) + "\n", "16777217 bytes, more than 16777216"),
        (None, "No such file"),
        (b"\xff\xfe\x00", "decode"),
        ("x: [1", "line 2: "),
        ("x: 1\n---\ny: 2", ""),
        ("x: {{ steps }}", ""),
        ("x: 2024-13-45", ""),
        ("x: !!int ten", ""),
        ("x: !!bool maybe", ""),
        ("x: " + "9" * 5000, ""),
    ],
    ids=lambda value: str(value)[:15],
)
def test_what_is_no_yaml_or_too_much_of_it_is_refused_in_one_line(file, content, said, monkeypatch):
    monkeypatch.setattr(params, "MOST_VALUES", 10_000)
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    wanted = f"params.yaml: wanted a readable YAML file, got: .*{said}"
    with pytest.raises(InputError, match=wanted) as found:
        load_yaml(file)
    assert "\n" not in str(found.value)
