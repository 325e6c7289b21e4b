"""Tables that the figures of a data set are drawn from, whose numbers say what they are of."""

import itertools

import numpy as np
import pandas as pd

from tests.stages.made import table

SEEDS, STEPS, LAST = [5, 2], [1, 9], 9
SPECTRA_STEPS = [1, 9, 2, 3, 4, 5, 6, 7]  # not in order
SCALES = [0.1, 0.5, 4]
PERMUTED, SGD = "labels=permuted", "optimizer=sgd,learning_rate=0.3"
MUON, SCALED = "optimizer=muon,learning_rate=0.01", "scaled=all-but-patch-embedding"
PLAIN = [(4, "none"), (0.1, "none"), (0.5, "none")]
CELLS = [*PLAIN, (0.5, PERMUTED), (0.5, SGD), (0.5, MUON), (0.1, SCALED)]
# A stable rank is a sum: tens say of what, and of which control; ones, the init scale (0, 1, 2) and
# the product (3 more for W_VO); .5 the second layer, .2 the third head, .04 the seed 2.
OF = {"initial": 90, "gaussian": 50, "gaussian product": 60, 1: 10, 9: 20}
CONTROLS = {"none": 0, PERMUTED: 20, SGD: 30, MUON: 35, SCALED: 65}


def rank(row):
    found = OF[row["step"] if row["of"] == "update" else row["of"]] + CONTROLS[row["control"]]
    found += SCALES.index(row["init_scale"]) + 3 * (row["matrix"] == "W_VO")
    return found + 0.5 * (row["layer"] == 2) + 0.2 * (row["head"] == 3) + 0.04 * (row["seed"] == 2)


def sigma(row):
    """Singular values 8, 4 and 2, plus tenths of the step, ones of the scale, and 10 for W_VO."""
    more = row["step"] / 10 + SCALES.index(row["init_scale"]) + 10 * (row["matrix"] == "W_VO")
    more += 0.02 * (row["layer"] == 2) + 0.01 * (row["head"] == 3) + 50 * (row["of"] == "gaussian")
    return np.array([8, 4, 2], dtype="float32") + np.float32(more)


def scores(row):
    late = row["seed"] == 2
    losses = {1: 2, 6: 1, 9: 0.5}
    loss = losses.get(row["step"], np.nan) * (12 if row["init_scale"] == 4 else 1)
    permuted = row["control"] == PERMUTED
    worse = SCALES.index(row["init_scale"]) + 0.25 * permuted
    return {
        "train_loss": loss + 0.1 * late + 0.25 * permuted,
        "test_loss": 3 - row["step"] / 10 + worse + 0.2 * late,
        "test_accuracy": 0.1 + row["step"] / 20 - worse / 100 + 0.04 * late,
    }


def every(of, **keys):
    """Rows, one for each combination of the keys, with what `of` makes of each; keys that are
    joined by _and_ vary together.
    """
    rows = []
    for combination in itertools.product(*keys.values()):
        row = {}
        for name, found in zip(keys, combination, strict=True):
            names = name.split("_and_")
            row.update(zip(names, found if len(names) > 1 else [found], strict=True))
        rows.append(row | of(row))
    return pd.DataFrame(rows)


def directions(row):
    """Two directions of a head's update, the smaller first; later ones for W_VO, the scale, ..."""
    more = 10 * (row["matrix"] == "W_VO") + SCALES.index(row["init_scale"])
    more += 100 * (row["control"] == PERMUTED) + 0.5 * (row["layer"] == 2)
    more += 0.2 * (row["head"] == 3) + 20 * (row["seed"] == 5)
    size = {1: 3.0, 2: 4.0}[row["number"]]
    return {"singular_value": size, "begun": more + row["number"], "ended": more + 6}


def grown(row):
    """Ones say the init scale, 3 more the product; tenths the control, hundredths the seed."""
    more = SCALES.index(row["init_scale"]) + 3 * (row["matrix"] == "W_VO")
    return {"growth": more + CONTROLS[row["control"]] / 100 + row["seed"] / 1000}


def cut(row):
    kind = {"W_Q": 0.3, "all": 0.1, "W_1": 0.2}[row["kind"]]
    accuracy = kind + row["rank"] / 10 + 0.02 * (row["seed"] == 2)
    return {"test_accuracy": accuracy + 0.01 * (row["variant"] == "init_scale=4")}


def pruned(row):
    slope = {"smallest": 0.2, "random": 0.4, "largest": 0.6}[row["order"]]
    accuracy = 0.9 - slope * row["rate"] + 0.04 * (row["seed"] == 2)
    accuracy += {"weights": 0, "neurons": 0.01, "heads": 0.02}[row["what"]]
    accuracy -= 0.1 * (row["variant"] == "init_scale=4")
    return {"test_accuracy": accuracy, "removed": 0.9 * row["rate"]}


def made(cells, growth):
    """Tables as the stage before writes them."""
    matrices = ["W_KQ", "W_VO"]
    per_head = {"layer": [1, 2], "head": [1, 3], "init_scale_and_control": cells}
    kinds = [("initial", 0), ("gaussian", LAST), ("gaussian product", LAST)]
    kinds += [("update", step) for step in STEPS]
    steps = [*kinds[:2], *(("update", step) for step in SPECTRA_STEPS)]
    variants = {"variant": ["init_scale=0.5", "init_scale=4"]}
    spectra = every(
        lambda row: {"singular_values": sigma(row), "n_singular_values": 6},
        matrix=matrices,
        of_and_step=steps,
        seed=[7],
        **per_head,
    )
    ranks = every(
        lambda row: {"stable_rank": rank(row)},
        matrix=matrices,
        of_and_step=kinds,
        seed=SEEDS,
        **per_head,
    )
    growths = every(grown, matrix=matrices, seed=SEEDS, init_scale_and_control=cells)
    uses = {"use": ["reference", *["growth"] * len(growth)], "init_scale": [0.5, *growth]}
    return {
        "ranks": ranks,
        "spectra": spectra,
        "directions": every(
            directions,
            matrix=matrices,
            seed=SEEDS,
            layer=[1, 2],
            head=[1, 3],
            init_scale_and_control=[cell for cell in cells if cell[1] in ("none", PERMUTED)],
            number=[1, 2],
        ),
        "training": every(scores, seed=SEEDS, step=[9, 0, 1, 6], init_scale_and_control=cells),
        "truncate": every(cut, **variants, kind=["W_Q", "all", "W_1"], rank=[4, 0, 1], seed=SEEDS),
        "prune": every(
            pruned,
            **variants,
            what=["heads", "weights", "neurons"],
            order=["smallest", "random", "largest"],
            rate=[0.5, 0, 0.9],
            seed=SEEDS,
        ),
        "equal_loss": table("""
matrix seed init_scale learned permuted train_loss
W_KQ   5    0.5        5       7        .6
W_KQ   2    0.5        6       8        1.1
W_VO   5    0.5        15      17       .6
W_VO   2    0.5        16      18       1.1
"""),
        "scales": pd.DataFrame(uses),
        "growth": growths,
    }
