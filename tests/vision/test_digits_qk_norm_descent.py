"""QK-norm by gradient descent: steps, states that are kept, and when keys turn and values rise."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from lib.vision.descent import Descent, chosen, follow, moved, rates_of_values, small_attention
from lib.vision.images import Images
from lib.vision.vit import ATTENTION, ViT, training_loss
from lib.vision.waits import events, first_time, mean_rate, measured, waits
from published.digits_qk_norm_descent import run as published
from tests.pipeline.project import ROOT

KEPT = ROOT / "published" / "digits_qk_norm_descent"
MODEL = ViT(patch_size=2, d_model=6, n_heads=2, d_head=3, d_mlp=4, n_layers=2)
HOW = Descent(n_images=12, step=0.05, share=0.03, turned=0.2, risen=1e-3, until=2.0)


@pytest.fixture(scope="module")
def images():
    """Twenty random images of four classes."""
    drawn = torch.Generator().manual_seed(3)
    x = torch.randint(0, 17, (20, 1, 4, 4), generator=drawn, dtype=torch.uint8)
    y = torch.arange(20) % 4
    return Images(x, y, x[:4], y[:4])


def test_a_scale_multiplies_the_attention_alone_and_both_attentions_start_alike(images):
    one, small = (small_attention(MODEL, images, scale, "plain", 5) for scale in (1.0, 0.1))
    for name, W in one.items():
        torch.testing.assert_close(small[name], 0.1 * W if name in ATTENTION else W)
    normalized = small_attention(MODEL, images, 0.1, "qk_norm", 5)
    assert normalized.keys() - small.keys() == {"gain_QK"}
    assert all(torch.equal(normalized[name], W) for name, W in small.items())


def test_permuted_labels_are_those_of_the_same_images(images):
    x, y = chosen(images, 12, "true", 1)
    same, other = chosen(images, 12, "permuted", 1)
    assert torch.equal(x, same)
    assert torch.equal(y.sort().values, other.sort().values)
    assert not torch.equal(y, other)


@pytest.mark.parametrize("attention", ["plain", "qk_norm"])
def test_the_rate_of_values_is_that_of_the_gradient_by_their_product(images, attention):
    x, y = chosen(images, 12, "true", 1)
    square = replace(MODEL, n_heads=1, d_head=6)
    start = small_attention(square, images, 0.5, attention, 5)
    weights = {name: W.double() for name, W in start.items()}
    # With W_O = 1 the gradient by W_V is that by the product.
    weights["W_O"] = torch.eye(6).double().expand(2, 1, 6, 6)
    leaves = {name: W.detach().requires_grad_() for name, W in weights.items()}
    training_loss(leaves, x.double(), y, "float32").backward()
    wanted = np.linalg.norm(leaves["W_V"].grad.numpy(), 2, axis=(2, 3))
    found = rates_of_values({name: W.float() for name, W in weights.items()}, x, y)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)


@pytest.mark.parametrize("attention", ["plain", "qk_norm"])
def test_a_training_is_descent_by_steps_that_are_short_for_every_head(images, attention):
    x, y = chosen(images, 12, "true", 1)
    start = small_attention(MODEL, images, 0.1, attention, 5)
    rows = follow(start, x, y, HOW)
    weights = {name: W.clone() for name, W in start.items()}
    time = 0.0
    for _ in range(rows[-1]["step"]):
        leaves = {name: W.requires_grad_() for name, W in weights.items()}
        training_loss(leaves, x, y, "float32").backward()
        slopes = {name: W.grad for name, W in leaves.items()}
        most = max(
            float(slopes[name][i, j].norm() / leaves[name][i, j].detach().norm())
            for name in ATTENTION
            for i in range(2)
            for j in range(2)
        )
        length = min(0.05, 0.03 / most)
        weights = {name: (W - length * slopes[name]).detach() for name, W in leaves.items()}
        time += length
    assert rows[-1]["time"] == pytest.approx(time, rel=1e-4)
    assert rows[0]["keys"] == rows[0]["values"] == rows[0]["time"] == 0
    updates, before = {}, {}
    for name, left, right in (("keys", "W_K", "W_Q"), ("values", "W_V", "W_O")):
        first = (start[left] @ start[right].mT).numpy()
        updates[name] = (weights[left] @ weights[right].mT).numpy() - first
        before[name] = np.linalg.norm(first, axis=(2, 3))
    norms = {name: np.linalg.norm(update, axis=(2, 3)) for name, update in updates.items()}
    assert rows[-1]["keys"] == pytest.approx((norms["keys"] / before["keys"]).max(), rel=1e-3)
    assert rows[-1]["values"] == pytest.approx(norms["values"].max(), rel=1e-3)
    ended = rows[-1]["keys"] >= HOW.turned and rows[-1]["values"] >= HOW.risen
    assert ended or rows[-1]["time"] >= HOW.until
    grown = {"W_K": 1.5, "W_Q": 0.75}
    scaled = start | {name: factor * start[name] for name, factor in grown.items()}
    assert moved(scaled, start)["drift"] == pytest.approx(0.5)


def test_times_and_mean_rates_are_linear_between_states():
    times = np.array([0.0, 2, 4])
    moves = np.array([0.0, 0.2, 0.6])
    assert first_time(times, moves, 0.5) == pytest.approx(3.5)
    assert first_time(times, moves, 0.7) == math.inf
    rates = np.array([1.0, 1.0, 3.0])
    assert mean_rate(times, rates, 1, 4) == pytest.approx((1 + 4) / 3)
    assert math.isnan(mean_rate(times, rates, 1, math.inf))


def made(attention, scale, seed, turn, rise, rate, steps="whole"):
    """States whose keys and values move in proportion to time."""
    return [
        {"attention": attention, "labels": "permuted", "steps": steps, "init_scale": scale}
        | {"seed": seed, "step": step, "time": float(step), "loss": 1.0, "rate": rate}
        | {"keys": 0.5 * step / turn, "values": 0.01 * step / rise, "drift": 0.1 * step}
        for step in range(41)
    ]


def test_the_drift_is_that_of_the_first_state_after_the_turn_and_none_without_a_turn():
    followed = pd.DataFrame(
        made("qk_norm", 0.1, 0, 9.5, 20, 1) + made("qk_norm", 0.1, 1, 100, 20, 1)
    )
    found = events(pd.DataFrame(followed), 0.5, 0.01).set_index("seed")
    assert found["drift"][0] == pytest.approx(1.0)  # of step 10
    assert math.isnan(found["drift"][1])
    assert found["turn"][1] == math.inf


def test_waits_are_in_units_of_the_logarithm_over_the_rate():
    rows = [
        *made("plain", 0.01, 7, 10, 8, 0.5),
        *made("plain", 0.001, 7, 15, 12, 0.25),
        *made("qk_norm", 0.01, 7, 4, 5, 1.0),
        *made("qk_norm", 0.001, 7, 5, 10, 2.0),
        *made("qk_norm", 0.01, 7, 4.4, 6, 1.0, "halved"),
    ]
    followed = pd.DataFrame(rows)
    drifts = events(followed, 0.5, 0.01).set_index(["attention", "init_scale", "steps"])["drift"]
    assert drifts["plain", 0.01, "whole"] == pytest.approx(1.0)
    found = {(row.measure, row.case, row.scale): row.value for row in measured(followed, 0.5, 0.01)}
    log = math.log(10)
    wanted = {
        ("turn", "qk_norm permuted", "0.001"): 5,
        ("rise", "plain permuted", "0.01"): 8,
        ("turn_over_that_of_scale_before", "plain permuted", "0.001"): 1.5,
        ("turn_over_rise", "qk_norm permuted", "0.001"): 0.5,
        ("wait_of_keys", "plain permuted", "0.001"): 5 * 0.25 / log,
        ("wait_of_keys", "qk_norm permuted", "0.001"): 1 * 2 / log,
        ("wait_of_values", "qk_norm permuted", "0.001"): 5 * 2 / log,
        ("wait_of_values_if_uniform", "qk_norm permuted", "0.001"): 5 * 0.25 / log,
        ("turn_change_by_steps", "qk_norm permuted", "0.01"): 0.1,
        ("rise_change_by_steps", "qk_norm permuted", "0.01"): 0.2,
    }
    assert {key: found[key] for key in wanted} == pytest.approx(wanted)
    assert ("turn_over_that_of_scale_before", "plain permuted", "0.01") not in found


def test_the_figure_draws_means_over_seeds_and_what_theory_says():
    kinds = [
        (attention, labels) for attention in ("plain", "qk_norm") for labels in ("true", "permuted")
    ]
    rows = [
        row | {"labels": labels}
        for attention, labels in kinds
        for seed in (1, 2)
        for scale, late in ((0.1, 0), (0.01, 2), (0.001, 6))
        for row in made(attention, scale, seed, 4 + late * seed, 3 + late, 0.5)
    ]
    followed = pd.DataFrame(rows)
    found = events(followed, 0.5, 0.01)
    late = waits(followed, found)
    figure = published.turns_and_rises(followed, found, late, 0.5, 0.01)
    keys, values, normalized, _ = figure.axes
    lines = {line.get_label(): line for line in keys.lines}
    assert list(lines["QK-norm"].get_xdata()) == [0.001, 0.01, 0.1]
    assert list(lines["QK-norm"].get_ydata()) == pytest.approx([13, 7, 4])
    assert list(lines["theory"].get_ydata()) == pytest.approx([13, 13])
    dashed = [line for line in values.lines if line.get_linestyle() == "--"]
    assert list(dashed[0].get_ydata()) == pytest.approx([5 + math.log(10) / 0.5, 5])
    assert normalized.lines[0].get_ydata()[10] == pytest.approx(1)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["QK-norm", "QK-norm, permuted labels", "plain attention", "theory"]


def test_what_is_published_is_measured_of_its_table(tmp_path):
    rows = published.all_measures(published.kept(KEPT))
    published.write_measures(rows, tmp_path, published.HEADLINES)
    for name in ("measures.csv", "headlines.json"):
        assert (tmp_path / name).read_text() == (KEPT / name).read_text()
