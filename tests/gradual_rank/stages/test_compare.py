"""What git keeps of the trainings by optimisers: tables for one seed, and measures that are those
of the tables.
"""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from tests.stages.made import files

SECTION = "any.optimizers"
PARAMS = {
    "n_seeds": 2,
    "n_samples": 9,
    "teacher_rank": 2,
    "noisy_samples": 3,
    "noise": 0.5,
    "n_test": 7,
}
SEEDS, SCALES, RANKS, NAMES = (6, 5), (-2.0, -4.0, -8.0), (4, 2), ("muon", "gd")


def made():
    draw = np.random.default_rng(2)
    drawn = ("growth", "first_rise", "order", "separate", "slope_least", "slope_most")
    cells = list(itertools.product(NAMES, RANKS, SCALES, SEEDS))
    cell = ("optimizer", "teacher_rank", "log10_init_scale", "seed")
    runs = [
        {
            **dict(zip(cell, one, strict=True)),
            **{key: draw.uniform(1, 2) for key in drawn},
        }
        for one in cells
    ]
    courses = [
        {
            **dict(zip(cell, one, strict=True)),
            "step": k,
            "time": 0.1 * k,
            "W_KQ": draw.uniform(0, 1, 4),
            "W_VO": draw.uniform(0, 1, 4),
        }
        for one in cells
        for k in (0, 5)
    ]
    numbers = ("effective_rank_KQ", "best_test_loss")
    few = [
        {
            "optimizer": name,
            "n_samples": n,
            "noise": noise,
            "seed": seed,
            **{key: draw.uniform(1, 2) for key in numbers},
        }
        for name, (n, noise), seed in itertools.product(NAMES, ((1, 0.0), (3, 0.5)), SEEDS)
    ]
    paths = [
        {key: row[key] for key in ("optimizer", "n_samples", "noise", "seed")}
        | {"step": k, "time": 0.1 * k, "test_loss": draw.uniform()}
        for row in few
        for k in (0, 5)
    ]
    kept = [
        {"optimizer": name, "seed": seed, "square_change_VO": draw.uniform()}
        for name in NAMES
        for seed in SEEDS
    ]
    return {
        "runs": runs,
        "courses": courses,
        "few": few,
        "paths": paths,
        "conserved": kept,
    }, made_signs(draw)


def made_signs(draw):
    changes = [
        {
            "seed": seed,
            "log10_init_scale": scale,
            "predicted": draw.uniform(),
            "predicted_coordinate": 1,
            "measured": draw.uniform(),
            "measured_coordinate": seed - 5,
        }
        for scale, seed in itertools.product((-4.0, -6.0, -32.0), SEEDS)
    ]
    events = [{"seed": 5, "time": 0.5, "coordinate": 0, "kind": "passes"}]
    methods = (("flow", -math.inf), ("roots", -math.inf), ("weights", -4.0), ("weights", -6.0))
    paths = [
        {
            "method": method,
            "log10_init_scale": scale,
            "seed": seed,
            "time": time,
            "p": draw.uniform(0, 1, 2),
        }
        for (method, scale), seed, time in itertools.product(methods, SEEDS, (0.0, 1.0))
    ]
    slopes = [
        {"seed": seed, "beta_2": beta, "slope_KQ": draw.uniform(), "slope_VO": draw.uniform()}
        for beta, seed in itertools.product((0.9, 0.999), SEEDS)
    ]
    diagonal = [
        {
            "optimizer": name,
            "log10_init_scale": -4.0,
            "seed": seed,
            "rank_early": 3,
            "order": draw.uniform(),
            "order_VO": draw.uniform(),
        }
        for name, seed in itertools.product(("gd", "adam", "gradient flow"), SEEDS)
    ]
    rises = [
        {"optimizer": name, "log10_init_scale": scale, "seed": seed, "first_rise": draw.uniform()}
        for name, scale, seed in itertools.product(("gd", "adam"), (-4.0, -8.0), SEEDS)
    ]
    made = {"changes": changes, "events": events, "paths": paths, "slopes": slopes}
    return {**made, "diagonal": diagonal, "rises": rises}


@pytest.fixture
def written(stage, tmp_path):
    trained, followed = made()
    for folder, tables in (("trained", trained), ("followed", followed)):
        (tmp_path / folder).mkdir()
        for name, rows in tables.items():
            pd.DataFrame(rows).to_parquet(tmp_path / folder / f"{name}.parquet")
    stage(
        "gradual_rank.compare",
        {SECTION: PARAMS},
        SECTION,
        *(tmp_path / name for name in ("trained", "followed", "metrics")),
    )
    kept = {
        file.stem: pd.read_parquet(file)
        for file in (tmp_path / "metrics" / "tables").glob("*.parquet")
    }
    measures, headlines = (
        json.loads((tmp_path / "metrics" / f"{name}.json").read_text())
        for name in ("measures", "headlines")
    )
    assert files(tmp_path / "metrics") == sorted(
        [
            "headlines.json",
            "measures.json",
            "summary.json",
            *(f"tables/{name}.parquet" for name in kept),
        ]
    )
    return trained, followed, kept, measures, headlines


def where(rows, **of):
    return [row for row in rows if of.items() <= row.items()]


def test_tables_and_measures_are_those_of_plain_loops(written):
    """One test, as one run writes all."""
    trained, followed, kept, measures, headlines = written
    assert len(kept["optimizers"]) == len(trained["runs"])
    shown = where(trained["courses"], seed=5, teacher_rank=4, log10_init_scale=-8.0)
    assert kept["courses"]["optimizer"].tolist() == [row["optimizer"] for row in shown]
    np.testing.assert_allclose(
        np.stack(list(kept["courses"]["W_VO"])), [row["W_VO"] for row in shown], rtol=1e-6
    )
    assert len(kept["noisy_paths"]) == len(where(trained["paths"], noise=0.5))
    assert kept["flow"]["time"].tolist() == [0.0, 1.0]
    smallest = where(followed["paths"], method="weights", seed=5, log10_init_scale=-6.0)
    np.testing.assert_allclose(
        np.stack(list(kept["descent"]["p"])), [row["p"] for row in smallest], rtol=1e-6
    )
    check_distances(followed["paths"], kept["distances"])
    check_measures(trained, measures)
    check_orders(followed, measures)
    said = {
        "n_seeds": 2,
        "n_samples": 9,
        "teacher_rank": 2,
        "noisy_samples": 3,
        "noise": 0.5,
        "small": "1e-8",
        "middle": "1e-4",
    }
    assert measures["setup"] == said
    assert set(headlines) == {"gd_delay_full", "muon_best_over_gd"}


def check_distances(paths, distances):
    for row in distances.to_dict("records"):
        of = {key: row[key] for key in ("method", "seed", "time")}
        [own] = [r for r in where(paths, **of) if r["log10_init_scale"] == row["log10_init_scale"]]
        [flow] = where(paths, method="flow", seed=row["seed"], time=row["time"])
        assert row["distance"] == pytest.approx(max(abs(own["p"] - flow["p"])), rel=1e-5)
        assert row["passed"] == (row["seed"] == 5 and row["time"] >= 0.5)


def check_measures(trained, measures):
    for name, (rank, kind), scale in itertools.product(NAMES, ((4, "full"), (2, "low")), SCALES):
        rows = sorted(
            where(trained["runs"], optimizer=name, teacher_rank=rank, log10_init_scale=scale),
            key=lambda row: row["seed"],
        )
        for key, value in (
            ("order", "order"),
            ("separate", "separate"),
            ("slope_most", "slope_most"),
        ):
            found = measures[f"{name}_{key}_{kind}"][f"1e{scale:g}"]
            assert dict(zip(found["cases"], found["values"], strict=True)) == pytest.approx(
                {str(row["seed"]): row[value] for row in rows}, rel=1e-5
            )
    for seed in SEEDS:
        late, early = (
            where(trained["runs"], optimizer="gd", teacher_rank=4, log10_init_scale=s, seed=seed)[0]
            for s in (-8.0, -4.0)
        )
        delay = (late["first_rise"] - early["first_rise"]) / math.log(1e4) * late["growth"]
        found = measures["gd_delay_full"]
        assert dict(zip(found["cases"], found["values"], strict=True))[str(seed)] == pytest.approx(
            delay, rel=1e-5
        )


def check_orders(followed, measures):
    """The orders of the diagonal head are those of the table."""
    for found, name in (
        (measures["adam_order_diagonal"], "adam"),
        (measures["flow_order_diagonal"]["1e-4"], "gradient flow"),
    ):
        wanted = {
            str(row["seed"]): row["order"] for row in where(followed["diagonal"], optimizer=name)
        }
        assert dict(zip(found["cases"], found["values"], strict=True)) == pytest.approx(
            wanted, rel=1e-5
        )
