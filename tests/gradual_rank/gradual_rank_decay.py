"""Made tables of weight decay, and what their figure must show."""

import itertools
import math

import numpy as np

from tests.gradual_rank.gradual_rank_optimizers import has

SEEDS, SHARES, SCALES = (4, 6), (0.0, 0.5, 1.5), (-2.0, -8.0)


def made_decay():
    draw = np.random.default_rng(4)

    def row(columns, **cell):
        return cell | {name: draw.uniform(1, 9) for name in columns}

    cells = [
        dict(zip(("seed", "share", "log10_init_scale"), cell, strict=True))
        for cell in itertools.product(SEEDS, SHARES, SCALES)
    ]
    made = {
        "heads": [row(("first_rise", "undecayed", "rank"), **cell) for cell in cells],
        "full_rises": [row(("first_rise", "undecayed"), **cell) for cell in cells],
        "full_rests": [row(("rank_KQ", "rank_VO"), **cell) for cell in cells[::2]],
        "joins": [row(("predicted", "without", "measured"), **cell) for cell in cells * 2],
        "plateaus": [
            cell | {"stage": k, "time": time, "p": draw.normal(size=2)}
            for cell in cells[::2]
            for k, time in ((1, 3.0), (0, 0.0), (2, 5.0))
        ],
        "course": [
            cells[3] | {"rescaled_time": time, "p": draw.normal(size=2)} for time in (9.0, 2.0, 4.0)
        ],
    }
    for name in ("heads", "full_rises"):
        for one in made[name]:
            one["first_rise"] = math.inf if one["share"] > 1 else one["first_rise"]
    return made


def check_decay(made, figure):
    course, first, joins, ranks = figure.axes
    check_course(made, course)
    for name in ("heads", "full_rises"):
        rows = [row for row in made[name] if row["share"] < 1]
        later = [row["first_rise"] / row["undecayed"] for row in rows]
        assert has(first, [row["share"] for row in rows], later)
    x, y = first.lines[-1].get_data()
    np.testing.assert_allclose(y, 1 / (1 - x))
    assert x[-1] == 0.5
    own = [row for row in made["joins"] if row["log10_init_scale"] == -8.0]
    times = [row["measured"] for row in own]
    for name, label in (("predicted", "with decay"), ("without", "without decay")):
        theory = [row[name] for row in own]
        assert has(joins, theory, times)
        [line] = [line for line in joins.lines if line.get_label() == label]
        assert list(line.get_xdata()) == theory
    smallest = [row for row in made["heads"] if row["log10_init_scale"] == -8.0]
    for rows, column in (
        (smallest, "rank"),
        (made["full_rests"], "rank_KQ"),
        (made["full_rests"], "rank_VO"),
    ):
        for seed in SEEDS:
            own = [row for row in rows if row["seed"] == seed]
            assert has(ranks, [row["share"] for row in own], [row[column] for row in own])


def check_course(made, axes):
    """The products by time, and the plateaus of the seed and share that are drawn."""
    rows = sorted(made["course"], key=lambda row: row["rescaled_time"])
    cell = {"seed": 4, "share": 0.5}
    stages = sorted(
        (row for row in made["plateaus"] if cell.items() <= row.items()),
        key=lambda row: row["stage"],
    )
    times = [row["time"] for row in stages]
    for i in range(2):
        assert has(axes, [row["rescaled_time"] for row in rows], [row["p"][i] for row in rows])
        plateaus = np.repeat([row["p"][i] for row in stages], 2)
        assert has(axes, [times[0], *np.repeat(times[1:], 2), 9.0], plateaus)
    assert axes.get_title() == "init scale $10^{-8}$, $\\lambda$ = 0.5"
