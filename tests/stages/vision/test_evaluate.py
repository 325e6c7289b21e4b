"""What git keeps of a data set's runs: every measure and every table, against plain loops and ones made by hand."""

import itertools
import json
import math
import random
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pandas as pd
import pytest
import torch
from made import files, write_run

from lib.io.claims import read_claims
from lib.io.files import InputError

SECTION = "any.evaluate"
PARAMS = {
    "growth_scales": [0.25, 0.5, 2, 8],  # 8 was not trained, 4 was
    "reference_scale": 0.5,
    "rtol": 0.3,
    "figure_singular_values": 2,
}
SEEDS, STEPS, LAST = [5, 2, 7], [0, 1, 2, 3, 4, 6, 7, 8, 9], 9
PERMUTED, SGD, SCALED = "labels=permuted", "optimizer=sgd,learning_rate=0.3", "scaled=all-but-patch-embedding"
CELLS = [
    *((scale, "none") for scale in (0.25, 0.5, 2.0, 4.0)),
    *((0.5, control) for control in (PERMUTED, SGD)),
    (0.25, SCALED),
]
CUT = "kind rank test_accuracy init_scale control seed"
TRUNCATE = [
    ("all", 4, 0.91, 0.5, "none", 5),
    ("all", 0, 0.3, 0.5, "none", 5),
    ("all", 2, 0.93, 0.5, "none", 5),  # the first within a point of the largest rank
    ("all", 1, 0.895, 0.5, "none", 5),
    ("all", 0, 0.2, 0.5, "none", 2),
    ("all", 1, 0.8 - 0.01, 0.5, "none", 2),  # a point below, to the bit
    ("all", 2, 0.83, 0.5, "none", 2),
    ("all", 4, 0.8, 0.5, "none", 2),
    ("all", 0, 0.6, 0.5, "none", 7),
    ("all", 1, 0.65, 0.5, "none", 7),
    ("all", 2, 0.7, 0.5, "none", 7),
    ("all", 4, 0.75, 0.5, "none", 7),
    ("W_K", 0, 0.97, 0.5, "none", 5),
    ("W_K", 4, 0.99, 0.5, "none", 5),
    ("W_K", 0, 0.98, 0.5, "none", 2),
    ("W_K", 4, 0.96, 0.5, "none", 2),
    ("all", 0, 0.1, 2.0, "none", 5),
    ("all", 4, 0.15, 2.0, "none", 2),
    ("all", 0, 0.85, 0.5, PERMUTED, 5),
    ("all", 4, 0.05, 0.5, PERMUTED, 2),
]
RATES = [0.5, 0.0, 0.75, 0.25]
PRUNE = {  # accuracies at these rates
    ("weights", "smallest", 0.5, "none", 5): (0.885, 0.9, 0.895, 0.95),  # harmless up to .25, though .75 is within, too
    ("weights", "smallest", 0.5, "none", 2): (0.81, 0.8, 0.5, 0.8 - 0.01),
    ("weights", "smallest", 0.5, "none", 7): (0.65, 0.7, 0.7, 0.6),  # worse at once
    ("weights", "random", 0.5, "none", 7): (0.3, 0.7, 0.25, 0.35),
    ("weights", "largest", 0.5, "none", 7): (0.1, 0.7, 0.05, 0.15),
    ("weights", "random", 0.5, "none", 5): (0.4, 0.9, 0.2, 0.7),
    ("weights", "random", 0.5, "none", 2): (0.2, 0.8, 0.1, 0.3),
    ("weights", "largest", 0.5, "none", 5): (0.1, 0.9, 0.15, 0.3),
    ("weights", "largest", 0.5, "none", 2): (0.4, 0.8, 0.1, 0.5),
    ("neurons", "smallest", 0.5, "none", 5): (0.6, 0.7, 0.4, 0.5),
    ("neurons", "random", 0.5, "none", 2): (0.7, 0.75, 0.95, 0.85),
    ("weights", "smallest", 0.25, "none", 5): (0.99, 0.98, 0.97, 0.96),
    ("weights", "largest", 0.5, PERMUTED, 2): (0.995, 0.985, 0.975, 0.965),
}
CUT_MEASURES = {  # worked out by hand
    "rank_within_one_point": {5: 2, 2: 1, 7: 4},
    "accuracy_at_rank_zero": {5: 0.3, 2: 0.2, 7: 0.6},
    "pruning_within_one_point": {5: 0.25, 2: 0.5, 7: 0},
    "smallest_first_over_others": {5: (3.63 - 2.2) / 4, 2: (2.9 - 1.8) / 4, 7: (2.65 - 1.6) / 4},
}
CURVES = ["train_loss", "test_loss", "test_accuracy"]


def variant(scale, control):
    return f"init_scale={scale:g}" + ("" if control == "none" else f",{control}")


@pytest.fixture
def cells():
    """The init scale and control of each run that was trained."""
    return list(CELLS)


@pytest.fixture
def truncate():
    rows = [dict(zip(CUT.split(), row, strict=True)) for row in TRUNCATE]
    return pd.DataFrame(rows).assign(test_loss=np.linspace(0.1, 2.3, len(rows)))


@pytest.fixture
def prune():
    names = ("what", "order", "init_scale", "control", "seed")
    rows = [
        dict(zip(names, key, strict=True)) | {"rate": rate, "test_accuracy": accuracy}
        for key, found in PRUNE.items()
        for rate, accuracy in zip(RATES, found, strict=True)
    ]
    return pd.DataFrame(rows).assign(parameters=np.linspace(0.2, 1, len(rows)))


@pytest.fixture
def evaluate(stage, cells, truncate, prune, tmp_path):
    """Call `evaluate(**params)` runs the stage with these params changed; it returns what the stages before wrote."""

    def run(**params):
        draw = random.Random(0)
        training, spectra = [], []
        for scale, control in cells:
            cell = {"variant": variant(scale, control), "init_scale": scale, "control": control}
            rows = [
                {"seed": seed, "step": step, **{name: draw.random() if step else math.nan for name in CURVES[:1]}}
                | {name: draw.random() for name in CURVES[1:]}
                for step, seed in itertools.product(STEPS, SEEDS)
            ]
            layout = {"family": "vision", "matrices": {"W": ["row", "col"]}, "cell": cell, "seeds": SEEDS}
            numbered = [{"snapshot": STEPS.index(row["step"]), **row} for row in rows]
            write_run(tmp_path / "runs" / cell["variant"], layout, [{"W": torch.zeros(1, 1)}] * len(STEPS), numbered)
            training += [row | cell for row in rows]
            kinds = [("initial", 0), *(("update", step) for step in STEPS[1:]), ("gaussian", LAST)]
            for matrix, (of, step), seed, layer, head in itertools.product(
                ("W_K", "W_VO", "W_KQ"), kinds, SEEDS, (1, 2), (1, 2)
            ):
                row = {"matrix": matrix, "of": of, "step": step, "seed": seed, "layer": layer, "head": head, **cell}
                sigma = sorted((draw.random() for _ in range(2 if matrix == "W_K" else 3)), reverse=True)
                spectra.append(row | {"singular_values": np.array(sigma)})
        found = pd.DataFrame(training), pd.DataFrame(spectra)
        found[1].to_parquet(tmp_path / "spectra.parquet")
        truncate.to_parquet(tmp_path / "truncate.parquet")
        prune.to_parquet(tmp_path / "prune.parquet")
        inputs = [tmp_path / f"{name}.parquet" for name in ("spectra", "truncate", "prune")]
        outputs = [tmp_path / "metrics", tmp_path / "plots" / "curves.csv"]
        stage("vision.evaluate", {SECTION: {**PARAMS, **params}}, SECTION, tmp_path / "runs", *inputs, *outputs)
        return found

    return run


def summarised(row):
    """A row of the spectra with the numbers that sum up its singular values in their place."""
    row = dict(row)
    sigma = row.pop("singular_values").tolist()
    squares, shares = [s * s for s in sigma], [s / sum(sigma) for s in sigma]
    energies = list(itertools.accumulate(squares))
    return row | {
        "norm": math.sqrt(sum(squares)),
        "stable_rank": sum(squares) / max(squares),
        "effective_rank": math.exp(-sum(p * math.log(p) for p in shares)),
        "numerical_rank": sum(s > PARAMS["rtol"] * max(sigma) for s in sigma),
        **{f"rank_{n}": 1 + sum(100 * e < n * sum(squares) for e in energies) for n in (90, 95, 99)},
    }


def by_loops(training, ranks, reference=0.5, growth=(0.25, 0.5, 2.0)):
    """Every measure of accuracies and ranks, by seed; `growth` are the scales along which there is some to measure."""

    def rank(matrix, seed, scale=reference, control="none", of="update", step=LAST):
        wanted = (matrix, seed, scale, control, of, step)
        columns = ("matrix", "seed", "init_scale", "control", "of", "step")
        found = [row["stable_rank"] for row in ranks if tuple(row[c] for c in columns) == wanted]
        assert len(found) == 4
        return mean(found)

    measured = {}
    for seed in SEEDS:
        found = {}
        for row in training:
            if (row["seed"], row["step"], row["init_scale"]) == (seed, LAST, reference):
                name = {"none": "", PERMUTED: "_permuted", SGD: "_sgd", SCALED: "_all_but_patch_embedding"}
                found["test_accuracy" + name[row["control"]]] = row["test_accuracy"]
        for matrix in ("KQ", "VO"):
            learned = rank(f"W_{matrix}", seed)
            found[f"stable_rank_{matrix}"] = learned
            found[f"gaussian_over_learned_{matrix}"] = rank(f"W_{matrix}", seed, of="gaussian") / learned
            found[f"first_step_over_learned_{matrix}"] = rank(f"W_{matrix}", seed, step=1) / learned
            if reference == 0.5:
                permuted = rank(f"W_{matrix}", seed, control=PERMUTED)
                found[f"stable_rank_{matrix}_permuted"] = permuted
                found[f"permuted_over_learned_{matrix}"] = permuted / learned
                found[f"stable_rank_{matrix}_sgd"] = rank(f"W_{matrix}", seed, control=SGD)
            else:
                found[f"stable_rank_{matrix}_all_but_patch_embedding"] = rank(f"W_{matrix}", seed, control=SCALED)
        final = [rank("W_KQ", seed, scale) for scale in growth]
        if len(growth) > 1:
            found["rank_growth_with_init_scale"] = min(b / a for a, b in itertools.pairwise(final))
        through = []
        for scale in (scale for scale in growth if scale > 0.25):
            early, late = (
                mean(rank("W_VO", seed, scale, step=step) for step in steps) for steps in ((1, 2, 3), (7, 8, 9))
            )
            through.append(late / early)
        if through:
            found["VO_growth_through_training"] = min(through)
        for name, value in found.items():
            measured.setdefault(name, {})[seed] = value
    return measured


def check_measures(folder, wanted):
    measured, summary = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("measures", "summary")
    )
    assert measured.keys() == summary.keys() == wanted.keys()
    for name, by_seed in wanted.items():
        found = measured[name]
        assert found["cases"] == [str(seed) for seed in sorted(SEEDS)], name
        assert found["values"] == pytest.approx([by_seed[seed] for seed in sorted(SEEDS)], rel=6e-6), name
        values = list(by_seed.values())
        assert summary[name] == pytest.approx({"mean": mean(values), "sd": stdev(values)}, rel=1e-5), name


def test_every_measure_is_that_of_plain_loops_and_every_claim_has_one(evaluate, tmp_path):
    training, spectra = (table.to_dict("records") for table in evaluate())
    wanted = {**by_loops(training, [summarised(row) for row in spectra]), **CUT_MEASURES}
    check_measures(tmp_path / "metrics", wanted)
    listed = read_claims(Path(__file__).parents[3] / "claims.yaml").values()
    read = {claim.measure for claim in listed if claim.family == "vision"}
    assert len(read) > 15
    assert read <= wanted.keys()


@pytest.mark.parametrize(
    ("cells", "reference", "growth"),
    [
        ([cell for cell in CELLS if cell[0] == 0.5], 0.5, (0.5,)),
        ([(4.0, "none"), (0.25, "none"), (0.25, SCALED)], 0.25, (0.25,)),
        ([(2.0, "none"), (0.25, "none"), (0.25, SCALED), (0.5, "none")], 0.25, (0.25, 2.0)),
    ],
)
def test_growth_is_along_the_wanted_scales_that_were_trained_and_cuts_are_at_the_reference(
    evaluate, tmp_path, reference, growth
):
    scales = [0.25, 2] if len(growth) == 2 else PARAMS["growth_scales"]
    found = evaluate(reference_scale=reference, growth_scales=scales)
    training, spectra = (table.to_dict("records") for table in found)
    wanted = by_loops(training, [summarised(row) for row in spectra], reference, growth)
    check_measures(tmp_path / "metrics", {**wanted, **(CUT_MEASURES if reference == 0.5 else {})})


@pytest.mark.parametrize("cells", [CELLS, CELLS[1:2]])
def test_every_table_and_the_curves_hold_what_the_stages_before_found(evaluate, cells, truncate, prune, tmp_path):
    """The figures show the least seed."""
    training, spectra = evaluate()
    of_figures = spectra[spectra["matrix"].isin(["W_VO", "W_KQ"]) & (spectra["seed"] == min(SEEDS))]
    of_figures = of_figures.assign(singular_values=[values[:2] for values in of_figures["singular_values"]])
    training = training.sort_values("variant", kind="stable")  # runs are read by name
    wanted = {
        "training": training,
        "ranks": pd.DataFrame([summarised(row) for row in spectra.to_dict("records")]),
        "spectra": of_figures,
        "truncate": truncate,
        "prune": prune,
    }
    scales = pd.read_parquet(tmp_path / "metrics" / "tables" / "scales.parquet")
    growth = [scale for scale in (0.25, 0.5, 2.0) if (scale, "none") in cells]
    assert list(scales.itertuples(index=False, name=None)) == [*(("growth", s) for s in growth), ("reference", 0.5)]
    for name, rows in wanted.items():
        found = pd.read_parquet(tmp_path / "metrics" / "tables" / f"{name}.parquet")
        assert set(found) == set(rows), name
        rows = rows.astype({c: f"{t.name[:-2]}32" for c, t in rows.dtypes.items() if t.name in ("float64", "int64")})
        if name == "spectra":
            assert all(values.dtype == np.float32 for values in found["singular_values"])
            rows["singular_values"] = [values.astype("float32") for values in rows["singular_values"]]
        pd.testing.assert_frame_equal(
            found[list(rows)], rows.reset_index(drop=True), rtol=1e-7 if name == "ranks" else 0, atol=0, obj=name
        )
    kept = [f"tables/{name}.parquet" for name in ("scales", *wanted)]
    assert files(tmp_path / "metrics") == sorted(["headlines.json", "measures.json", "summary.json", *kept])
    assert files(tmp_path / "plots") == ["curves.csv"]
    check_curves(pd.read_csv(tmp_path / "plots" / "curves.csv"), cells, training.to_dict("records"))


def check_curves(found, cells, training):
    """Means over the seeds, of the plain runs alone."""
    assert list(found) == ["variant", "step", *CURVES]
    plain = [variant(scale, control) for scale, control in cells if control == "none"]
    places = list(itertools.product(plain, STEPS))
    assert list(zip(found["variant"], found["step"], strict=True)) == places
    for name in CURVES:
        means = [mean(row[name] for row in training if (row["variant"], row["step"]) == place) for place in places]
        np.testing.assert_allclose(found[name], means, rtol=6e-6)
    assert found["train_loss"].isna().sum() == len(plain)  # at step 0 nothing was trained


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"reference_scale": 3}, r"any.evaluate.reference_scale: wanted one that was trained, .*4.0.*; got 3"),
        ({"growth_scales": [2, 0.5]}, r"growth_scales: wanted two or more, rising, got \(2.0, 0.5\)"),
        ({"growth_scales": [2]}, r"growth_scales: wanted two or more, rising, got \(2.0,\)"),
    ],
)
@pytest.mark.parametrize("cells", [[(4.0, "none"), (3.0, PERMUTED)]])
def test_scales_that_were_not_trained_or_do_not_rise_are_refused(evaluate, tmp_path, params, message):
    with pytest.raises(InputError, match=message):
        evaluate(**params)
    assert not (tmp_path / "metrics").exists()
