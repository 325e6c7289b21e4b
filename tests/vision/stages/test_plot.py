"""The figures of a data set: their lines, bands, points and texts, against plain loops over made
tables.
"""

import itertools
import random
from statistics import mean

import numpy as np
import pandas as pd
import pytest

from lib.files.files import InputError
from lib.pages.style import MATRIX_COLORS, NULL_COLOR, PERMUTED_COLOR
from tests.stages.made import files

SECTION = "any.plot"
PARAMS = {"layer": 2, "head": 3, "lines": 3, "trained_loss": 5}
SEEDS, STEPS, LAST = [5, 2, 7], [1, 6, 9], 9
SPECTRA_STEPS = [1, 9, 2, 3, 4, 5, 6, 7]  # not in order
SCALES = [0.1, 0.5, 4]
PERMUTED, SGD, SCALED = (
    "labels=permuted",
    "optimizer=sgd,learning_rate=0.3",
    "scaled=all-but-patch-embedding",
)
MUON = "optimizer=muon,learning_rate=0.01"
CELLS = [
    (4, "none"),
    (0.1, "none"),
    (0.5, "none"),
    (0.5, PERMUTED),
    (0.5, SGD),
    (0.5, MUON),
    (0.1, SCALED),
]
MATRICES, LAYERS, HEADS = ["W_KQ", "W_VO"], [1, 2], [1, 2, 3]
NAMES = {"W_KQ": r"$W_K W_Q^\top$", "W_VO": r"$W_V W_O^\top$"}
RATES, RANKS, ORDERS = [0.5, 0, 0.9], [4, 0, 1], ["smallest", "random", "largest"]
FIGURES = [
    *("figure-1", "figure-3", "figure-4", "figure-5-KQ", "figure-5-VO", "figure-12"),
    *("learning-curves", "nulls", "truncation", "pruning", "equal-loss"),
]


def every(draw, value, **keys):
    """Rows, one for each combination of the keys, with a random value; keys that are joined by
    _and_ vary together.
    """
    rows = []
    for combination in itertools.product(*keys.values()):
        row = {}
        for name, found in zip(keys, combination, strict=True):
            names = name.split("_and_")
            row.update(zip(names, found if len(names) > 1 else [found], strict=True))
        rows.append({**row, value: draw.uniform(1, 9)})
    return rows


@pytest.fixture
def cells():
    """The init scale and control of each run."""
    return CELLS


@pytest.fixture
def growth():
    """The init scales along which ranks grow."""
    return [4.0, 0.1]


@pytest.fixture
def tables(cells, growth):
    """Tables as the stage before writes them, as rows; no two numbers are alike."""
    draw = random.Random(0)
    per_head = {"layer": LAYERS, "head": HEADS, "init_scale_and_control": cells}
    kinds = [
        ("initial", 0),
        ("gaussian", LAST),
        ("gaussian product", LAST),
        *(("update", step) for step in STEPS),
    ]
    ranks = every(
        draw, "stable_rank", matrix=[*MATRICES, "W_K"], of_and_step=kinds, seed=SEEDS, **per_head
    )
    kinds[1:] = [("gaussian", LAST), *(("update", step) for step in SPECTRA_STEPS)]
    spectra = [
        {
            **row,
            "n_singular_values": 6,
            "singular_values": np.array([draw.uniform(1, 9) for _ in range(4)], dtype="float32"),
        }
        for row in every(draw, "norm", matrix=MATRICES, of_and_step=kinds, seed=[7], **per_head)
    ]
    training = [
        {
            **row,
            "test_loss": draw.uniform(1, 9),
            "train_loss": draw.uniform(1, 9) if row["step"] else np.nan,
        }
        for row in every(
            draw, "test_accuracy", seed=SEEDS, step=[9, 0, 1, 6], init_scale_and_control=cells
        )
    ]
    variants = [f"init_scale={scale}" for scale in SCALES[1:]]
    truncate = every(
        draw, "test_accuracy", variant=variants, kind=["W_Q", "all", "W_1"], rank=RANKS, seed=SEEDS
    )
    what = ["heads", "weights", "neurons"]
    prune = every(
        draw, "test_accuracy", variant=variants, what=what, order=ORDERS, rate=RATES, seed=SEEDS
    )
    prune = [row | {"removed": 0.9 * row["rate"]} for row in prune]
    scales = [scale for scale, control in cells if control == PERMUTED]
    equal_loss = every(draw, "learned", matrix=MATRICES, seed=SEEDS, init_scale=scales)
    equal_loss = [
        {**row, "permuted": draw.uniform(1, 9), "train_loss": draw.uniform(0.1, 0.9)}
        for row in equal_loss
    ]
    return {
        "equal_loss": equal_loss
        or [dict.fromkeys(["matrix", "seed", "init_scale", "permuted", "train_loss"])],
        "ranks": ranks,
        "spectra": spectra,
        "training": training,
        "truncate": truncate,
        "prune": prune,
        "scales": [
            {"use": "reference", "init_scale": 0.5},
            *({"use": "growth", "init_scale": s} for s in growth),
        ],
    }


@pytest.fixture
def plot(stage, drawn, tables, tmp_path):
    """Call `plot()` runs the stage, with other params where they are given; it returns the figures
    by name.
    """

    def run(**params):
        (tmp_path / "metrics").mkdir()
        for name, rows in tables.items():
            table = pd.DataFrame(rows)
            types = {
                c: f"{t.name[:-2]}32"
                for c, t in table.dtypes.items()
                if t.name in ("float64", "int64")
            }
            types["init_scale"] = (
                "float64"  # the label of a scale is typed as that of a float, which no float32 is
            )
            types = {c: t for c, t in types.items() if c in table}
            table.astype(types).to_parquet(tmp_path / "metrics" / f"{name}.parquet")
        stage(
            "vision.plot",
            {SECTION: PARAMS | params},
            SECTION,
            tmp_path / "metrics",
            tmp_path / "figures",
        )
        names = [name.removesuffix(".svg") for name in files(tmp_path / "figures")]
        return {name: drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in names}

    return run


def of(rows, value, **keys):
    """The values of the rows that have these keys."""
    found = [
        row[value] for row in rows if all(row[name] == wanted for name, wanted in keys.items())
    ]
    assert found, keys
    return found


def mean_and_range(rows, value, by, places, **keys):
    """Of the rows that have these keys, by a column: the mean, the least, the largest."""
    found = [of(rows, value, **{by: place}, **keys) for place in places]
    return tuple([summary(values) for values in found] for summary in (mean, min, max))


def check_lines(axes, *wanted):
    """The axes hold lines of these x and y, in this order, and no others but those of a legend,
    which are empty.
    """
    drawn = [line for line in axes.lines if len(line.get_xdata())]
    assert len(drawn) == len(wanted)
    for line, (x, y) in zip(drawn, wanted, strict=True):
        np.testing.assert_allclose(line.get_xydata(), np.column_stack([x, y]), rtol=1e-5)


def check_bands(axes, *wanted):
    """The axes hold bands between these ends, in this order, and no others."""
    assert len(axes.collections) == len(wanted)
    for band, (x, low, high) in zip(axes.collections, wanted, strict=True):
        corners = band.get_paths()[0].vertices
        for place, *ends in zip(x, low, high, strict=True):
            y = corners[np.isclose(corners[:, 0], place), 1]
            np.testing.assert_allclose((y.min(), y.max()), ends, rtol=1e-5, atol=1e-5)


def check_points(axes, *wanted):
    """The axes hold a bar at the mean of each of these groups of values at x of that half-width,
    and its values.
    """
    bars = axes.collections
    assert len(bars) == len(wanted)
    for bar, (x, half, values) in zip(bars, wanted, strict=True):
        ends = [(x - half, mean(values)), (x + half, mean(values))]
        np.testing.assert_allclose(bar.get_segments()[0], ends, rtol=1e-5)


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def legend_beside(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def labels(ticks):
    return [tick.get_text() for tick in ticks]


def grid(figure, *shape):
    return np.reshape(figure.axes, shape)


def test_every_figure_draws_its_table(plot, tables):
    figures = plot()
    assert set(figures) == set(FIGURES)
    normalised(figures["figure-1"], tables["spectra"])
    through_training(figures["figure-3"], tables["spectra"], [4, 0.1])
    against_init_scale(figures["figure-4"], tables["ranks"], tables["training"])
    of_heads(figures["figure-5-KQ"], tables["spectra"], "W_KQ")
    of_heads(figures["figure-5-VO"], tables["spectra"], "W_VO")
    ranks_through_training(figures["figure-12"], tables["ranks"], [4, 0.1])
    learning_curves(figures["learning-curves"], tables["training"])
    nulls(figures["nulls"], tables["ranks"], [4, 0.1])
    equal_loss(figures["equal-loss"], tables)
    truncation(figures["truncation"], tables["truncate"])
    pruning(figures["pruning"], tables["prune"])


@pytest.mark.parametrize("growth", [[]])
@pytest.mark.parametrize("cells", [[cell for cell in CELLS if cell[1] in ("none", PERMUTED)]])
def test_without_wanted_scales_the_reference_is_drawn(plot, tables):
    figures = plot()
    assert set(figures) == set(FIGURES)
    through_training(figures["figure-3"], tables["spectra"], [0.5])
    ranks_through_training(figures["figure-12"], tables["ranks"], [0.5])
    nulls(figures["nulls"], tables["ranks"], [0.5], others=False)


@pytest.mark.parametrize("growth", [[0.1, 0.5]])
def test_permuted_labels_are_in_the_legend_where_only_some_scales_have_them(plot, tables):
    ranks_through_training(plot()["figure-12"], tables["ranks"], [0.1, 0.5])


def test_labels_are_not_compared_where_permuted_ones_are_not_learned(plot, tables):
    for row in tables["equal_loss"]:
        row["train_loss"] += 0.9  # above 1 as a mean, not in every seed
    tables["equal_loss"][0]["train_loss"] = 0.5
    assert "equal-loss" not in plot()


def normalised(figure, spectra):
    for axes, matrix in zip(figure.axes, MATRICES, strict=True):
        here = {"matrix": matrix, "init_scale": 0.5, "control": "none", "layer": 2, "head": 3}
        kinds = [("update", step) for step in (1, 2, 4, 5, 7, 9)] + [
            ("initial", 0)
        ]  # six of eight steps
        values = [
            of(spectra, "singular_values", of=kind, step=step, **here)[0] for kind, step in kinds
        ]
        check_lines(axes, *(([1, 2, 3, 4], v / v[0]) for v in values))
        assert axes.get_title() == NAMES[matrix]
        assert axes.get_xlabel() == "index of the singular value, the 4 largest of 6"
    assert legend(axes) == [*(f"update, step {step}" for _, step in kinds[:-1]), "initial state"]
    assert figure.get_suptitle() == "init scale 0.5, layer 2, head 3, seed 7"


def through_training(figure, spectra, scales):
    for row, matrix in zip(grid(figure, 2, len(scales)), MATRICES, strict=True):
        for axes, scale in zip(row, scales, strict=True):
            here = {
                "matrix": matrix,
                "init_scale": scale,
                "control": "none",
                "layer": 2,
                "head": 3,
                "of": "update",
            }
            steps = sorted(SPECTRA_STEPS)
            values = [of(spectra, "singular_values", step=step, **here)[0] for step in steps]
            check_lines(axes, *((steps, [v[i] for v in values]) for i in (2, 1, 0)))
            assert axes.get_title() == (f"init scale {scale}" if matrix == "W_KQ" else "")
        assert row[0].get_ylabel() == rf"singular values of $\Delta$ {NAMES[matrix]}"
    assert (
        figure.get_suptitle()
        == "layer 2, head 3, seed 7; each line one of the 3 largest singular values"
    )


def against_init_scale(figure, ranks, training):
    """A seed's marker is hollow where the mean training loss of its scale ends above 5."""
    for row, matrix in zip(grid(figure, 2, 2), MATRICES, strict=True):
        for axes, layer in zip(row, LAYERS, strict=True):
            here = {"matrix": matrix, "layer": layer}
            lines = []
            for control, kind, step in (
                ("none", "gaussian", LAST),
                (PERMUTED, "update", LAST),
                ("none", "update", 1),
            ):
                places = SCALES if control == "none" else [0.5]
                keys = {"control": control, "of": kind, "step": step, **here}
                lines.append(
                    (places, mean_and_range(ranks, "stable_rank", "init_scale", places, **keys)[0])
                )
            here |= {"control": "none", "of": "update", "step": LAST}
            by_head = [
                [
                    mean(of(ranks, "stable_rank", init_scale=scale, head=head, **here))
                    for head in HEADS
                ]
                for scale in SCALES
            ]
            lines.append((SCALES, [mean(heads) for heads in by_head]))
            for scale in SCALES:
                by_seed = [
                    mean(of(ranks, "stable_rank", init_scale=scale, seed=s, **here))
                    for s in sorted(SEEDS)
                ]
                lines.append(([scale] * 3, by_seed))
            check_lines(axes, *lines)
            check_bands(
                axes, (SCALES, [min(heads) for heads in by_head], [max(heads) for heads in by_head])
            )
            losses = [
                mean(of(training, "train_loss", control="none", init_scale=s, step=LAST))
                for s in SCALES
            ]
            shades = [line.get_color() for line in axes.lines[:4]]
            assert shades == [NULL_COLOR, PERMUTED_COLOR, "black", MATRIX_COLORS[matrix]]
            assert [line.get_fillstyle() == "none" for line in axes.lines[-3:]] == [
                loss > 5 for loss in losses
            ]
            assert axes.get_title() == (f"layer {layer}" if matrix == "W_KQ" else "")
        assert row[0].get_ylabel() == rf"stable rank of $\Delta$ {NAMES[matrix]}"
    wanted = [
        "Gaussian factors of equal norm",
        "permuted labels",
        "first step",
        "update; band: range over heads",
    ]
    assert legend_beside(figure) == wanted
    assert figure.get_suptitle() == "one marker per seed; hollow: training loss above 5"


def of_heads(figure, spectra, matrix):
    for row, layer in zip(grid(figure, 2, 3), LAYERS, strict=True):
        for axes, head in zip(row, HEADS, strict=True):
            here = {
                "matrix": matrix,
                "init_scale": 0.5,
                "control": "none",
                "layer": layer,
                "head": head,
            }
            initial, final = (
                of(spectra, "singular_values", of=kind, step=step, **here)[0]
                for kind, step in (("initial", 0), ("update", LAST))
            )
            check_lines(axes, ([1, 2, 3, 4], initial), ([1, 2, 3, 4], final))
            assert axes.get_title() == f"layer {layer}, head {head}"
    assert legend_beside(figure) == ["initial state", "update after 9 steps"]
    assert figure.get_suptitle() == "init scale 0.5, seed 7"
    assert figure.get_supylabel() == f"singular values of {NAMES[matrix]}"


def ranks_through_training(figure, ranks, scales):
    for row, scale in zip(grid(figure, len(scales), 2), scales, strict=True):
        for axes, layer in zip(row, LAYERS, strict=True):
            lines, bands = [], []
            for matrix in MATRICES:
                here = {"of": "update", "matrix": matrix, "layer": layer, "init_scale": scale}
                found = [
                    mean_and_range(
                        ranks, "stable_rank", "step", STEPS, seed=seed, control="none", **here
                    )
                    for seed in sorted(SEEDS)
                ]
                means, low, high = (
                    np.mean([by_seed[i] for by_seed in found], axis=0) for i in range(3)
                )
                lines += [(STEPS, by_seed[0]) for by_seed in found] + [(STEPS, means)]
                bands.append((STEPS, low, high))
                if scale == 0.5:
                    permuted = mean_and_range(
                        ranks, "stable_rank", "step", STEPS, control=PERMUTED, **here
                    )
                    lines.append((STEPS, permuted[0]))
            check_lines(axes, *lines)
            check_bands(axes, *bands)
            violet = [line for line in axes.lines if line.get_color() == PERMUTED_COLOR]
            assert [line.get_linestyle() for line in violet] == (["-", ":"] if scale == 0.5 else [])
        assert row[0].get_ylabel() == f"stable rank\ninit scale {scale}"
    assert [axes.get_title() for axes in figure.axes[:2]] == ["layer 1", "layer 2"]
    kinds = ("", ", permuted labels") if 0.5 in scales else ("",)
    assert legend_beside(figure) == [
        rf"$\Delta$ {NAMES[matrix]}{kind}" for matrix in MATRICES for kind in kinds
    ]


def learning_curves(figure, training):
    for axes, value in zip(figure.axes, ("train_loss", "test_loss", "test_accuracy"), strict=True):
        steps = [1, 6, 9] if value == "train_loss" else [0, 1, 6, 9]
        kinds = [(scale, control) for scale in SCALES for control in ("none", PERMUTED)]
        found = [
            mean_and_range(training, value, "step", steps, init_scale=scale, control=control)
            for scale, control in kinds
            if control == "none" or scale == 0.5
        ]
        check_lines(axes, *((steps, means) for means, _, _ in found))
        check_bands(axes, *((steps, low, high) for _, low, high in found))
    assert legend_beside(figure) == [
        "init scale 0.1",
        "init scale 0.5",
        "init scale 4",
        "permuted labels",
    ]
    titles = ["training loss (since the last point)", "test loss", "test accuracy"]
    assert [axes.get_title() for axes in figure.axes] == titles


def nulls(figure, ranks, scales, others=True):
    kinds = {
        "learned": ("none", "update", LAST),
        "permuted labels": (PERMUTED, "update", LAST),
        "first step": ("none", "update", 1),
        "Gaussian factors": ("none", "gaussian", LAST),
        "Gaussian product": ("none", "gaussian product", LAST),
        **(
            {"SGD for Adam": (SGD, "update", LAST), "Muon for Adam": (MUON, "update", LAST)}
            if others
            else {}
        ),
    }
    for row, matrix in zip(grid(figure, 2, len(scales)), MATRICES, strict=True):
        for axes, scale in zip(row, scales, strict=True):
            points, colors = [], []
            shades = {"permuted labels": PERMUTED_COLOR, "first step": "black"}
            shades |= dict.fromkeys(("Gaussian factors", "Gaussian product"), NULL_COLOR)
            for x, (name, (control, kind, step)) in enumerate(kinds.items()):
                here = {
                    "matrix": matrix,
                    "init_scale": scale,
                    "control": control,
                    "of": kind,
                    "step": step,
                }
                if control == "none" or scale == 0.5:
                    by_seed = [
                        mean(of(ranks, "stable_rank", seed=seed, **here)) for seed in sorted(SEEDS)
                    ]
                    points.append((x, 0.3, by_seed))
                    colors.append(shades.get(name, MATRIX_COLORS[matrix]))
            check_lines(axes, *(([x] * 3, values) for x, _, values in points))
            assert [line.get_color() for line in axes.lines] == colors
            check_points(axes, *points)
            assert labels(axes.get_xticklabels()) == (list(kinds) if matrix == "W_VO" else [])
            assert axes.get_title() == (f"init scale {scale}" if matrix == "W_KQ" else "")
        assert row[0].get_ylabel() == rf"stable rank of $\Delta$ {NAMES[matrix]}"


def equal_loss(figure, tables):
    for axes, matrix in zip(figure.axes, MATRICES, strict=True):
        lines = []
        for control, name in (("none", "learned"), (PERMUTED, "permuted")):
            here = {"init_scale": 0.5, "control": control}
            for seed in sorted(SEEDS):
                of_matrix = {"matrix": matrix, "of": "update", "seed": seed, **here}
                ranks = [
                    mean(of(tables["ranks"], "stable_rank", step=step, **of_matrix))
                    for step in STEPS
                ]
                losses = [
                    of(tables["training"], "train_loss", step=step, seed=seed, **here)[0]
                    for step in STEPS
                ]
                lines.append((losses, ranks))
            where = {"matrix": matrix, "init_scale": 0.5}
            lines.append(
                [of(tables["equal_loss"], value, **where) for value in ("train_loss", name)]
            )
        check_lines(axes, *lines)
        assert axes.get_ylabel() == rf"stable rank of $\Delta$ {NAMES[matrix]}"
    assert legend(axes) == ["true labels", "permuted labels"]


def truncation(figure, truncate):
    ranks = sorted(RANKS)
    for axes, scale in zip(figure.axes, SCALES[1:], strict=True):
        alone, together, other = (
            mean_and_range(
                truncate, "test_accuracy", "rank", ranks, variant=f"init_scale={scale}", kind=kind
            )
            for kind in ("W_Q", "all", "W_1")
        )
        check_lines(axes, *((ranks, found[0]) for found in (alone, other, together)))
        check_bands(axes, (ranks, *together[1:]))
        assert axes.get_title() == f"init scale {scale}"
        assert labels(axes.get_xticklabels()) == ["0", "1", "4"]
    assert legend_beside(figure) == ["$W_Q$ alone", "$W_1$ alone", "all matrices, mean and range"]


def pruning(figure, prune):
    """Against the share that is really removed, nine tenths of the rate here."""
    rates = sorted(RATES)
    for row, scale in zip(grid(figure, 2, 3), SCALES[1:], strict=True):
        for axes, what in zip(row, ("weights", "neurons", "heads"), strict=True):
            here = {"variant": f"init_scale={scale}", "what": what}
            found = [
                mean_and_range(prune, "test_accuracy", "rate", rates, order=order, **here)
                for order in ORDERS
            ]
            removed = [0.9 * rate for rate in rates]
            check_lines(axes, *((removed, means) for means, _, _ in found))
            check_bands(axes, *((removed, low, high) for _, low, high in found))
        assert row[0].get_ylabel() == f"test accuracy\ninit scale {scale}"
        assert {axes.get_xlabel() for axes in row} == {
            "share removed" if scale == SCALES[-1] else ""
        }
    titles = ["weights, ranked together", "MLP neurons of each layer", "heads of each layer"]
    assert [axes.get_title() for axes in figure.axes[:3]] == titles
    assert legend(figure.axes[2]) == ["smallest first", "at random", "largest first"]


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("layer", 3, r"wanted one of \[1, 2\], those of the tables, got 3"),
        ("head", 9, r"wanted one of \[1, 2, 3\], those of the tables, got 9"),
        ("lines", 5, "wanted at most the 4 singular values of a head, got 5"),
    ],
)
def test_what_the_tables_lack_is_refused_before_anything_is_drawn(
    key, value, wanted, plot, drawn, tmp_path
):
    with pytest.raises(InputError, match=rf"^any\.plot\.{key}: {wanted}$"):
        plot(**{key: value})
    assert drawn == {}
    assert not (tmp_path / "figures").exists()


def test_several_optimisers_are_drawn_of_the_tables_that_compare_them(stage, drawn, tmp_path):
    """Ranks: three steps and labels of each; what is cut or tried: a line of each, at the init
    scale of the rates.
    """
    draw = random.Random(1)
    keys = {
        "rule": ["sgd", "own"],
        "labels": ["true", "permuted"],
        "init_scale": [0.5, 2.0],
        "seed": [3, 4],
    }
    cells = [dict(zip(keys, values, strict=True)) for values in itertools.product(*keys.values())]
    ranks = [
        {**cell, "matrix": matrix, "of": of, "step": step, "stable_rank": draw.uniform(1, 9)}
        for cell in cells
        for matrix in MATRICES
        for of, step in (("update", 1), ("update", 3), ("update", 5), ("gaussian", 5))
    ]
    trained = [
        {**cell, "step": step, "train_loss": draw.uniform(1, 9)}
        for cell in cells
        for step in (1, 3, 5)
    ]
    truncate = [
        {**cell, "rank": rank, "test_accuracy": draw.random()}
        for cell in cells
        for rank in (0, 1, 4)
    ]
    rates = [
        {
            "rule": rule,
            "init_scale": 2.0,
            "seed": seed,
            "learning_rate": rate,
            "train_loss": draw.uniform(1, 9),
        }
        for rule in keys["rule"]
        for rate in (0.1, 1.0)
        for seed in (3, 4)
    ]
    rows = {"ranks": ranks, "trained": trained, "truncate": truncate, "rates": rates}
    for name, table in rows.items():
        (tmp_path / "metrics").mkdir(exist_ok=True)
        pd.DataFrame(table).to_parquet(tmp_path / "metrics" / f"{name}.parquet")
    stage("vision.plot", {SECTION: PARAMS}, SECTION, tmp_path / "metrics", tmp_path / "figures")
    names = ["optimizers", "optimizers-equal-loss", "optimizers-truncation"]
    assert files(tmp_path / "figures") == sorted(f"{name}.svg" for name in names)
    first, second, third = (
        drawn[(tmp_path / "figures" / f"{name}.svg").read_bytes()] for name in names
    )

    def values(rows, column, **where):
        return [
            row[column] for row in rows if all(row[key] == value for key, value in where.items())
        ]

    for axes, (matrix, scale) in zip(
        first.axes, itertools.product(MATRICES, (0.5, 2.0)), strict=True
    ):
        wanted = [
            values(
                ranks,
                "stable_rank",
                rule=rule,
                labels=kind,
                step=step,
                of="update",
                matrix=matrix,
                init_scale=scale,
            )
            for step, kind in ((1, "true"), (5, "true"), (5, "permuted"))
            for rule in keys["rule"]
        ]
        found = [list(line.get_ydata()) for line in axes.lines if len(line.get_ydata())]
        assert found == wanted
    for axes, (matrix, rule) in zip(
        second.axes, itertools.product(MATRICES, keys["rule"]), strict=True
    ):
        wanted = []
        for kind, seed in itertools.product(("true", "permuted"), (3, 4)):
            of = {"rule": rule, "labels": kind, "seed": seed, "init_scale": 2.0}
            y = values(ranks, "stable_rank", of="update", matrix=matrix, **of)
            wanted.append((values(trained, "train_loss", **of), y))
        assert [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines] == wanted
    left, right = third.axes
    for rule, line in zip(keys["rule"], left.lines, strict=True):
        of = {"rule": rule, "labels": "true", "init_scale": 2.0}
        means = [mean(values(truncate, "test_accuracy", rank=rank, **of)) for rank in (0, 1, 4)]
        assert list(line.get_ydata()) == pytest.approx(means)
    for rule, line, ring in zip(keys["rule"], right.lines[::2], right.lines[1::2], strict=True):
        means = [
            mean(values(rates, "train_loss", rule=rule, learning_rate=rate)) for rate in (0.1, 1.0)
        ]
        assert list(line.get_ydata()) == pytest.approx(means)
        assert list(ring.get_ydata()) == pytest.approx([min(means)])
