"""Measures of trainings, on tables so small that each number is worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from lib.vision.measures import (
    PERMUTED,
    against_nulls,
    apart,
    at_loss,
    between,
    by_optimizer,
    cuts,
    derived,
    finals,
    gaussian_singular_values,
    growth_through_training,
    growth_with_init_scale,
    named,
    of_optimizers,
    plain_typed,
)

STEPS = [0, 1, 3, 6, 9]
# Of seed 0: training losses and stable ranks of W_KQ's update at the steps, by init scale and
# control.
TRAININGS = {
    (0.5, "none"): ([np.nan, 2.0, 1.0, 0.5, 0.25], [0, 1, 2, 3, 4]),
    (0.5, PERMUTED): ([np.nan, 2.0, 1.75, 1.5, 1.25], [0, 2, 2, 2, 6]),
    (1.0, "none"): ([np.nan, 2.0, 0.5, 0.25, 0.125], [0, 2, 4, 6, 8]),
    (1.0, PERMUTED): ([np.nan, 2.0, 1.5, 1.0, 0.5], [0, 3, 3, 3, 3]),
}
AT = ["init_scale", "seed"]


@pytest.fixture
def tables():
    """W_VO has twice the ranks of W_KQ; the two heads of the one layer lie one above and one below
    their mean.
    """
    training, ranks = [], []
    for (scale, control), (losses, means) in TRAININGS.items():
        of = {"init_scale": scale, "control": control, "seed": 0}
        training += [
            of | {"step": t, "train_loss": a, "test_accuracy": t / 10}
            for t, a in zip(STEPS, losses, strict=True)
        ]
        for matrix, factor in (("W_KQ", 1), ("W_VO", 2)):
            for head, shift in ((1, -1), (2, 1)):
                here = of | {"matrix": matrix, "layer": 1, "head": head}
                ranks += [
                    here | {"of": "update", "step": step, "stable_rank": factor * mean + shift}
                    for step, mean in zip(STEPS, means, strict=True)
                ]
                for of_null, step, rank in (("initial", 0, 99), ("gaussian product", 9, 40)):
                    row = {"of": of_null, "step": step, "stable_rank": factor * rank + shift}
                    ranks.append(here | row)
    found = {"training": pd.DataFrame(training), "ranks": pd.DataFrame(ranks)}
    return found | derived(found)


def value(series, scale):
    [found] = series.xs(scale, level="init_scale")
    return found


def test_a_value_at_a_loss_lies_on_the_line_between_two_steps():
    losses, values = np.array([np.nan, 2.0, 1.0, 3.0, 0.5]), np.array([9.0, 10, 20, 30, 40])
    assert at_loss(losses, values, 1.25) == pytest.approx(17.5)
    assert at_loss(losses, values, 1.0) == 20  # where it first comes down to it
    assert at_loss(losses[1:], values[1:], 2.5) == 10  # it begins below
    assert np.isnan(at_loss(losses, values, 0.4))


def test_growth_compares_the_last_third_of_the_steps_with_the_first_without_step_0():
    steps = np.array([0.0, 1, 3, 4, 6, 7, 9])
    ranks = np.array(
        [100.0, 1, 3, 50, 50, 5, 7]
    )  # 6 is no step of the last third, 3 is one of the first
    assert growth_through_training(steps, np.stack([ranks, 2 * ranks + 2])).tolist() == [
        3.0,
        14 / 6,
    ]


def test_gaussian_spectra_have_their_norm_and_the_rank_of_no_structure():
    found = gaussian_singular_values(np.array([1.0, 7.0]), 200, np.random.default_rng(0))
    np.testing.assert_allclose((found**2).sum(1), [1, 49])
    stable = (found**2).sum(1) / found[:, 0] ** 2
    np.testing.assert_allclose(
        stable, 200 / 4, rtol=0.1
    )  # the largest is 2 √n, of n entries of size 1
    assert (np.diff(found) <= 0).all()


def test_both_labels_are_compared_where_both_have_come_down_to_one_loss(tables):
    equal = tables["equal_loss"].set_index(["matrix", *AT])
    kq, vo = equal.loc[("W_KQ", 0.5, 0)], equal.loc[("W_VO", 1.0, 0)]
    assert kq["train_loss"] == 1.25  # to which permuted labels come down at the end
    assert (kq["learned"], kq["permuted"]) == (1.75, 6)
    assert vo["train_loss"] == 0.5
    assert (vo["learned"], vo["permuted"]) == (8, 6)


def test_ranks_and_growth_stand_beside_their_nulls(tables):
    found = against_nulls(tables)
    for scale, learned, permuted, first in ((0.5, 4, 6, 1), (1.0, 8, 3, 2)):
        wanted = {
            "stable_rank_KQ": learned,
            "stable_rank_VO": 2 * learned,
            "stable_rank_KQ_permuted": permuted,
            "stable_rank_KQ_initial": 99,
            "stable_rank_VO_initial": 2 * 99,
            "first_step_over_learned_KQ": first / learned,
            "gaussian_product_over_learned_VO": 40 / learned,
        }
        assert {name: value(found[name], scale) for name in wanted} == pytest.approx(wanted)
    assert value(found["growth_through_training_KQ"], 0.5) == 4 / 1.5
    assert value(found["growth_through_training_KQ_permuted"], 0.5) == 6 / 2
    assert value(found["growth_through_training_KQ_permuted"], 1.0) == 1
    assert value(found["permuted_over_learned_at_equal_loss_KQ"], 0.5) == 6 / 1.75
    assert value(found["permuted_over_learned_at_equal_loss_VO"], 1.0) == 6 / 8


def test_growth_with_the_init_scale_stands_beside_that_of_the_nulls_and_at_equal_loss(tables):
    found = growth_with_init_scale(tables)
    wanted = {"": 8 / 4, "_first_step": 2, "_permuted": 3 / 6}
    wanted |= {"_at_equal_loss": 6 / 4}  # at .25, to which the smaller scale comes down at the end
    for matrix in ("KQ", "VO"):
        growth = {
            name: value(found[f"growth_with_init_scale_{matrix}{name}"], 1.0) for name in wanted
        }
        assert growth == pytest.approx(wanted)
    assert all(list(series.index.names) == AT for series in found.values())
    without = {
        name: table[table["control"] == "none"] if "control" in table else table
        for name, table in tables.items()
    }
    assert "growth_with_init_scale_KQ_permuted" not in growth_with_init_scale(without)


def test_growth_is_from_each_scale_to_the_next():
    by_scale = pd.DataFrame(
        {0.1: [1.0, 2.0], 0.3: [5.0, 5.0], 1.0: [3.0, 8.0]}, index=pd.Index([0, 1], name="seed")
    )
    by_scale.columns.name = "init_scale"
    assert between(by_scale[[0.1, 1.0]]).to_dict() == {(1.0, 0): 3, (1.0, 1): 4}
    assert between(by_scale).xs(1.0).tolist() == [0.6, 1.6]
    assert between(by_scale).xs(0.3).tolist() == [5, 2.5]
    assert between(by_scale[[1.0]]).empty


def test_final_scores_are_those_of_the_last_step(tables):
    found = finals(tables["training"])
    assert value(found["train_loss"], 0.5) == 0.25
    assert value(found["train_loss_permuted"], 1.0) == 0.5
    assert value(found["test_accuracy"], 1.0) == 0.9


def test_cuts_are_judged_by_a_point_of_accuracy():
    plain = {"control": "none", "init_scale": 1.0, "seed": 3}
    accuracies = {0: 0.2, 1: 0.5, 2: 0.894, 4: 0.9, 8: 0.9}
    truncate = [
        plain | {"kind": "all", "rank": rank, "test_accuracy": a} for rank, a in accuracies.items()
    ]
    truncate += [row | {"kind": "W_Q", "test_accuracy": 0.9} for row in truncate]
    rates = {
        "smallest": [0.9, 0.89, 0.85, 0.9],  # what comes back is not counted
        "random": [0.9, 0.8, 0.5, 0.1],
        "largest": [0.9, 0.2, 0.1, 0.1],
    }
    prune = [
        plain | {"what": what, "order": order, "rate": rate, "test_accuracy": a - (what == "heads")}
        for what in ("weights", "heads")
        for order, values in rates.items()
        for rate, a in zip((0.0, 0.3, 0.6, 0.9), values, strict=True)
    ]
    other = {"control": PERMUTED, "test_accuracy": 0.0}
    found = cuts(pd.DataFrame(truncate + [row | other for row in truncate]), pd.DataFrame(prune))
    got = {name: value(series, 1.0) for name, series in found.items()}
    assert got == pytest.approx(
        {
            "rank_within_one_point": 2,
            "pruning_within_one_point": 0.3,
            "smallest_first_over_others": 0.885 - 0.575,
        }
    )
    assert cuts(pd.DataFrame(truncate)[:0], pd.DataFrame(prune)) == {}


def test_tables_of_single_precision_keep_the_init_scales_that_were_written():
    found = plain_typed(
        pd.DataFrame({"init_scale": np.float32([0.1, 1]), "control": pd.Categorical(["none", "a"])})
    )
    assert found["init_scale"].tolist() == [0.1, 1.0]
    assert found["control"].tolist() == ["none", "a"]
    assert str(found["control"].dtype) != "category"


@pytest.mark.parametrize(
    ("control", "name"),
    [
        ("none", "accuracy"),
        ("labels=permuted", "accuracy_permuted"),
        ("optimizer=sgd,learning_rate=0.3", "accuracy_sgd"),
        ("scaled=all-but-patch-embedding", "accuracy_all_but_patch_embedding"),
    ],
)
def test_names_of_measures_hold_no_numbers_of_params(control, name):
    assert named("accuracy", control) == name


@pytest.mark.parametrize(
    ("control", "wanted"),
    [
        ("none", ("", "none")),
        (PERMUTED, ("", PERMUTED)),
        (
            "learning_rate=0.1,scaled=all-but-patch-embedding",
            ("", "learning_rate=0.1,scaled=all-but-patch-embedding"),
        ),
        ("optimizer=sgd,learning_rate=0.3", ("_sgd", "none")),
        (f"{PERMUTED},optimizer=adamw,learning_rate=0.01,weight_decay=0.1", ("_adamw", PERMUTED)),
        (
            f"{PERMUTED},optimizer=muon,learning_rate=0.01,muon_of=heads,scaled=x",
            ("_muon_heads", f"{PERMUTED},scaled=x"),
        ),
    ],
)
def test_a_control_is_taken_apart_into_its_optimiser_and_the_rest(control, wanted):
    assert apart(control) == wanted


@pytest.fixture
def compared(tables):
    """Beside the plain trainings those of another optimiser, whose ranks are three times as large,
    at half the loss.
    """
    told = {
        "none": "optimizer=muon,learning_rate=0.5",
        PERMUTED: f"{PERMUTED},optimizer=muon,learning_rate=0.5",
    }
    others = {
        name: tables[name].assign(control=tables[name]["control"].map(told))
        for name in ("training", "ranks")
    }
    others["ranks"]["stable_rank"] *= 3
    others["training"]["train_loss"] /= 2
    rows = [
        (scale, control, 0, rank, accuracy)
        for scale in (0.5, 1.0)
        for control, accuracies in (
            ("none", (0.1, 0.895, 0.9)),
            (PERMUTED, (0, 0, 0)),
            (told["none"], (0.1, 0.5, 0.9)),
        )
        for rank, accuracy in zip((0, 4, 8), accuracies, strict=True)
    ]
    truncate = pd.DataFrame(
        rows, columns=["init_scale", "control", "seed", "rank", "test_accuracy"]
    )
    return {name: pd.concat([tables[name], rows]) for name, rows in others.items()} | {
        "truncate": truncate
    }


def test_every_optimiser_is_the_plain_one_among_its_own_trainings(compared, tables):
    found = by_optimizer(compared)
    assert list(found) == ["", "_muon"]
    for name, factor in (("", 1), ("_muon", 3)):
        wanted = tables["ranks"].assign(stable_rank=factor * tables["ranks"]["stable_rank"])
        pd.testing.assert_frame_equal(found[name]["ranks"], wanted, check_dtype=False)


def test_an_optimiser_has_every_measure_beside_its_own_nulls_and_some_over_the_plain_one(
    compared, tables
):
    found = of_optimizers(compared)
    plain = {
        **finals(tables["training"]),
        **against_nulls(tables),
        **growth_with_init_scale(tables),
    }
    assert {f"{name}{of}" for name in plain for of in ("", "_muon")} <= found.keys()
    for name, values in plain.items():
        factor = (
            3 if name.startswith("stable_rank") else 0.5 if name.startswith("train_loss") else 1
        )
        pd.testing.assert_series_equal(found[name], values, check_names=False)
        pd.testing.assert_series_equal(found[f"{name}_muon"], factor * values, check_names=False)
    assert value(found["first_step_rank_KQ"], 0.5) == 1
    assert value(found["first_step_rank_VO_permuted_muon"], 1.0) == 18
    assert value(found["rank_at_equal_accuracy"], 0.5) == 4
    assert value(found["rank_at_equal_accuracy_over_plain_muon"], 0.5) == 2
