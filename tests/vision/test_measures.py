"""Measures of trainings, on tables so small that each number is worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from lib.vision.measures import (
    PERMUTED,
    against_nulls,
    apart,
    by_optimizer,
    derived,
    finals,
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
