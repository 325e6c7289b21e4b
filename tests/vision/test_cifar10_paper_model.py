"""The first epochs of the paper's model, on tiny models: stopped, resumed, measured and kept."""

import os
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from lib.files.files import InputError
from lib.vision.figures.beginning import first_epochs
from lib.vision.vit import ViT
from lib.work.cells import Pace
from published.cifar10_paper_model import run as published
from published.cifar10_paper_model import train as trained
from tests.pipeline.project import ROOT

KEPT = ROOT / "published" / "cifar10_paper_model"
MODEL = ViT(patch_size=2, d_model=10, n_heads=2, d_head=3, d_mlp=4, n_layers=2)
STEPS = [0, 1, 2, 3, 6, 9, 12]  # which are saved
STOPPED = {"true": 9, "permuted": 6}  # the last step of each training
FACTORS = {"W_KQ": ("W_K", "W_Q"), "W_VO": ("W_V", "W_O")}


class StoppedError(Exception):
    """The training was stopped by hand."""


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The folder of forty random images of four classes."""
    folder = tmp_path_factory.mktemp("paper_model") / "images"
    folder.mkdir()
    drawn = torch.Generator().manual_seed(3)
    x = torch.randint(0, 256, (40, 3, 4, 4), generator=drawn, dtype=torch.uint8)
    y = torch.arange(40) % 4
    tensors = {"train_images": x, "train_labels": y}
    tensors |= {"test_images": x[:9].clone(), "test_labels": y[:9].clone()}
    save_file(tensors, folder / "images.safetensors")
    return folder


def train_until(patch, images, labels, last):
    """Train until the snapshot of a step is saved."""
    save = trained.Timed.save

    def stopping(self, step, *more):
        save(self, step, *more)
        if step == last:
            raise StoppedError

    with patch.context() as stopped:
        stopped.setattr(trained.Timed, "save", stopping)
        with pytest.raises(StoppedError):
            trained.main(images, labels)


@contextmanager
def tiny(folder):
    """The program for tiny models in a folder, which saves a checkpoint at every step."""
    recipe = replace(
        trained.RECIPE,
        model=MODEL,
        batch_size=8,
        n_steps=12,
        warmup_steps=5,
        learning_rate=0.01,
        snapshot_every=3,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        patch.setattr(Pace, "due", lambda _: True)
        for module in (trained, published):
            patch.setattr(module, "RECIPE", recipe)
            patch.setattr(module, "N_SCORED", 4)
        for name, value in {"PLACED": (2, 1), "LEADING": 5}.items():
            patch.setattr(published, name, value)
        yield patch


@pytest.fixture(scope="module")
def made(images):
    """The folder where both trainings were stopped and measured."""
    with tiny(images.parent) as patch:
        for labels, last in STOPPED.items():
            train_until(patch, images, labels, last)
        published.main(images)
    return images.parent


def table(folder, name):
    return pd.read_parquet(folder / f"published/cifar10_paper_model/tables/{name}.parquet")


def snapshot(images, labels, step):
    """The weights of a step as the training saved them."""
    with tiny(images.parent), trained.cell_of(images / "images.safetensors", labels) as cell:
        return cell.load(f"snapshot-{step:09d}")


def test_what_both_have_saved_is_measured_head_by_head(made, images):
    training = table(made, "training")
    kept = STEPS[: STEPS.index(min(STOPPED.values())) + 1]
    assert training.groupby("control")["step"].agg(list).to_dict() == {
        "none": kept,
        "labels=permuted": kept,
    }
    keys = ["control", "matrix", "of", "step", "layer", "head"]
    ranks, shown = (table(made, name).set_index(keys) for name in ("ranks", "spectra"))
    for labels, control in (("true", "none"), ("permuted", "labels=permuted")):
        first, last = (snapshot(images, labels, step)[0] for step in (0, kept[-1]))
        for matrix, (a, b) in FACTORS.items():
            before = first[a][1, 0].double() @ first[b][1, 0].double().T
            after = last[a][1, 0].double() @ last[b][1, 0].double().T
            for of, step, W in (("initial", 0, before), ("update", kept[-1], after - before)):
                sigma = np.linalg.svd(W.numpy(), compute_uv=False)
                found = ranks["stable_rank"].to_dict()[control, matrix, of, step, 2, 1]
                assert found == pytest.approx((sigma**2).sum() / sigma[0] ** 2, rel=1e-5)
                leading = shown["singular_values"].to_dict()[control, matrix, of, step, 2, 1]
                wanted = sigma[: min(5, len(leading))]
                np.testing.assert_allclose(leading, wanted, rtol=1e-5, atol=1e-7)
    steps = table(made, "spectra").query("of == 'update'").groupby(["layer", "head"])["step"]
    assert {place: sorted(set(of)) for place, of in steps} == {
        (1, 1): [kept[-1]],
        (1, 2): [kept[-1]],
        (2, 1): kept[1:],
    }


def test_each_training_has_its_own_labels_and_the_same_start(made, images):
    one, other = (snapshot(images, labels, 0) for labels in trained.LABELS)
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])
    one, other = (snapshot(images, labels, 1) for labels in trained.LABELS)
    assert not torch.equal(one[0]["W_V"], other[0]["W_V"])
    assert one[1]["train_loss"] != other[1]["train_loss"]


def test_a_training_that_was_stopped_goes_on_to_its_end(made, images, capfd):
    with tiny(images.parent):
        trained.main(images, "permuted")
        said = [line for line in capfd.readouterr().out.splitlines() if " step " in line]
        assert [line.split(" step ")[1].split(":")[0] for line in said] == ["6", "9", "12"]
        with trained.cell_of(images / "images.safetensors", "permuted") as cell:
            assert published.saved(cell) == STEPS


def test_other_labels_are_refused(images):
    with pytest.raises(InputError, match=r"labels: wanted one of .* got none"):
        trained.main(images, "none")


def test_the_figure_has_updates_under_both_labels_beside_matrices_of_high_rank(made):
    figure = first_epochs(table(made, "ranks"), table(made, "spectra"), 2, 1, 5)
    spectrum, values, rank = figure.axes[:3]
    assert [len(axes.lines) for axes in (spectrum, values, rank)] == [3, 8, 4]
    for line in spectrum.lines:
        assert line.get_ydata()[0] == 1
    means = table(made, "ranks").query("matrix == 'W_KQ' and of == 'update'")
    means = means.groupby(["control", "step"])["stable_rank"].mean()
    np.testing.assert_allclose(rank.lines[0].get_ydata(), means["none"], rtol=1e-6)
    np.testing.assert_allclose(rank.lines[1].get_ydata(), means["labels=permuted"], rtol=1e-6)
    assert list(rank.lines[0].get_xdata()) == [step / 5 for step in (1, 2, 3, 6)]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["update, true labels", "update, permuted labels"]


def test_what_is_published_is_measured_of_its_tables(tmp_path):
    published.write_measures(published.all_measures(KEPT), tmp_path, published.HEADLINES)
    for name in ("measures.csv", "headlines.json"):
        assert (tmp_path / name).read_text() == (KEPT / name).read_text()
