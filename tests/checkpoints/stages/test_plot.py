"""The figures of checkpoints: their lines, points and numbers, against the made-up numbers of their
tables.
"""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib.checkpoints.figures import spectra_of_snapshots
from lib.files.files import InputError
from lib.pages.style import MATRIX_COLORS, NULL_COLOR
from tests.checkpoints.checkpoints_made import RULES, RUNS, number, written
from tests.pipeline.project import ROOT
from tests.stages.made import files

NAMES = ["heads", "plans", "pruning", "ranks", "rounding"]
GROUPS = [(model, kind) for model in ("gpt2", "llama") for kind in ("gentle", "large")]


@pytest.fixture
def figures(stage, drawn, tmp_path):
    models = [written(tmp_path, model) for model in ("llama", "gpt2")]
    stage("checkpoints.evaluate", {}, Path("metrics"), models)
    stage("checkpoints.plot", {}, Path("metrics/tables"), Path("figures"))
    assert files(Path("figures")) == sorted(f"{name}.svg" for name in NAMES)
    return {name: drawn[(Path("figures") / f"{name}.svg").read_bytes()] for name in NAMES}


def lines(axes):
    return {str(line.get_label()): line for line in axes.get_lines()}


def test_plans_are_means_over_seeds_beside_the_band_of_shuffles(figures):
    for axes, (model, kind) in zip(figures["plans"].axes, GROUPS, strict=True):
        assert axes.get_title() == f"{model}, {kind}"
        runs = [run for run in RUNS if run.startswith(kind)]
        for rule in RULES:
            line = lines(axes)[rule]
            wanted = [np.mean([number(model, run, b, rule, 0) for run in runs]) for b in (1, 2)]
            np.testing.assert_allclose(line.get_ydata(), wanted, rtol=1e-5)
            assert list(line.get_xdata()) == [100, 200]
        [band] = [c for c in axes.collections if c.get_label() == "attributed, shuffled"]
        heights = band.get_paths()[0].vertices[:, 1]
        shuffled = [
            number(model, run, b, "attributed", k) for run in runs for b in (1, 2) for k in (1, 2)
        ]
        assert (heights.min(), heights.max()) == pytest.approx(
            (min(shuffled), max(shuffled)), rel=1e-5
        )
        assert [tick.get_text() for tick in axes.get_xticklabels()] == [
            "100\nrank 1",
            "200\nrank 2",
        ]


def test_ranks_stand_in_their_layer(figures):
    for axes in figures["ranks"].axes:
        assert [text.get_text() for text in axes.texts] == ["1", "0"]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["up"]
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2"]


def test_pruning_is_the_measured_loss(figures):
    for axes, (model, kind) in zip(figures["pruning"].axes, GROUPS, strict=True):
        for what in ("weights, smallest first", "updates, smallest first", "updates, at random"):
            runs = [run for run in RUNS if run.startswith(kind)]
            wanted = [
                1 + np.mean([number(model, run, what, rate) for run in runs]) for rate in (0.3, 0.5)
            ]
            np.testing.assert_allclose(lines(axes)[what].get_ydata(), wanted, rtol=1e-5)
        assert lines(axes)["tuned"].get_ydata()[0] == pytest.approx(0.9)
        assert lines(axes)["no linear update"].get_ydata()[0] == pytest.approx(2.2)


def test_rounding_shows_both_ranks_against_the_size_of_the_update(figures):
    left, right = figures["rounding"].axes
    for model in ("llama", "gpt2"):
        assert sorted(lines(left)[f"{model}, as it is"].get_ydata()) == [6] * 8
        assert sorted(lines(left)[f"{model}, in bf16"].get_ydata()) == [11] * 4 + [19] * 4
        assert sorted(lines(right)[f"{model}, in bf16"].get_ydata()) == [4] * 8
        np.testing.assert_allclose(
            sorted(lines(left)[f"{model}, as it is"].get_xdata()), [0.001] * 4 + [0.1] * 4
        )


def test_heads_are_means_through_training_beside_the_grey_of_random_order(figures):
    places = itertools.product(("W_KQ", "W_VO"), ("gpt2", "llama"))
    for axes, (product, model) in zip(figures["heads"].axes, places, strict=True):
        wanted = [
            (color, [mean_rank(model, text, step, product, offset) for step in (1, 8)])
            for text, color in (("language", MATRIX_COLORS[product]), ("permuted", NULL_COLOR))
            for offset in (0, 16)
        ]
        shown = axes.get_lines()
        assert [line.get_color() for line in shown] == [color for color, _ in wanted]
        for line, (_, ranks) in zip(shown, wanted, strict=True):
            np.testing.assert_allclose(line.get_ydata(), ranks, atol=1e-4)
        assert axes.get_title() == (model if product == "W_KQ" else "")


def mean_rank(model, text, step, product, offset):
    ranks = [1 + number(model, text, step, head, product, offset, "update") for head in (1, 2)]
    return round(float(np.mean(ranks)), 4)


def test_the_figure_of_the_published_run_shows_every_pair(stage, tmp_path, drawn):
    folder = ROOT / "published" / "rank_patterns"
    shutil.copytree(folder / "tables", tmp_path / "tables")
    stage("checkpoints.plot", {}, Path("tables"), Path("figures"))
    assert files(Path("figures")) == ["adapters.svg"]
    [figure] = drawn.values()
    measures = json.loads((folder / "measures.json").read_text())
    shown = np.sort(
        np.concatenate([line.get_xdata() for axes in figure.axes for line in axes.get_lines()[:-1]])
    )
    kinds = [(model, kind) for model in ("gpt2", "llama") for kind in ("gentle", "large")]
    for axes, (model, kind) in zip(figure.axes, kinds, strict=True):
        found = measures[f"attributed_less_uniform_{kind}"]
        pairs = zip(found["cases"], found["values"], strict=True)
        median = np.median([value for case, value in pairs if case.startswith(model)])
        assert axes.get_lines()[1].get_xdata()[0] == pytest.approx(median, abs=1e-5)
        assert axes.get_xlim() == figure.axes[0].get_xlim()
    for name in ("attributed_less_uniform", "shuffled_less_uniform", "longer_less_uniform"):
        for kind in ("large", "gentle"):
            for value in measures[f"{name}_{kind}"]["values"]:
                assert np.abs(shown - value).min() < 1e-5


@pytest.fixture
def published(stage, drawn, tmp_path):
    """Draws a figure of a published run; gives it with the run's measures."""

    def draw(name, figure):
        folder = ROOT / "published" / name
        shutil.copytree(folder / "tables", "tables")
        stage("checkpoints.plot", {}, Path("tables"), Path("figures"))
        return drawn[Path(f"figures/{figure}.svg").read_bytes()], json.loads(
            (folder / "measures.json").read_text()
        )

    return draw


def of_cases(measure, start):
    pairs = zip(measure["cases"], measure["values"], strict=True)
    return [value for case, value in pairs if case.startswith(start)]


def test_the_figure_of_rules_has_a_point_for_each_base(published):
    figure, measures = published("rank_rules", "rules")
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert list(panels) == ["gentle", "large", "scratch"]
    shown = lines(panels["large"])["attributed"].get_xdata()
    wanted = of_cases(measures["attributed_less_uniform_large"], "gemma2 ")
    np.testing.assert_allclose(sorted(shown), sorted(wanted), atol=1e-5)


def test_the_figure_of_trained_adapters_stands_beside_the_fine_tune(published):
    figure, measures = published("rank_rules", "fitted")
    [axes] = figure.axes
    shown = {name: line.get_xdata() for name, line in lines(axes).items()}
    above = of_cases(measures["trained_less_tuned"], "gemma2 ")
    np.testing.assert_allclose(shown["adapter, trained"], above, atol=1e-5)
    less = np.subtract(shown["adapter, trained"], shown["adapter, cut"])
    np.testing.assert_allclose(less, of_cases(measures["trained_less_cut"], "gemma2 "), atol=1e-5)


def test_the_figure_of_runtimes_shows_both_losses(published):
    figure, measures = published("runtimes", "runtimes")
    [axes] = figure.axes
    shown = {name: line.get_ydata() for name, line in lines(axes).items()}
    apart = np.abs(np.subtract(shown["llama.cpp, mixed ranks"], shown["peft, both"]))
    np.testing.assert_allclose(apart, measures["llama_cpp_from_peft_mixed"]["values"], rtol=1e-4)


def test_a_folder_without_tables_is_refused(stage):
    Path("tables").mkdir()
    with pytest.raises(InputError, match=r"tables: wanted the tables of a figure, got \[\]"):
        stage("checkpoints.plot", {}, Path("tables"), Path("figures"))


@pytest.mark.parametrize(
    ("steps", "wanted"), [([0], ["tuned"]), ([300], ["step 300"]), ([0, 20], ["step 0", "step 20"])]
)
def test_spectra_are_named_by_their_step_where_they_have_one(steps, wanted):
    row = {
        "run": "mine",
        "module": "layers.0.up.weight",
        "layer": 1,
        "head": 0,
        "of": "update",
        "edge": 0.1,
    }
    rows = [
        {**row, "step": step, "norm": 1.0 + step, "singular_values": [1.0, 0.5]} for step in steps
    ]
    [axes] = spectra_of_snapshots(pd.DataFrame(rows)).axes
    assert list(lines(axes)) == [*wanted, "edge of rounding"]
