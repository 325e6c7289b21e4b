"""What git keeps of a data set's runs: every measure and every table, against plain loops and ones
made by hand.
"""

import itertools
import math
import random
import shutil
from statistics import mean

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.stages.made import files, read_measures, table, write_run
from tests.vision.evaluate_made import (
    CELLS,
    CURVES,
    CUT_MEASURES,
    LAST,
    PARAMS,
    PERMUTED,
    PRUNE,
    SCALED,
    SEEDS,
    STEPS,
    TRUNCATE,
    by_loops,
    summarised,
    variant,
)

SECTION = "any.evaluate"
SIZES = {"d_model": 5, "d_head": 1, "n_heads": 9}


@pytest.fixture
def cells():
    """The init scale and control of each run that was trained."""
    return list(CELLS)


@pytest.fixture
def truncate():
    rows = table(TRUNCATE)
    return rows.assign(test_loss=np.linspace(0.1, 2.3, len(rows)), variant="a")


@pytest.fixture
def prune():
    names = ["what", "order", "init_scale", "control", "seed"]
    rows = table(PRUNE).melt(names, var_name="rate", value_name="test_accuracy")
    more = {name: np.linspace(0.2, 1, len(rows)) for name in ("parameters", "flops", "removed")}
    return rows.astype({"rate": float}).assign(**more, test_loss=1.0, variant="a")


@pytest.fixture
def evaluate(stage, cells, truncate, prune, tmp_path):
    """Call `evaluate(**params)` runs the stage with these params changed; it returns what the
    stages before wrote.
    """

    def run(**params):
        draw = random.Random(0)
        training, spectra = [], []
        for scale, control in cells:
            cell = {"variant": variant(scale, control), "init_scale": scale, "control": control}
            rows = [
                {
                    "seed": seed,
                    "step": step,
                    **{name: draw.random() if step else math.nan for name in CURVES[:1]},
                }
                | {name: draw.random() for name in CURVES[1:]}
                for step, seed in itertools.product(STEPS, SEEDS)
            ]
            layout = {
                "family": "vision",
                "matrices": {"W": ["row", "col"]},
                "cell": cell,
                "seeds": SEEDS,
            }
            numbered = [{"snapshot": STEPS.index(row["step"]), **row} for row in rows]
            write_run(
                tmp_path / "runs" / cell["variant"],
                layout,
                [{"W": torch.zeros(1, 1)}] * len(STEPS),
                numbered,
            )
            training += [row | cell for row in rows]
            kinds = [("initial", 0), *(("update", step) for step in STEPS[1:]), ("gaussian", LAST)]
            for matrix, (of, step), seed, layer, head in itertools.product(
                ("W_K", "W_VO", "W_KQ"), kinds, SEEDS, (1, 2), (1, 2)
            ):
                row = {
                    "matrix": matrix,
                    "of": of,
                    "step": step,
                    "seed": seed,
                    "layer": layer,
                    "head": head,
                    **cell,
                }
                sigma = sorted(
                    (draw.random() for _ in range(2 if matrix == "W_K" else 3)), reverse=True
                )
                spectra.append(row | {"singular_values": np.array(sigma)})
        found = pd.DataFrame(training), pd.DataFrame(spectra)
        found[1].to_parquet(tmp_path / "spectra.parquet")
        truncate.to_parquet(tmp_path / "truncate.parquet")
        prune.to_parquet(tmp_path / "prune.parquet")
        inputs = [tmp_path / f"{name}.parquet" for name in ("spectra", "truncate", "prune")]
        outputs = [tmp_path / "metrics", tmp_path / "plots" / "curves.csv"]
        stage(
            "vision.evaluate",
            {SECTION: {**PARAMS, **params}, "any.train.model": SIZES},
            SECTION,
            "any.train.model",
            tmp_path / "runs",
            *inputs,
            *outputs,
        )
        return found

    return run


def check_measures(folder, wanted, reference):
    """By scale, the reference last; the Gaussian products have a test of their own."""
    setup, measured = read_measures(folder)
    assert setup == {"reference_scale": reference, "d_model": 5, "possible_rank": 2}
    for letters in ("KQ", "VO"):
        del measured[f"gaussian_product_over_learned_{letters}"]
    assert measured == {
        name: {
            f"{scale:g}": {str(seed): pytest.approx(by_seed[seed], rel=2e-5) for seed in SEEDS}
            for scale, by_seed in by_scale.items()
        }
        for name, by_scale in wanted.items()
    }
    for by_scale in measured.values():
        assert [list(cases) for cases in by_scale.values()] == [["2", "5", "7"]] * len(by_scale)
        scales = list(map(float, by_scale))
        assert scales == sorted(scales, key=lambda scale: (scale == reference, scale))


def test_every_measure_is_that_of_plain_loops(evaluate, tmp_path):
    training, spectra = (rows.to_dict("records") for rows in evaluate())
    wanted = by_loops(training, [summarised(row) for row in spectra])
    wanted |= {name: {0.5: by_seed} for name, by_seed in CUT_MEASURES.items()}
    check_measures(tmp_path / "metrics", wanted, 0.5)


@pytest.mark.parametrize("cells", [CELLS])
def test_a_gaussian_of_the_norm_of_a_product_has_the_stable_rank_of_a_gaussian_matrix(
    evaluate, tmp_path
):
    evaluate()
    ranks = pd.read_parquet(tmp_path / "metrics" / "tables" / "ranks.parquet")
    keys = ["matrix", "init_scale", "control", "seed", "layer", "head"]
    found = ranks[ranks["of"] == "gaussian product"].set_index(keys)
    updates = ranks[(ranks["of"] == "update") & (ranks["step"] == LAST)].set_index(keys)
    updates = updates.loc[["W_VO", "W_KQ"]]
    assert set(found.index) == set(updates.index)
    np.testing.assert_allclose(found["norm"], updates.loc[found.index, "norm"], rtol=1e-5)
    draw = np.random.default_rng(1)
    sigma = np.linalg.svd(draw.standard_normal((4000, 5, 5)), compute_uv=False)
    expected = (sigma**2).sum(1) / sigma[:, 0] ** 2
    assert found["stable_rank"].mean() == pytest.approx(
        expected.mean(), abs=4 * expected.std() / len(found) ** 0.5
    )
    assert found["stable_rank"].nunique() == len(found)


@pytest.mark.parametrize(
    ("cells", "reference"),
    [
        ([cell for cell in CELLS if cell[0] == 0.5], 0.5),
        ([(2.0, "none"), (0.25, "none"), (0.25, SCALED), (0.5, "none")], 0.25),
    ],
)
def test_growth_is_along_the_scales_that_were_trained(evaluate, tmp_path, reference):
    found = evaluate(reference_scale=reference)
    training, spectra = (table.to_dict("records") for table in found)
    wanted = by_loops(training, [summarised(row) for row in spectra])
    wanted |= {name: {0.5: by_seed} for name, by_seed in CUT_MEASURES.items()}
    check_measures(tmp_path / "metrics", wanted, reference)


def test_every_table_and_the_curves_hold_what_the_stages_before_found(
    evaluate, cells, truncate, prune, tmp_path
):
    """The figures show the least seed of the plain runs."""
    training, spectra = evaluate()
    of_figures = spectra[spectra["matrix"].isin(["W_VO", "W_KQ"]) & (spectra["seed"] == min(SEEDS))]
    of_figures = of_figures[of_figures["control"] == "none"].assign(n_singular_values=3)
    of_figures = of_figures.assign(
        singular_values=[values[:2] for values in of_figures["singular_values"]]
    )
    training = training.sort_values("variant", kind="stable")  # runs are read by name
    wanted = {
        "training": training,
        "ranks": pd.DataFrame([summarised(row) for row in spectra.to_dict("records")]),
        "spectra": of_figures,
        "truncate": truncate,
        "prune": prune,
    }
    scales = pd.read_parquet(tmp_path / "metrics" / "tables" / "scales.parquet")
    growth = sorted(scale for scale, control in cells if control == "none")
    assert list(scales.itertuples(index=False, name=None)) == [
        *(("growth", s) for s in growth),
        ("reference", 0.5),
    ]
    for name, rows in wanted.items():
        found = pd.read_parquet(tmp_path / "metrics" / "tables" / f"{name}.parquet")
        assert set(found) == set(rows), name
        found = found[found["of"] != "gaussian product"] if name == "ranks" else found
        assert not {"float64", "int64"} & {str(kind) for kind in found.dtypes}
        pd.testing.assert_frame_equal(
            found[list(rows)],
            rows.reset_index(drop=True),
            rtol=1e-6,
            check_dtype=False,
            check_categorical=False,
            obj=name,
        )
    tables = [*wanted, "scales", "growth", "equal_loss"]
    kept = sorted(
        [
            "headlines.json",
            "measures.json",
            "summary.json",
            *(f"tables/{name}.parquet" for name in tables),
        ]
    )
    assert files(tmp_path / "metrics") == kept
    assert files(tmp_path / "plots") == ["curves.csv"]
    check_curves(pd.read_csv(tmp_path / "plots" / "curves.csv"), cells, training.to_dict("records"))


def check_curves(found, cells, training):
    """Means over the seeds, of the plain runs alone."""
    assert list(found) == ["variant", "step", *CURVES]
    plain = [variant(scale, control) for scale, control in cells if control == "none"]
    places = list(itertools.product(plain, STEPS))
    assert list(zip(found["variant"], found["step"], strict=True)) == places
    for name in CURVES:
        means = [
            mean(row[name] for row in training if (row["variant"], row["step"]) == place)
            for place in places
        ]
        np.testing.assert_allclose(found[name], means, rtol=6e-6)
    assert found["train_loss"].isna().sum() == len(plain)  # at step 0 nothing was trained


@pytest.mark.parametrize(
    "cells", [[(0.1, "none"), (0.5, "none"), (0.5, PERMUTED), (2.0, "none"), (2.0, PERMUTED)]]
)
def test_init_scales_that_are_added_to_published_tables_give_the_tables_of_all(
    evaluate, stage, tmp_path
):
    """But for the order of rows, and for the Gaussian products, of which each call draws its
    own.
    """
    evaluate()
    beside = None
    for scale in (0.5, 2.0, 0.1):
        part = tmp_path / f"with {scale}"
        for run in (tmp_path / "runs").glob(f"init_scale={scale:g}*"):
            shutil.copytree(run, part / "runs" / run.name)
        inputs = [part / f"{name}.parquet" for name in ("spectra", "truncate", "prune")]
        for path in inputs:
            rows = pd.read_parquet(tmp_path / path.name)
            rows[rows["init_scale"] == scale].to_parquet(path)
        places = [part / "runs", *inputs, part / "metrics", part / "curves.csv", beside]
        stage(
            "vision.evaluate",
            {SECTION: PARAMS, "any.train.model": SIZES},
            SECTION,
            "any.train.model",
            *places,
        )
        beside = part / "metrics" / "tables"
    for path in (tmp_path / "metrics" / "tables").iterdir():
        pd.testing.assert_frame_equal(
            sorted_rows(beside / path.name), sorted_rows(path), obj=path.name
        )
    assert pd.read_csv(part / "curves.csv").equals(pd.read_csv(tmp_path / "plots" / "curves.csv"))
    found, wanted = (read_measures(at)[1] for at in (part / "metrics", tmp_path / "metrics"))
    for letters, measures in itertools.product(("KQ", "VO"), (found, wanted)):
        del measures[f"gaussian_product_over_learned_{letters}"]
    assert found == wanted


def sorted_rows(path):
    table = pd.read_parquet(path)
    table = table[table["of"] != "gaussian product"] if "of" in table else table
    plain = table.astype(
        {name: str for name, kind in table.dtypes.items() if str(kind) == "category"}
    )
    return plain.sort_values(
        [name for name in plain if name != "singular_values"], ignore_index=True
    )


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"reference_scale": 3},
            r"any.evaluate.reference_scale: wanted one that was trained, .*4.0.*; got 3",
        ),
        ({"growth_scales": [2]}, "unknown key 'growth_scales'"),
    ],
)
@pytest.mark.parametrize("cells", [[(4.0, "none"), (3.0, PERMUTED)]])
def test_a_scale_that_was_not_trained_and_unknown_keys_are_refused(
    evaluate, tmp_path, params, message
):
    with pytest.raises(InputError, match=message):
        evaluate(**params)
    assert not (tmp_path / "metrics").exists()
