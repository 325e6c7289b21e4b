"""Adapters of a model by its loss alone: forecasts are what integration gives, controls by hand;
and the measures of a head and of a transformer are those of their kept tables.
"""

import importlib
import math

import numpy as np
import pandas as pd
import pytest
import torch

from lib.pages.measures import read_measures
from lib.training.devices import generator
from lib.vision.images import Images
from lib.vision.vit import ViT
from published.lora_start import controls, updates
from published.lora_start.trainings import SIZES, Adapter
from published.lora_start_vit import run as vit
from tests.pipeline.project import ROOT

SHAPES = {"a": (4, 5), "b": (5, 3)}
SMALL = min(SIZES)
KAPPA = 2 * math.sqrt(4.0)


def quadratic():
    """A model whose loss is a quarter of the squared distance to two random matrices."""
    aims = {
        name: torch.randn(shape, generator=generator(0, name), dtype=torch.float64)
        for name, shape in SHAPES.items()
    }

    def loss(added):
        return sum((aims[name] - added[name]).square().sum() / 4 for name in SHAPES)

    return aims, updates.Tuned("made", SHAPES, loss, torch.float64)


def test_a_forecast_is_the_time_of_the_integrated_factors():
    """Adapters are integrated here by matrices, step by step, until each direction has come."""
    aims, tuned = quadratic()
    one = Adapter("descent", 4, -1.0, 4.0, 400, 0.02)
    table = updates.train(tuned, one, 7)["learned"]
    table = table[table["size"] == SMALL]
    rate = table["rate"].iloc[0]
    drawn = updates.drawn_factors(tuned, 4, 7)
    for name, rows in table.groupby("module"):
        U, sigma, Vh = np.linalg.svd(aims[name].numpy() / 2, full_matrices=False)
        assert rows["sigma"].to_numpy() == pytest.approx(sigma[:3])
        A = 0.1 * drawn[name].A.detach().numpy()
        B = drawn[name].B.detach().numpy()
        course = []
        for _ in range(401):
            course.append(np.diag(U.T @ (2 * B @ A) @ Vh.T)[:3])
            G = (aims[name].numpy() - 2 * B @ A) / 2
            A, B = A + rate * 2 * B.T @ G, B + 4 * rate * 2 * G @ A.T
        for k, (when, said) in enumerate(zip(rows["measured"], rows["forecast"], strict=True)):
            assert np.interp(when, range(401), np.array(course)[:, k]) == pytest.approx(SMALL)
            assert when == pytest.approx(said, rel=0.01)


def test_a_matrix_that_is_trained_whole_learns_a_direction_in_proportion_to_its_sigma():
    aims, tuned = quadratic()
    one = Adapter(updates.WHOLE, 0, 0.0, 1.0, 60, 2e-4)
    table = updates.train(tuned, one, 7)["learned"]
    largest = max(np.linalg.norm(aim.numpy() / 2, 2) for aim in aims.values())
    said = table["size"] / (2e-4 / largest * table["sigma"])
    assert table["forecast"].to_numpy() == pytest.approx(said.to_numpy())
    came = table[np.isfinite(table["measured"])]
    assert len(came) > 5
    assert came["measured"].to_numpy() == pytest.approx(came["forecast"].to_numpy(), rel=0.01)


def test_a_is_drawn_as_the_library_draws_it_and_b_is_zero():
    _, tuned = quadratic()
    factors = updates.drawn_factors(tuned, 400, 1)["a"]
    A = factors.A.detach()
    assert A.shape == (400, 5)
    assert float(A.abs().max()) == pytest.approx(1 / math.sqrt(5), rel=0.01)
    assert float(A.square().mean()) == pytest.approx(1 / 15, rel=0.1)
    assert not factors.B.detach().any()


def made_rows(**columns):
    where = {"model": "m", "seed": 0, "size": SMALL, "log10_init_scale": 0.0, "ratio": 1.0}
    where |= {"module": "m", "rate": 0.01, "horizon": 100.0, "case": "descent"}
    n = len(next(iter(columns.values())))
    return pd.DataFrame({"direction": range(n)} | columns).assign(**where)


def test_permuted_sigmas_change_errors_and_not_those_of_equal_ones():
    squares = [0.01, 0.02, 0.04]
    same = made_rows(sigma=[1.0] * 3, plus=squares, minus=squares, forecast=[3.0, 2.0, 1.0])
    rows = [controls.permuted(same.assign(measured=[3.0, 2.0, 1.0]))]
    other = same.assign(sigma=[1.0, 2.0, 4.0], plus=0.01, minus=0.01, measured=[4.0, 2.0, 1.0])
    rows.append(controls.permuted(other))
    [alike], [apart] = (one["order_permuted"]["1e0"] for one in rows)
    assert alike == pytest.approx(1.0)
    assert abs(apart) < 0.3


def test_the_order_beside_whole_training_is_tau_of_both_measured_orders():
    rows = made_rows(measured=[1.0, 2.0, 3.0])
    whole = made_rows(measured=[1.0, 3.0, 2.0]).assign(case=updates.WHOLE)
    [tau] = controls.beside_whole(pd.concat([rows, whole]), "descent")["order_whole"]["1e0"]
    assert tau == pytest.approx(1 / 3)


def test_a_transformer_is_tuned_on_turned_digits_of_its_seed(tmp_path, monkeypatch):
    """The loss of zero updates is that of the base which the seed has, on its turned images."""
    model = ViT(patch_size=2, d_model=6, n_heads=2, d_head=4, d_mlp=5, n_layers=1)
    images = torch.randint(0, 255, (9, 1, 4, 4), dtype=torch.uint8)
    labels = torch.randint(0, 3, (9,))
    each = [
        model.initial_weights((1, 4, 4), 3, 1.0, "layers", torch.Generator().manual_seed(i))
        for i in (0, 1)
    ]
    stacked = {name: torch.stack([one[name] for one in each]) for name in each[0]}
    data = Images(images, labels, images, labels)

    class Run:
        layout = type("Layout", (), {"seeds": [0, 1]})

        def weights(self, _):
            return stacked

    monkeypatch.setattr(vit, "open_run", lambda _: Run())
    monkeypatch.setattr(vit, "read_images", lambda _: data)
    monkeypatch.setattr(vit, "N_IMAGES", 9)
    tuned = vit.tuned_vit(3, tmp_path, tmp_path)
    x = vit.standardise(images, *data.statistics()).transpose(2, 3).flip(2)
    logits = vit.logits(each[1], x)
    wanted = torch.nn.functional.cross_entropy(logits, labels)
    assert tuned.loss(tuned.zeros()).item() == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize("name", ["lora_start_head", "lora_start_vit"])
def test_published_measures_are_those_of_the_published_tables(name):
    program = importlib.import_module(f"published.{name}.run")
    folder = ROOT / program.OUT
    rows = [row for row in program.all_measures(folder) if row.unit]
    kept = read_measures(folder / "measures.csv")
    assert {f"{row.measure}.{row.case}".strip(".") for row in rows} == kept.keys() - {"setup"}
    for row in rows:
        of_case = kept[f"{row.measure}.{row.case}".strip(".")]
        one = of_case[row.scale] if row.scale else of_case
        wanted = one["values"][one["cases"].index(row.unit)]
        if wanted is None:
            assert not math.isfinite(row.value), row
        else:
            assert row.value == pytest.approx(wanted, rel=1e-4, abs=1e-9), row
