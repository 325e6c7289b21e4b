"""Updates on digits, on tiny models: what is measured of weights, classes and outputs, and kept."""

import importlib
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from lib.files.runs import open_run
from lib.vision.functions import added, updates
from lib.vision.images import read_images
from lib.vision.vit import MATRICES
from published.digits_updates import run as published
from tests.pipeline.project import ROOT
from tests.vision.test_digits_optimizers import TRAIN
from tests.vision.vit_made import scored, standardised

CHANGED = {"n_steps": 30, "snapshot_every": 10, "learning_rate": 0.02, "controls": ["permuted"]}
DATA = {"source": "digits", "n_test": 360, "seed": 0}
KEPT = ROOT / "published" / "digits_updates"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder where all was made."""
    folder = tmp_path_factory.mktemp("updates")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        for name, value in {"N_SEEDS": 2, "RANKS": (1, 2), "TIMES": (0.0, 1.0)}.items():
            patch.setattr(published, name, value)
        digits = {"data": DATA, "train": TRAIN | CHANGED}
        Path("params.yaml").write_text(yaml.safe_dump({"vision": {"digits": digits}}))
        Path("controls.tsv").write_text("name\tlabels\npermuted\tpermuted\n")
        data = Path("data")
        for stage, *arguments in (
            ("vision.fetch", "vision.digits.data", data / "official"),
            (
                "vision.generate",
                "vision.digits.data",
                data / "official",
                data / "images",
            ),
            (
                "vision.train",
                published.TRAIN,
                Path("controls.tsv"),
                data / "images",
                data / "runs",
            ),
            ("spectra", data / "runs", data / "spectra.parquet"),
        ):
            importlib.import_module(f"stages.{stage}").main(*arguments)
        published.main(data, data / "spectra.parquet", folder / "work")
    return folder


def table(folder, name):
    return pd.read_parquet(folder / "published" / "digits_updates" / "tables" / f"{name}.parquet")


def weights(folder, which):
    """The first and the last weights of a run's first seed."""
    one = open_run(folder / which)
    return ({name: w[0] for name, w in one.weights(i).items()} for i in (0, -1))


def test_the_trained_product_itself_is_measured_beside_its_ends(made):
    products = table(made, "products")
    initial, final = weights(made, "data/runs/init_scale=1")
    W = {
        "initial": initial["W_V"][1, 0] @ initial["W_O"][1, 0].T,
        "trained": final["W_V"][1, 0] @ final["W_O"][1, 0].T,
    }
    W["update"] = W["trained"] - W["initial"]
    here = products[(products["data"] == "digits") & (products["init_scale"] == 1)]
    here = here[(here["matrix"] == "W_VO") & (here["layer"] == 2) & (here["head"] == 1)]
    here = here[here["seed"] == 0].set_index("of")
    for of, wanted in W.items():
        sigma = np.linalg.svd(wanted.double().numpy(), compute_uv=False)
        numbers = (sigma @ sigma / sigma[0] ** 2, sigma[0], sigma[0])  # 1 of 3 is the middle
        found = here.loc[of, ["rank", "largest", "middle"]].astype(float)
        assert tuple(found) == pytest.approx(numbers, rel=1e-4)


def test_random_changes_have_the_training_loss_of_the_cut(made):
    outputs = table(made, "outputs")
    initial, final = weights(made, "data/runs/init_scale=1")
    images = read_images(made / "data" / "images" / "images.safetensors")
    train = standardised(images.train_images, images.train_images)
    start, learned = final | {name: initial[name] for name in MATRICES}, updates(initial, final)
    of_seed = outputs[outputs["seed"] == 0].set_index(["rank", "kind"])
    for rank in (1, 2):
        loss, _ = scored(added(start, learned, slice(rank)), train, images.train_labels)
        assert of_seed.loc[(rank, "cut"), "train_loss"] == pytest.approx(loss, rel=1e-4)
        for kind in ("random", "second random"):
            row = of_seed.loc[(rank, kind)]
            assert row["train_loss"] == pytest.approx(loss, rel=0.03)
            assert row["logits"] > 0
    scaled = table(made, "scaled")
    full = scaled[(scaled["kind"] == "learned") & (scaled["times"] == 1) & (scaled["seed"] == 0)]
    loss, _ = scored(final, train, images.train_labels)
    assert full["train_loss"].item() == pytest.approx(loss, rel=1e-4)


def test_the_same_images_are_learned_in_groups(made):
    images, groups = (
        read_images(made / folder / "images" / "images.safetensors")
        for folder in ("data", "work/5")
    )
    assert torch.equal(groups.train_images, images.train_images)
    assert torch.equal(groups.test_labels, images.test_labels.div(2, rounding_mode="floor"))
    classes = table(made, "classes")
    kinds = classes.groupby("n_classes")["control"].agg(lambda of: sorted(set(of)))
    both = ["labels=permuted", "none"]
    assert kinds.to_dict() == {2: both, 5: ["none"], 10: both}
    losses = open_run(made / "data/runs/init_scale=1").steps
    ten = classes[(classes["n_classes"] == 10) & (classes["control"] == "none")]
    ten = ten[(ten["matrix"] == "W_KQ") & (ten["seed"] == 1)].sort_values("step")
    wanted = losses[(losses["seed"] == 1) & (losses["step"] > 0)]["test_loss"]
    np.testing.assert_allclose(ten["test_loss"], wanted, rtol=1e-5)


def test_what_is_published_is_measured_of_its_tables(tmp_path):
    names = ("products", "classes", "outputs", "scaled")
    tables = {name: pd.read_parquet(KEPT / "tables" / f"{name}.parquet") for name in names}
    published.write_measures(published.measured(tables), tmp_path, published.HEADLINES)
    for name in ("measures.csv", "headlines.json"):
        assert (tmp_path / name).read_text() == (KEPT / name).read_text()
