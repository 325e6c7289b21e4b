"""Made tables of descents at the paper's size, and what their figures must show."""

import itertools
import math

import numpy as np

from tests.gradual_rank.gradual_rank_optimizers import has

FULL = ("full", "full_batches")
UNIT = 4 * math.log(10)  # log(1 / init scale) of the full matrices


def made_paper_size():
    draw = np.random.default_rng(6)
    cells = [
        {"name": name, "batches": seed, "log10_init_scale": -4.0}
        for name, seed in (("full", 2), ("full_batches", 2), ("full_batches", 3))
    ]
    diagonal = {"name": "diagonal_batches", "batches": 5, "log10_init_scale": -1.0}
    times = ("predicted", "measured", "flow")
    return {
        "spectra": [
            {**cell, "matrix": matrix, "step": step, "rescaled_time": step / 7}
            | {"singular_values": draw.uniform(0, 1, 3)}
            for cell, matrix, step in itertools.product(cells[:2], ("W_KQ", "W_VO"), (20, 0, 10))
        ],
        "directions": [
            {**cell, "matrix": matrix, "direction": k, "finite": 3.0 + k}
            | {"rise": math.inf if k == 2 else draw.uniform(1, 9)}
            for cell, matrix, k in itertools.product(cells, ("W_KQ", "W_VO"), range(3))
        ],
        "losses": [
            {**cell, "rescaled_time": time, "loss": draw.uniform()}
            for cell, time in itertools.product((*cells, diagonal), (0.0, 2.0, 6.0))
        ],
        "batches": [diagonal | {name: draw.uniform(1, 9) for name in times} for _ in range(4)],
    }


def check_size(made, figure):
    """The first descent's singular values below the diagonal head's entries, and the forecast of
    its first rise.
    """
    for axes, matrix in zip(figure.axes[2:], ("W_KQ", "W_VO"), strict=True):
        own = [row for row in made["spectra"] if (row["name"], row["matrix"]) == ("full", matrix)]
        own = sorted(own, key=lambda row: row["step"])
        for i in range(3):
            values = [row["singular_values"][i] for row in own]
            assert has(axes, [row["rescaled_time"] for row in own], values)
        assert has(axes, [3 / UNIT] * 2, [0, 1]) == (matrix == "W_VO")
        assert axes.get_title() == "full weights, d = 3, init scale $10^{-4}$"


def check_batches(made, flow, figure):
    """Times beside the flow's, losses beside the flow's from the same scale, and how many
    directions of full matrices have risen by when.
    """
    times, diagonal, ranks, full = figure.axes
    for column in ("predicted", "measured"):
        own = [[row[name] for row in made["batches"]] for name in ("flow", column)]
        assert has(times, *own)
    rows = [row for row in flow if row["log10_init_scale"] == -1.0]
    assert has(diagonal, *([row[name] for row in rows] for name in ("rescaled_time", "loss")))
    assert len(diagonal.lines) == 2
    assert len(full.lines) == 3
    for name, seed in (("full", 2), ("full_batches", 2), ("full_batches", 3), (None, 5)):
        axes = full if name else diagonal
        own = [row for row in made["losses"] if row["batches"] == seed]
        own = [row for row in own if row["name"] == (name or "diagonal_batches")]
        assert has(axes, [0.0, 2.0, 6.0], [row["loss"] for row in own])
        for matrix in ("W_KQ", "W_VO") if name else ():
            of_one = {"name": name, "batches": seed, "matrix": matrix}
            risen = [row["rise"] for row in made["directions"] if of_one.items() <= row.items()]
            risen = sorted(rise / UNIT for rise in risen if rise < math.inf)
            assert has(ranks, [0, *risen, 6.0], [0, 1, 2, 2])
