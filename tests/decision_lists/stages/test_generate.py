"""The tasks that the stage makes, against lists made by hand and laws summed over every
sequence.
"""

import itertools
import json
import math

import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.decision_lists.decision_lists_made import (
    classes,
    cyclic,
    random_lists,
    random_permutation,
    random_weights,
)
from tests.stages.made import files, generator

FILES = {  # the uses of each file
    "flow": ("theorem", "bound", "gamma", "repeats"),
    "scales": ("law", "spectral"),
    "descend": ("alone", "both", "general"),
    "train": ("joint", "starts", "alignment", "controls"),
}
FIRST = {
    "group": "first",
    "use": "joint",
    "n_tokens": 5,
    "seq_len": 3,
    "repeats": False,
    "list_lengths": [3, 2],
    "lists": ["shared heads", "cyclic", "random"],
    "n_heads": [3, 2],
    "laws": ["uniform", "zipf 1.5", "frequent heads 7"],
    "first_seed": 4,
    "n_seeds": 2,
}
SECOND = {
    "group": "second",
    "use": "law",
    "n_tokens": 4,
    "seq_len": 3,
    "repeats": True,
    "list_lengths": [2],
    "lists": ["random", "cyclic"],
    "n_heads": [1],
    "laws": [
        "dirichlet",
        "log-normal 0.7",
        "frequent heads 100",
        "zipf 2",
        "uniform",
        "sparse 0.3",
        "topics 2",
    ],
    "first_seed": None,
    "n_seeds": 1,
}
SMALL = FIRST | {
    "list_lengths": [1],
    "lists": ["cyclic"],
    "laws": ["uniform"],
    "n_tokens": 3,
    "seq_len": 2,
}
OWN = SMALL | {
    "group": "own",
    "use": "bound",
    "list_lengths": [2, 3],  # which own lists do not have
    "lists": ["own 1 2 0 / 1 / 1 2"],
    "laws": ["frequencies 2 0.5 3", "sequences 1 2 = 3 / 0 1 = 1.5"],
}
# The group "first" has a second size, whose tasks are numbered on; no group is there for "starts"
# and others.
GROUPS = [FIRST, FIRST | {"n_tokens": 4, "seq_len": 2}, SECOND, OWN]
GROUPS += [
    SMALL | {"group": use, "use": use}
    for use in ("theorem", "gamma", "spectral", "both", "general", "controls")
]


def write_groups(file, groups):
    """The table of groups: tab-separated, lists as in YAML, nothing where a key has its default."""
    columns = list(FIRST)
    cells = [[group[column] for column in columns] for group in groups]
    texts = [
        ["" if c is None else c if isinstance(c, str) else json.dumps(c) for c in line]
        for line in cells
    ]
    file.write_text("".join("\t".join(line) + "\n" for line in [columns, ["# a comment"], *texts]))
    return file


def settings_of(group):
    """All combinations in their order; a number of heads is one only where heads are used."""
    lengths = (
        group["list_lengths"][:1] if group["lists"][0].startswith("own") else group["list_lengths"]
    )
    for length, kind, law in itertools.product(lengths, group["lists"], group["laws"]):
        used = kind == "shared heads" or law.startswith("frequent heads")
        for n_heads in group["n_heads"] if used else [group["n_heads"][0]]:
            first = group["first_seed"] or 0
            for seed in range(first, first + group["n_seeds"]):
                yield group["n_tokens"], group["seq_len"], length, kind, law, n_heads, seed


def lists_of(kind, L, length, n_heads, draw):
    if kind.startswith("own"):
        return [[int(b) for b in entries.split()] for entries in kind[4:].split("/")]
    if kind == "cyclic":
        return cyclic(L, length)
    if kind == "random":
        return random_lists(L, length, draw)
    lists = [[a] for a in range(L)]
    for i, j in enumerate(torch.randperm(L - n_heads, generator=draw).tolist()):
        lists[n_heads + j] = [*[(i + h) % n_heads for h in range(length - 1)], n_heads + j]
    return lists


def law_of(law, L, n, n_heads, repeats, draw):
    """The chance of every class of sequences: what its sequences have together."""
    sets = classes(L, n, repeats)
    kind, _, number = law.rpartition(" ")
    if law.startswith("sequences"):
        weights = [1.5, 0, 3]
    elif law == "dirichlet":
        weights = random_weights(len(sets), draw).tolist()
    elif kind == "sparse":
        possible = torch.randperm(len(sets), generator=draw).tolist()
        possible = possible[: max(1, round(float(number) * len(sets)))]
        found = dict(zip(possible, random_weights(len(possible), draw).tolist(), strict=True))
        weights = [found.get(i, 0.0) for i in range(len(sets))]
    elif kind == "topics":
        topics = [law_of("log-normal 1", L, n, n_heads, repeats, draw) for _ in range(int(number))]
        weights = [sum(chances) for chances in zip(*topics, strict=True)]
    else:
        theta = [1.0] * L
        if law.startswith("frequencies"):
            theta = [float(each) for each in law.split()[1:]]
        elif kind == "frequent heads":
            theta[:n_heads] = [float(number)] * n_heads
        elif kind == "zipf":
            ranks = torch.randperm(L, generator=draw).tolist()
            theta = [(1 + rank) ** -float(number) for rank in ranks]
        elif kind == "log-normal":
            normal = torch.randn(L, generator=draw, dtype=torch.float64).tolist()
            theta = [math.exp(float(number) * g) for g in normal]
        weights = [
            len(set(itertools.permutations(s))) * math.prod(theta[b] for b in s) for s in sets
        ]
    return [weight / sum(weights) for weight in weights]


def expected(groups):
    numbers = dict.fromkeys([group["group"] for group in groups], 0)
    for group in groups:
        for L, n, length, kind, law, n_heads, seed in settings_of(group):
            draw = generator(seed, "task", f"{L}, {n}, {length}, {kind}, {n_heads}, {law}")
            name = f"{group['group']}-{numbers[group['group']]:03d}"
            row = {"name": name, "group": group["group"], "n_tokens": L, "seq_len": n}
            row |= {"repeats": group["repeats"], "lists": lists_of(kind, L, length, n_heads, draw)}
            row["permutation"] = random_permutation(L, draw)
            row["probability"] = law_of(law, L, n, n_heads, group["repeats"], draw)
            numbers[group["group"]] += 1
            own = law.split()[0] if law.split()[0] in ("frequencies", "sequences") else ""
            yield row | {"law": f"own {own}" if own else law, "use": group["use"]}


def generate(stage, folder, groups):
    outs = [folder / name for name in FILES]
    stage("decision_lists.generate", {}, write_groups(folder / "groups.tsv", groups), *outs)


def test_every_task_is_a_setting_with_its_own_lists_labels_and_law(stage, tmp_path, capsys):
    generate(stage, tmp_path, GROUPS)
    wanted = list(expected(GROUPS))
    assert len(wanted) == 2 * 2 * 2 * (2 * 3 + 2 * (1 + 1 + 2)) + 2 * 7 + 2 * 2 + 6 * 2
    assert capsys.readouterr().out == f"{len(wanted)} tasks in 9 groups\n"
    assert files(tmp_path) == sorted(["groups.tsv", "params.yaml", *FILES])
    for name, uses in FILES.items():
        table = pd.read_parquet(tmp_path / name)
        rows = [row for row in wanted if row["use"] in uses]
        assert list(table) == list(wanted[0])
        assert len(table) == len(rows) > 0
        for found, row in zip(table.to_dict("records"), rows, strict=True):
            assert found["probability"].tolist() == pytest.approx(row.pop("probability"), rel=1e-12)
            assert [entries.tolist() for entries in found["lists"]] == row.pop("lists")
            assert found["permutation"].tolist() == row.pop("permutation")
            assert {name: found[name] for name in row} == row


def test_a_file_whose_uses_have_no_group_is_empty_and_the_others_do_not_change(stage, tmp_path):
    generate(stage, tmp_path, GROUPS)
    before = {name: (tmp_path / name).read_bytes() for name in FILES}
    others = [group for group in GROUPS if group["use"] not in FILES["descend"]]
    generate(stage, tmp_path, others)
    assert len(pd.read_parquet(tmp_path / "descend")) == 0
    assert [name for name in FILES if (tmp_path / name).read_bytes() != before[name]] == ["descend"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("laws", ["uniform 2"], "line 3: laws: law: wanted uniform, dirichlet, or zipf, "),
        ("laws", ["zipf"], "law: wanted uniform, .* got 'zipf'"),
        ("laws", ["zipf 0"], "with a number above 0, such as zipf 1, .* got 'zipf 0'"),
        ("laws", ["zipf inf"], "law: wanted uniform, .* got 'zipf inf'"),
        ("laws", ["sparse 1.5"], "with a number .*, at most 1 of sparse .*, got 'sparse 1.5'"),
        ("laws", ["topics 2.5"], "with a number .* and whole of topics, .* got 'topics 2.5'"),
        ("laws", ["frequencies 1 2 3"], "wanted 5 numbers above 0, one per token, got '1 2 3'"),
        ("laws", ["frequencies 1 2 3 4 0"], "first: frequencies: wanted 5 numbers above 0"),
        ("laws", ["sequences 0 1 2 = 1 / 0 1 = 2"], "wanted sequences .* got '0 1 = 2'"),
        ("laws", ["sequences 0 1 2 = 1 / 2 1 0 = 2"], "wanted .* each once .* got '2 1 0 = 2'"),
        ("laws", ["sequences 0 1 2 = -1"], "first: sequences: wanted .* got '0 1 2 = -1'"),
        ("lists", ["any"], "line 3: lists: wanted cyclic, random, shared heads, or .* got 'any'"),
        ("lists", ["own 0 / 1 / 2"], "own lists: wanted one per token, 5, .* got 3"),
        (
            "lists",
            ["own 1 0 / 1 / 2 / 0 / 4"],
            "for token 3 .* the last of them 3, got '0'",
        ),
        ("lists", ["own 5 0 / 1 / 2 / 3 / 4"], "for token 0 distinct tokens below 5, .* got '5 0'"),
        ("lists", ["own 1 1 0 / 1 / 2 / 3 / 4"], "wanted for token 0 distinct .* got '1 1 0'"),
        ("list_lengths", [6], r"groups\.tsv: first: length must lie in 1\.\.5, got 6"),
        ("n_heads", [5], r"groups\.tsv: first: n_heads must lie in 2\.\.4, got 5"),
        ("seq_len", 6, r"groups\.tsv: first: seq_len must lie in 1\.\.5"),
        ("n_tokens", 65, r"line 3, column n_tokens: wanted a number in \[1, 64\], got 65"),
        (
            "use",
            "law",
            r"a group for each of \['spectral', 'joint'\], got none for \['joint'\]",
        ),
    ],
)
def test_settings_that_give_no_task_are_refused_and_nothing_is_written(
    stage, tmp_path, key, value, said
):
    with pytest.raises(InputError, match=said):
        generate(stage, tmp_path, [FIRST | {key: value}, *GROUPS[2:]])
    assert files(tmp_path) == ["groups.tsv", "params.yaml"]


@pytest.mark.parametrize(
    "sizes",
    [{"n_tokens": 30, "seq_len": 15}, {"n_tokens": 12, "seq_len": 12, "repeats": True}],
    ids=["distinct tokens", "repeats"],
)
def test_more_sets_than_a_million_are_refused(stage, tmp_path, sizes):
    with pytest.raises(InputError, match="line 3: seq_len: wanted at most 1000000 sets of as many"):
        generate(stage, tmp_path, [FIRST | sizes, *GROUPS[2:]])
