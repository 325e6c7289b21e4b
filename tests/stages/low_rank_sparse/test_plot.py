"""The stage plot: every line, band, bar and point of every figure is what the rows of made tables say."""

import itertools
import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from made import files

SECTION = "any.family.plot"
PARAMS = {"steps": [2, 9, 40]}
SEEDS = {"tied": [3, 1, 2], "untied": [4, 0]}
STEPS = {"tied": [0, 2, 9], "untied": [0, 2, 7, 40]}
SEQ_LEN = 20
MATRICES = ["W_Q", "W_K", "W_V", "W_O"]
SCORES = ["hinge", "margin", "least_margin", "attention", "attention_of_relevant"]
SPANS = {"discriminative": 2, "with mean irrelevant": 3}
ORDERS = ["smallest", "random", "largest"]
SLOPES = ["of_steps_in_relevant", "of_steps_in_relevant_with_confusion", "of_steps_in_step_size"]
SLOPES += ["of_third_in_patterns", "of_tail_in_patterns"]
FIGURES = {"figure-1", "figure-2", "figure-3", "corollary-1", "attention", "cuts", "directions", "sweeps", "patterns"}
FIGURES |= {"adapters", "compression"}
PARTS = [("all", 1), ("all", 2), ("W_Q and W_K", 0), ("W_Q and W_K", 1), ("W_V", 1), ("W_O", 1)]
PARTS += [("weights, not updates", 2), ("pairs 3 and 4", 2)]


def made_tables():
    """The tables as evaluate keeps them, of numbers that mean nothing, in no order; and the measures that are read."""
    draw = np.random.default_rng(8)

    def numbers(*names):
        return {name: draw.uniform(0.05, 0.95) for name in names}

    names = ("training", "spectra", "truncate", "directions", "prune", "neurons", "adapt", "sweep")
    rows = {name: [] for name in names}
    for name, seed in ((name, seed) for name, seeds in SEEDS.items() for seed in seeds):
        cell = {"configuration": name, "readout": name, "seed": seed}
        fitted = {"fitted_step": -1 if seed == 1 else int(draw.integers(2, 9))}
        for step in STEPS[name]:
            rows["training"] += [{"step": step, **numbers("loss", *SCORES), **fitted, **cell}]
            for matrix in MATRICES:
                sigma = np.sort(draw.uniform(0.01, 2, 6))[::-1]
                rows["spectra"] += [{"matrix": matrix, "step": step, "singular_values": sigma, **cell}]
            for matrix, side, span in itertools.product(MATRICES, ("input", "output"), SPANS):
                place = {"matrix": matrix, "side": side, "span": span, "step": step, "dimension": 16}
                rows["directions"] += [{**place, **numbers("alignment", "energy"), **cell}]
        kinds = [("all", rank) for rank in (0, 1, 2, 5, 20)] + PARTS[2:] + [("W_V", 2), ("W_O", 0)]
        rows["truncate"] += [{"kind": kind, "rank": rank, **numbers(*SCORES), **cell} for kind, rank in kinds]
        rates = [("neurons", order, rate) for order in ORDERS for rate in (0, 0.2, 0.7)]
        rates += [("large neurons", "random", rate) for rate in (0, 0.4, 0.9)]
        rates += [("weights", "smallest", rate) for rate in (0, 0.3)] + [("rows of W_V", "smallest", 0.25)]
        rates += [("1:3", "smallest", 2 / 3)]
        for what, order, rate in rates:
            row = numbers("weights", "rescaled_hinge", "flops", *SCORES[:3])
            rows["prune"] += [{"what": what, "order": order, "rate": rate, **row, **cell}]
        parts = numbers("threshold", "small_share", "initial_norm", "cosine")
        rows["neurons"] += [{**parts, "norms": draw.uniform(0, 1, 5 + (name == "tied")), **cell}]
        rows["adapt"] += [{"rank": rank, **numbers(*SCORES), **cell} for rank in (1, 2, 4) if seed != 2]
    values = {"relevant": [2, 4, 8], "relevant_with_confusion": [3, 6], "step_size": [0.3, 1, 3]}
    values |= {"patterns": [5, 7, 8, 10], "noise": [0, 0.1], "confusion": [0, 2, 3], "neurons": [20, 50]}
    columns = ["hinge", "hinge_at_rank_2", "small_share", "W_K_next", "W_K_tail", "W_K_gap", "W_V_gap"]
    trainings = [(name, value, "1|1", 1, "tied") for name in values for value in values[name]]
    trainings += [("classes_tied", 2, "1|1", 2, "tied"), ("classes_tied", 3, "1|1|1", 2, "tied")]
    trainings += [("classes_untied", 3, "1|1|1", 2, "untied"), ("grouped", 3, "2|1", 1, "tied")]
    trainings += [("grouped", 6, "3|3", 1, "tied"), ("grouped", 4, "2|2", 1, "tied")]
    for (name, value, labels, n, readout), seed in itertools.product(trainings, (6, 0, 3)):
        row = {"sweep": name, "value": value, "labels": labels, "n_outputs": n, "readout": readout, "seed": seed}
        row |= numbers(*columns) | {"fitted_step": int(draw.integers(4, 80)), "seq_len": SEQ_LEN}
        row["in_fit"] = name != "patterns" or value >= 8
        row["fitted_step"] = -1 if (name, value, seed) == ("relevant", 4, 0) else row["fitted_step"]
        sigma = {f"{matrix}_singular_values": np.sort(draw.uniform(0.1, 2, 9))[::-1] for matrix in MATRICES}
        rows["sweep"] += [row | sigma]
    slopes = {
        f"slope_{name}": {"cases": ["0", "3", "6"], "values": draw.uniform(-2, -0.5, 3).tolist()} for name in SLOPES
    }

    return {name: [table[i] for i in draw.permutation(len(table))] for name, table in rows.items()}, slopes


def chosen(rows, **where):
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def over_seeds(rows, column, by, x=lambda value: value):
    """At each value of a column: the mean and the standard deviation over seeds of another, as (x, mean, sd)."""
    found = []
    for value in sorted({row[by] for row in rows}):
        numbers = [row[column] for row in rows if row[by] == value]
        found.append((x(value), np.mean(numbers), np.std(numbers, ddof=1)))
    return np.array(found).T


def at_places(band):
    """The same at 0, 1, 2 ..."""
    return np.array([np.arange(len(band[0])), *band[1:]])


def check(axes, *wanted):
    """The panel's lines are these, in this order: (x, mean, deviation) with a band, or (x, y)."""
    assert len(axes.lines) == len(wanted)
    bands = [area for area in axes.collections if len(area.get_paths()) == 1]
    for line, (x, y, *deviation) in zip(axes.lines, wanted, strict=True):
        np.testing.assert_allclose(np.array(line.get_xydata(), float).T, [x, y], rtol=1e-6, atol=1e-9)
        if deviation:
            # The edge of a band is drawn there and back, with a point more at each end.
            edge = bands.pop(0).get_paths()[0].vertices
            for place, low, high in zip(x, y - deviation[0], y + deviation[0], strict=True):
                heights = [b for a, b in edge if a == pytest.approx(place)]
                assert (min(heights), max(heights)) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
    assert not bands


def upright(x):
    """A line through the whole panel at x."""
    return [x, x], [0, 1]


def level(y):
    """A line through the whole panel at a height."""
    return [0, 1], [y, y]


def texts(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.fixture
def plotted(stage, drawn, tmp_path):
    """The made rows and slopes, and each figure by the name of its file."""
    rows, slopes = made_tables()
    (tmp_path / "metrics" / "tables").mkdir(parents=True)
    for name, table in rows.items():
        pd.DataFrame(table).to_parquet(tmp_path / "metrics" / "tables" / f"{name}.parquet")
    (tmp_path / "metrics" / "measures.json").write_text(json.dumps(slopes))
    stage("low_rank_sparse.plot", {SECTION: PARAMS}, SECTION, tmp_path / "metrics", tmp_path / "figures")
    assert files(tmp_path / "figures") == sorted(f"{name}.svg" for name in FIGURES)
    figures = {name: drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in FIGURES}
    assert not plt.get_fignums()
    return rows, slopes, figures


def test_every_figure_shows_the_rows_of_its_tables(plotted):
    rows, slopes, figures = plotted
    cuts_and_adapters(rows, figures)
    updates(rows, figures)
    neurons(rows, figures)
    sweeps(rows["sweep"], slopes, figures["sweeps"].axes)
    patterns(rows["sweep"], figures["patterns"].axes)


def cuts_and_adapters(rows, figures):
    truncate, adapt = rows["truncate"], rows["adapt"]
    for axes, column in zip(figures["figure-1"].axes, ("hinge", "attention", "attention_of_relevant"), strict=True):
        of = [chosen(truncate, configuration=name, kind="all") for name in SEEDS]
        check(axes, *(at_places(over_seeds(part, column, "rank")) for part in of))
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1", "2", "5", "20"]
    assert texts(figures["figure-1"].axes[0]) == ["tied readout (3 seeds)", "untied readout (2 seeds)"]
    [axes] = figures["cuts"].axes
    of = [[chosen(truncate, configuration=name, kind=k, rank=r) for k, r in PARTS] for name in SEEDS]
    hinges = [[row["hinge"] for row in part] for name in of for part in name]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([np.mean(part) for part in hinges])
    centres = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
    assert np.argsort(centres).tolist() == [place for part in range(8) for place in (part, 8 + part)]
    assert [sorted(line.get_ydata()) for line in axes.lines] == [pytest.approx(sorted(part)) for part in hinges]
    for axes, column in zip(figures["adapters"].axes, ("hinge", "attention_of_relevant"), strict=True):
        wanted = []
        for name in SEEDS:
            cut = [row for row in chosen(truncate, configuration=name, kind="all") if row["rank"] in (1, 2, 5)]
            wanted += [over_seeds(cut, column, "rank"), over_seeds(chosen(adapt, configuration=name), column, "rank")]
        check(axes, *wanted)
    for axes, name in zip(figures["attention"].axes, SEEDS, strict=True):
        of = chosen(rows["training"], configuration=name)
        fitted = [row["fitted_step"] for row in chosen(of, step=STEPS[name][-1]) if row["fitted_step"] >= 0]
        lines = [over_seeds(of, column, "step") for column in ("attention_of_relevant", "attention", "hinge")]
        check(axes, *lines, upright(np.mean(fitted)))


def updates(rows, figures):
    for axes, name in zip(figures["figure-2"].axes, SEEDS, strict=True):
        shown = [step for step in PARAMS["steps"] if step in STEPS[name]]
        areas = iter(axes.collections)
        assert texts(figures["figure-2"].axes[-1]) == ["t = 2", "t = 40"]
        for line, step in zip(axes.lines, shown, strict=False):
            of = chosen(rows["spectra"], configuration=name, matrix="W_K", step=step)
            logs = np.log([row["singular_values"] for row in of])
            mean, deviation = logs.mean(0), logs.std(0)
            np.testing.assert_allclose(line.get_xydata().T, [range(1, 7), np.exp(mean)])
            heights = next(areas).get_paths()[0].vertices[:, 1]
            extremes = np.exp([(mean - deviation).min(), (mean + deviation).max()])
            assert [min(heights), max(heights)] == pytest.approx(extremes)
        assert len(axes.lines) == len(shown) + 1
        assert list(axes.lines[-1].get_xdata()) == [2.5, 2.5]
    places = [("W_K", "input"), ("W_Q", "output"), ("W_V", "input"), ("W_V", "output"), ("W_O", "input")]
    for axes, (matrix, side) in zip(figures["directions"].axes, places, strict=True):
        wanted = []
        for span, n in SPANS.items():
            of = chosen(rows["directions"], configuration="tied", matrix=matrix, side=side, span=span)
            wanted += [over_seeds(of, "alignment", "step"), level(n / 16)]
        check(axes, *wanted)


def neurons(rows, figures):
    panels = np.array(figures["figure-3"].axes).reshape(2, 3)
    for i, name in enumerate(SEEDS):
        of, prune = (chosen(rows[table], configuration=name) for table in ("neurons", "prune"))
        norms = np.concatenate([row["norms"] for row in of])
        heights = [bar.get_height() for bar in panels[i, 0].patches]
        assert heights == pytest.approx(list(np.histogram(norms, 60)[0] / len(norms)))
        columns = ("threshold", "initial_norm", "small_share")
        means = {column: np.mean([row[column] for row in of]) for column in columns}
        check(panels[i, 0], upright(means["threshold"]), upright(means["initial_norm"]))
        assert texts(panels[i, 0])[0] == f"Otsu's threshold: {means['small_share']:.0%} are small"
        by_order = [chosen(prune, what="neurons", order=order) for order in ORDERS]
        check(panels[i, 1], *(over_seeds(part, "hinge", "rate") for part in by_order))
        lines = [over_seeds(part, column, "rate") for part in by_order for column in ("margin", "least_margin")]
        check(panels[i, 2], *lines, level(1))
        large = chosen(prune, what="large neurons")
        start = np.mean([row["margin"] for row in large if row["rate"] == 0])
        R = np.linspace(0, 1, 200)
        law = R, [max(0, 1 - (1 - share) * start) for share in R]
        lines = [over_seeds(large, column, "rate") for column in ("hinge", "rescaled_hinge")]
        check(figures["corollary-1"].axes[i], law, *lines)
        axes = figures["compression"].axes[i]
        lines = [
            over_seeds(chosen(prune, what=what, order="smallest"), column, "rate", lambda rate: 1 - rate)
            for what, column in itertools.product(("neurons", "weights"), ("hinge", "rescaled_hinge"))
        ]
        grouped = chosen(prune, what="1:3")
        [(x, y, deviation)] = errors(axes)
        assert x == pytest.approx(np.mean([row["weights"] for row in grouped]))
        hinges = [row["hinge"] for row in grouped]
        assert (y, deviation) == pytest.approx((np.mean(hinges), np.std(hinges, ddof=1)))
        for line, wanted in zip(axes.lines, lines, strict=False):
            np.testing.assert_allclose(line.get_xydata().T, wanted[:2])


def errors(axes):
    """The points with error bars of a panel: x, y, deviation."""
    for container in axes.containers:
        line, _, [bars] = container.lines
        for (x, y), segment in zip(line.get_xydata(), bars.get_segments(), strict=True):
            yield x, y, (segment[1][1] - segment[0][1]) / 2


def sweeps(table, slopes, panels):
    fits = [
        (panels[0], "relevant", "fitted_step", SLOPES[0], lambda value: value / SEQ_LEN),
        (panels[0], "relevant_with_confusion", "fitted_step", SLOPES[1], lambda value: value / SEQ_LEN),
        (panels[1], "step_size", "fitted_step", SLOPES[2], float),
        (panels[2], "patterns", "W_K_next", SLOPES[3], float),
        (panels[2], "patterns", "W_K_tail", SLOPES[4], float),
    ]
    points, laws, exponents = ({id(axes): [] for axes in panels[:3]} for _ in range(3))
    for axes, sweep, column, measure, scaled in fits:
        of = [row for row in chosen(table, sweep=sweep) if row[column] > 0]
        points[id(axes)] += over_seeds(of, column, "value", scaled).T.tolist()
        known = slopes[f"slope_{measure}"]["values"]
        slope = np.mean(known)
        exponents[id(axes)].append(f"exponent {slope:.2f} ± {np.std(known, ddof=1):.2f}")
        of = [(scaled(row["value"]), row[column]) for row in of if sweep != "patterns" or row["value"] >= 8]
        height = np.mean([math.log(y) - slope * math.log(x) for x, y in of])
        x = sorted({x for x, _ in of})
        laws[id(axes)].append([x, [math.exp(height) * value**slope for value in x]])
    for axes in panels[:3]:
        np.testing.assert_allclose(list(errors(axes)), points[id(axes)])
        dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
        for line, wanted in zip(dashed, laws[id(axes)], strict=True):
            np.testing.assert_allclose(line.get_xydata().T, wanted)
        assert [text[text.index("exponent") :] for text in texts(axes)] == exponents[id(axes)]
    columns = ("W_K_tail", "W_K_gap", "hinge", "hinge_at_rank_2")
    check(panels[3], *(over_seeds(chosen(table, sweep="noise"), column, "value") for column in columns))
    confusion = chosen(table, sweep="confusion")
    check(panels[4], *(over_seeds(confusion, column, "value", lambda value: value / SEQ_LEN) for column in columns))
    of = chosen(table, sweep="neurons")
    check(panels[5], *(over_seeds(of, column, "value") for column in ("small_share", "W_K_gap", "hinge")))


def patterns(table, panels):
    lines = [
        {"sweep": "classes_tied", "labels": {"1|1": 2, "1|1|1": 3}, "names": ["2 classes", "3 classes"]},
        {
            "sweep": "grouped",
            "labels": {"2|1": 3, "2|2": 4, "3|3": 6},
            "names": ["patterns 2|1 (k = 3)", "patterns 2|2 (k = 4)", "patterns 3|3 (k = 6)"],
        },
    ]
    for line, row in zip(np.array(panels).reshape(2, 4), lines, strict=True):
        for axes, matrix in zip(line, MATRICES, strict=True):
            wanted = []
            for labels, k in row["labels"].items():
                of = chosen(table, sweep=row["sweep"], labels=labels)
                sigma = np.array([one[f"{matrix}_singular_values"] for one in of])
                share = (sigma / sigma[:, :1])[:, :8]
                wanted += [(np.arange(1, 9), share.mean(0), share.std(0)), ([k], [share.mean(0)[k - 1]])]
            check(axes, *wanted)
        assert texts(line[-1]) == row["names"]
