"""What git keeps of weight decay: tables, and measures that are those of made tables."""

import itertools
import json
import math
import statistics
from operator import itemgetter

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from tests.stages.made import files

SEEDS, SCALES, SHARES = (4, 7), (-2.0, -6.0), (0.0, 0.2, 0.5, 0.8, 1.3)
LEAST = 0.1
REST = ("rest_error", "ridge_error", "product_error")
OFF_REST = ("on_KQ", "off_KQ", "on_VO", "off_VO")
BALANCES = ("balance_KQ", "balance_VO")


def made():
    draw = np.random.default_rng(6)
    cells = list(itertools.product(SEEDS, SHARES, SCALES))

    def rows(cells, columns, **more):
        keys = ("seed", "share", "log10_init_scale")
        return [
            {**dict(zip(keys, cell, strict=False)), **{key: draw.uniform(1, 2) for key in columns}}
            | more
            for cell in cells
        ]

    def rising(cells, columns, **more):
        found = rows(cells, ("first_rise", "expected", *columns), **more)
        for row in found:
            if row["share"] > 1 and (row["seed"], row["log10_init_scale"]) != (7, -2.0):
                row["first_rise"] = math.inf
        return found

    heads = rising(cells, REST)
    full = rising(cells, (*OFF_REST, *BALANCES), to_rest=False)
    resting = [(seed, share, -0.5) for seed, share in itertools.product(SEEDS, SHARES[:-1])]
    full += rising(resting, (*OFF_REST, *BALANCES), to_rest=True)
    for row in (*heads, *full):
        ranks = ("rank",) if "rest_error" in row else ("rank_KQ", "rank_VO")
        row |= {name: int(draw.integers(1, 9)) for name in ranks}
    stages = [row | {"stage": k, "time": k} for row in rows(cells, ("loss",)) for k in (0, 1)]
    for row in stages:
        row |= {"next_time": 1.0, "n_active": 1, "p": draw.normal(size=2)}
    joins = [
        row | {"coordinate": i, "sign": sign}
        for row in rows(cells, ())
        for i, sign in itertools.product(range(6), (1, -1))
    ]
    for row in joins:
        row |= {name: draw.uniform(1, 9) for name in ("measured", "predicted")}
        row["height"] = draw.uniform(0.05, 0.3)
        row["predicted"] = math.inf if draw.uniform() < 0.2 else row["predicted"]
        row["measured"] = math.inf if draw.uniform() < 0.1 else row["measured"]
    courses = [row | {"rescaled_time": 1.0, "p": np.ones(2)} for row in rows(cells, ())]
    return {"heads": heads, "full": full, "stages": stages, "rises": joins, "courses": courses}


@pytest.fixture
def judged(stage, tmp_path):
    tables = made()
    (tmp_path / "d").mkdir()
    for name, rows in tables.items():
        pd.DataFrame(rows).sample(frac=1, random_state=1).to_parquet(tmp_path / f"d/{name}.parquet")
    sections = {"any.significant": LEAST}
    stage("gradual_rank.judge_decay", sections, *sections, tmp_path / "d", tmp_path / "m")
    measures = json.loads((tmp_path / "m" / "measures.json").read_text())
    kept = {
        name: pd.read_parquet(tmp_path / "m/tables" / name) for name in files(tmp_path / "m/tables")
    }
    return tables, measures, {name.removesuffix(".parquet"): table for name, table in kept.items()}


def test_measures_and_tables_are_those_of_plain_loops(judged):
    """One test, as one run writes all."""
    tables, measures, kept = judged
    assert measures.pop("setup") == {"n_seeds": 2, "most": 0.8, "shown": 0.5}
    check_first_rises(tables, measures)
    check_rests(tables, measures)
    check_joins(tables, measures, kept["joins"])
    check_ranks(tables, measures)
    assert not measures
    check_tables(tables, kept)


def where(rows, **values):
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def check(measure, wanted):
    """A measure by the names of its cases."""
    found = dict(zip(measure["cases"], measure["values"], strict=True))
    assert found == pytest.approx(wanted, rel=1e-4)


def check_by_scale(measure, rows, value):
    """A value of each row with a share between 0 and 1, the smallest scale last."""
    assert list(measure) == ["1e-2", "1e-6"]
    for scale in SCALES:
        chosen = [row for row in where(rows, log10_init_scale=scale) if 0 < row["share"] < 1]
        wanted = {f"seed {row['seed']}, share {row['share']:g}": value(row) for row in chosen}
        check(measure[f"1e{scale:g}"], wanted)


def check_first_rises(tables, measures):
    above = dict.fromkeys(("4", "7"), 0)
    for name, rows in (
        ("rise", tables["heads"]),
        ("full_rise", where(tables["full"], to_rest=False)),
    ):

        def undecayed(row, rows=rows):
            same = {key: row[key] for key in ("seed", "log10_init_scale")}
            [base] = where(rows, share=0.0, **same)
            return abs(base["expected"] / row["first_rise"] - 1)

        check_by_scale(
            measures.pop(f"decay_{name}_error"),
            rows,
            lambda row: abs(row["expected"] / row["first_rise"] - 1),
        )
        check_by_scale(measures.pop(f"decay_{name}_undecayed"), rows, undecayed)
        for row in where(rows, share=1.3):
            above[str(row["seed"])] += row["first_rise"] < math.inf
    assert above == {"4": 0, "7": 2}
    check(measures.pop("decay_risen_above"), above)


def check_rests(tables, measures):
    for name in REST:
        check_by_scale(measures.pop(f"decay_{name}"), tables["heads"], itemgetter(name))
    rows = [row for row in where(tables["full"], to_rest=True) if row["share"] > 0]
    cases = [f"seed {row['seed']}, share {row['share']:g}" for row in rows]
    worst = [max(row[name] for name in OFF_REST) for row in rows]
    check(measures.pop("decay_full_rest_error"), dict(zip(cases, worst, strict=True)))
    apart = [max(abs(row[name] - 1) for name in BALANCES) for row in rows]
    check(measures.pop("decay_full_balance"), dict(zip(cases, apart, strict=True)))


def without(tables, row):
    same = {key: row[key] for key in ("seed", "log10_init_scale", "coordinate", "sign")}
    [base] = where(tables["rises"], share=0.0, **same)
    return base["predicted"]


def check_joins(tables, measures, kept):
    counted = [
        row
        for row in tables["rises"]
        if row["predicted"] < math.inf and row["height"] > LEAST and 0 < row["share"] < 1
    ]
    assert len(kept) == len(counted)
    for kind, suffix in (("predicted", ""), ("without", "_without")):
        constants, orders = {}, {}
        for seed, share, scale in itertools.product(SEEDS, SHARES[1:-1], SCALES):
            rows = where(counted, seed=seed, share=share, log10_init_scale=scale)
            times = [row["measured"] for row in rows]
            theory = [
                row["predicted"] if kind == "predicted" else without(tables, row) for row in rows
            ]
            errors = [
                abs(a - b) / a if a < math.inf else 1.0 for a, b in zip(times, theory, strict=True)
            ]
            case = (f"1e{scale:g}", f"seed {seed}, share {share:g}")
            constants[case] = statistics.median(errors) * -scale * math.log(10)
            orders[case] = kendalltau(times, theory).statistic
        for name, wanted in (("time_constant", constants), ("order", orders)):
            measure = measures.pop(f"decay_{name}{suffix}")
            for scale in ("1e-2", "1e-6"):
                own = {case: value for (at, case), value in wanted.items() if at == scale}
                finite = {case: value for case, value in own.items() if value < math.inf}
                found = dict(zip(measure[scale]["cases"], measure[scale]["values"], strict=True))
                assert {case for case, value in found.items() if value is None} == set(own) - set(
                    finite
                )
                kept_values = {case: value for case, value in found.items() if case in finite}
                assert kept_values == pytest.approx(finite, rel=1e-4)


def check_ranks(tables, measures):
    resting = where(tables["full"], to_rest=True)
    smallest = where(tables["heads"], log10_init_scale=-6.0)
    for name, rows, column in (
        ("decay_rank_kept", smallest, "rank"),
        ("decay_rank_kept_KQ", resting, "rank_KQ"),
        ("decay_rank_kept_VO", resting, "rank_VO"),
    ):
        ranks = {(row["seed"], row["share"]): row[column] for row in rows}
        wanted = {str(seed): ranks[seed, 0.8] / ranks[seed, 0.0] for seed in SEEDS}
        check(measures.pop(name), wanted)


def check_tables(tables, kept):
    assert set(kept) == {"heads", "full_rises", "full_rests", "joins", "course", "plateaus"}
    [shown] = kept["course"].to_dict("records")
    assert (shown["seed"], shown["share"], shown["log10_init_scale"]) == (4, 0.5, -6.0)
    assert len(kept["full_rises"]) == 20
    assert len(kept["full_rests"]) == 8
    assert len(kept["plateaus"]) == len(tables["stages"])
    for row in kept["heads"].to_dict("records"):
        [base] = [
            one
            for one in where(tables["heads"], share=0.0, seed=row["seed"])
            if one["log10_init_scale"] == row["log10_init_scale"]
        ]
        assert row["undecayed"] == pytest.approx(base["expected"], rel=1e-6)
