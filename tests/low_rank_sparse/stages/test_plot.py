"""The stage plot: what its figures show of the tables that evaluate makes of made ones."""

import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import same_color, to_rgb

from lib.pages.style import (
    BLUE,
    GREEN,
    HINGE_COLOR,
    NULL_COLOR,
    ORANGE,
    PERMUTED_COLOR,
    TRAINED_COLOR,
)
from tests.low_rank_sparse.low_rank_sparse_tables import MATRICES, ORDERS, STEPS, SWEEPS
from tests.stages.made import legend, ticks

NULLS = {"tied": "spare", "untied": "absent"}  # of the second there are no runs
LAST = {name: steps[-1] for name, steps in STEPS.items()}


KEPT = {}  # the figures of one run of the stage


@pytest.fixture
def figures(stage, drawn, evaluated, tmp_path):
    if not KEPT:
        params = {"steps": [5, 12], "rtol": "the stage evaluate's"}
        stage("low_rank_sparse.plot", {"s": params}, "s", evaluated[1], tmp_path / "figures")
        for file in (tmp_path / "figures").iterdir():
            KEPT[file.name] = drawn[file.read_bytes()]
    return KEPT


def panels(figures, name, *shape):
    return np.reshape(figures[f"{name}.svg"].axes, shape)


def rows_of(table, **where):
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def check(line, wanted, color=None):
    """The line goes through the points, a series by x."""
    points = np.reshape([*zip(wanted.index, wanted, strict=True)], (-1, 2))
    np.testing.assert_allclose(np.array(line.get_xydata(), float), points, rtol=1e-6)
    assert color is None or same_color(line.get_color(), color)


def check_means(axes, lines):
    """The first lines are means over seeds; (rows, by, column, colour) of each."""
    for line, (rows, by, column, color) in zip(axes.lines, lines, strict=False):
        check(line, rows.groupby(by)[column].mean(), color)


def heights(axes):
    return [bar.get_height() for bar in axes.patches if hasattr(bar, "get_height")]


def test_scores_are_shown_at_each_rank_of_all_updates(kept, figures):
    columns = ("hinge", "attention", "attention_of_relevant")
    for axes, column in zip(panels(figures, "figure-1", 3), columns, strict=True):
        of_tied, null, of_untied, _ = axes.lines
        for line, name, color in ((of_tied, "tied", BLUE), (of_untied, "untied", ORANGE)):
            rows = rows_of(kept["truncate"], configuration=name)
            means = rows_of(rows, kind="all").groupby("rank")[column].mean()
            check(line, means.reset_index(drop=True), color)
        chance = rows_of(kept["truncate"], configuration="tied", kind="random directions")
        check(null, pd.Series({2: chance[column].mean()}), NULL_COLOR)
        assert ticks(axes.xaxis) == ["0", "1", "2", "20"]
    said = legend(panels(figures, "figure-1", 3)[0])
    assert said[::2] == ["tied readout (3 seeds)", "untied readout (2 seeds)"]


def test_training_is_shown_with_the_steps_that_are_fitted(kept, figures):
    for i, (above, below) in enumerate(panels(figures, "attention", 2, 2).T):
        name = list(NULLS)[i]
        losses = rows_of(kept["losses"], configuration=name)
        losses = losses.assign(loss=losses["loss"].clip(lower=2e-4))
        rows = rows_of(kept["training"], configuration=name)
        color = (BLUE, ORANGE)[i]
        check_means(above, [(losses, "step", "loss", color)])
        assert above.lines[1].get_ydata() == [0.02, 0.02]
        shades = {"attention_of_relevant": color, "attention": color}
        shades |= {"hinge": HINGE_COLOR, "accuracy": GREEN}
        check_means(below, [(rows, "step", *shade) for shade in shades.items()])
        for axes in (above, below):
            [span] = axes.patches
            first, last = ((4, 7), (2, 6))[i]  # a seed that is never fitted counts not
            assert (span.get_x(), span.get_x() + span.get_width()) == (first, last)


def test_singular_values_stand_at_the_steps_that_are_asked_for_and_at_the_last(kept, figures):
    for line, name in zip(panels(figures, "figure-2", 2, 3), NULLS, strict=True):
        for axes, step in zip(line, (5, 12, LAST[name]), strict=True):
            where = {"configuration": name, "matrix": "W_K", "of": "update", "step": step}
            sigma = list(rows_of(kept["spectra"], **where)["singular_values"])
            assert heights(axes) == pytest.approx(list(np.mean(sigma, 0)) if sigma else [])
            is_dark = [sum(to_rgb(bar.get_facecolor())) < 1 for bar in axes.patches]
            assert is_dark == [i < 2 for i in range(len(is_dark))]
            last = " (the last)" if step == LAST[name] else ""
            assert axes.get_title() == f"t = {step}{last}"
    whiskers = axes.collections[0].get_segments()
    ends = np.array([np.min(sigma, 0), np.max(sigma, 0)]).T
    np.testing.assert_allclose([segment[:, 1] for segment in whiskers], ends, rtol=1e-6)


def spectrum(rows, column="singular_values", top=None):
    """Mean singular values over the largest, by their number."""
    shares = [sigma[:top] / sigma[0] for sigma in rows[column]]
    return pd.Series(np.mean(shares, 0), np.arange(1, len(shares[0]) + 1))


@pytest.mark.parametrize("figure", ["spectra", "energies"])
def test_updates_stand_beside_permuted_labels_and_gaussian_ones(kept, figures, figure):
    spectra = kept["spectra"]
    beyond = [sum(sigma[2:] ** 2) / sum(sigma**2) for sigma in spectra["singular_values"]]
    spectra = spectra.assign(beyond=beyond)
    for line, (name, null) in zip(panels(figures, figure, 2, 4), NULLS.items(), strict=True):
        for axes, matrix in zip(line, MATRICES, strict=True):
            rows = rows_of(spectra, matrix=matrix)
            own = rows_of(rows, configuration=name, of="update")
            chance = rows_of(rows, configuration=null, of="update")
            gaussian = rows_of(rows, configuration=name, of="gaussian")
            assert axes.get_title() == ("" if name == "untied" else f"$\\Delta W_{matrix[2]}$")
            if figure == "energies":
                lines = [(own, "step", "beyond", TRAINED_COLOR)]
                check_means(axes, [*lines, (chance, "step", "beyond", PERMUTED_COLOR)])
                assert axes.lines[2].get_ydata()[0] == pytest.approx(gaussian["beyond"].mean())
                continue
            wanted = [(rows_of(own, step=LAST[name]), TRAINED_COLOR)]
            if len(chance):
                wanted.append((rows_of(chance, step=LAST[null]), PERMUTED_COLOR))
            wanted.append((gaussian, NULL_COLOR))
            for drawn, (of, color) in zip(axes.lines, wanted, strict=False):
                check(drawn, spectrum(of), color)
            assert axes.lines[-1].get_xdata() == [2.5, 2.5]


def test_norms_of_neurons_are_told_with_their_two_groups_before_those_on_permuted_labels(
    kept, figures
):
    first = panels(figures, "figure-3", 2, 3)[:, 0]
    for axes, (name, null) in zip(first, NULLS.items(), strict=True):
        rows, chance = (rows_of(kept["neurons"], configuration=of) for of in (name, null))
        norms = np.concatenate(list(rows["norms"]))
        numbers, bins = np.histogram(norms, 60)
        assert heights(axes)[:60] == pytest.approx(list(numbers / len(norms)))
        places = [line.get_xdata()[0] for line in axes.lines]
        assert places == pytest.approx([rows["threshold"].mean(), rows["initial_norm"].mean()])
        grown = (rows["small_norm"] / rows["initial_norm"]).mean()
        ratio = (rows["large_norm"] / rows["small_norm"]).mean()
        told = {
            f"bimodality {rows['bimodality'].mean():.2f}, large / small {ratio:.2f}",
            f"Otsu's threshold: {rows['small_share'].mean():.0%} are small",
            f"mean norm at the start; the small have {grown:.2f} of it",
        }
        assert len(axes.patches) == 60 + (null == "spare")
        if null == "spare":
            other = np.concatenate(list(chance["norms"]))
            most = max(np.histogram(other, bins)[0]) / len(other)
            assert axes.patches[60].get_path().vertices[:, 1].max() == pytest.approx(most)
            told.add(f"permuted labels: bimodality {chance['bimodality'].mean():.2f}")
        assert set(legend(axes)) == told


def test_both_halves_of_corollary_1_are_shown(kept, figures):
    for (left, right), name in zip(panels(figures, "corollary-1", 2, 2), NULLS, strict=True):
        rows = rows_of(kept["prune"], configuration=name)
        whole = rows_of(rows, what="neurons", order="smallest", rate=0)
        many = rows_of(rows, what="as many as small")
        parts = [whole, *(rows_of(many, order=order) for order in ORDERS)]
        assert heights(left) == pytest.approx([of["hinge"].mean() for of in parts])
        share = 1 - many["weights"].mean()
        assert left.get_title() == f"{name} readout: {share:.0%} of the neurons are small"
        large, small = (rows_of(rows, what=f"{size} neurons") for size in ("large", "small"))
        law, *lines = right.lines
        start = rows_of(large, rate=0)["margin"].mean()
        wanted = np.maximum(0, 1 - (1 - law.get_xdata()) * start)
        np.testing.assert_allclose(law.get_ydata(), wanted, rtol=1e-6)
        columns = [(large, "hinge"), (large, "rescaled_hinge"), (small, "hinge")]
        for line, (of, column), color in zip(
            lines, columns, (HINGE_COLOR, BLUE, GREEN), strict=True
        ):
            check(line, of.groupby("rate")[column].mean(), color)


OTHER = "of_samples_with_confusion_in_relevant"
FITS = [  # the panel, the sweep, its columns, by which x is divided, the exponent
    (0, "relevant", "value", "n_batches", 9, "of_steps_in_relevant"),
    (0, "relevant_with_confusion", "value", "n_batches", 9, "of_steps_in_relevant_with_confusion"),
    (1, "step_size", "value", "n_batches", 1, "of_steps_in_step_size"),
    (2, "patterns", "value", "W_K_next", 1, "of_third_in_patterns"),
    (3, "samples", "n_relevant", "n_needed", 9, "of_samples_in_relevant"),
    (3, "samples_with_confusion", "n_relevant", "n_needed", 9, OTHER),
]


def test_power_laws_go_through_the_points_that_count(evaluated, kept, figures):
    measures = json.loads((evaluated[1] / "measures.json").read_text())
    of_panels = []
    for axes in panels(figures, "sweeps", -1):
        laws = [line for line in axes.lines if line.get_linestyle() == "-"]
        of_panels.append(zip(axes.containers, laws, legend(axes), strict=True))
    both = pd.concat([kept["sweep"], kept["samples"].assign(in_fit=True)])
    for place, sweep, by, column, scale, name in FITS:
        rows = rows_of(both, sweep=sweep)
        rows = rows[rows[column] > 0]
        rows = rows.assign(x=rows[by] / scale)
        points, law, said = next(of_panels[place])
        check(points.lines[0], rows.groupby("x")[column].mean())
        known = [value for value in measures[f"slope_{name}"]["values"] if value is not None]
        exponent = np.mean(known)
        assert said.endswith(f"exponent {exponent:.2f} [{min(known):.2f}, {max(known):.2f}]")
        of = rows[rows["in_fit"].astype(bool)]
        level = np.exp(np.mean(np.log(of[column]) - exponent * np.log(of["x"])))
        x = np.unique(of["x"])
        check(law, pd.Series(level * x**exponent, x))


def test_sweeps_stand_beside_each_other_with_the_lower_energy_of_both_matrices(kept, figures):
    above, *below = panels(figures, "robustness", -1)
    shown = ["noise", "confusion", "patterns", "init_scale"]  # of others there are no rows
    start = 0
    for line, name in zip(above.lines, shown, strict=True):
        rows = rows_of(kept["sweep"], sweep=name)
        values = SWEEPS[name]
        places = np.abs(np.subtract.outer(list(rows["value"]), values)).argmin(1)
        assert list(line.get_xdata()) == list(start + places)
        energies = rows[["W_Q_energy_2", "W_K_energy_2"]].min(axis=1)
        np.testing.assert_allclose(line.get_ydata(), energies)
        start += len(values) + 1
    for axes, name in zip(below, shown, strict=True):
        rows = rows_of(kept["sweep"], sweep=name)
        columns = ["W_Q_gap_2", "W_K_gap_2"]
        if name == "init_scale":
            rows = rows.assign(ratio=1 / rows["large_over_small"])
            columns = ["small_share", "ratio"]
        check_means(axes, [(rows, "value", column, None) for column in columns])


def test_the_rank_is_shown_for_each_labelling_with_a_ring_at_its_number_of_patterns(kept, figures):
    names = ("classes_tied", "classes_untied", "grouped")
    for line, name in zip(panels(figures, "patterns", 3, 5), names, strict=True):
        sweep = rows_of(kept["sweep"], sweep=name)
        labels = SWEEPS[name]
        for axes, matrix in zip(line, MATRICES, strict=False):
            for i, (k, label) in enumerate(labels.items()):
                rows = rows_of(sweep, labels=label)
                wanted = spectrum(rows, f"{matrix}_singular_values", 8)
                check(axes.lines[2 * i], wanted)
                check(axes.lines[2 * i + 1], wanted[[k]])
        assert legend(line[0]) == [f"{label} (k = {k})" for k, label in labels.items()]
        told = [word in line[0].get_ylabel() for word in (" tied", "two classes")]
        assert told == [name != "classes_untied", name == "grouped"]
        columns = {"hinge_at_rank_below": HINGE_COLOR, "hinge_at_rank_2": BLUE}
        columns |= {"hinge_at_rank_k": TRAINED_COLOR, "hinge_in_random_directions": NULL_COLOR}
        check_means(line[4], [(sweep, "value", *column) for column in columns.items()])
