"""QK-norm on digits, on tiny models: what is trained, what is kept beside plain attention."""

import importlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from lib.files.runs import open_run, open_runs
from lib.files.tables import compact, read_table
from lib.vision.measures import ranks_of
from published.digits_qk_norm import run as published
from tests.pipeline.project import ROOT
from tests.vision.test_digits_optimizers import TRAIN

CHANGED = {"n_steps": 8, "snapshot_every": 4, "learning_rate": 0.02, "controls": ["permuted"]}
DATA = {"source": "digits", "n_test": 360, "seed": 0}
KEPT = ROOT / "published" / "digits_qk_norm"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder where all was made."""
    folder = tmp_path_factory.mktemp("qk_norm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr(published, "N_SEEDS", 2)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        digits = {"data": DATA, "train": TRAIN | CHANGED}
        Path("params.yaml").write_text(yaml.safe_dump({"vision": {"digits": digits}}))
        Path("controls.tsv").write_text("name\tlabels\npermuted\tpermuted\n")
        images = Path("data/images")
        runs = Path("data/runs")
        for stage, *arguments in (
            ("vision.fetch", "vision.digits.data", Path("data/official")),
            ("vision.generate", "vision.digits.data", Path("data/official"), images),
            ("vision.train", published.TRAIN, Path("controls.tsv"), images, runs),
            ("spectra", runs, Path("data/spectra.parquet")),
        ):
            importlib.import_module(f"stages.{stage}").main(*arguments)
        steps = [run.steps.assign(**run.layout.cell) for run in open_runs(runs, "vision")]
        plain = {
            "training": pd.concat(steps),
            "ranks": ranks_of(read_table(Path("data/spectra.parquet")), 1e-3, 8),
        }
        for name, table in plain.items():
            published.DRAWN[name].write(compact(table), Path("plain") / f"{name}.parquet")
        published.main(images, Path("plain"), folder / "work")
    return folder


def table(folder, name):
    return pd.read_parquet(folder / "published" / "digits_qk_norm" / "tables" / f"{name}.parquet")


def test_both_attentions_are_trained_from_the_same_weights_on_both_labels(made):
    names = sorted(path.name for path in (made / "work" / "runs").iterdir())
    kinds = ("attention=qk_norm", "labels=permuted,attention=qk_norm")
    assert names == sorted(f"init_scale={s},{kind}" for s in ("0.5", "1") for kind in kinds)
    plain = open_run(made / "data/runs/init_scale=1")
    normalized = open_run(made / "work/runs/init_scale=1,attention=qk_norm")
    for name, W in plain.weights(0).items():
        np.testing.assert_array_equal(normalized.weights(0)[name], W)
    assert "gain_QK" in normalized.weights(-1)
    training = table(made, "training")
    kept = training.groupby(["attention", "control", "init_scale"], observed=True).size()
    assert len(kept) == 2 * 2 * 2
    assert kept.nunique() == 1
    losses = normalized.steps.sort_values(["seed", "step"])["test_loss"]
    own = training[(training["attention"] == "qk_norm") & (training["control"] == "none")]
    own = own[own["init_scale"] == 1].sort_values(["seed", "step"])
    np.testing.assert_allclose(own["test_loss"], losses, rtol=1e-5)


def test_norms_and_ranks_of_updates_are_those_of_the_products(made):
    normalized = open_run(made / "work/runs/init_scale=0.5,attention=qk_norm")
    initial, final = (
        {
            name: w[1, 1, 0].double().numpy()
            for name, w in normalized.weights(i).items()
            if "W_" in name and w.ndim > 4
        }
        for i in (0, -1)
    )
    update = final["W_K"] @ final["W_Q"].T - initial["W_K"] @ initial["W_Q"].T
    sigma = np.linalg.svd(update, compute_uv=False)
    products = table(made, "products")
    here = products[(products["attention"] == "qk_norm") & (products["control"] == "none")]
    here = here[(here["matrix"] == "W_KQ") & (here["init_scale"] == 0.5) & (here["seed"] == 1)]
    here = here[(here["layer"] == 2) & (here["head"] == 1) & (here["step"] == 8)]
    row = here[here["of"] == "update"].iloc[0]
    assert row["norm"] == pytest.approx(np.linalg.norm(sigma), rel=1e-4)
    assert row["stable_rank"] == pytest.approx(sigma @ sigma / sigma[0] ** 2, rel=1e-4)
    moved = np.linalg.norm(sigma) / np.linalg.norm(initial["W_K"] @ initial["W_Q"].T)
    turns = table(made, "turns")
    here = turns[(turns["attention"] == "qk_norm") & (turns["control"] == "none")]
    here = here[(here["matrix"] == "W_KQ") & (here["init_scale"] == 0.5) & (here["seed"] == 1)]
    here = here[(here["layer"] == 2) & (here["head"] == 1)]
    assert here["moved"].item() == pytest.approx(moved, rel=1e-4)


def test_what_is_published_is_measured_of_its_tables(tmp_path):
    tables = {
        name: pd.read_parquet(KEPT / "tables" / f"{name}.parquet") for name in published.OF_QK_NORM
    }
    n_steps = int(tables["training"]["step"].max())
    published.write_measures(published.measured(tables, n_steps), tmp_path, published.HEADLINES)
    for name in ("measures.csv", "headlines.json"):
        assert (tmp_path / name).read_text() == (KEPT / name).read_text()
