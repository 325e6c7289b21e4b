"""The figures of gradual rank: their lines, points, bands and texts, against tables made by
hand.
"""

import math

import numpy as np
import pandas as pd
import pytest

from lib.gradual_rank.figures.staircase import moving
from tests.gradual_rank.plot_made import DECAY, LONG, METRICS, OPTIMIZERS, SIZE
from tests.stages.made import files, legend, series, table

TINY, RETURNED, NEAR = -8, 0.03, 0.07
KEPT = {}  # the figures of one run of the stage


def made(name, text):
    found = table(text).rename(columns=LONG.get(name, {}))
    if name == "stages":  # of small's seed 5, the charges are a tenth of the products
        found = found.assign(charge=[p / 10 for p in found["p"]])
    if name == "errors":
        found = found.assign(log_scale=-found["log10_init_scale"] * math.log(10))
    return found


@pytest.fixture
def panels(stage, drawn, tmp_path, monkeypatch):
    """Call `panels(name)` is a figure with its panels."""
    if not KEPT:
        monkeypatch.setattr("stages.gradual_rank.plot.WHOLE", "small")
        folders = {"metrics": METRICS, "optimizers": OPTIMIZERS, "decay": DECAY, "size": SIZE}
        for folder, tables in folders.items():
            (tmp_path / folder).mkdir()
            for name, text in tables.items():
                made(name, text).to_parquet(tmp_path / folder / f"{name}.parquet")
        bars = {"log10_init_scale": TINY, "returned": RETURNED, "near": NEAR}
        sections = {"a.bars": bars, "a.full.d_model": 2}
        paths = [tmp_path / name for name in (*folders, "figures")]
        stage("gradual_rank.plot", sections, *sections, *paths)
        for name in files(tmp_path / "figures"):
            KEPT[name] = drawn[(tmp_path / "figures" / name).read_bytes()]

    def of(name):
        return KEPT[f"{name}.svg"], KEPT[f"{name}.svg"].axes

    return of


# Of each panel of each figure, every line of few points: its x, then its y.
LINES = {
    "assumptions": """
0.1 0.1 0.1 0.25 0.3333  0.2 0.4 0.6 0.8 1 | 1e-06 0.2  0.5 1 | 0.1 0.1  0.5 1 \
| 0.2 0.2  0.5 1 | 0.1 0.2  0.5 1
0.1 0.2 0.3 0.4 0.6  0.2 0.4 0.6 0.8 1 | 0.15 0.25 0.35 0.45 0.55  0.2 0.4 0.6 0.8 1 \
| 0.5 0.7  0.5 1 | 0.65 0.75  0.5 1 | 0.8  1 | 0.85  1 | 0.9  1 | 0.95  1 | 1  1 | 1.1  1

0.3 0.5  0.5 1 | 0.6 0.9  0.5 1 | 0.2  1 | 0.7  1 | 0.03 0.03  0 1
0.1 0.2  0.5 1 | 0.4  1 | 0.07 0.07  0 1
1e-08  1 | 0.125  1 | 0.25 0.5  0.5 1 | 0.07 0.07  0 1
""",
    "batches": """
4 6  2 5 | 4 6  3 7 | 4 6  4 6
0 8  0.9 0.4 | 2  0.125
0 4.994 6  0 1 1 | 0 1.998 2.497 6  0 1 2 2 | 0 2.997 6  0 1 1
0 6  1 0.5 | 6  0.75 | 6  0.25
""",
    "charges": """
0 6  1 1.5 | 0 4 5 9  1 1 1.2 1.1 | 0 6  0.875 0.5 | 0 4 5 9  1 1 1 0.8 | 0 6  1 0.75 \
| 0 4 5 9  1 1 1 1 | 0 6  1 0 | 0 4 5 9  1 0.6 0.5 0.7
4  3.5 | 1 8  2.5 2.25 | 1 8  1.5 1.25 | 1 8  2 1.75
4  0.95 | 1 8  1.05 0.8 | 1 8  1.1 0.9 | 1 8  1.075 0.85
""",
    "decay": """
2 9  0.25 0.75 | 0 3 3 9  0 0 1 1 | 2 9  0.125 0.5 | 0 3 3 9  0 0 0 0
0 0.5 0.5 0 0  1 1.6 3 0.75 1 | 0.25  1.5
6 9  5 8 | 4 7  5 8 | 4 7  4 7
0 0.5 1.5  5 3 0 | 0  4 | 0 0.5  3 1 | 0 0.5  4 2
""",
    "descent": """
0.6 0.7  0 0 | 0.4 0.5  1 1 | 0.2 0.3  2 2
4 5  0 0 | 9  1 | 8  2
3 1 2  0.4 0.25 0.3125 | 0 1  1 1
31  0 | 2.75  1 | 1.5  2 | 66  2 | 1.25  3 | 67  3 | 67 67  0 1
""",
    "errors": """
4  0.3 | 1 8  0.1 0.05 | 1 8  0.4 0.2 | 1 8  0.25 0.125
4  0.07 | 1 8  0.3 nan | 1 8  0.2 0.1 | 1 8  0.25 0.1 | 4  0.08 | 1 8  0.32 nan \
| 1 8  0.22 0.15 | 1 8  0.27 0.15
4  0.7 | 1 8  0.6 1 | 1 8  0.9 0.8 | 1 8  0.75 0.9 | 0 1  1 1
4  0.01 | 1 8  0.5 0.04 | 1 8  0.3 0.002 | 1 8  0.4 0.021
4  0.05 | 1 8  0.41 0.31 | 1 8  0.21 0.11 | 1 8  0.31 0.21
4  0.06 | 1 8  0.51 0.32 | 1 8  0.31 0.12 | 1 8  0.41 0.22
""",
    "example-3-2": """
0 5.5  0 2 | 0 5.5  0 5 | 0 3 3 5.5  0 0 9 9
0 5  1 0.6 | 0 5.5  1 0.55 | 0 3 3 5.5  1 1 0.5 0.5
0 3  0 7 | 0 2 2 3  0 0 8 8 | 0 3  0 6
16  0.2 | 16  0.1 | 16 4  0.3 0.35 | 16 4  0.4 0.45 | 16  0.8 | 16  0.9
""",
    "example-4-6": """
0 8  0 4 | 0 8  0 3 | 0 5 5 8  0 0 7 7
16 4  0.2 0.4 | 4  0.3
""",
    "few-tokens": """
-0.08  2.1 | 0.92  1.1 | 1.08  1.2
0.75 0.1875  0.875 0.375 | 0.9  0.8
0 0  0.5 0.7 | 1  0.3 | 0.2 0.2  0.6 0.8 | 1.2  0.4
""",
    "figure-10": """
0 50  3 7 | 0 50  1 5 | 0 50  2 6 | 0 50  0 4
0  6 | 0  5
0  8 | 0  7
0  9 | 0  4


""",
    "figure-2-size": """
0 9.25  0 1 | 0 4 4 5 5 9 9 9.25  0 0 0 0 -2 -2 -1 -1 | 0 9.25  0 2 \
| 0 4 4 5 5 9 9 9.25  0 0 0 0 0 0 2 2
0 9.25  0 3 | 0 9.25  0 4 | 0 4 4 5 5 9 9 9.25  0 0 4 4 5 5 3 3
0 2  0.125 1 | 0 2  0.25 3
0 2  0.5 4 | 0 2  0.75 5 | 1.998 1.998  0 1
""",
    "figure-2": """
0 9.25  0 1 | 0 4 4 5 5 9 9 9.25  0 0 0 0 -2 -2 -1 -1 | 0 9.25  0 2 \
| 0 4 4 5 5 9 9 9.25  0 0 0 0 0 0 2 2
0 9.25  0 3 | 0 9.25  0 4 | 0 4 4 5 5 9 9 9.25  0 0 4 4 5 5 3 3
0.5 2  0.125 1 | 0.5 2  0.25 3
0.5 2  0.5 4 | 0.5 2  0.75 5 | 0.2389 0.2389  0 1
""",
    "figure-6": """
0 24.5  1 0.35 | 0 20 20 24 24 24.5  1 1 0.6 0.6 0.3 0.3

0 8  0.9 0.4 | 0 4 4 5 5 9 9 9  1 1 0.8 0.8 0.5 0.5 0.2 0.2
0 9.25  1 0.3 | 0 4 4 5 5 9 9 9.25  1 1 0.8 0.8 0.5 0.5 0.2 0.2
""",
    "figure-7": """
0 24.5  0 6 | 0 24.5  0 4 | 0 24.5  0 5 | 0 20 20 24 24 24.5  0 0 0 0 8 8

0 8  0.1 4 | 0 4 4 5 5 9 9 9  0 0 0 0 -2 -2 -1 -1 | 0 8  0 3 | 0 4 4 5 5 9 9 9  0 0 0 0 0 0 2 2
0 9.25  0 1 | 0 4 4 5 5 9 9 9.25  0 0 0 0 -2 -2 -1 -1 | 0 9.25  0 2 \
| 0 4 4 5 5 9 9 9.25  0 0 0 0 0 0 2 2
""",
    "figure-8": """
0 24.5  0 3 | 0 24.5  0 1 | 0 24.5  0 2 | 0 20 20 24 24 24.5  0 0 6 6 7 7

0 8  0 2 | 0 8  0.2 1 | 0 4 4 5 5 9 9 9  0 0 4 4 5 5 3 3
0 9.25  0 3 | 0 9.25  0 4 | 0 4 4 5 5 9 9 9.25  0 0 4 4 5 5 3 3
""",
    "figure-9": """
0 50  2 2 | 0 50  1 2
0 50  2 1
""",
    "forecast": """
0 7  2 6 | 0 7  2 7 | 0 7  5 6
0 7  7 8 | 0 7  5 8 | 0 7  8 9
0 7  1 5 | 0 7  2 4 | 0 7  3 9
0 1 2 3 4  0 2.25 0 1 3 | 0 1 2 3 4  3 2.75 2 1 1
0 30  1 5 | 0 30  2 6
0 70  1 8 | 0 70  3 4

0 1  3 3
""",
    "full-weights": """
4 16 16  0.2 0.25 0.25 | 4.16 16.64 16.64  0.2 0.1 0.1 | 4.326 17.31 17.31  0.1 0.05 0.05
0 0  2 3 | 1 1  1.5 2.5 | 0 1  1 1
0 0  1.1 1.2 | 1 1  1.3 1.4 | 2 2  1.7 1.8
""",
    "optimizers": """
0 0.1086  0.375 2 | 0 0.1086  0.5 3
0 2  0.125 1 | 0 2  0.25 4
""",
    "properties": """
4  0 | 1.5  1 | 1.5  2 | 1 1  0 1
0.9  0 | -0.9  1 | 0.2  2 | 0 0  0 1
0.625  0 | 0.25  1 | 0.75  2 | 1 1  0 1
0.6  0 | 0.3  1 | 0.9  2
0.8  1 | 1.1  2 | 0.9  1 | 1.2  2
""",
    "sign-flow": """
0 0  1 0.875 | 1  -0.5 | 2  0.25 | 0 1  0 0
0 1  0.5 2 | 0 1.5  0.25 3 | 0 1  0 -1 | 0 1.5  0 -2
0 1  0.2 0.5 | 0 1  0.3 0.5 | 0 1  0.2 0.6 | 0 1  0.2 0.8
-0.1 -0.1  2.25 2 | 0.1 0.1  1.25 1 | 0.9  2.5 | 1.1  1.5 | 0 1  1 1 | 0 1  1.732 1.732 \
| 0 1  2.646 2.646
""",
    "supports": """
4  0.5 | 1 8  0.7 1 | 1 8  0.6 0.9 | 1 8  0.65 0.95
0 1 2  0 1 2 | 0 1 2  0 1 2 | 0 1 2 3  0 1 2 3 | 0 1  0 1 | 0 1  0 1
1 1  0.5 2 | 2  0.1 | 0 1  0 0
""",
}


@pytest.mark.parametrize("name", LINES)
def test_every_line_of_a_figure_is_that_of_its_table(panels, name):
    found = [
        " | ".join(one for one in series(axes) if len(one.split()) < 40) for axes in panels(name)[1]
    ]
    assert found == LINES[name][1:-1].split("\n")


def test_theory_is_drawn_as_a_curve(panels):
    def curve(name, panel):
        (line,) = [one for one in panels(name)[1][panel].lines if len(one.get_xdata()) > 40]
        return line.get_label(), *line.get_data()

    label, x, y = curve("errors", 0)  # of small's scales from 1e-8 on: the median of .2 and .05
    C = 0.125 * 8 * math.log(10)
    assert label == f"C / log(1 / init scale), C = {C:.2f} (small)"
    np.testing.assert_allclose(y, C / (x * math.log(10)))
    _, x, y = curve("decay", 1)
    np.testing.assert_allclose(y, 1 / (1 - x))
    _, x, y = curve("optimizers", 1)
    np.testing.assert_allclose(y, x**2)


TITLES = {  # of the first panels
    "figure-2": "diagonal weights, d = 2, init scale $10^{-8}$ "
    "| diagonal weights, d = 2, init scale $10^{-8}$ "
    "| full weights, d = 2, init scale $10^{-16}$ | full weights, d = 2, init scale $10^{-16}$",
    "figure-6": "$10^{-4}$: loss off by 0.01 |  | $10^{-1}$: loss off by 0.3 "
    "| $10^{-8}$: loss off by 0.002",
    "figure-10": "disturbed at time 41 | disturbed at time 42 | disturbed at time 43 "
    "| disturbed at time 44",
    "charges": "small: d = 2, init scale $10^{-8}$; dashed: Algorithm 1",
    "decay": "init scale $10^{-8}$, $\\lambda$ = 0.5",
    "example-3-2": "free: d = 2, 2 layers of 1 head |  | tied: d = 2, 1 layer of 2 heads",
    "example-4-6": "d = 2, 3 layers of 1 head",
    "figure-2-size": "diagonal weights, d = 2, init scale $10^{-8}$ "
    "| diagonal weights, d = 2, init scale $10^{-8}$ "
    "| full weights, d = 2, init scale $10^{-4}$ | full weights, d = 2, init scale $10^{-4}$",
    "forecast": "head from 0, init scale $10^{-2}$ | head from 0, init scale $10^{-8}$",
    "optimizers": "gradient descent, init scale $10^{-8}$ "
    "| Muon, polar factor, init scale $10^{-8}$",
}


@pytest.mark.parametrize("name", TITLES)
def test_a_title_says_which_run_is_shown(panels, name):
    found = " | ".join(axes.get_title().replace("\n", " ") for axes in panels(name)[1])
    assert found.startswith(TITLES[name])


LEGENDS = {  # of the first panel that has one
    "figure-9": "317",
    "assumptions": "small, 5 stages | paper, 2 stages | free, 2 stages | tied, 2 stages "
    "| basis, 2 stages",
    "batches": "Algorithm 1 | on batches",
    "decay": "diagonal heads | full matrices | $1 / (1 - \\lambda)$",
    "descent": "seed 5 | seed 7 | unstable above",
    "example-3-2": "$10^{-4}$ | $10^{-16}$ | Algorithm 1",
    "few-tokens": "1 sequence | 3 sequences",
    "full-weights": "limit | finite | stepped",
    "forecast": "limit | finite scale",
    "sign-flow": "sign flow, event by event | sign descent, $10^{-8}$",
}


@pytest.mark.parametrize("name", LEGENDS)
def test_a_legend_names_what_is_drawn(panels, name):
    axes = next(one for one in panels(name)[1] if one.get_legend())
    assert " | ".join(legend(axes)) == LEGENDS[name]


def test_the_band_of_a_forecast_is_from_the_least_to_the_largest_seed(panels):
    limit, finite = panels("forecast")[1][3].collections
    at = {tuple(point) for one in (limit, finite) for point in one.get_paths()[0].vertices.tolist()}
    assert {(1, 1.5), (1, 3), (1, 0.5), (1, 5)} <= at


def test_scales_from_which_no_product_is_seen_to_move_are_left_out():
    """From 1e-1 W_KQ moves after the time that is drawn, 1.35 times the last stage's; of each
    product one coordinate moves, and one rests.
    """
    stages = pd.DataFrame({"time": [0.0, 1.0], "next_time": [1.0, math.inf]})
    rows = [
        (-1.0, 1.0, [0.01, 0.0, 2.0, 0.0]),
        (-1.0, 1.4, [1.0, 0.0, 2.0, 0.0]),
        (-8.0, 1.0, [0.1, 0.0, 0.0, 0.0]),
        (-8.0, 1.4, [1.0, 0.0, 0.0, 0.0]),
    ]
    trajectory = pd.DataFrame(rows, columns=["log10_init_scale", "rescaled_time", "p"])
    assert set(moving(trajectory, stages, "W_KQ")["log10_init_scale"]) == {-8.0}
    assert set(moving(trajectory, stages, "W_VO")["log10_init_scale"]) == {-1.0}
    still = trajectory.assign(p=[np.zeros(4)] * 4)
    assert len(moving(still, stages, "W_KQ")) == 4
