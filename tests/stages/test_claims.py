"""A verdict holds the claim, its numbers over seeds, and whether they meet the bar; nothing else is written."""

import json
import math
from pathlib import Path

import numpy as np
import yaml
from made import files
from scipy.stats import quantile_test

DESCRIBED = {"where": "figure 2", "source": "[C]"}
GROUPS = {
    "first": {"family": "toy", "measures": "metrics/a.json", "figures": "plots/a", "command": "dvc repro a"},
    "second": {"family": "toy", "measures": "metrics/b.json", "figures": "plots/b", "command": "dvc repro b"},
    "third": {"family": "far", "measures": "published/c.json", "figures": "published/c", "command": "make c"},
}
MEASURES = {
    "metrics/a.json": {
        "skewed": {"cases": ["3", "1", "2"], "values": [1.0, 1.25, 3.9375]},
        "two": {"cases": ["joint", "alone"], "values": [0.5, 0.25]},
        "gap": {"cases": ["0", "1"], "values": [1.5, None]},
        "scaled": {
            "1e-4": {"cases": ["0", "1"], "values": [0.5, 0.25]},
            "1e-8": {"cases": ["4"], "values": [-2.0]},
        },
    },
    "metrics/b.json": {
        "skewed": {"cases": ["6"], "values": [-2.0]},
        "empty": {"cases": [], "values": []},
        "scaled": {"1e-4": {"cases": [], "values": []}},
    },
}
# By the claim: group, measure, over, bar, kind; then what is found: value, spread, 95 % interval, whether it holds.
STUDENT = {2: 12.706204736432095, 3: 4.302652729911275}  # the 97.5 % quantile at n - 1 degrees of freedom
SKEWED = [1.0, 1.25, 3.9375]


def around_mean(values):
    half = STUDENT[len(values)] * np.std(values, ddof=1) / math.sqrt(len(values))
    return [np.mean(values) - half, np.mean(values) + half]


CLAIMS = {
    "mean_in": ("first", "skewed", "mean", "(1.25, 2.0625]", "theorem"),
    "not_every": ("first", "skewed", "every", "(1.25, 2.0625]", "our bar"),
    "every": ("first", "skewed", "every", "[1, 3.9375]", "paper's figure"),
    "median_out": ("first", "skewed", "median", "(1.25, 2.0625]", "control"),
    "two": ("first", "two", "mean", "(0, 1)", "control"),
    "one": ("second", "skewed", "median", "(-inf, -1]", "our bar"),
    "gap": ("first", "gap", "every", "(-inf, inf)", "our bar"),
    "coarse": ("first", "scaled@1e-4", "mean", "(0, 1)", "our bar"),
    "fine": ("first", "scaled@1e-8", "every", "(0, 1)", "our bar"),
    "finer": ("first", "scaled@1e-16", "every", "(0, 1)", "our bar"),
    "no_scale": ("first", "scaled", "every", "(0, 1)", "our bar"),
    "scale_of_none": ("first", "two@1e-4", "every", "(0, 1)", "our bar"),
    "empty_scale": ("second", "scaled@1e-4", "every", "(0, 1)", "our bar"),
    "empty": ("second", "empty", "mean", "[0, 1]", "our bar"),
    "absent": ("second", "absent", "mean", "[0, 1]", "our bar"),
    "elsewhere": ("third", "skewed", "mean", "[0, 1]", "our bar"),
}
FOUND = {
    "mean_in": (np.mean(SKEWED), np.std(SKEWED, ddof=1), around_mean(SKEWED), True),
    "not_every": (np.mean(SKEWED), np.std(SKEWED, ddof=1), around_mean(SKEWED), False),
    "every": (np.mean(SKEWED), np.std(SKEWED, ddof=1), around_mean(SKEWED), True),
    "median_out": (1.25, np.std(SKEWED, ddof=1), [None, None], False),  # three ranks are too few for 95 %
    "two": (0.375, np.std([0.5, 0.25], ddof=1), around_mean([0.5, 0.25]), True),
    "one": (-2.0, None, [None, None], True),
    "gap": (None, None, [None, None], False),
    "coarse": (0.375, np.std([0.5, 0.25], ddof=1), around_mean([0.5, 0.25]), True),
    "fine": (-2.0, None, [None, None], False),
}


def grouped(claims, groups=GROUPS):
    """The groups with their claims, as in claims.yaml, from claims that name their group."""
    return {
        name: group | {"claims": {key: claim for key, (home, claim) in claims.items() if home == name}}
        for name, group in groups.items()
    }


def found(measure):
    """The cases and values of a measure, by NAME or NAME@SCALE, in its file."""
    file, name = measure.split("#")
    name, _, scale = name.partition("@")
    return MEASURES[file][name][scale] if scale else MEASURES[file][name]


def test_every_verdict_is_worked_out_by_hand(stage, tmp_path, capsys):
    listed = {
        name: (
            group,
            {**DESCRIBED, "statement": f"It is {name}", "measure": measure, "over": over, "bar": bar, "kind": kind}
            | {"figure": f"of-{name}"},
        )
        for name, (group, measure, over, bar, kind) in CLAIMS.items()
    }
    listed["not_every"][1]["expected"] = "fails, because one is large"
    listed["two"][1]["nulls"] = ["not_every", "one", "empty"]
    Path(tmp_path / "claims.yaml").write_text(yaml.safe_dump(grouped(listed), sort_keys=False))
    for name, content in MEASURES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    stage("claims", {}, Path("claims.yaml"), [Path(name) for name in MEASURES], Path("out/claims.json"))
    assert files(tmp_path) == ["claims.yaml", *MEASURES, "out/claims.json", "params.yaml"]
    judged = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert list(judged) == sorted(CLAIMS, key=lambda name: list(GROUPS).index(CLAIMS[name][0]))  # group by group
    for name, (home, claim) in listed.items():
        group = GROUPS[home]
        described = {key: value for key, value in claim.items() if key != "nulls"} | {
            "family": group["family"],
            "measure": f"{group['measures']}#{claim['measure']}",
            "figure": f"{group['figures']}/of-{name}.svg",
            "command": group["command"],
        }
        if name not in FOUND:
            assert judged[name] == described | {"state": "not run"}
            continue
        one, (value, spread, interval, holds) = found(described["measure"]), FOUND[name]
        numbers = {"value": value, "spread": spread, "interval_95": interval}
        numbers |= dict.fromkeys(("min", "max")) if None in one["values"] else {
            "min": min(one["values"]), "max": max(one["values"])
        }  # fmt: skip
        wanted = described | one | {"n": len(one["values"]), "holds": holds, "state": "holds" if holds else "fails"}
        if name == "two":
            wanted["nulls"] = {"not_every": "fails", "one": "holds", "empty": "not run"}
        assert {key: entry for key, entry in judged[name].items() if key not in numbers} == wanted
        for key, number in numbers.items():
            written, number = np.array(judged[name][key], float), np.array(number, float)  # None is no number
            np.testing.assert_allclose(written, number, rtol=1e-5, err_msg=f"{name} {key}")
    assert capsys.readouterr().out.splitlines() == [
        "5 holds",
        "4 fails: not_every, median_out, gap, fine",
        "7 not run: finer, no_scale, scale_of_none, empty_scale, empty, absent, elsewhere",
    ]


def judged(stage, folder, values):
    """The verdict on the median of these values."""
    claim = {**DESCRIBED, "statement": "It is", "measure": "a", "over": "median", "bar": "[12, 12]", "figure": "a"}
    groups = grouped({"one": ("first", claim | {"kind": "control"})}, {"first": GROUPS["first"] | {"measures": "m"}})
    (folder / "claims.yaml").write_text(yaml.safe_dump(groups))
    (folder / "m").write_text(json.dumps({"a": {"cases": list(map(str, range(len(values)))), "values": values}}))
    stage("claims", {}, Path("claims.yaml"), [Path("m")], Path("c.json"))
    return json.loads((folder / "c.json").read_text())["one"]


def test_the_interval_of_a_median_is_between_ranks_of_its_values(stage, tmp_path):
    """Of 8 values, fewer than 1 or more than 7 lie below the median with 0.8 %; fewer than 2 with 7 %."""
    found = judged(stage, tmp_path, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    assert (found["value"], found["interval_95"], found["holds"]) == (12, [1, 128], True)


def test_the_interval_of_a_median_is_scipys(stage, tmp_path):
    for n in range(1, 41):
        values = np.random.default_rng(n).permutation(np.arange(n) ** 2.0)
        wanted = quantile_test(values, q=0.0, p=0.5).confidence_interval(0.95)
        found = np.array(judged(stage, tmp_path, values.tolist())["interval_95"], float)
        np.testing.assert_array_equal(found, [wanted.low, wanted.high], err_msg=f"{n} values")
