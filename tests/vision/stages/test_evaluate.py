"""What git keeps of a data set's runs: every measure and every table, against plain loops and ones
made by hand.
"""

import itertools
import math
import shutil
from statistics import mean

import numpy as np
import pandas as pd
import pytest
import torch

from lib.files.files import InputError
from tests.stages.made import read_measures, table, write_run
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
    of_directions,
    of_whole,
    summarised,
    variant,
)
from tests.vision.plot_made import every

SECTIONS = ("any.evaluate", "any.train.model")
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
    stages before wrote, and the measures.
    """
    draw = np.random.default_rng(0)

    def scores(row):
        found = {name: draw.random() for name in CURVES}
        return found if row["step"] else found | {"train_loss": math.nan}

    def sigma(row):
        return {"singular_values": -np.sort(-draw.random(2 if row["matrix"] == "W_K" else 3))}

    def run(**params):
        kinds = [("initial", 0), *(("update", step) for step in STEPS[1:]), ("gaussian", LAST)]
        training = every(scores, init_scale_and_control=cells, step=STEPS, seed=SEEDS)
        spectra = every(
            sigma,
            init_scale_and_control=cells,
            matrix=("W_K", "W_VO", "W_KQ"),
            of_and_step=kinds,
            seed=SEEDS,
            layer=(1, 2),
            head=(1, 2),
        )
        for rows in (training, spectra):
            rows["variant"] = rows[["init_scale", "control"]].agg(lambda row: variant(*row), axis=1)
        for name, rows in training.groupby("variant"):
            cell = rows[["variant", "init_scale", "control"]].iloc[0].to_dict()
            axes = {"W_K": ["seed", "layer", "head", "row", "col"]}
            axes |= {"W_1": ["seed", "layer", "row", "col"]}
            layout = {"family": "vision", "matrices": axes, "seeds": SEEDS}
            steps = rows[["seed", "step", *CURVES]].assign(snapshot=rows["step"].map(STEPS.index))
            weights = [whole_weights(name, step) for step in STEPS]
            write_run(tmp_path / "runs" / name, layout | {"cell": cell}, weights, steps)
        inputs = [tmp_path / f"{name}.parquet" for name in ("spectra", "truncate", "prune")]
        for rows, file in zip((spectra, truncate, prune), inputs, strict=True):
            rows.to_parquet(file)
        given = dict(zip(SECTIONS, (PARAMS | params, SIZES), strict=True))
        outputs = tmp_path / "metrics", tmp_path / "curves.csv"
        stage("vision.evaluate", given, *SECTIONS, tmp_path / "runs", *inputs, *outputs)
        return training, spectra

    return run


def whole_weights(name, step):
    """Two layers and two heads of W_K, and W_1, of every seed; others for each run and step."""
    draw = torch.Generator().manual_seed(sum(name.encode()) + 1000 * step)
    shapes = {"W_K": (3, 2, 2, 4, 3), "W_1": (3, 2, 5, 4), "b_1": (3, 2, 4)}
    return {key: torch.randn(shape, generator=draw) for key, shape in shapes.items()}


def check_measures(folder, training, spectra, reference):
    """Measures are checked by scale, the reference last; the Gaussian products have a test of their
    own.
    """
    ranks = [summarised(row) for row in spectra.to_dict("records")]
    wanted = by_loops(training.to_dict("records"), ranks)
    wanted |= {name: {0.5: by_seed} for name, by_seed in CUT_MEASURES.items()}
    wanted |= of_directions(spectra.to_dict("records"))
    plain = sorted(spectra[spectra["control"] == "none"]["init_scale"].unique())
    runs = {
        scale: [whole_weights(variant(scale, "none"), step) for step in STEPS] for scale in plain
    }
    wanted |= of_whole(runs, ranks, plain)
    setup, measured = read_measures(folder)
    assert setup == {"d_model": "5"}
    for matrix in ("W_KQ", "W_VO"):
        del measured[f"gaussian_product_over_learned.{matrix}"]
    assert measured == {
        name: {
            f"{scale:g}": {str(seed): pytest.approx(by_seed[seed], rel=2e-5) for seed in SEEDS}
            for scale, by_seed in by_scale.items()
        }
        for name, by_scale in wanted.items()
    }
    for by_scale in measured.values():
        assert all(list(cases) == ["2", "5", "7"] for cases in by_scale.values())
        scales = list(map(float, by_scale))
        assert scales == sorted(scales, key=lambda scale: (scale == reference, scale))


def test_every_measure_is_that_of_plain_loops(evaluate, tmp_path):
    check_measures(tmp_path / "metrics", *evaluate(), 0.5)


@pytest.mark.parametrize("cells", [[(2.0, "none"), (0.25, "none"), (0.25, SCALED), (0.5, "none")]])
def test_growth_is_along_the_scales_that_were_trained(evaluate, tmp_path):
    check_measures(tmp_path / "metrics", *evaluate(reference_scale=0.25), 0.25)


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
    error = 4 * expected.std() / len(found) ** 0.5
    assert found["stable_rank"].mean() == pytest.approx(expected.mean(), abs=error)
    assert found["stable_rank"].nunique() == len(found)


def test_every_table_holds_what_the_stages_before_found(evaluate, truncate, prune, tmp_path):
    """The figures show the least seed of the plain runs, and what an update can have."""
    training, spectra = evaluate()
    of_figures = spectra[spectra["matrix"].isin(["W_VO", "W_KQ"]) & (spectra["seed"] == min(SEEDS))]
    of_figures = of_figures[of_figures["control"] == "none"].assign(n_singular_values=3)
    of_figures["singular_values"] = [values[:2] for values in of_figures["singular_values"]]
    plain = sorted(scale for scale, control in CELLS if control == "none")
    uses = [*(("growth", scale) for scale in plain), ("reference", 0.5)]
    wanted = {
        "training": training.sort_values("variant", kind="stable"),  # runs are read by name
        "ranks": pd.DataFrame([summarised(row) for row in spectra.to_dict("records")]),
        "spectra": of_figures,
        "truncate": truncate,
        "prune": prune,
        "scales": pd.DataFrame(uses, columns=["use", "init_scale"]),
    }
    for name, rows in wanted.items():
        found = pd.read_parquet(tmp_path / "metrics" / "tables" / f"{name}.parquet")
        assert set(found) == set(rows), name
        found = found[found["of"] != "gaussian product"] if name == "ranks" else found
        assert name == "scales" or not {"float64", "int64"} & {str(kind) for kind in found.dtypes}
        pd.testing.assert_frame_equal(
            found[list(rows)],
            rows.reset_index(drop=True),
            rtol=1e-6,
            check_dtype=False,
            check_categorical=False,
            obj=name,
        )


def test_curves_are_means_over_the_seeds_of_the_plain_runs(evaluate, cells, tmp_path):
    training, _ = evaluate()
    found = pd.read_csv(tmp_path / "curves.csv")
    assert list(found) == ["variant", "step", *CURVES]
    plain = [variant(scale, control) for scale, control in cells if control == "none"]
    places = list(itertools.product(plain, STEPS))
    assert list(zip(found["variant"], found["step"], strict=True)) == places
    for name in CURVES:
        means = [
            mean(training[(training["variant"] == of) & (training["step"] == step)][name])
            for of, step in places
        ]
        np.testing.assert_allclose(found[name], means, rtol=6e-6)


@pytest.mark.parametrize("cells", [[(0.1, "none"), (0.5, "none"), (0.5, PERMUTED)]])
def test_init_scales_that_are_added_to_published_tables_give_the_tables_of_all(
    evaluate, stage, tmp_path
):
    """This is so but for the order of rows, and for the Gaussian products, which each call draws
    anew.
    """
    evaluate()
    beside = None
    for scale in (0.5, 0.1):
        part = tmp_path / f"with {scale}"
        for run in (tmp_path / "runs").glob(f"init_scale={scale:g}*"):
            shutil.copytree(run, part / "runs" / run.name)
        inputs = [part / f"{name}.parquet" for name in ("spectra", "truncate", "prune")]
        for path in inputs:
            rows = pd.read_parquet(tmp_path / path.name)
            rows[rows["init_scale"] == scale].to_parquet(path)
        places = [part / "runs", *inputs, part / "metrics", part / "curves.csv", beside]
        given = dict(zip(SECTIONS, (PARAMS, SIZES), strict=True))
        stage("vision.evaluate", given, *SECTIONS, *places)
        beside = part / "metrics" / "tables"
    for path in (tmp_path / "metrics" / "tables").iterdir():
        found, wanted = (sorted_rows(folder / path.name) for folder in (beside, path.parent))
        pd.testing.assert_frame_equal(found, wanted, obj=path.name)
    assert (part / "curves.csv").read_bytes() == (tmp_path / "curves.csv").read_bytes()


def sorted_rows(path):
    table = pd.read_parquet(path)
    table = table[table["of"] != "gaussian product"] if "of" in table else table
    names = [name for name in table if name != "singular_values"]
    texts = {name: str for name in names if str(table[name].dtype) == "category"}
    return table.astype(texts).sort_values(names, ignore_index=True)


@pytest.mark.parametrize("cells", [[(4.0, "none"), (3.0, PERMUTED)]])
def test_a_scale_that_was_not_trained_is_refused(evaluate, tmp_path):
    wanted = r"any.evaluate.reference_scale: wanted one that was trained, .*4.0.*; got 3"
    with pytest.raises(InputError, match=wanted):
        evaluate(reference_scale=3)
    assert not (tmp_path / "metrics").exists()
