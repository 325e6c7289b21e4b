"""The stage evaluate: every measure and table, by hand from tables of made-up numbers."""

import numpy as np
import pandas as pd
import pytest

from tests.checkpoints.checkpoints_tables import MODELS, RUNS
from tests.stages.made import read_measures

CELL = ["model", "run", "budget"]


@pytest.fixture(scope="module")
def written(evaluated):
    """The setup and the measures that were written."""
    return read_measures(evaluated[1])


@pytest.fixture(scope="module")
def measures(written):
    return written[1]


def check(measures, wanted):
    """Measures have these values, by the names of their units."""
    for name, values in wanted.items():
        [found] = measures[name].values()
        units = [" ".join(map(str, np.atleast_1d(unit))) for unit in values.index]
        assert found == pytest.approx(dict(zip(units, values, strict=True)), rel=1e-5, abs=1e-6)


def test_rules_are_compared_in_every_cell_and_with_the_best_shuffle(evaluated, measures):
    plans = evaluated[0]["plans"]
    plain, shuffles = plans[plans["shuffle"] == 0], plans[plans["shuffle"] > 0]
    lost = plain.pivot(index=CELL, columns="rule", values="share_lost")
    lost["shuffled"] = shuffles.groupby(CELL)["share_lost"].min()
    wanted = {
        "attributed_less_uniform": lost["attributed"] - lost["uniform"],
        "attributed_less_energy": lost["attributed"] - lost["energy"],
        "attributed_less_shuffled": lost["attributed"] - lost["shuffled"],
        "energy_less_uniform": lost["energy"] - lost["uniform"],
        "water_filling_less_uniform": lost["water-filling"] - lost["uniform"],
    }
    check(measures, wanted)


def test_attribution_is_compared_with_the_drop(evaluated, measures):
    losses = evaluated[0]["losses"].set_index(["model", "run"])
    check(measures, {"attribution_error": abs(losses["attributed"] / losses["drop"] - 1)})


def test_ranks_of_rounded_weights_are_compared_with_exact_ones_by_the_size_of_updates(
    evaluated, measures
):
    means = evaluated[0]["rounding"].groupby(["model", "run", "step"]).mean(numeric_only=True)
    ratio = means["rank_90_stored"] / means["rank_90"]
    slight = means["relative_update"] < 0.02
    assert 0 < slight.sum() < len(slight)
    wanted = {"larger": ratio[~slight], "slight": ratio[slight]}
    check(measures, {f"rounded_over_exact_rank.{name}": of for name, of in wanted.items()})


def test_what_the_edge_of_rounding_tells_is_said_of_slight_updates_and_of_the_worst_matrix(
    evaluated, measures
):
    snapshots = evaluated[0]["rounding"].groupby(["model", "run", "step"])
    means = snapshots.mean(numeric_only=True)
    counted = means["above_edge_stored"] - means["above_edge"]
    wanted = {"counted_above_edge": counted[means["relative_update"] < 0.02]}
    check(measures, wanted | {"noise_over_edge": snapshots["noise_over_edge"].max()})


def test_early_ranks_are_compared_with_the_last_ones_over_the_modules(evaluated, measures):
    """Spearman's correlation, from the differences of the places of three modules."""
    wanted = {}
    for case, rows in evaluated[0]["rounding"].groupby(["model", "run"]):
        first, last = (
            rows[rows["step"] == step].set_index("module")["rank_90"].rank() for step in (1, 9)
        )
        wanted[case] = 1 - 6 * (first - last).pow(2).sum() / (3 * (3**2 - 1))
    assert len(set(wanted.values())) > 1
    check(measures, {"early_rank_order": pd.Series(wanted)})


def test_taking_back_entries_at_random_is_compared_with_the_smallest_first(evaluated, measures):
    """The comparison is at the middle rate, in losses above the tuned model's."""
    table = evaluated[0]["pruning"]
    at = table[table["rate"] == 0.5].pivot(index=["model", "run"], columns="what", values="loss")
    cost = at.sub(evaluated[0]["losses"].set_index(["model", "run"])["loss_tuned"], axis=0)
    ratio = cost["updates, at random"] / cost["updates, smallest first"]
    check(measures, {"random_over_smallest": ratio})


def test_heads_of_permuted_text_are_compared_with_those_of_text_at_the_end(evaluated, measures):
    table = evaluated[0]["pretrained"]
    last = (table["step"] == 8) & (table["offset"] == 0) & (table["of"] == "update")
    rows = table[last & (table["head"] > 0)]
    means = rows.groupby(["module", "model", "run"])["stable_rank"].mean().unstack()
    ratio = means["permuted"] / means["language"]
    check(measures, {f"permuted_over_learned.{name}": ratio[name] for name in ("W_KQ", "W_VO")})


def test_claims_are_told_the_sizes_of_what_was_measured(written):
    assert written[0] == {"pruning_rate": "50%", "slight": "0.02"}


def test_tables_for_the_figures_are_whole(evaluated):
    tables, folder = evaluated
    found = {path.stem: pd.read_parquet(path) for path in (folder / "tables").iterdir()}
    heads = found.pop("heads")
    for name, table in found.items():
        assert set(table) == set(tables[name])
        assert len(table) == len(tables[name])
    assert len(found) == 5
    assert list(found["losses"]["model"]) == [model for model in MODELS for _ in RUNS]
    assert set(heads["text"]) == {"language", "permuted"}
    assert set(heads["head"]) == {1, 2}
    assert set(heads["step"]) == {1, 8}, "before its first step nothing was learned"
