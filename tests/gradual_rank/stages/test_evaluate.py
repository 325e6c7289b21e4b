"""What git keeps of gradual rank: every measure and every table, against ones made by hand."""

import pandas as pd
import pytest

from tests.gradual_rank.evaluate_made import (
    LASTING,
    N_BUDGETS,
    NEAR,
    PROBLEMS,
    RETURNED,
    RISEN,
    SIGNIFICANT,
    TINY,
    made,
)
from tests.gradual_rank.evaluate_wanted import DERIVED, MEASURES, SETUP
from tests.gradual_rank.whole_tables import whole_of
from tests.stages.made import files, read_measures, table, worked_out

KEPT = []  # what one run of the stage wrote


@pytest.fixture
def evaluate(stage, tmp_path):
    """Call `evaluate(tables, seed)` runs the stage: the setup, the measures and the tables."""

    def run(tables, seed=5):
        for name, one in tables.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            whole_of(name, one).to_parquet(tmp_path / f"{name}.parquet")
        (tmp_path / "problems.tsv").write_text(PROBLEMS)
        counted = {"significant": SIGNIFICANT, "lasting": LASTING, "n_budgets": N_BUDGETS}
        sections = {
            "any.evaluate": counted | {"figure_seed": seed},
            "any.bars": {"log10_init_scale": TINY, "returned": RETURNED, "near": NEAR},
            "any.risen": RISEN,
            "any.studied": "small",
            "any.usual": {"d_model": 3, "n_samples": 1},
        }
        names = ["problems.tsv", "predictions", "flows", "descents", "disturbed"]
        names += ["rises.parquet", "spectra.parquet", "metrics", "curves.csv"]
        paths = [tmp_path / name for name in names]
        stage("gradual_rank.evaluate", sections, *sections, *paths)
        written = files(tmp_path / "metrics" / "tables")
        kept = {
            name.removesuffix(".parquet"): pd.read_parquet(tmp_path / "metrics" / "tables" / name)
            for name in written
        }
        curves = pd.read_csv(tmp_path / "curves.csv")
        return *read_measures(tmp_path / "metrics"), kept, curves

    return run


@pytest.fixture
def evaluated(evaluate):
    if not KEPT:
        KEPT.extend(evaluate(made()))
    return KEPT


def test_every_measure_is_the_one_worked_out_by_hand(evaluated):
    setup, measures, *_ = evaluated
    assert {f"{name}: {value}" for name, value in setup.items()} == {*SETUP.strip().splitlines()}
    wanted = worked_out(MEASURES)
    assert measures == wanted
    assert [list(by_scale) for by_scale in measures.values()] == [
        list(wanted[name]) for name in measures
    ]


@pytest.mark.parametrize("name", DERIVED)
def test_a_table_of_figures_holds_what_is_worked_out_by_hand(evaluated, name):
    wanted = table(DERIVED[name])
    found = evaluated[2][name.removesuffix("_1")][list(wanted)].astype(wanted.dtypes.to_dict())
    pd.testing.assert_frame_equal(found, wanted, rtol=2e-5, check_dtype=False)


def test_other_tables_are_handed_on_and_what_no_figure_draws_is_left_out(evaluated):
    before, kept = made(), evaluated[2]
    for name in ("disturbed/returns", "disturbed/kicks", "descents/drop", "rises"):
        wanted = before[name]
        found = kept[name.rpartition("/")[2]].astype(wanted.dtypes.to_dict())
        pd.testing.assert_frame_equal(found, wanted, rtol=1e-6, check_like=True, obj=name)
    assert not {"g", "support"} & set(kept["stages"])
    assert not {"time", "charge"} & set(kept["trajectories"])
    assert not {"time", "loss", "p"} & set(kept["charges"])
    assert not {"float64", "int64"} & {str(kind) for one in kept.values() for kind in one.dtypes}


def test_the_curves_are_every_fourth_look_of_the_studied_problem(evaluated):
    curves = evaluated[3]
    wanted = [("init scale 1e-2", 0, 1), ("init scale 1e-4", 1, 0.6)]
    assert list(curves.itertuples(index=False, name=None)) == wanted
    assert list(curves) == ["variant", "rescaled_time", "loss"]


def test_paths_are_those_of_the_shown_seed_under_independent_noise(evaluated):
    paths = evaluated[2]["paths"]
    assert paths[["point", "after"]].values.tolist() == [[2, 20], [0, 20], [0, 0]]
    assert [p.tolist() for p in paths["p"]] == [[0.5, 0.03125], [1], [3]]


def test_what_was_not_forecast_has_no_ranks_and_a_seed_not_run_no_paths(evaluate):
    tables = made()
    tables["predictions/small_events"]["log10_init_scale"] = -3.0  # none flows from 1e-3
    _, measures, kept, _ = evaluate(tables, seed=1)
    assert {name for name, one in kept.items() if one.empty} == {"ranks", "paths", "full_weights"}
    columns = ["seed", "log10_init_scale", "rescaled_time", "measured", "finite", "limit"]
    assert list(kept["ranks"]) == columns
    assert not {"rank_error.head", "finite_time_error.small"} & measures.keys()
    assert kept["errors"]["finite_error_median"].isna().all()
