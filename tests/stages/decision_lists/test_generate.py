"""The tasks that the stage makes, against lists made by hand and laws summed over every sequence."""

import itertools
import math

import pandas as pd
import pytest
import torch
from made import files, generator

from lib.io.files import InputError

SECTION = "decision_lists.generate"
ONES = [{"kind": "uniform", "value": None}]
GROUPS = [
    {
        "name": "first",
        "sizes": [{"n_tokens": 5, "seq_len": 3}, {"n_tokens": 4, "seq_len": 2}],
        "list_lengths": [3, 2],
        "lists": ["shared heads", "cyclic", "random"],
        "n_heads": [3, 2],
        "laws": [*ONES, {"kind": "zipf", "value": 1.5}, {"kind": "frequent heads", "value": 7}],
        "repeats": False,
        "seeds": [4, 1],
    },
    {
        "name": "second",
        "sizes": [{"n_tokens": 4, "seq_len": 3}],
        "list_lengths": [2],
        "lists": ["random", "cyclic"],
        "n_heads": [1],
        "laws": [
            {"kind": "dirichlet", "value": None},
            {"kind": "log-normal", "value": 0.7},
            {"kind": "frequent heads", "value": 100},
            {"kind": "zipf", "value": 2},
            *ONES,
        ],
        "repeats": True,
        "seeds": [2],
    },
]


def law_name(law):
    return law["kind"] if law["value"] is None else f"{law['kind']} {law['value']:g}"


def settings_of(group):
    """All combinations in their order; a number of heads is one only where heads are used."""
    for size, length, kind, law in itertools.product(*(group[k] for k in ("sizes", "list_lengths", "lists", "laws"))):
        used = kind == "shared heads" or law["kind"] == "frequent heads"
        for n_heads in group["n_heads"] if used else [group["n_heads"][0]]:
            for seed in group["seeds"]:
                yield size["n_tokens"], size["seq_len"], length, kind, law, n_heads, seed


def lists_of(kind, L, length, n_heads, draw):
    if kind == "cyclic":
        return [[(a - back) % L for back in range(length - 1, -1, -1)] for a in range(L)]
    if kind == "random":
        orders = [torch.randperm(L, generator=draw).tolist() for _ in range(L)]
        return [[*[b for b in order if b != a][: length - 1], a] for a, order in enumerate(orders)]
    lists = [[a] for a in range(L)]
    for i, j in enumerate(torch.randperm(L - n_heads, generator=draw).tolist()):
        lists[n_heads + j] = [*[(i + h) % n_heads for h in range(length - 1)], n_heads + j]
    return lists


def permutation_of(L, draw):
    """The first drawn that is not its own inverse."""
    while True:
        pi = torch.randperm(L, generator=draw).tolist()
        if [pi[pi[b]] for b in range(L)] != list(range(L)):
            return pi


def law_of(law, L, n, n_heads, repeats, draw):
    """The chance of every class of sequences: what its sequences have together, token by token."""
    kind, value = law["kind"], law["value"]
    sequences = [s for s in itertools.product(range(L), repeat=n) if repeats or len(set(s)) == n]
    if kind == "dirichlet":
        n_classes = len({tuple(sorted(s)) for s in sequences})
        exponential = -torch.log1p(-torch.rand(n_classes, generator=draw, dtype=torch.float64))
        return (exponential / exponential.sum()).tolist()
    theta = {
        "uniform": lambda: [1.0] * L,
        "zipf": lambda: [(1 + rank) ** -value for rank in torch.randperm(L, generator=draw).tolist()],
        "log-normal": lambda: [
            math.exp(value * g) for g in torch.randn(L, generator=draw, dtype=torch.float64).tolist()
        ],
        "frequent heads": lambda: [value if b < n_heads else 1.0 for b in range(L)],
    }[kind]()
    chances: dict[tuple[int, ...], float] = {}
    for s in sequences:
        chances[tuple(sorted(s))] = chances.get(tuple(sorted(s)), 0) + math.prod(theta[b] for b in s)
    return [chances[s] / sum(chances.values()) for s in sorted(chances)]


def expected(group):
    for number, (L, n, length, kind, law, n_heads, seed) in enumerate(settings_of(group)):
        draw = generator(seed, "task", f"{L}, {n}, {length}, {kind}, {n_heads}, {law_name(law)}")
        row = {"name": f"{group['name']}-{number:03d}", "group": group["name"], "n_tokens": L, "seq_len": n}
        row |= {"repeats": group["repeats"], "lists": lists_of(kind, L, length, n_heads, draw)}
        row["permutation"] = permutation_of(L, draw)
        row["probability"] = law_of(law, L, n, n_heads, group["repeats"], draw)
        yield row | {"law": law_name(law)}


def test_every_task_is_a_setting_with_its_own_lists_labels_and_law(stage, tmp_path, capsys):
    stage("decision_lists.generate", {SECTION: {"groups": GROUPS}}, SECTION, tmp_path / "tasks")
    table = pd.read_parquet(tmp_path / "tasks")
    wanted = [row for group in GROUPS for row in expected(group)]
    assert len(wanted) == 2 * 2 * 2 * (2 * 3 + 2 * (1 + 1 + 2)) + 2 * 5
    assert list(table) == list(wanted[0])
    assert len(table) == len(wanted)
    for found, row in zip(table.to_dict("records"), wanted, strict=True):
        assert found["probability"].tolist() == pytest.approx(row.pop("probability"), rel=1e-12)
        assert [entries.tolist() for entries in found["lists"]] == row.pop("lists")
        assert found["permutation"].tolist() == row.pop("permutation")
        assert {name: found[name] for name in row} == row
    assert capsys.readouterr().out == f"{len(wanted)} tasks in 2 groups\n"
    assert files(tmp_path) == ["params.yaml", "tasks"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"laws": [{"kind": "uniform", "value": 2}]},
            "value: wanted one for zipf, log-normal and frequent heads",
        ),
        ({"laws": [{"kind": "dirichlet", "value": 2}]}, "value: wanted one for zipf"),
        ({"laws": [{"kind": "zipf", "value": None}]}, "value: wanted one for zipf"),
        ({"laws": [{"kind": "log-normal", "value": None}]}, "value: wanted one for zipf"),
        ({"laws": [{"kind": "frequent heads", "value": None}]}, "value: wanted one for zipf"),
        ({"list_lengths": [6]}, r"decision_lists\.generate\.groups: length must lie in 1\.\.5, got 6"),
        ({"n_heads": [5]}, r"decision_lists\.generate\.groups: n_heads must lie in 2\.\.4, got 5"),
        ({"sizes": [{"n_tokens": 5, "seq_len": 6}]}, r"decision_lists\.generate\.groups: seq_len must lie in 1\.\.5"),
        ({"sizes": [{"n_tokens": 65, "seq_len": 2}]}, r"n_tokens: wanted a number in \[1, 64\], got 65"),
        ({"seeds": []}, r"decision_lists\.generate\.groups: wanted tasks, got none"),
    ],
)
def test_settings_that_give_no_task_are_refused_and_nothing_is_written(stage, tmp_path, changed, said):
    with pytest.raises(InputError, match=said):
        stage("decision_lists.generate", {SECTION: {"groups": [GROUPS[0] | changed]}}, SECTION, tmp_path / "tasks")
    assert files(tmp_path) == ["params.yaml"]


def test_tokens_that_may_repeat_allow_sequences_longer_than_the_number_of_tokens(stage, tmp_path):
    group = GROUPS[1] | {"sizes": [{"n_tokens": 3, "seq_len": 5}], "lists": ["cyclic"], "laws": ONES}
    stage("decision_lists.generate", {SECTION: {"groups": [group]}}, SECTION, tmp_path / "tasks")
    (found,) = pd.read_parquet(tmp_path / "tasks")["probability"]
    assert sorted(set((found * 3**5).round(9))) == [1, 5, 10, 20, 30]  # orders of a multiset of five
