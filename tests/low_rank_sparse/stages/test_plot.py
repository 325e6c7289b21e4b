"""The stage plot: every line, band, bar and point of every figure is what the rows of made tables
say.
"""

import itertools
import json
import math
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from lib.files.tables import write_table
from tests.stages.made import files

SECTION = "any.family.evaluate"
PARAMS = {"steps": [2, 9, 40], "rtol": "the stage evaluate's"}
SEEDS = {"tied": [3, 1, 2], "untied": [4, 0], "chance": [3, 1]}
STEPS = {"tied": [0, 2, 9], "untied": [0, 2, 7, 40], "chance": [0, 9]}
SEQ_LEN = 20
MATRICES = ["W_Q", "W_K", "W_V", "W_O"]
SCORES = ["hinge", "margin", "least_margin", "attention", "attention_of_relevant", "accuracy"]
ORDERS = ["smallest", "random", "largest"]
SLOPES = ["of_steps_in_relevant", "of_steps_in_relevant_with_confusion", "of_steps_in_step_size"]
SLOPES += ["of_third_in_patterns", "of_samples_in_relevant"]
SLOPES += ["of_samples_with_confusion_in_relevant"]
FIGURES = {"figure-1", "figure-2", "figure-3", "corollary-1", "attention", "cuts", "spectra"}
FIGURES |= {"energies", "sweeps", "robustness", "noise", "patterns", "adapters"}
NULLS = {"tied": "chance", "untied": "nothing"}  # of the second there are no runs
SETUP = {
    "tied_permuted": "chance",
    "untied_permuted": "nothing",
    "fitted_loss": 0.02,
    "swept_fitted_loss": 0.3,
    "generalised_loss": 0.05,
}
PARTS = [("all", 1), ("all", 2), ("W_Q and W_K", 0), ("W_Q and W_K", 1), ("W_V", 1), ("W_O", 1)]
PARTS += [
    ("weights, not updates", 2),
    ("pairs 3 and 4", 2),
    ("random directions", 2),
    ("gaussian", 6),
]


def made_tables():
    """The tables as evaluate keeps them, of numbers that mean nothing, in no order; and the
    measures that are read.
    """
    draw = np.random.default_rng(8)

    def numbers(*names):
        return {name: draw.uniform(0.05, 0.95) for name in names}

    names = (
        "training",
        "losses",
        "spectra",
        "truncate",
        "prune",
        "neurons",
        "adapt",
        "sweep",
    )
    rows = {name: [] for name in (*names, "samples")}
    for name, seed in ((name, seed) for name, seeds in SEEDS.items() for seed in seeds):
        cell = {"configuration": name, "readout": name, "seed": seed}
        fitted = {"fitted_step": -1 if seed == 1 else int(draw.integers(2, 9))}
        rows["losses"] += [
            {"step": step, "loss": draw.uniform(0, 1) if step < 9 else 0, **cell}
            for step in range(10)
        ]
        for step in STEPS[name]:
            rows["training"] += [{"step": step, **numbers("loss", *SCORES), **fitted, **cell}]
            for matrix, of in itertools.product(
                MATRICES, ("update", "gaussian") if step == STEPS[name][-1] else ["update"]
            ):
                sigma = np.sort(draw.uniform(0.01, 2, 6))[::-1]
                rows["spectra"] += [
                    {"matrix": matrix, "of": of, "step": step, "singular_values": sigma, **cell}
                ]
        kinds = [("all", rank) for rank in (0, 1, 2, 5, 20)] + PARTS[2:] + [("W_V", 2), ("W_O", 0)]
        rows["truncate"] += [
            {"kind": kind, "rank": rank, **numbers(*SCORES), **cell} for kind, rank in kinds
        ]
        rates = [("neurons", order, rate) for order in ORDERS for rate in (0, 0.2, 0.7)]
        rates += [("large neurons", "random", rate) for rate in (0, 0.4, 0.9)]
        rates += [("small neurons", "random", rate) for rate in (0, 0.4, 1)]
        rates += [("as many as small", order, 1) for order in ORDERS]
        rates += [("weights", "smallest", rate) for rate in (0, 0.3)] + [
            ("rows of W_V", "smallest", 0.25)
        ]
        rates += [("1:3", "smallest", 2 / 3)]
        for what, order, rate in rates:
            row = numbers("weights", "rescaled_hinge", "flops", *SCORES[:3])
            rows["prune"] += [{"what": what, "order": order, "rate": rate, **row, **cell}]
        parts = numbers(
            "threshold",
            "small_share",
            "initial_norm",
            "small_norm",
            "large_norm",
            "bimodality",
            "cosine",
        )
        rows["neurons"] += [{**parts, "norms": draw.uniform(0, 1, 5 + (name == "tied")), **cell}]
        rows["adapt"] += [
            {"rank": rank, **numbers(*SCORES), **cell} for rank in (1, 2, 4) if name == "tied"
        ]
    values = {"relevant": [2, 4, 8], "relevant_with_confusion": [3, 6], "step_size": [0.3, 1, 3]}
    values |= {
        "patterns": [5, 7, 8, 10],
        "noise": [0, 0.1],
        "confusion": [0, 2, 3],
        "neurons": [20, 50],
    }
    values |= {
        "value_error": [0, 0.2],
        "batch_size": [5, 9],
        "init_scale": [0.1, 1],
        "step_size_untied": [1, 4],
    }
    columns = [
        "hinge",
        "hinge_at_rank_2",
        "hinge_at_rank_below",
        "hinge_at_rank_k",
        "hinge_without_attention",
    ]
    columns += ["small_share", "W_K_next", "W_K_tail"]
    columns += [
        f"{matrix}_{key}" for matrix in MATRICES for key in ("energy_2", "gap_2", "energy", "gap")
    ]
    columns += [
        f"gaussian_{matrix}_{key}" for matrix in MATRICES for key in ("energy_2", "energy", "gap")
    ]
    columns += ["hinge_in_random_directions", "hinge_of_gaussian"]
    trainings = [(name, value, "1|1") for name in values for value in values[name]]
    trainings += [
        ("classes_tied", 2, "1|1"),
        ("classes_tied", 3, "1|1|1"),
        ("classes_untied", 3, "1|1|1"),
    ]
    trainings += [("grouped", 3, "2|1"), ("grouped", 6, "3|3"), ("grouped", 4, "2|2")]
    trainings += [
        (f"{name}_permuted", k, labels)
        for name, k, labels in trainings
        if name in ("classes_tied", "grouped")
    ]
    for (name, value, labels), seed in itertools.product(trainings, (6, 0, 3)):
        row = {
            "sweep": name,
            "value": value,
            "labels": labels,
            "seed": seed,
            "seq_len": SEQ_LEN,
            "n_patterns": 7,
        }
        row |= {
            "varies": "n_relevant"
            if name.startswith("relevant")
            else "labels"
            if value == len(labels)
            else "x"
        }
        row |= numbers(*columns) | {
            "n_batches": float(draw.integers(1, 80)),
            "large_over_small": draw.uniform(1, 9),
        }
        row["in_fit"] = name != "patterns" or value >= 8
        row["n_batches"] = (
            math.nan if (name, value, seed) == ("relevant", 4, 0) else row["n_batches"]
        )
        sigma = {
            f"{matrix}_singular_values": np.sort(draw.uniform(0.1, 2, 9))[::-1]
            for matrix in MATRICES
        }
        rows["sweep"] += [row | sigma]
    for (name, n), seed in itertools.product(
        [("samples", 2), ("samples", 6), ("samples_with_confusion", 3)], (6, 0, 3)
    ):
        cell = {"sweep": name, "n_relevant": n, "seq_len": SEQ_LEN, "seed": seed}
        needed = math.nan if (name, n, seed) == ("samples", 6, 3) else draw.uniform(2, 60)
        rows["samples"] += [cell | {"n_needed": needed}]
    slopes = {
        f"slope_{name}": {"cases": ["0", "3", "6"], "values": draw.uniform(-2, -0.5, 3).tolist()}
        for name in SLOPES
    }
    slopes["slope_of_samples_in_relevant"]["values"][1] = None
    slopes["setup"] = SETUP

    return {
        name: [table[i] for i in draw.permutation(len(table))] for name, table in rows.items()
    }, slopes


def chosen(rows, **where):
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def over_seeds(rows, column, by, x=lambda value: value):
    """At each value of a column: mean, least and largest over seeds of another, as (x, mean, least,
    largest).
    """
    found = []
    for value in sorted({row[by] for row in rows}):
        numbers = [row[column] for row in rows if row[by] == value]
        found.append((x(value), np.mean(numbers), min(numbers), max(numbers)))
    return np.array(found).T


def at_places(band):
    """The same at 0, 1, 2 ..."""
    return np.array([np.arange(len(band[0])), *band[1:]])


def check(axes, *wanted):
    """The panel's lines are these, in this order: (x, mean, least, largest) with a band, or (x,
    y).
    """
    assert len(axes.lines) == len(wanted)
    bands = [area for area in axes.collections if len(area.get_paths()) == 1]
    for line, (x, y, *ends) in zip(axes.lines, wanted, strict=True):
        np.testing.assert_allclose(
            np.array(line.get_xydata(), float).T, [x, y], rtol=1e-6, atol=1e-9
        )
        if ends:
            # The edge of a band is drawn there and back, with a point more at each end.
            edge = bands.pop(0).get_paths()[0].vertices
            for place, low, high in zip(x, *ends, strict=True):
                heights = [b for a, b in edge if a == pytest.approx(place)]
                assert (min(heights), max(heights)) == pytest.approx(
                    (low, high), rel=1e-6, abs=1e-9
                )
    assert not bands


def spectrum(rows, column="singular_values", top=None):
    """Singular values over the largest: index, mean, least and largest over rows."""
    sigma = np.array([row[column] for row in rows])[:, :top]
    share = sigma / sigma[:, :1]
    return np.arange(1, share.shape[1] + 1), share.mean(0), share.min(0), share.max(0)


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
    stage(
        "low_rank_sparse.plot",
        {SECTION: PARAMS | {"rtol": "another stage's"}},
        SECTION,
        tmp_path / "metrics",
        tmp_path / "figures",
    )
    assert files(tmp_path / "figures") == sorted(f"{name}.svg" for name in FIGURES)
    figures = {name: drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in FIGURES}
    assert not plt.get_fignums()
    return rows, slopes, figures


def test_every_figure_shows_the_rows_of_its_tables(plotted):
    rows, slopes, figures = plotted
    cuts_and_adapters(rows, figures)
    training(rows, figures["attention"])
    updates(rows, figures)
    neurons(rows, figures)
    sweeps(rows, slopes, figures["sweeps"].axes)
    robustness(rows["sweep"], figures["robustness"].axes)
    patterns(rows["sweep"], figures)


def cuts_and_adapters(rows, figures):
    truncate, adapt, prune = rows["truncate"], rows["adapt"], rows["prune"]
    for axes, column in zip(
        figures["figure-1"].axes, ("hinge", "attention", "attention_of_relevant"), strict=True
    ):
        wanted = []
        for name in NULLS:
            wanted.append(
                at_places(
                    over_seeds(chosen(truncate, configuration=name, kind="all"), column, "rank")
                )
            )
            null = chosen(truncate, configuration=name, kind="random directions")
            wanted.append(([2], [np.mean([row[column] for row in null])]))
        check(axes, *wanted)
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1", "2", "5", "20"]
    assert texts(figures["figure-1"].axes[0])[::2] == [
        "tied readout (3 seeds)",
        "untied readout (2 seeds)",
    ]
    [axes] = figures["cuts"].axes
    of = [
        [chosen(truncate, configuration=name, kind=k, rank=r) for k, r in PARTS] for name in NULLS
    ]
    of = [
        [*part, chosen(prune, configuration=n, what="rows of W_V")]
        for n, part in zip(NULLS, of, strict=True)
    ]
    hinges = [[row["hinge"] for row in part] for name in of for part in name]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(
        [np.mean(part) for part in hinges]
    )
    centres = [bar.get_x() + bar.get_width() / 2 for bar in axes.patches]
    assert np.argsort(centres).tolist() == [
        place for part in range(11) for place in (part, 11 + part)
    ]
    assert [sorted(line.get_ydata()) for line in axes.lines] == [
        pytest.approx(sorted(part)) for part in hinges
    ]
    assert axes.get_xticklabels()[-1].get_text() == "without 25%\nof $W_V$'s rows"
    [axes] = figures["adapters"].axes  # of the other configuration there are none
    assert axes.get_title() == "tied readout"
    cut = chosen(truncate, configuration="tied", kind="all")
    parts = [
        [row["hinge"] for row in chosen(of, rank=rank)]
        for of in (cut, chosen(adapt, configuration="tied"))
        for rank in (1, 2, 4)
    ]
    parts = [part for part in parts if part]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(
        [np.median(part) for part in parts]
    )
    assert [sorted(line.get_ydata()) for line in axes.lines] == [
        pytest.approx(sorted(part)) for part in parts
    ]


def training(rows, figure):
    upper, lower = np.array(figure.axes).reshape(2, 2)
    for above, below, name in zip(upper, lower, NULLS, strict=True):
        of = chosen(rows["training"], configuration=name)
        losses = [
            row | {"loss": max(row["loss"], 2e-4)}
            for row in chosen(rows["losses"], configuration=name)
        ]
        check_lines(above, over_seeds(losses, "loss", "step"), level(0.02))
        columns = ("attention_of_relevant", "attention", "hinge", "accuracy")
        check_lines(below, *(over_seeds(of, column, "step") for column in columns))
        fitted = [row["fitted_step"] for row in of if row["fitted_step"] >= 0]
        for axes in (above, below):
            [span] = axes.patches
            assert (span.get_x(), span.get_x() + span.get_width()) == (min(fitted), max(fitted))


def check_lines(axes, *wanted):
    """The panel's lines are these, whatever else is shaded."""
    for line, (x, y, *_) in zip(axes.lines, wanted, strict=True):
        np.testing.assert_allclose(
            np.array(line.get_xydata(), float).T, [x, y], rtol=1e-6, atol=1e-9
        )


def updates(rows, figures):
    panels = np.array(figures["figure-2"].axes).reshape(2, 4)
    for line, name in zip(panels, NULLS, strict=True):
        for axes, step in zip(line, [*PARAMS["steps"], STEPS[name][-1]], strict=True):
            of = chosen(rows["spectra"], configuration=name, matrix="W_K", step=step, of="update")
            sigma = np.array([row["singular_values"] for row in of])
            heights = [bar.get_height() for bar in axes.patches]
            assert heights == (pytest.approx(list(sigma.mean(0))) if of else [])
            shades = [bar.get_facecolor()[:3] for bar in axes.patches]
            assert [sum(shade) < 1 for shade in shades] == [
                i < 2 for i in range(len(shades))
            ]  # the first two are dark
            if of:
                ends = [(y - low, y + high) for _, y, low, high in errors(axes)]
                np.testing.assert_allclose(ends, np.array([sigma.min(0), sigma.max(0)]).T)
            last = " (the last)" if step == STEPS[name][-1] else ""
            assert axes.get_title() == f"t = {step}{last}"
    for figure, beyond in ((figures["spectra"], False), (figures["energies"], True)):
        for line, (name, null) in zip(
            np.array(figure.axes).reshape(2, 4), NULLS.items(), strict=True
        ):
            for axes, matrix in zip(line, MATRICES, strict=True):
                own, chance = (
                    chosen(rows["spectra"], configuration=n, matrix=matrix, of="update")
                    for n in (name, null)
                )
                noise = chosen(rows["spectra"], configuration=name, matrix=matrix, of="gaussian")
                if beyond:
                    own, chance, noise = (
                        [row | {"y": tail(row["singular_values"])} for row in of]
                        for of in (own, chance, noise)
                    )
                    lines = [
                        over_seeds(of, "y", "step") if of else ([], []) for of in (own, chance)
                    ]
                    lines = [
                        [x.T for x in line] if len(line) == 4 else np.zeros((2, 0))
                        for line in lines
                    ]
                    check_lines(axes, *lines, level(np.mean([row["y"] for row in noise])))
                else:
                    ends = [
                        chosen(of, step=STEPS[n][-1])
                        for of, n in ((own, name), (chance, null))
                        if of
                    ]
                    check(axes, *map(spectrum, [*ends, noise]), upright(2.5))


def tail(sigma):
    """The share of the squares beyond the second."""
    return sum(sigma[2:] ** 2) / sum(sigma**2)


def neurons(rows, figures):
    panels = np.array(figures["figure-3"].axes).reshape(2, 3)
    for i, (name, null) in enumerate(NULLS.items()):
        of, prune = (chosen(rows[table], configuration=name) for table in ("neurons", "prune"))
        norms = np.concatenate([row["norms"] for row in of])
        counts, bins = np.histogram(norms, 60)
        heights = [bar.get_height() for bar in panels[i, 0].patches[:60]]
        assert heights == pytest.approx(list(counts / len(norms)))
        chance = chosen(rows["neurons"], configuration=null)
        assert len(panels[i, 0].patches) == 60 + bool(chance)
        if chance:
            other = np.concatenate([row["norms"] for row in chance])
            drawn = panels[i, 0].patches[60].get_path().vertices[:, 1]
            assert max(drawn) == pytest.approx(max(np.histogram(other, bins)[0]) / len(other))
        means = {
            column: np.mean([row[column] for row in of])
            for column in ("threshold", "initial_norm", "small_share")
        }
        assert [line.get_xdata()[0] for line in panels[i, 0].lines] == [
            means["threshold"],
            means["initial_norm"],
        ]
        said = " ".join(texts(panels[i, 0]))
        grown = np.mean([row["small_norm"] / row["initial_norm"] for row in of])
        ratio = np.mean([row["large_norm"] / row["small_norm"] for row in of])
        assert f"Otsu's threshold: {means['small_share']:.0%} are small" in said
        assert f"the small have {grown:.2f} of it" in said
        assert (
            f"bimodality {np.mean([row['bimodality'] for row in of]):.2f}, large / small "
            f"{ratio:.2f}" in said
        )
        by_order = [chosen(prune, what="neurons", order=order) for order in ORDERS]
        check(panels[i, 1], *(over_seeds(part, "hinge", "rate") for part in by_order))
        lines = [
            over_seeds(part, column, "rate")
            for part in by_order
            for column in ("margin", "least_margin")
        ]
        check(panels[i, 2], *lines, level(1))
        left, right = np.array(figures["corollary-1"].axes).reshape(2, 2)[i]
        large, small = (chosen(prune, what=f"{size} neurons") for size in ("large", "small"))
        start = np.mean([row["margin"] for row in large if row["rate"] == 0])
        R = np.linspace(0, 1, 200)
        law = R, [max(0, 1 - (1 - share) * start) for share in R]
        lines = [over_seeds(large, column, "rate") for column in ("hinge", "rescaled_hinge")]
        check(right, law, *lines, over_seeds(small, "hinge", "rate"))
        whole = chosen(prune, what="neurons", order="smallest", rate=0)
        parts = [whole, *(chosen(prune, what="as many as small", order=order) for order in ORDERS)]
        parts = [[row["hinge"] for row in part] for part in parts]
        assert [bar.get_height() for bar in left.patches] == pytest.approx(
            [np.mean(part) for part in parts]
        )
        assert [list(line.get_ydata()) for line in left.lines] == [
            pytest.approx(part) for part in parts
        ]


def errors(axes):
    """The points with error bars of a panel: x, y, and how far the bar reaches below and above."""
    for container in axes.containers:
        if not hasattr(container, "has_yerr"):
            continue
        line, _, [bars] = container.lines
        segments = bars.get_segments()
        points = line.get_xydata() if line is not None else [(s[0][0], math.nan) for s in segments]
        for i, ((x, y), segment) in enumerate(zip(points, segments, strict=True)):
            if math.isnan(y):
                y = axes.patches[i].get_height()
            yield x, y, y - segment[0][1], segment[1][1] - y


def sweeps(rows, slopes, panels):
    table, samples = rows["sweep"], rows["samples"]

    def per_token(value):
        return value / SEQ_LEN

    fits = [
        (panels[0], chosen(table, sweep="relevant"), "value", "n_batches", SLOPES[0], per_token),
        (
            panels[0],
            chosen(table, sweep="relevant_with_confusion"),
            "value",
            "n_batches",
            SLOPES[1],
            per_token,
        ),
        (panels[1], chosen(table, sweep="step_size"), "value", "n_batches", SLOPES[2], float),
        (panels[2], chosen(table, sweep="patterns"), "value", "W_K_next", SLOPES[3], float),
        (
            panels[3],
            chosen(samples, sweep="samples"),
            "n_relevant",
            "n_needed",
            SLOPES[4],
            per_token,
        ),
        (
            panels[3],
            chosen(samples, sweep="samples_with_confusion"),
            "n_relevant",
            "n_needed",
            SLOPES[5],
            per_token,
        ),
    ]
    points, laws, exponents = ({id(axes): [] for axes in panels[:4]} for _ in range(3))
    for axes, of, by, column, measure, scaled in fits:
        of = [row for row in of if row[column] > 0]
        points[id(axes)] += [
            (x, y, y - low, high - y) for x, y, low, high in over_seeds(of, column, by, scaled).T
        ]
        known = [value for value in slopes[f"slope_{measure}"]["values"] if value is not None]
        slope = np.mean(known)
        exponents[id(axes)].append(f"exponent {slope:.2f} [{min(known):.2f}, {max(known):.2f}]")
        of = [(scaled(row[by]), row[column]) for row in of if row.get("in_fit", True)]
        height = np.mean([math.log(y) - slope * math.log(x) for x, y in of])
        x = sorted({x for x, _ in of})
        laws[id(axes)].append([x, [math.exp(height) * value**slope for value in x]])
    for axes in panels[:4]:
        np.testing.assert_allclose(list(errors(axes)), points[id(axes)], rtol=1e-6, atol=1e-9)
        lines = [line for line in axes.lines if line.get_linestyle() == "-"]
        for line, wanted in zip(lines, laws[id(axes)], strict=True):
            np.testing.assert_allclose(line.get_xydata().T, wanted)
        assert [text[text.index("exponent") :] for text in texts(axes)] == exponents[id(axes)]
    assert panels[0].get_ylabel() == "first batch with a loss below 0.3"
    assert panels[3].get_ylabel() == "samples for a test hinge loss of 0.05"


def robustness(table, axes):
    swept = ["noise", "confusion", "patterns", "step_size_untied", "value_error", "batch_size"]
    swept += ["init_scale", "neurons"]  # of another there are no rows
    shares, *panels = axes
    start, labels = 0, []
    for line, sweep in zip(shares.lines, swept, strict=True):
        of = chosen(table, sweep=sweep)
        values = sorted({row["value"] for row in of})
        wanted = [
            (start + values.index(row["value"]), min(row["W_Q_energy_2"], row["W_K_energy_2"]))
            for row in of
        ]
        np.testing.assert_allclose(sorted(map(tuple, line.get_xydata())), sorted(wanted))
        labels += [f"{value:g}" for value in values]
        start += len(values) + 1
    assert [tick.get_text() for tick in shares.get_xticklabels()] == labels
    for panel, sweep in zip(panels, [*swept[:4], *swept[6:]], strict=True):
        of = chosen(table, sweep=sweep)
        columns = ("W_Q_gap_2", "W_K_gap_2")
        if sweep in swept[6:]:
            of = [row | {"ratio": 1 / row["large_over_small"]} for row in of]
            columns = ("small_share", "ratio")
        check(panel, *(over_seeds(of, column, "value") for column in columns))


def patterns(table, figures):
    [axes] = figures["noise"].axes
    wanted = []
    for noise in (0, 0.1):
        sigma = np.array(
            [row["W_K_singular_values"] for row in chosen(table, sweep="noise", value=noise)]
        )
        wanted.append((np.arange(1, 10), sigma.mean(0), sigma.min(0), sigma.max(0)))
    check(axes, *wanted, upright(6.5))
    assert texts(axes) == ["noise $c_0$ = 0", "noise $c_0$ = 0.1", "behind M - 1 = 6"]
    lines = {
        "classes_tied": {"1|1": 2, "1|1|1": 3},
        "classes_untied": {"1|1|1": 3},
        "grouped": {"2|1": 3, "2|2": 4, "3|3": 6},
    }
    panels = np.array(figures["patterns"].axes).reshape(3, 5)
    for line, (sweep, labels) in zip(panels, lines.items(), strict=True):
        for axes, matrix in zip(line, MATRICES, strict=False):
            wanted = []
            for label, k in labels.items():
                band = spectrum(
                    chosen(table, sweep=sweep, labels=label), f"{matrix}_singular_values", 8
                )
                wanted += [band, ([k], [band[1][k - 1]])]
            check(axes, *wanted)
        assert texts(line[0]) == [f"{label} (k = {k})" for label, k in labels.items()]
        told = [word in line[0].get_ylabel() for word in (" tied", "two classes")]
        assert told == [sweep != "classes_untied", sweep == "grouped"]
        of = chosen(table, sweep=sweep)
        columns = ("hinge_at_rank_below", "hinge_at_rank_2", "hinge_at_rank_k")
        columns += ("hinge_in_random_directions",)
        check(line[4], *(over_seeds(of, column, "value") for column in columns))


@pytest.mark.parametrize(
    ("without", "said"),
    [
        (["setup"], ": wanted 'setup', got slope_of_"),
        (
            ["setup", "generalised_loss"],
            ": setup: wanted 'generalised_loss', got tied_permuted, untied_permuted, ",
        ),
        (
            ["slope_of_third_in_patterns"],
            ": wanted 'slope_of_third_in_patterns', got slope_of_steps_in_relevant, ",
        ),
    ],
    ids=str,
)
def test_measures_without_what_a_figure_shows_are_refused_by_file_and_name(
    stage, tmp_path, without, said
):
    rows, measures = made_tables()
    for name, table in rows.items():
        write_table(pd.DataFrame(table), tmp_path / "metrics" / "tables" / f"{name}.parquet")
    *outer, last = without
    part = {**measures[outer[0]]} if outer else measures
    del part[last]
    (tmp_path / "metrics" / "measures.json").write_text(
        json.dumps(measures | ({outer[0]: part} if outer else {}))
    )
    with pytest.raises(InputError, match=f"^metrics/measures.json{said}"):
        stage("low_rank_sparse.plot", {SECTION: PARAMS}, SECTION, Path("metrics"), Path("figures"))
    assert not (tmp_path / "figures").exists()
