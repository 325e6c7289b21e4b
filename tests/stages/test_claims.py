"""A verdict holds the claim, its numbers over seeds, and whether they meet the bar; nothing else is written."""

import json
import math
from pathlib import Path

import numpy as np
import yaml
from made import files

DESCRIBED = {"where": "figure 2", "family": "toy", "source": "[C]", "figure": "plots/a.svg", "command": "dvc repro a"}
MEASURES = {
    "metrics/a.json": {
        "skewed": {"seeds": [3, 1, 2], "values": [1.0, 1.25, 3.9375]},
        "two": {"seeds": [8, 5], "values": [0.5, 0.25]},
        "gap": {"seeds": [0, 1], "values": [1.5, None]},
    },
    "metrics/b.json": {"skewed": {"seeds": [6], "values": [-2.0]}, "empty": {"seeds": [], "values": []}},
}
# By the claim: measure, over, bar, kind; then what is found: value, spread, 95 % interval, whether it holds.
STUDENT = {2: 12.706204736432095, 3: 4.302652729911275}  # the 97.5 % quantile at n - 1 degrees of freedom
SKEWED = [1.0, 1.25, 3.9375]


def around_mean(values):
    half = STUDENT[len(values)] * np.std(values, ddof=1) / math.sqrt(len(values))
    return [np.mean(values) - half, np.mean(values) + half]


CLAIMS = {
    "mean_in": ("metrics/a.json#skewed", "mean", "(1.25, 2.0625]", "theorem"),
    "not_every": ("metrics/a.json#skewed", "every", "(1.25, 2.0625]", "our bar"),
    "every": ("metrics/a.json#skewed", "every", "[1, 3.9375]", "paper's figure"),
    "median_out": ("metrics/a.json#skewed", "median", "(1.25, 2.0625]", "control"),
    "two": ("metrics/a.json#two", "mean", "(0, 1)", "control"),
    "one": ("metrics/b.json#skewed", "median", "(-inf, -1]", "our bar"),
    "gap": ("metrics/a.json#gap", "every", "(-inf, inf)", "our bar"),
    "empty": ("metrics/b.json#empty", "mean", "[0, 1]", "our bar"),
    "absent": ("metrics/b.json#absent", "mean", "[0, 1]", "our bar"),
    "elsewhere": ("metrics/c.json#skewed", "mean", "[0, 1]", "our bar"),
}
FOUND = {
    "mean_in": (np.mean(SKEWED), np.std(SKEWED, ddof=1), around_mean(SKEWED), True),
    "not_every": (np.mean(SKEWED), np.std(SKEWED, ddof=1), around_mean(SKEWED), False),
    "every": (np.mean(SKEWED), np.std(SKEWED, ddof=1), around_mean(SKEWED), True),
    "median_out": (1.25, np.std(SKEWED, ddof=1), [None, None], False),  # three ranks are too few for 95 %
    "two": (0.375, np.std([0.5, 0.25], ddof=1), around_mean([0.5, 0.25]), True),
    "one": (-2.0, None, [None, None], True),
    "gap": (None, None, [None, None], False),
}


def test_every_verdict_is_worked_out_by_hand(stage, tmp_path, capsys):
    listed = {
        name: {**DESCRIBED, "statement": f"It is {name}", "measure": measure, "over": over, "bar": bar, "kind": kind}
        for name, (measure, over, bar, kind) in CLAIMS.items()
    }
    listed["not_every"]["expected"] = "fails, because one is large"
    listed["two"]["nulls"] = ["not_every", "mean_in", "empty"]
    Path(tmp_path / "claims.yaml").write_text(yaml.safe_dump(listed, sort_keys=False))
    for name, content in MEASURES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    stage("claims", {}, Path("claims.yaml"), [Path(name) for name in MEASURES], Path("out/claims.json"))
    assert files(tmp_path) == ["claims.yaml", *MEASURES, "out/claims.json", "params.yaml"]
    judged = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert list(judged) == list(CLAIMS)
    for name, claim in listed.items():
        described = {key: value for key, value in claim.items() if key != "nulls"}
        if name not in FOUND:
            assert judged[name] == described | {"state": "not run"}
            continue
        file, measure = claim["measure"].split("#")
        one, (value, spread, interval, holds) = MEASURES[file][measure], FOUND[name]
        numbers = {"value": value, "spread": spread, "interval_95": interval}
        numbers |= dict.fromkeys(("min", "max")) if None in one["values"] else {
            "min": min(one["values"]), "max": max(one["values"])
        }  # fmt: skip
        wanted = described | one | {"n": len(one["values"]), "holds": holds, "state": "holds" if holds else "fails"}
        if name == "two":
            wanted["nulls"] = {"not_every": "fails", "mean_in": "holds", "empty": "not run"}
        assert {key: entry for key, entry in judged[name].items() if key not in numbers} == wanted
        for key, number in numbers.items():
            found, number = np.array(judged[name][key], float), np.array(number, float)  # None is no number
            np.testing.assert_allclose(found, number, rtol=1e-5, err_msg=f"{name} {key}")
    assert capsys.readouterr().out.splitlines() == [
        "4 holds",
        "3 fails: not_every, median_out, gap",
        "3 not run: empty, absent, elsewhere",
    ]


def test_the_interval_of_a_median_is_between_ranks_of_its_values(stage, tmp_path):
    """Of 8 values, fewer than 1 or more than 7 lie below the median with 0.8 %; fewer than 2 with 7 %."""
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]
    claim = {**DESCRIBED, "statement": "It is", "measure": "m.json#a", "over": "median", "bar": "[12, 12]"}
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump({"one": claim | {"kind": "control"}}))
    (tmp_path / "m.json").write_text(json.dumps({"a": {"seeds": list(range(8)), "values": values}}))
    stage("claims", {}, Path("claims.yaml"), [Path("m.json")], Path("c.json"))
    judged = json.loads((tmp_path / "c.json").read_text())["one"]
    assert (judged["value"], judged["interval_95"], judged["holds"]) == (12, [1, 128], True)
