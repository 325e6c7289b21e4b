"""The stage evaluate: every measure and table, by hand from tables of made-up numbers."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.checkpoints.checkpoints_tables import MODELS, RUNS

CELL = ["model", "run", "budget"]


@pytest.fixture(scope="module")
def measures(evaluated):
    return json.loads((evaluated[1] / "measures.json").read_text())


def check(measures, name, wanted):
    """The measure has these values, by the names of its cases."""
    found = dict(zip(measures[name]["cases"], measures[name]["values"], strict=True))
    cases = [" ".join(map(str, np.atleast_1d(case))) for case in wanted.index]
    wanted = dict(zip(cases, wanted, strict=True))
    assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)


def lost(plans, rule):
    rows = plans[(plans["rule"] == rule) & (plans["shuffle"] == 0)]
    return rows.set_index(CELL)["share_lost"]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("attributed_less_uniform", "attributed", "uniform"),
        ("attributed_less_energy", "attributed", "energy"),
        ("energy_less_uniform", "energy", "uniform"),
        ("water_filling_less_uniform", "water-filling", "uniform"),
    ],
)
def test_rules_are_compared_in_every_cell(evaluated, measures, name, one, other):
    plans = evaluated[0]["plans"]
    check(measures, name, lost(plans, one) - lost(plans, other))


def test_the_attributed_rule_is_compared_with_its_best_shuffle(evaluated, measures):
    plans = evaluated[0]["plans"]
    best = plans[plans["shuffle"] > 0].groupby(CELL)["share_lost"].min()
    check(measures, "attributed_less_shuffled", lost(plans, "attributed") - best)


@pytest.mark.parametrize("rule", ["attributed", "uniform"])
def test_shares_lost_are_of_the_largest_and_the_least_budget(evaluated, measures, rule):
    shares = lost(evaluated[0]["plans"], rule).unstack()
    check(measures, f"share_lost_{rule}", shares[4])
    check(measures, f"share_lost_{rule}_least", shares[1])


def test_attribution_is_compared_with_the_drop(evaluated, measures):
    losses = evaluated[0]["losses"].set_index(["model", "run"])
    check(measures, "attribution_error", abs(losses["attributed"] / losses["drop"] - 1))


def test_ranks_of_rounded_weights_are_compared_with_exact_ones_by_the_size_of_updates(
    evaluated, measures
):
    means = evaluated[0]["rounding"].groupby(["model", "run", "step"]).mean(numeric_only=True)
    ratio = means["rank_90_stored"] / means["rank_90"]
    slight = means["relative_update"] < 0.02
    assert 0 < slight.sum() < len(slight)
    check(measures, "rounded_over_exact_rank_slight", ratio[slight])
    check(measures, "rounded_over_exact_rank", ratio[~slight])


def test_taking_back_entries_at_random_is_compared_with_the_smallest_first(evaluated, measures):
    """At the middle rate, in losses above the tuned model's."""
    table = evaluated[0]["pruning"]
    at = table[table["rate"] == 0.5].set_index(["model", "run", "what"])["loss"].unstack()
    tuned = evaluated[0]["losses"].set_index(["model", "run"])["loss_tuned"]
    cost = at.sub(tuned, axis=0)
    ratio = cost["updates, at random"] / cost["updates, smallest first"]
    check(measures, "random_over_smallest", ratio)


@pytest.mark.parametrize("product", ["KQ", "VO"])
def test_heads_of_permuted_text_are_compared_with_those_of_text_at_the_end(
    evaluated, measures, product
):
    table = evaluated[0]["pretrained"]
    last = (table["step"] == 8) & (table["offset"] == 0) & (table["of"] == "update")
    rows = table[last & (table["module"] == f"W_{product}") & (table["head"] > 0)]
    means = rows.groupby(["model", "run"])["stable_rank"].mean().unstack()
    check(measures, f"permuted_over_learned_{product}", means["permuted"] / means["language"])


def test_claims_are_told_the_sizes_of_what_was_measured(measures):
    assert measures["setup"] == {
        "budgets": "1, 2 and 4",
        "largest_budget": 4.0,
        "least_budget": 1.0,
        "n_seeds": 2.0,
        "pruning_rate": "50%",
        "slight": "0.02",
    }


def test_tables_for_the_figures_are_whole(evaluated):
    tables, folder = evaluated
    found = {path.stem: pd.read_parquet(path) for path in (folder / "tables").iterdir()}
    names = {"plans", "modules", "losses", "pruning", "budgets", "rounding"}
    assert set(found) == {*names, "heads"}
    for name in names:
        assert set(found[name]) == set(tables[name])
        assert len(found[name]) == len(tables[name])
    assert list(found["losses"]["model"]) == [model for model in MODELS for _ in RUNS]
    heads = found["heads"]
    assert set(heads["text"]) == {"language", "permuted"}
    assert set(heads["head"]) == {1, 2}
    assert set(heads["step"]) == {1, 8}, "before its first step nothing was learned"
