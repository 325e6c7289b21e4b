"""The figures of checkpoints: their lines, points and numbers, against made tables."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color

from lib.checkpoints import figures
from lib.checkpoints.figures import AGAINST, PRUNED, RULES, TRAINED
from lib.files.files import InputError
from lib.pages.style import (
    BLUE,
    GREEN,
    INITIAL_COLOR,
    LOST_COLOR,
    MATRIX_COLORS,
    NULL_COLOR,
)
from stages.checkpoints import plot
from tests.checkpoints.checkpoints_tables import numbers, rows
from tests.stages.made import files

GROUPS = [(model, kind) for model in ("gpt2", "llama") for kind in ("gentle", "large")]


@pytest.fixture(scope="module")
def tables(evaluated):
    """What evaluate kept, with the kind of a run."""
    found = {path.stem: pd.read_parquet(path) for path in (evaluated[1] / "tables").iterdir()}
    for name in ("plans", "pruning", "losses"):
        found[name]["kind"] = found[name]["run"].astype(str).str[:-2]
    return found


@pytest.fixture
def panels(evaluated):
    """The panels of a figure of these tables."""
    return lambda name: plot.drawings(evaluated[1] / "tables")[name]().axes


def lines(axes):
    return {str(line.get_label()): line for line in axes.get_lines()}


def chosen(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def check(line, x, y, color):
    np.testing.assert_allclose(line.get_xdata(), x)
    np.testing.assert_allclose(line.get_ydata(), y, rtol=1e-6)
    assert same_color(line.get_color(), color)


def check_mean(line, table, by, column, color):
    means = table.groupby(by)[column].mean()
    check(line, means.index, means, color)


def texts(labels):
    return [label.get_text() for label in labels]


def test_every_figure_is_written_whose_tables_are_there(stage, drawn, evaluated):
    stage("checkpoints.plot", {}, evaluated[1] / "tables", Path("figures"))
    wanted = ["heads", "plans", "pruning", "ranks", "rounding"]
    assert files(Path("figures")) == [f"{name}.svg" for name in wanted]


def test_a_folder_without_tables_is_refused(stage):
    Path("tables").mkdir()
    with pytest.raises(InputError, match=r"tables: wanted the tables of a figure, got \[\]"):
        stage("checkpoints.plot", {}, Path("tables"), Path("figures"))


def test_plans_are_means_over_seeds_beside_the_band_of_shuffles(tables, panels):
    for axes, (model, kind) in zip(panels("plans"), GROUPS, strict=True):
        assert axes.get_title() == f"{model}, {kind}"
        table = chosen(tables["plans"], model=model, kind=kind)
        plain = chosen(table, shuffle=0)
        for rule, (color, _) in RULES.items():
            of_rule = chosen(plain, rule=rule)
            check_mean(lines(axes)[rule], of_rule, "parameters", "share_lost", color)
        [band] = [c for c in axes.collections if c.get_label() == "attributed, shuffled"]
        heights = band.get_paths()[0].vertices[:, 1]
        shares = table[table["shuffle"] > 0]["share_lost"]
        assert (heights.min(), heights.max()) == pytest.approx((shares.min(), shares.max()))
        ticks = ["101\nrank 1", "201\nrank 2", "401\nrank 4"]
        assert texts(axes.get_xticklabels()) == ticks


def test_ranks_at_the_middle_budget_stand_in_their_layer(tables, panels):
    for axes, model in zip(panels("ranks"), ("gpt2", "llama"), strict=True):
        where = {"model": model, "run": "large-0", "rule": "attributed", "budget": 2, "shuffle": 0}
        [ranks] = chosen(tables["plans"], **where)["ranks"]
        assert axes.images[0].get_array().tolist() == [list(ranks)]
        assert texts(axes.texts) == list(map(str, ranks))
        assert texts(axes.get_yticklabels()) == ["up"]
        assert texts(axes.get_xticklabels()) == ["1", "2"]
        assert axes.get_title() == f"{model}, large-0: ranks, attributed"


def test_pruning_is_the_measured_loss_between_that_of_no_update_and_of_all(tables, panels):
    for axes, (model, kind) in zip(panels("pruning"), GROUPS, strict=True):
        table = chosen(tables["pruning"], model=model, kind=kind)
        shown = lines(axes)
        for what, color in PRUNED.items():
            check_mean(shown[what], chosen(table, what=what), "rate", "loss", color)
        losses = chosen(tables["losses"], model=model, kind=kind).mean(numeric_only=True)
        check(shown["tuned"], [0, 1], [losses["loss_tuned"]] * 2, "black")
        none = [losses["loss_without_linear"]] * 2
        check(shown["no linear update"], [0, 1], none, INITIAL_COLOR)


def test_rounding_shows_both_ranks_against_the_size_of_the_update(tables, panels):
    means = tables["rounding"].groupby(["model", "run", "step"], observed=True)
    means = means.mean(numeric_only=True).reset_index()
    for axes, column in zip(panels("rounding"), ("rank_90", "above_edge"), strict=True):
        for model in ("llama", "gpt2"):
            table = chosen(means, model=model)
            size = table["relative_update"]
            check(lines(axes)[f"{model}, as it is"], size, table[column], "black")
            stored = table[f"{column}_stored"]
            check(lines(axes)[f"{model}, in bf16"], size, stored, LOST_COLOR)


def test_heads_are_means_through_training_beside_the_grey_of_random_order(tables, panels):
    places = [(product, model) for product in ("W_KQ", "W_VO") for model in ("gpt2", "llama")]
    for axes, (product, model) in zip(panels("heads"), places, strict=True):
        table = chosen(tables["heads"], module=product, model=model)
        colors = {"language": MATRIX_COLORS[product], "permuted": NULL_COLOR}
        wanted = [(text, offset) for text in colors for offset in (0, 16)]
        for line, (text, offset) in zip(axes.get_lines(), wanted, strict=True):
            part = chosen(table, text=text, offset=offset)
            check_mean(line, part, "step", "stable_rank", colors[text])
        assert axes.get_title() == (model if product == "W_KQ" else "")


@pytest.fixture
def draw():
    return np.random.default_rng(1)


def check_points(axes, wanted):
    """Points at a height and a bar at their median; (values, heights, colour) of each."""
    shown = iter(axes.get_lines())
    for values, heights, color in wanted:
        check(next(shown), values, heights, color)
        check(next(shown), [np.median(values)], [np.median(heights)], color)


def test_trained_adapters_are_shown_less_the_uniform_rank_of_their_seed(draw):
    names = {"model": ("llama", "gpt2"), "kind": ("large", "gentle"), "part": ("measured", "tuned")}
    table = numbers(draw, rows(**names, rule=(*TRAINED, "uniform"), seed=(1, 0, 2)), "loss")
    panels = figures.trained_adapters(table).axes
    for axes, (model, kind) in zip(panels, GROUPS, strict=True):
        assert axes.get_title() == f"{model}, {kind}"
        part = chosen(table, model=model, kind=kind, part="measured")
        losses = part.pivot_table(index="seed", columns="rule", values="loss")
        above = losses.sub(losses["uniform"], axis=0)
        heights = np.linspace(-0.18, 0.18, 3)
        rules = enumerate(TRAINED.items())
        check_points(axes, [(above[rule], i + heights, color) for i, (rule, color) in rules])
        assert axes.get_xlim() == panels[0].get_xlim()


def test_rules_have_a_point_for_each_base_less_the_uniform_rank(draw):
    names = {"architecture": ("gpt2", "bert"), "base": (0, 1, 2), "kind": ("large", "gentle")}
    table = rows(**names, budget=(2, 8), rule=("uniform", *AGAINST), shuffle=(0, 1, 2))
    table = table[(table["shuffle"] == 0) | (table["rule"] == "attributed")]
    table = numbers(draw, table[table["rule"] != "shuffled"], "share_lost")
    shares = table[table["shuffle"] == 0]
    by = ["kind", "architecture", "base", "budget"]
    shares = shares.pivot_table(index=by, columns="rule", values="share_lost")
    shares["shuffled"] = table[table["shuffle"] > 0].groupby(by)["share_lost"].min()
    above = shares.sub(shares["uniform"], axis=0).groupby(by[:3]).mean()
    panels = figures.rules_by_architecture(table).axes
    for axes, kind in zip(panels, ("gentle", "large"), strict=True):
        assert axes.get_title() == kind
        wanted = [
            (above.loc[kind, name][rule], [place + (i - 1) * 0.25] * 3, color)
            for i, (rule, color) in enumerate(AGAINST.items())
            for place, name in enumerate(("bert", "gpt2"))
        ]
        check_points(axes, wanted)


def test_trained_and_cut_adapters_stand_above_the_full_fine_tune(draw):
    colors = {"loss_base": NULL_COLOR, "cut": GREEN, "trained": BLUE}
    table = rows(architecture=("gpt2", "bert"), base=(0, 1, 2))
    table = numbers(draw, table, *colors, "loss_tuned")
    [axes] = figures.cut_or_trained(table).axes
    parts = [chosen(table, architecture=name) for name in ("bert", "gpt2")]
    wanted = [
        (part[column] - part["loss_tuned"], [place + (i - 1) * 0.25] * 3, color)
        for i, (column, color) in enumerate(colors.items())
        for place, part in enumerate(parts)
    ]
    check_points(axes, wanted)
    assert {"the base", "adapter, cut", "adapter, trained"} < set(lines(axes))


def test_runtimes_show_both_losses_of_each_adapter(draw):
    table = rows(ranks=("mixed", "equal"), adapter=("rank 2", "rank 8"))
    table = pd.concat([table, rows(ranks=["none"], adapter=["none"])], ignore_index=True)
    table = numbers(draw, table, "peft", "llama_cpp")
    [axes] = figures.runtimes(table).axes
    mixed, equal = (chosen(table, ranks=ranks) for ranks in ("mixed", "equal"))
    shown = lines(axes)
    check(shown["llama.cpp, mixed ranks"], [0, 1], mixed["llama_cpp"], LOST_COLOR)
    check(shown["llama.cpp, padded to one rank"], [0, 1], equal["llama_cpp"], GREEN)
    check(shown["peft, both"], [0, 1], equal["peft"], "black")
    check(shown["the base alone"], [0, 1], [table["peft"].iloc[-1]] * 2, INITIAL_COLOR)


@pytest.mark.parametrize(
    ("steps", "wanted"), [([0], ["tuned"]), ([300], ["step 300"]), ([0, 20], ["step 0", "step 20"])]
)
def test_spectra_are_named_by_their_step_where_they_have_one(steps, wanted):
    sizes = {"layers.0.up.weight": 18, "layers.0.down.weight": 20}
    table = rows(step=steps, module=tuple(sizes)).assign(run="mine", layer=1, head=0, of="update")
    table["norm"] = table["step"] + table["module"].map(sizes)
    table["edge"] = table["step"] + 0.2
    table["singular_values"] = [np.array([1.0, 0.5]) * norm for norm in table["norm"]]
    [axes] = figures.spectra_of_snapshots(table, n_modules=1).axes
    assert axes.get_title() == "layers.0.down"
    *shown, edge = axes.get_lines()
    assert [line.get_label() for line in shown] == wanted
    for line, step in zip(shown, steps, strict=True):
        np.testing.assert_allclose(line.get_ydata(), [step + 20, (step + 20) / 2])
    assert edge.get_ydata()[0] == steps[-1] + 0.2
