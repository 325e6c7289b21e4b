"""A verdict holds the claim, its numbers over seeds, and whether they meet the bar; nothing else is
written.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.special import ndtr, ndtri
from scipy.stats import quantile_test

from lib.files.files import InputError
from tests.stages.made import files

DESCRIBED = {"where": "figure 2", "source": "[C]"}
GROUPS = {
    "first": {
        "family": "toy",
        "measures": "metrics/a.json",
        "figures": "plots/a",
        "command": "dvc repro a",
    },
    "second": {
        "family": "toy",
        "measures": "metrics/b.json",
        "figures": "plots/b",
        "command": "dvc repro b",
    },
    "third": {
        "family": "far",
        "measures": "published/c.json",
        "figures": "published/c",
        "command": "make c",
    },
}
MEASURES = {
    "metrics/a.json": {
        "setup": {"d": 8, "scale": 0.01, "law": "zipf"},
        "skewed": {"cases": ["3", "1", "2"], "values": [1.0, 1.25, 3.9375]},
        "two": {"cases": ["joint", "alone"], "values": [0.5, 0.25]},
        "gap": {"cases": ["0", "1"], "values": [1.5, None]},
        "scaled": {
            "1e-4": {"cases": ["0", "1"], "values": [0.5, 0.25]},
            "1e-8": {"cases": ["4"], "values": [-2.0]},
            "1e-1000": {"cases": [], "values": []},
        },
    },
    "metrics/b.json": {
        "setup": {"d": 8, "scale": 0.000025, "law": "flat"},
        "skewed": {"cases": ["6"], "values": [-2.0]},
        "empty": {"cases": [], "values": []},
        "scaled": {"1e-4": {"cases": [], "values": []}},
    },
    "published/c.json": {"setup": {"d": 1, "scale": 2.5, "law": "any"}},
}
# By the claim: group, measure, over, bar, kind; then what is found: value, spread, whether it
# holds, at which scale.
SKEWED = [1.0, 1.25, 3.9375]

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
    "every_scale": ("first", "scaled", "mean", "(-3, 1)", "assumption"),
    "no_scale_beyond": ("first", "scaled@>=1e-3", "every", "(0, 1)", "our bar"),
    "down_from": ("first", "scaled@<=1e-4", "every", "(0, 1)", "our bar"),
    "up_from": ("first", "scaled@>=1e-5", "every", "(0, 1)", "our bar"),
    "scale_of_none": ("first", "two@1e-4", "every", "(0, 1)", "our bar"),
    "empty_scale": ("second", "scaled@1e-4", "every", "(0, 1)", "our bar"),
    "empty": ("second", "empty", "mean", "[0, 1]", "our bar"),
    "absent": ("second", "absent", "mean", "[0, 1]", "our bar"),
    "elsewhere": ("third", "skewed", "mean", "[0, 1]", "our bar"),
}
BOTH = {"1e-4": 0.375, "1e-8": -2.0}
FOUND = {
    "mean_in": (np.mean(SKEWED), np.std(SKEWED, ddof=1), True, None),
    "not_every": (np.mean(SKEWED), np.std(SKEWED, ddof=1), False, None),
    "every": (np.mean(SKEWED), np.std(SKEWED, ddof=1), True, None),
    "median_out": (1.25, (2.59375 - 1.125) / 2, False, None),  # half the distance of the quartiles
    "two": (0.375, np.std([0.5, 0.25], ddof=1), True, None),
    "one": (-2.0, None, True, None),
    "gap": (None, None, False, None),
    "coarse": (0.375, np.std([0.5, 0.25], ddof=1), True, {"1e-4": 0.375}),
    "fine": (-2.0, None, False, {"1e-8": -2.0}),
    "every_scale": (
        0.375,
        np.std([0.5, 0.25], ddof=1),
        True,
        BOTH,
    ),  # 0.625 from the bar's end, the other 1
    "down_from": (-2.0, None, False, BOTH),
    "up_from": (0.375, np.std([0.5, 0.25], ddof=1), True, {"1e-4": 0.375}),
}


def grouped(claims, groups=GROUPS):
    """The groups with their claims, as in claims.yaml, from claims that name their group."""
    found = {}
    for name, group in groups.items():
        own = {key: claim for key, (home, claim) in claims.items() if home == name}
        fails = {
            key: claim["expected"].removeprefix("fails, because ")
            for key, claim in own.items()
            if "expected" in claim
        }
        found[name] = group | {
            "fails": fails,
            "claims": [{"claims": {key: written(c) for key, c in own.items()}}],
        }
    return found


def written(claim):
    """A claim as it is written, from what its verdict says of it."""
    kept = {key: claim[key] for key in ("statement", "nulls", "figure") if key in claim}
    source = f"{claim['kind']} {claim['source']}, {claim['where']}"
    return kept | {
        "source": source,
        "test": f"{claim['over']} {claim['measure']} in {claim['bar']}",
    }


def found(measure, scale):
    """The cases and values of a measure in its file, at a scale where there are any."""
    file, name = measure.split("#")
    measure = MEASURES[file][name.partition("@")[0]]
    return measure[scale] if scale else measure


def test_every_verdict_is_worked_out_by_hand(stage, tmp_path, capsys):
    listed: dict[str, tuple[str, dict[str, Any]]] = {
        name: (
            group,
            {
                **DESCRIBED,
                "statement": f"It is {name} at {{d}}, {{scale}}, {{law}}",
                "measure": measure,
                "over": over,
                "bar": bar,
                "kind": kind,
            }
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
    paths = (
        [Path("claims.yaml"), *map(Path, MEASURES)],
        Path("out/claims.json"),
    )
    stage("claims", {}, *paths)
    assert files(tmp_path) == sorted(["claims.yaml", *MEASURES, "out/claims.json", "params.yaml"])
    judged = json.loads((tmp_path / "out" / "claims.json").read_text())
    in_order = sorted(
        CLAIMS, key=lambda name: list(GROUPS).index(CLAIMS[name][0])
    )  # group by group
    assert list(judged) == [f"{GROUPS[CLAIMS[name][0]]['family']}_{name}" for name in in_order]
    judged = {name.partition("_")[2]: claim for name, claim in judged.items()}
    for name, (home, claim) in listed.items():
        group = GROUPS[home]
        filled = {"first": "8, 0.01, zipf", "second": "8, 2.5e-05, flat", "third": "1, 2.5, any"}[
            home
        ]
        described = {key: value for key, value in claim.items() if key != "nulls"} | {
            "statement": f"It is {name} at {filled}",
            "family": group["family"],
            "measure": f"{group['measures']}#{claim['measure']}",
            "figure": f"{group['figures']}/of-{name}.svg",
            "command": group["command"],
        }
        if name not in FOUND:
            assert judged[name] == described | {"state": "not run"}
            continue
        value, spread, holds, scales = FOUND[name]
        nearest = scales and ("1e-4" if holds else "1e-8")
        one = found(described["measure"], nearest)
        numbers = {
            "value": value,
            "spread": spread,
            "interval_95": [None, None],
        }  # of fewer than five cases
        numbers |= (
            dict.fromkeys(("min", "max"))
            if None in one["values"]
            else {"min": min(one["values"]), "max": max(one["values"])}
        )
        if scales:
            described |= {"scale": nearest, "scales": scales}
        wanted = (
            described
            | one
            | {"n": len(one["values"]), "holds": holds, "state": "holds" if holds else "fails"}
        )
        if name == "two":
            wanted["nulls"] = {"toy_not_every": "beats", "toy_one": "beats", "toy_empty": "not run"}
        assert {key: entry for key, entry in judged[name].items() if key not in numbers} == wanted
        for key, number in numbers.items():
            written, number = (
                np.array(judged[name][key], float),
                np.array(number, float),
            )  # None is no number
            np.testing.assert_allclose(written, number, rtol=1e-5, err_msg=f"{name} {key}")
    holding, failing, *not_run = capsys.readouterr().out.splitlines()
    assert (holding, failing) == ("7 holds", "5 fails")
    names = ["finer", "no_scale_beyond", "scale_of_none", "empty_scale", "empty", "absent"]
    assert [line.partition(",")[0] for line in not_run] == [
        *(f"not run: toy_{name}" for name in names),
        "not run: far_elsewhere",
    ]


def test_measures_of_another_family_are_refused_by_name(stage, capsys):
    """None of several is there; with one of them, a sweep may have left the others out."""
    claim = DESCRIBED | {
        "statement": "S",
        "kind": "our bar",
        "over": "every",
        "bar": "[0, 1]",
        "figure": "f",
    }
    listed = {name: ("first", claim | {"measure": name}) for name in ("one", "two")}
    Path("claims.yaml").write_text(
        yaml.safe_dump(grouped(listed, {"first": GROUPS["first"] | {"measures": "m"}}))
    )
    files = [Path("claims.yaml"), Path("m")], Path("c.json")
    found = {"setup": {"d": 8}, "other": {"cases": ["0"], "values": [0.5]}}
    Path("m").write_text(json.dumps(found))
    with pytest.raises(InputError, match=r"^m: wanted measures such as 'one', got setup, other$"):
        stage("claims", {}, *files)
    assert not Path("c.json").exists()
    Path("m").write_text(json.dumps(found | {"two": found["other"], "onee": found["other"]}))
    stage("claims", {}, *files)
    states = {name: one["state"] for name, one in json.loads(Path("c.json").read_text()).items()}
    assert states == {"toy_one": "not run", "toy_two": "holds"}
    assert "not run: toy_one, as m has no one; nearly so called: onee\n" in capsys.readouterr().out


def test_measures_by_other_than_init_scales_are_refused_where_a_claim_wants_them(stage):
    claim = DESCRIBED | {
        "statement": "S",
        "kind": "our bar",
        "over": "every",
        "bar": "[0, 1]",
        "figure": "f",
    }
    listed = {"one": ("first", claim | {"measure": "a@<=1e-2"})}
    Path("claims.yaml").write_text(
        yaml.safe_dump(grouped(listed, {"first": GROUPS["first"] | {"measures": "m"}}))
    )
    Path("m").write_text(json.dumps({"a": {"tied": {"cases": ["0"], "values": [0.5]}}}))
    with pytest.raises(
        InputError, match=r"^m: a: wanted values by init scale, got them by 'tied'$"
    ):
        stage("claims", {}, [Path("claims.yaml"), Path("m")], Path("c.json"))


@pytest.mark.parametrize(
    ("test", "own", "null", "said"),
    [
        (
            "every a in (1, inf)",
            {"0": 1.2, "1": 1.3},
            {"0": 1.8, "1": 1.9},
            "does not beat",
        ),  # though the null holds
        (
            "every a in (1, inf)",
            {"0": 1.2, "1": 1.3},
            {"0": 0.9, "1": 1.1},
            "beats",
        ),  # though the null fails
        (
            "every a in (1, inf)",
            {"0": 1.2, "1": 1.9},
            {"1": 1.8, "0": 1.1},
            "beats",
        ),  # in pairs, not at worst
        ("every a in (1, inf)", {"0": 1.2, "1": 1.3}, {"0": 1.1, "1": 1.3}, "does not beat"),
        (
            "every a in (1, inf)",
            {"0": 1.2, "1": 1.9},
            {"2": 1.1, "3": 1.3},
            "does not beat",
        ),  # no pairs: each and each
        ("every a in [-1, -0.9]", {"0": -0.95}, {"0": 0.9}, "beats"),
        ("every a in [0, 0.1]", {"0": 0.05}, {"0": 0.07}, "beats"),  # an error: the smaller one
        ("every a in [0.9, 1]", {"0": 0.99}, {"0": 0.95}, "beats"),  # a share: the larger one
        ("mean a in (1, inf)", {"0": 1.2, "1": 1.9}, {"0": 1.3, "1": 1.7}, "beats"),
        (
            "median a in (1, inf)",
            {"0": 1, "1": 2, "2": 9},
            {"0": 3, "1": 3, "2": 3},
            "does not beat",
        ),
        (
            "every a@<=1e-2 in [0, 1]",
            {"1e-2": 0.5, "1e-4": 0.3},
            {"1e-2": 0.6, "1": 0.1},
            "beats",
        ),  # scales of both
        (
            "every a@<=1e-2 in [0, 1]",
            {"1e-2": 0.5, "1e-4": 0.3},
            {"1": 0.4},
            "does not beat",
        ),  # none is: each and each
        ("every a in [0, 1]", {"0": None}, {"0": 2}, "does not beat"),
    ],
)
def test_a_claim_beats_a_null_where_its_numbers_are_nearer_to_its_bar(stage, test, own, null, said):
    """Whether the null's own bar is met plays no part."""

    def measure(values: dict[str, float | None]) -> dict[str, Any]:
        if "@" in test:
            return {scale: {"cases": ["0"], "values": [value]} for scale, value in values.items()}
        return {"cases": list(values), "values": list(values.values())}

    shared = {"source": "our bar [C], figure 2", "figure": "f"}
    claims = {
        "one": {"statement": "S", "test": test, "nulls": ["other"]},
        "other": {"statement": "S", "test": "every b in (1, inf)"},
    }
    group = GROUPS["first"] | {"measures": "m", "claims": [{**shared, "claims": claims}]}
    Path("claims.yaml").write_text(yaml.safe_dump({"first": group}, sort_keys=False))
    Path("m").write_text(json.dumps({"a": measure(own), "b": measure(null)}))
    stage("claims", {}, [Path("claims.yaml"), Path("m")], Path("c.json"))
    assert json.loads(Path("c.json").read_text())["toy_one"]["nulls"] == {"toy_other": said}


def judged(stage, folder, values, over="median", bar="[12, 12]"):
    """The verdict on these values, or on those of each scale."""
    claim = {
        **DESCRIBED,
        "statement": "It is",
        "measure": "a",
        "over": over,
        "bar": bar,
        "figure": "a",
    }
    groups = grouped(
        {"one": ("first", claim | {"kind": "control"})},
        {"first": GROUPS["first"] | {"measures": "m"}},
    )
    (folder / "claims.yaml").write_text(yaml.safe_dump(groups))
    by_scale = values if isinstance(values, dict) else {"": values}
    by_scale = {
        scale: {"cases": [str(i) for i in range(len(v))], "values": v}
        for scale, v in by_scale.items()
    }
    (folder / "m").write_text(json.dumps({"a": by_scale.get("", by_scale)}))
    stage("claims", {}, [Path("claims.yaml"), Path("m")], Path("c.json"))
    return json.loads((folder / "c.json").read_text())["toy_one"]


def test_the_interval_of_a_median_is_between_ranks_of_its_values(stage, tmp_path):
    """Of 8 values, fewer than 1 or more than 7 lie below the median with 0.8 %; fewer than 2 with 7
    %.
    """
    found = judged(stage, tmp_path, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0])
    assert (found["value"], found["interval_95"], found["holds"]) == (12, [1, 128], True)


def test_the_interval_of_a_median_is_scipys(stage, tmp_path):
    for n in range(5, 41):
        values = np.random.default_rng(n).permutation(np.arange(n) ** 2.0)
        wanted = quantile_test(values, q=0.0, p=0.5).confidence_interval(0.95)
        ends = [wanted.low, wanted.high]  # pyright: ignore[reportAttributeAccessIssue]
        found = np.array(judged(stage, tmp_path, values.tolist())["interval_95"], float)
        np.testing.assert_array_equal(found, ends, err_msg=f"{n} values")


def test_the_interval_of_a_mean_is_that_of_the_bootstrap_corrected_for_bias_and_skewness(
    stage, tmp_path
):
    """Efron's BCa: quantiles of the means of resamples, at levels that the bias and the jackknife's
    skewness shift.
    """
    for n in (5, 8, 20):
        values = np.exp(np.random.default_rng(n).normal(size=n))
        means = np.random.default_rng(1).choice(values, (200_000, n)).mean(axis=1)
        z0 = ndtri(np.mean(means < values.mean()))
        left = values.mean() - (values.sum() - values) / (n - 1)  # of each jackknife
        a = np.sum(left**3) / (6 * np.sum(left**2) ** 1.5)
        z = z0 + ndtri([0.025, 0.975])
        wanted = np.quantile(means, ndtr(z0 + z / (1 - a * z)))
        found = judged(stage, tmp_path, values.tolist(), "mean")["interval_95"]
        np.testing.assert_allclose(found, wanted, rtol=0.03, err_msg=f"{n} values")


@pytest.mark.parametrize("over", ["mean", "every", "median"])
@pytest.mark.parametrize(
    "values",
    [[1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 0.95], [1e-12, 3e-9, 1e-3, 1e-8, 0.0, 1e-7, 1e-9]],
)
def test_an_interval_of_shares_or_of_positive_values_holds_none_that_cannot_be(
    stage, tmp_path, values, over
):
    low, high = judged(stage, tmp_path, values, over)["interval_95"]
    assert min(values) <= low < high <= max(values)


@pytest.mark.parametrize("values", [[0.5, 1.0, 0.25, 0.75], [0.5] * 8])
@pytest.mark.parametrize("over", ["mean", "median"])
def test_fewer_than_five_values_or_equal_ones_have_no_interval(stage, tmp_path, values, over):
    assert judged(stage, tmp_path, values, over)["interval_95"] == [None, None]


@pytest.mark.parametrize(
    ("bar", "over", "values", "scale"),
    [
        (
            "[0, 5]",
            "mean",
            {"1e-2": [1], "1e-4": [4], "1e-8": [0]},
            "1e-4",
        ),  # an error is not too small
        (
            "(0, 1]",
            "mean",
            {"1e-2": [0.1], "1e-4": [0.4], "1e-8": [0.2]},
            "1e-4",
        ),  # a ratio is not too small
        (
            "[0.5, 1]",
            "mean",
            {"1e-2": [0.6], "1e-4": [0.9], "1e-8": [1]},
            "1e-2",
        ),  # a share is not too large
        ("[0.4, 0.7]", "mean", {"1e-2": [0.5], "1e-4": [0.69], "1e-8": [0.45]}, "1e-4"),
        ("(0, inf)", "mean", {"1e-2": [3], "1e-4": [2], "1e-8": [9]}, "1e-4"),
        ("[0, 5]", "every", {"1e-2": [0, 4.5], "1e-4": [3, 3]}, "1e-2"),
        ("[0, 5]", "mean", {"1e-2": [0, 4.5], "1e-4": [3, 3]}, "1e-4"),
        ("[0, 5]", "mean", {"1e-2": [6, 7], "1e-4": [3, 3], "1e-1000": [9, 0]}, "1e-2"),
        ("[0, 5]", "every", {"1e-2": [6, 7], "1e-4": [3, None]}, "1e-4"),
    ],
)
def test_of_several_scales_that_is_shown_which_is_nearest_to_failing(
    stage, tmp_path, bar, over, values, scale
):
    claim = judged(stage, tmp_path, values, over, bar)
    assert claim["scale"] == scale
    assert claim["scales"].keys() == values.keys()
    assert claim["holds"] is all(
        value is not None
        and (value if over == "every" else np.mean(each)) <= float(bar[1:-1].split(",")[1])
        for each in values.values()
        for value in each
    )


def test_a_statement_that_names_what_the_setup_lacks_is_refused(stage, tmp_path):
    claim = {
        **DESCRIBED,
        "statement": "{d} or {n}",
        "measure": "a",
        "over": "mean",
        "bar": "[0, 1]",
        "figure": "a",
    }
    groups = grouped(
        {"one": ("first", claim | {"kind": "control"})},
        {"first": GROUPS["first"] | {"measures": "m"}},
    )
    (tmp_path / "claims.yaml").write_text(yaml.safe_dump(groups))
    (tmp_path / "m").write_text(json.dumps({"setup": {"d": 8}}))
    with pytest.raises(InputError, match=r"m: setup: wanted 'n' for a statement, got \['d'\]"):
        stage("claims", {}, [Path("claims.yaml"), Path("m")], Path("c.json"))
