"""When a product has moved by a tenth of its norm, and what is measured of each attention."""

import numpy as np
import pandas as pd
import pytest

from lib.vision.figures.qk_norm import LINES, ranks_and_turns
from lib.vision.turns import first_reached, of_attentions, turns, with_attention

PERMUTED = "labels=permuted"


def test_a_power_law_reaches_a_level_where_it_does():
    steps = np.array([1.0, 2, 8, 64])
    moved = 0.01 * steps**1.5
    assert first_reached(steps, moved, 0.1) == pytest.approx(10 ** (1 / 1.5))
    assert first_reached(steps, moved, 0.005) == 1
    assert first_reached(steps, moved, 6.0) == np.inf


def test_the_attention_is_taken_out_of_a_control():
    controls = ["none", "attention=qk_norm", "labels=permuted,attention=qk_norm", PERMUTED]
    found = with_attention(pd.DataFrame({"control": controls, "x": range(4)}))
    assert list(found["attention"]) == ["plain", "qk_norm", "qk_norm", "plain"]
    assert list(found["control"]) == ["none", "none", PERMUTED, PERMUTED]
    assert list(found["x"]) == [0, 1, 2, 3]


SPEED = {"plain": 1.0, "qk_norm": 4.0}
STEPS = [1, 2, 4, 8, 16, 32, 64]


@pytest.fixture(scope="module")
def tables():
    """Updates whose norm is a multiple of the step over the init scale, that of values half of it.

    Stable ranks are 3 times the init scale, and half of that under permuted labels.
    """
    products = []
    training = []
    for attention, speed in SPEED.items():
        for control, less in (("none", 1.0), (PERMUTED, 0.5)):
            for scale in (0.5, 1.0, 2.0):
                for seed in (3, 4):
                    told = {"attention": attention, "control": control}
                    told |= {"init_scale": scale, "seed": seed}
                    training += [
                        {"step": step, "train_loss": 1 / (1 + step), "test_accuracy": 0.5, **told}
                        for step in (0, *STEPS)
                    ]
                    for matrix, factor in (("W_KQ", 1.0), ("W_VO", 0.5)):
                        for head in (1, 2, 3):
                            own = {"matrix": matrix, "layer": 1, "head": head, **told}
                            norm = 7.0 * head
                            products.append(
                                {"of": "initial", "step": 0, "norm": norm, "stable_rank": 8.0} | own
                            )
                            products += [
                                {"of": "update", "step": step, "stable_rank": 3 * scale * less}
                                | {"norm": norm * factor * speed * less * 0.01 * step / scale}
                                | own
                                for step in STEPS
                            ]
    return {"training": pd.DataFrame(training), "products": pd.DataFrame(products)}


def test_each_head_turns_where_its_update_has_a_tenth_of_its_initial_norm(tables):
    found = turns(tables["products"])
    of = found.set_index(["matrix", "attention", "control", "init_scale", "seed", "layer", "head"])
    assert len(of) == 2 * 2 * 2 * 3 * 2 * 3
    assert of.loc["W_KQ", "plain", "none", 0.5, 3, 1, 2]["turn"] == pytest.approx(5)
    assert of.loc["W_VO", "qk_norm", PERMUTED, 2.0, 4, 1, 3]["turn"] == pytest.approx(20)
    assert of.loc["W_VO", "plain", PERMUTED, 2.0, 4, 1, 3]["turn"] == np.inf
    assert of.loc["W_KQ", "qk_norm", "none", 1.0, 3, 1, 1]["moved"] == pytest.approx(2.56)


def test_measures_of_an_attention_have_its_name_behind_their_case(tables):
    rows = of_attentions(tables | {"turns": turns(tables["products"])}, 1.0)
    found = {(row.measure, row.case, row.scale, row.unit): row.value for row in rows}
    wanted = {
        ("turn", "W_KQ", "0.5", "3"): 5,
        ("turn", "W_KQ qk_norm", "2", "4"): 5,
        ("turn", "W_VO permuted qk_norm", "0.5", "4"): 5,
        ("turn_over_that_of_scale_before", "W_KQ qk_norm", "2", "3"): 2,
        ("turn_of_keys_over_values", "qk_norm", "1", "3"): 0.5,
        ("turn_of_keys_over_values", "permuted", "0.5", "3"): 0.5,
        ("stable_rank", "W_VO permuted qk_norm", "2", "3"): 3,
        ("growth_with_init_scale", "W_KQ qk_norm", "1", "4"): 2,
        ("growth_with_init_scale_at_equal_loss", "W_KQ qk_norm", "1", "4"): 2,
        ("growth_with_init_scale", "W_VO permuted", "2", "4"): 2,
        ("train_loss", "qk_norm", "1", "3"): 1 / 65,
    }
    assert {key: found[key] for key in wanted} == pytest.approx(wanted)
    assert list(dict.fromkeys(row.scale for row in rows if row.measure == "turn")) == [
        "0.5",
        "2",
        "1",
    ]


def test_the_figure_has_a_line_for_each_attention_and_permuted_labels(tables):
    found = turns(tables["products"])
    figure = ranks_and_turns(tables["products"], found, 0.1)
    panels = figure.axes
    for panel, at_one in ((0, 3.0), (1, 3.0), (2, 2.5), (3, 5.0)):
        lines = {line.get_label(): line for line in panels[panel].lines}
        line = lines["QK-norm"]
        assert list(line.get_xdata()) == [0.5, 1, 2]
        assert line.get_ydata()[1] == pytest.approx(at_one)
    permuted = {line.get_label(): line for line in panels[0].lines}["QK-norm, permuted labels"]
    assert permuted.get_ydata()[1] == pytest.approx(1.5)
    dashed = [line for line in panels[3].lines if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in dashed] == pytest.approx([2.5])
    assert "10%" in panels[2].get_ylabel()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [*(line.label for line in LINES), "if the scale did not matter"]
